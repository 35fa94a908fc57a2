//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// withFD calls a function of the kernel, and retries it after EINTR. It does
// not use File.Fd, which would make the file's reads and writes block a thread
// in other ways than they do.
func withFD(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = raw.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, callErr)
}

// Lock takes the lock of an open file for this process, and ErrLocked is the
// answer if another one has it. The lock is the kernel's: it ends when the file
// is closed, and with the process.
func Lock(f *os.File) error {
	err := withFD(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// OpenAtOnce opens a file for reading. It does not wait for a writer if the
// file is a named pipe.
func OpenAtOnce(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// MayWrite asks whether this user may make files in a folder.
func MayWrite(folder string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, folder, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "access", Path: folder, Err: err}
	}
	return nil
}

// FreeBytes is how many bytes this user may still write on the disk of a
// folder: none, if it has no inode for one more file.
func FreeBytes(folder string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return 0, err
	}
	if disk.Files > 0 && disk.Ffree == 0 {
		return 0, nil
	}
	blocks := disk.Bavail
	if os.Geteuid() == 0 {
		blocks = disk.Bfree // some are reserved for the superuser
	}
	return uint64(blocks) * uint64(disk.Bsize), nil
}

// Unlink removes a name that is no folder's, with one call.
func Unlink(path string) error {
	if err := unix.Unlink(path); err != nil {
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// SyncFolder makes the names in a folder durable, and their absence. It opens
// the folder by itself: os.Open would try to register it with the network
// poller first, which takes five more calls.
func SyncFolder(name string) error {
	for {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "open", Path: name, Err: err}
		}
		for err = unix.Fsync(fd); err == unix.EINTR; {
			err = unix.Fsync(fd)
		}
		return errors.Join(os.NewSyscallError("fsync", err), os.NewSyscallError("close", unix.Close(fd)))
	}
}
