package capability

import (
	"os"
	"strconv"
	"strings"
	"unsafe"

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

// canTellGroups says that the kernel names the groups of the other side.
const canTellGroups = true

// maxPeerGroups is how many groups Linux lets a process have.
const maxPeerGroups = 1 << 16

// peerGroups are the groups of the process at the other end: its own, and the
// others that it is in.
func peerGroups(fd uintptr) ([]uint32, error) {
	peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	list := []uint32{peer.Gid}
	for room := uint32(64); room <= maxPeerGroups; {
		groups := make([]uint32, room)
		size := room * 4 // in bytes; the kernel writes there how many it has
		_, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case failed == 0:
			return append(list, groups[:size/4]...), nil
		case failed != unix.ERANGE || size/4 <= room:
			return nil, failed
		}
		room = size / 4
	}
	return nil, unix.ERANGE
}

// overflowGroup is what the kernel calls a group that has no number in this
// process's user namespace.
func overflowGroup() uint32 {
	const usual = 65534
	text, err := os.ReadFile("/proc/sys/kernel/overflowgid")
	if err != nil {
		return usual
	}
	group, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return usual
	}
	return uint32(group)
}
