package fill

import (
	"context"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
)

// A fill holds one of a few workers for as long as its body takes. It may do so
// while it is worth it: the body moves, it brings enough, and somebody wants
// it.

const (
	// minRate is what a body must bring on average, once the time-out of a try
	// has passed: in bytes a second.
	minRate = 1 << 10

	// With fills that wait for its worker, a body must bring floorStep for each
	// of them, up to maxFloor; over each stretch of rateWindow. So 64 MiB hold a
	// worker that one fill waits for at most 68 minutes, and one that four wait
	// for at most 17. ADR 95 has the reasons.
	floorStep  = 16 << 10
	maxFloor   = 64 << 10
	rateWindow = 10 * time.Second

	// How often a fill looks whether it has waiters. One that has none twice in
	// a row is given up: a player that asks for another range, or a reader that
	// reconnects, is back by then.
	waiterInterval = time.Second
)

// fillTimer cancels a try: the header must arrive within the limit, and then
// there must be progress within every further limit, enough of it, and somebody
// who waits for it.
type fillTimer struct {
	// set at construction
	limit     time.Duration
	ctx       context.Context // of the job
	cancel    context.CancelCauseFunc
	timer     *time.Timer
	began     time.Time
	waiting   func() int  // fills that wait for this worker
	abandoned func() bool // whether nobody waits
	giveUp    func() bool // closes boarding if nobody waits

	// owned by the reader
	size        int64 // of the body; below zero if it is not known
	n           int64 // bytes that have arrived
	windowBegan time.Time
	windowBytes int64
	lookedAt    time.Time // when it looked for waiters
	wasEmpty    bool      // and found none
}

// newFillTimer starts the timer of a try.
func (o *originFetch) newFillTimer(ctx context.Context) (context.Context, *fillTimer) {
	now, f := time.Now(), o.flight
	a := &fillTimer{
		limit: o.policy.Timeout, ctx: ctx, began: now, windowBegan: now, lookedAt: now, size: -1,
		waiting:   func() int { return o.cache.work.Contenders(workBand, f.class) },
		abandoned: func() bool { return !o.cache.hasWaiters(f) },
		giveUp:    func() bool { return o.cache.giveUp(f) },
	}
	ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(a.limit, a.expire) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and it is stopped when the try is over
	return ctx, a
}

func (s *fillTimer) expire() { s.cancel(tooSlow(context.DeadlineExceeded)) }

// progress notes that bytes arrived. The worker is not stuck then, however long
// the body takes in all.
func (s *fillTimer) progress(n int) {
	supervise.Progress(s.ctx)
	now := time.Now()
	s.n += int64(n)
	s.windowBytes += int64(n)
	switch {
	case now.Sub(s.began) > s.limit+time.Duration(s.n)*time.Second/minRate, s.isBelowFloor(now):
		s.expire()
	case s.isAbandoned(now):
		s.cancel(&fault.Error{Op: opFill, Kind: fault.Canceled, Err: errGivenUp, Detail: "all requests for it were cancelled"})
	default:
		s.timer.Reset(s.limit)
	}
}

// isBelowFloor reports, once for each window, whether others wait for the
// worker and the body brought too little for that.
func (s *fillTimer) isBelowFloor(now time.Time) bool {
	took := now.Sub(s.windowBegan)
	if took < rateWindow {
		return false
	}
	rate := s.rate(s.windowBytes, took)
	s.windowBegan, s.windowBytes = now, 0
	if s.isNearlyDone(rate) {
		return false
	}
	return rate < min(maxFloor, floorStep*int64(s.waiting()))
}

// isAbandoned reports whether nobody waits for the body, and so for the second
// time, unless the rest of it is about to arrive.
func (s *fillTimer) isAbandoned(now time.Time) bool {
	if now.Sub(s.lookedAt) < waiterInterval {
		return false
	}
	s.lookedAt = now
	before := s.wasEmpty
	s.wasEmpty = s.abandoned()
	return s.wasEmpty && before && !s.isNearlyDone(s.rate(s.n, now.Sub(s.began))) && s.giveUp()
}

// isNearlyDone reports whether the rest arrives within the limit at a rate.
func (s *fillTimer) isNearlyDone(rate int64) bool {
	return s.size >= 0 && float64(s.size-s.n) <= float64(rate)*s.limit.Seconds()
}

// rate is in bytes a second.
func (s *fillTimer) rate(bytes int64, took time.Duration) int64 {
	return int64(float64(bytes) / max(took, time.Millisecond).Seconds())
}

// hold stops the timer while the fill waits for a limit of this node, which is
// not the origin's fault.
func (s *fillTimer) hold() (resume func()) {
	s.timer.Stop()
	since := time.Now()
	return func() {
		held := time.Since(since)
		s.began, s.windowBegan = s.began.Add(held), s.windowBegan.Add(held)
		supervise.Progress(s.ctx)
		s.timer.Reset(s.limit)
	}
}

func (s *fillTimer) stop() {
	s.timer.Stop()
	s.cancel(nil)
}
