package store

import (
	"context"
	"sync"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// RAM is a Store in memory. It is gone when the process is.
type RAM struct {
	catalogue

	// set at construction
	maxObject int64
	capped    bool // maxObject is less than the budget
	slabs     slabs

	hashers sync.Pool // of *b3.Hasher, for objects of several blocks
}

var _ Store = (*RAM)(nil)

// RAMSpec says what a RAM store may take.
type RAMSpec struct {
	// Service is the owner of the store in the inventory: "store", or a service
	// that has one of its own.
	Service string

	// Name tells the stores of one service apart; empty if it has only one.
	Name string

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
		catalogue: catalogue{budget: budget{limit: limit}, room: newRoom(inv, spec.Service, spec.Name)},
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
	if err := r.refuse(ctx, "store.open"); err != nil {
		return nil, err
	}
	o := r.hold(a)
	if o == nil {
		return nil, notFound("store.open", a)
	}
	return &handle{ram: r, object: o}, nil
}

// hold counts one who has the object open, and its use.
func (r *RAM) hold(a b3.Address) *object {
	s := r.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[a]
	if o != nil {
		o.count.add()
		s.touch(o)
	}
	return o
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

// Usage tells how much is held.
func (r *RAM) Usage() Usage {
	u := r.usage()
	u.Idle = r.slabs.idle.Load()
	return u
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
