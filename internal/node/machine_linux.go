package node

import "golang.org/x/sys/unix"

func clockState() clock {
	var kernel unix.Timex
	if state, err := unix.Adjtimex(&kernel); err == nil && state != unix.TIME_ERROR {
		return clockSynchronised
	}
	return clockAlone
}

// descriptorLimit is how many descriptors the process may have: the Go runtime
// raises the soft limit to the hard one.
func descriptorLimit() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return uint64(limit.Max), err
}

// monotonicMicroseconds is the clock by which systemd tells reloads apart.
func monotonicMicroseconds() (int64, bool) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano() / 1000, err == nil
}
