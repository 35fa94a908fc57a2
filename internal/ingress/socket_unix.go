//go:build linux || darwin

package ingress

import (
	"os"

	"golang.org/x/sys/unix"
)

// hasSendfile reports whether the kernel copies from a file to a socket.
const hasSendfile = true

func sendPart(fd int, p []byte, more bool) (int, error) {
	flags := unix.MSG_NOSIGNAL
	if more {
		flags |= moreFollows
	}
	return unix.SendmsgN(fd, p, nil, nil, flags)
}

// sendFile moves the offset.
func sendFile(fd int, file *os.File, offset *int64, n int64) (int, error) {
	return unix.Sendfile(fd, int(file.Fd()), offset, int(min(n, 1<<30)))
}
