package ingress

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/fault"
)

// answerGrace is what is left after the deadline of a control route to tell
// the caller that it has passed. A client that does not even take that is cut.
const answerGrace = time.Second

// bounds are what a request was given for as long as its handler runs. What it
// was not given is nil.
type bounds struct {
	watch  *watchdog
	leave  func()
	cancel context.CancelCauseFunc
	end    context.CancelFunc
}

// release gives it all back, when the handler has returned.
func (b *bounds) release() {
	if b.watch != nil {
		b.watch.stop()
	}
	if b.leave != nil {
		b.leave()
	}
	if b.cancel != nil {
		b.cancel(nil)
	}
	if b.end != nil {
		b.end()
	}
}

// bound gives the request the deadline of its class. The call's bounds must be
// released when the handler has returned.
func (m *mounted) bound(ctx context.Context, c *call, r *http.Request) (context.Context, error) {
	callers, err := callersDeadline(c.start, r.Header)
	if err != nil {
		return nil, err
	}
	switch m.route.Class {
	case Transfer:
		return m.boundTransfer(ctx, c, callers), nil
	case Stream:
		return m.boundStream(ctx, c, callers), nil
	default:
		return m.boundControl(ctx, c, callers), nil
	}
}

func (m *mounted) boundControl(ctx context.Context, c *call, callers time.Time) context.Context {
	end := sooner(c.start.Add(m.deadline), callers)
	c.setWriteDeadline(later(end, c.start).Add(answerGrace))
	if c.body {
		c.setReadDeadline(end)
	}
	ctx, c.bounds.end = context.WithDeadline(ctx, end)
	return ctx
}

func (m *mounted) boundTransfer(ctx context.Context, c *call, callers time.Time) context.Context {
	ctx, c.bounds.cancel = context.WithCancelCause(ctx)
	watch := &c.dog
	watch.limit, watch.latest, watch.bark = m.server.times.Progress, callers, c.bounds.cancel
	watch.end = sooner(c.start.Add(m.deadline), callers)
	c.bounds.watch = watch
	c.begin(watch)
	watch.start()
	return ctx
}

func (m *mounted) boundStream(ctx context.Context, c *call, callers time.Time) context.Context {
	if !callers.IsZero() {
		ctx, c.bounds.end = context.WithDeadline(ctx, callers)
	}
	ctx, c.bounds.cancel = context.WithCancelCause(ctx)
	c.bounds.leave = c.listener.streams.add(c.bounds.cancel)
	return ctx
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

// callersDeadline reads Request-Timeout (seconds from now) and Deadline (a
// time). If both are there, the sooner counts. The zero time is for neither.
func callersDeadline(now time.Time, header http.Header) (time.Time, error) {
	var end time.Time
	if texts := header["Request-Timeout"]; len(texts) > 0 {
		seconds, ok := parseSeconds(texts)
		if !ok {
			return end, wrongHeader("Request-Timeout", "It is a number of seconds, like 1 or 0.5.")
		}
		end = now.Add(seconds)
	}
	if texts := header["Deadline"]; len(texts) > 0 {
		at, err := time.Parse(time.RFC3339, texts[0])
		if err != nil || len(texts) > 1 {
			return end, wrongHeader("Deadline", "It is a time like 2006-01-02T15:04:05Z (RFC 3339).")
		}
		if end.IsZero() || at.Before(end) {
			end = at
		}
	}
	return end, nil
}

// longest is what a caller may ask for; more is no mistake, but is never
// granted either, and must not overflow.
const longest = 24 * time.Hour

func parseSeconds(texts []string) (time.Duration, bool) {
	text := texts[0]
	if len(texts) > 1 || text == "" || len(text) > 20 || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false
	}
	return time.Duration(min(seconds, longest.Seconds()) * float64(time.Second)), true
}

func wrongHeader(name, next string) error {
	err := fault.New("http.deadline", fault.Malformed, "the header %s is not what it should be", name)
	err.Next = next
	return err
}

// watchdog ends the context of a transfer when nothing has moved for too long.
// Before the first byte of the answer only the caller's own bytes count as
// movement, and they never carry it past the caller's own deadline.
type watchdog struct {
	// set at construction
	limit  time.Duration // without progress
	latest time.Time     // the caller's own deadline to the first byte; zero for none
	bark   func(error)
	read   func(until time.Time) // bounds reading of the body; nil if there is none

	mu    sync.Mutex //lockblock:leaf a few assignments
	timer *time.Timer
	begun bool // the answer has
	done  bool // the handler has returned
	end   time.Time
}

// watchStep is how exact a watchdog is: many small writes in a row need not
// move its timer each time.
const watchStep = 50 * time.Millisecond

// errStuck is why the watchdog ends a context.
var errStuck = &fault.Error{Op: "http.transfer", Kind: fault.Timeout, Detail: "nothing moved for too long"}

func (d *watchdog) start() {
	d.timer = time.AfterFunc(time.Until(d.end), d.expire) //lockblock:allow like the timer of context.WithDeadline, it only ends a context, and it is stopped when the handler returns
}

// expire runs when the timer ends. The end may have been moved meanwhile. A
// handler that waits for the body does not see its context end, so that is ended,
// too: after it, so that the reason is known.
func (d *watchdog) expire() {
	if d.expired() {
		d.bark(errStuck)
		d.readNoMore()
	}
}

// expired reports whether nothing has moved for too long.
func (d *watchdog) expired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !time.Now().Before(d.end)
}

// moved tells that bytes have moved, in either direction.
func (d *watchdog) moved() {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	end := now.Add(d.limit)
	if !d.begun {
		end = sooner(end, d.latest)
	}
	if end.Sub(d.end) > watchStep && now.Before(d.end) {
		d.end = end
		if !d.done {
			d.timer.Reset(end.Sub(now))
		}
	}
}

// readOn gives the client time for the next bytes of the body, unless its time
// is up.
func (d *watchdog) readOn() {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Before(d.end) {
		d.read(now.Add(d.limit))
	}
}

// readNoMore ends a read of the body that waits. When the handler has returned,
// the connection may be another request's.
func (d *watchdog) readNoMore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read != nil && !d.done {
		d.read(time.Now())
	}
}

// answered tells that the answer has begun.
func (d *watchdog) answered() {
	d.mu.Lock()
	d.begun = true
	d.mu.Unlock()
	d.moved()
}

// stop ends the watch of the handler. What net/http still has to send after it
// is watched by the connection.
func (d *watchdog) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
	d.timer.Stop()
}
