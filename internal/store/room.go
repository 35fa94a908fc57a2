package store

import "sync/atomic"

// budget is how much may be held, and how much is. What is counted here may be
// reserved for bytes that have not come yet.
type budget struct {
	limit int64 // set at construction
	held  atomic.Int64
}

// take reserves n bytes if there is room for them.
func (b *budget) take(n int64) bool {
	for {
		now := b.held.Load()
		if n > b.limit-now {
			return false
		}
		if b.held.CompareAndSwap(now, now+n) {
			return true
		}
	}
}

// give ends a reservation.
func (b *budget) give(n int64) { b.held.Add(-n) }

// reserve takes n bytes of the budget, evicting for them if it must.
func (r *RAM) reserve(n int64) bool {
	if r.budget.take(n) {
		return true
	}
	victims, surplus, ok := r.gather(n)
	for o := victims; o != nil; o = o.next {
		r.discard(o)
	}
	r.budget.give(surplus)
	return ok
}

// gather evicts until n bytes are reserved. What it evicts stays in the budget
// as the reservation of its caller, who therefore loses no room to others while
// it is looking for more. The caller frees the victims, and gives back the
// surplus: what was gathered in vain, or too much.
//
// One gathers at a time. If two did, each could take half of what would have
// been enough for one of them, and both would fail.
func (c *catalogue) gather(n int64) (victims *object, surplus int64, ok bool) {
	c.room.Lock()
	defer c.room.Unlock()
	if n > c.budget.limit-c.budget.held.Load()+c.cached.Load() {
		return nil, 0, false // not even an empty cache would be enough, so it is left alone
	}
	var got int64
	for got < n && !c.budget.take(n-got) {
		o := c.evict()
		if o == nil {
			return victims, got, false
		}
		got += o.cost
		o.next, victims = victims, o
	}
	return victims, max(0, got-n), true
}

// evict makes the next cached object invisible whose turn it is, or returns nil
// if all are open. It is called with room held, which also guards the hand.
//
// The hand goes round often enough to bring every use count to zero. In the
// last round counts are not looked at: objects that are used faster than the
// hand moves must not make a store full.
func (c *catalogue) evict() *object {
	const rounds = maxUsed + 2
	for visit := range rounds * len(c.shards) {
		force := visit >= (rounds-1)*len(c.shards)
		if o := c.sweep(&c.shards[c.hand], force); o != nil {
			return o
		}
		c.hand++
	}
	return nil
}

// sweep moves the hand of one shard until it finds something or comes round.
func (c *catalogue) sweep(s *shard, force bool) *object {
	for {
		s.mu.Lock()
		o, round := s.sweep(force)
		if o != nil {
			c.uncount(o)
			if c.filed {
				s.begin(o.address) // until the file is removed; sweep has passed by whoever was on an errand
			}
		}
		s.mu.Unlock()
		if o != nil {
			c.evictions.Add(1)
		}
		if o != nil || round {
			return o
		}
	}
}
