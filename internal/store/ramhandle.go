package store

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
)

// ramHandle is a handle of an object in RAM.
type ramHandle struct {
	ram    *RAM
	object *object
	closed atomic.Bool
}

func (h *ramHandle) Address() b3.Address { return h.object.address }
func (h *ramHandle) Size() int64         { return h.object.size }

// Bytes returns an object of one block without copying.
func (h *ramHandle) Bytes() ([]byte, bool) {
	if h.closed.Load() || len(h.object.blocks) > 1 {
		return nil, false
	}
	if len(h.object.blocks) == 0 {
		return []byte{}, true
	}
	block := h.object.blocks[0]
	return block[:len(block):len(block)], true
}

// ReadAt copies from the object, as io.ReaderAt requires.
func (h *ramHandle) ReadAt(p []byte, off int64) (n int, err error) {
	if err := h.checkOpen("store.read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fault.Wrap("store.read", &b3.OutOfRange{Off: off, N: int64(len(p)), Size: h.object.size})
	}
	for n < len(p) && off < h.object.size {
		chunk := h.object.bytesAt(off)
		if len(chunk) == 0 {
			return n, fault.Wrap("store.read", errHandleClosed)
		}
		copied := copy(p[n:], chunk)
		n += copied
		off += int64(copied)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteTo writes the whole object.
func (h *ramHandle) WriteTo(w io.Writer) (int64, error) {
	return h.WriteRange(w, 0, h.object.size)
}

// WriteRange writes a part of the object, without copying.
func (h *ramHandle) WriteRange(w io.Writer, off, n int64) (written int64, err error) {
	const op = "store.write"
	if err := h.checkOpen(op); err != nil {
		return 0, err
	}
	size := h.object.size
	if off < 0 || n < 0 || off > size || n > size-off {
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: n, Size: size})
	}
	for written < n {
		chunk := h.object.bytesAt(off + written)
		if len(chunk) == 0 {
			return written, fault.Wrap(op, errHandleClosed)
		}
		chunk = chunk[:min(int64(len(chunk)), n-written)]
		m, err := w.Write(chunk)
		written += int64(m)
		if err == nil && m < len(chunk) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, fault.Wrap(op, err)
		}
	}
	return written, nil
}

// Close releases the object.
func (h *ramHandle) Close() error {
	if !h.closed.Swap(true) {
		h.ram.release(h.object)
	}
	return nil
}

// errHandleClosed is a programming error, hence of no kind of its own.
var errHandleClosed = errors.Join(errors.New("the handle is closed"), fs.ErrClosed)

func (h *ramHandle) checkOpen(op string) error {
	if h.closed.Load() {
		return fault.Wrap(op, errHandleClosed)
	}
	return nil
}

// bytesAt returns the bytes at an offset within the object, up to the end of
// their block. There are none only if the handle was closed in the middle of a
// read, which is a programming error, but must not become an endless loop.
func (o *object) bytesAt(off int64) []byte {
	block := o.blocks[off/slabSize]
	return block[min(off%slabSize, int64(len(block))):]
}
