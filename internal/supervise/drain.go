package supervise

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// drain walks the stages backwards. The time that the stages still to come,
// and the last moments of this one, are sure of is set aside first, so that
// all of it ends within the total.
func (s *Supervisor) drain() *Report {
	s.mu.Lock()
	s.phase = PhaseDraining
	report := &Report{Reason: s.reason, Began: time.Now(), Total: s.total}
	news := s.stamp(Event{Type: EventDraining, Detail: s.reason})
	s.mu.Unlock()
	s.emit(news)

	end := report.Began.Add(s.total)
	for i, st := range slices.Backward(s.stages) {
		setAside := s.grace + time.Duration(i)*2*s.grace
		s.drainStage(st, end.Add(-setAside), report)
	}
	s.keepers.Wait() // each has ended, or been told that its task is left behind
	s.conclude(report)
	return report
}

// drainStage asks, waits, aborts, waits a little, and goes on.
func (s *Supervisor) drainStage(st *stage, latest time.Time, report *Report) {
	from := time.Now()
	deadline := latest
	if own := from.Add(st.Drain); st.Drain > 0 && own.Before(latest) {
		deadline = own
	}
	s.ask(st, deadline)
	if !s.idle(st, deadline) {
		s.abort(st)
		if !s.idle(st, time.Now().Add(s.grace)) {
			s.leave(st)
		}
	}
	s.emit(s.account(st, from, deadline, report))
}

// idle waits until nothing of the stage runs, or until the deadline.
func (s *Supervisor) idle(st *stage, deadline time.Time) bool {
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

// ask tells everybody in the stage to stop: by the drain hook where there is
// one, by the end of the context where there is not. Backoffs end here.
func (s *Supervisor) ask(st *stage, deadline time.Time) {
	s.mu.Lock()
	st.draining = true
	close(st.began)
	var hooks []*unit
	var told []context.CancelCauseFunc
	for _, u := range st.units {
		u.draining = u.started && !u.over()
		switch {
		case !u.draining:
		case u.spec.Drain != nil:
			hooks = append(hooks, u)
			u.callHook(deadline)
		default:
			told = append(told, u.cancels()...)
		}
		u.refresh()
	}
	for _, g := range st.groups {
		g.atDrain = g.running
		if !g.spec.Finish {
			told = append(told, g.cancel)
		}
	}
	s.mu.Unlock()

	for _, cancel := range told {
		cancel(ErrDraining)
	}
	for _, u := range hooks {
		u.hook.launch(u.spec.Drain, u.hooked)
	}
}

// cancels are the contexts of what runs in the unit's slots. Called with mu held.
func (u *unit) cancels() []context.CancelCauseFunc {
	var list []context.CancelCauseFunc
	for _, s := range u.slots {
		if s.task != nil {
			list = append(list, s.task.cancel)
		}
	}
	return list
}

// callHook makes the task of the drain hook. Cancelling it, as its end does,
// also gives the deadline's timer back. Called with mu held.
func (u *unit) callHook(deadline time.Time) {
	ctx, release := context.WithDeadlineCause(context.Background(), deadline, ErrAborted)
	u.hook = u.newTask(ctx)
	cancel := u.hook.cancel
	u.hook.cancel = func(cause error) { cancel(cause); release() }
	u.stage.busy.add(1)
}

// hooked is called when the drain hook has ended.
func (u *unit) hooked(end result) {
	var news Event
	u.sup.mu.Lock()
	u.hookErr = end.err
	switch {
	case end.outcome.bad():
		news = u.event(EventFailed)
	case end.outcome == aborted:
		u.hook.aborted = true
		news = u.event(EventAborted)
	}
	news.Err, news.Detail = end.err, hookDetail
	u.sup.mu.Unlock()
	u.sup.emit(news)

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
	var news []Event
	var told []context.CancelCauseFunc
	for _, u := range st.units {
		for _, slot := range u.slots {
			if slot.task.abort() {
				told = append(told, slot.task.cancel)
				news = append(news, slot.event(EventAborted, ErrAborted))
			}
		}
	}
	for _, g := range st.groups {
		if g.running > 0 {
			g.forced, g.aborted = true, g.running
			g.total.Aborted += uint64(g.running)
			told = append(told, g.cancel)
			news = append(news, g.many(EventAborted))
		}
	}
	s.mu.Unlock()

	for _, cancel := range told {
		cancel(ErrAborted)
	}
	s.emit(news...)
}

// leave names what ignored even that. The keepers go; the tasks cannot be
// made to.
func (s *Supervisor) leave(st *stage) {
	s.mu.Lock()
	st.left = true
	close(st.gone)
	var news []Event
	for _, u := range st.units {
		for _, slot := range u.slots {
			if slot.task.abort() {
				slot.place, slot.how = placeStopped, HowLeft
				news = append(news, slot.event(EventLeftRunning, nil))
			}
		}
		if u.hook.abort() {
			hook := u.event(EventLeftRunning)
			hook.Detail = hookDetail
			news = append(news, hook)
		}
		u.refresh()
	}
	for _, g := range st.groups {
		if g.left = g.running; g.left > 0 {
			news = append(news, g.many(EventLeftRunning))
		}
	}
	s.mu.Unlock()
	s.emit(news...)
}

// many is an event about all running tasks of a group. Called with mu held.
func (g *Group) many(typ EventType) Event {
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
