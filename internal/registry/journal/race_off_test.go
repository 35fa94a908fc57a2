//go:build !race

package journal_test

// raceEnabled says that the race detector watches, which makes everything slow. What
// is run hundreds of times without it is run some dozens of times with it.
const raceEnabled = false
