package hedge

import (
	"slices"
	"sync"
	"time"

	"micronode/fault"
)

// maxSavedHedges limits savings, so that a quiet time pays for a short bad one.
const maxSavedHedges = 10

// unitsPerHedge is one hedge. Fractions of hedges are counted in integers, so
// that five look-ups at a share of 0.2 earn exactly one.
const unitsPerHedge = 1_000_000

// Budget limits hedging to a share of all look-ups. When a network is slow as a
// whole, asking twice as many peers makes it slower; the budget stops that
// spiral.
type Budget struct {
	// Guarded by mu.
	mu    sync.Mutex //lockblock:leaf two numbers
	share int64      // earned by a look-up, in units
	saved int64
}

// NewBudget makes a budget that is full. A share of 0.2 lets one look-up in
// five hedge with a whole wave; 0 lets none, 1 all.
func NewBudget(share float64) *Budget {
	b := &Budget{saved: maxSavedHedges * unitsPerHedge}
	b.Reconfigure(share)
	return b
}

// Earn credits a look-up. Call it once for each, before Run.
func (b *Budget) Earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = min(b.saved+b.share, maxSavedHedges*unitsPerHedge)
}

// TryTake reports whether a look-up may hedge with a whole wave, and debits it. It is meant for
// Plan.MayHedge.
func (b *Budget) TryTake() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.share == unitsPerHedge:
		return true // unlimited, also for many at once
	case b.share == 0 || b.saved < unitsPerHedge:
		return false
	}
	b.saved -= unitsPerHedge
	return true
}

// Reconfigure changes the share. The savings stay.
func (b *Budget) Reconfigure(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share = int64(min(max(share, 0), 1)*unitsPerHedge + 0.5)
}

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
