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
	sup   *Supervisor
	spec  Service
	pool  bool
	next  func(context.Context) (Job, error)
	stage *stage
	slots []*slot

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
		runs[i] = s.begin(placeRunning, context.Background())
	}
	u.stage.busy.add(len(runs))
	u.refresh()
	news := u.event(EventStarted)
	if u.pool {
		news.Detail = fmt.Sprintf("%d workers", len(runs))
	}
	u.sup.mu.Unlock()

	u.sup.emit(news)
	for i, s := range u.slots {
		s.serve(runs[i])
		u.sup.keepers.Go(func() { s.keep(runs[i]) })
	}
}

// event makes an event about the unit. Called with mu held.
func (u *unit) event(typ EventType) Event {
	return u.sup.stamp(Event{Type: typ, Stage: u.spec.Stage, Service: u.spec.Service, Name: u.spec.Name})
}

// count returns how many slots are in a place. Called with mu held.
func (u *unit) count(p place) int {
	n := 0
	for _, s := range u.slots {
		if s.place == p {
			n++
		}
	}
	return n
}

// live is how many slots run, and want how many should: a worker that has
// finished is not missed. Called with mu held.
func (u *unit) live() int { return u.count(placeRunning) }
func (u *unit) want() int { return len(u.slots) - u.count(placeFinished) }

// over reports whether nothing of the unit runs and nothing will. Called with
// mu held.
func (u *unit) over() bool {
	return u.running == 0 && u.count(placeFinished)+u.count(placeStopped)+u.count(placeDown) == len(u.slots)
}

// muster compares a pool's strength with what it should be and returns the
// event of a change. A pool that is being drained loses its workers by design.
// Called with mu held.
func (u *unit) muster() []Event {
	short := u.live() < u.want()
	if !u.pool || u.stage.draining || short == u.degraded {
		return nil
	}
	u.degraded = short
	news := u.event(EventRecovered)
	if short {
		news.Type = EventDegraded
	}
	news.Detail = fmt.Sprintf("%d of %d workers live", u.live(), u.want())
	return []Event{news}
}

// refresh brings the unit's state up to date after a change of a slot. Called
// with mu held.
func (u *unit) refresh() {
	if now := u.read(); now != u.state {
		u.state, u.since = now, time.Now()
	}
}

// read derives the unit's state from its slots. Called with mu held.
func (u *unit) read() State {
	switch {
	case !u.started && u.stage.draining:
		return StateStopped
	case !u.started:
		return StateStarting
	case u.over() && u.count(placeFinished) == len(u.slots):
		return StateFinished
	case u.over() && u.count(placeDown) > 0:
		return StateDown
	case u.over():
		return StateStopped
	case u.draining:
		return StateDraining
	case u.count(placeWaiting) > 0 && u.count(placeWaiting) == u.want():
		return StateBackoff
	case u.degraded:
		return StateDegraded
	}
	return StateRunning
}
