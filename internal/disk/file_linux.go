package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Allocate reserves blocks, so that a full disk is noticed before anything is
// written, and a segment lies in one piece. Some file systems cannot.
func Allocate(f *os.File, size int64) error {
	err := withFD(f, func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// datasync is fsync without the times of the file, which no caller needs.
func datasync(f *os.File) error { return withFD(f, unix.Fdatasync) }

// DropCached asks the kernel to forget what it has in memory of a file that was
// synced, so that the next read comes from the device. It is advice.
func DropCached(f *os.File) {
	_ = withFD(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}

// isDamage knows what Linux says of a file system that is inconsistent.
func isDamage(err error) bool { return errors.Is(err, unix.EUCLEAN) }
