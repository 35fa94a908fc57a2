package transfer

import (
	"context"
	"errors"
	"io"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// near is how far ahead of what is in memory a reader waits for the transfer
// to get there. Behind that it fetches for itself.
const near = ahead * runSize / 2

// ReadAt returns bytes at an offset as soon as they are here, and not more than
// there are without waiting again. It is store.ErrArrived once the store has
// all of them. It may be called by many.
func (t *Transfer) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || off >= t.spec.Size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), t.spec.Size-off)]
	for {
		t.mu.Lock()
		switch {
		case off < t.stored:
			p = p[:min(int64(len(p)), t.stored-off)]
			t.mu.Unlock()
			n, err := t.spec.Arrival.ReadAt(p, off)
			if errors.Is(err, store.ErrArrived) && t.Err() == nil {
				// The Put has just ended, and the transfer will in a moment: or
				// the store does not lend what arrives.
				return t.fetchFor(ctx, p, off)
			}
			return n, err
		case t.err == io.EOF:
			t.mu.Unlock()
			return 0, store.ErrArrived
		case t.err != nil:
			defer t.mu.Unlock()
			return 0, t.err
		}
		for _, r := range t.runs {
			if off >= r.from && off < r.from+r.have {
				n := copy(p, r.bytes[off-r.from:r.have])
				t.mu.Unlock()
				return n, nil
			}
		}
		if off >= t.next+near {
			t.mu.Unlock()
			return t.fetchFor(ctx, p, off)
		}
		t.wait(ctx)
		t.mu.Unlock()
		if err := flow.Ended(ctx, op); err != nil {
			return 0, err
		}
	}
}

// fetchFor fetches bytes for one reader, from the fastest source that has them.
// They are not kept.
func (t *Transfer) fetchFor(ctx context.Context, p []byte, off int64) (int, error) {
	ctx, cancel := flow.Join(ctx, t.ctx)
	defer cancel()
	tried := map[string]bool{}
	problem := error(fault.New(op, fault.Transient, "no source sends at the moment"))
	begin, end := groups(off, int64(len(p)), t.spec.Size)
	for {
		s := t.fastest(tried)
		if s == nil {
			return 0, fault.Wrap(op, problem)
		}
		tried[s.ID] = true
		body, err := s.Open(ctx, begin, end-begin)
		if err == nil {
			var got []byte
			got, err = b3.VerifyRange(t.spec.Address, t.spec.Size, t.spec.Tree, &part{from: body, at: begin}, off, int64(len(p)))
			_ = body.Close() // it was read, or the error is known
			if err == nil {
				return copy(p, got), nil
			}
		}
		if ended := flow.Ended(ctx, op); ended != nil {
			return 0, ended
		}
		problem = err
		if fault.KindOf(err) == fault.IntegrityFail {
			t.mu.Lock()
			s.lied, s.dropped = true, true
			t.mu.Unlock()
			if t.spec.Failed != nil {
				t.spec.Failed(s.Source, end-begin, err)
			}
		}
	}
}

// fastest returns the fastest source that was not tried, or nil.
func (t *Transfer) fastest(tried map[string]bool) (best *source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sources {
		if !s.dropped && !tried[s.ID] && !time.Now().Before(s.rests) && (best == nil || s.rate > best.rate) {
			best = s
		}
	}
	return best
}
