//go:build unix

package session

import (
	"os"
	"syscall"
)

// readable says that a socket can be read from without waiting.
const readable = true

// readFrom reads what has come, if anything has.
func readFrom(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch err {
		case nil:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, err
		default:
			return 0, os.NewSyscallError("read", err)
		}
	}
}

func again(err error) bool { return err == syscall.EAGAIN }
