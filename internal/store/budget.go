package store

import (
	"context"
	"sync/atomic"

	"micronode/b3"
)

// budget is how much may be held, and how much is. The count includes
// reservations for bytes that are not there yet.
type budget struct {
	// set at construction
	limit    int64
	headroom int64 // the part of it that cached objects never fill: for bytes that are not verified yet

	held atomic.Int64
}

// reserve reserves n bytes if there is space for them.
func (b *budget) reserve(n int64) bool { return b.reserveBelow(b.limit, n) }

// reserveOutsideHeadroom reserves n bytes if there is space for them beside the
// headroom.
func (b *budget) reserveOutsideHeadroom(n int64) bool { return b.reserveBelow(b.limit-b.headroom, n) }

func (b *budget) reserveBelow(limit, n int64) bool {
	for {
		now := b.held.Load()
		if n > limit-now {
			return false
		}
		if b.held.CompareAndSwap(now, now+n) {
			return true
		}
	}
}

// release ends a reservation.
func (b *budget) release(n int64) { b.held.Add(-n) }

// headroomUsed is how much of the headroom is in use.
func (b *budget) headroomUsed() int64 { return max(0, b.held.Load()-(b.limit-b.headroom)) }

// restoreHeadroom is called when unverified bytes, which were stored without
// evicting anything, have been verified: now others are evicted for them, so
// that the next ones find headroom. The new object is open meanwhile, so that
// it is not evicted itself. If nothing can be evicted, there is no headroom.
func (r *RAM) restoreHeadroom(ctx context.Context, a b3.Address) {
	if handle, err := r.Open(ctx, a); err == nil {
		defer handle.Close()
		if n := r.budget.headroomUsed(); n > 0 && r.reserve(n) {
			r.budget.release(n)
		}
	}
}

// restoreHeadroom is the same on disk.
func (d *Disk) restoreHeadroom(ctx context.Context, a b3.Address) {
	if handle, err := d.Open(ctx, a); err == nil {
		defer handle.Close()
		if n := d.budget.headroomUsed(); n > 0 && d.reserve(n) == nil {
			d.budget.release(n)
		}
	}
}

// reserve reserves n bytes, evicting for them if it must.
func (r *RAM) reserve(n int64) bool {
	if r.budget.reserveOutsideHeadroom(n) || r.dropPartials(0, 0) && r.budget.reserveOutsideHeadroom(n) {
		return true
	}
	victims, surplus, ok := r.reclaim(n)
	for o := victims; o != nil; o = o.next {
		r.unref(o)
	}
	r.budget.release(surplus)
	return ok
}

// reclaim evicts until n bytes are reserved. What it evicts stays in the budget
// as the reservation of its caller, which therefore loses no space to others
// while it evicts more. The caller frees the victims, and releases the surplus:
// what was evicted in vain, or too much.
//
// Only one runs at a time. If two did, each could take half of what would have
// been enough for one of them, and both would fail.
func (c *catalogue) reclaim(n int64) (victims *object, surplus int64, ok bool) {
	c.evictMu.Lock()
	defer c.evictMu.Unlock()
	if n > c.budget.limit-c.budget.held.Load()+c.cached.Load() {
		return nil, 0, false // not even evicting the whole cache would be enough, so it is left alone
	}
	var got int64
	for got < n && !c.budget.reserveOutsideHeadroom(n-got) {
		o := c.evictNext()
		if o == nil && c.budget.reserve(n-got) { // there is nothing left to evict: pinned objects may use the headroom
			break
		}
		if o == nil {
			return victims, got, false
		}
		got += o.cost()
		o.next, victims = victims, o
	}
	return victims, max(0, got-n), true
}

// evictNext makes the next cached object in turn invisible, or returns nil if
// all are open. It is called with evictMu held, which also guards the hand.
//
// The hand makes enough rounds to bring every use count to zero. In the last
// round counts are ignored: objects that are used faster than the hand moves
// must not make a store full.
func (c *catalogue) evictNext() *object {
	const rounds = maxUseCount + 2
	for visit := range rounds * len(c.shards) {
		force := visit >= (rounds-1)*len(c.shards)
		if o := c.sweepShard(&c.shards[c.clockShard], force); o != nil {
			return o
		}
		c.clockShard++
	}
	return nil
}

// sweepShard moves the hand of one shard until it finds something or completes
// a round.
func (c *catalogue) sweepShard(s *shard, force bool) *object {
	for {
		s.mu.Lock()
		o, round := s.sweep(force)
		if o != nil {
			c.uncount(o)
			if c.onDisk {
				s.tryLockAddress(o.address) // until the file is removed; sweep has skipped locked addresses
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
