package store

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Verify hashes an object again, group by group.
//
// It does so with the mutex of the shard held, for a group of 16 KiB at a time,
// which takes some microseconds. A handle would block evictions: what is open
// cannot be evicted.
func (r *RAM) Verify(ctx context.Context, a b3.Address, pace Pace) error {
	const op = "store.verify"
	var o *object
	if err := r.withObject(ctx, op, a, func(_ *shard, found *object) { o = found }); err != nil {
		return err
	}
	h := r.hashers.Get().(*b3.Hasher)
	defer r.putHasher(h)
	for off := int64(0); off < o.size; off += b3.GroupSize {
		n := min(b3.GroupSize, o.size-off)
		if pace != nil {
			if err := pace(ctx, n); err != nil {
				return fault.Wrap(op, err)
			}
		}
		if err := flow.Ended(ctx, op); err != nil {
			return err
		}
		if !r.hashRange(h, o, off, n) {
			return notFound(op, a)
		}
	}
	if got := h.Sum(); got != a {
		r.dropCorrupt(o)
		return fault.Wrap(op, &b3.Mismatch{Want: a, Got: got})
	}
	return nil
}

// hashRange hashes a part of an object if it is still visible. A slab is a whole
// number of groups, so the part lies in one block.
func (r *RAM) hashRange(h *b3.Hasher, o *object, off, n int64) bool {
	s := r.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.address] != o {
		return false
	}
	_, _ = h.Write(o.bytesAt(off)[:n]) // it never fails
	return true
}

// dropCorrupt removes a corrupt object, and counts it. The same address may
// have been put again meanwhile; that object is left alone.
func (r *RAM) dropCorrupt(o *object) {
	s := r.shard(o.address)
	s.mu.Lock()
	visible := s.objects[o.address] == o
	if visible {
		s.remove(o)
		r.uncount(o)
		r.integrityFails.Add(1)
	}
	s.mu.Unlock()
	if visible {
		r.release(o)
	}
}

// ScrubTarget is the part of a store that a Scrubber uses.
type ScrubTarget interface {
	Lister
	Verifier
}

// Scrubber verifies all objects of a store, one after the other, over and over.
type Scrubber struct {
	// Store is the store whose objects are verified.
	Store ScrubTarget

	// Interval is the pause between two rounds.
	Interval time.Duration

	// BytesPerSecond is how fast it goes. With zero it does nothing.
	BytesPerSecond int64
}

// Serve runs until ctx ends or the store is closed. It is the Serve of a
// supervise.Service.
func (s *Scrubber) Serve(ctx context.Context) error {
	if s.BytesPerSecond <= 0 {
		return nil
	}
	for ctx.Err() == nil {
		if err := s.round(ctx); err != nil {
			return ignoreCanceled(err)
		}
		_ = flow.Sleep(ctx, s.Interval) // the loop looks at ctx
	}
	return nil
}

// round verifies every object once.
func (s *Scrubber) round(ctx context.Context) error {
	p := pacer{rate: s.BytesPerSecond}
	for info, err := range Walk(ctx, s.Store) {
		if err != nil {
			return err
		}
		err = s.Store.Verify(ctx, info.Address, p.pace)
		switch fault.KindOf(err) {
		case 0, fault.NotFound, fault.IntegrityFail:
			// It is valid, it was removed, or the store has quarantined it.
		default:
			return err
		}
	}
	return nil
}

// ignoreCanceled turns the end of ctx and of the store into the end of a service.
func ignoreCanceled(err error) error {
	if kind := fault.KindOf(err); kind == fault.Canceled || kind == fault.Timeout {
		return nil
	}
	return err
}

// minPause is the shortest pause that is worth a system call.
const minPause = 10 * time.Millisecond

// pacer limits the rate of a round. It belongs to one round.
type pacer struct {
	rate int64         // bytes a second
	debt time.Duration // how long to pause for the bytes that were admitted
}

// pace admits n bytes, and pauses first for those before them.
func (p *pacer) pace(ctx context.Context, n int64) error {
	if p.debt >= minPause {
		if err := flow.Sleep(ctx, p.debt); err != nil {
			return err
		}
		p.debt = 0
	}
	p.debt += time.Duration(float64(n) / float64(p.rate) * float64(time.Second))
	return nil
}
