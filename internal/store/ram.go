package store

import (
	"context"
	"sync"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// RAM is a Store in memory. It is gone when the process is.
type RAM struct {
	// set at construction
	budget    budget
	maxObject int64
	capped    bool // maxObject is less than the budget
	slabs     slabs

	closed  atomic.Bool
	shards  [256]shard
	hashers sync.Pool // of *b3.Hasher, for objects of several blocks

	room *flow.Mutex // held by the one who evicts
	hand uint8       // guarded by room: the shard where the clock's hand stands

	// Totals of what is visible, changed with the mutex of a shard held.
	objects atomic.Int64
	bytes   atomic.Int64
	pinned  atomic.Int64
	cached  atomic.Int64 // what the cached ones take of the budget

	lingering      atomic.Int64
	evictions      atomic.Uint64
	refusals       atomic.Uint64
	mismatches     atomic.Uint64
	integrityFails atomic.Uint64
}

var _ Store = (*RAM)(nil)

// RAMSpec says what a RAM store may take.
type RAMSpec struct {
	// Service is the owner of the store in the inventory: "store", or a service
	// that has one of its own.
	Service string

	// Budget is how many bytes may be held; it is rounded up to whole 64 KiB.
	// Zero is a store that refuses all.
	Budget int64

	// MaxObject is how large one object may be; zero if as large as the budget.
	MaxObject int64

	// Zero makes the store zero memory as soon as nobody needs what is in it.
	Zero bool
}

// NewRAM makes an empty store.
func NewRAM(inv *flow.Inventory, spec RAMSpec) *RAM {
	budgeted := max(0, spec.Budget)
	limit := (budgeted + slabSize - 1) / slabSize * slabSize
	r := &RAM{
		budget:    budget{limit: limit},
		maxObject: limit,
		slabs:     slabs{limit: limit, zero: spec.Zero},
		room:      flow.NewMutex(inv, flow.LockSpec{Service: spec.Service, Name: "room", Rank: 40}),
	}
	if spec.MaxObject > 0 && spec.MaxObject < budgeted {
		r.maxObject, r.capped = spec.MaxObject, true
	}
	r.hashers.New = func() any { return new(b3.Hasher) }
	return r
}

// Open finds an object and counts its use.
func (r *RAM) Open(ctx context.Context, a b3.Address) (Handle, error) {
	if err := r.refuse(ctx, "store.open"); err != nil {
		return nil, err
	}
	s := r.shard(a)
	s.mu.Lock()
	o := s.objects[a]
	if o != nil {
		o.count.add()
		s.touch(o)
	}
	s.mu.Unlock()
	if o == nil {
		return nil, notFound("store.open", a)
	}
	return &handle{ram: r, object: o}, nil
}

// Stat describes an object.
func (r *RAM) Stat(ctx context.Context, a b3.Address) (info Info, err error) {
	err = r.visit(ctx, "store.stat", a, func(_ *shard, o *object) { info = o.info() })
	return info, err
}

// Delete makes an object invisible and frees it when nobody has it open.
func (r *RAM) Delete(ctx context.Context, a b3.Address) error {
	var gone *object
	err := r.visit(ctx, "store.delete", a, func(s *shard, o *object) {
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
	return r.visit(ctx, "store.pin", a, func(s *shard, o *object) { r.reclass(s, o, Pinned) })
}

// Unpin lets an object be evicted when room is needed.
func (r *RAM) Unpin(ctx context.Context, a b3.Address) error {
	return r.visit(ctx, "store.unpin", a, func(s *shard, o *object) { r.reclass(s, o, Cached) })
}

// List returns a page of objects. The shards are in the order of addresses.
func (r *RAM) List(ctx context.Context, after b3.Address, limit int) ([]Info, error) {
	limit = max(1, min(limit, MaxPage))
	var page []Info
	for i := int(after[0]); i < len(r.shards) && len(page) < limit; i++ {
		if err := r.refuse(ctx, "store.list"); err != nil {
			return nil, err
		}
		page = append(page, r.shards[i].after(after)...)
	}
	return page[:min(len(page), limit)], nil
}

// Usage tells how much is held.
func (r *RAM) Usage() Usage {
	return Usage{
		Objects:   r.objects.Load(),
		Bytes:     r.bytes.Load(),
		Pinned:    r.pinned.Load(),
		Lingering: r.lingering.Load(),
		Held:      r.budget.held.Load(),
		Idle:      r.slabs.idle.Load(),
		Budget:    r.budget.limit,
	}
}

// Counts tells what was done.
func (r *RAM) Counts() Counts {
	return Counts{
		Evictions:      r.evictions.Load(),
		Refusals:       r.refusals.Load(),
		Mismatches:     r.mismatches.Load(),
		IntegrityFails: r.integrityFails.Load(),
	}
}

// Trim gives memory back to the Go heap that was idle since the last Trim. It
// is to be called now and then, so that a store that was large once does not
// stay so for ever.
func (r *RAM) Trim() { r.slabs.trim() }

// Close makes every object invisible and frees it, and refuses all that comes
// later. The error is always nil.
func (r *RAM) Close() error {
	r.closed.Store(true)
	for i := range r.shards {
		for _, o := range r.empty(&r.shards[i]) {
			r.release(o)
		}
	}
	r.slabs.close()
	return nil
}

// empty makes all objects of a shard invisible and returns them.
func (r *RAM) empty(s *shard) map[b3.Address]*object {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.objects
	for _, o := range gone {
		r.uncount(o)
	}
	s.objects, s.ring, s.hand, s.peak = nil, nil, 0, 0
	return gone
}

func (r *RAM) shard(a b3.Address) *shard { return &r.shards[a[0]] }

// refuse says why an operation must not begin, if so.
func (r *RAM) refuse(ctx context.Context, op string) error {
	if r.closed.Load() {
		return closed(op)
	}
	return flow.Ended(ctx, op)
}

// visit calls do with the object and its shard, whose mutex is held.
func (r *RAM) visit(ctx context.Context, op string, a b3.Address, do func(*shard, *object)) error {
	if err := r.refuse(ctx, op); err != nil {
		return err
	}
	s := r.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[a]
	if o == nil {
		return notFound(op, a)
	}
	do(s, o)
	return nil
}

// reclass changes the class of a visible object.
func (r *RAM) reclass(s *shard, o *object, class Class) {
	if o.class == class {
		return
	}
	o.class = class
	if class == Cached {
		s.enlist(o)
		r.pinned.Add(-o.size)
		r.cached.Add(o.cost)
	} else {
		s.delist(o)
		r.pinned.Add(o.size)
		r.cached.Add(-o.cost)
	}
}

// count adds an object that has become visible to the totals.
func (r *RAM) count(o *object) {
	r.objects.Add(1)
	r.bytes.Add(o.size)
	if o.class == Cached {
		r.cached.Add(o.cost)
	} else {
		r.pinned.Add(o.size)
	}
}

// uncount takes an object that is no longer visible out of the totals.
func (r *RAM) uncount(o *object) {
	r.lingering.Add(o.size)
	r.objects.Add(-1)
	r.bytes.Add(-o.size)
	if o.class == Cached {
		r.cached.Add(-o.cost)
	} else {
		r.pinned.Add(-o.size)
	}
}

// release gives up one claim on an object. The last one frees it, and its room.
func (r *RAM) release(o *object) {
	if r.discard(o) {
		r.budget.give(o.cost)
	}
}

// discard gives up one claim on an object. The last one frees its memory, but
// the room in the budget stays with the caller.
func (r *RAM) discard(o *object) bool {
	if !o.count.done() {
		return false
	}
	r.lingering.Add(-o.size)
	r.recycle(o.blocks)
	return true
}

// recycle gives blocks back, and with a single one the charge for bookkeeping.
func (r *RAM) recycle(blocks [][]byte) {
	if len(blocks) <= 1 {
		r.slabs.discharge(entryCost)
	}
	for i, block := range blocks {
		r.slabs.give(block)
		blocks[i] = nil
	}
}

func notFound(op string, a b3.Address) error {
	return fault.New(op, fault.NotFound, "%s is not here", a)
}

func closed(op string) error {
	return fault.WrapKind(op, fault.Canceled, flow.ErrClosed)
}
