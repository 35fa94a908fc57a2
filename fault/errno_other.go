//go:build !windows

package fault

import "syscall"

// foreignErrnos are none: the numbers of the system are those of POSIX.
var foreignErrnos map[syscall.Errno][]syscall.Errno
