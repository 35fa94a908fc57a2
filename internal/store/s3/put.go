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

// part is how much of a body is in memory at a time. A body of one part is sent
// in one piece, a larger one as an upload in parts.
const part = 8 << 20

// Put takes an object in.
//
// An error after the last call may leave the object there, whole and right,
// because its answer was lost; putting it again is always safe.
func (s *Store) Put(ctx context.Context, src io.Reader, opt store.PutOptions) (store.Info, bool, error) {
	ctx, cancel, err := s.begin(ctx, opPut)
	if err != nil {
		return store.Info{}, false, err
	}
	defer cancel()
	info, created, err := s.take(ctx, src, opt)
	switch fault.KindOf(err) {
	case fault.StoreFull:
		s.refusals.Add(1)
	case fault.IntegrityFail:
		s.mismatches.Add(1)
	}
	return info, created, err
}

// take is Put without its books.
func (s *Store) take(ctx context.Context, src io.Reader, opt store.PutOptions) (store.Info, bool, error) {
	if opt.Size < store.Unknown {
		return store.Info{}, false, fault.New(opPut, fault.Malformed, "a size of %d bytes", opt.Size)
	}
	if !opt.Want.IsZero() {
		if info, here, err := s.again(ctx, opt.Want, opt.Class); here || err != nil {
			return info, false, err
		}
	}
	if opt.Size > s.maxObject {
		return store.Info{}, false, s.tooLarge(opt.Size)
	}
	if err := s.acquire(ctx, opPut, s.intakes); err != nil {
		return store.Info{}, false, err
	}
	defer s.intakes.Release()
	in := &intake{store: s, src: src, opt: opt}
	if err := in.fill(ctx); err != nil {
		return store.Info{}, false, err
	}
	if in.ended {
		return in.sendWhole(ctx)
	}
	return in.sendParts(ctx)
}

// again finds an object that is here already, as a Put of it would leave it.
func (s *Store) again(ctx context.Context, a b3.Address, class store.Class) (info store.Info, here bool, err error) {
	err = s.alone(ctx, opPut, a, func(ctx context.Context) error {
		found, err := s.find(ctx, opPut, a)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		here = true
		info, err = s.putAgain(ctx, a, found.size, class)
		return err
	})
	return info, here, err
}

// putAgain is what a Put of an object that is here does. It is the caller's
// turn.
func (s *Store) putAgain(ctx context.Context, a b3.Address, size int64, class store.Class) (info store.Info, err error) {
	info = store.Info{Address: a, Size: size}
	if class == store.Pinned {
		return info, s.pin(ctx, opPut, a, size)
	}
	info.Class, err = s.class(ctx, opPut, a)
	return info, err
}

// intake is a body on its way in. It belongs to the one Put that made it.
type intake struct {
	// set at construction
	store *Store
	src   io.Reader
	opt   store.PutOptions

	size   int64  // how much was read
	buffer []byte // a part, and one byte more if there is more
	ended  bool   // all was read
	tree   *b3.TreeHasher
}

// fill reads on until there is a part, and one byte more to know that it is not
// the last; or until the body ends.
func (in *intake) fill(ctx context.Context) error {
	for len(in.buffer) <= part {
		in.grow()
		n, err := store.ReadBody(ctx, in.src, in.buffer[len(in.buffer):min(cap(in.buffer), part+1)])
		in.buffer = in.buffer[:len(in.buffer)+n]
		in.size += int64(n)
		switch {
		case in.opt.Size != store.Unknown && in.size > in.opt.Size:
			return fault.New(opPut, fault.Malformed, "%d bytes were declared, and more came", in.opt.Size)
		case in.size > in.store.maxObject:
			return in.store.tooLarge(in.size)
		case err == io.EOF:
			return in.end(ctx)
		case err != nil:
			return store.BodyFault(ctx, err)
		}
	}
	return nil
}

// grow makes room for at least one byte. What was declared is believed up to a
// part, so that a body of known size is not moved about.
func (in *intake) grow() {
	const first = 16 << 10
	if len(in.buffer) < cap(in.buffer) {
		return
	}
	want := max(first, 2*cap(in.buffer))
	if in.opt.Size != store.Unknown {
		want = int(min(in.opt.Size, part)) + 1
	}
	in.buffer = slices.Grow(in.buffer, min(want, part+1)-len(in.buffer))
}

func (in *intake) end(ctx context.Context) error {
	if in.opt.Size != store.Unknown && in.size < in.opt.Size {
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, and %d came", in.opt.Size, in.size)
	}
	in.ended = true
	return flow.Ended(ctx, opPut)
}

// check compares what came with what was wanted.
func (in *intake) check(a b3.Address) error {
	if in.opt.Want.IsZero() || a == in.opt.Want {
		return nil
	}
	return fault.Wrap(opPut, &b3.Mismatch{Want: in.opt.Want, Got: a})
}

// sendWhole puts a body that is in memory.
func (in *intake) sendWhole(ctx context.Context) (store.Info, bool, error) {
	var outboard b3.Outboard
	var a b3.Address
	if in.size <= small {
		a = b3.Of(in.buffer)
	} else {
		tree := b3.NewTreeHasher()
		_, _ = tree.Write(in.buffer) // it never fails
		a, outboard = tree.Sum(), tree.Outboard()
	}
	if err := in.check(a); err != nil {
		return store.Info{}, false, err
	}
	b := in.store.bucket
	return in.store.commit(ctx, store.Info{Address: a, Size: in.size, Class: in.opt.Class}, outboard, func(ctx context.Context) (bool, error) {
		return b.putNew(ctx, opPut, b.data(a), in.buffer)
	})
}

// sendParts puts a body that is larger than what may be in memory. If its
// address is known, the parts go there, and are completed only if the bytes are
// right. Otherwise they go to a temporary key and are copied when the address is
// known. A little of the caller's time is kept back to tidy up.
func (in *intake) sendParts(ctx context.Context) (store.Info, bool, error) {
	b := in.store.bucket
	key := b.temporary()
	if !in.opt.Want.IsZero() {
		key = b.data(in.opt.Want)
	}
	working, cancel := reserve(ctx)
	defer cancel()
	up, err := b.begin(working, opPut, key)
	if err != nil {
		return store.Info{}, false, running(err)
	}
	in.tree = b3.NewTreeHasher()
	info, created, err := in.finish(working, up)
	if err != nil || !created || in.opt.Want.IsZero() {
		in.tidy(ctx, up)
	}
	return info, created, err
}

// reserve takes a little from the time that is left.
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	left, _ := flow.Remaining(ctx)
	return flow.Reserve(ctx, min(left/10, 500*time.Millisecond))
}

// finish sends all parts and makes the object visible.
func (in *intake) finish(ctx context.Context, up *upload) (store.Info, bool, error) {
	if err := in.stream(ctx, up); err != nil {
		return store.Info{}, false, running(err)
	}
	info := store.Info{Address: in.tree.Sum(), Size: in.size, Class: in.opt.Class}
	if err := in.check(info.Address); err != nil {
		return store.Info{}, false, err
	}
	if !in.opt.Want.IsZero() {
		return in.store.commit(ctx, info, in.tree.Outboard(), up.complete)
	}
	if _, err := up.complete(ctx); err != nil {
		return store.Info{}, false, running(err)
	}
	return in.store.commit(ctx, info, in.tree.Outboard(), func(ctx context.Context) (bool, error) {
		return in.publish(ctx, item{key: up.key, size: in.size}, in.store.bucket.data(info.Address))
	})
}

// stream sends the body, a part at a time.
func (in *intake) stream(ctx context.Context, up *upload) error {
	for {
		now := in.buffer[:min(len(in.buffer), part)]
		_, _ = in.tree.Write(now) // it never fails
		if err := up.add(ctx, now); err != nil {
			return err
		}
		if in.ended {
			return nil
		}
		in.buffer = in.buffer[:copy(in.buffer, in.buffer[len(now):])]
		if err := in.fill(ctx); err != nil {
			return err
		}
	}
}

// publish copies a temporary key to where it belongs, unless something is there.
// A plain copy would replace it; an upload whose only part is a copy can be
// completed on a condition.
func (in *intake) publish(ctx context.Context, from item, to string) (bool, error) {
	up, err := in.store.bucket.begin(ctx, opPut, to)
	if err != nil {
		return false, err
	}
	err = up.addCopy(ctx, from)
	created := false
	if err == nil {
		created, err = up.complete(ctx)
	}
	if !created {
		in.tidy(ctx, up)
	}
	return created, err
}

// tidy removes what an upload left behind: its parts, or what they became under
// a temporary key. What cannot be removed now is swept away some day.
func (in *intake) tidy(ctx context.Context, up *upload) {
	ctx, cancel := aside(ctx)
	defer cancel()
	_ = up.abort(ctx)
	if b := in.store.bucket; b.isTemporary(up.key) {
		_ = b.remove(ctx, opPut, up.key)
	}
}

// commit makes an object visible, unless it has become so meanwhile: first its
// tree, which nobody looks for before the object is there, then the object, then
// the mark of a pinned one.
func (s *Store) commit(ctx context.Context, info store.Info, tree b3.Outboard, publish func(ctx context.Context) (bool, error)) (kept store.Info, created bool, err error) {
	a := info.Address
	err = s.alone(ctx, opPut, a, func(ctx context.Context) error {
		_, err := s.find(ctx, opPut, a)
		if fault.KindOf(err) == fault.NotFound {
			created, err = s.place(ctx, a, tree, publish)
		}
		if err != nil {
			return err
		}
		if created {
			s.objects.Add(1)
			s.bytes.Add(info.Size)
		}
		if created && info.Class == store.Cached {
			kept = info
			return nil
		}
		kept, err = s.putAgain(ctx, a, info.Size, info.Class)
		return err
	})
	return kept, created && err == nil, err
}

// place writes the tree and the object. A tree without an object is removed
// again.
func (s *Store) place(ctx context.Context, a b3.Address, tree b3.Outboard, publish func(ctx context.Context) (bool, error)) (bool, error) {
	if len(tree) > 0 {
		if err := s.bucket.put(ctx, opPut, s.bucket.tree(a), tree); err != nil {
			return false, running(err)
		}
	}
	created, err := publish(ctx)
	if err != nil && len(tree) > 0 {
		ctx, cancel := aside(ctx)
		defer cancel()
		if there, lost := s.bucket.has(ctx, opPut, s.bucket.data(a)); !there && lost == nil {
			_ = s.bucket.remove(ctx, opPut, s.bucket.tree(a))
		}
	}
	return created, running(err)
}

// tooLarge refuses a body that can never be kept.
func (s *Store) tooLarge(size int64) error {
	err := fault.New(opPut, fault.BodyTooLarge, "%d bytes, and an object may have %d", size, s.maxObject)
	err.Next = "Put it in parts, or raise " + setMaxObject + "."
	return err
}
