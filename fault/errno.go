package fault

import (
	"errors"
	"syscall"
)

// IsErrno reports whether the system refused a call with one of its numbers, by
// the name that POSIX gives it. Windows has numbers of its own for most of
// them, which mean the same.
func IsErrno(err error, number syscall.Errno) bool {
	if errors.Is(err, number) {
		return true
	}
	for _, other := range foreignErrnos[number] {
		if errors.Is(err, other) {
			return true
		}
	}
	return false
}
