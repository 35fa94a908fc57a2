package hedge

import "sync"

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
// five hedge; 0 forbids hedging, 1 never restricts it.
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

// TryTake reports whether a look-up may hedge, and debits it. It is meant for
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
