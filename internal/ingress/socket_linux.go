package ingress

import "golang.org/x/sys/unix"

// moreFollows tells the kernel to wait for the next part before it sends the
// last packet.
const moreFollows = unix.MSG_MORE

// unsentBytes is how many bytes the kernel holds that the client has not taken.
func unsentBytes(fd uintptr) int {
	n, _ := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) // a closed connection holds nothing
	return n
}
