package ingress

import (
	"math"
	"net/http"
	"time"

	"micronode/internal/corr"
)

// The warm lane reads from disk on net/http's goroutine of the connection. A
// disk that does not answer holds that goroutine in the kernel. Then the timer
// of the connection answers in its place, as it does for a handler: see
// overrun.go. While too many reads have not returned, the lane leaves all
// requests to the handlers, of which a limited number gets stuck.

// What the lane does with a disk, in conn.warmStep: zero for nothing, the time
// since when it looks for an answer, or that time below zero since when the
// kernel sends from a file; in nanoseconds after the connection was opened.
const warmOverran = math.MinInt64

// warmPatience is how long the kernel may send from a file without a sign of
// it: longer than a blocked write, which returns every second.
const warmPatience = writePoll + writePollStep

// beginWarmRead begins to look for an answer.
func (c *conn) beginWarmRead(now time.Time) (step int64) {
	step = max(1, int64(now.Sub(c.opened)))
	c.warmStep.Store(step)
	due := step + int64(c.listener.server.times.FirstByte+overrunGrace)
	if firesAt := c.overrunTimer.firesAt.Load(); firesAt == 0 || due < firesAt {
		c.armOverrun(c.opened.Add(time.Duration(due)))
	}
	return step
}

// advanceWarm goes on to another step, zero for none. It reports false if the
// timer has answered in between; then the connection is over.
func (c *conn) advanceWarm(from, to int64) bool {
	if c.warmStep.CompareAndSwap(from, to) {
		return true
	}
	close(*c.warmReturned.Load())
	c.listener.server.clearStuckRead()
	return false
}

// warmDue is when a step has taken too long.
func (c *conn) warmDue(step int64) time.Time {
	times := &c.listener.server.times
	if step > 0 {
		return c.opened.Add(time.Duration(step) + times.FirstByte + overrunGrace)
	}
	return c.opened.Add(time.Duration(-step) + times.Progress + warmPatience)
}

// overrunWarm ends a step that has taken too long: with a refusal, or, if the
// answer has begun, by cutting it.
func (c *conn) overrunWarm(step int64) {
	returned := make(chan struct{})
	c.warmReturned.Store(&returned) // before the takeover: who sees the takeover sees this, too
	if !c.warmStep.CompareAndSwap(step, warmOverran) {
		return
	}
	server := c.listener.server
	server.markStuckRead(returned)
	if step < 0 {
		server.instruments.IOErrors.WithLabelValues("cut").Inc()
		c.shutdown() // it is closed when the kernel returns from it
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(answerGrace)) // fails on a closed connection, and then the write reports it
	_, _ = c.Conn.Write(rawProblem(errOverrun.Kind.Status(), errOverrun, corr.New(), server.policy.Load().defaultHeaderLines(), true))
	_ = c.CloseWrite()
	server.instruments.IOTimeouts.WithLabelValues("request").Inc()
	server.unrouted.counter(http.MethodGet, errOverrun.Kind.Status()).Inc()
	time.Sleep(overrunLinger)
	_ = c.closeNow() // it may be closed already
}

// shutdown ends the connection for the client, even while the kernel is busy
// with it: then closing would wait.
func (c *conn) shutdown() {
	_ = c.CloseWrite()
	if c.tcp != nil {
		_ = c.tcp.CloseRead()
	}
}
