//go:build race

package session

// raced says that the race detector is on, which has a shadow of everything.
const raced = true
