package ingress

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// conn is an accepted connection. It lies below net/http, and below TLS where
// there is TLS. It releases what it counts against when it is closed, runs
// the warm lane, keeps slow transfers alive and ends stuck ones, and shows a
// drain what the connection is doing.
type conn struct {
	// set at construction
	net.Conn
	tcp         *net.TCPConn // nil if it is another kind
	tlsConn     *tls.Conn    // the layer above, where there is TLS
	listener    *Listener
	clientState *clientState // nil if the client has no IP, or one that is not limited; of a client that a proxy names, written under listener.mu
	client      netip.Addr   // of a proxy that sends a header, what that says; set before the first request
	proxied     bool         // the header of the PROXY protocol was read
	opened      time.Time

	state          atomic.Int32 // the http.ConnState that net/http reported last
	received       atomic.Bool  // a byte has come
	inRequest      atomic.Bool  // from the start of our handler until net/http reports the connection idle
	headerTimedOut atomic.Bool  // a header was late, and the refusal was sent
	handshakeDone  atomic.Bool  // the TLS handshake is done
	readAborted    atomic.Bool  // net/http ends its background read
	readTimedOut   atomic.Bool  // a read during a request timed out: net/http ends the context of this and of all later requests
	http2          atomic.Bool  // it has carried a request of HTTP/2
	closed         atomic.Bool
	writeFailed    atomic.Bool
	phase          atomic.Int32 // what the warm lane is doing with it
	laneIdle       atomic.Int32 // where net/http is between two requests, for the warm lane
	idleState      atomic.Int32 // the same, whatever the lane does
	transferWatch  atomic.Pointer[watchdog]
	overrunTimer   overrunTimer // abandons handlers that overrun; see overrun.go
	warmStep       atomic.Int64 // what the warm lane does with a disk; see warm_overrun.go
	warmReturned   atomic.Pointer[chan struct{}]

	header headerScanner // of what net/http reads; has a lock of its own

	headRead atomic.Int64 // bytes of that header, or of several
	headHeld atomic.Int64 // what it holds of limits.memory

	warmConn *warmConn // owned by net/http's goroutine of the connection; nil where the lane is off, and at the end

	writeDeadlineSet time.Time // owned by the writer: when the deadline of a transfer's write was last set

	// owned by the writer of transfers: how many bytes it has written and the
	// client has taken, at the last check
	transferWritten, transferTaken int
	takenCheckedAt                 time.Time
}

// Read returns bytes to net/http. Requests that the warm lane can answer do not
// get there. The lane may run in the first Read, and when net/http is between
// two requests; whatever this Read returns, it may not run in the next one.
func (c *conn) Read(p []byte) (n int, err error) {
	w := c.warmConn
	if w != nil {
		enter := w.readSize == 0
		if enter {
			w.readSize = len(p)
		} else {
			enter = c.laneIdle.CompareAndSwap(idleWaiting, idleNo) && len(p) == w.readSize && w.from == w.to
		}
		if enter {
			if err := c.serveWarm(w); err != nil {
				return 0, err
			}
		}
	}
	if w != nil && w.from < w.to { // read by the lane, and not used
		n = copy(p, w.buffer.in[w.from:w.to])
		if w.from += n; w.from == w.to {
			w.releaseBuffer()
		}
	} else {
		n, err = c.Conn.Read(p)
		switch {
		case n > 0:
			c.markReceived()
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.onReadTimeout()
		}
	}
	if n > 0 && c.tlsConn == nil {
		c.header.scan(p[:n])
	}
	if n > 0 && !c.inRequest.Load() && !c.http2.Load() && !c.holdHead(n) {
		return 0, io.EOF
	}
	return n, err
}

// onReadTimeout records that bytes were late. A client that has begun a header
// gets a 408; one that is silent between two requests does not, nor one whose
// body is awaited: the chain answers that.
func (c *conn) onReadTimeout() {
	switch {
	case c.inRequest.Load():
		if !c.readAborted.Load() {
			c.readTimedOut.Store(true)
		}
	case c.received.Load() && c.idleState.Load() == idleNo && !c.headerTimedOut.Load():
		c.refuseSlowHeader()
	}
}

func (c *conn) markReceived() {
	if !c.received.Load() {
		c.received.Store(true)
	}
}

// Write sends bytes. A response that net/http makes by itself, before any
// handler of ours has run, is replaced by a problem document.
func (c *conn) Write(p []byte) (int, error) {
	if !c.inRequest.Load() && isNetHTTPResponse(p) {
		return c.refuseRaw(p)
	}
	if c.headerTimedOut.Load() && len(p) > maxTLSAlert {
		return len(p), nil // net/http, above TLS, calls it malformed
	}
	var n int
	var err error
	switch watch := c.transferWatch.Load(); {
	case watch != nil:
		n, err = c.writeTransfer(watch, p)
	case c.http2.Load():
		n, err = c.writeHTTP2(p)
	default:
		n, err = c.Conn.Write(p)
	}
	c.countWriteError(err)
	return n, err
}

// countWriteError counts a failed write, once per connection: nothing is
// written after it.
func (c *conn) countWriteError(err error) {
	if err == nil || c.writeFailed.Swap(true) {
		return
	}
	count := c.listener.server.instruments
	if errors.Is(err, os.ErrDeadlineExceeded) {
		count.IOTimeouts.WithLabelValues("write").Inc()
	} else {
		count.IOErrors.WithLabelValues("write").Inc()
	}
}

// SetWriteDeadline also ends the watch of a transfer: net/http calls it when a
// request is over.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.transferWatch.Load() != nil {
		c.transferWatch.Store(nil)
		c.writeDeadlineSet, c.takenCheckedAt, c.transferWritten, c.transferTaken = time.Time{}, time.Time{}, 0, 0
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline keeps a TLS handshake to its own time-out, which is shorter
// than that of a header. net/http sets one deadline for both, and clears it
// when the handshake is done. The warm lane also learns from it where net/http
// is.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.tlsConn != nil && t.IsZero() {
		c.handshakeDone.Store(true)
	}
	advanceIdle(&c.laneIdle)
	advanceIdle(&c.idleState)
	c.readAborted.Store(!t.IsZero() && t.Before(c.opened)) // a time long past
	if c.listener.options.TLS != nil && !c.received.Load() {
		if latest := c.opened.Add(c.listener.server.times.TLSTimeout); t.After(latest) {
			t = latest
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// advanceIdle records that net/http has set another deadline since it was idle.
func advanceIdle(between *atomic.Int32) {
	switch between.Load() {
	case idleReported:
		between.Store(idleWaiting)
	case idleWaiting:
		between.Store(idleNo)
	}
}

const (
	copyChunk     = 64 << 10               // what is written between two checks of the clock
	writePoll     = time.Second            // how often a blocked write checks whether the client takes bytes
	writePollStep = 250 * time.Millisecond // how exact that is
)

// writeTransfer writes for a transfer. The kernel wakes a writer only when a
// good part of its buffer is free, and the buffer may hold megabytes, so a slow
// client can read for a long time before a write of ours moves. So it checks
// every second: the bytes that a retried write takes are progress, and so are
// those that the client has taken out of the kernel's buffer.
func (c *conn) writeTransfer(watch *watchdog, p []byte) (n int, err error) {
	for n < len(p) {
		c.extendWriteDeadline()
		m, err := c.Conn.Write(p[n:min(n+copyChunk, len(p))])
		n += m
		c.noteProgress(watch, m, err)
		if err != nil && !c.canRetryWrite(watch, err) {
			return n, err
		}
	}
	return n, nil
}

// minClientRate is the rate at which a client that reads steadily is never cut.
// Its kernel frees buffer space in steps of about a hundred kilobytes, and
// between two steps its reading is invisible: so a step counts for as long as
// it takes at this rate, up to twice http.progress.
const minClientRate = 16 << 10

// stallLimit is how long a client that has taken n bytes at once may show no
// progress.
func stallLimit(n int, limit time.Duration) time.Duration {
	return min(max(limit, time.Duration(n)*time.Second/minClientRate), 2*limit)
}

// noteProgress reports to the watchdog what a write of n bytes has moved: into
// the kernel's buffer and, now and then or when the write was blocked, out of
// it.
func (c *conn) noteProgress(watch *watchdog, n int, err error) {
	if n > 0 {
		watch.progress()
	}
	took := c.newlyTaken(n, err != nil)
	switch {
	case c.tcp == nil && n > 0:
		watch.moved(n)
	case took > 0:
		watch.moved(took)
		watch.progressFor(stallLimit(took, watch.limit))
	}
}

// newlyTaken is how many bytes the client has taken since the last check, if it
// is time for one.
func (c *conn) newlyTaken(n int, blocked bool) (took int) {
	c.transferWritten += n
	if c.tcp == nil || !blocked && c.writeDeadlineSet.Sub(c.takenCheckedAt) < writePollStep {
		return 0
	}
	c.takenCheckedAt = c.writeDeadlineSet
	if at := c.transferWritten - c.unsentBytes(); at > c.transferTaken {
		took, c.transferTaken = at-c.transferTaken, at
	}
	return took
}

// writeHTTP2 is writeTransfer for a connection of HTTP/2, whose streams share
// it. net/http closes the connection when a write has not moved for
// http.progress; it cannot see what the client takes out of the kernel's
// buffer.
func (c *conn) writeHTTP2(p []byte) (n int, err error) {
	limit := c.listener.server.times.Progress
	for end := time.Now().Add(limit); ; {
		c.writeDeadlineSet = time.Now()
		_ = c.Conn.SetWriteDeadline(c.writeDeadlineSet.Add(writePoll)) // fails on a closed connection, and then the write reports it
		m, err := c.Conn.Write(p[n:])
		n += m
		if err == nil {
			c.newlyTaken(m, false)
			return n, nil
		}
		if took := c.newlyTaken(m, true); took > 0 || m > 0 {
			end = later(end, time.Now().Add(stallLimit(took, limit)))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.closed.Load() || !time.Now().Before(end) {
			return n, err
		}
	}
}

// unsentBytes is how many bytes the kernel holds that the client has not taken,
// or zero if unknown.
func (c *conn) unsentBytes() (n int) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n = unsentBytes(fd) }) // a closed connection holds nothing
	return n
}

// extendWriteDeadline moves the write deadline ahead for the next chunk.
func (c *conn) extendWriteDeadline() {
	if now := time.Now(); now.Sub(c.writeDeadlineSet) > writePollStep {
		c.writeDeadlineSet = now
		_ = c.Conn.SetWriteDeadline(now.Add(writePoll + writePollStep)) // fails on a closed connection, and then the write reports it
	}
}

// canRetryWrite decides after a failed write whether to retry it.
func (c *conn) canRetryWrite(watch *watchdog, err error) bool {
	c.writeDeadlineSet = time.Time{}
	return errors.Is(err, os.ErrDeadlineExceeded) && !c.closed.Load() && !watch.expired()
}

// ReadFrom lets the kernel copy from a file to the connection. It goes chunk by
// chunk, so that a long file shows progress.
func (c *conn) ReadFrom(src io.Reader) (n int64, err error) {
	limited, isLimited := src.(*io.LimitedReader)
	if !isLimited {
		limited = &io.LimitedReader{R: src, N: 1<<63 - 1}
	}
	if _, isFile := limited.R.(*os.File); !isFile || c.tcp == nil {
		buffer := copyBuffers.Get().(*[copyChunk]byte)
		defer copyBuffers.Put(buffer)
		return io.CopyBuffer(onlyWriter{c}, onlyReader{src}, buffer[:])
	}
	for limited.N > 0 {
		piece := io.LimitedReader{R: limited.R, N: min(limited.N, copyChunk)}
		m, err := c.sendFile(&piece)
		n += m
		limited.N -= m
		c.countWriteError(err)
		if err != nil || piece.N > 0 {
			return n, err // piece.N > 0: the file is shorter than requested
		}
	}
	return n, nil
}

// sendFile is writeTransfer for a chunk of a file.
func (c *conn) sendFile(piece *io.LimitedReader) (n int64, err error) {
	watch := c.transferWatch.Load()
	if watch == nil {
		return c.tcp.ReadFrom(piece)
	}
	for {
		c.extendWriteDeadline()
		m, err := c.tcp.ReadFrom(piece)
		n += m
		c.noteProgress(watch, int(m), err)
		if err == nil || !c.canRetryWrite(watch, err) {
			return n, err
		}
	}
}

// onlyWriter hides every other method, so that io.Copy copies.
type onlyWriter struct{ io.Writer }

// onlyReader does the same for the other side.
type onlyReader struct{ io.Reader }

// CloseWrite lets net/http close its side first.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection, unless the warm lane has it. net/http takes a
// connection for idle while the lane answers on it, and when keep-alive is
// disabled it closes those that are idle. Close asks the lane to end instead,
// which it does when it has answered.
func (c *conn) Close() error {
	if c.phase.Load() != phaseNetHTTP {
		c.stopWarm()
		return nil
	}
	return c.closeNow()
}

// closeNow closes the connection, whatever it is doing, and releases it, once.
func (c *conn) closeNow() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.stopOverrun()
		c.releaseHead()
		c.listener.release(c)
	}
	return err
}
