package hedge

import "sync"

// Hedges are saved up to burst, so that a quiet time pays for a short bad one.
const burst = 10

// whole is one hedge. Parts of hedges are counted in integers, so that five
// look-ups at a share of 0.2 earn one exactly.
const whole = 1_000_000

// Budget keeps hedging to a share of all look-ups. When a network is slow as a
// whole, asking twice as many peers makes it slower; the budget is what stops
// that spiral.
type Budget struct {
	// Guarded by mu.
	mu    sync.Mutex //lockblock:leaf two numbers
	share int64      // earned by a look-up, in parts of a hedge
	saved int64
}

// NewBudget makes a budget that is full. A share of 0.2 lets one look-up in
// five hedge; 0 forbids hedging, 1 never stands in its way.
func NewBudget(share float64) *Budget {
	b := &Budget{saved: burst * whole}
	b.Reconfigure(share)
	return b
}

// Earn counts a look-up. Call it once for each, before Run.
func (b *Budget) Earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = min(b.saved+b.share, burst*whole)
}

// Take reports whether a look-up may hedge, and pays for it. It is made for
// Plan.MayHedge.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.share == whole:
		return true // everybody may, also many at once
	case b.share == 0 || b.saved < whole:
		return false
	}
	b.saved -= whole
	return true
}

// Reconfigure changes the share. What was saved stays.
func (b *Budget) Reconfigure(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share = int64(min(max(share, 0), 1)*whole + 0.5)
}
