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

	// DrainTimeout is the total for the drain, from the event Draining until
	// Run returns, whatever the services do.
	DrainTimeout time.Duration

	// Grace is how long a task gets to react to its abort before it is named as
	// left running. It lies inside DrainTimeout: each stage is sure of one
	// Grace to stop by itself and one after the abort, however long the stages
	// before it took. All of these together take at most all of DrainTimeout,
	// so a Grace too long for that is cut. Zero means 100 ms.
	Grace time.Duration

	// OnEvent is called outside every lock, on the goroutine on which the event
	// happened. It must not block: that goroutine waits for it. It may call the
	// supervisor.
	OnEvent func(Event)

	// Jitter draws a delay from [lo, hi]; nil is uniform. A test passes its own.
	Jitter func(lo, hi time.Duration) time.Duration
}

const defaultGrace = 100 * time.Millisecond

// Phase is the state of the supervisor as a whole.
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
	stages       []*stage
	drainTimeout time.Duration
	grace        time.Duration
	onEvent      func(Event)
	jitter       func(lo, hi time.Duration) time.Duration
	stop         chan struct{} // closed by the first Shutdown
	epoch        time.Time

	slotLoops sync.WaitGroup // one for each slot; added to only by Run

	mu sync.Mutex
	// Guarded by mu, and so are the fields of stages, units, slots, tasks and
	// groups that say so.
	phase       Phase
	ran         bool
	stopping    bool
	reason      string
	fatal       error
	observerErr error // the first panic of OnEvent
	seq         uint64
	units       map[string]*unit
	totals      map[label]*Count
}

// New makes a supervisor. Add services, then Run it, once.
func New(o Options) (*Supervisor, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Supervisor{
		drainTimeout: o.DrainTimeout, grace: o.Grace, onEvent: o.OnEvent, jitter: o.Jitter,
		stop: make(chan struct{}), epoch: time.Now(), phase: PhaseStarting,
		units: map[string]*unit{}, totals: map[label]*Count{},
	}
	for _, st := range o.Stages {
		s.stages = append(s.stages, &stage{Stage: st, drainBegan: make(chan struct{}), abandoned: make(chan struct{})})
	}
	if s.grace == 0 {
		s.grace = defaultGrace
	}
	s.grace = min(s.grace, s.drainTimeout/time.Duration(2*len(s.stages)))
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
	if o.DrainTimeout <= 0 || o.Grace < 0 {
		return malformed(op, "Give a DrainTimeout above zero and a Grace of zero or more.",
			"the drain's total is %s and its grace %s", o.DrainTimeout, o.Grace)
	}
	seen := map[string]bool{}
	for _, st := range o.Stages {
		if st.Name == "" || seen[st.Name] {
			return malformed(op, "Give each stage a name of its own.", "the stage name %q is empty or used twice", st.Name)
		}
		if st.DrainTimeout < 0 {
			return malformed(op, "Use a budget above zero, or zero to let only the total bound it.",
				"stage %q has a drain budget of %s", st.Name, st.DrainTimeout)
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
	s.shutdownLocked(reason)
}

// shutdownLocked is Shutdown with mu held.
func (s *Supervisor) shutdownLocked(reason string) {
	if s.stopping {
		return
	}
	if reason == "" {
		reason = "shutdown requested"
	}
	s.stopping, s.reason = true, reason
	close(s.stop)
}

// Phase returns the current phase.
func (s *Supervisor) Phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// Run starts the stages in order and blocks until the context ends, Shutdown is
// called, or a service whose policy is Fatal is in a crash loop. Then it drains
// the stages in reverse and returns the report. The error is that of the fatal
// service; a requested shutdown is no error.
func (s *Supervisor) Run(ctx context.Context) (*Report, error) {
	if err := s.markRan(); err != nil {
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

// markRan refuses a second Run.
func (s *Supervisor) markRan() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		return fault.New("supervise.run", fault.Conflict, "this supervisor has run already").
			Advise("Make a new supervisor for another run.")
	}
	s.ran = true
	return nil
}

// start starts stage after stage, and stops once a shutdown is requested.
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
