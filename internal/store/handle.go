package store

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
)

// handle is a claim on an object in RAM.
type handle struct {
	ram    *RAM
	object *object
	closed atomic.Bool
}

func (h *handle) Address() b3.Address { return h.object.address }
func (h *handle) Size() int64         { return h.object.size }

// Bytes gives an object of one block as it is.
func (h *handle) Bytes() ([]byte, bool) {
	if h.closed.Load() || len(h.object.blocks) > 1 {
		return nil, false
	}
	if len(h.object.blocks) == 0 {
		return []byte{}, true
	}
	block := h.object.blocks[0]
	return block[:len(block):len(block)], true
}

// ReadAt copies from the object, as io.ReaderAt says.
func (h *handle) ReadAt(p []byte, off int64) (n int, err error) {
	if err := h.check("store.read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fault.Wrap("store.read", &b3.OutOfRange{Off: off, N: int64(len(p)), Size: h.object.size})
	}
	for n < len(p) && off < h.object.size {
		piece := h.object.from(off)
		if len(piece) == 0 {
			return n, fault.Wrap("store.read", errHandleClosed)
		}
		copied := copy(p[n:], piece)
		n += copied
		off += int64(copied)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteTo writes the whole object.
func (h *handle) WriteTo(w io.Writer) (int64, error) {
	return h.WriteRange(w, 0, h.object.size)
}

// WriteRange writes a part of the object, straight from where it lies.
func (h *handle) WriteRange(w io.Writer, off, n int64) (written int64, err error) {
	const op = "store.write"
	if err := h.check(op); err != nil {
		return 0, err
	}
	size := h.object.size
	if off < 0 || n < 0 || off > size || n > size-off {
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: n, Size: size})
	}
	for written < n {
		piece := h.object.from(off + written)
		if len(piece) == 0 {
			return written, fault.Wrap(op, errHandleClosed)
		}
		piece = piece[:min(int64(len(piece)), n-written)]
		m, err := w.Write(piece)
		written += int64(m)
		if err == nil && m < len(piece) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, fault.Wrap(op, err)
		}
	}
	return written, nil
}

// Close gives the claim up.
func (h *handle) Close() error {
	if !h.closed.Swap(true) {
		h.ram.release(h.object)
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

// from returns the bytes at an offset within the object, up to the end of the
// block that they lie in. There are none only if somebody closed the handle in
// the middle of a read, which is a mistake, but must not become a loop.
func (o *object) from(off int64) []byte {
	block := o.blocks[off/slabSize]
	return block[min(off%slabSize, int64(len(block))):]
}
