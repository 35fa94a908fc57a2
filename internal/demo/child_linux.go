package demo

import "syscall"

// OwnGroup keeps a Ctrl-C from the nodes. The kernel kills them when this
// process ends for any reason: it watches the thread that started them, and no
// thread of this program ends before the program.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
