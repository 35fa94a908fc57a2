package supervise

import (
	"context"
	"sync/atomic"
	"time"

	"micronode/fault"
)

// Pool is N workers under one name. With NextJob, a worker takes a job, runs it
// and takes the next; without, each worker runs Serve.
//
// A dead worker is a pool event and never a crash loop: the pool is degraded
// while fewer than N live, and the worker is restarted after the policy's
// delay. So Limit of its Restart has no effect, and an OnCrashLoop other than
// Degrade is refused. A worker that has finished a job since it started is
// healthy: its delay starts from the first again.
type Pool struct {
	Service
	N int

	// NextJob returns a worker's next job, waiting for one if need be. An error
	// of kind Canceled means that there will be no more (the queue is closed)
	// and the worker has finished; any other is a failure of the worker. A job
	// that it returned is always run, even if the context has ended meanwhile.
	NextJob func(ctx context.Context) (Job, error)

	// Writes says that writes are done by these workers: without them the node
	// is not write-ready.
	Writes bool
}

// maxJobTime is how long a job without a deadline of its own may take, and how
// long any job may go on after it reported progress. A worker that runs one for
// longer is overdue.
const maxJobTime = time.Minute

// Job is a piece of work for a pool. A worker dies when its job panics or
// leaves by runtime.Goexit, or when it is killed. The job it had started is
// then retried once, at once and on a new context, if it is idempotent;
// otherwise, or when it dies again, it is abandoned. A job that was taken but
// not started is retried even if it is not idempotent.
//
// A kill and the end of Run may cross: a job that had just done its work can
// still be run again or abandoned. So a job's result is set once, and the first
// one wins.
type Job interface {
	// Run does the work and delivers the result, also that it was cancelled.
	Run(ctx context.Context)
	// Idempotent reports whether running it twice does no harm.
	Idempotent() bool
	// Abandon is called at most once, with why the job will not run.
	Abandon(err error)
}

// Deadliner is a job that has a deadline: that of its caller.
type Deadliner interface {
	Deadline() (at time.Time, ok bool)
}

// Progress reports that the job whose Run got ctx has moved: bytes arrived, a
// page is done. Its worker is not stuck, however long the job takes in all: it
// is overdue only if it is past its deadline and has not moved for a minute.
// With a ctx that is no job's, it does nothing.
func Progress(ctx context.Context) {
	if w, ok := ctx.Value(workerKey{}).(*workerState); ok {
		w.moved()
	}
}

// workerKey is the key of a worker's state in the context of its jobs.
type workerKey struct{}

// AddPool registers a pool. All are added before Run.
func (s *Supervisor) AddPool(p Pool) error {
	const op = "supervise.add_pool"
	switch {
	case p.N < 1:
		return malformed(op, "Give the pool at least one worker.", "pool %q has %d workers", p.Name, p.N)
	case (p.NextJob == nil) == (p.Serve == nil):
		return malformed(op, "Set NextJob for a pool that takes jobs, or Serve for one whose workers find their own work.",
			"pool %q needs exactly one of NextJob and Serve", p.Name)
	case p.Restart.OnCrashLoop != Degrade:
		return malformed(op, "Leave OnCrashLoop at Degrade; a service, not a pool, can be given up.",
			"pool %q: a dead worker is never a crash loop", p.Name)
	}
	return s.add(op, &unit{spec: p.Service, pool: true, nextJob: p.NextJob, writes: p.Writes}, p.N)
}

// workerState is the state of one worker. The worker owns it while it runs;
// once its end has been delivered, the slot's loop does.
type workerState struct {
	job      Job
	started  bool // Run was called
	finished int  // jobs that this worker has finished

	// set at construction
	epoch time.Time // what due is counted from: monotonic

	due atomic.Int64 // the deadline of the current job; zero while none runs. Read by any goroutine
}

// setDue sets the deadline of a job.
func (w *workerState) setDue(job Job) {
	at := time.Now().Add(maxJobTime)
	if one, ok := job.(Deadliner); ok {
		if due, known := one.Deadline(); known {
			at = due
		}
	}
	w.due.Store(max(1, int64(at.Sub(w.epoch))))
}

// moved extends the deadline of the current job, and never shortens it. Only
// the job calls it, so it does not race with the end of the job.
func (w *workerState) moved() {
	if at := int64(time.Now().Add(maxJobTime).Sub(w.epoch)); at > w.due.Load() {
		w.due.Store(at)
	}
}

// overdue reports whether the current job is past its deadline.
func (w *workerState) overdue(now time.Time) bool {
	due := w.due.Load()
	return due != 0 && int64(now.Sub(w.epoch)) > due
}

// hasJob and hasFinishedJob accept nil, for a service.
func (w *workerState) hasJob() bool         { return w != nil && w.job != nil }
func (w *workerState) hasFinishedJob() bool { return w != nil && w.finished > 0 }

// loop takes and runs jobs until the context ends or there are no more.
func (w *workerState) loop(ctx context.Context, next func(context.Context) (Job, error)) error {
	for ctx.Err() == nil {
		job, err := next(ctx)
		if err != nil {
			if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
				return nil
			}
			return fault.Wrap("supervise.next", err)
		}
		w.job, w.started = job, false
		if context.Cause(ctx) == ErrKilled {
			return ErrKilled
		}
		if err := w.attempt(ctx); err != nil {
			return err
		}
		w.finished++
	}
	return nil
}

// attempt runs the current job. If the worker is killed meanwhile or does not
// survive it, the job stays set.
func (w *workerState) attempt(ctx context.Context) error {
	w.started = true
	w.setDue(w.job)
	defer w.due.Store(0)
	w.job.Run(context.WithValue(ctx, workerKey{}, w))
	if context.Cause(ctx) == ErrKilled {
		return ErrKilled
	}
	w.job = nil
	return nil
}

// retry runs the job again if that is allowed.
func (w *workerState) retry(ctx context.Context, died error) error {
	if w.started && !w.job.Idempotent() {
		return w.abandon(died)
	}
	return w.attempt(ctx)
}

// abandon clears the job before it calls Abandon, so that Abandon is called
// once even if it panics.
func (w *workerState) abandon(died error) error {
	job := w.job
	w.job = nil
	job.Abandon(&fault.Error{Op: "supervise.job", Kind: fault.KindOf(died), Err: died,
		Detail: "the worker ended unexpectedly during the job",
		Next:   "The job may be partly done. Check its effect before you repeat it."})
	return nil
}

// recoverJob retries or abandons the job of a dead worker, then sets the slot's
// next state. It returns false if the drain leaves it behind.
func (s *slot) recoverJob(h *workerState, died error, to slotState) bool {
	if !h.hasJob() {
		return true
	}
	end, ok := s.runReplacement("second try", func(ctx context.Context) error { return h.retry(ctx, died) })
	if ok && h.hasJob() {
		_, ok = s.runReplacement("abandon", func(context.Context) error { return h.abandon(end.err) })
	}
	s.unit.sup.mu.Lock()
	defer s.unit.sup.mu.Unlock()
	if ok {
		s.state = to
		s.unit.refresh()
	}
	return ok
}

// runReplacement runs fn in place of the dead worker, on a context that the
// drain has cancelled if it would have cancelled the worker's.
func (s *slot) runReplacement(what string, fn func(context.Context) error) (result, bool) {
	u := s.unit
	u.sup.mu.Lock()
	if u.stage.isAbandoned {
		s.state, s.end = slotStopped, EndAborted
		u.sup.mu.Unlock()
		return result{}, false
	}
	r := s.begin(slotRetrying, context.Background())
	forced, isDraining := u.stage.forced, u.draining && u.spec.Drain == nil
	u.refresh()
	u.sup.mu.Unlock()
	switch {
	case forced:
		r.task.cancel(ErrAborted)
	case isDraining:
		r.task.cancel(ErrDraining)
	}
	r.launch(fn)

	end, ok := s.await(r, 0)
	if ok && end.outcome.isFailure() {
		u.sup.mu.Lock()
		u.lastErr = end.err
		event := s.event(EventFailed, end.err)
		event.Detail = what
		u.sup.mu.Unlock()
		u.sup.emit(event)
	}
	return end, ok
}

// Kill cancels what runs under a name: worker 0 of a service, worker 0 to N-1 of
// a pool. It counts as a failure, whatever the task returns. Go cannot end a
// goroutine, so the worker is dead only when it returns.
//
// Only tests call it. It has no build tag, unlike KillTenth, because the tests
// of services kill their workers in the build that is released.
func (s *Supervisor) Kill(name string, worker int) error {
	const op = "supervise.kill"
	s.mu.Lock()
	u := s.units[name]
	if u == nil || worker < 0 || worker >= len(u.slots) {
		s.mu.Unlock()
		return fault.New(op, fault.NotFound, "there is no worker %d of %q", worker, name).
			Advise("Status lists the names; workers count from 0.")
	}
	t := u.slots[worker].task
	dead := t == nil || t.ended
	s.mu.Unlock()
	if dead {
		return fault.New(op, fault.NotReady, "worker %d of %q does not run now", worker, name).
			Advise("Ask Status, and kill it when it runs again.")
	}
	t.cancel(ErrKilled)
	return nil
}
