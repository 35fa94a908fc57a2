package disk

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// Lock takes the lock of an open file for this process, and ErrLocked is the
// answer if another one has it. The lock ends when the file is closed, and with
// the process. It is on a byte far behind the content, because no other process
// may read what is locked.
func Lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return os.NewSyscallError("LockFileEx", err)
}

// OpenAtOnce opens a file for reading.
func OpenAtOnce(path string) (*os.File, error) { return os.Open(path) }

// MayWrite says only whether the folder is one: who may write there is decided
// when somebody does.
func MayWrite(folder string) error {
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "access", Path: folder, Err: windows.ERROR_DIRECTORY}
	}
	return err
}

// FreeBytes is how many bytes this user may still write on the disk of a
// folder.
func FreeBytes(folder string) (uint64, error) {
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: folder, Err: err}
	}
	return free, nil
}

// Unlink removes a name that is no folder's, with one call.
func Unlink(path string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err == nil {
		err = windows.DeleteFile(name)
	}
	if err != nil {
		return &fs.PathError{Op: "DeleteFile", Path: path, Err: err}
	}
	return nil
}

// isDamage has no more errors than those that every system has.
func isDamage(error) bool { return false }

// SyncFolder does nothing: NTFS writes names to its journal by itself, and no
// folder can be synced.
func SyncFolder(string) error { return nil }
