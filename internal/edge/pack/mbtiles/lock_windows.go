package mbtiles

import (
	"os"

	"golang.org/x/sys/windows"
)

// isLocked reports whether a program holds a lock that keeps readers out: it
// asks for a reader's lock, and gives it back.
func isLocked(file *os.File) bool {
	handle, at := windows.Handle(file.Fd()), windows.Overlapped{Offset: lockStart}
	if windows.LockFileEx(handle, windows.LOCKFILE_FAIL_IMMEDIATELY, 0, lockBytes, 0, &at) != nil {
		return true
	}
	_ = windows.UnlockFileEx(handle, 0, lockBytes, 0, &at) // the lock ends with the file at the latest
	return false
}
