//go:build unix && !linux

package capability

import "os"

const maxSocketName = 103 // the kernel's limit

func protectSocket(uintptr) error { return nil }

// protectSocketFile comes after the socket is there. Who connects in between is
// asked for the user all the same.
func protectSocketFile(path string) error { return os.Chmod(path, 0o600) }

func openToLock(folder string) (*os.File, error) { return os.Open(folder) }
