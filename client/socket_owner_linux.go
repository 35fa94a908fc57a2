package client

import (
	"math"
	"net"
	"os"
	"syscall"
)

const maxSocketName = 107 // the kernel's limit

// ownUID is the user whose node is asked.
func ownUID() uint32 { return uint32(os.Geteuid()) }

// ownerOf asks the kernel which user owns the other end of the socket.
func ownerOf(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return math.MaxUint32, err
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return math.MaxUint32, err
	}
	if failed != nil {
		return math.MaxUint32, failed
	}
	return peer.Uid, nil
}
