package supervise

import (
	"context"
	"fmt"
	"time"

	"micronode/fault"
)

// slot is where one task at a time runs: the only one of a service, one of the
// N of a pool. Its loop, one goroutine a slot, starts the task, waits for its
// end and decides what follows.
type slot struct {
	// Set at construction.
	unit  *unit
	index int

	// Guarded by Supervisor.mu.
	state  slotState
	task   *task        // the present or last one
	end    EndState     // how it ended for good
	worker *workerState // of the present or last worker; nil for a service

	// Owned by the slot's loop.
	failureStreak int         // failures since the last stable run
	failures      []time.Time // the latest ones, no more than the policy needs
}

// slotState is the state of a slot.
type slotState uint8

const (
	slotIdle     slotState = iota
	slotRunning            // the service or worker runs
	slotRetrying           // the worker is dead, its job is retried
	slotBackoff            // in backoff
	slotFinished           // returned nil before the drain
	slotStopped            // ended by the drain
	slotDown               // not restarted any more
)

// run is one run of a slot's task.
type run struct {
	task   *task
	done   chan result  // buffered for the one result, so that a task that was left running can still end
	worker *workerState // of a worker; nil for a service
}

// begin makes the slot's next task, to be launched by the caller once mu is
// free. Called with mu held.
func (s *slot) begin(p slotState, parent context.Context) *run {
	s.state, s.task = p, s.unit.newTask(parent)
	return &run{task: s.task, done: make(chan result, 1)}
}

// serve launches what the slot is for.
func (s *slot) serve(r *run) {
	fn := s.unit.spec.Serve
	if next := s.unit.nextJob; next != nil {
		r.worker = &workerState{epoch: s.unit.sup.epoch}
		s.setWorker(r.worker)
		fn = func(ctx context.Context) error { return r.worker.loop(ctx, next) }
	}
	r.launch(fn)
}

// setWorker makes the state of the next worker visible to Status.
func (s *slot) setWorker(h *workerState) {
	s.unit.sup.mu.Lock()
	defer s.unit.sup.mu.Unlock()
	s.worker = h
}

func (r *run) launch(fn func(context.Context) error) {
	r.task.launch(fn, func(end result) { r.done <- end })
}

// loop runs once for each run of the task.
func (s *slot) loop(r *run) {
	defer s.loopEnded()
	for r != nil {
		end, ok := s.await(r, s.unit.spec.Restart.Window)
		if !ok {
			return
		}
		to := s.endRun(r.worker, end)
		if !s.recoverJob(r.worker, end.err, to) {
			return
		}
		r = nil
		if to == slotBackoff {
			s.backoff(end.err)
			r = s.restart()
		}
	}
}

// loopEnded tells the stage that the slot's loop has ended.
func (s *slot) loopEnded() {
	s.unit.sup.mu.Lock()
	defer s.unit.sup.mu.Unlock()
	s.unit.stage.busy.done()
}

// await waits for the end of a run and marks it stable on the way. It returns
// false if the drain leaves the task behind.
func (s *slot) await(r *run, window time.Duration) (result, bool) {
	var stable <-chan time.Time
	if s.failureStreak > 0 && window > 0 {
		timer := time.NewTimer(window)
		defer timer.Stop()
		stable = timer.C
	}
	for {
		select {
		case end := <-r.done:
			return end, true
		case <-stable:
			s.markStable()
		case <-s.unit.stage.abandoned:
			return result{}, false
		}
	}
}

// markStable is called when a run has lasted for the policy's window.
func (s *slot) markStable() {
	s.unit.sup.mu.Lock()
	events := s.resetBackoff()
	s.unit.refresh()
	s.unit.sup.mu.Unlock()
	s.unit.sup.emit(events...)
}

// resetBackoff ends a crash loop and resets the backoff. A pool recovers by its
// strength alone. Called by the slot's loop with mu held.
func (s *slot) resetBackoff() []Event {
	s.failureStreak = 0
	if s.unit.pool || !s.unit.degraded {
		return nil
	}
	s.unit.degraded = false
	return []Event{s.unit.event(EventRecovered)}
}

// endRun records how a run ended and returns the slot's next state.
func (s *slot) endRun(h *workerState, end result) slotState {
	u := s.unit
	u.sup.mu.Lock()
	var to slotState
	var events []Event
	if end.outcome.isFailure() {
		to, events = s.fail(h, end)
	} else {
		to, events = s.finish(end)
	}
	s.state = to
	if h.hasJob() {
		s.state = slotRetrying
	}
	events = append(events, u.updateStrength()...)
	u.refresh()
	u.sup.mu.Unlock()
	u.sup.emit(events...)
	return to
}

// finish is for a run that did not fail. Called with mu held.
func (s *slot) finish(end result) (slotState, []Event) {
	u := s.unit
	switch {
	case end.outcome == aborted:
		s.end = EndAborted
	case end.outcome == canceled:
		s.end = EndCanceled
	case u.stage.draining:
		s.end = EndDrained
	default:
		s.end = EndFinished
		return slotFinished, []Event{s.event(EventFinished, nil)}
	}
	if _, isPanic := end.err.(*Panic); isPanic { // after the abort: counted as such, and reported too
		u.lastErr = end.err
		return slotStopped, []Event{s.event(EventFailed, end.err)}
	}
	return slotStopped, nil
}

// fail is for a run that failed. A run that had lasted for the window, or a
// worker that had finished a job, was healthy until then: that comes first.
// Called by the slot's loop with mu held.
func (s *slot) fail(h *workerState, end result) (slotState, []Event) {
	u := s.unit
	var events []Event
	if end.ran >= u.spec.Restart.Window || h.hasFinishedJob() {
		events = s.resetBackoff()
	}
	u.lastErr = end.err
	events = append(events, s.event(EventFailed, end.err))
	switch {
	case u.stage.draining:
		s.end = EndFailed
		return slotStopped, events
	case u.pool: // a dead worker is no crash loop
		return slotBackoff, events
	case !s.addFailure():
		return slotBackoff, events
	}
	to, more := s.escalate(end.err)
	return to, append(events, more...)
}

// addFailure adds a failure and reports whether there are now too many of them
// within the window. Called by the slot's loop.
func (s *slot) addFailure() bool {
	policy, now := s.unit.spec.Restart, time.Now()
	s.failures = append(s.failures, now)
	for len(s.failures) > policy.Limit+1 || now.Sub(s.failures[0]) >= policy.Window && len(s.failures) > 1 {
		s.failures = s.failures[1:]
	}
	return len(s.failures) > policy.Limit
}

// escalate does what the policy says about a crash loop. Called with mu held.
func (s *slot) escalate(err error) (slotState, []Event) {
	u := s.unit
	policy := u.spec.Restart
	why := fmt.Sprintf("more than %d failures within %s", policy.Limit, policy.Window)
	if policy.OnCrashLoop == Degrade {
		if u.degraded {
			return slotBackoff, nil
		}
		u.degraded = true
		event := s.event(EventDegraded, err)
		event.Detail = why
		return slotBackoff, []Event{event}
	}
	if policy.OnCrashLoop == Fatal {
		if u.sup.fatal == nil {
			u.sup.fatal = &fault.Error{Op: "supervise.run", Kind: fault.KindOf(err), Err: err,
				Detail: fmt.Sprintf("%q failed for good (%s)", u.spec.Name, why)}
		}
		u.sup.shutdownLocked(fmt.Sprintf("%q failed for good: %v", u.spec.Name, err))
	}
	s.end = EndDown
	event := s.event(EventDown, err)
	event.Detail = why
	return slotDown, []Event{event}
}

// backoff waits for the delay after a failure. The drain cuts it short.
func (s *slot) backoff(err error) {
	u := s.unit
	delay := u.spec.Restart.delay(s.failureStreak, u.sup.jitter)
	s.failureStreak++
	u.sup.mu.Lock()
	if u.stage.draining {
		u.sup.mu.Unlock()
		return
	}
	event := s.event(EventRestarting, err)
	event.Delay = delay
	u.sup.mu.Unlock()
	u.sup.emit(event)

	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.stage.drainBegan:
	}
}

// restart begins the next run, unless the drain has begun.
func (s *slot) restart() *run {
	u := s.unit
	u.sup.mu.Lock()
	if u.stage.draining {
		s.state, s.end = slotStopped, EndBackoff
		u.refresh()
		u.sup.mu.Unlock()
		return nil
	}
	r := s.begin(slotRunning, context.Background())
	u.total.Restarts++
	events := append([]Event{s.event(EventStarted, nil)}, u.updateStrength()...)
	u.refresh()
	u.sup.mu.Unlock()

	u.sup.emit(events...)
	s.serve(r)
	return r
}

// event makes an event about the slot. Called with mu held.
func (s *slot) event(typ EventType, err error) Event {
	e := s.unit.event(typ)
	e.Worker, e.Err = s.index, err
	return e
}

// label names the slot in the report.
func (s *slot) label() string {
	if s.unit.pool {
		return fmt.Sprintf("%s[%d]", s.unit.spec.Name, s.index)
	}
	return s.unit.spec.Name
}
