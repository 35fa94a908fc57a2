package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// Need says what cannot be done without a dependency.
type Need uint8

const (
	ForReads  Need = iota // neither reads nor writes work without it
	ForWrites             // reads work without it, writes do not
)

// level is how well a dependency does.
type level uint8

const (
	levelUp level = iota
	levelDegraded
	levelDown
)

// Readiness is the truth table: what the node needs, how each of these does,
// and what follows for reads and writes. Owners of a dependency say how it
// does when that changes; services and pools are seen through the supervisor;
// the verdict is worked out when somebody asks, so it is never stale.
type Readiness struct {
	// set at construction
	supervisor *supervise.Supervisor
	changes    *flow.Snapshot[struct{}] // its version goes up when a dependency changes

	mu   sync.Mutex //lockblock:leaf guards the list; what a dependency says is atomic
	deps []*Dependency
}

// NewReadiness makes a table for the services of a supervisor. Without one
// (nil) there are only the dependencies.
func NewReadiness(inventory *flow.Inventory, supervisor *supervise.Supervisor) *Readiness {
	return &Readiness{supervisor: supervisor, changes: flow.NewSnapshot(inventory, flow.SnapshotSpec{
		Service: nodeService, Name: "readiness", From: "owners of dependencies", To: "readiness watcher",
	}, struct{}{})}
}

// Dependency is one line of the table, kept by whoever knows how it does. Its
// methods may be called at any time and by anybody; to say the same again
// costs next to nothing.
type Dependency struct {
	// set at construction
	readiness     *Readiness
	service, name string
	need          Need

	state atomic.Pointer[condition]
}

// condition is what was last said of a dependency.
type condition struct {
	level        level
	reason, next string
}

// Dependency adds a line to the table: a name, the service it belongs to, and
// what needs it. It is down, "starting", until its owner says otherwise.
//
// A service outside the contract's set, and a name that is used twice, are
// mistakes of the program, so it panics.
func (r *Readiness) Dependency(service, name string, need Need) *Dependency {
	if !knownService(service) {
		panic(unknownService(service).Error())
	}
	if name == "" {
		panic("observe: a dependency of " + service + " needs a name: nobody can act on a reason without one")
	}
	d := &Dependency{readiness: r, service: service, name: name, need: need}
	d.state.Store(&condition{levelDown, "starting", "Wait until it has started."})
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.deps, func(other *Dependency) bool { return other.service == service && other.name == name }) {
		panic("observe: the dependency " + label(service, name) + " exists already; give each a name of its own")
	}
	r.deps = append(r.deps, d)
	return d
}

// Up says that all is well.
func (d *Dependency) Up() { d.set(condition{level: levelUp}) }

// UpBut says that the dependency is there, and something that an operator
// should know about it. It is listed among the reasons and changes nothing.
func (d *Dependency) UpBut(reason, next string) { d.set(condition{levelUp, reason, next}) }

// Degraded says that it works, but not as it should: why, and what to do.
func (d *Dependency) Degraded(reason, next string) { d.set(condition{levelDegraded, reason, next}) }

// Down says that it does not work: why, and what to do.
func (d *Dependency) Down(reason, next string) { d.set(condition{levelDown, reason, next}) }

func (d *Dependency) set(now condition) {
	if *d.state.Load() == now {
		return
	}
	kept := now // only what is kept goes to the heap
	d.state.Store(&kept)
	d.readiness.Recheck()
}

// Recheck wakes those who Watch. Dependencies call it themselves; call it
// when the supervisor reports an event.
func (r *Readiness) Recheck() { r.changes.Store(struct{}{}) }

// Verdict is what the table says. Its JSON is the answer of GET /readyz.
type Verdict struct {
	Ready      bool     `json:"ready"`       // reads are served
	WriteReady bool     `json:"write_ready"` // writes are served; never without reads
	Degraded   bool     `json:"degraded"`    // something works less well than it should
	Missing    []string `json:"missing"`     // what is down; sorted
	Reasons    []Reason `json:"reasons"`     // what is down or degraded; sorted
	RetryAfter int      `json:"retry_after"` // seconds until it makes sense to ask again; 0 if all is well
}

// Reason says why something is not as it should be, and the next step.
type Reason struct {
	Dep    string `json:"dep"`
	Reason string `json:"reason"`
	Next   string `json:"next"`
}

// Whole reports whether all is well: what GET /readyz without more answers
// with 200.
func (v Verdict) Whole() bool { return v.Ready && v.WriteReady && !v.Degraded }

// Equal reports whether two verdicts say the same.
func (v Verdict) Equal(other Verdict) bool {
	return v.Ready == other.Ready && v.WriteReady == other.WriteReady && v.Degraded == other.Degraded &&
		slices.Equal(v.Missing, other.Missing) && slices.Equal(v.Reasons, other.Reasons)
}

// Evaluate works out the verdict of this moment.
func (r *Readiness) Evaluate() Verdict {
	whole, rest := r.findings()
	return judge(append(rest, whole))
}

// watchPause is how long Watch relies on being woken. What the supervisor
// knows may change without a dependency changing, and without an event.
const watchPause = 250 * time.Millisecond

// Watch calls tell with the present verdict, and then with each one that
// differs from the one before, until ctx ends. A state that lasts is never
// missed; one that came and went between two looks may be.
func (r *Readiness) Watch(ctx context.Context, tell func(Verdict)) error {
	_, seen := r.changes.Seen()
	told := r.Evaluate()
	tell(told)
	for {
		turn, cancel := context.WithTimeout(ctx, watchPause)
		_, seen, _ = r.changes.Changed(turn, seen) // it ends by a change or by time, and either is a reason to look
		cancel()
		if err := flow.Ended(ctx, "readiness.watch"); err != nil {
			return err
		}
		if now := r.Evaluate(); !now.Equal(told) {
			told = now
			tell(told)
		}
	}
}

// finding is what is known of one thing that readiness depends on, whether an
// owner, the supervisor or the phase of the node says so.
type finding struct {
	service, name string
	need          Need
	condition
}

// findings asks everybody: first the node as a whole, then each of the rest.
func (r *Readiness) findings() (whole finding, rest []finding) {
	whole = phaseFinding(supervise.PhaseRunning)
	if r.supervisor != nil {
		whole = phaseFinding(r.supervisor.Phase())
		for _, status := range r.supervisor.Status() {
			rest = append(rest, statusFinding(status))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deps {
		rest = append(rest, finding{d.service, d.name, d.need, *d.state.Load()})
	}
	return whole, rest
}

// phaseFinding is about the node as a whole.
func phaseFinding(phase supervise.Phase) finding {
	f := finding{service: nodeService, name: nodeService}
	switch phase {
	case supervise.PhaseRunning:
	case supervise.PhaseStarting:
		f.condition = condition{levelDown, "starting", "Wait until it has started."}
	default:
		f.condition = condition{levelDown, string(phase), "Send requests to another node, or start this one again."}
	}
	return f
}

// statusFinding is about a service or pool. One that waits to be restarted
// counts as degraded rather than down: it comes back by itself within seconds.
// During the start and the drain it is the phase that speaks.
func statusFinding(s supervise.Status) finding {
	const soon = "Wait: it is restarted with a growing pause. If it lasts, `micronode status` shows its last error."
	f := finding{service: s.Service, name: s.Name}
	switch s.State {
	case supervise.StateDown:
		f.condition = condition{levelDown, fmt.Sprintf("given up after %d restarts: %s", s.Restarts, fault.KindOf(s.LastErr).Title()),
			"`micronode status` shows its last error. Remove the cause, then restart the node."}
	case supervise.StateBackoff:
		f.condition = condition{levelDegraded, "failed and waits to be restarted", soon}
	case supervise.StateRunning, supervise.StateDegraded:
		switch {
		case s.Live < s.Want:
			f.condition = condition{levelDegraded, fmt.Sprintf("%d of %d workers live", s.Live, s.Want), soon}
		case s.Degraded:
			f.condition = condition{levelDegraded, "restarted too often, not stable yet", soon}
		}
	}
	return f
}

// judge is the truth table:
//
//	ready       = nothing that reads need is down
//	write_ready = ready, and nothing that writes need is down
//	degraded    = anything is degraded
//
// So writes go first and come back last, and a node that is write-ready is
// always ready.
func judge(findings []finding) Verdict {
	v := Verdict{Ready: true, WriteReady: true, Missing: []string{}, Reasons: []Reason{}}
	for _, f := range findings {
		dep := label(f.service, f.name)
		switch f.level {
		case levelUp:
			if f.reason == "" {
				continue
			}
		case levelDegraded:
			v.Degraded = true
		case levelDown:
			v.WriteReady = false
			v.Ready = v.Ready && f.need != ForReads
			v.Missing = append(v.Missing, dep)
		}
		v.Reasons = append(v.Reasons, Reason{dep, f.reason, f.next})
	}
	slices.Sort(v.Missing)
	v.Missing = slices.Compact(v.Missing)
	slices.SortFunc(v.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.Dep, b.Dep), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Next, b.Next))
	})
	if !v.Whole() {
		v.RetryAfter = wholeSeconds(fault.NotReady.RetryAfter())
	}
	return v
}

// label is how a dependency is called where there is no room for its service.
func label(service, name string) string {
	if service == name {
		return name
	}
	return service + "/" + name
}

// The values of the metric ready_state.
type state int

const (
	stateDown state = iota
	stateReady
	stateDegraded
)

// state sums a verdict up. A node that serves reads but not writes is neither
// down nor as it should be.
func (v Verdict) state() state {
	switch {
	case !v.Ready:
		return stateDown
	case v.Whole():
		return stateReady
	default:
		return stateDegraded
	}
}

// measure is the table as metrics: the state of each service and of the node,
// and for each dependency whether it is missing. What is said of the node as a
// whole holds for each of its services.
func (r *Readiness) measure() (states map[string]state, unmet map[series]int) {
	whole, rest := r.findings()
	rest = append(rest, whole)
	byService := map[string][]finding{}
	unmet = map[series]int{}
	for _, f := range rest {
		byService[f.service] = append(byService[f.service], f)
		at := series{f.service, f.name}
		unmet[at] = max(unmet[at], f.missing())
	}
	states = map[string]state{}
	for service, own := range byService {
		states[service] = judge(append(own, whole)).state()
	}
	states[nodeService] = judge(rest).state()
	return states, unmet
}

func (f finding) missing() int {
	if f.level == levelDown {
		return 1
	}
	return 0
}
