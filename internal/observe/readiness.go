package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/client"
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

// level is the state of a dependency.
type level uint8

const (
	levelUp level = iota
	levelDegraded
	levelDown
)

// Readiness is the truth table: what the node needs, the state of each of
// these, and what follows for reads and writes. The owner of a dependency sets
// its state when it changes; services and pools are seen through the
// supervisor; WatchProgress sees what is full or does not move. The verdict is
// computed on each call, so it is never stale.
type Readiness struct {
	// set at construction
	inventory  *flow.Inventory
	supervisor *supervise.Supervisor
	changes    *flow.Snapshot[struct{}] // its version goes up when a dependency changes
	public     []string                 // what strangers may read; set before anybody asks

	progress atomic.Pointer[[]finding] // the last result of WatchProgress; nil before the first

	mu     sync.Mutex //lockblock:leaf guards the lists; what a dependency says is atomic
	deps   []*Dependency
	gauges []Gauge
}

// NewReadiness makes a table for the services of a supervisor. Without one
// (nil) there are only the dependencies.
func NewReadiness(inventory *flow.Inventory, supervisor *supervise.Supervisor) *Readiness {
	return &Readiness{inventory: inventory, supervisor: supervisor, changes: flow.NewSnapshot(inventory, flow.SnapshotSpec{
		Service: nodeService, Name: "readiness", From: "owners of dependencies", To: "readiness watcher",
	}, struct{}{})}
}

// Dependency is one row of the table, set by its owner. Its methods may be
// called at any time and from any goroutine; setting the same state again costs
// next to nothing.
type Dependency struct {
	// set at construction
	readiness     *Readiness
	service, name string
	need          Need

	state atomic.Pointer[condition]
}

// condition is the state of a dependency as it was last set.
type condition struct {
	level        level
	reason, next string
}

// Dependency adds a row to the table: a name, the service it belongs to, and
// what needs it. It is down, "starting", until its owner sets another state.
//
// A service outside the contract's set, and a name that is used twice, are
// mistakes of the program, so it panics.
func (r *Readiness) Dependency(service, name string, need Need) *Dependency {
	if !knownService(service) {
		panic(unknownService(service).Error())
	}
	if name == "" {
		panic("observe: a dependency of " + service + " needs a name")
	}
	d := &Dependency{readiness: r, service: service, name: name, need: need}
	d.state.Store(&condition{levelDown, "starting", "Wait until it has started."})
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.deps, func(other *Dependency) bool { return other.service == service && other.name == name }) {
		panic("observe: the dependency " + label(service, name) + " exists already; give each its own name")
	}
	r.deps = append(r.deps, d)
	return d
}

// Up says that all is well.
func (d *Dependency) Up() { d.set(condition{level: levelUp}) }

// UpWithRemark says that the dependency works, with a remark for the operator.
// It is listed among the reasons and changes nothing.
func (d *Dependency) UpWithRemark(reason, next string) { d.set(condition{levelUp, reason, next}) }

// Degraded says that it works, but not as it should: why, and what to do.
func (d *Dependency) Degraded(reason, next string) { d.set(condition{levelDegraded, reason, next}) }

// Down says that it does not work: why, and what to do.
func (d *Dependency) Down(reason, next string) { d.set(condition{levelDown, reason, next}) }

func (d *Dependency) set(now condition) {
	if *d.state.Load() == now {
		return
	}
	kept := now // only what is stored goes to the heap
	d.state.Store(&kept)
	d.readiness.Recheck()
}

// Recheck wakes all calls of Watch. Dependencies call it themselves; call it
// when the supervisor reports an event.
func (r *Readiness) Recheck() { r.changes.Store(struct{}{}) }

// Verdict is the result of the table: the answer of GET /readyz, in the shape
// that clients read.
type Verdict = client.Readiness

// Reason says why something is not as it should be, and the next step.
type Reason = client.Reason

// Evaluate computes the current verdict.
func (r *Readiness) Evaluate() Verdict {
	whole, rest := r.findings()
	verdict := verdictOf(append(rest, whole))
	verdict.Public = r.public
	return verdict
}

// ShowPublic says in each verdict which groups of reads are open to strangers.
// It is called before the node listens.
func (r *Readiness) ShowPublic(groups []string) { r.public = groups }

// watchPause is how long Watch waits for a wake-up before it looks again. The
// supervisor's state may change without a change of a dependency, and without
// an event.
const watchPause = 250 * time.Millisecond

// Watch calls notify with the current verdict, and then with each one that
// differs from the one before, until ctx ends. A state that lasts is never
// missed; one that came and went between two evaluations may be.
func (r *Readiness) Watch(ctx context.Context, notify func(Verdict)) error {
	var last *Verdict
	return r.Follow(ctx, func(now Verdict) {
		if last == nil || !now.Equal(*last) {
			last = &now
			notify(now)
		}
	})
}

// Follow calls look with the current verdict: at once, after each change, and
// at least four times a second, until ctx ends.
func (r *Readiness) Follow(ctx context.Context, look func(Verdict)) error {
	_, seen := r.changes.LoadVersion()
	look(r.Evaluate())
	for {
		wait, cancel := context.WithTimeout(ctx, watchPause)
		_, seen, _ = r.changes.WaitForChange(wait, seen) // returns after a change or a time-out; evaluate after either
		cancel()
		if err := flow.Ended(ctx, "readiness.watch"); err != nil {
			return err
		}
		look(r.Evaluate())
	}
}

// finding is the state of one thing that readiness depends on, from its owner,
// the supervisor or the phase of the node.
type finding struct {
	service, name string
	need          Need
	condition
}

// compare orders findings by name, and those of one name by reason.
func (f finding) compare(other finding) int {
	return cmp.Or(cmp.Compare(f.service, other.service), cmp.Compare(f.name, other.name), cmp.Compare(f.reason, other.reason))
}

// findings collects all findings: first that of the node as a whole, then the
// rest.
func (r *Readiness) findings() (whole finding, rest []finding) {
	whole = phaseFinding(supervise.PhaseRunning)
	if r.supervisor != nil {
		whole = phaseFinding(r.supervisor.Phase())
		for _, status := range r.supervisor.Status() {
			rest = append(rest, statusFinding(status))
		}
	}
	if seen := r.progress.Load(); seen != nil {
		rest = append(rest, *seen...)
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

// statusFinding is about a service or pool. One in backoff counts as degraded
// rather than down: it restarts by itself within seconds. During the start and
// the drain the phase decides.
func statusFinding(s supervise.Status) finding {
	const soon = "Wait: it restarts with a growing pause. If it persists, remove the cause; `micronode status` shows its last error in full."
	f := finding{service: s.Service, name: s.Name}
	cause := ""
	if s.LastErr != nil {
		cause = ": " + errorLine(s.LastErr)
	}
	switch s.State {
	case supervise.StateDown:
		f.condition = condition{levelDown, fmt.Sprintf("down after %d restarts%s", s.Restarts, cause),
			"Remove the cause, then restart the node. `micronode status` shows the last error in full."}
	case supervise.StateBackoff:
		f.condition = condition{levelDegraded, "failed and waits to be restarted" + cause, soon}
	case supervise.StateRunning, supervise.StateDegraded:
		switch {
		case s.Live < s.Want:
			f.condition = condition{levelDegraded, fmt.Sprintf("%d of %d workers live%s", s.Live, s.Want, cause), soon}
		case s.Degraded:
			f.condition = condition{levelDegraded, "restarted too often, not stable yet" + cause, soon}
		}
	}
	return f
}

// maxErrorLine is how much of an error a reason has.
const maxErrorLine = 200

// errorLine is an error as part of a reason: its kind, and of its details what
// is meant for external clients, because anyone may read a reason.
func errorLine(err error) string {
	text := fault.KindOf(err).Title()
	if detail := oneLine(fault.DetailOf(err)); detail != "" {
		text += ": " + detail
	}
	if len(text) > maxErrorLine {
		text = strings.ToValidUTF8(text[:maxErrorLine], "") + "…"
	}
	return text
}

// verdictOf is the truth table:
//
//	ready       = nothing that reads need is down
//	write_ready = ready, and nothing that writes need is down
//	degraded    = anything is degraded
//
// So writes go first and come back last, and a node that is write-ready is
// always ready.
func verdictOf(findings []finding) Verdict {
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
		v.Reasons = append(v.Reasons, Reason{Dep: dep, Reason: f.reason, Next: f.next})
	}
	slices.Sort(v.Missing)
	v.Missing = slices.Compact(v.Missing)
	slices.SortFunc(v.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.Dep, b.Dep), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Next, b.Next))
	})
	if !v.Whole() {
		v.RetryAfter = ceilSeconds(fault.NotReady.RetryAfter())
	}
	return v
}

// label is the name of a dependency where its service has no field of its own.
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

// stateOf reduces a verdict to one value. A node that serves reads but not
// writes is degraded.
func stateOf(v Verdict) state {
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
// and for each dependency whether it is missing. The finding about the node as
// a whole applies to each of its services.
func (r *Readiness) measure() (states map[string]state, unmet map[series]int) {
	whole, rest := r.findings()
	rest = append(rest, whole)
	byService := map[string][]finding{}
	unmet = map[series]int{}
	for _, f := range rest {
		byService[f.service] = append(byService[f.service], f)
		at := series{f.service, f.name}
		unmet[at] = max(unmet[at], f.unmet())
	}
	states = map[string]state{}
	for service, own := range byService {
		states[service] = stateOf(verdictOf(append(own, whole)))
	}
	states[nodeService] = stateOf(verdictOf(rest))
	return states, unmet
}

func (f finding) unmet() int {
	if f.level == levelDown {
		return 1
	}
	return 0
}
