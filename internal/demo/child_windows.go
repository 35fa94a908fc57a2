package demo

import "syscall"

// ownGroup keeps a Ctrl-C from the nodes. If this process is killed they go on:
// `micronode stop --socket NAME` ends them.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
