//go:build unix && !linux

package node

import "golang.org/x/sys/unix"

func clockState() clock { return clockUnknown }

// descriptorLimit is how many descriptors the process may have: the Go runtime
// raises the soft limit to the hard one.
func descriptorLimit() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return uint64(limit.Max), err
}

// monotonicMicroseconds is for systemd, which is not there.
func monotonicMicroseconds() (int64, bool) { return 0, false }
