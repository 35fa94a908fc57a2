package supervise

import (
	"slices"
	"time"

	"micronode/fault"
)

// Stage is one step of start and drain: stages start in the order in which
// Options lists them and drain in reverse.
type Stage struct {
	Name         string
	DrainTimeout time.Duration // budget inside Options.Total; zero leaves only Total as the bound
}

// stage is a Stage and what belongs to it.
type stage struct {
	// Set at construction.
	Stage
	drainBegan chan struct{} // closed when the drain reaches the stage
	abandoned  chan struct{} // closed when the drain leaves it with tasks still running

	// Guarded by Supervisor.mu.
	units       []*unit
	groups      []*Group
	draining    bool
	forced      bool         // the deadline has passed, and what still ran was aborted
	isAbandoned bool         // abandoned is closed
	busy        pendingCount // slot loops, drain hooks and tasks of groups that have not ended
}

// find returns the stage of a name; its error lists the names there are.
func (s *Supervisor) find(op, name string) (*stage, error) {
	at := slices.IndexFunc(s.stages, func(st *stage) bool { return st.Name == name })
	if at >= 0 {
		return s.stages[at], nil
	}
	names := make([]string, len(s.stages))
	for i, st := range s.stages {
		names[i] = st.Name
	}
	return nil, malformed(op, "Use one of the stages of Options.Stages, or add it there.",
		"there is no stage %q among %q", name, names)
}

// malformed is the error for a mistake in the caller's arguments.
func malformed(op, next, format string, args ...any) error {
	return fault.New(op, fault.Malformed, format, args...).Advise(next)
}

// pendingCount counts what has not ended and wakes waiters at zero. The
// supervisor's mutex guards it.
type pendingCount struct {
	n        int
	idleChan chan struct{} // made by the first waiter
}

func (p *pendingCount) add(n int) { p.n += n }

func (p *pendingCount) done() {
	p.n--
	if p.n == 0 && p.idleChan != nil {
		close(p.idleChan)
		p.idleChan = nil
	}
}

// idle returns a channel that is closed once the count has come to zero.
func (p *pendingCount) idle() <-chan struct{} {
	if p.n == 0 {
		now := make(chan struct{})
		close(now)
		return now
	}
	if p.idleChan == nil {
		p.idleChan = make(chan struct{})
	}
	return p.idleChan
}
