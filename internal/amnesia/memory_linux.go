package amnesia

import (
	"errors"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lock keeps pages from being swapped out, each from its first use on: to lock
// them all at once would take up the whole size in RAM.
func lock(memory []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)), unix.MLOCK_ONFAULT)
	if errno != 0 {
		return os.NewSyscallError("mlock2", errno)
	}
	return nil
}

// excludeFromDumps is advice for debuggers' dumps; ours are off.
func excludeFromDumps(memory []byte) { _ = unix.Madvise(memory, unix.MADV_DONTDUMP) }

// disableCoreDumps turns core dumps off, in two ways; see the package comment.
func disableCoreDumps() error {
	return errors.Join(
		os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})),
		os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)),
	)
}

// createUnnamed creates a file without a name in the folder of a path.
func createUnnamed(path string) error {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}
