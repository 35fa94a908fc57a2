//go:build !linux

package node

// releaseProgram leaves it to the system which pages of the program it keeps.
func releaseProgram() {}
