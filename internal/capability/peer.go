package capability

import (
	"context"
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"micronode/fault"
)

// LocalConn is a connection whose other side the kernel has shown to be our
// own user. Only this package makes one.
type LocalConn struct {
	*net.UnixConn
	uid uint32 // set at construction
}

// UID is the user at the other end.
func (c *LocalConn) UID() uint32 { return c.uid }

// PeerUID asks the kernel which user is at the other end of a Unix socket: for
// a server, who connected; for a client, who listens. If the kernel does not
// say, the user is 2³²−1, which is nobody's ID.
func PeerUID(conn net.Conn) (uint32, error) {
	const op = "capability.peer"
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return math.MaxUint32, fault.New(op, fault.Unauthorized, "only a Unix socket tells who is at the other end")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return math.MaxUint32, fault.Wrap(op, err)
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	switch {
	case err != nil:
		return math.MaxUint32, fault.Wrap(op, err)
	case failed != nil:
		return math.MaxUint32, fault.WrapKind(op, fault.Unauthorized, failed)
	case peer.Uid == math.MaxUint32:
		return math.MaxUint32, fault.New(op, fault.Unauthorized, "the kernel does not know who is at the other end")
	}
	return peer.Uid, nil
}

// IsLocal reports whether a connection came through a LocalListener, also when
// somebody has wrapped it since and offers the inner one by NetConn, as
// crypto/tls does.
func IsLocal(conn net.Conn) bool {
	for {
		if _, ok := conn.(*LocalConn); ok {
			return true
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		conn = wrapper.NetConn()
	}
}

type localKey struct{}

// MarkLocal remembers in a context that its connection is local. It has the
// shape of http.Server.ConnContext.
func MarkLocal(ctx context.Context, conn net.Conn) context.Context {
	if IsLocal(conn) {
		return context.WithValue(ctx, localKey{}, true)
	}
	return ctx
}

// FromLocal reports whether a request came over the local socket, and so from
// the user who may do everything.
func FromLocal(ctx context.Context) bool { return ctx.Value(localKey{}) != nil }
