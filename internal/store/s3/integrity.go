package s3

import (
	"context"
	"errors"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// Verify reads an object again and compares it with its address. A mismatch is
// read a second time, and then quarantined. A missing or wrong tree is
// replaced.
func (s *Store) Verify(ctx context.Context, a b3.Address, pace store.Pace) error {
	const op = "store.verify"
	ctx, cancel, err := s.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	for attempt := 1; ; attempt++ {
		found, err := s.find(ctx, op, a)
		if err != nil {
			return err
		}
		l := s.newOpenObject(a)
		l.version.Store(&objectVersion{key: found.key, etag: found.etag})
		right, err := s.rehash(ctx, op, l, found.size, pace)
		switch {
		case err == nil:
			return s.ensureTree(ctx, op, l, found.size, right)
		case !errors.Is(err, b3.ErrMismatch):
			return err
		case attempt > 1:
			return s.quarantineObject(ctx, op, l, err)
		}
	}
}

// rehash reads the whole object and returns its tree, if the object matches its
// address.
func (s *Store) rehash(ctx context.Context, op string, l *openObject, size int64, pace store.Pace) (b3.Outboard, error) {
	hasher := b3.NewTreeHasher()
	src := &stream{bucket: s.bucket, object: l, ctx: ctx, op: op, size: size, end: size}
	defer src.close()
	buffer := make([]byte, min(size, maxSmall))
	for size > 0 {
		chunk := buffer[:min(size, int64(len(buffer)))]
		if pace != nil {
			if err := pace(ctx, int64(len(chunk))); err != nil {
				return nil, fault.Wrap(op, err)
			}
		}
		if _, err := src.readFull(chunk, hasher.N()); errors.Is(err, errWrongSize) {
			break
		} else if err != nil {
			return nil, err
		}
		_, _ = hasher.Write(chunk) // it never fails
		size -= int64(len(chunk))
	}
	if got := hasher.Sum(); got != l.address {
		return nil, fault.Wrap(op, &b3.Mismatch{Want: l.address, Got: got})
	}
	return hasher.Outboard(), nil
}

// ensureTree writes the tree of a verified object, unless it exists.
func (s *Store) ensureTree(ctx context.Context, op string, l *openObject, size int64, right b3.Outboard) error {
	if size <= maxSmall {
		return nil
	}
	same, err := l.tree.matchesStored(ctx, op, right)
	if err != nil || same {
		return err
	}
	return hideUnauthorized(s.bucket.put(ctx, op, l.tree.key, right))
}

// rebuildTree replaces a wrong tree by one built from the object, if the object
// matches its address, and quarantines the object if it does not. For an object
// that is no longer visible, the tree is kept in memory only.
func (s *Store) rebuildTree(ctx context.Context, op string, l *openObject, size int64) error {
	right, err := s.rehash(ctx, op, l, size, nil)
	if errors.Is(err, b3.ErrMismatch) {
		return s.quarantineObject(ctx, op, l, err)
	}
	if err != nil {
		return err
	}
	l.tree.setWhole(right)
	if s.lookupOpen(l.address) != l {
		return nil
	}
	return hideUnauthorized(s.bucket.put(ctx, op, l.tree.key, right))
}

// quarantineObject makes a corrupt object invisible, and returns the error for
// the caller. The bytes are moved into quarantine, where an operator can
// inspect them. If another node, or another request, was faster, nothing is
// done or counted.
func (s *Store) quarantineObject(ctx context.Context, op string, l *openObject, mismatch error) error {
	bad := l.version.Load()
	moved := s.withStripe(ctx, op, l.address, func(ctx context.Context) error {
		found, err := s.find(ctx, op, l.address)
		if fault.KindOf(err) == fault.NotFound || err == nil && !bad.matches(found) {
			return nil
		}
		s.integrityFails.Add(1)
		if err != nil {
			return err
		}
		return s.moveToQuarantine(ctx, op, l.address, found)
	})
	return &fault.Error{
		Op: op, Kind: fault.IntegrityFail, Detail: l.address.String() + " is corrupt in the object store",
		Next: "Put the object again from a good copy. What was found is kept under " + folderQuarantine + " in the bucket.",
		Err:  errors.Join(mismatch, moved),
	}
}

// moveToQuarantine moves an object into quarantine. The caller holds the
// stripe.
func (s *Store) moveToQuarantine(ctx context.Context, op string, a b3.Address, found item) error {
	kept, err := s.bucket.copy(ctx, op, found, s.bucket.quarantineKey(a))
	if err != nil {
		return hideUnauthorized(err)
	}
	l := s.lookupOpen(a)
	if l != nil && found.size > maxSmall {
		l.tree.prefetch(ctx, op, found.size)
		s.relocate(ctx, l, kept, false)
	}
	return s.removeObject(ctx, op, a, found, l)
}
