package client

import (
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const maxSocketName = 103 // the kernel's limit

// ownUID is the user whose node is asked.
func ownUID() uint32 { return uint32(os.Geteuid()) }

// ownerOf asks the kernel which user owns the other end of the socket.
func ownerOf(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return math.MaxUint32, err
	}
	var peer *unix.Xucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil {
		return math.MaxUint32, err
	}
	if failed != nil {
		return math.MaxUint32, failed
	}
	return peer.Uid, nil
}
