package capability

import (
	"os"

	"golang.org/x/sys/unix"
)

const maxSocketName = 107 // the kernel's limit

// protectSocket sets the mode on the socket before it is bound: the kernel
// gives it to the file, so there is no moment at which others could connect.
func protectSocket(fd uintptr) error { return unix.Fchmod(int(fd), 0o600) }

func protectSocketFile(string) error { return nil }

func openToLock(folder string) (*os.File, error) { return os.Open(folder) }
