package supervise

import (
	"slices"
	"time"

	"micronode/fault"
)

// Stage is one step of start and drain: stages start in the order in which
// Options lists them and drain in reverse.
type Stage struct {
	Name  string
	Drain time.Duration // budget inside Options.Total; zero leaves only Total as the bound
}

// stage is a Stage and what belongs to it.
type stage struct {
	// Set at construction.
	Stage
	began chan struct{} // closed when the drain reaches the stage
	gone  chan struct{} // closed when the drain leaves it with tasks still running

	// Guarded by Supervisor.mu.
	units    []*unit
	groups   []*Group
	draining bool
	forced   bool  // the deadline has passed, and who still ran was aborted
	left     bool  // as gone
	busy     tally // keepers, drain hooks and tasks of groups that have not ended
}

// find returns the stage of a name, or says which names there are.
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

// malformed is how this package refuses what its caller wrote.
func malformed(op, next, format string, args ...any) error {
	err := fault.New(op, fault.Malformed, format, args...)
	err.Next = next
	return err
}

// tally counts what has not ended and tells who waits when nothing is left.
// The supervisor's mutex guards it.
type tally struct {
	n    int
	zero chan struct{} // made when somebody waits
}

func (t *tally) add(n int) { t.n += n }

func (t *tally) done() {
	t.n--
	if t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

// idle returns a channel that is closed once the tally has come to zero.
func (t *tally) idle() <-chan struct{} {
	if t.n == 0 {
		now := make(chan struct{})
		close(now)
		return now
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	return t.zero
}
