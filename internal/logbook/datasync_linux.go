package logbook

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync is fsync without the times of the file, which nobody needs. It is
// called again if a signal came between.
func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = unix.Fdatasync(int(fd)); !errors.Is(failed, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}
