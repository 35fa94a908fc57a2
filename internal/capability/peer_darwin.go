package capability

import (
	"os"

	"golang.org/x/sys/unix"
)

func peerUID(fd uintptr) (uint32, error) {
	peer, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}

// ownUID is the user whose node this is.
func ownUID() uint32 { return uint32(os.Geteuid()) }

// canTellGroups says that the kernel names the groups of the other side.
const canTellGroups = true

// peerGroups are the groups of the process at the other end, sixteen at most:
// who is in more may be refused.
func peerGroups(fd uintptr) ([]uint32, error) {
	peer, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return nil, err
	}
	return peer.Groups[:min(int(max(peer.Ngroups, 0)), len(peer.Groups))], nil
}

// overflowGroup is the group of nobody.
func overflowGroup() uint32 { return 1<<32 - 2 }
