package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves blocks, so that a full disk is noticed before anything is
// written, and a segment lies in one piece. Some file systems cannot.
func allocate(f *os.File, size int64) error {
	err := withFD(f, func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// datasync is fsync without the times of the file, which no caller needs.
func datasync(f *os.File) error { return withFD(f, unix.Fdatasync) }

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
