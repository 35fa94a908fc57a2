package s3

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// handle is a claim on an object. A small one is in memory, verified. Of a
// larger one ranges are fetched and verified as they are asked for.
type handle struct {
	// set at construction
	store *Store
	life  *life
	ctx   context.Context // bounds the reads
	size  int64           // proved by the tree
	whole []byte          // all of a small object; not nil
	head  []byte          // the first bytes of a large one, not verified

	closed atomic.Bool
}

// Open finds an object and proves its size; a small one it fetches and verifies
// whole. The context bounds the reads from the handle too.
func (s *Store) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	const op = "store.open"
	opening, cancel, err := s.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer cancel()
	l := s.join(a)
	h := &handle{store: s, life: l, ctx: ctx}
	if err := h.open(opening, op); err != nil {
		s.leave(ctx, l)
		return nil, err
	}
	return h, nil
}

// open fetches the beginning of the object. If that is all of it, it must be
// right; otherwise the tree must fit its size. What does not fit is looked at a
// second time before anything is done about it: lines and proxies fail too.
func (h *handle) open(ctx context.Context, op string) error {
	a := h.life.address
	var verdict error
	for range 2 {
		found, err := h.fetch(ctx, op)
		if err != nil {
			return err
		}
		if !h.store.settle(h.life, found) {
			return notFound(op, a)
		}
		if h.size > small {
			return h.trusting(ctx, op, func(trees io.ReaderAt, _ bool) (int64, bool, error) {
				_, err := b3.Open(a, h.size, trees, nil)
				return 0, false, err
			})
		}
		got := b3.Of(h.head)
		if got == a {
			h.whole, h.head = h.head, nil
			return nil
		}
		verdict = &b3.Mismatch{Want: a, Got: got}
	}
	return h.store.condemn(ctx, op, h.life, verdict)
}

// fetch gets the first bytes of the object.
func (h *handle) fetch(ctx context.Context, op string) (item, error) {
	a, b := h.life.address, h.store.bucket
	data, found, err := b.fetch(ctx, op, b.data(a), 0, small)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return item{}, notFound(op, a)
	case answered(err, http.StatusRequestedRangeNotSatisfiable): // of an object without bytes there is no range
		data, found, err = []byte{}, item{key: b.data(a)}, nil
	}
	h.size, h.head = found.size, data
	return found, running(err)
}

// trusting does something that needs a tree which is not trusted, and, if what
// it finds does not fit, does it again: first with everything fetched anew, then
// with a tree made from the object itself. What does not fit even then is the
// object's fault. As long as there is progress, it goes on.
//
// The function tells how far it came, and whether, of what did not fit, the
// object itself is to blame: that is so when all of the tree on the way to it
// was right.
func (h *handle) trusting(ctx context.Context, op string, do func(tree io.ReaderAt, fresh bool) (int64, bool, error)) error {
	mended, fresh := false, false
	for {
		progress, object, err := do(h.life.tree.at(ctx, op, h.size), fresh)
		if !errors.Is(err, b3.ErrMismatch) {
			return err
		}
		switch {
		case !fresh || progress > 0:
			h.life.tree.forget()
			fresh = true
		case object || mended:
			return h.store.condemn(ctx, op, h.life, err)
		default:
			if err := h.store.mend(ctx, op, h.life, h.size); err != nil {
				return err
			}
			mended = true
		}
	}
}

func (h *handle) Address() b3.Address { return h.life.address }
func (h *handle) Size() int64         { return h.size }

// Bytes gives a small object as it is.
func (h *handle) Bytes() ([]byte, bool) {
	if h.closed.Load() || h.whole == nil {
		return nil, false
	}
	return h.whole[:len(h.whole):len(h.whole)], true
}

// ReadAt reads a range, as io.ReaderAt says. For a large object each call is a
// request to the object store; WriteRange is the better way.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	const op = "store.read"
	if err := h.check(op); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: int64(len(p)), Size: h.size})
	}
	n := min(int64(len(p)), max(0, h.size-off))
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	into := sink{p: p[:n]}
	written, err := h.write(op, &into, min(off, h.size), n)
	if err == nil && n < int64(len(p)) {
		err = io.EOF
	}
	return int(written), err
}

// sink takes as many bytes as it has room for.
type sink struct {
	p []byte
	n int
}

func (s *sink) Write(p []byte) (int, error) {
	n := copy(s.p[s.n:], p)
	s.n += n
	return n, nil
}

// WriteTo writes the whole object.
func (h *handle) WriteTo(w io.Writer) (int64, error) {
	return h.WriteRange(w, 0, h.size)
}

// WriteRange writes a part of the object, and nothing that was not verified.
func (h *handle) WriteRange(w io.Writer, off, n int64) (int64, error) {
	const op = "store.write"
	if err := h.check(op); err != nil {
		return 0, err
	}
	if off < 0 || n < 0 || off > h.size || n > h.size-off {
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: n, Size: h.size})
	}
	return h.write(op, w, off, n)
}

func (h *handle) write(op string, w io.Writer, off, n int64) (written int64, err error) {
	switch {
	case n == 0:
		return 0, nil
	case h.whole != nil:
		err = give(w, h.whole[off:off+n], &written)
		return written, fault.Wrap(op, err)
	}
	if err := flow.Ended(h.ctx, op); err != nil {
		return 0, err
	}
	err = h.trusting(h.ctx, op, func(tree io.ReaderAt, fresh bool) (int64, bool, error) {
		before := written
		object, err := h.pour(op, tree, fresh, w, off+written, n-written, &written)
		return written - before, object, err
	})
	return written, fault.Wrap(op, err)
}

// buffers are what verified bytes are collected in before they are written.
var buffers = sync.Pool{New: func() any { return new([4 * b3.GroupSize]byte) }}

// pour writes a range. Of an error it tells whether the object is to blame for
// it: the last group that was read was then not given out.
func (h *handle) pour(op string, tree io.ReaderAt, fresh bool, w io.Writer, off, n int64, written *int64) (object bool, err error) {
	begin := off / b3.GroupSize * b3.GroupSize
	end := min(h.size, (off+n+b3.GroupSize-1)/b3.GroupSize*b3.GroupSize)
	src := &stream{bucket: h.store.bucket, life: h.life, ctx: h.ctx, op: op, size: h.size, end: end, next: begin}
	if !fresh {
		src.head = h.head
	}
	defer src.close()
	verified, err := b3.Open(h.life.address, h.size, tree, src)
	if err != nil {
		return false, err
	}
	r, err := verified.Range(off, n)
	if err != nil {
		return false, err
	}
	buffer := buffers.Get().(*[4 * b3.GroupSize]byte)
	defer buffers.Put(buffer)
	for left := n; left > 0; {
		got, err := io.ReadFull(r, buffer[:min(left, int64(len(buffer)))])
		left -= int64(got)
		if failed := give(w, buffer[:got], written); failed != nil {
			return false, failed
		}
		if err != nil {
			return src.next > off+n-left, err
		}
	}
	return false, nil
}

// give writes all of p and counts it.
func give(w io.Writer, p []byte, written *int64) error {
	n, err := w.Write(p)
	*written += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// Close gives the claim up. If it was the last one on an object that was
// deleted meanwhile, what was kept aside for it is removed.
func (h *handle) Close() error {
	if !h.closed.Swap(true) {
		h.store.leave(h.ctx, h.life)
	}
	return nil
}

// errHandleClosed is a mistake of the program, hence of no kind of its own.
var errHandleClosed = errors.Join(errors.New("the handle is closed"), fs.ErrClosed)

func (h *handle) check(op string) error {
	if h.closed.Load() {
		return fault.Wrap(op, errHandleClosed)
	}
	return nil
}
