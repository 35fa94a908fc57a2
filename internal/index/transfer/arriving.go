package transfer

import (
	"context"
	"errors"
	"io"
	"sync"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/store"
)

// Arriving is an object that can be read while it arrives. Reads wait for their
// bytes, and are verified.
type Arriving struct {
	// set at construction
	ctx      context.Context // of all reads, which is why it is kept
	transfer *Transfer
	open     func(ctx context.Context, a b3.Address) (store.Handle, error)
	onClose  func()
	onlyHere bool // reads do not wait

	mu     sync.Mutex   //lockblock:leaf assignments
	stored store.Handle // guarded by mu: once all of it has arrived
	closed bool         // guarded by mu
}

// NewArriving opens the object of a transfer. Open opens it in the store when the
// transfer is done. The caller must close the handle.
func NewArriving(ctx context.Context, t *Transfer, open func(ctx context.Context, a b3.Address) (store.Handle, error)) *Arriving {
	return &Arriving{ctx: ctx, transfer: t, open: open, onClose: func() {}}
}

// NewHere is NewArriving for another node: a read of what is not here yet is
// NotReady at once.
func NewHere(ctx context.Context, t *Transfer, open func(ctx context.Context, a b3.Address) (store.Handle, error)) *Arriving {
	h := NewArriving(ctx, t, open)
	h.onlyHere = true
	return h
}

// Tree returns the tree of the object, all of which is proven. It must not be
// changed.
func (h *Arriving) Tree() b3.Outboard { return h.transfer.spec.Tree }

// Parts returns which parts of the object are here, and which are on their way.
func (h *Arriving) Parts() oap.Parts { return h.transfer.Parts() }

// OnClose sets what is called when the handle is closed.
func (h *Arriving) OnClose(call func()) *Arriving {
	h.onClose = sync.OnceFunc(call)
	return h
}

// Address returns the address of the object.
func (h *Arriving) Address() b3.Address { return h.transfer.spec.Address }

// Size returns the size of the object. It is proven.
func (h *Arriving) Size() int64 { return h.transfer.spec.Size }

// Bytes returns nothing: the object is not contiguous in memory.
func (h *Arriving) Bytes() ([]byte, bool) { return nil, false }

// readSome reads at least one byte.
func (h *Arriving) readSome(p []byte, off int64) (int, error) {
	h.mu.Lock()
	stored := h.stored
	h.mu.Unlock()
	if stored == nil {
		n, err := h.readTransfer(p, off)
		if !errors.Is(err, store.ErrArrived) {
			return n, err
		}
		if stored, err = h.openStored(); err != nil {
			return 0, err
		}
	}
	return stored.ReadAt(p, off)
}

func (h *Arriving) readTransfer(p []byte, off int64) (int, error) {
	if h.onlyHere {
		return h.transfer.ReadHere(p, off)
	}
	return h.transfer.ReadAt(h.ctx, p, off)
}

// openStored opens the object in the store, which has all of it by now, but may
// still be busy with making it an object: until then nothing can be opened. Of
// two readers that do so at a time the first wins.
func (h *Arriving) openStored() (store.Handle, error) {
	stored, err := h.open(h.ctx, h.Address())
	if fault.KindOf(err) == fault.NotFound {
		if h.onlyHere && !h.transfer.isClosed() {
			return nil, fault.New(op, fault.NotReady, "%s is being stored", h.Address())
		}
		if err := h.transfer.awaitClosed(h.ctx); err != nil {
			return nil, err
		}
		stored, err = h.open(h.ctx, h.Address())
	}
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	keep, closed := h.stored, h.closed
	if keep == nil && !closed {
		h.stored, keep = stored, stored
	}
	h.mu.Unlock()
	if keep != stored {
		_ = stored.Close() // it was not read
	}
	if closed {
		return nil, fault.New("store.read", fault.Canceled, "the handle is closed")
	}
	return keep, nil
}

// ReadAt reads as io.ReaderAt requires.
func (h *Arriving) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		if off+int64(n) >= h.Size() {
			return n, io.EOF
		}
		got, err := h.readSome(p[n:], off+int64(n))
		if n += got; err != nil && (err != io.EOF || got == 0) {
			return n, err
		}
	}
	return n, nil
}

// WriteTo writes the whole object.
func (h *Arriving) WriteTo(w io.Writer) (int64, error) { return h.WriteRange(w, 0, h.Size()) }

// WriteRange writes a part of the object as it arrives.
func (h *Arriving) WriteRange(w io.Writer, off, n int64) (written int64, err error) {
	if off < 0 || n < 0 || off > h.Size() || n > h.Size()-off {
		return 0, fault.Wrap("store.write", &b3.OutOfRange{Off: off, N: n, Size: h.Size()})
	}
	buffer := make([]byte, min(n, 256<<10))
	for written < n {
		got, err := h.readSome(buffer[:min(int64(len(buffer)), n-written)], off+written)
		if got > 0 {
			m, err := w.Write(buffer[:got])
			if written += int64(m); err != nil {
				return written, fault.Wrap("store.write", err)
			}
		} else if err != nil {
			return written, fault.Wrap("store.write", err)
		}
	}
	return written, nil
}

// Close releases the object. A second Close does nothing.
func (h *Arriving) Close() error {
	h.mu.Lock()
	stored := h.stored
	h.stored, h.closed = nil, true
	h.mu.Unlock()
	h.onClose()
	if stored == nil {
		return nil
	}
	return stored.Close()
}
