//go:build unix

package fill

import "golang.org/x/sys/unix"

// socketHasUnread reports whether bytes, an end or an error wait in a socket.
func socketHasUnread(handle uintptr) bool {
	var one [1]byte
	_, _, err := unix.Recvfrom(int(handle), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err != unix.EAGAIN
}
