package supervise

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// drain drains the stages in reverse. The time that is guaranteed to the stages
// still to come, and to the abort of this one, is set aside first, so that all
// of it ends within the total.
func (s *Supervisor) drain() *Report {
	s.mu.Lock()
	s.phase = PhaseDraining
	report := &Report{Reason: s.reason, Began: time.Now(), DrainTimeout: s.drainTimeout}
	event := s.stamp(Event{Type: EventDraining, Detail: s.reason})
	s.mu.Unlock()
	s.emit(event)

	end := report.Began.Add(s.drainTimeout)
	for i, st := range slices.Backward(s.stages) {
		setAside := s.grace + time.Duration(i)*2*s.grace
		s.drainStage(st, end.Add(-setAside), report)
	}
	s.slotLoops.Wait() // each has ended, or has abandoned its task
	s.finishReport(report)
	return report
}

// drainStage requests a stop and waits; at the deadline it aborts and waits for
// one grace more; then it continues with the report.
func (s *Supervisor) drainStage(st *stage, latest time.Time, report *Report) {
	from := time.Now()
	deadline := latest
	if own := from.Add(st.DrainTimeout); st.DrainTimeout > 0 && own.Before(latest) {
		deadline = own
	}
	s.requestStop(st, deadline)
	if !s.waitIdle(st, deadline) {
		s.abort(st)
		if !s.waitIdle(st, time.Now().Add(s.grace)) {
			s.abandonStage(st)
		}
	}
	s.emit(s.reportStage(st, from, deadline, report))
}

// waitIdle waits until nothing of the stage runs, or until the deadline.
func (s *Supervisor) waitIdle(st *stage, deadline time.Time) bool {
	s.mu.Lock()
	idle := st.busy.idle()
	s.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
	}
	select { // both may have come at once
	case <-idle:
		return true
	default:
		return false
	}
}

// requestStop asks all tasks of the stage to stop: by the drain hook where
// there is one, otherwise by cancelling the context. Backoffs end here.
func (s *Supervisor) requestStop(st *stage, deadline time.Time) {
	s.mu.Lock()
	st.draining = true
	close(st.drainBegan)
	var hooks []*unit
	var cancels []context.CancelCauseFunc
	for _, u := range st.units {
		u.draining = u.started && !u.isOver()
		switch {
		case !u.draining:
		case u.spec.Drain != nil:
			hooks = append(hooks, u)
			u.newHookTask(deadline)
		default:
			cancels = append(cancels, u.cancels()...)
		}
		u.refresh()
	}
	for _, g := range st.groups {
		g.atDrain = g.running
		if !g.spec.Finish {
			cancels = append(cancels, g.cancel)
		}
	}
	s.mu.Unlock()

	for _, cancel := range cancels {
		cancel(ErrDraining)
	}
	for _, u := range hooks {
		u.hook.launch(u.spec.Drain, u.hookEnded)
	}
}

// cancels returns the cancel functions of what runs in the unit's slots. Called
// with mu held.
func (u *unit) cancels() []context.CancelCauseFunc {
	var list []context.CancelCauseFunc
	for _, s := range u.slots {
		if s.task != nil {
			list = append(list, s.task.cancel)
		}
	}
	return list
}

// newHookTask makes the task of the drain hook. Cancelling it, as its end does,
// also releases the deadline's timer. Called with mu held.
func (u *unit) newHookTask(deadline time.Time) {
	ctx, release := context.WithDeadlineCause(context.Background(), deadline, ErrAborted)
	u.hook = u.newTask(ctx)
	cancel := u.hook.cancel
	u.hook.cancel = func(cause error) { cancel(cause); release() }
	u.stage.busy.add(1)
}

// hookEnded is called when the drain hook has ended.
func (u *unit) hookEnded(end result) {
	var event Event
	u.sup.mu.Lock()
	u.hookErr = end.err
	switch {
	case end.outcome.isFailure():
		event = u.event(EventFailed)
	case end.outcome == aborted:
		u.hook.aborted = true
		event = u.event(EventAborted)
	}
	event.Err, event.Detail = end.err, hookDetail
	u.sup.mu.Unlock()
	u.sup.emit(event)

	u.sup.mu.Lock()
	defer u.sup.mu.Unlock()
	u.stage.busy.done()
}

const hookDetail = "drain hook"

// abort counts, names and cancels what still runs at the deadline. The hooks'
// contexts end by themselves at the same time.
func (s *Supervisor) abort(st *stage) {
	s.mu.Lock()
	st.forced = true
	var events []Event
	var cancels []context.CancelCauseFunc
	for _, u := range st.units {
		for _, slot := range u.slots {
			if slot.task.abort() {
				cancels = append(cancels, slot.task.cancel)
				events = append(events, slot.event(EventAborted, ErrAborted))
			}
		}
	}
	for _, g := range st.groups {
		if g.running > 0 {
			g.forced, g.aborted = true, g.running
			g.total.Aborted += uint64(g.running)
			cancels = append(cancels, g.cancel)
			events = append(events, g.countEvent(EventAborted))
		}
	}
	s.mu.Unlock()

	for _, cancel := range cancels {
		cancel(ErrAborted)
	}
	s.emit(events...)
}

// abandonStage records the tasks that still run after the abort. The slot loops
// end; the tasks cannot be ended.
func (s *Supervisor) abandonStage(st *stage) {
	s.mu.Lock()
	st.isAbandoned = true
	close(st.abandoned)
	var events []Event
	for _, u := range st.units {
		for _, slot := range u.slots {
			if slot.task.abort() {
				slot.state, slot.end = slotStopped, EndLeftRunning
				events = append(events, slot.event(EventLeftRunning, nil))
			}
		}
		if u.hook.abort() {
			hook := u.event(EventLeftRunning)
			hook.Detail = hookDetail
			events = append(events, hook)
		}
		u.refresh()
	}
	for _, g := range st.groups {
		if g.left = g.running; g.left > 0 {
			events = append(events, g.countEvent(EventLeftRunning))
		}
	}
	s.mu.Unlock()
	s.emit(events...)
}

// countEvent is an event about all running tasks of a group. Called with mu held.
func (g *Group) countEvent(typ EventType) Event {
	e := g.event(typ)
	e.Detail = tasks(g.running)
	return e
}

func tasks(n int) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}
