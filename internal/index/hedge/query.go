package hedge

import (
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// query is the query of one target.
type query struct {
	Target
	wave      Wave
	startedAt time.Time
	took      time.Duration
	done      func(error) // reports to its breaker; nil while it is not running
	replied   bool        // it has answered, or failed at least once
	retries   int         // beyond the first attempt
	retryAt   time.Time   // when it is retried; zero: never
	err       error
}

func (q *query) active() bool { return q.done != nil || !q.retryAt.IsZero() }

// finish ends a query and reports the result to the breaker.
func (q *query) finish(err error, now time.Time) {
	q.err, q.took = err, now.Sub(q.startedAt)
	q.done(err)
	q.done = nil
}

// cancelQuery ends a query that is running when the look-up ends. A target that
// had less than MinSilence is not charged with a time-out.
func (l *lookup) cancelQuery(run *query, why error, now time.Time) {
	if now.Sub(run.startedAt) < l.plan.MinSilence && fault.KindOf(why) == fault.Timeout {
		run.done(errOthersFaster)
		run.done = func(error) {}
	}
	run.finish(why, now)
}

// retryBackoff is how long to wait before a target is queried again.
var retryBackoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 100 * time.Millisecond}

// scheduleRetry schedules a retry if the failure is temporary, and if the
// budget leaves time for it.
func (l *lookup) scheduleRetry(run *query, now time.Time) {
	kind := fault.KindOf(run.err)
	if kind != fault.Transient && kind != fault.NoRoute || run.retries == Retries || !l.enoughSince.IsZero() {
		return
	}
	pause := retryBackoff.Delay(run.retries)
	if l.plan.RetryDelay != nil {
		pause = l.plan.RetryDelay()
	}
	again := now.Add(pause)
	if end, limited := l.ctx.Deadline(); !limited || again.Before(end) {
		run.retryAt = again
	}
}
