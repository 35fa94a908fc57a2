package supervise

import (
	"context"
	"time"
)

// task is one goroutine of a unit: a Serve, a worker, a retry of a job, a drain
// hook. Each is counted once when it starts and once, in one of the other
// columns, when it ends.
type task struct {
	// Set at construction.
	unit   *unit
	ctx    context.Context
	cancel context.CancelCauseFunc
	from   time.Time

	// Guarded by Supervisor.mu.
	ended   bool
	aborted bool // counted as aborted already, at the deadline
}

// result is how a task ended.
type result struct {
	err     error
	outcome outcome
	ran     time.Duration
}

// newTask counts a task in. Called with mu held.
func (u *unit) newTask(parent context.Context) *task {
	ctx, cancel := context.WithCancelCause(parent)
	u.total.Spawned++
	u.running++
	return &task{unit: u, ctx: ctx, cancel: cancel, from: time.Now()}
}

// launch runs the task on a goroutine of its own; end is called there.
func (t *task) launch(fn func(context.Context) error, end func(result)) {
	go protect(t.ctx, fn, func(err error) { end(t.end(err)) })
}

// end counts a task out.
func (t *task) end(err error) result {
	cause := context.Cause(t.ctx)
	t.cancel(nil)
	if cause == ErrKilled && outcomeOf(err, cause) == failed {
		err = ErrKilled // whatever the task returned for its cancelled context
	}
	r := result{err: err, outcome: outcomeOf(err, cause), ran: time.Since(t.from)}

	s := t.unit.sup
	s.mu.Lock()
	defer s.mu.Unlock()
	t.ended = true
	t.unit.running--
	if t.aborted {
		r.outcome = aborted
	} else {
		t.unit.total.add(r.outcome)
	}
	t.unit.refresh()
	return r
}

// abort counts a task that has not ended as aborted and returns whether there
// was anything to abort. The caller cancels it outside the lock. Called with
// mu held.
func (t *task) abort() bool {
	if t == nil || t.ended {
		return false
	}
	if !t.aborted {
		t.aborted = true
		t.unit.total.Aborted++
	}
	return true
}
