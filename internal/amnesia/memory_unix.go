//go:build unix

package amnesia

import (
	"golang.org/x/sys/unix"
)

// noLimit is the limit that is none.
const noLimit = unix.RLIM_INFINITY

// reserve maps memory that nobody may touch yet.
func reserve(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

// open makes a part of what was reserved usable.
func open(memory []byte) error { return unix.Mprotect(memory, unix.PROT_READ|unix.PROT_WRITE) }

// release gives back what was reserved.
func release(whole []byte) error { return unix.Munmap(whole) }

// lockLimit is RLIMIT_MEMLOCK.
func lockLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return 0
	}
	return limit.Cur
}

func makePipe(path string) error { return unix.Mkfifo(path, 0o600) }
