//go:build !unix

package node

func clockState() clock { return clockUnknown }

// descriptorLimit is what Windows allows a process to have of handles.
func descriptorLimit() (uint64, error) { return 16 << 20, nil }

// monotonicMicroseconds is for systemd, which is not there.
func monotonicMicroseconds() (int64, bool) { return 0, false }
