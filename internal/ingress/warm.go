package ingress

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The warm lane answers what needs no work: a plain GET of a response that is
// prepared, or that can be made on the spot. It runs inside a Read that
// net/http makes on a connection, on net/http's own goroutine, and so needs
// none. All other requests go to net/http with their bytes.
//
// It begins in the first Read of a connection, and again between two requests
// that net/http has answered. The second is delicate: the lane must never run
// beside a handler, nor in the middle of a request of which net/http has some
// bytes already. Three things together make sure of it:
//
//   - net/http has called the connection idle, which it does when the answer
//     is sent, the body is read, and no background read runs any more;
//   - it has set one deadline since then, that for idling, and not yet the
//     next, that for a header: so it has not begun to read a request;
//   - it offers its whole buffer to be read into, which a buffer that held as
//     much as one byte could not. (A byte that a background read has caught is
//     put into the buffer before the next Read.)
//
// Where one of them does not hold, the connection stays with net/http until the
// next time that they all do. TestWhatNetHTTPDoesBetweenRequests watches that
// net/http still does things in this order.

// warmLane is what the connections of a listener share.
type warmLane struct {
	// set at construction
	listener *Listener
	source   WarmSource
	hosts    map[string]bool // whole Host values, as clients write them

	date atomic.Pointer[dateLine]
}

func newWarmLane(l *Listener) *warmLane {
	return &warmLane{listener: l, source: l.server.warmSource, hosts: l.hosts.exact}
}

// dateLine is the Date header of one second.
type dateLine struct {
	second int64
	text   []byte
}

// warmBuffer is what a warm connection reads into and writes from.
type warmBuffer struct {
	in    [4 << 10]byte
	out   []byte                   // the header of an answer
	parts [1 + warmMaxParts][]byte // header and body, as they are written
}

var warmBuffers = sync.Pool{New: func() any { return new(warmBuffer) }}

// warmConn is the lane's side of one connection. It is owned by the goroutine
// that reads for net/http, one at a time.
type warmConn struct {
	lane         *warmLane
	readSize     int         // how much net/http can take in one read; zero before the first
	answered     bool        // the lane has answered before
	buffer       *warmBuffer // nil while it is empty and nothing reads
	from         int         // the unused bytes in buffer.in, for the lane or for net/http
	to           int
	deadlinesSet time.Time // when the deadlines were last set; zero while net/http's stand
	writeFailed  bool      // the client does not take the answer

	vector net.Buffers // the rest of an answer
	sender *fileSender // for bodies in files; nil before the first
}

// What a connection is doing, for a drain to see.
const (
	phaseNetHTTP  int32 = iota // net/http has it, or will
	phaseWaiting               // the lane waits for a request
	phaseBusy                  // the lane answers one
	phaseStopping              // a drain has asked the lane to end while it waited
)

// Where net/http is between two requests.
const (
	idleNo       int32 = iota // it reads or answers one
	idleReported              // it has reported the connection idle
	idleWaiting               // it has set the deadline for idling, and waits for bytes
)

// serveWarm answers requests until it meets one that is not for the lane, which
// it leaves in the buffer. An error ends the connection.
func (c *conn) serveWarm(w *warmConn) error {
	defer c.phase.Store(phaseNetHTTP) // after a panic too, or the connection could not be closed
	for {
		if w.writeFailed {
			return c.endWarm(w, io.EOF)
		}
		// net/http waits for four bytes after the first request of a
		// connection, and closes without an answer if fewer come; so does the
		// lane.
		minBytes := 1
		if w.answered {
			minBytes = 4
		}
		for w.to-w.from < minBytes {
			if err := c.fillWarm(w); err != nil {
				return c.endWarm(w, err)
			}
		}
		if c.answerWarm(w) {
			continue
		}
		if !w.deadlinesSet.IsZero() { // as much time for the header as net/http would have set by itself
			w.deadlinesSet = time.Time{}
			_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.server.times.HeaderTimeout))
			_ = c.Conn.SetWriteDeadline(time.Time{})
		}
		return nil
	}
}

// fillWarm waits for bytes. It checks for a drain after it has set the phase:
// so either the drain sees that the lane waits, or the lane sees the drain.
func (c *conn) fillWarm(w *warmConn) error {
	if w.buffer == nil {
		w.buffer = warmBuffers.Get().(*warmBuffer)
	}
	c.phase.Store(phaseWaiting)
	if c.listener.draining.Load() {
		return io.EOF
	}
	w.to, w.from = copy(w.buffer.in[:], w.buffer.in[w.from:w.to]), 0
	n, err := c.Conn.Read(w.buffer.in[w.to:])
	if !c.phase.CompareAndSwap(phaseWaiting, phaseBusy) {
		return io.EOF // asked to end; bytes that came in that moment are not answered
	}
	if n == 0 {
		return err
	}
	c.markReceived()
	w.to += n
	return nil
}

// stopWarm asks a connection that waits in the lane to end.
func (c *conn) stopWarm() {
	if c.phase.CompareAndSwap(phaseWaiting, phaseStopping) {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection is not waiting
	}
}

// endWarm releases the buffer. After it net/http closes the connection.
func (c *conn) endWarm(w *warmConn, err error) error {
	w.releaseBuffer()
	c.warmConn = nil
	return err
}

func (w *warmConn) releaseBuffer() {
	if w.buffer != nil {
		warmBuffers.Put(w.buffer)
	}
	w.buffer, w.from, w.to = nil, 0, 0
}

// answerWarm answers the next request in the buffer, or reports that it is not
// for the lane.
func (c *conn) answerWarm(w *warmConn) bool {
	var request warmRequest
	if !w.lane.recognise(w.buffer.in[w.from:w.to], &request) || c.listener.draining.Load() {
		return false
	}
	now := time.Now()
	if server := c.listener.server; server.stuckReads.Load() >= int64(server.limits.Stuck) {
		return false
	}
	reading := c.beginWarmRead(now)
	prepared, found := w.lane.source.Lookup(request.target)
	if found {
		defer prepared.release()
	}
	if !c.advanceWarm(reading, 0) {
		w.writeFailed = true // the refusal was sent in its place
		return true
	}
	if !found {
		return false
	}
	if coding := prepared.template.coding; coding != "" && !listsToken(request.encodings, coding) {
		return false
	}
	form := prepared.template.compiledFor(c.listener.server)
	if form.rated && c.clientState != nil && !c.clientState.requests.AllowN(now, 1) {
		return false // the chain gives the reason
	}
	if now.Sub(w.deadlinesSet) >= warmDeadlineStep { // for this answer, and for the next request
		w.deadlinesSet = now
		_ = c.Conn.SetWriteDeadline(now.Add(warmDeadlineStep + writePoll)) // writeWarm extends it
		_ = c.Conn.SetReadDeadline(now.Add(c.listener.server.times.IdleTimeout))
	}
	w.from += request.size
	w.answered = true
	w.buffer.out = w.lane.appendHeader(w.buffer.out[:0], prepared, form, &request, now)
	if err := c.writeWarm(w, prepared, now); err != nil {
		w.writeFailed = true
		c.listener.server.instruments.IOErrors.WithLabelValues("write").Inc()
		return true
	}
	// The metrics are the route's own, as if the chain had answered. Separate
	// counters that are summed later would save less than a hundredth of the
	// request.
	form.counter.Inc()
	form.latency.Observe(time.Since(now).Seconds())
	if prepared.template.hits != nil {
		prepared.template.hits.Inc()
	}
	return true
}

// warmDeadlineStep is how exact the deadlines of the lane are. Setting a
// deadline costs as much as counting a request, and an idle time-out of a
// minute need not be exact to the millisecond.
const warmDeadlineStep = time.Second
