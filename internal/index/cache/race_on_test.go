//go:build race

package cache

// raced tells that the race detector is on, under which pools lose a part of
// what they are given and memory is measured with its own.
const raced = true
