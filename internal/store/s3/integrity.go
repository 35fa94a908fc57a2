package s3

import (
	"context"
	"errors"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// Verify reads an object anew and compares it with its address. What does not
// match is read a second time, and then put into quarantine. A tree that is
// missing or wrong is replaced.
func (s *Store) Verify(ctx context.Context, a b3.Address, pace store.Pace) error {
	const op = "store.verify"
	ctx, cancel, err := s.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	for look := 1; ; look++ {
		found, err := s.find(ctx, op, a)
		if err != nil {
			return err
		}
		l := s.newLife(a)
		l.place.Store(&place{key: found.key, etag: found.etag})
		right, err := s.rehash(ctx, op, l, found.size, pace)
		switch {
		case err == nil:
			return s.restore(ctx, op, l, found.size, right)
		case !errors.Is(err, b3.ErrMismatch):
			return err
		case look > 1:
			return s.condemn(ctx, op, l, err)
		}
	}
}

// rehash reads the whole object and returns its tree, if the object is right.
func (s *Store) rehash(ctx context.Context, op string, l *life, size int64, pace store.Pace) (b3.Outboard, error) {
	hasher := b3.NewTreeHasher()
	src := &stream{bucket: s.bucket, life: l, ctx: ctx, op: op, size: size, end: size}
	defer src.close()
	buffer := make([]byte, min(size, small))
	for size > 0 {
		piece := buffer[:min(size, int64(len(buffer)))]
		if pace != nil {
			if err := pace(ctx, int64(len(piece))); err != nil {
				return nil, fault.Wrap(op, err)
			}
		}
		if _, err := src.fill(piece, hasher.N()); errors.Is(err, errShape) {
			break
		} else if err != nil {
			return nil, err
		}
		_, _ = hasher.Write(piece) // it never fails
		size -= int64(len(piece))
	}
	if got := hasher.Sum(); got != l.address {
		return nil, fault.Wrap(op, &b3.Mismatch{Want: l.address, Got: got})
	}
	return hasher.Outboard(), nil
}

// restore writes the tree of an object that is right, unless it is there.
func (s *Store) restore(ctx context.Context, op string, l *life, size int64, right b3.Outboard) error {
	if size <= small {
		return nil
	}
	same, err := l.tree.same(ctx, op, right)
	if err != nil || same {
		return err
	}
	return running(s.bucket.put(ctx, op, l.tree.key, right))
}

// mend replaces a tree that does not fit by one made from the object, if the
// object is right, and condemns the object if it is not. Of one that is no
// longer visible, the tree is kept in memory only.
func (s *Store) mend(ctx context.Context, op string, l *life, size int64) error {
	right, err := s.rehash(ctx, op, l, size, nil)
	if errors.Is(err, b3.ErrMismatch) {
		return s.condemn(ctx, op, l, err)
	}
	if err != nil {
		return err
	}
	l.tree.adopt(right)
	if s.lifeOf(l.address) != l {
		return nil
	}
	return running(s.bucket.put(ctx, op, l.tree.key, right))
}

// condemn takes a corrupt object out of view, and returns the error for whoever
// asked for it. The bytes are moved into quarantine, where an operator can look
// at them. Another node, or another request, may have been faster; then nothing
// is done or counted.
func (s *Store) condemn(ctx context.Context, op string, l *life, verdict error) error {
	bad := l.place.Load()
	moved := s.alone(ctx, op, l.address, func(ctx context.Context) error {
		found, err := s.find(ctx, op, l.address)
		if fault.KindOf(err) == fault.NotFound || err == nil && !bad.is(found) {
			return nil
		}
		s.integrityFails.Add(1)
		if err != nil {
			return err
		}
		return s.isolate(ctx, op, l.address, found)
	})
	return &fault.Error{
		Op: op, Kind: fault.IntegrityFail, Detail: l.address.String() + " is corrupt in the object store",
		Next: "Put the object again from a good copy. What was found is kept under " + folderQuarantine + " in the bucket.",
		Err:  errors.Join(verdict, moved),
	}
}

// isolate moves an object into quarantine. It is the caller's turn.
func (s *Store) isolate(ctx context.Context, op string, a b3.Address, found item) error {
	kept, err := s.bucket.copy(ctx, op, found, s.bucket.quarantine(a))
	if err != nil {
		return running(err)
	}
	l := s.lifeOf(a)
	if l != nil && found.size > small {
		l.tree.keep(ctx, op, found.size)
		s.moveTo(ctx, l, kept, false)
	}
	return s.takeOut(ctx, op, a, found, l)
}
