package store

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Verify hashes an object again, piece by piece.
//
// It does so with the mutex of the shard held, for a group of 16 KiB at a time,
// which takes some microseconds. With a handle it would be in the way of those
// who need room: what is open cannot be evicted.
func (r *RAM) Verify(ctx context.Context, a b3.Address, pace Pace) error {
	const op = "store.verify"
	var o *object
	if err := r.visit(ctx, op, a, func(_ *shard, found *object) { o = found }); err != nil {
		return err
	}
	h := r.hashers.Get().(*b3.Hasher)
	defer r.retire(h)
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
		if !r.hashPart(h, o, off, n) {
			return notFound(op, a)
		}
	}
	if got := h.Sum(); got != a {
		r.quarantine(o)
		return fault.Wrap(op, &b3.Mismatch{Want: a, Got: got})
	}
	return nil
}

// hashPart hashes a part of an object if it is still visible. A slab is a whole
// number of groups, so the part lies in one block.
func (r *RAM) hashPart(h *b3.Hasher, o *object, off, n int64) bool {
	s := r.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.address] != o {
		return false
	}
	_, _ = h.Write(o.from(off)[:n]) // it never fails
	return true
}

// quarantine takes a corrupt object out of view, and counts it. The same
// address may have been put anew meanwhile; that object is left alone.
func (r *RAM) quarantine(o *object) {
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

// Checked is what a Scrubber works on.
type Checked interface {
	Lister
	Verifier
}

// Scrubber verifies all objects of a store, one after the other, over and over.
type Scrubber struct {
	// Store is whose objects are verified.
	Store Checked

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
			return finished(err)
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
			// It is right, it is gone, or the store has dealt with it.
		default:
			return err
		}
	}
	return nil
}

// finished turns the end of ctx and of the store into the end of a service.
func finished(err error) error {
	if kind := fault.KindOf(err); kind == fault.Canceled || kind == fault.Timeout {
		return nil
	}
	return err
}

// nap is the shortest pause that is worth the trouble.
const nap = 10 * time.Millisecond

// pacer spreads work over time. It belongs to one round.
type pacer struct {
	rate int64         // bytes a second
	owed time.Duration // how long to pause for what was let through
}

// pace lets n bytes through, and pauses first for those that went before.
func (p *pacer) pace(ctx context.Context, n int64) error {
	if p.owed >= nap {
		if err := flow.Sleep(ctx, p.owed); err != nil {
			return err
		}
		p.owed = 0
	}
	p.owed += time.Duration(float64(n) / float64(p.rate) * float64(time.Second))
	return nil
}
