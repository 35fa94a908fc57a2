//go:build unix && !linux

package amnesia

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock keeps pages from being swapped out. It takes up the whole size in RAM at
// once, which Linux can avoid.
func lock(memory []byte) error { return os.NewSyscallError("mlock", unix.Mlock(memory)) }

// excludeFromDumps has no call here: core dumps are off as a whole.
func excludeFromDumps([]byte) {}

// disableCoreDumps has the limit only. A debugger of the same user can still
// read the memory of the process.
func disableCoreDumps() error {
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
}

// createUnnamed makes a file and takes its name away, as only Linux can make
// one that never had any.
func createUnnamed(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = os.Remove(path)
	return file.Close()
}
