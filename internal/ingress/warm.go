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
// a prepared response. It runs inside the first Read that net/http makes on a
// connection, on net/http's own goroutine, and so needs none. As soon as it
// meets anything else, the bytes go to net/http, and the connection is
// net/http's for good: a background read of net/http must never find the lane
// at work beside a handler.

// warmLane is what the connections of a listener share.
type warmLane struct {
	// set at construction
	listener *Listener
	warm     Warm
	hosts    map[string]bool // whole Host values, as clients write them

	date atomic.Pointer[dateLine]
}

func newWarmLane(l *Listener) *warmLane {
	return &warmLane{listener: l, warm: l.server.warm, hosts: l.hosts.whole}
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
	in  [4 << 10]byte
	out []byte
}

var warmBuffers = sync.Pool{New: func() any { return new(warmBuffer) }}

func (b *warmBuffer) release() {
	if b != nil {
		warmBuffers.Put(b)
	}
}

// warmth is the lane's side of one connection.
type warmth struct {
	lane   *warmLane
	buffer *warmBuffer // nil before the first read
	from   int         // the bytes in buffer.in that were not looked at yet
	to     int
	armed  time.Time // when the deadlines were last set; zero while net/http's stand
	broken bool      // the client does not take what it asked for

	parts  [2][]byte // what vector is made of; fields, so that they are not made anew each time
	vector net.Buffers
}

func newWarmth(lane *warmLane) *warmth { return &warmth{lane: lane} }

// What a connection is doing, for a drain to see.
const (
	phaseNet     int32 = iota // net/http has it, or will
	phaseWaiting              // the lane waits for a request
	phaseBusy                 // the lane answers one
	phaseTold                 // the lane was told to end while it waited
)

// serveWarm answers requests until it meets one that is not for it, which it
// leaves in replay. An error ends the connection.
func (c *conn) serveWarm() error {
	w := c.warm
	for {
		if w.broken {
			return c.endWarm(io.EOF)
		}
		for w.to-w.from < w.enough() {
			if err := c.fillWarm(w); err != nil {
				return c.endWarm(err)
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
	if w.armed.IsZero() {
		return 1
	}
	return 4
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
func (c *conn) endWarm(err error) error {
	c.warm.buffer.release()
	c.warm = nil
	return err
}

// handOver leaves the connection to net/http, which reads the same bytes
// again, with as much time for a header as it would have given by itself.
func (c *conn) handOver(w *warmth) {
	c.phase.Store(phaseNet)
	if !w.armed.IsZero() {
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.server.times.HeaderTimeout))
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
	c.replay, c.kept, c.warm = w.buffer.in[w.from:w.to], w.buffer, nil
}

// answerWarm answers the next request in the buffer, or reports that it is not
// for the lane.
func (c *conn) answerWarm(w *warmth) bool {
	var seen sighting
	if !w.lane.recognise(w.buffer.in[w.from:w.to], &seen) {
		return false
	}
	prepared, found := w.lane.warm.Lookup(seen.target)
	if !found || prepared.coding != "" && !plainly(seen.encodings, prepared.coding) {
		return false
	}
	now := time.Now()
	if c.listener.draining.Load() || c.peer != nil && !c.peer.allow(now) {
		return false // the chain says why
	}
	c.armWarm(w, now)
	w.from += seen.size
	out := append(w.buffer.out[:0], prepared.head...)
	out = w.lane.appendDate(out, now)
	out = appendCorrID(out, seen.corrID)
	w.buffer.out = append(out, "\r\n\r\n"...)
	if !c.writeWarm(w, prepared.body) {
		return true
	}
	// The metrics are the route's own, as if the chain had answered. To count
	// apart and add up later would save less than a hundredth of the request.
	tally := prepared.tallyOn(c.listener.server)
	tally.counter.Inc()
	tally.latency.Observe(time.Since(now).Seconds())
	if prepared.hits != nil {
		prepared.hits.Inc()
	}
	return true
}

// writeWarm writes head and body with one call to the kernel. Copying both into
// one buffer costs the same time, and a buffer of that size for each connection.
func (c *conn) writeWarm(w *warmth, body []byte) bool {
	w.parts = [2][]byte{w.buffer.out, body}
	w.vector = w.parts[:]
	if _, err := w.vector.WriteTo(c.Conn); err != nil {
		w.broken = true
		c.listener.server.instruments.IOErrors.WithLabelValues("write").Inc()
		return false
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
	_ = c.Conn.SetWriteDeadline(now.Add(times.Progress + armPause))
	_ = c.Conn.SetReadDeadline(now.Add(times.IdleTimeout))
}

// appendCorrID writes the X-Corr-ID header: the client's, if it is well-formed,
// or a new one, made like observe.NewCorrID but in place.
func appendCorrID(out, given []byte) []byte {
	out = append(out, "X-Corr-Id: "...)
	if wellFormed(given) {
		return append(out, given...)
	}
	var raw [16]byte
	binary.NativeEndian.PutUint64(raw[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
	return hex.AppendEncode(out, raw[:])
}

// wellFormed asks observe, which keeps the one rule.
func wellFormed(given []byte) bool {
	if len(given) == 0 {
		return false
	}
	_, ok := observe.ParseCorrID(string(given))
	return ok
}
