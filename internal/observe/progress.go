package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// How progress is judged. One sample says little, so a state changes only when
// several in a row agree.
const (
	sampleInterval = 250 * time.Millisecond
	samplesToFlip  = 4               // samples in a row until a state changes
	stallTimeout   = 5 * time.Second // items wait for so long, and nothing leaves: longer than any request may take by default

	queueFull, queueRelaxed     = 0.9, 0.5
	permitsFull, permitsRelaxed = 1.0, 0.9 // lanes and permits: callers inside are being served, so they are full only when no other caller gets in
)

// WatchProgress samples all components that must not stay full and must not
// stand still, until ctx ends: the queues, lanes and permits of the inventory,
// the workers of the supervisor, and the gauges. A component without progress
// is a row of the table for as long as it lasts, under its own name; what
// follows for the node is the component's Effect.
//
// It is the one mechanism for all components. Errors say that something failed;
// a full queue or a stuck worker returns no error to any caller.
func (r *Readiness) WatchProgress(ctx context.Context) error {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	w := progressSampler{trends: map[componentKey]*trend{}}
	for {
		r.publishProgress(w.sample(r, time.Now()))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// publishProgress puts findings into the table, if they have changed.
func (r *Readiness) publishProgress(now []finding) {
	if before := r.progress.Load(); before != nil && slices.Equal(*before, now) || before == nil && len(now) == 0 {
		return
	}
	r.progress.Store(&now)
	r.Recheck()
}

// Gauge is something outside the inventory that can be full: a table, memory.
type Gauge struct {
	Service, Name string
	Effect        flow.Effect
	Reason, Next  string // while it is full

	// Read reports how full it is, from 0 to 1, and how much it has refused
	// since the start. It must not wait.
	Read func() (fill float64, refused uint64)
}

// Gauge adds a gauge. Like a Dependency it needs a known service and a name.
func (r *Readiness) Gauge(g Gauge) {
	if !knownService(g.Service) {
		panic(unknownService(g.Service).Error())
	}
	if g.Name == "" || g.Next == "" {
		panic("observe: a gauge of " + g.Service + " needs a name and a next step")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gauges = append(slices.Clip(r.gauges), g)
}

// progressSampler is the state of WatchProgress between two samples.
type progressSampler struct {
	trends map[componentKey]*trend
	buffer []flow.Progress // reused
}

type componentKey struct{ service, kind, name string }

// sample takes one sample of all components, gauges and pools.
func (p *progressSampler) sample(r *Readiness, now time.Time) (found []finding) {
	p.buffer = r.inventory.Progress(p.buffer[:0])
	for i := range p.buffer {
		progress := &p.buffer[i]
		full, relaxed := permitsFull, permitsRelaxed
		if progress.Kind == "queue" {
			full, relaxed = queueFull, queueRelaxed
		}
		t := p.trend(componentKey{progress.Service, progress.Kind, progress.Name}, progress.Refused)
		if state := t.add(sample{progress.Utilization, full, relaxed, progress.Refused, progress.Waits, progress.Moved}, now); state != moving {
			found = append(found, componentFinding(progress, state))
		}
	}
	for _, one := range r.listGauges() {
		utilization, refused := one.Read()
		t := p.trend(componentKey{one.Service, "gauge", one.Name}, refused)
		if t.add(sample{utilization: utilization, fullAt: queueFull, relaxedAt: queueRelaxed, refused: refused}, now) != moving {
			found = append(found, effectFinding(one.Service, one.Name, one.Effect, one.Reason, one.Next))
		}
	}
	found = append(found, p.pools(r.supervisor, now)...)
	slices.SortFunc(found, func(a, b finding) int { return a.compare(b) })
	return found
}

// pools looks for workers that are stuck. While some are, the others do the
// work; it stops when all are.
func (p *progressSampler) pools(supervisor *supervise.Supervisor, now time.Time) (found []finding) {
	if supervisor == nil {
		return nil
	}
	for _, pool := range supervisor.Pools() {
		t := p.trend(componentKey{pool.Service, "pool", pool.Name}, 0)
		utilization := 0.0
		if pool.Overdue > 0 {
			utilization = 1
		}
		if t.add(sample{utilization: utilization, fullAt: queueFull, relaxedAt: queueRelaxed}, now) == moving {
			continue
		}
		effect := flow.Degrades
		if pool.Writes && pool.Overdue >= pool.Live {
			effect = flow.StopsWrites
		}
		found = append(found, effectFinding(pool.Service, pool.Name, effect,
			"workers are stuck: their jobs are past the deadline",
			"Check the disk and the services that they call: `micronode status`, `micronode doctor`. The workers continue when these answer."))
	}
	return found
}

func (p *progressSampler) trend(key componentKey, refused uint64) *trend {
	t := p.trends[key]
	if t == nil {
		t = &trend{refused: refused} // refusals before the first sample do not count
		p.trends[key] = t
	}
	return t
}

func (r *Readiness) listGauges() []Gauge {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gauges
}

// componentFinding says in words why a component makes no progress.
func componentFinding(progress *flow.Progress, state progressState) finding {
	reason := fmt.Sprintf("the %s is full with %d items, and refuses more", progress.Kind, progress.Cap+progress.Waiting)
	if state == stalled {
		reason = fmt.Sprintf("the %s does not move: an item has waited for %s, and none has left", progress.Kind, stallTimeout)
	}
	next := progress.Next
	if next == "" {
		next = "Send less, or use another node. `micronode status` shows the depth; it recovers by itself."
	}
	return effectFinding(progress.Service, progress.Name, progress.Effect, reason, next)
}

// effectFinding is a row of the table about a component without progress.
func effectFinding(service, name string, effect flow.Effect, reason, next string) finding {
	f := finding{service: service, name: name, need: ForWrites, condition: condition{levelDegraded, reason, next}}
	switch effect {
	case flow.StopsWrites:
		f.level = levelDown
	case flow.ReportOnly:
		f.level = levelUp
	}
	return f
}

// progressState is the state of a component over several samples.
type progressState uint8

const (
	moving    progressState = iota
	saturated               // full, or it refuses
	stalled                 // items wait and nothing leaves
)

// sample is one sample of a component.
type sample struct {
	utilization, fullAt, relaxedAt float64
	refused                        uint64
	waits                          bool
	moved                          uint64
}

// trend turns samples into a state that does not flutter.
type trend struct {
	state     progressState
	high, low int // samples in a row

	refused uint64
	moved   uint64
	since   time.Time // the last time that it moved, or that nothing waited
}

// add adds a sample. A refusal since the last one counts as full: a queue that
// is emptied as fast as it is filled is never found full, and refuses all the
// same.
func (t *trend) add(now sample, at time.Time) progressState {
	moves := !now.waits || now.moved != t.moved
	refuses := now.refused != t.refused
	t.moved, t.refused = now.moved, now.refused
	if moves || t.since.IsZero() {
		t.since = at
	}
	switch {
	case at.Sub(t.since) >= stallTimeout:
		t.state, t.low = stalled, 0
	case now.utilization >= now.fullAt || refuses:
		t.high, t.low = t.high+1, 0
	case now.utilization < now.relaxedAt || t.state == stalled && moves:
		t.high, t.low = 0, t.low+1
	default:
		t.high, t.low = 0, 0
	}
	switch {
	case t.high >= samplesToFlip && t.state == moving:
		t.state = saturated
	case t.low >= samplesToFlip:
		t.state = moving
	}
	return t.state
}
