package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// Remote is a store in another process of the same node. It keeps nothing itself:
// each call is one to the other side, as long as the caller's context allows.
//
// What is read is as good as over there, where it was verified; a whole object is
// verified here once more. A handle does not hold the object: if it is deleted or
// given up over there, the next read of a large one is NotFound.
type Remote struct {
	client *client.Client // set at construction

	last atomic.Pointer[state] // what Look has seen; never nil
}

// NewRemote makes a store of the one that a client reaches.
func NewRemote(to *client.Client) *Remote {
	r := &Remote{client: to}
	r.last.Store(&state{})
	return r
}

// Look asks how much there is. Usage and Counts tell what it has seen.
func (r *Remote) Look(ctx context.Context) error {
	var now state
	if err := r.client.Call(ctx, "GET", seamUsage, nil, &now); err != nil {
		return err
	}
	r.last.Store(&now)
	return nil
}

// Usage is how much there was at the last look.
func (r *Remote) Usage() Usage { return r.last.Load().Usage }

// Counts is what the store had done until then.
func (r *Remote) Counts() Counts { return r.last.Load().Counts }

// Put sends an object to the other side. One that is wanted by its address and is
// there already is not sent.
func (r *Remote) Put(ctx context.Context, src io.Reader, o PutOptions) (Info, bool, error) {
	const op = "store.put"
	if !o.Want.IsZero() {
		if info, err := r.Stat(ctx, o.Want); err == nil {
			return r.keep(ctx, info, o.Class)
		}
	}
	if o.Size == 0 {
		if n, err := io.ReadFull(src, make([]byte, 1)); n > 0 {
			return Info{}, false, fault.New(op, fault.Malformed, "there are more than the 0 bytes that were promised")
		} else if err != io.EOF {
			return Info{}, false, fault.Wrap(op, err)
		}
		src = bytes.NewReader(nil)
	}
	object, err := r.client.Put(ctx, src, client.PutOptions{Size: max(o.Size, 0), Want: o.Want, Cached: o.Class == Cached})
	if err != nil {
		return Info{}, false, fault.Wrap(op, err)
	}
	return Info{Address: object.Address, Size: object.Size, Class: o.Class}, object.Created, nil
}

// keep is a put of something that is there already: it may become pinned by it.
func (r *Remote) keep(ctx context.Context, info Info, class Class) (Info, bool, error) {
	if class == Pinned && info.Class == Cached {
		if err := r.Pin(ctx, info.Address); err != nil {
			return Info{}, false, err
		}
		info.Class = Pinned
	}
	return info, false, nil
}

// Stat describes an object.
func (r *Remote) Stat(ctx context.Context, a b3.Address) (Info, error) {
	var answer told
	if err := r.client.Call(ctx, "GET", seamObjects+"/"+a.String(), nil, &answer); err != nil {
		return Info{}, fault.Wrap("store.stat", err)
	}
	return answer.info(), nil
}

// Delete removes an object.
func (r *Remote) Delete(ctx context.Context, a b3.Address) error {
	return fault.Wrap("store.delete", r.client.Delete(ctx, a))
}

// List returns the next objects after an address.
func (r *Remote) List(ctx context.Context, after b3.Address, limit int) ([]Info, error) {
	if limit < 1 {
		return nil, nil
	}
	path := fmt.Sprintf("%s?limit=%d", seamObjects, min(limit, MaxPage))
	if !after.IsZero() {
		path += "&after=" + after.String()
	}
	var answer page
	if err := r.client.Call(ctx, "GET", path, nil, &answer); err != nil {
		return nil, fault.Wrap("store.list", err)
	}
	list := make([]Info, len(answer.Objects))
	for i, one := range answer.Objects {
		list[i] = one.info()
	}
	return list, nil
}

// Pin keeps an object until it is deleted.
func (r *Remote) Pin(ctx context.Context, a b3.Address) error {
	return fault.Wrap("store.pin", r.client.Call(ctx, "PUT", seamPins+a.String(), nil, nil))
}

// Unpin lets it go when room is needed.
func (r *Remote) Unpin(ctx context.Context, a b3.Address) error {
	return fault.Wrap("store.unpin", r.client.Call(ctx, "DELETE", seamPins+a.String(), nil, nil))
}

// Verify reads an object as a stranger would, and compares it with its address.
// The other side has a scrubber of its own, which takes out of view what is
// corrupt.
func (r *Remote) Verify(ctx context.Context, a b3.Address, pace Pace) error {
	const op = "store.verify"
	object, err := r.client.Get(ctx, a, client.GetOptions{})
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer object.Close()
	for piece := make([]byte, 64<<10); ; {
		if pace != nil {
			if err := pace(ctx, int64(len(piece))); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(object, piece); err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		} else if err != nil {
			return fault.Wrap(op, err)
		}
	}
}

// Close lets go of idle connections. What is kept is the other side's.
func (r *Remote) Close() error {
	r.client.Close()
	return nil
}

// wholeMost is how large an object may be that is fetched whole when it is
// opened. Most are smaller, and then one call does it all.
const wholeMost = 256 << 10

// Open finds an object. A small one is here, verified, when it returns.
func (r *Remote) Open(ctx context.Context, a b3.Address) (Handle, error) {
	const op = "store.open"
	object, err := r.client.Get(ctx, a, client.GetOptions{})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer object.Close()
	h := &remoteHandle{store: r, ctx: ctx, address: a, size: object.Size()}
	if h.size < 0 || h.size > wholeMost {
		return h, h.measure(ctx)
	}
	if h.whole, err = io.ReadAll(object); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return h, nil
}

// remoteHandle is an object in another process.
type remoteHandle struct {
	// set at construction
	store   *Remote
	ctx     context.Context // of the one who opened it: it bounds the reads
	address b3.Address
	size    int64
	whole   []byte // nil if it is too large to be here

	closed atomic.Bool
}

// measure asks for the size of an object of which the answer did not tell it.
func (h *remoteHandle) measure(ctx context.Context) error {
	if h.size >= 0 {
		return nil
	}
	info, err := h.store.Stat(ctx, h.address)
	h.size = info.Size
	return err
}

// Address is that of the object.
func (h *remoteHandle) Address() b3.Address { return h.address }

// Size is how many bytes it has.
func (h *remoteHandle) Size() int64 { return h.size }

// Bytes is all of it, if it is small.
func (h *remoteHandle) Bytes() ([]byte, bool) { return h.whole, h.whole != nil }

// Close lets go of it.
func (h *remoteHandle) Close() error {
	h.closed.Store(true)
	return nil
}

// ReadAt reads a part.
func (h *remoteHandle) ReadAt(p []byte, off int64) (int, error) {
	const op = "store.read"
	if off < 0 {
		return 0, fault.Wrap(op, &b3.OutOfRange{Off: off, N: int64(len(p)), Size: h.size})
	}
	wanted := min(int64(len(p)), max(0, h.size-off))
	part, err := h.part(op, min(off, h.size), wanted)
	if err != nil {
		return 0, err
	}
	defer part.Close()
	n, err := io.ReadFull(part, p[:wanted])
	if err == nil && n < len(p) {
		return n, io.EOF
	}
	return n, fault.Wrap(op, err)
}

// WriteTo writes all of it.
func (h *remoteHandle) WriteTo(w io.Writer) (int64, error) { return h.WriteRange(w, 0, h.size) }

// WriteRange writes a part.
func (h *remoteHandle) WriteRange(w io.Writer, off, n int64) (int64, error) {
	const op = "store.write"
	part, err := h.part(op, off, n)
	if err != nil {
		return 0, err
	}
	defer part.Close()
	written, err := io.Copy(w, part)
	return written, fault.Wrap(op, err)
}

// part opens a part: from here, if the object is small, or else from there.
func (h *remoteHandle) part(op string, off, n int64) (io.ReadCloser, error) {
	switch {
	case h.closed.Load():
		return nil, fault.Wrap(op, errHandleClosed)
	case off < 0 || n < 0 || off > h.size || n > h.size-off:
		return nil, fault.Wrap(op, &b3.OutOfRange{Off: off, N: n, Size: h.size})
	case n == 0 || h.whole != nil:
		return io.NopCloser(bytes.NewReader(h.whole[min(off, int64(len(h.whole))):][:n])), nil
	}
	options := client.GetOptions{Offset: off, Length: n}
	if off == 0 && n == h.size {
		options = client.GetOptions{} // which is verified
	}
	part, err := h.store.client.Get(h.ctx, h.address, options)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	return part, nil
}
