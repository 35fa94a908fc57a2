package ingress

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"micronode/internal/observe"
)

// The warm lane answers what can be answered without thinking: a plain GET of
// a response that is prepared, or that can be made on the spot. It runs inside
// a Read that net/http makes on a connection, on net/http's own goroutine, and
// so needs none. When it meets anything else, the bytes go to net/http.
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
//     given to the buffer before we are asked for more.)
//
// Where one of them does not hold, the connection stays with net/http until the
// next time that they all do. TestWhatNetHTTPDoesBetweenRequests watches that
// net/http still does things in this order.

// warmLane is what the connections of a listener share.
type warmLane struct {
	// set at construction
	listener *Listener
	warm     Warm
	hosts    map[string]bool // whole Host values, as clients write them
	shared   []byte          // what an answer says about who may read it, if no origin is given
	origins  map[string][]byte
	anybody  bool // whatever origin is given, the answer is the same

	date atomic.Pointer[dateLine]
}

func newWarmLane(l *Listener) *warmLane {
	cors := l.server.cors
	lane := &warmLane{listener: l, warm: l.server.warm, hosts: l.hosts.whole, shared: cors.shareLines(nil), origins: map[string][]byte{}}
	if cors != nil {
		lane.anybody = cors.any
		for origin := range cors.named {
			lane.origins[origin] = cors.shareLines([]string{origin})
		}
	}
	return lane
}

// dateLine is the Date header of one second.
type dateLine struct {
	second int64
	text   []byte
}

// appendDate writes the Date header. The text is made once a second.
func (l *warmLane) appendDate(out []byte, now time.Time) []byte {
	line := l.date.Load()
	if second := now.Unix(); line == nil || line.second != second {
		line = &dateLine{second, now.UTC().AppendFormat([]byte("Date: "), http.TimeFormat+"\r\n")}
		l.date.Store(line)
	}
	return append(out, line.text...)
}

// warmBuffer is what a warm connection reads into and writes from.
type warmBuffer struct {
	in    [4 << 10]byte
	out   []byte                // the head of an answer
	parts [1 + warmParts][]byte // head and body, as they are written
}

var warmBuffers = sync.Pool{New: func() any { return new(warmBuffer) }}

// warmth is the lane's side of one connection. It is owned by whoever net/http
// lets read, one at a time.
type warmth struct {
	lane   *warmLane
	room   int         // how much net/http can take in one read; zero before the first
	later  bool        // the lane has answered before
	buffer *warmBuffer // nil while there is nothing in it and nobody reads
	from   int         // the bytes in buffer.in that were not used yet, by the lane or by net/http
	to     int
	armed  time.Time // when the deadlines were last set; zero while net/http's stand
	broken bool      // the client does not take what it asked for

	vector net.Buffers // what is left of an answer
	sender *fileSender // for bodies in files; nil before the first
}

func newWarmth(lane *warmLane) *warmth { return &warmth{lane: lane} }

// What a connection is doing, for a drain to see.
const (
	phaseNet     int32 = iota // net/http has it, or will
	phaseWaiting              // the lane waits for a request
	phaseBusy                 // the lane answers one
	phaseTold                 // the lane was told to end while it waited
)

// Where net/http is between two requests.
const (
	betweenNot     int32 = iota // it reads or answers one
	betweenIdle                 // it has called the connection idle
	betweenWaiting              // it has set the deadline for idling, and waits for bytes
)

// entersLane reports whether a Read of net/http is one in which the lane may
// run. Whatever the Read brings, the next one is not, until net/http is between
// two requests again.
func (c *conn) entersLane(w *warmth, room int) bool {
	if w.room == 0 {
		w.room = room
		return true
	}
	return c.between.CompareAndSwap(betweenWaiting, betweenNot) && room == w.room && w.from == w.to
}

// serveWarm answers requests until it meets one that is not for it, which it
// leaves in the buffer. An error ends the connection.
func (c *conn) serveWarm(w *warmth) error {
	defer c.phase.Store(phaseNet) // after a panic too, or nobody could close the connection
	for {
		if w.broken {
			return c.endWarm(w, io.EOF)
		}
		for w.to-w.from < w.enough() {
			if err := c.fillWarm(w); err != nil {
				return c.endWarm(w, err)
			}
		}
		if !c.answerWarm(w) {
			c.handOver(w)
			return nil
		}
	}
}

// enough is how many bytes make it worth looking at a request. net/http waits
// for four after the first request of a connection, and closes without a word
// if fewer come; so does the lane.
func (w *warmth) enough() int {
	if w.later {
		return 4
	}
	return 1
}

// fillWarm waits for bytes. That a drain has begun is looked at after the
// phase is told: so either the drain sees that we wait, or we see the drain.
func (c *conn) fillWarm(w *warmth) error {
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
		return io.EOF // told to end; what came in that moment was not answered
	}
	if n == 0 {
		return err
	}
	c.touch()
	w.to += n
	return nil
}

// wakeWarm tells a connection that waits in the lane to end.
func (c *conn) wakeWarm() {
	if c.phase.CompareAndSwap(phaseWaiting, phaseTold) {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection needs no waking
	}
}

// endWarm gives the buffer back. After it net/http closes the connection.
func (c *conn) endWarm(w *warmth, err error) error {
	w.empty()
	c.warm = nil
	return err
}

// handOver leaves the next request to net/http, which reads the bytes that are
// in the buffer, with as much time for a header as it would have given by
// itself.
func (c *conn) handOver(w *warmth) {
	if !w.armed.IsZero() {
		w.armed = time.Time{}
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.server.times.HeaderTimeout))
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
}

// give copies bytes that the lane has read and not used to net/http.
func (w *warmth) give(p []byte) int {
	n := copy(p, w.buffer.in[w.from:w.to])
	if w.from += n; w.from == w.to {
		w.empty()
	}
	return n
}

func (w *warmth) empty() {
	if w.buffer != nil {
		warmBuffers.Put(w.buffer)
	}
	w.buffer, w.from, w.to = nil, 0, 0
}

// answerWarm answers the next request in the buffer, or reports that it is not
// for the lane.
func (c *conn) answerWarm(w *warmth) bool {
	var seen sighting
	if !w.lane.recognise(w.buffer.in[w.from:w.to], &seen) || c.listener.draining.Load() {
		return false
	}
	now := time.Now()
	prepared, found := w.lane.warm.Lookup(seen.target)
	if !found {
		return false
	}
	defer prepared.release()
	if coding := prepared.template.coding; coding != "" && !plainly(seen.encodings, coding) {
		return false
	}
	if c.peer != nil && !c.peer.allow(now) {
		return false // the chain says why
	}
	c.armWarm(w, now)
	w.from += seen.size
	w.later = true
	form := prepared.template.formOn(c.listener.server)
	out := prepared.appendHead(w.buffer.out[:0], form, seen.shared)
	out = appendCorrID(out, seen.corrID)
	out = append(out, form.rest...)
	w.buffer.out = append(w.lane.appendDate(out, now), "\r\n"...)
	if err := c.writeWarm(w, prepared, now); err != nil {
		w.broken = true
		c.listener.server.instruments.IOErrors.WithLabelValues("write").Inc()
		return true
	}
	// The metrics are the route's own, as if the chain had answered. To count
	// apart and add up later would save less than a hundredth of the request.
	form.counter.Inc()
	form.latency.Observe(time.Since(now).Seconds())
	if prepared.template.hits != nil {
		prepared.template.hits.Inc()
	}
	return true
}

// armPause is how exact the deadlines of the lane are. To set a deadline costs
// as much as to count a request, and nobody needs an idle time-out of a minute
// to the millisecond.
const armPause = time.Second

// armWarm keeps the deadlines ahead: to take this answer, and to ask again.
func (c *conn) armWarm(w *warmth, now time.Time) {
	if now.Sub(w.armed) < armPause {
		return
	}
	w.armed = now
	times := &c.listener.server.times
	_ = c.Conn.SetWriteDeadline(now.Add(armPause + pushTick)) // writeWarm goes on from there
	_ = c.Conn.SetReadDeadline(now.Add(times.IdleTimeout))
}

// appendCorrID writes the X-Corr-ID header: the client's, if it is well-formed,
// or a new one, made like observe.NewCorrID but in place.
func appendCorrID(out, given []byte) []byte {
	out = append(out, "X-Corr-Id: "...)
	if wellFormed(given) {
		return append(append(out, given...), "\r\n"...)
	}
	var raw [16]byte
	binary.NativeEndian.PutUint64(raw[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
	return append(hex.AppendEncode(out, raw[:]), "\r\n"...)
}

// wellFormed asks observe, which keeps the one rule.
func wellFormed(given []byte) bool {
	if len(given) == 0 {
		return false
	}
	_, ok := observe.ParseCorrID(string(given))
	return ok
}
