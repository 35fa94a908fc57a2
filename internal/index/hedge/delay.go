package hedge

import (
	"slices"
	"sync"
	"time"

	"micronode/fault"
)

const (
	maxSamples = 256 // newest samples that are kept
	minSamples = 20  // below which the initial delay is used
	minDelay   = 10 * time.Millisecond
)

// Delay estimates after how long silence is unusual: about the 95th percentile
// of recent response times. It is hedge_ms = "auto".
type Delay struct {
	// Guarded by mu.
	mu       sync.Mutex //lockblock:leaf a ring of numbers, sorted once after it has changed
	initial  time.Duration
	deadline time.Duration
	ring     [maxSamples]time.Duration
	count    int           // of all samples ever
	p95      time.Duration // of the samples, if p95Valid
	p95Valid bool
}

// NewDelay makes a delay that is initial until there are enough samples, and
// never longer than half the deadline.
func NewDelay(initial, deadline time.Duration) *Delay {
	return &Delay{initial: initial, deadline: deadline}
}

// Reconfigure changes the limits. The samples stay.
func (d *Delay) Reconfigure(initial, deadline time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.initial, d.deadline = initial, deadline
}

// Learn adds the samples of a look-up: every answer, and of the cancelled
// queries those whose silence had outlasted the delay. Without the latter the
// slow targets would never be counted, because a hedge cancels them, and the
// delay would shrink with every hedge. Other cancelled queries, and failures,
// say nothing about response times.
func (d *Delay) Learn(o Outcome, after time.Duration) {
	for _, r := range o.Targets {
		kind := fault.KindOf(r.Err)
		silent := (kind == fault.Canceled || kind == fault.Timeout) && r.Took >= after
		if r.Wave != Walk && (r.Err == nil || silent) {
			d.addSample(r.Took)
		}
	}
}

func (d *Delay) addSample(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[d.count%maxSamples] = took
	d.count++
	d.p95Valid = false
}

// After is the delay for the next look-up.
func (d *Delay) After() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count < minSamples {
		return d.clamp(d.initial)
	}
	if !d.p95Valid {
		sorted := d.ring
		known := sorted[:min(d.count, maxSamples)]
		slices.Sort(known)
		d.p95, d.p95Valid = known[(len(known)*95+99)/100-1], true
	}
	return d.clamp(d.p95)
}

func (d *Delay) clamp(after time.Duration) time.Duration {
	return min(max(after, minDelay), max(d.deadline/2, minDelay))
}
