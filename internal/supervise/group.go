package supervise

import (
	"context"
	"slices"
	"time"

	"micronode/fault"
)

// GroupSpec describes tasks that come and go: the readers and writers of
// connections, the racers of a hedge.
type GroupSpec struct {
	Service string // the metrics label
	Kind    string // the "kind" of the tasks
	Stage   string // in which they are drained
	Max     int    // how many run at a time

	// Finish lets the tasks end by themselves until the stage's deadline.
	// Otherwise they are cancelled when the drain reaches the stage.
	Finish bool
}

// Group owns such tasks. It is meant to be one for each kind in a service, not
// one for each connection. A service that is restarted makes a new group;
// groups of one service and kind share their totals.
type Group struct {
	// Set at construction.
	sup    *Supervisor
	spec   GroupSpec
	stage  *stage
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Guarded by Supervisor.mu.
	total    *Count
	running  int
	sleepers *Sleeper     // the first of them
	tasks    pendingCount // those that run, and those whose end is being reported
	closed   bool
	forced   bool      // those that ran were counted as aborted
	since    time.Time // of the last change between idle and busy

	// Guarded by Supervisor.mu; for the report: how many tasks
	atDrain, aborted, left int
}

// NewGroup makes a group, before or during Run.
func (s *Supervisor) NewGroup(spec GroupSpec) (*Group, error) {
	const op = "supervise.new_group"
	if spec.Service == "" || spec.Kind == "" || spec.Max < 1 {
		return nil, malformed(op, "Set Service and Kind to the metrics labels and Max to how many tasks may run at a time.",
			"a group of service %q and kind %q with at most %d tasks", spec.Service, spec.Kind, spec.Max)
	}
	st, err := s.find(op, spec.Stage)
	if err != nil {
		return nil, err
	}
	g := &Group{sup: s, spec: spec, stage: st, since: time.Now()}
	ctx, cancel := context.WithCancelCause(context.Background())
	g.ctx, g.cancel = ctx, func(cause error) { cancel(cause); g.wakeSleepers() }

	s.mu.Lock()
	defer s.mu.Unlock()
	if st.draining {
		return nil, fault.Wrap(op, ErrDraining)
	}
	g.total = s.totalOf(spec.Service, spec.Kind)
	st.groups = append(st.groups, g)
	return g, nil
}

// Go runs a task. Its context ends with the group's. The refusal is Busy when
// Max tasks run, Canceled when the group is closed or its stage drained.
func (g *Group) Go(fn func(ctx context.Context) error) error {
	if err := g.admit(); err != nil {
		return err
	}
	go protect(g.ctx, fn, g.end)
	return nil
}

func (g *Group) admit() error {
	const op = "supervise.go"
	g.sup.mu.Lock()
	defer g.sup.mu.Unlock()
	switch {
	case g.closed:
		return fault.Wrap(op, ErrClosed)
	case g.stage.draining:
		return fault.Wrap(op, ErrDraining)
	case g.running >= g.spec.Max:
		return fault.New(op, fault.Busy, "%d tasks of kind %q run already", g.spec.Max, g.spec.Kind)
	}
	if g.running == 0 {
		g.since = time.Now()
	}
	g.total.Spawned++
	g.running++
	g.tasks.add(1)
	g.stage.busy.add(1)
	return nil
}

// end counts a task out. An error is only counted; a panic is an event. The
// observer gets the event before the stage learns of the end, so that no event
// comes after the drain is over.
func (g *Group) end(err error) {
	s, how := g.sup, outcomeOf(err, context.Cause(g.ctx))
	s.mu.Lock()
	if !g.forced {
		g.total.add(how)
	}
	if g.running--; g.running == 0 {
		g.since = time.Now()
	}
	var event Event
	if how == panicked || err == ErrGoexit {
		event = g.event(EventFailed)
		event.Err = err
	}
	s.mu.Unlock()
	s.emit(event)

	s.mu.Lock()
	defer s.mu.Unlock()
	g.tasks.done()
	g.stage.busy.done()
	g.removeIfClosed()
}

// Close refuses new tasks and cancels those that run. It does not wait for
// them: Wait does.
func (g *Group) Close() {
	g.sup.mu.Lock()
	g.closed = true
	g.removeIfClosed()
	g.sup.mu.Unlock()
	g.cancel(ErrClosed)
}

// removeIfClosed removes a closed group in which nothing runs, so that services
// that make new groups leave nothing behind. Called with mu held.
func (g *Group) removeIfClosed() {
	if g.closed && g.tasks.n == 0 && !g.stage.draining {
		g.stage.groups = slices.DeleteFunc(g.stage.groups, func(o *Group) bool { return o == g })
	}
}

// Wait blocks until no task of the group runs, or the context ends.
func (g *Group) Wait(ctx context.Context) error {
	g.sup.mu.Lock()
	idle := g.tasks.idle()
	g.sup.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fault.Wrap("supervise.wait", context.Cause(ctx))
	}
}

// event makes an event about the group. Called with mu held.
func (g *Group) event(typ EventType) Event {
	return g.sup.stamp(Event{Type: typ, Stage: g.spec.Stage, Service: g.spec.Service, Name: g.spec.Kind})
}
