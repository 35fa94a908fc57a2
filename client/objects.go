package client

import (
	"context"
	"io"
	"net/http"

	"micronode/b3"
	"micronode/fault"
)

const (
	putCap    = 1 << 20  // what POST /put takes
	politeCap = 64 << 10 // above this we ask before we send
)

// Object is what a node says about an object.
type Object struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`    // -1 if the node did not say
	Created bool       `json:"created"` // by this Put; it was not there before
}

// PutOptions may all be left out.
type PutOptions struct {
	// Size is how many bytes the source holds, where it does not tell itself,
	// as files and memory do. A source with fewer or more is refused, and
	// nothing is stored, so a source that stays open must be cut to size, as
	// by io.LimitReader.
	Size int64

	// Want is the address that the source must have. If it has another, the
	// Put is broken off, and nothing is stored.
	Want b3.Address

	// Cached says that the object can be had again from elsewhere: the node may
	// give it up when it needs the room. Otherwise it stays until it is deleted.
	Cached bool

	// Progress is told how many bytes were handed over, and how many there are
	// in all, or -1. It goes back when the Put is tried again. It is called
	// often, by one goroutine at a time, and should be quick.
	Progress func(done, total int64)
}

// Put stores what src gives until it ends, and returns its address. The
// address is worked out on the way and compared with the node's, so a nil
// error means that the node has exactly these bytes.
//
// Objects are content-addressed, so a Put may be tried again, if src is an
// [io.Seeker] or nothing of it was used yet. Put does not close src, and does
// not touch it after it has returned, with one exception: when the node refuses
// while src, which is not an io.Seeker, is still being read, that last Read is
// not waited for. It is when ctx ends, because the transport does so: whoever
// puts from a source that can block for ever, such as a keyboard, closes it
// when ctx ends.
func (c *Client) Put(ctx context.Context, src io.Reader, o PutOptions) (Object, error) {
	up, err := newUpload(src, o)
	if err != nil {
		return Object{}, err
	}
	path := "/o"
	if up.size >= 0 && up.size <= putCap {
		path = "/put"
	}
	if o.Cached {
		path += "?class=cached"
	}
	k := c.newCall(ctx, putOp, http.MethodPost, path)
	for n := 1; ; n++ {
		body := newSending(up)
		object, err := k.put(ctx, body)
		if err == nil {
			return object, nil
		}
		if !body.stop() || body.failed.Load() != nil || up.seeker == nil && body.touched.Load() {
			return Object{}, err
		}
		if err := c.again(ctx, n, err); err != nil {
			return Object{}, err
		}
		if err := up.rewind(); err != nil {
			return Object{}, err
		}
	}
}

// put makes one try.
func (k *call) put(ctx context.Context, body *sending) (Object, error) {
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	if body.size < 0 || body.size > politeCap {
		// A node that refuses does so before the body is sent. Otherwise its
		// answer may be lost when it closes on us in the middle of it.
		header.Set("Expect", "100-continue")
	}
	status, raw, err := k.document(ctx, header, body)
	if own := body.failed.Load(); err != nil && own != nil && ctx.Err() == nil {
		return Object{}, *own // the transport failed because the source did
	}
	if err != nil {
		return Object{}, err
	}
	object := Object{Created: status == http.StatusCreated}
	if err := k.decode(raw, &object); err != nil {
		return Object{}, err
	}
	return object, k.compare(object, body)
}

// compare holds what the node says it has against what it was sent.
func (k *call) compare(object Object, body *sending) error {
	if !body.whole.Load() {
		return k.strange(nil, "it came before the end of the object was sent")
	}
	sent := body.hash.Sum()
	if object.Address == sent && object.Size == body.hash.N() {
		return nil
	}
	err := fault.New(k.op, fault.IntegrityFail, "%s has %d bytes as %s, but was sent %d bytes of %s",
		k.client.where, object.Size, object.Address, body.hash.N(), sent)
	err.Err = &trace{corr: k.corr, cause: &b3.Mismatch{Want: sent, Got: object.Address}}
	err.Next = "Put it again. If it happens again, something between here and the node changes bytes."
	return err
}

// Stat asks for the size of an object, without its bytes.
func (c *Client) Stat(ctx context.Context, address b3.Address) (Object, error) {
	k, err := c.objectCall(ctx, "client.stat", http.MethodHead, address)
	if err != nil {
		return Object{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	object := Object{Address: address}
	err = k.repeat(ctx, func() error {
		answer, err := k.send(ctx, http.Header{"Accept-Encoding": {"identity"}}, nil)
		if err != nil {
			return err
		}
		object.Size = answer.ContentLength
		_ = answer.Body.Close() // there is none
		return nil
	})
	if err != nil {
		return Object{}, err
	}
	return object, nil
}

// Delete removes an object from the node. One that is not there is
// [fault.NotFound]; but if a try was lost on the way and the next one finds
// nothing, the object is gone, and that is what was asked for.
func (c *Client) Delete(ctx context.Context, address b3.Address) error {
	k, err := c.objectCall(ctx, "client.delete", http.MethodDelete, address)
	if err != nil {
		return err
	}
	err = k.control(ctx, nil, nil)
	if k.unsure && fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// objectCall is a call about one object. The zero address is a forgotten one.
func (c *Client) objectCall(ctx context.Context, op, method string, address b3.Address) (*call, error) {
	if address.IsZero() {
		err := fault.New(op, fault.Malformed, "there is no address")
		err.Next = "Give the address that Put returned, or one that b3.Parse has read."
		return nil, err
	}
	return c.newCall(ctx, op, method, "/o/"+address.String()), nil
}
