package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
)

// catalogue lists the objects, their cost in the budget, and the order of
// eviction. The stores in RAM and on disk share it; where the bytes are is up
// to them.
type catalogue struct {
	// set at construction
	budget budget
	onDisk bool // the objects are files: see addressLocks in shard

	closed atomic.Bool
	shards [256]shard

	evictMu    sync.Mutex // held to evict
	clockShard uint8      // guarded by evictMu: the shard of the clock hand

	// Totals of what is visible, changed with the mutex of a shard held.
	objects atomic.Int64
	bytes   atomic.Int64
	pinned  atomic.Int64
	cached  atomic.Int64 // the cost of the cached ones in the budget

	lingering      atomic.Int64
	evictions      atomic.Uint64
	refusals       atomic.Uint64
	mismatches     atomic.Uint64
	integrityFails atomic.Uint64
}

// Stat describes an object.
func (c *catalogue) Stat(ctx context.Context, a b3.Address) (info Info, err error) {
	err = c.withObject(ctx, "store.stat", a, func(_ *shard, o *object) { info = o.info() })
	return info, err
}

// List returns a page of objects. The shards are in the order of addresses.
func (c *catalogue) List(ctx context.Context, after b3.Address, limit int) ([]Info, error) {
	limit = max(1, min(limit, MaxPage))
	var page []Info
	for i := int(after[0]); i < len(c.shards) && len(page) < limit; i++ {
		if err := c.checkOpen(ctx, "store.list"); err != nil {
			return nil, err
		}
		page = append(page, c.shards[i].listAfter(after)...)
	}
	return page[:min(len(page), limit)], nil
}

// StoredAt returns when an object was put, to the second; the zero time if it is
// not here.
func (c *catalogue) StoredAt(a b3.Address) time.Time {
	s := c.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[a]; o != nil {
		return time.Unix(int64(o.stored), 0)
	}
	return time.Time{}
}

// usage returns the figures that every store has.
func (c *catalogue) usage() Usage {
	return Usage{
		Objects:   c.objects.Load(),
		Bytes:     c.bytes.Load(),
		Pinned:    c.pinned.Load(),
		Lingering: c.lingering.Load(),
		Held:      c.budget.held.Load(),
		Budget:    c.budget.limit,
	}
}

// Counts reports what was done.
func (c *catalogue) Counts() Counts {
	return Counts{
		Evictions:      c.evictions.Load(),
		Refusals:       c.refusals.Load(),
		Mismatches:     c.mismatches.Load(),
		IntegrityFails: c.integrityFails.Load(),
	}
}

func (c *catalogue) shard(a b3.Address) *shard { return &c.shards[a[0]] }

// checkOpen returns why an operation must not begin, if so.
func (c *catalogue) checkOpen(ctx context.Context, op string) error {
	if c.closed.Load() {
		return closed(op)
	}
	return flow.Ended(ctx, op)
}

// withObject calls do with the object and its shard, whose mutex is held.
func (c *catalogue) withObject(ctx context.Context, op string, a b3.Address, do func(*shard, *object)) error {
	if err := c.checkOpen(ctx, op); err != nil {
		return err
	}
	s := c.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[a]
	if o == nil {
		return notFound(op, a)
	}
	do(s, o)
	return nil
}

// removeAll makes all objects of a shard invisible and returns them.
func (c *catalogue) removeAll(s *shard) map[b3.Address]*object {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.objects
	for _, o := range gone {
		c.uncount(o)
	}
	s.objects, s.ring, s.clockHand, s.peak, s.idleObject = nil, nil, 0, 0, nil
	return gone
}

// setClassLocked changes the class of a visible object.
func (c *catalogue) setClassLocked(s *shard, o *object, class Class) {
	if o.class == class {
		return
	}
	before := o.class
	o.class = class
	switch {
	case class == Cached:
		s.addToRing(o)
		c.pinned.Add(-o.size)
		c.cached.Add(o.cost())
	case before == Cached:
		s.removeFromRing(o)
		c.pinned.Add(o.size)
		c.cached.Add(-o.cost())
	}
}

// count adds an object that became visible to the totals.
func (c *catalogue) count(o *object) {
	c.objects.Add(1)
	c.bytes.Add(o.size)
	if o.class == Cached {
		c.cached.Add(o.cost())
	} else {
		c.pinned.Add(o.size)
	}
}

// uncount removes an object that is no longer visible from the totals.
func (c *catalogue) uncount(o *object) {
	c.lingering.Add(o.size)
	c.objects.Add(-1)
	c.bytes.Add(-o.size)
	if o.class == Cached {
		c.cached.Add(-o.cost())
	} else {
		c.pinned.Add(-o.size)
	}
}
