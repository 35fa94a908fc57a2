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
//
// A reader far ahead waits for a source of its own as long as the transfer does.
func (t *Transfer) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || off >= t.spec.Size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), t.spec.Size-off)]
	var problem error
	began, tried := time.Now(), map[string]bool{}
	for {
		n, state, err := t.readHere(p, off)
		if state == done {
			return n, err
		}
		if state == away {
			if n, err = t.fetchFor(ctx, p, off, tried); err == nil {
				return n, nil
			}
			if ended := flow.Ended(ctx, op); ended != nil {
				return 0, ended
			}
			if !errors.Is(err, errNoneLeft) {
				problem = err
				continue // with the next source
			}
			clear(tried) // all of them rest, or have failed once
			if time.Since(began) >= t.spec.Patience {
				if problem == nil {
					problem = err
				}
				return 0, fault.Wrap(op, problem)
			}
		}
		t.mu.Lock()
		t.wait(ctx)
		t.mu.Unlock()
		if err := flow.Ended(ctx, op); err != nil {
			return 0, err
		}
	}
}

// ReadHere returns the bytes at an offset if all of them are here, and NotReady
// if they are not yet. It is store.ErrArrived once the store has all of the
// object. Nothing is fetched for it: it is for other nodes.
func (t *Transfer) ReadHere(p []byte, off int64) (n int, err error) {
	if off < 0 || off >= t.spec.Size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), t.spec.Size-off)]
	for n < len(p) {
		got, state, err := t.readHere(p[n:], off+int64(n))
		switch {
		case state == done && got > 0:
		case state == done && err != nil && err != io.EOF:
			return n, err
		default:
			return n, fault.New(op, fault.NotReady, "byte %d of %s is not here yet", off+int64(n), t.spec.Address)
		}
		n += got
	}
	return n, nil
}

// where is where bytes of an object are.
type where uint8

const (
	done where = iota // they were read, or nothing will be
	soon              // the transfer gets there next
	away              // far ahead, or in a store that does not lend what arrives
)

// readHere reads bytes that are here, as many as are together.
func (t *Transfer) readHere(p []byte, off int64) (int, where, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.runAt(off); r != nil {
		return copy(p, r.bytes[off-r.from:r.have]), done, nil
	}
	if off < t.stored {
		p = p[:min(int64(len(p)), t.stored-off)]
		t.mu.Unlock()
		n, err := t.spec.Arrival.ReadAt(p, off)
		t.mu.Lock()
		switch {
		case !errors.Is(err, store.ErrArrived):
			return n, done, err
		case t.err == nil:
			// The Put has just ended, and the transfer will in a moment: or the
			// store does not lend what arrives.
			return 0, away, nil
		}
	}
	switch {
	case t.err == io.EOF:
		return 0, done, store.ErrArrived
	case t.err != nil:
		return 0, done, t.err
	}
	if off >= t.next+near {
		return 0, away, nil
	}
	return 0, soon, nil
}

// errNoneLeft is the error when no source can be tried now.
var errNoneLeft = fault.New(op, fault.Transient, "no source sends at the moment")

// fetchFor fetches bytes for one reader, from the fastest source that it has not
// tried. They are not kept.
func (t *Transfer) fetchFor(ctx context.Context, p []byte, off int64, tried map[string]bool) (int, error) {
	ctx, cancel := flow.Join(ctx, t.ctx)
	defer cancel()
	s := t.fastest(tried)
	if s == nil {
		return 0, errNoneLeft
	}
	tried[s.ID] = true
	begin, end := groups(off, int64(len(p)), t.spec.Size)
	body, err := s.Open(ctx, begin, end-begin)
	if err == nil {
		var got []byte
		got, err = b3.VerifyRange(t.spec.Address, t.spec.Size, t.spec.Tree, &part{from: body, at: begin}, off, int64(len(p)))
		_ = body.Close() // it was read, or the error is known
		if err == nil {
			return copy(p, got), nil
		}
	}
	if flow.Ended(ctx, op) == nil && fault.KindOf(err) != fault.NotReady {
		t.mu.Lock()
		t.lose(s, end-begin, err)
		t.mu.Unlock()
	}
	return 0, err
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
