package supervise

import (
	"context"

	"micronode/fault"
)

// Pool is N workers under one name. With Next, a worker takes a job, runs it
// and takes the next; without, each worker runs Serve.
//
// A dead worker is a pool event and never a crash loop: the pool is degraded
// while fewer than N live, and the worker comes back after the policy's delay.
// So Limit and Then of its Restart have no say, and a Then other than Degrade
// is refused. A worker that has done a job since it started has proved itself:
// its delay starts from the first again.
type Pool struct {
	Service
	N int

	// Next gives a worker its next job, waiting for one if need be. An error
	// of kind Canceled means that there will be no more (the queue is closed)
	// and the worker has finished; any other is a failure of the worker. A job
	// that it returned is always run, even if the context has ended meanwhile.
	Next func(ctx context.Context) (Job, error)
}

// Job is a piece of work for a pool. A worker dies when its job panics or
// leaves by runtime.Goexit, or when it is killed. The job it had begun is then
// tried once more, at once and on a fresh context, if it is idempotent;
// otherwise, or when it dies again, it is abandoned. A job that was handed out
// but not begun is tried even if it is not idempotent.
//
// A kill and the end of Run may cross: a job that had just done its work can
// still be run again or abandoned. So a job's result is set once, and the
// first one wins.
type Job interface {
	// Run does the work and delivers the result, also that it was cancelled.
	Run(ctx context.Context)
	// Idempotent reports whether running it twice does no harm.
	Idempotent() bool
	// Abandon is called at most once, with why nobody will run the job.
	Abandon(err error)
}

// AddPool registers a pool. All are added before Run.
func (s *Supervisor) AddPool(p Pool) error {
	const op = "supervise.add_pool"
	switch {
	case p.N < 1:
		return malformed(op, "Give the pool at least one worker.", "pool %q has %d workers", p.Name, p.N)
	case (p.Next == nil) == (p.Serve == nil):
		return malformed(op, "Set Next for a pool that takes jobs, or Serve for one whose workers find their own work.",
			"pool %q needs exactly one of Next and Serve", p.Name)
	case p.Restart.Then != Degrade:
		return malformed(op, "Leave Then at Degrade; a service, not a pool, can be given up.",
			"pool %q: a dead worker is never a crash loop", p.Name)
	}
	return s.add(op, &unit{spec: p.Service, pool: true, next: p.Next}, p.N)
}

// hand is what one worker holds. The worker owns it while it runs; once its
// end has been delivered, the keeper does.
type hand struct {
	job   Job
	begun bool // Run was called
	jobs  int  // done by this worker
}

// busy and proven also answer for a service, which has no hand.
func (h *hand) busy() bool   { return h != nil && h.job != nil }
func (h *hand) proven() bool { return h != nil && h.jobs > 0 }

// work is the life of a worker.
func (h *hand) work(ctx context.Context, next func(context.Context) (Job, error)) error {
	for ctx.Err() == nil {
		job, err := next(ctx)
		if err != nil {
			if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
				return nil
			}
			return fault.Wrap("supervise.next", err)
		}
		h.job, h.begun = job, false
		if context.Cause(ctx) == ErrKilled {
			return ErrKilled
		}
		if err := h.attempt(ctx); err != nil {
			return err
		}
		h.jobs++
	}
	return nil
}

// attempt runs the job in hand. If the worker is killed meanwhile or does not
// survive it, the job stays in hand.
func (h *hand) attempt(ctx context.Context) error {
	h.begun = true
	h.job.Run(ctx)
	if context.Cause(ctx) == ErrKilled {
		return ErrKilled
	}
	h.job = nil
	return nil
}

// retry gives the job its second try if that is allowed.
func (h *hand) retry(ctx context.Context, died error) error {
	if h.begun && !h.job.Idempotent() {
		return h.abandon(died)
	}
	return h.attempt(ctx)
}

// abandon lets go of the job before it tells it, so that it is told once even
// if it panics.
func (h *hand) abandon(died error) error {
	job := h.job
	h.job = nil
	job.Abandon(&fault.Error{Op: "supervise.job", Kind: fault.KindOf(died), Err: died,
		Detail: "the worker died with the job in hand",
		Next:   "It may have been done in part: look before repeating it."})
	return nil
}

// rescue looks after the job of a dead worker, then moves the slot to where it
// goes from there. It returns false if the drain leaves it behind.
func (s *slot) rescue(h *hand, died error, to place) bool {
	if !h.busy() {
		return true
	}
	end, ok := s.again("second try", func(ctx context.Context) error { return h.retry(ctx, died) })
	if ok && h.busy() {
		_, ok = s.again("abandon", func(context.Context) error { return h.abandon(end.err) })
	}
	s.unit.sup.mu.Lock()
	defer s.unit.sup.mu.Unlock()
	if ok {
		s.place = to
		s.unit.refresh()
	}
	return ok
}

// again runs fn in the place of the dead worker, on a context that knows what
// the drain would have told the worker.
func (s *slot) again(what string, fn func(context.Context) error) (result, bool) {
	u := s.unit
	u.sup.mu.Lock()
	if u.stage.left {
		s.place, s.how = placeStopped, HowAborted
		u.sup.mu.Unlock()
		return result{}, false
	}
	r := s.begin(placeRetrying, context.Background())
	forced, told := u.stage.forced, u.draining && u.spec.Drain == nil
	u.refresh()
	u.sup.mu.Unlock()
	switch {
	case forced:
		r.task.cancel(ErrAborted)
	case told:
		r.task.cancel(ErrDraining)
	}
	r.launch(fn)

	end, ok := s.await(r, 0)
	if ok && end.outcome.bad() {
		u.sup.mu.Lock()
		u.lastErr = end.err
		news := s.event(EventFailed, end.err)
		news.Detail = what
		u.sup.mu.Unlock()
		u.sup.emit(news)
	}
	return end, ok
}

// Kill cancels what runs under a name, as chaos would: worker 0 of a service,
// worker 0 to N-1 of a pool. It counts as a failure, whatever the task returns.
// Go cannot take a goroutine down, so the worker is dead when it returns.
func (s *Supervisor) Kill(name string, worker int) error {
	const op = "supervise.kill"
	s.mu.Lock()
	u := s.units[name]
	if u == nil || worker < 0 || worker >= len(u.slots) {
		s.mu.Unlock()
		err := fault.New(op, fault.NotFound, "there is no worker %d of %q", worker, name)
		err.Next = "Status lists the names; workers count from 0."
		return err
	}
	t := u.slots[worker].task
	dead := t == nil || t.ended
	s.mu.Unlock()
	if dead {
		err := fault.New(op, fault.NotReady, "worker %d of %q does not run now", worker, name)
		err.Next = "Ask Status, and kill it when it runs again."
		return err
	}
	t.cancel(ErrKilled)
	return nil
}
