package mbtiles

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// isLocked reports whether a program holds a lock that keeps readers out.
func isLocked(file *os.File) bool {
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: lockStart, Len: lockBytes}
	err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}
