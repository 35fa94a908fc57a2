package fill

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"runtime"
	"sync/atomic"
	"syscall"
)

// originConn is a connection to an origin that shows whether its reader waits
// for bytes. net/http reads ahead between two answers, but it puts a connection
// into its pool before it looks. A request that takes the connection in that
// moment would be answered with whatever the origin sent beyond the last answer.
type originConn struct {
	net.Conn
	waiting atomic.Bool // the reader has used all that it has read, and wants more
}

// watchConns makes a dialer of connections that can be checked.
func watchConns(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &originConn{Conn: conn}, nil
	}
}

// Read reads. TLS and net/http call it only when they hold nothing that they
// have not used.
func (c *originConn) Read(p []byte) (int, error) {
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	return c.Conn.Read(p)
}

// readerTurns is how often the reader of a connection is given a chance to
// look at what has come. It needs one, unless the machine is very busy; a
// connection that is closed for nothing costs a handshake.
const readerTurns = 64

// isClean reports whether nothing of the origin is unread: the reader waits, and
// the kernel has no bytes, and no end, for it.
func (c *originConn) isClean() bool {
	for range readerTurns {
		if c.waiting.Load() {
			return !c.hasUnread()
		}
		runtime.Gosched()
	}
	return false
}

// hasUnread reports whether the kernel has something for the reader. A
// connection that is not a socket has none.
func (c *originConn) hasUnread() (unread bool) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(handle uintptr) { unread = socketHasUnread(handle) })
	return unread || err != nil
}

// withCleanConns makes a request that ctx is for use no connection with unread
// bytes: such a connection is closed before anything is sent, and net/http takes
// another. HTTP/2 has numbers for what belongs to which request.
func withCleanConns(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		secure, ok := got.Conn.(*tls.Conn)
		if !ok || !got.Reused || secure.ConnectionState().NegotiatedProtocol == "h2" {
			return
		}
		if conn, ok := secure.NetConn().(*originConn); ok && !conn.isClean() {
			_ = conn.Close() // not that of TLS, which may wait for the origin
		}
	}})
}
