//go:build unix && !linux

package demo

import "syscall"

// OwnGroup keeps a Ctrl-C from the nodes. If this process is killed they go on,
// since only Linux tells children of it: `micronode stop --socket NAME` ends them.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
