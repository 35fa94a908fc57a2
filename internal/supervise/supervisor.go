package supervise

import (
	"context"
	"sync"
	"time"

	"micronode/fault"
)

// Options are what all services of a supervisor have in common.
type Options struct {
	Stages []Stage // in the order of the start

	// Total is all of the drain, from the event Draining until Run returns,
	// whatever the services do.
	Total time.Duration

	// Grace is how long a task gets to notice that it was aborted before it is
	// named as left running. It lies inside Total: each stage is sure of one
	// Grace to stop politely and one after the abort, however greedy the
	// stages before it were. All of these together take at most all of Total,
	// so a Grace too long for that is cut. Zero means 100 ms.
	Grace time.Duration

	// OnEvent is called outside every lock, on the goroutine on which the
	// event happened. It must not block: what it observes waits for it. It may
	// call the supervisor.
	OnEvent func(Event)

	// Jitter draws a delay from [lo, hi]; nil is uniform. A test passes its own.
	Jitter func(lo, hi time.Duration) time.Duration
}

const defaultGrace = 100 * time.Millisecond

// Phase is where the supervisor as a whole is.
type Phase string

const (
	PhaseStarting Phase = "starting"
	PhaseRunning  Phase = "running"
	PhaseDraining Phase = "draining"
	PhaseStopped  Phase = "stopped"
)

// Supervisor runs services in stages. Make one with New.
type Supervisor struct {
	// Set at construction.
	stages  []*stage
	total   time.Duration
	grace   time.Duration
	onEvent func(Event)
	jitter  func(lo, hi time.Duration) time.Duration
	stop    chan struct{} // closed by the first Shutdown

	keepers sync.WaitGroup // one for each slot; added to only by Run

	mu sync.Mutex
	// Guarded by mu, and so are the fields of stages, units, slots, tasks and
	// groups that say so.
	phase    Phase
	ran      bool
	stopping bool
	reason   string
	fatal    error
	observer error // the first panic of OnEvent
	seq      uint64
	units    map[string]*unit
	totals   map[label]*Count
}

// New makes a supervisor. Add services, then Run it, once.
func New(o Options) (*Supervisor, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Supervisor{
		total: o.Total, grace: o.Grace, onEvent: o.OnEvent, jitter: o.Jitter,
		stop: make(chan struct{}), phase: PhaseStarting,
		units: map[string]*unit{}, totals: map[label]*Count{},
	}
	for _, st := range o.Stages {
		s.stages = append(s.stages, &stage{Stage: st, began: make(chan struct{}), gone: make(chan struct{})})
	}
	if s.grace == 0 {
		s.grace = defaultGrace
	}
	s.grace = min(s.grace, s.total/time.Duration(2*len(s.stages)))
	if s.jitter == nil {
		s.jitter = uniform
	}
	return s, nil
}

func (o Options) check() error {
	const op = "supervise.new"
	if len(o.Stages) == 0 {
		return malformed(op, "List at least one stage in Options.Stages.", "there are no stages")
	}
	if o.Total <= 0 || o.Grace < 0 {
		return malformed(op, "Give the drain a Total above zero and a Grace of zero or more.",
			"the drain's total is %s and its grace %s", o.Total, o.Grace)
	}
	seen := map[string]bool{}
	for _, st := range o.Stages {
		if st.Name == "" || seen[st.Name] {
			return malformed(op, "Give each stage a name of its own.", "the stage name %q is empty or used twice", st.Name)
		}
		if st.Drain < 0 {
			return malformed(op, "Use a budget above zero, or zero to let only the total bound it.",
				"stage %q has a drain budget of %s", st.Name, st.Drain)
		}
		seen[st.Name] = true
	}
	return nil
}

// Shutdown starts the drain. It may be called from anywhere, at any time, any
// number of times; the first reason is the one that is reported. Called before
// Run, it makes Run start nothing and return at once.
func (s *Supervisor) Shutdown(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halt(reason)
}

// halt is Shutdown with mu held.
func (s *Supervisor) halt(reason string) {
	if s.stopping {
		return
	}
	if reason == "" {
		reason = "shutdown was asked for"
	}
	s.stopping, s.reason = true, reason
	close(s.stop)
}

// Phase says where the supervisor is.
func (s *Supervisor) Phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// Run starts the stages in order and blocks until the context ends, Shutdown
// is called, or a service whose policy says Fatal is in a crash loop. Then it
// drains the stages in reverse and returns what happened. The error is that of
// the fatal service; a shutdown that was asked for is no error.
func (s *Supervisor) Run(ctx context.Context) (*Report, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	s.start(ctx)
	select {
	case <-ctx.Done():
		s.Shutdown(context.Cause(ctx).Error())
	case <-s.stop:
	}
	report := s.drain()
	return report, report.Err
}

// enter lets Run in once.
func (s *Supervisor) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		err := fault.New("supervise.run", fault.Conflict, "this supervisor has run already")
		err.Next = "Make a new supervisor for another run."
		return err
	}
	s.ran = true
	return nil
}

// start starts stage after stage, and no further once a shutdown was asked for.
func (s *Supervisor) start(ctx context.Context) {
	for _, st := range s.stages {
		select {
		case <-ctx.Done():
			return
		case <-s.stop:
			return
		default:
		}
		for _, u := range st.units {
			u.start()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = PhaseRunning
}
