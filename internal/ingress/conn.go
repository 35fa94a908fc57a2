package ingress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// conn is an accepted connection. It lies below net/http, and below TLS where
// there is TLS. It gives back what it was counted for when it is closed, runs
// the warm lane, keeps slow transfers going and stuck ones from staying, and
// lets a drain see what the connection is doing.
type conn struct {
	// set at construction
	net.Conn
	tcp      *net.TCPConn // nil if it is something else
	listener *Listener
	peer     *peer // nil if the client has no IP, or none that counts
	client   netip.Addr
	opened   time.Time

	state     atomic.Int32 // the http.ConnState that net/http told last
	touched   atomic.Bool  // a byte has come
	answering atomic.Bool  // from the start of our handler until net/http calls the connection idle
	slow      atomic.Bool  // a header did not come in time
	http2     atomic.Bool  // it has carried a request of HTTP/2
	gone      atomic.Bool  // closed
	phase     atomic.Int32 // what the warm lane is doing with it
	between   atomic.Int32 // where net/http is between two requests, for the warm lane
	watch     atomic.Pointer[watchdog]

	warm *warmth // owned by net/http's goroutine of the connection; nil where the lane is off, and at the end

	pushed time.Time // owned by the writer: when the deadline of a transfer's write was last set
}

// Read gives net/http its bytes. Requests that the warm lane can answer do not
// get there.
func (c *conn) Read(p []byte) (int, error) {
	if w := c.warm; w != nil {
		if c.entersLane(w, len(p)) {
			if err := c.serveWarm(w); err != nil {
				return 0, err
			}
		}
		if w.from < w.to {
			return w.give(p), nil
		}
	}
	n, err := c.Conn.Read(p)
	switch {
	case n > 0:
		c.touch()
	case !c.answering.Load() && errors.Is(err, os.ErrDeadlineExceeded):
		c.slow.Store(true)
	}
	return n, err
}

func (c *conn) touch() {
	if !c.touched.Load() {
		c.touched.Store(true)
	}
}

// Write sends bytes. What net/http says by itself, before any handler of ours
// has run, is said in our words instead.
func (c *conn) Write(p []byte) (int, error) {
	if !c.answering.Load() && ownRefusal(p) {
		return c.refuseRaw(p)
	}
	if watch := c.watch.Load(); watch != nil {
		return c.push(watch, p)
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline also ends the watch of a transfer: net/http calls it when a
// request is over.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.watch.Load() != nil {
		c.watch.Store(nil)
		c.pushed = time.Time{}
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline keeps a TLS handshake to its own time-out, which is shorter
// than that of a header. net/http sets the one for both, and takes it back
// when the handshake is done. For the warm lane it is also a sign of where
// net/http is.
func (c *conn) SetReadDeadline(t time.Time) error {
	switch c.between.Load() {
	case betweenIdle:
		c.between.Store(betweenWaiting)
	case betweenWaiting:
		c.between.Store(betweenNot)
	}
	if c.listener.options.TLS != nil && !c.touched.Load() {
		if latest := c.opened.Add(c.listener.server.times.TLSTimeout); t.After(latest) {
			t = latest
		}
	}
	return c.Conn.SetReadDeadline(t)
}

const (
	pieceSize = 64 << 10               // what is written between two looks at the clock
	pushTick  = time.Second            // how often a blocked write looks whether the client takes bytes
	pushStep  = 250 * time.Millisecond // how exact that is
)

// push writes for a transfer. The kernel wakes a writer only when a good part
// of its buffer is free, so a slow client can be at it for a long time before a
// write of ours moves. A write that is tried again takes what room there is: so
// we look every second, and whatever was taken is progress.
func (c *conn) push(watch *watchdog, p []byte) (n int, err error) {
	for n < len(p) {
		c.armPush()
		m, err := c.Conn.Write(p[n:min(n+pieceSize, len(p))])
		n += m
		if m > 0 {
			watch.moved()
		}
		if err != nil && !c.goesOn(watch, err) {
			return n, err
		}
	}
	return n, nil
}

// armPush keeps the deadline of the next piece ahead.
func (c *conn) armPush() {
	if now := time.Now(); now.Sub(c.pushed) > pushStep {
		c.pushed = now
		_ = c.Conn.SetWriteDeadline(now.Add(pushTick + pushStep)) // fails on a closed connection, and then the write will say so
	}
}

// goesOn decides after a write that failed whether to try again.
func (c *conn) goesOn(watch *watchdog, err error) bool {
	c.pushed = time.Time{}
	return errors.Is(err, os.ErrDeadlineExceeded) && !c.gone.Load() && !watch.expired()
}

// ReadFrom lets the kernel copy from a file to the connection. It goes piece
// by piece, so that a long file shows progress.
func (c *conn) ReadFrom(src io.Reader) (n int64, err error) {
	limited, isLimited := src.(*io.LimitedReader)
	if !isLimited {
		limited = &io.LimitedReader{R: src, N: 1<<63 - 1}
	}
	if _, isFile := limited.R.(*os.File); !isFile || c.tcp == nil {
		buffer := copies.Get().(*[pieceSize]byte)
		defer copies.Put(buffer)
		return io.CopyBuffer(onlyWriter{c}, onlyReader{src}, buffer[:])
	}
	for limited.N > 0 {
		piece := io.LimitedReader{R: limited.R, N: min(limited.N, pieceSize)}
		m, err := c.sendFile(&piece)
		n += m
		limited.N -= m
		if err != nil || piece.N > 0 {
			return n, err // piece.N > 0: the file is shorter than was asked for
		}
	}
	return n, nil
}

// sendFile is push for a piece of a file.
func (c *conn) sendFile(piece *io.LimitedReader) (n int64, err error) {
	watch := c.watch.Load()
	if watch == nil {
		return c.tcp.ReadFrom(piece)
	}
	for {
		c.armPush()
		m, err := c.tcp.ReadFrom(piece)
		n += m
		if m > 0 {
			watch.moved()
		}
		if err == nil || !c.goesOn(watch, err) {
			return n, err
		}
	}
}

// onlyWriter hides every other method, so that io.Copy copies.
type onlyWriter struct{ io.Writer }

// onlyReader does the same for the other side.
type onlyReader struct{ io.Reader }

// CloseWrite lets net/http say goodbye before it closes.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection, unless the warm lane has it. net/http calls a
// connection idle while the lane answers on it, and when keep-alive ends for all
// it closes those that are idle. The lane is told instead, and ends when it has
// answered.
func (c *conn) Close() error {
	if c.phase.Load() != phaseNet {
		c.wakeWarm()
		return nil
	}
	return c.shut()
}

// shut closes the connection, whatever it is doing, and gives back, once, what
// it was counted for.
func (c *conn) shut() error {
	err := c.Conn.Close()
	if c.gone.CompareAndSwap(false, true) {
		c.listener.release(c)
	}
	return err
}
