//go:build race

package cache

// raced reports that the race detector is on, under which pools drop some items
// and memory measurements include its own.
const raced = true
