//go:build race

package oap

// poolAllocs is how many allocations a call may make because, under the race
// detector, pools lose a quarter of what they are given.
const poolAllocs = 1
