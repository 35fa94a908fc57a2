package ingress

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
)

// answerGrace is the time after the deadline of a control route for sending the
// time-out to the caller. A client that does not read it by then is cut.
const answerGrace = time.Second

// requestLimits are what a request holds for as long as its handler runs. What
// it does not hold is nil.
type requestLimits struct {
	watchdog       *watchdog
	leaveStreams   func()
	cancel         context.CancelCauseFunc
	cancelDeadline context.CancelFunc
	recheck        *recheck
	transfers      *transfers
}

// release releases all of it, when the handler has returned.
func (r *requestLimits) release(c *call) {
	if r.transfers != nil {
		r.transfers.remove(c)
	}
	if r.recheck != nil {
		r.recheck.stop()
	}
	if r.watchdog != nil {
		r.watchdog.stop()
	}
	if r.leaveStreams != nil {
		r.leaveStreams()
	}
	if r.cancel != nil {
		r.cancel(nil)
	}
	if r.cancelDeadline != nil {
		r.cancelDeadline()
	}
}

// setDeadline sets the deadline of the request's class. The call's limits must
// be released when the handler has returned.
func (m *mountedRoute) setDeadline(ctx context.Context, c *call, r *http.Request) (context.Context, error) {
	callerDeadline, err := parseCallerDeadline(c.start, r.Header)
	if err != nil {
		return nil, err
	}
	times, watch := &m.server.times, &c.watchdog
	switch m.route.Class {
	case Control: // one for the whole request
		c.deadline = sooner(c.start.Add(m.deadline), callerDeadline)
		c.setWriteDeadline(later(c.deadline, c.start).Add(answerGrace))
		if c.body {
			c.setReadDeadline(c.deadline)
		}
		ctx, c.limits.cancelDeadline = context.WithDeadline(ctx, c.deadline)
		if m.route.Waits {
			ctx, c.limits.cancel = context.WithCancelCause(ctx)
			c.limits.recheck = m.startRecheck(c, r, c.limits.cancel)
		}
	case Transfer: // one to the first byte, and then one that moves with the bytes
		ctx, c.limits.cancel = context.WithCancelCause(ctx)
		c.transferContext = ctx
		watch.limit, watch.callerDeadline, watch.cancel = times.Progress, callerDeadline, c.limits.cancel
		watch.expiresAt = sooner(c.start.Add(m.deadline), callerDeadline)
		c.transferWatch, c.progressWatch, c.limits.watchdog = watch, watch, watch
		if c.body {
			watch.setReadDeadline, watch.bodyComplete = c.setReadDeadline, &c.bodyComplete
			watch.extendRead()
		}
		if c.conn != nil && !c.http2 {
			c.conn.transferWatch.Store(watch)
		}
		watch.windowBegan = c.start
		watch.start()
		if c.share != nil || c.inReads {
			c.limits.transfers = m.transfers()
			c.limits.transfers.add(c)
		}
	case Stream: // stuck if it sends neither an event nor a heartbeat
		if c.deadline = callerDeadline; !callerDeadline.IsZero() {
			ctx, c.limits.cancelDeadline = context.WithDeadline(ctx, callerDeadline)
		}
		ctx, c.limits.cancel = context.WithCancelCause(ctx)
		c.limits.leaveStreams = c.listener.streams.register(c.limits.cancel)
		watch.limit, watch.cancel = times.Heartbeat+times.Progress, c.limits.cancel
		watch.expiresAt = c.start.Add(times.FirstByte)
		c.progressWatch, c.limits.watchdog = watch, watch
		watch.start()
		c.limits.recheck = m.startRecheck(c, r, c.limits.cancel)
	}
	return ctx, nil
}

// sooner is the earlier of two times; the second may be zero for none.
func sooner(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// parseCallerDeadline reads Request-Timeout (seconds from now) and Deadline (a
// time). If both are there, the sooner counts. The zero time is for neither.
func parseCallerDeadline(now time.Time, header http.Header) (time.Time, error) {
	var end time.Time
	if texts := header["Request-Timeout"]; len(texts) > 0 {
		seconds, ok := parseSeconds(texts)
		if !ok {
			return end, malformedHeader("Request-Timeout", "It is a number of seconds, like 1 or 0.5.")
		}
		end = now.Add(seconds)
	}
	if texts := header["Deadline"]; len(texts) > 0 {
		at, err := time.Parse(time.RFC3339, texts[0])
		if err != nil || len(texts) > 1 {
			return end, malformedHeader("Deadline", "It is a time like 2006-01-02T15:04:05Z (RFC 3339).")
		}
		if end.IsZero() || at.Before(end) {
			end = at
		}
	}
	return end, nil
}

// maxCallerTimeout is the longest that a caller may ask for. A longer one is
// valid, but is never granted, and must not overflow.
const maxCallerTimeout = 24 * time.Hour

func parseSeconds(texts []string) (time.Duration, bool) {
	text := texts[0]
	if len(texts) > 1 || text == "" || len(text) > 20 || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false
	}
	return time.Duration(min(seconds, maxCallerTimeout.Seconds()) * float64(time.Second)), true
}

func malformedHeader(name, next string) error {
	return fault.New("http.deadline", fault.Malformed, "the header %s is not valid", name).Advise(next)
}

// watchdog ends the context of a transfer when it has made no progress for too
// long. Before the first byte of the answer only the caller's own bytes count
// as progress, and they never extend it past the caller's own deadline.
type watchdog struct {
	// set at construction
	limit           time.Duration // without progress
	callerDeadline  time.Time     // the caller's own deadline to the first byte; zero for none
	cancel          func(error)
	setReadDeadline func(until time.Time) // bounds reading of the body; nil if there is none
	bodyComplete    *atomic.Bool          // the body was read; with setReadDeadline only

	mu              sync.Mutex // a few assignments, and under it call.controllerMu
	timer           *time.Timer
	responseStarted bool
	done            bool // the handler has returned
	ended           bool // it lost its slot, or its caller's time is over
	expiresAt       time.Time

	// of a transfer: what it moves; see slow_transfers.go
	windowBegan time.Time
	windowBytes int64
	rate        int64
	measured    bool

	// of a transfer that waits for a limit of this node; see bandwidth.go
	held       int           // waits under way
	heldSince  time.Time     // when the first of them began
	windowHeld time.Duration // of the window
}

// watchResolution is how exact a watchdog is: many small writes in a row need not
// move its timer each time.
const watchResolution = 50 * time.Millisecond

// errNoProgress is why the watchdog ends a context.
var errNoProgress = &fault.Error{Op: "http.transfer", Kind: fault.Timeout, Detail: "the transfer made no progress"}

func (w *watchdog) start() {
	w.timer = time.AfterFunc(time.Until(w.expiresAt), w.expire) //lockblock:allow like the timer of context.WithDeadline, it only ends a context, and it is stopped when the handler returns
}

// expire runs when the timer fires. The expiry may have been moved meanwhile. A
// handler that waits for the body does not see its context end, so the read is
// ended too: after the context, so that the reason is known.
func (w *watchdog) expire() {
	if w.end() {
		w.cancel(errNoProgress)
		w.expireRead()
	}
}

// end ends the transfer if it has expired, and reports whether it did. While it is
// held it does not expire; resume sets the timer again.
func (w *watchdog) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == 0 && !time.Now().Before(w.expiresAt) {
		w.ended = true
	}
	return w.ended
}

// expired reports whether there was no progress for too long.
func (w *watchdog) expired() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held == 0 && !time.Now().Before(w.expiresAt)
}

// expiry is the current time of expiry.
func (w *watchdog) expiry() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held > 0 && !w.ended {
		return time.Now().Add(w.limit)
	}
	return w.expiresAt
}

// progress records that bytes have moved, in either direction.
func (w *watchdog) progress() { w.progressFor(w.limit) }

// progressFor records progress that counts for a while.
func (w *watchdog) progressFor(a time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	end := now.Add(a)
	if !w.responseStarted {
		end = sooner(end, w.callerDeadline)
	}
	if end.Sub(w.expiresAt) > watchResolution && now.Before(w.expiresAt) {
		w.expiresAt = end
		if !w.done {
			w.timer.Reset(end.Sub(now))
		}
	}
}

// extendRead gives the client time for the next bytes of the body, unless the
// watchdog has expired.
func (w *watchdog) extendRead() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Before(w.expiresAt) {
		w.setReadDeadline(now.Add(w.limit))
	}
}

// expireRead ends a waiting read of the body. When the body is complete it does
// nothing, for what reads then is net/http; nor after the handler has returned,
// when the connection may be another request's.
func (w *watchdog) expireRead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.setReadDeadline != nil && !w.done && !w.bodyComplete.Load() {
		w.setReadDeadline(time.Now())
	}
}

// startResponse records that the answer has begun.
func (w *watchdog) startResponse() {
	w.mu.Lock()
	w.responseStarted = true
	w.mu.Unlock()
	w.progress()
}

// stop ends the watch of the handler. What net/http still has to send after it
// is watched by the connection.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.timer.Stop()
}
