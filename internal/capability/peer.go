package capability

import (
	"math"
	"net"
	"slices"
	"syscall"

	"micronode/fault"
)

// LocalConn is a connection whose other side is our own user, or one whom
// [LocalListener.Admit] lets in, as the kernel reports. Only this package makes one.
type LocalConn struct {
	*net.UnixConn
	uid uint32 // set at construction
}

// UID is the user at the other end.
func (c *LocalConn) UID() uint32 { return c.uid }

// PeerUID asks the kernel which user is at the other end of a Unix socket: for
// a server, the client's; for a client, the listener's. If the kernel does not
// know, the user is 2³²−1, which is no valid ID.
func PeerUID(conn net.Conn) (uint32, error) {
	const op = "capability.peer"
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return math.MaxUint32, fault.New(op, fault.Unauthorized, "only a Unix socket has peer credentials")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return math.MaxUint32, fault.Wrap(op, err)
	}
	var uid uint32
	var failed error
	err = raw.Control(func(fd uintptr) { uid, failed = peerUID(fd) })
	switch {
	case err != nil:
		return math.MaxUint32, fault.Wrap(op, err)
	case failed != nil:
		return math.MaxUint32, fault.WrapKind(op, fault.Unauthorized, failed)
	case uid == math.MaxUint32:
		return math.MaxUint32, fault.New(op, fault.Unauthorized, "the kernel has no peer credentials of the connection")
	}
	return uid, nil
}

// isMember asks the kernel whether the process at the other end was in a group,
// with its own or with one of its other groups, when it connected. What cannot
// be found out is no.
func isMember(conn *net.UnixConn, group uint32) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var groups []uint32
	if err := raw.Control(func(fd uintptr) { groups, _ = peerGroups(fd) }); err != nil { // on failure there are none
		return false
	}
	return slices.Contains(groups, group)
}
