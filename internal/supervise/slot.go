package supervise

import (
	"context"
	"fmt"
	"time"

	"micronode/fault"
)

// slot is where one task at a time runs: the only one of a service, one of
// the N of a pool. A keeper, one goroutine a slot, starts the task, waits for
// its end and decides what comes next.
type slot struct {
	// Set at construction.
	unit  *unit
	index int

	// Guarded by Supervisor.mu.
	place place
	task  *task // the present or last one
	how   How   // how it ended for good

	// Owned by the keeper.
	streak   int         // failures since the last stable run
	failures []time.Time // the latest ones, no more than the policy needs
}

// place is where a slot is in its life.
type place uint8

const (
	placeIdle     place = iota
	placeRunning        // the service or worker runs
	placeRetrying       // the worker is dead, its job has a second try
	placeWaiting        // in backoff
	placeFinished       // returned nil before the drain
	placeStopped        // ended by the drain
	placeDown           // given up
)

// run is one life of a slot's task.
type run struct {
	task *task
	done chan result // has room for the one result, so that a straggler can leave it there
	hand *hand       // what a worker holds; nil for a service
}

// begin makes the slot's next task, to be launched by the caller once mu is
// free. Called with mu held.
func (s *slot) begin(p place, parent context.Context) *run {
	s.place, s.task = p, s.unit.newTask(parent)
	return &run{task: s.task, done: make(chan result, 1)}
}

// serve launches what the slot is for.
func (s *slot) serve(r *run) {
	fn := s.unit.spec.Serve
	if next := s.unit.next; next != nil {
		r.hand = &hand{}
		fn = func(ctx context.Context) error { return r.hand.work(ctx, next) }
	}
	r.launch(fn)
}

func (r *run) launch(fn func(context.Context) error) {
	r.task.launch(fn, func(end result) { r.done <- end })
}

// keep is the keeper's loop: one turn for each life of the task.
func (s *slot) keep(r *run) {
	defer s.retire()
	for r != nil {
		end, ok := s.await(r, s.unit.spec.Restart.Window)
		if !ok {
			return
		}
		to := s.settle(r.hand, end)
		if !s.rescue(r.hand, end.err, to) {
			return
		}
		r = nil
		if to == placeWaiting {
			s.pause(end.err)
			r = s.restart()
		}
	}
}

// retire tells the stage that the keeper is done.
func (s *slot) retire() {
	s.unit.sup.mu.Lock()
	defer s.unit.sup.mu.Unlock()
	s.unit.stage.busy.done()
}

// await waits for the end of a run and notes on the way when it has become
// stable. It returns false if the drain leaves the task behind.
func (s *slot) await(r *run, window time.Duration) (result, bool) {
	var stable <-chan time.Time
	if s.streak > 0 && window > 0 {
		timer := time.NewTimer(window)
		defer timer.Stop()
		stable = timer.C
	}
	for {
		select {
		case end := <-r.done:
			return end, true
		case <-stable:
			s.steady()
		case <-s.unit.stage.gone:
			return result{}, false
		}
	}
}

// steady is called when a run has lasted for the policy's window.
func (s *slot) steady() {
	s.unit.sup.mu.Lock()
	news := s.forgive()
	s.unit.refresh()
	s.unit.sup.mu.Unlock()
	s.unit.sup.emit(news...)
}

// forgive ends a crash loop and takes the backoff to its start. A pool
// recovers by its strength alone. Called by the keeper with mu held.
func (s *slot) forgive() []Event {
	s.streak = 0
	if s.unit.pool || !s.unit.degraded {
		return nil
	}
	s.unit.degraded = false
	return []Event{s.unit.event(EventRecovered)}
}

// settle notes how a run ended and returns where the slot goes from there.
func (s *slot) settle(h *hand, end result) place {
	u := s.unit
	u.sup.mu.Lock()
	var to place
	var news []Event
	if end.outcome.bad() {
		to, news = s.fail(h, end)
	} else {
		to, news = s.finish(end)
	}
	s.place = to
	if h.busy() {
		s.place = placeRetrying
	}
	news = append(news, u.muster()...)
	u.refresh()
	u.sup.mu.Unlock()
	u.sup.emit(news...)
	return to
}

// finish is for a run that was no failure. Called with mu held.
func (s *slot) finish(end result) (place, []Event) {
	u := s.unit
	switch {
	case end.outcome == aborted:
		s.how = HowAborted
	case end.outcome == canceled:
		s.how = HowCanceled
	case u.stage.draining:
		s.how = HowDrained
	default:
		s.how = HowFinished
		return placeFinished, []Event{s.event(EventFinished, nil)}
	}
	if _, isPanic := end.err.(*Panic); isPanic { // after the abort: counted as such, but not passed over
		u.lastErr = end.err
		return placeStopped, []Event{s.event(EventFailed, end.err)}
	}
	return placeStopped, nil
}

// fail is for a run that was a failure. A run that had lasted for the window,
// or a worker that had done a job, was healthy until then: that comes first.
// Called by the keeper with mu held.
func (s *slot) fail(h *hand, end result) (place, []Event) {
	u := s.unit
	var news []Event
	if end.ran >= u.spec.Restart.Window || h.proven() {
		news = s.forgive()
	}
	u.lastErr = end.err
	news = append(news, s.event(EventFailed, end.err))
	switch {
	case u.stage.draining:
		s.how = HowFailed
		return placeStopped, news
	case u.pool: // a dead worker is no crash loop
		return placeWaiting, news
	case !s.looping():
		return placeWaiting, news
	}
	to, more := s.escalate(end.err)
	return to, append(news, more...)
}

// looping adds a failure and reports whether there are now too many of them
// within the window. Called by the keeper.
func (s *slot) looping() bool {
	policy, now := s.unit.spec.Restart, time.Now()
	s.failures = append(s.failures, now)
	for len(s.failures) > policy.Limit+1 || now.Sub(s.failures[0]) >= policy.Window && len(s.failures) > 1 {
		s.failures = s.failures[1:]
	}
	return len(s.failures) > policy.Limit
}

// escalate does what the policy says about a crash loop. Called with mu held.
func (s *slot) escalate(err error) (place, []Event) {
	u := s.unit
	policy := u.spec.Restart
	why := fmt.Sprintf("more than %d failures within %s", policy.Limit, policy.Window)
	if policy.never() {
		why = "its first failure is its last"
	}
	if policy.Then == Degrade {
		if u.degraded {
			return placeWaiting, nil
		}
		u.degraded = true
		news := s.event(EventDegraded, err)
		news.Detail = why
		return placeWaiting, []Event{news}
	}
	if policy.Then == Fatal {
		if u.sup.fatal == nil {
			u.sup.fatal = &fault.Error{Op: "supervise.run", Kind: fault.KindOf(err), Err: err,
				Detail: fmt.Sprintf("%q failed for good (%s)", u.spec.Name, why)}
		}
		u.sup.halt(fmt.Sprintf("%q failed for good: %v", u.spec.Name, err))
	}
	s.how = HowDown
	news := s.event(EventDown, err)
	news.Detail = why
	return placeDown, []Event{news}
}

// pause is the backoff after a failure. The drain cuts it short.
func (s *slot) pause(err error) {
	u := s.unit
	delay := u.spec.Restart.delay(s.streak, u.sup.jitter)
	s.streak++
	u.sup.mu.Lock()
	if u.stage.draining {
		u.sup.mu.Unlock()
		return
	}
	news := s.event(EventRestarting, err)
	news.Delay = delay
	u.sup.mu.Unlock()
	u.sup.emit(news)

	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.stage.began:
	}
}

// restart begins the next life, unless the drain has come.
func (s *slot) restart() *run {
	u := s.unit
	u.sup.mu.Lock()
	if u.stage.draining {
		s.place, s.how = placeStopped, HowBackoff
		u.refresh()
		u.sup.mu.Unlock()
		return nil
	}
	r := s.begin(placeRunning, context.Background())
	u.total.Restarts++
	news := append([]Event{s.event(EventStarted, nil)}, u.muster()...)
	u.refresh()
	u.sup.mu.Unlock()

	u.sup.emit(news...)
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
