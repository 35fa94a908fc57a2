package amnesia

import (
	"fmt"
	"os"
)

// Check is the result of one check: whether the machine supports something, the
// details, and what to do if it does not.
type Check struct {
	OK     bool
	Detail string
	Next   string
}

// Support is what this machine supports for amnesia.
type Support struct {
	ABI          int    // Landlock's version in this kernel; 0 if it has none
	LockLimit    uint64 // bytes that may be locked; all ones is no limit
	Landlock     Check
	LockedMemory Check
}

// Probe looks at the machine and changes nothing.
func Probe() Support { return thisProcess.probe() }

func (c *confiner) probe() Support {
	abi, err := c.abi()
	offer := Support{ABI: abi, LockLimit: lockLimit()}
	offer.Landlock = Check{OK: true, Detail: fmt.Sprintf("Landlock version %d", abi)}
	if reason, next := landlockProblem(abi, err); reason != "" {
		offer.ABI = max(abi, 0)
		offer.Landlock = Check{Detail: reason, Next: next}
	}
	offer.LockedMemory = Check{OK: true, Detail: "up to " + formatBytes(offer.LockLimit) + " can be locked into RAM"}
	if err := c.probeLock(); err != nil {
		reason, next := lockProblem(err, os.Getpagesize(), offer.LockLimit)
		offer.LockedMemory = Check{Detail: reason, Next: next}
	}
	return offer
}

// probeLock locks a page and releases it.
func probeLock() error {
	page, err := reserve(os.Getpagesize())
	if err != nil {
		return os.NewSyscallError("reserve", err)
	}
	defer release(page)
	if err := open(page); err != nil {
		return err
	}
	return lock(page)
}

// lockProblem says why memory could not be locked, and what to do.
func lockProblem(err error, size int, limit uint64) (reason, next string) {
	return fmt.Sprintf("%s of memory cannot be locked into RAM (%v; the limit is %s), so it might be swapped out", formatBytes(uint64(size)), err, formatBytes(limit)),
		"Raise the limit (`ulimit -l`, LimitMEMLOCK= in a systemd unit), or turn swap off or encrypt it."
}

// formatBytes formats a size for reading.
func formatBytes(n uint64) string {
	switch {
	case n == noLimit:
		return "any amount"
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
