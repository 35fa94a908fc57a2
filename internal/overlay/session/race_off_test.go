//go:build !race

package session

// raced reports whether the race detector is on, which needs memory of its own.
const raced = false
