package supervise

import (
	"context"
	"fmt"
	"time"
)

// unit is a service or a pool as the supervisor sees it: a number of slots, in
// each of which one task runs at a time. A service has one slot.
type unit struct {
	// Set at construction.
	sup     *Supervisor
	spec    Service
	pool    bool
	nextJob func(context.Context) (Job, error)
	stage   *stage
	slots   []*slot
	writes  bool // writes are done here

	// Guarded by Supervisor.mu.
	total    *Count
	running  int // tasks, the drain hook among them
	started  bool
	draining bool
	degraded bool
	state    State
	since    time.Time
	lastErr  error
	hook     *task // the drain hook, once called
	hookErr  error
}

// start runs all slots. The tasks are made here, on Run's goroutine, so that
// what was announced as started is started even if the drain comes first.
func (u *unit) start() {
	runs := make([]*run, len(u.slots))
	u.sup.mu.Lock()
	u.started = true
	for i, s := range u.slots {
		runs[i] = s.begin(slotRunning, context.Background())
	}
	u.stage.busy.add(len(runs))
	u.refresh()
	event := u.event(EventStarted)
	if u.pool {
		event.Detail = fmt.Sprintf("%d workers", len(runs))
	}
	u.sup.mu.Unlock()

	u.sup.emit(event)
	for i, s := range u.slots {
		s.serve(runs[i])
		u.sup.slotLoops.Go(func() { s.loop(runs[i]) })
	}
}

// event makes an event about the unit. Called with mu held.
func (u *unit) event(typ EventType) Event {
	return u.sup.stamp(Event{Type: typ, Stage: u.spec.Stage, Service: u.spec.Service, Name: u.spec.Name})
}

// count returns how many slots are in a state. Called with mu held.
func (u *unit) count(p slotState) int {
	n := 0
	for _, s := range u.slots {
		if s.state == p {
			n++
		}
	}
	return n
}

// live is how many slots run, and want how many should: a worker that has
// finished does not count. Called with mu held.
func (u *unit) live() int { return u.count(slotRunning) }
func (u *unit) want() int { return len(u.slots) - u.count(slotFinished) }

// overdue is how many workers run a job past its deadline. Called with mu held.
func (u *unit) overdue(now time.Time) int {
	n := 0
	for _, s := range u.slots {
		if s.worker != nil && s.worker.overdue(now) {
			n++
		}
	}
	return n
}

// isOver reports whether nothing of the unit runs and nothing will run. Called
// with mu held.
func (u *unit) isOver() bool {
	return u.running == 0 && u.count(slotFinished)+u.count(slotStopped)+u.count(slotDown) == len(u.slots)
}

// updateStrength compares a pool's strength with what it should be and returns the
// event of a change. A pool that is being drained loses its workers by design.
// Called with mu held.
func (u *unit) updateStrength() []Event {
	belowStrength := u.live() < u.want()
	if !u.pool || u.stage.draining || belowStrength == u.degraded {
		return nil
	}
	u.degraded = belowStrength
	event := u.event(EventRecovered)
	if belowStrength {
		event.Type = EventDegraded
	}
	event.Detail = fmt.Sprintf("%d of %d workers live", u.live(), u.want())
	return []Event{event}
}

// refresh brings the unit's state up to date after a change of a slot. Called
// with mu held.
func (u *unit) refresh() {
	if now := u.deriveState(); now != u.state {
		u.state, u.since = now, time.Now()
	}
}

// deriveState derives the unit's state from its slots. Called with mu held.
func (u *unit) deriveState() State {
	switch {
	case !u.started && u.stage.draining:
		return StateStopped
	case !u.started:
		return StateStarting
	case u.isOver() && u.count(slotFinished) == len(u.slots):
		return StateFinished
	case u.isOver() && u.count(slotDown) > 0:
		return StateDown
	case u.isOver():
		return StateStopped
	case u.draining:
		return StateDraining
	case u.count(slotBackoff) > 0 && u.count(slotBackoff) == u.want():
		return StateBackoff
	case u.degraded:
		return StateDegraded
	}
	return StateRunning
}
