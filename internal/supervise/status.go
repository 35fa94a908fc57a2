package supervise

import (
	"cmp"
	"slices"
	"time"
)

// State is the state of a service or pool.
type State string

const (
	StateStarting State = "starting" // its stage has not started
	StateRunning  State = "running"
	StateDegraded State = "degraded" // runs after a crash loop, or below strength
	StateBackoff  State = "backoff"  // waits to be restarted; all workers of a pool do
	StateDown     State = "down"     // not restarted any more
	StateDraining State = "draining" // asked to stop, and not stopped yet
	StateStopped  State = "stopped"
	StateFinished State = "finished" // returned nil by itself
)

// Status is the live view of a service or pool.
type Status struct {
	Service, Name, Stage string

	State    State
	Since    time.Time // in this state
	Degraded bool      // also while it waits in backoff
	Live     int       // workers that run; 0 or 1 for a service
	Want     int       // workers that should; those that finished do not count
	Overdue  int       // workers that run a job past its deadline
	Writes   bool      // writes are done by these workers
	Restarts uint64
	LastErr  error
}

// Status lists services and pools in the order of stages, then of Add.
func (s *Supervisor) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, now := make([]Status, 0, len(s.units)), time.Now()
	for _, st := range s.stages {
		for _, u := range st.units {
			list = append(list, u.status(now))
		}
	}
	return list
}

// status is the live view of a unit. Called with mu held.
func (u *unit) status(now time.Time) Status {
	return Status{
		Service: u.spec.Service, Name: u.spec.Name, Stage: u.spec.Stage,
		State: u.state, Since: u.since, Degraded: u.degraded,
		Live: u.live(), Want: u.want(), Overdue: u.overdue(now), Writes: u.writes, Restarts: u.total.Restarts, LastErr: u.lastErr,
	}
}

// Pools lists the pools that take jobs. It is cheap enough to be called several
// times a second; Status lists everything.
func (s *Supervisor) Pools() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Status
	now := time.Now()
	for _, st := range s.stages {
		for _, u := range st.units {
			if u.nextJob != nil {
				list = append(list, u.status(now))
			}
		}
	}
	return list
}

// Task is a kind of task in the inventory: a service, a pool or a group.
type Task struct {
	Service string    `json:"service"`
	Kind    string    `json:"kind"`
	Stage   string    `json:"stage"`
	State   State     `json:"state"` // of a group: running, draining or stopped
	Since   time.Time `json:"since"`
	Running int       `json:"running"` // goroutines
}

// Tasks lists what runs now, in the order of stages: services and pools, then
// groups.
func (s *Supervisor) Tasks() []Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Task
	for _, st := range s.stages {
		for _, u := range st.units {
			list = append(list, Task{Service: u.spec.Service, Kind: u.spec.Name, Stage: st.Name,
				State: u.state, Since: u.since, Running: u.running})
		}
		for _, g := range st.groups {
			list = append(list, Task{Service: g.spec.Service, Kind: g.spec.Kind, Stage: st.Name,
				State: g.state(), Since: g.since, Running: g.running})
		}
	}
	return list
}

// state is a group's. Called with mu held.
func (g *Group) state() State {
	switch {
	case !g.closed && !g.stage.draining:
		return StateRunning
	case g.running > 0:
		return StateDraining
	}
	return StateStopped
}

// Count is what happened to one kind of task since the start. Each task that
// was spawned ends in exactly one of the columns Completed to Panicked, so
// Spawned less their sum is what runs. An aborted one is counted at the
// deadline, before it has ended.
type Count struct {
	Service, Kind string

	Spawned   uint64 // services, workers, second tries of jobs, drain hooks, tasks of groups
	Completed uint64 // returned nil
	Canceled  uint64 // ended because the drain or Close ended its context
	Aborted   uint64 // still ran at the drain's deadline
	Failed    uint64 // returned an error, was killed, or left by Goexit
	Panicked  uint64

	Restarts uint64 // of a service or of workers
}

func (c *Count) add(how outcome) {
	switch how {
	case completed:
		c.Completed++
	case canceled:
		c.Canceled++
	case aborted:
		c.Aborted++
	case failed:
		c.Failed++
	case panicked:
		c.Panicked++
	}
}

// Counts returns the totals, which never decrease, sorted by service and kind.
func (s *Supervisor) Counts() []Count {
	s.mu.Lock()
	list := make([]Count, 0, len(s.totals))
	for _, c := range s.totals {
		list = append(list, *c)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// label identifies an element of totals.
type label struct{ service, kind string }

// totalOf finds or makes the totals of a kind of task. Called with mu held.
func (s *Supervisor) totalOf(service, kind string) *Count {
	key := label{service, kind}
	if s.totals[key] == nil {
		s.totals[key] = &Count{Service: service, Kind: kind}
	}
	return s.totals[key]
}
