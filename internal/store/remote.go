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

// Remote is a store in another process of the same node. It keeps nothing
// itself: each call is one to the other process, as long as the caller's
// context allows.
//
// Ranges are verified by the other process; a whole object is verified here
// once more. A handle does not hold the object: if it is deleted or evicted
// there, the next read of a large one is NotFound.
type Remote struct {
	client *client.Client // set at construction

	usage atomic.Pointer[usageResponse] // the result of the last Refresh; never nil
}

// NewRemote returns the store that a client reaches.
func NewRemote(c *client.Client) *Remote {
	r := &Remote{client: c}
	r.usage.Store(&usageResponse{})
	return r
}

// Refresh reads usage and counters. Usage and Counts return its last result.
func (r *Remote) Refresh(ctx context.Context) error {
	var now usageResponse
	if err := r.client.Call(ctx, "GET", partUsagePath, nil, &now); err != nil {
		return err
	}
	r.usage.Store(&now)
	return nil
}

// Usage returns the usage at the last Refresh.
func (r *Remote) Usage() Usage { return r.usage.Load().Usage }

// Counts returns the counters at the last Refresh.
func (r *Remote) Counts() Counts { return r.usage.Load().Counts }

// Put sends an object to the other process. One whose wanted address exists
// already is not sent.
func (r *Remote) Put(ctx context.Context, src io.Reader, o PutOptions) (Info, bool, error) {
	const op = "store.put"
	if !o.Want.IsZero() {
		if info, err := r.Stat(ctx, o.Want); err == nil {
			return r.putExisting(ctx, info, o.Class)
		}
	}
	if o.Size == 0 {
		if n, err := io.ReadFull(src, make([]byte, 1)); n > 0 {
			return Info{}, false, fault.New(op, fault.Malformed, "0 bytes were declared, but more arrived")
		} else if err != io.EOF {
			return Info{}, false, fault.Wrap(op, err)
		}
		src = bytes.NewReader(nil)
	}
	object, err := r.client.Put(ctx, src, client.PutOptions{Size: max(o.Size, 0), Want: o.Want, Cached: o.Class == Cached, Named: o.Class == Named, Unverified: o.Unverified})
	if err != nil {
		return Info{}, false, fault.Wrap(op, err)
	}
	return Info{Address: object.Address, Size: object.Size, Class: o.Class}, object.Created, nil
}

// putExisting is a put of an existing object: it may become pinned or named by
// it.
func (r *Remote) putExisting(ctx context.Context, info Info, class Class) (Info, bool, error) {
	before := info.Class
	info.Class = before.With(class)
	if info.Class == before {
		return info, false, nil
	}
	var err error
	if info.Class == Pinned {
		err = r.Pin(ctx, info.Address)
	} else {
		_, err = r.Reclass(ctx, info.Address, before, info.Class)
	}
	if err != nil {
		return Info{}, false, err
	}
	return info, false, nil
}

// Stat describes an object.
func (r *Remote) Stat(ctx context.Context, a b3.Address) (Info, error) {
	var answer objectResponse
	if err := r.client.Call(ctx, "GET", partObjectsPath+"/"+a.String(), nil, &answer); err != nil {
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
	path := fmt.Sprintf("%s?limit=%d", partObjectsPath, min(limit, MaxPage))
	if !after.IsZero() {
		path += "&after=" + after.String()
	}
	var answer listResponse
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
	return fault.Wrap("store.pin", r.client.Call(ctx, "PUT", partPinsPath+a.String(), nil, nil))
}

// Unpin lets it be evicted when space is needed.
func (r *Remote) Unpin(ctx context.Context, a b3.Address) error {
	return fault.Wrap("store.unpin", r.client.Call(ctx, "DELETE", partPinsPath+a.String(), nil, nil))
}

// Reclass gives an object another class if it has the class from.
func (r *Remote) Reclass(ctx context.Context, a b3.Address, from, to Class) (bool, error) {
	var answer changedResponse
	err := r.client.Call(ctx, "PUT", partClassesPath+a.String()+"?from="+from.String()+"&to="+to.String(), nil, &answer)
	return answer.Changed, fault.Wrap("store.reclass", err)
}

// Evict removes an object if it is cached.
func (r *Remote) Evict(ctx context.Context, a b3.Address) (bool, error) {
	var answer changedResponse
	err := r.client.Call(ctx, "DELETE", partObjectsPath+"/"+a.String(), nil, &answer)
	return answer.Changed, fault.Wrap("store.evict", err)
}

// Verify reads an object as any client does, and compares it with its address.
// The other process has a scrubber of its own, which removes corrupt objects.
func (r *Remote) Verify(ctx context.Context, a b3.Address, pace Pace) error {
	const op = "store.verify"
	object, err := r.client.Get(ctx, a, client.GetOptions{})
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer object.Close()
	for buffer := make([]byte, 64<<10); ; {
		if pace != nil {
			if err := pace(ctx, int64(len(buffer))); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(object, buffer); err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		} else if err != nil {
			return fault.Wrap(op, err)
		}
	}
}

// Close closes idle connections. The objects belong to the other process.
func (r *Remote) Close() error {
	r.client.Close()
	return nil
}

// maxInline is how large an object may be that is fetched whole when it is
// opened. Most are smaller, and then one call is enough.
const maxInline = 256 << 10

// Open finds an object. A small one has been fetched and verified when it
// returns.
func (r *Remote) Open(ctx context.Context, a b3.Address) (Handle, error) {
	const op = "store.open"
	object, err := r.client.Get(ctx, a, client.GetOptions{})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer object.Close()
	h := &remoteHandle{store: r, ctx: ctx, address: a, size: object.Size()}
	if h.size < 0 || h.size > maxInline {
		return h, h.loadSize(ctx)
	}
	if h.whole, err = io.ReadAll(object); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return h, nil
}

// OpenFetching opens an object that another process of the same node has or is
// fetching, and whose size it has said. Reads wait for their bytes as long as ctx
// allows.
func OpenFetching(ctx context.Context, c *client.Client, a b3.Address, size int64) Handle {
	return &remoteHandle{store: &Remote{client: c}, ctx: ctx, address: a, size: size, fetch: true}
}

// remoteHandle is an object in another process.
type remoteHandle struct {
	// set at construction
	store   *Remote
	ctx     context.Context // of the Open call: it bounds the reads
	address b3.Address
	size    int64
	whole   []byte // nil if it is too large
	fetch   bool   // the other process fetches it if it is not here

	closed atomic.Bool
}

// loadSize requests the size of an object if the response did not have it.
func (h *remoteHandle) loadSize(ctx context.Context) error {
	if h.size >= 0 {
		return nil
	}
	info, err := h.store.Stat(ctx, h.address)
	h.size = info.Size
	return err
}

// Address returns that of the object.
func (h *remoteHandle) Address() b3.Address { return h.address }

// Size returns how many bytes it has.
func (h *remoteHandle) Size() int64 { return h.size }

// Bytes returns all of it, if it is small.
func (h *remoteHandle) Bytes() ([]byte, bool) { return h.whole, h.whole != nil }

// Close releases it.
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
	body, err := h.openRange(op, min(off, h.size), wanted)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.ReadFull(body, p[:wanted])
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
	body, err := h.openRange(op, off, n)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	written, err := io.Copy(w, body)
	return written, fault.Wrap(op, err)
}

// openRange opens a part: in memory, if the object is small, or else from
// the other process.
func (h *remoteHandle) openRange(op string, off, n int64) (io.ReadCloser, error) {
	switch {
	case h.closed.Load():
		return nil, fault.Wrap(op, errHandleClosed)
	case off < 0 || n < 0 || off > h.size || n > h.size-off:
		return nil, fault.Wrap(op, &b3.OutOfRange{Off: off, N: n, Size: h.size})
	case n == 0 || h.whole != nil:
		return io.NopCloser(bytes.NewReader(h.whole[min(off, int64(len(h.whole))):][:n])), nil
	}
	options := client.GetOptions{Offset: off, Length: n, Fetch: h.fetch}
	if off == 0 && n == h.size {
		options = client.GetOptions{Fetch: h.fetch} // which is verified
	}
	body, err := h.store.client.Get(h.ctx, h.address, options)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	return body, nil
}
