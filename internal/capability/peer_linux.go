package capability

import (
	"os"

	"golang.org/x/sys/unix"
)

func peerUID(fd uintptr) (uint32, error) {
	peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}

// ownUID is the user whose node this is.
func ownUID() uint32 { return uint32(os.Geteuid()) }
