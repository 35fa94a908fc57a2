//go:build !linux

package node

// releaseProgramPages leaves the pages of the program to the system.
func releaseProgramPages() {}
