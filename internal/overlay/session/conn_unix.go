//go:build unix

package session

import (
	"os"
	"syscall"
	"unsafe"
)

// hasRawIO reports whether a socket can be read and written without waiting.
const hasRawIO = true

// The sockets of Go never block, so neither do these calls: they move what can
// be moved and return. They bypass the scheduler, which would otherwise see a
// call that lasts as long as copying 64 KiB, hand the processor to another
// thread, and have to wake this one again.

// readFrom reads what has arrived, if anything has.
func readFrom(fd uintptr, p []byte) (int, error) {
	return transfer("read", syscall.SYS_READ, fd, p)
}

// writeTo writes what there is room for, if there is any.
func writeTo(fd uintptr, p []byte) (int, error) {
	return transfer("write", syscall.SYS_WRITE, fd, p)
}

func transfer(name string, call, fd uintptr, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, errno
		default:
			return 0, os.NewSyscallError(name, errno)
		}
	}
}

func wouldBlock(err error) bool { return err == syscall.EAGAIN }
