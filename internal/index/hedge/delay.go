package hedge

import (
	"slices"
	"sync"
	"time"

	"micronode/fault"
)

const (
	remembered = 256 // samples, the newest ones
	fewest     = 20  // below which the initial delay is used
	shortest   = 10 * time.Millisecond
)

// Delay finds out after how long a silence is unusual: about the 95th
// percentile of how long targets took to answer lately. It is hedge_ms = "auto".
type Delay struct {
	// Guarded by mu.
	mu       sync.Mutex //lockblock:leaf a ring of numbers, sorted once after it has changed
	initial  time.Duration
	deadline time.Duration
	ring     [remembered]time.Duration
	count    int           // of all samples ever
	p95      time.Duration // of the samples, if fresh
	fresh    bool
}

// NewDelay makes a delay that is initial until there are enough samples, and
// never longer than half the deadline.
func NewDelay(initial, deadline time.Duration) *Delay {
	return &Delay{initial: initial, deadline: deadline}
}

// Reconfigure changes the bounds. The samples stay.
func (d *Delay) Reconfigure(initial, deadline time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.initial, d.deadline = initial, deadline
}

// Learn takes the samples of a look-up: every answer, and of the targets that
// were cut off those whose silence had outlasted the delay they were given.
// Without the latter the slow ones would never be counted, because a hedge
// cuts them off, and the delay would shrink with every hedge. The others that
// were cut off, and failures, say nothing about how long answers take.
func (d *Delay) Learn(o Outcome, after time.Duration) {
	for _, r := range o.Targets {
		kind := fault.KindOf(r.Err)
		silent := (kind == fault.Canceled || kind == fault.Timeout) && r.Took >= after
		if r.Wave != Walk && (r.Err == nil || silent) {
			d.note(r.Took)
		}
	}
}

func (d *Delay) note(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[d.count%remembered] = took
	d.count++
	d.fresh = false
}

// After is the delay for the next look-up.
func (d *Delay) After() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count < fewest {
		return d.clamp(d.initial)
	}
	if !d.fresh {
		sorted := d.ring
		known := sorted[:min(d.count, remembered)]
		slices.Sort(known)
		d.p95, d.fresh = known[(len(known)*95+99)/100-1], true
	}
	return d.clamp(d.p95)
}

func (d *Delay) clamp(after time.Duration) time.Duration {
	return min(max(after, shortest), max(d.deadline/2, shortest))
}
