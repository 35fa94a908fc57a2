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

// handle is a handle of an object. A small one is in memory, verified. Of a
// larger one ranges are fetched and verified when they are read.
type handle struct {
	// set at construction
	store  *Store
	object *openObject
	ctx    context.Context // bounds the reads
	size   int64           // proved by the tree
	whole  []byte          // all of a small object; not nil
	prefix []byte          // the first bytes of a large one, not verified

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
	l := s.retain(a)
	h := &handle{store: s, object: l, ctx: ctx}
	if err := h.open(opening, op); err != nil {
		s.release(ctx, l)
		return nil, err
	}
	return h, nil
}

// open fetches the beginning of the object. If that is all of it, it must match
// the address; otherwise the tree must match its size. A mismatch is fetched a
// second time before anything is done about it: connections and proxies fail
// too.
func (h *handle) open(ctx context.Context, op string) error {
	a := h.object.address
	var mismatch error
	for range 2 {
		found, err := h.fetch(ctx, op)
		if err != nil {
			return err
		}
		if !h.store.setVersion(h.object, found) {
			return notFound(op, a)
		}
		if h.size > maxSmall {
			return h.withTree(ctx, op, func(trees io.ReaderAt, _ bool) (int64, bool, error) {
				_, err := b3.Open(a, h.size, trees, nil)
				return 0, false, err
			})
		}
		got := b3.Of(h.prefix)
		if got == a {
			h.whole, h.prefix = h.prefix, nil
			return nil
		}
		mismatch = &b3.Mismatch{Want: a, Got: got}
	}
	return h.store.quarantineObject(ctx, op, h.object, mismatch)
}

// fetch gets the first bytes of the object.
func (h *handle) fetch(ctx context.Context, op string) (item, error) {
	a, b := h.object.address, h.store.bucket
	data, found, err := b.fetch(ctx, op, b.dataKey(a), 0, maxSmall)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return item{}, notFound(op, a)
	case hasStatus(err, http.StatusRequestedRangeNotSatisfiable): // an empty object has no satisfiable range
		data, found, err = []byte{}, item{key: b.dataKey(a)}, nil
	}
	h.size, h.prefix = found.size, data
	return found, hideUnauthorized(err)
}

// withTree runs do with a tree that is not trusted and, on a mismatch, runs it
// again: first with everything fetched again, then with a tree built from the
// object itself. What does not match even then is the object's fault. It
// continues as long as there is progress.
//
// The function returns how far it got, and whether a mismatch is the fault of
// the object itself: it is if the whole path through the tree was right.
func (h *handle) withTree(ctx context.Context, op string, do func(tree io.ReaderAt, fresh bool) (int64, bool, error)) error {
	rebuilt, fresh := false, false
	for {
		progress, object, err := do(h.object.tree.reader(ctx, op, h.size), fresh)
		if !errors.Is(err, b3.ErrMismatch) {
			return err
		}
		switch {
		case !fresh || progress > 0:
			h.object.tree.clear()
			fresh = true
		case object || rebuilt:
			return h.store.quarantineObject(ctx, op, h.object, err)
		default:
			if err := h.store.rebuildTree(ctx, op, h.object, h.size); err != nil {
				return err
			}
			rebuilt = true
		}
	}
}

func (h *handle) Address() b3.Address { return h.object.address }
func (h *handle) Size() int64         { return h.size }

// Bytes returns a small object without copying.
func (h *handle) Bytes() ([]byte, bool) {
	if h.closed.Load() || h.whole == nil {
		return nil, false
	}
	return h.whole[:len(h.whole):len(h.whole)], true
}

// ReadAt reads a range, as io.ReaderAt requires. For a large object each call
// is a request to the object store; WriteRange is the better way.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	const op = "store.read"
	if err := h.checkOpen(op); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: int64(len(p)), Size: h.size})
	}
	n := min(int64(len(p)), max(0, h.size-off))
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	into := sliceWriter{p: p[:n]}
	written, err := h.write(op, &into, min(off, h.size), n)
	if err == nil && n < int64(len(p)) {
		err = io.EOF
	}
	return int(written), err
}

// sliceWriter accepts as many bytes as fit.
type sliceWriter struct {
	p []byte
	n int
}

func (s *sliceWriter) Write(p []byte) (int, error) {
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
	if err := h.checkOpen(op); err != nil {
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
		err = writeAll(w, h.whole[off:off+n], &written)
		return written, fault.Wrap(op, err)
	}
	if err := flow.Ended(h.ctx, op); err != nil {
		return 0, err
	}
	err = h.withTree(h.ctx, op, func(tree io.ReaderAt, fresh bool) (int64, bool, error) {
		before := written
		object, err := h.writeVerified(op, tree, fresh, w, off+written, n-written, &written)
		return written - before, object, err
	})
	return written, fault.Wrap(op, err)
}

// buffers are what verified bytes are collected in before they are written.
var buffers = sync.Pool{New: func() any { return new([4 * b3.GroupSize]byte) }}

// writeVerified writes a range. With an error it reports whether the object is
// at fault: then the last group that was read was not written.
func (h *handle) writeVerified(op string, tree io.ReaderAt, fresh bool, w io.Writer, off, n int64, written *int64) (object bool, err error) {
	begin := off / b3.GroupSize * b3.GroupSize
	end := min(h.size, (off+n+b3.GroupSize-1)/b3.GroupSize*b3.GroupSize)
	src := &stream{bucket: h.store.bucket, object: h.object, ctx: h.ctx, op: op, size: h.size, end: end, next: begin}
	if !fresh {
		src.prefix = h.prefix
	}
	defer src.close()
	verified, err := b3.Open(h.object.address, h.size, tree, src)
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
		if failed := writeAll(w, buffer[:got], written); failed != nil {
			return false, failed
		}
		if err != nil {
			return src.next > off+n-left, err
		}
	}
	return false, nil
}

// writeAll writes all of p and counts it.
func writeAll(w io.Writer, p []byte, written *int64) error {
	n, err := w.Write(p)
	*written += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// Close releases the object. If it was deleted meanwhile and this was its last
// handle, its temporary copy is removed.
func (h *handle) Close() error {
	if !h.closed.Swap(true) {
		h.store.release(h.ctx, h.object)
	}
	return nil
}

// errHandleClosed is a programming error, hence of no kind of its own.
var errHandleClosed = errors.Join(errors.New("the handle is closed"), fs.ErrClosed)

func (h *handle) checkOpen(op string) error {
	if h.closed.Load() {
		return fault.Wrap(op, errHandleClosed)
	}
	return nil
}
