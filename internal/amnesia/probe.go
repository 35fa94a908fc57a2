package amnesia

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Finding is one line of a check: whether the machine offers something, what
// it is in detail, and what to do if it does not.
type Finding struct {
	OK     bool
	Detail string
	Next   string
}

// Offer is what this machine offers for amnesia.
type Offer struct {
	ABI          int    // Landlock's version in this kernel; 0 if it has none
	LockLimit    uint64 // bytes that may be locked; all ones is no limit
	Landlock     Finding
	LockedMemory Finding
}

// Probe looks at the machine and changes nothing.
func Probe() Offer { return process.probe() }

func (c *confiner) probe() Offer {
	abi, err := c.abi()
	offer := Offer{ABI: abi, LockLimit: lockLimit()}
	offer.Landlock = Finding{OK: true, Detail: fmt.Sprintf("Landlock version %d", abi)}
	if reason, next := landlockLack(abi, err); reason != "" {
		offer.ABI = max(abi, 0)
		offer.Landlock = Finding{Detail: reason, Next: next}
	}
	offer.LockedMemory = Finding{OK: true, Detail: "up to " + bytesText(offer.LockLimit) + " can be locked into RAM"}
	if err := c.lockProbe(); err != nil {
		reason, next := lockLack(err, os.Getpagesize(), offer.LockLimit)
		offer.LockedMemory = Finding{Detail: reason, Next: next}
	}
	return offer
}

// lockProbe locks a page and lets it go.
func lockProbe() error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer unix.Munmap(page)
	return lock(page)
}

// lockLimit is RLIMIT_MEMLOCK.
func lockLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return 0
	}
	return limit.Cur
}

// lockLack says why memory could not be locked, and what to do.
func lockLack(err error, size int, limit uint64) (reason, next string) {
	return fmt.Sprintf("%s of memory cannot be locked into RAM (%v; the limit is %s), so it might be swapped out", bytesText(uint64(size)), err, bytesText(limit)),
		"Raise the limit (`ulimit -l`, LimitMEMLOCK= in a systemd unit), or turn swap off or encrypt it."
}

// bytesText writes a size for people.
func bytesText(n uint64) string {
	switch {
	case n == unix.RLIM_INFINITY:
		return "any amount"
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
