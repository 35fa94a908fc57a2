package demo

import "syscall"

// OwnGroup keeps a Ctrl-C from the nodes. If this process is killed they go on:
// `micronode stop --socket NAME` ends them.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
