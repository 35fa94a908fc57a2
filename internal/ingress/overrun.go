package ingress

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
)

// The end of its context tells a handler that its time is up. One that waits
// for a disk, a lock or a library without contexts does not notice. Then the
// server answers in its place:
//
//   - HTTP/1: the handler is on net/http's goroutine of the connection, as
//     always. A timer of the connection, which an ordinary request only reads,
//     writes the refusal below net/http and closes the connection.
//   - HTTP/2: an answer ends when the function that net/http called returns. So
//     the handler runs on a goroutine of Options.Tasks, and net/http's waits for
//     it until the deadline. Only the stream ends.
//
// Whether the handler or the deadline answers is decided once, by the responder
// of the call. A handler that overruns finds that its writes fail. Until it
// returns it is stuck: counted for its route, and a task that a drain waits for
// and reports. ADR 30 has the reasons.

// How long after its deadline a handler is abandoned: before it has begun its
// answer, and while it may still be writing to a slow client. The first leaves
// a handler that obeys its context the time to answer by itself.
const (
	overrunGrace = 250 * time.Millisecond
	writingGrace = writePoll + 2*writePollStep
)

// stuckRoutes is how many routes may reach their limit of stuck handlers before
// a stuck one keeps its slot among the running requests.
const stuckRoutes = 4

// The responder of a request.
const (
	responderNone     int32 = iota // none: the answer has not begun
	responderHandler               // the handler has begun the answer
	responderDeadline              // the deadline answers with a time-out
	responderCut                   // none: an answer that had begun was cut
	responderDone                  // none: the request is over
)

// errOverrun is the answer to a request whose handler overran, and the error of
// that handler's later writes.
var errOverrun = &fault.Error{Op: "http.deadline", Kind: fault.Timeout, Detail: "the deadline passed before the answer",
	Next: "Check GET /readyz: a dependency of this request may have stalled. Retry when the node is ready; the request may have taken effect."}

// errStuckRoute rejects requests of a route with too many stuck handlers.
var errStuckRoute = &fault.Error{Op: "http.deadline", Kind: fault.Backpressure, Detail: "earlier requests of this route are stuck past their deadline",
	Next: "Wait for Retry-After. If this persists, check GET /readyz and the disk: limits.stuck requests of this route have not returned."}

// claimResponse makes the handler the responder, or reports that it is too
// late.
func (c *call) claimResponse() bool {
	return c.responder.Load() == responderHandler || c.responder.CompareAndSwap(responderNone, responderHandler)
}

// takeOverResponse takes the response from the handler, and returns whether the
// deadline is to answer or an answer that had begun is to be cut. taken is
// false if the request is over.
func (c *call) takeOverResponse() (responder int32, taken bool) {
	switch {
	case c.responder.CompareAndSwap(responderNone, responderDeadline):
		return responderDeadline, true
	case c.responder.CompareAndSwap(responderHandler, responderCut):
		return responderCut, true
	default:
		return responderDone, false
	}
}

// overrunAt is when the handler is abandoned, by its current progress.
func (c *call) overrunAt() time.Time {
	end := c.deadline
	if c.progressWatch != nil {
		end = sooner(c.progressWatch.expiry(), end)
	}
	if c.responder.Load() == responderNone {
		return end.Add(overrunGrace)
	}
	return end.Add(writingGrace)
}

// overrunTimer abandons the handlers of a connection of HTTP/1, one request at
// a time. It is set when a request begins that is due before it would fire;
// most requests find it set by an earlier one and only read it.
type overrunTimer struct {
	current atomic.Pointer[call]
	firesAt atomic.Int64 // nanoseconds after the connection was opened; zero if it is not set

	mu    sync.Mutex //lockblock:leaf guards the timer
	timer *time.Timer
}

// trackCall watches a request.
func (c *conn) trackCall(of *call) {
	c.overrunTimer.current.Store(of)
	due := of.overrunAt()
	if firesAt := c.overrunTimer.firesAt.Load(); firesAt == 0 || int64(due.Sub(c.opened)) < firesAt {
		c.armOverrun(due)
	}
}

func (c *conn) armOverrun(at time.Time) {
	c.overrunTimer.mu.Lock()
	defer c.overrunTimer.mu.Unlock()
	if c.closed.Load() {
		return
	}
	c.overrunTimer.firesAt.Store(max(1, int64(at.Sub(c.opened))))
	if wait := time.Until(at); c.overrunTimer.timer == nil {
		c.overrunTimer.timer = time.AfterFunc(wait, c.onOverrunTimer) //lockblock:allow like the timer of context.WithDeadline; it writes one refusal within answerGrace and is stopped with the connection
	} else {
		c.overrunTimer.timer.Reset(wait)
	}
}

func (c *conn) stopOverrun() {
	c.overrunTimer.mu.Lock()
	defer c.overrunTimer.mu.Unlock()
	if c.overrunTimer.timer != nil {
		c.overrunTimer.timer.Stop()
	}
}

// onOverrunTimer abandons the current request if it is due, or sets the timer
// again. It clears firesAt before it looks for a request, and trackCall works
// in the opposite order, so that one of them sees the other.
func (c *conn) onOverrunTimer() {
	c.overrunTimer.firesAt.Store(0)
	if step := c.warmStep.Load(); step != 0 && step != warmOverran {
		if due := c.warmDue(step); time.Now().Before(due) {
			c.armOverrun(due)
		} else {
			c.overrunWarm(step)
		}
		return
	}
	of := c.overrunTimer.current.Load()
	if of == nil {
		return
	}
	if due := of.overrunAt(); time.Now().Before(due) {
		c.armOverrun(due)
		return
	}
	of.overrun()
}

// overrunLinger is how long a connection stays open after the refusal, so that
// a client that is still sending reads it before the kernel resets the
// connection.
const overrunLinger = 500 * time.Millisecond

// overrun answers a request of HTTP/1 in place of its handler, which keeps the
// goroutine of net/http. It does not touch what the handler owns: the refusal
// is written below net/http.
func (c *call) overrun() {
	done := make(chan struct{})
	c.overrunDone = done // before the takeover: a goroutine that sees the takeover sees this, too
	responder, taken := c.takeOverResponse()
	if !taken {
		return
	}
	defer close(done)
	c.markStuck()
	if responder == responderCut {
		c.route.instruments.IOErrors.WithLabelValues("cut").Inc()
		c.recordRequest(c.request.Method, int(c.status.Load()), c.bytes.Load())
		c.conn.shutdown()
	} else {
		c.refuseOverrun()
		time.Sleep(overrunLinger)
	}
	_ = c.conn.closeNow() // it may be closed already
}

// refuseOverrun writes the refusal to the connection.
func (c *call) refuseOverrun() {
	on := c.conn
	on.transferWatch.Store(nil)
	_ = on.Conn.SetWriteDeadline(time.Now().Add(answerGrace)) // fails on a closed connection, and then the write reports it
	text := rawProblem(errOverrun.Kind.Status(), errOverrun, c.corrID, c.responseHeaderLines(), c.request.Method != http.MethodHead)
	if on.tlsConn != nil {
		_, _ = on.tlsConn.Write(text) // a client that does not read it is cut
		_ = on.tlsConn.CloseWrite()
	} else {
		_, _ = on.Conn.Write(text)
	}
	_ = on.CloseWrite()
	c.route.instruments.IOTimeouts.WithLabelValues("request").Inc()
	c.recordRequest(c.request.Method, errOverrun.Kind.Status(), int64(len(text)))
}

// responseHeaderLines are the headers that every answer to this request has.
func (c *call) responseHeaderLines() string {
	text := c.policy.defaultHeaderLines() + string(c.policy.cors.headerLines(c.request.Header[originKey]))
	if secure := c.server.hsts; c.request.TLS != nil && secure.key != "" && hostname(c.request.Host) != "localhost" {
		text += secure.key + ": " + secure.values[0] + "\r\n"
	}
	return text
}

// markStuck counts a handler that overran. It releases the handler's slot among
// the running requests, unless too many are stuck: then the handler keeps it,
// so that all of them are bounded.
func (c *call) markStuck() {
	m := c.route
	m.overruns.Inc()
	m.stuckGauge.Inc()
	m.stuck.Add(1)
	m.server.overdue.Add(1)
	if m.server.stuck.Enter(context.Background()) == nil { // this lane has no waiters
		c.inStuckLane = true
		m.releaseSlot(c)
	}
	if c.server.tasks != nil && !c.http2 {
		c.handlerDone = make(chan struct{})
		_ = c.server.tasks.Go(c.awaitHandler) // fails if the group is full or drained
	}
	if skipped, say := c.server.overrunLimiter.allow(time.Now()); say {
		c.server.logger.Error("a handler did not return by its deadline", "route", m.route.Pattern, "method", c.request.Method,
			"corr_id", c.corrID, "stuck", m.stuck.Load(), "not_shown", skipped)
	}
}

// awaitHandler is the task of a handler that is stuck on a goroutine of
// net/http, so that a drain waits for it and reports it.
func (c *call) awaitHandler(context.Context) error {
	<-c.handlerDone
	return nil
}

// clearStuck runs when a stuck handler has returned.
func (c *call) clearStuck() {
	m := c.route
	m.stuck.Add(-1)
	m.server.overdue.Add(-1)
	m.stuckGauge.Dec()
	if c.inStuckLane {
		m.server.stuck.Leave()
	}
	m.releaseSlot(c)
	if c.handlerDone != nil {
		close(c.handlerDone)
	}
}

// markStuckRead counts a read of the warm lane that overran. A drain waits for
// it and reports it.
func (s *Server) markStuckRead(returned <-chan struct{}) {
	s.stuckReads.Add(1)
	s.overdue.Add(1)
	s.unrouted.instruments.StuckHandlers.WithLabelValues(noRoute).Inc()
	if s.tasks != nil {
		_ = s.tasks.Go(func(context.Context) error { <-returned; return nil }) // fails if the group is full or drained
	}
	if skipped, say := s.overrunLimiter.allow(time.Now()); say {
		s.logger.Error("a read from disk did not return by the deadline of its request", "stuck", s.stuckReads.Load(), "not_shown", skipped)
	}
}

// clearStuckRead runs when it has returned.
func (s *Server) clearStuckRead() {
	s.stuckReads.Add(-1)
	s.overdue.Add(-1)
	s.unrouted.instruments.StuckHandlers.WithLabelValues(noRoute).Dec()
}

// Overdue is how many requests were answered at their deadline in place of a
// handler, or of a read from disk, that has not returned since.
func (s *Server) Overdue() int64 { return s.overdue.Load() }

// finish closes a request that is over, on net/http's goroutine, and reports
// whether the handler's own answer stands. If not, a handler of HTTP/1 has
// overrun.
func (c *call) finish() bool {
	if c.conn != nil {
		c.conn.overrunTimer.current.CompareAndSwap(c, nil) // the timer stays set: the next request needs it
	}
	if c.http2 || c.responder.CompareAndSwap(responderNone, responderDone) || c.responder.CompareAndSwap(responderHandler, responderDone) {
		return true
	}
	<-c.overrunDone // within answerGrace and overrunLinger
	c.clearStuck()
	return false
}

// detachedHandler is the response writer of a handler that runs on a goroutine
// of its own.
type detachedHandler struct {
	*call
	header  http.Header // the handler's; that of the answer is net/http's
	done    chan error  // buffered for the one result
	decided atomic.Bool // either the handler or net/http's goroutine has decided
}

// Header is the handler's own, so that nothing else writes to it.
func (d *detachedHandler) Header() http.Header { return d.header }

// runDetached runs the handler of a request of HTTP/2 and waits until it
// returns or is abandoned.
func (m *mountedRoute) runDetached(ctx context.Context, c *call, r *http.Request) error {
	a := &detachedHandler{call: c, header: c.inner.Header().Clone(), done: make(chan error, 1)}
	c.detached = a
	if err := m.server.tasks.Go(func(context.Context) error { a.run(ctx, r); return nil }); err != nil {
		return err
	}
	for {
		timer := time.NewTimer(time.Until(c.overrunAt()))
		select {
		case err := <-a.done:
			timer.Stop()
			return a.collect(err)
		case <-timer.C:
			if !time.Now().Before(c.overrunAt()) && a.abandon() {
				return errOverrun
			}
		}
	}
}

// run is the goroutine of the handler.
func (d *detachedHandler) run(ctx context.Context, r *http.Request) {
	err := d.call.route.handleRecovered(ctx, d, r)
	if d.decided.CompareAndSwap(false, true) {
		d.done <- err
		return
	}
	<-d.overrunDone // at once
	d.clearStuck()
}

// collect takes over the handler's headers, if it has not begun to answer.
func (d *detachedHandler) collect(err error) error {
	if d.responder.Load() == responderNone {
		d.copyHeaders()
	}
	if died, ok := err.(*handlerPanic); ok {
		panic(died) // where net/http and call.recoverAndFinish expect it
	}
	return err
}

// copyHeaders makes the headers of the handler those of the answer.
func (d *detachedHandler) copyHeaders() {
	header := d.inner.Header()
	clear(header)
	for key, values := range d.header {
		header[key] = values
	}
}

// abandon abandons the handler, unless it has just returned.
func (d *detachedHandler) abandon() bool {
	done := make(chan struct{})
	d.overrunDone = done // before the decision: a goroutine that sees the decision sees this, too
	if !d.claimAbandon() {
		return false
	}
	defer close(done)
	d.abandoned = true
	d.markStuck()
	return true
}

// claimAbandon takes the response from a handler that has not returned.
// controllerMu keeps the handler from setting a deadline of the stream
// meanwhile: net/http forgets the stream when it ends.
func (d *detachedHandler) claimAbandon() bool {
	d.controllerMu.Lock()
	defer d.controllerMu.Unlock()
	if !d.decided.CompareAndSwap(false, true) {
		return false
	}
	d.takeOverResponse()
	return true
}

// handlerPanic carries a panic of a handler to net/http's goroutine.
type handlerPanic struct {
	value any
	stack []byte
}

// Error is never shown.
func (p *handlerPanic) Error() string { return "a handler panicked" }

// handleRecovered runs the handler and catches its panic.
func (m *mountedRoute) handleRecovered(ctx context.Context, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &handlerPanic{value, debug.Stack()}
		}
	}()
	return m.handle(ctx, w, r)
}
