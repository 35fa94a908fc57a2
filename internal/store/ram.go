package store

import (
	"context"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// RAM is a Store in memory. It is lost when the process ends.
type RAM struct {
	catalogue

	// set at construction
	maxObject int64
	capped    bool // maxObject is less than the budget
	slabs     slabs
	partials

	hashers sync.Pool // of *b3.Hasher, for objects of several blocks
}

var _ Store = (*RAM)(nil)

// RAMSpec configures a RAM store.
type RAMSpec struct {
	// Budget is how many bytes may be held; it is rounded up to whole 64 KiB. A
	// store with zero rejects everything.
	Budget int64

	// Headroom is the part of the budget that cached objects never fill, so
	// that bytes that are not verified yet find space without evicting.
	Headroom int64

	// MaxObject is how large one object may be; zero for the size of the
	// budget.
	MaxObject int64

	// Zero makes the store zero memory as soon as it is released.
	Zero bool
}

// clampHeadroom returns the headroom of a store with a limit: half of it at
// most.
func clampHeadroom(wanted, limit int64) int64 { return max(0, min(wanted, limit/2)) }

// NewRAM returns an empty store.
func NewRAM(spec RAMSpec) *RAM {
	budgeted := max(0, spec.Budget)
	limit := (budgeted + slabSize - 1) / slabSize * slabSize
	r := &RAM{
		catalogue: catalogue{budget: budget{limit: limit, headroom: clampHeadroom(spec.Headroom, limit)}},
		maxObject: limit,
		slabs:     slabs{limit: limit, zero: spec.Zero},
	}
	if spec.MaxObject > 0 && spec.MaxObject < budgeted {
		r.maxObject, r.capped = spec.MaxObject, true
	}
	r.hashers.New = func() any { return new(b3.Hasher) }
	return r
}

// Open finds an object and counts its use.
func (r *RAM) Open(ctx context.Context, a b3.Address) (Handle, error) {
	if err := r.checkOpen(ctx, "store.open"); err != nil {
		return nil, err
	}
	o := r.acquire(a)
	if o == nil {
		return nil, notFound("store.open", a)
	}
	return &ramHandle{ram: r, object: o}, nil
}

// acquire counts a new handle of the object, and its use.
func (r *RAM) acquire(a b3.Address) *object {
	s := r.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[a]
	if o != nil {
		o.refs.retain()
		s.touch(o)
	}
	return o
}

// Delete makes an object invisible and frees it when its last handle is closed.
func (r *RAM) Delete(ctx context.Context, a b3.Address) error {
	var gone *object
	err := r.withObject(ctx, "store.delete", a, func(s *shard, o *object) {
		s.remove(o)
		r.uncount(o)
		gone = o
	})
	if gone != nil {
		r.release(gone)
	}
	return err
}

// Pin keeps an object until it is deleted.
func (r *RAM) Pin(ctx context.Context, a b3.Address) error {
	return r.withObject(ctx, "store.pin", a, func(s *shard, o *object) { r.setClassLocked(s, o, Pinned) })
}

// Unpin lets an object be evicted when space is needed.
func (r *RAM) Unpin(ctx context.Context, a b3.Address) error {
	return r.withObject(ctx, "store.unpin", a, func(s *shard, o *object) { r.setClassLocked(s, o, Cached) })
}

// Reclass gives an object another class if it has the class from.
func (r *RAM) Reclass(ctx context.Context, a b3.Address, from, to Class) (changed bool, err error) {
	err = r.withObject(ctx, "store.reclass", a, func(s *shard, o *object) {
		if changed = o.class == from; changed {
			r.setClassLocked(s, o, to)
		}
	})
	return changed, err
}

// Evict removes an object if it is cached.
func (r *RAM) Evict(ctx context.Context, a b3.Address) (bool, error) {
	var gone *object
	err := r.withObject(ctx, "store.evict", a, func(s *shard, o *object) {
		if o.class == Cached {
			s.remove(o)
			r.uncount(o)
			gone = o
		}
	})
	if gone != nil {
		r.release(gone)
	}
	return gone != nil, ignoreNotFound(err)
}

// Usage reports how much is held.
func (r *RAM) Usage() Usage {
	u := r.usage()
	u.Idle = r.slabs.idle.Load()
	return u
}

// Trim returns memory to the Go heap that was idle since the last Trim. Call it
// periodically, so that a store that was large once does not stay so.
func (r *RAM) Trim() { r.slabs.trim() }

// dropPartials drops what is kept of objects that have not arrived whole, the
// oldest first, until as many and as many bytes are left. It reports whether it
// dropped any.
func (r *RAM) dropPartials(most int, bytes int64) bool {
	return r.partials.drop(most, bytes, time.Now(), func(_ b3.Address, one *partial) {
		for _, block := range one.blocks {
			r.slabs.put(block)
		}
		r.budget.release(one.cost)
	})
}

// Close makes every object invisible and frees it, and rejects all later calls.
// The error is always nil.
func (r *RAM) Close() error {
	r.closed.Store(true)
	r.dropPartials(0, 0)
	for i := range r.shards {
		for _, o := range r.removeAll(&r.shards[i]) {
			r.release(o)
		}
	}
	r.slabs.close()
	return nil
}

// release releases one reference to an object. The last one frees its memory
// and its part of the budget.
func (r *RAM) release(o *object) {
	if r.unref(o) {
		r.budget.release(o.cost())
	}
}

// unref releases one reference to an object. The last one frees its memory, but
// its part of the budget stays with the caller.
func (r *RAM) unref(o *object) bool {
	if !o.refs.release() {
		return false
	}
	r.lingering.Add(-o.size)
	r.freeBlocks(o.blocks)
	return true
}

// freeBlocks frees blocks, and with a single one the charge for bookkeeping.
func (r *RAM) freeBlocks(blocks [][]byte) {
	if len(blocks) <= 1 {
		r.slabs.discharge(objectOverhead)
	}
	for i, block := range blocks {
		r.slabs.put(block)
		blocks[i] = nil
	}
}

func notFound(op string, a b3.Address) error {
	return fault.New(op, fault.NotFound, "%s is not stored here", a)
}

// ignoreNotFound is the error, unless it says that there is no such object.
func ignoreNotFound(err error) error {
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

func closed(op string) error {
	return fault.WrapKind(op, fault.Canceled, flow.ErrClosed)
}
