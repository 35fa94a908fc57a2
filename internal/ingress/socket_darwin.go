package ingress

import "golang.org/x/sys/unix"

// moreFollows tells the kernel to wait for the next part before it sends the
// last packet; there is no such flag here.
const moreFollows = 0

// unsentBytes is how many bytes the kernel holds that the client has not taken.
func unsentBytes(fd uintptr) int {
	n, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NWRITE) // a closed connection holds nothing
	return n
}
