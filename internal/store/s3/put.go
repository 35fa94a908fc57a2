package s3

import (
	"context"
	"io"
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

const opPut = "store.put"

// partSize is how much of a body is in memory at a time. A body of one part is
// sent at once, a larger one as a multipart upload.
const partSize = 8 << 20

// Put stores an object.
//
// An error of the last call may leave the object stored, complete and correct,
// because the response was lost; putting it again is always safe.
func (s *Store) Put(ctx context.Context, src io.Reader, opt store.PutOptions) (store.Info, bool, error) {
	ctx, cancel, err := s.begin(ctx, opPut)
	if err != nil {
		return store.Info{}, false, err
	}
	defer cancel()
	info, created, err := s.put(ctx, src, opt)
	switch fault.KindOf(err) {
	case fault.StoreFull:
		s.refusals.Add(1)
	case fault.IntegrityFail:
		s.mismatches.Add(1)
	}
	return info, created, err
}

// put is Put without its counters.
func (s *Store) put(ctx context.Context, src io.Reader, opt store.PutOptions) (store.Info, bool, error) {
	if opt.Size < store.Unknown {
		return store.Info{}, false, fault.New(opPut, fault.Malformed, "a size of %d bytes", opt.Size)
	}
	if !opt.Want.IsZero() {
		if info, here, err := s.findForPut(ctx, opt.Want, opt.Class); here || err != nil {
			return info, false, err
		}
	}
	if opt.Size > s.maxObject {
		return store.Info{}, false, s.tooLarge(opt.Size)
	}
	if err := s.acquire(ctx, opPut, s.putPermits); err != nil {
		return store.Info{}, false, err
	}
	defer s.putPermits.Release()
	in := &bucketPut{store: s, src: src, opt: opt}
	if err := in.readPart(ctx); err != nil {
		return store.Info{}, false, err
	}
	if in.atEnd {
		return in.sendWhole(ctx)
	}
	return in.sendParts(ctx)
}

// findForPut finds an existing object and returns the result of a Put of it.
func (s *Store) findForPut(ctx context.Context, a b3.Address, class store.Class) (info store.Info, here bool, err error) {
	err = s.withStripe(ctx, opPut, a, func(ctx context.Context) error {
		found, err := s.find(ctx, opPut, a)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		here = true
		info, err = s.putExisting(ctx, a, found.size, class)
		return err
	})
	return info, here, err
}

// putExisting does what a Put of an existing object does. The caller holds the
// stripe.
func (s *Store) putExisting(ctx context.Context, a b3.Address, size int64, class store.Class) (info store.Info, err error) {
	info = store.Info{Address: a, Size: size}
	before, err := s.class(ctx, opPut, a)
	if err != nil {
		return info, err
	}
	info.Class = before.With(class)
	return info, s.setClass(ctx, opPut, a, size, before, info.Class)
}

// bucketPut is a body that is being uploaded. It belongs to the one Put that
// made it.
type bucketPut struct {
	// set at construction
	store *Store
	src   io.Reader
	opt   store.PutOptions

	size   int64  // how much was read
	buffer []byte // a part, and one byte more if there is more
	atEnd  bool   // all was read
	hasher *b3.TreeHasher
}

// readPart reads until there is a part, and one byte more to know that it is
// not the last; or until the body ends.
func (p *bucketPut) readPart(ctx context.Context) error {
	for len(p.buffer) <= partSize {
		p.growBuffer()
		n, err := store.ReadBody(ctx, p.src, p.buffer[len(p.buffer):min(cap(p.buffer), partSize+1)])
		p.buffer = p.buffer[:len(p.buffer)+n]
		p.size += int64(n)
		switch {
		case p.opt.Size != store.Unknown && p.size > p.opt.Size:
			return fault.New(opPut, fault.Malformed, "%d bytes were declared, but more arrived", p.opt.Size)
		case p.size > p.store.maxObject:
			return p.store.tooLarge(p.size)
		case err == io.EOF:
			return p.finishBody(ctx)
		case err != nil:
			return store.BodyFault(ctx, err)
		}
	}
	return nil
}

// growBuffer makes space for at least one byte. The declared size is trusted up
// to a part, so that a body of known size is not copied repeatedly.
func (p *bucketPut) growBuffer() {
	const first = 16 << 10
	if len(p.buffer) < cap(p.buffer) {
		return
	}
	want := max(first, 2*cap(p.buffer))
	if p.opt.Size != store.Unknown {
		want = int(min(p.opt.Size, partSize)) + 1
	}
	p.buffer = slices.Grow(p.buffer, min(want, partSize+1)-len(p.buffer))
}

func (p *bucketPut) finishBody(ctx context.Context) error {
	if p.opt.Size != store.Unknown && p.size < p.opt.Size {
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, but %d arrived", p.opt.Size, p.size)
	}
	p.atEnd = true
	return flow.Ended(ctx, opPut)
}

// checkWant compares the computed address with the wanted one.
func (p *bucketPut) checkWant(a b3.Address) error {
	if p.opt.Want.IsZero() || a == p.opt.Want {
		return nil
	}
	return fault.Wrap(opPut, &b3.Mismatch{Want: p.opt.Want, Got: a})
}

// sendWhole puts a body that is in memory.
func (p *bucketPut) sendWhole(ctx context.Context) (store.Info, bool, error) {
	var outboard b3.Outboard
	var a b3.Address
	if p.size <= maxSmall {
		a = b3.Of(p.buffer)
	} else {
		tree := b3.NewTreeHasher()
		_, _ = tree.Write(p.buffer) // it never fails
		a, outboard = tree.Sum(), tree.Outboard()
	}
	if err := p.checkWant(a); err != nil {
		return store.Info{}, false, err
	}
	b := p.store.bucket
	return p.store.commit(ctx, store.Info{Address: a, Size: p.size, Class: p.opt.Class}, outboard, func(ctx context.Context) (bool, error) {
		return b.putNew(ctx, opPut, b.dataKey(a), p.buffer)
	})
}

// sendParts puts a body that is larger than what may be in memory. If its
// address is known, the parts go there, and are completed only if the bytes are
// right. Otherwise they go to a temporary key and are copied when the address
// is known. A little of the caller's time is reserved for cleaning up.
func (p *bucketPut) sendParts(ctx context.Context) (store.Info, bool, error) {
	b := p.store.bucket
	key := b.temporaryKey()
	if !p.opt.Want.IsZero() {
		key = b.dataKey(p.opt.Want)
	}
	working, cancel := reserveCleanup(ctx)
	defer cancel()
	up, err := b.beginUpload(working, opPut, key)
	if err != nil {
		return store.Info{}, false, hideUnauthorized(err)
	}
	p.hasher = b3.NewTreeHasher()
	info, created, err := p.completeUpload(working, up)
	if err != nil || !created || p.opt.Want.IsZero() {
		p.cleanUp(ctx, up)
	}
	return info, created, err
}

// reserveCleanup reserves a little of the remaining time.
func reserveCleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	left, _ := flow.Remaining(ctx)
	return flow.Reserve(ctx, min(left/10, 500*time.Millisecond))
}

// completeUpload sends all parts and makes the object visible.
func (p *bucketPut) completeUpload(ctx context.Context, up *upload) (store.Info, bool, error) {
	if err := p.sendAll(ctx, up); err != nil {
		return store.Info{}, false, hideUnauthorized(err)
	}
	info := store.Info{Address: p.hasher.Sum(), Size: p.size, Class: p.opt.Class}
	if err := p.checkWant(info.Address); err != nil {
		return store.Info{}, false, err
	}
	if !p.opt.Want.IsZero() {
		return p.store.commit(ctx, info, p.hasher.Outboard(), up.complete)
	}
	if _, err := up.complete(ctx); err != nil {
		return store.Info{}, false, hideUnauthorized(err)
	}
	return p.store.commit(ctx, info, p.hasher.Outboard(), func(ctx context.Context) (bool, error) {
		return p.publish(ctx, item{key: up.key, size: p.size}, p.store.bucket.dataKey(info.Address))
	})
}

// sendAll sends the body, a part at a time.
func (p *bucketPut) sendAll(ctx context.Context, up *upload) error {
	for {
		chunk := p.buffer[:min(len(p.buffer), partSize)]
		_, _ = p.hasher.Write(chunk) // it never fails
		if err := up.add(ctx, chunk); err != nil {
			return err
		}
		if p.atEnd {
			return nil
		}
		p.buffer = p.buffer[:copy(p.buffer, p.buffer[len(chunk):])]
		if err := p.readPart(ctx); err != nil {
			return err
		}
	}
}

// publish copies a temporary key to its address, unless that exists. A plain
// copy would replace it; an upload whose only part is a copy can be completed
// on a condition.
func (p *bucketPut) publish(ctx context.Context, from item, to string) (bool, error) {
	up, err := p.store.bucket.beginUpload(ctx, opPut, to)
	if err != nil {
		return false, err
	}
	err = up.addCopy(ctx, from)
	created := false
	if err == nil {
		created, err = up.complete(ctx)
	}
	if !created {
		p.cleanUp(ctx, up)
	}
	return created, err
}

// cleanUp removes the remains of an upload: its parts, or its temporary key.
// What cannot be removed now is removed by a later start.
func (p *bucketPut) cleanUp(ctx context.Context, up *upload) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = up.abort(ctx)
	if b := p.store.bucket; b.isTemporary(up.key) {
		_ = b.remove(ctx, opPut, up.key)
	}
}

// commit makes an object visible, unless it exists by now: first its tree,
// which is not looked for before the object exists, then the object, then the
// pinned/ key.
func (s *Store) commit(ctx context.Context, info store.Info, tree b3.Outboard, publish func(ctx context.Context) (bool, error)) (kept store.Info, created bool, err error) {
	a := info.Address
	err = s.withStripe(ctx, opPut, a, func(ctx context.Context) error {
		_, err := s.find(ctx, opPut, a)
		if fault.KindOf(err) == fault.NotFound {
			created, err = s.writeObject(ctx, a, tree, publish)
		}
		if err != nil {
			return err
		}
		if created {
			s.objects.Add(1)
			s.bytes.Add(info.Size)
		}
		if created {
			kept = info
			return s.setClass(ctx, opPut, a, info.Size, store.Cached, info.Class)
		}
		kept, err = s.putExisting(ctx, a, info.Size, info.Class)
		return err
	})
	return kept, created && err == nil, err
}

// writeObject writes the tree and the object. A tree without an object is
// removed again.
func (s *Store) writeObject(ctx context.Context, a b3.Address, tree b3.Outboard, publish func(ctx context.Context) (bool, error)) (bool, error) {
	if len(tree) > 0 {
		if err := s.bucket.put(ctx, opPut, s.bucket.treeKey(a), tree); err != nil {
			return false, hideUnauthorized(err)
		}
	}
	created, err := publish(ctx)
	if err != nil && len(tree) > 0 {
		ctx, cancel := cleanupContext(ctx)
		defer cancel()
		if there, lost := s.bucket.has(ctx, opPut, s.bucket.dataKey(a)); !there && lost == nil {
			_ = s.bucket.remove(ctx, opPut, s.bucket.treeKey(a))
		}
	}
	return created, hideUnauthorized(err)
}

// tooLarge rejects a body that can never be stored.
func (s *Store) tooLarge(size int64) error {
	return fault.New(opPut, fault.BodyTooLarge, "%d bytes; the maximum of an object is %d", size, s.maxObject).
		Advise("Put it in parts, or raise " + settingMaxObject + ".")
}
