package store

import (
	"io"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
)

// diskHandle is a handle of an object on disk.
type diskHandle struct {
	disk   *Disk
	object *object
	file   *diskFile
	closed atomic.Bool
}

func (h *diskHandle) Address() b3.Address { return h.object.address }
func (h *diskHandle) Size() int64         { return h.object.size }

// Bytes returns nothing: the object is not in memory.
func (h *diskHandle) Bytes() ([]byte, bool) { return nil, false }

// ReadAt reads from the object, as io.ReaderAt requires. The bytes are
// verified.
func (h *diskHandle) ReadAt(p []byte, off int64) (int, error) {
	const op = "store.read"
	size := h.object.size
	switch {
	case h.closed.Load():
		return 0, fault.Wrap(op, errHandleClosed)
	case off < 0:
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: int64(len(p)), Size: size})
	case len(p) == 0:
		return 0, nil
	case off >= size:
		return 0, io.EOF
	}
	part := p[:min(int64(len(p)), size-off)]
	if err := h.read(part, off); err != nil {
		return 0, h.readFault(op, err)
	}
	if len(part) < len(p) {
		return len(part), io.EOF
	}
	return len(part), nil
}

// read fills p with verified bytes.
func (h *diskHandle) read(p []byte, off int64) error {
	if !isSmall(h.object.size) {
		if err := h.file.verify(off, int64(len(p))); err != nil {
			return err
		}
		_, err := h.file.ReadAt(p, off)
		return unexpectedEOF(err)
	}
	if int64(len(p)) == h.object.size {
		return h.file.readSmall(p)
	}
	buffer := ioBuffers.Get().(*ioBuffer)
	defer buffer.Close()
	if err := h.file.readSmall(buffer.data[:]); err != nil {
		return err
	}
	copy(p, buffer.data[off:h.object.size])
	return nil
}

// WriteTo writes the whole object.
func (h *diskHandle) WriteTo(w io.Writer) (int64, error) {
	return h.WriteRange(w, 0, h.object.size)
}

// WriteRange writes a part of the object. A small object is verified in the
// very memory that it is written from. Of a larger one, verified bytes are sent
// from the page cache to a connection that supports that. Only a process with
// write access to our files can change the page cache between verification and
// sendfile.
func (h *diskHandle) WriteRange(w io.Writer, off, n int64) (written int64, err error) {
	const op = "store.write"
	size := h.object.size
	switch {
	case h.closed.Load():
		return 0, fault.Wrap(op, errHandleClosed)
	case off < 0 || n < 0 || off > size || n > size-off:
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: n, Size: size})
	case n == 0:
		return 0, nil
	case isSmall(size):
		written, err = h.writeSmall(w, off, n)
	default:
		written, err = h.writeLarge(w, off, n)
	}
	return written, h.readFault(op, err)
}

func (h *diskHandle) writeSmall(w io.Writer, off, n int64) (int64, error) {
	buffer := ioBuffers.Get().(*ioBuffer)
	defer buffer.Close()
	if err := h.file.readSmall(buffer.data[:]); err != nil {
		return 0, err
	}
	return write(w, buffer.data[off:off+n])
}

// writeLarge verifies a window ahead of what it writes.
func (h *diskHandle) writeLarge(w io.Writer, off, n int64) (written int64, err error) {
	for written < n && err == nil {
		length := min(n-written, verifyWindow)
		if err = h.file.verify(off+written, length); err == nil {
			var m int64
			m, err = h.file.send(w, off+written, length)
			written += m
		}
	}
	return written, err
}

// readFault converts the error of a read to a fault. A corrupt object is
// quarantined.
func (h *diskHandle) readFault(op string, err error) error {
	if isCorrupt(err) {
		h.disk.quarantineObject(h.object)
	}
	return diskReadFault(op, err)
}

// Close releases the object.
func (h *diskHandle) Close() error {
	if !h.closed.Swap(true) {
		h.disk.releaseFile(h.object, h.file)
	}
	return nil
}
