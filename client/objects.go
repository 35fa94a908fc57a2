package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"micronode/b3"
	"micronode/fault"
)

const (
	putMax            = 1 << 20  // what POST /put takes
	expectContinueMin = 64 << 10 // above this, the request has Expect: 100-continue
)

// Object is what a node says about an object.
type Object struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`    // -1 if unknown
	Created bool       `json:"created"` // by this Put; it was not there before

	// Copied is how many of its bytes no other node has sent, because an older
	// version of it was there. It is of a fetch.
	Copied int64 `json:"copied,omitempty"`
}

// classNamed is the class of objects that stay as long as a name stands for them.
const classNamed = "named"

// PutOptions are the options of Put. All are optional.
type PutOptions struct {
	// Size is how many bytes the source holds, if the source itself cannot
	// say, as files and memory can. A source with fewer or more is rejected,
	// and nothing is stored, so a source that stays open must be cut to size,
	// as by io.LimitReader.
	Size int64

	// Want is the address that the source must have. If it has another, the
	// Put fails, and nothing is stored.
	Want b3.Address

	// Cached says that the object can be fetched again from elsewhere: the
	// node may evict it when it needs the space. Otherwise it stays until it
	// is deleted.
	Cached bool

	// Named says that the object is put for a name of the node, which is set
	// next: it stays as long as a name stands for it. One that is pinned
	// already stays pinned. Cached wins over it.
	Named bool

	// Unverified says that the source is not trusted: the node evicts nothing
	// for it until it has verified the address Want, which must be given.
	Unverified bool

	// Resume lets a Put go on where an earlier one of the same bytes broke: the
	// address is computed first, what the node has of the object is not sent again,
	// and what it has when this Put fails is kept for the next one. It is for
	// sources that are an [io.Seeker], and changes nothing for others, for small
	// ones, with Unverified, and at nodes of an earlier version.
	Resume bool

	// Progress is called with the number of bytes sent, and their total, or
	// -1. It goes back when the Put is retried. It is called often, by one
	// goroutine at a time, and should be quick.
	Progress func(done, total int64)
}

// Put stores the bytes of src up to its end, and returns their address. The
// address is computed while sending and compared with the node's, so a nil
// error means that the node has exactly these bytes.
//
// Objects are content-addressed, so a Put is retried if src is an [io.Seeker]
// or nothing of it was read yet. Put does not close src, and does not touch it
// after it has returned, with one exception: when the node refuses while src,
// which is not an io.Seeker, is still being read, Put does not wait for that
// last Read. It does wait when ctx ends, because the transport does: if the
// source can block for ever, as a keyboard can, close it when ctx ends.
func (c *Client) Put(ctx context.Context, src io.Reader, o PutOptions) (Object, error) {
	up, err := newUpload(src, o)
	if err != nil {
		return Object{}, err
	}
	if o.Resume && !o.Unverified && up.seeker != nil && up.size >= minResume {
		object, done, err := c.putResumed(ctx, up, o)
		if done {
			return object, err
		}
		if err := up.rewind(); err != nil {
			return Object{}, err
		}
	}
	path := "/o"
	if up.size >= 0 && up.size <= putMax {
		path = "/put"
	}
	query := o.query()
	if o.Unverified && !o.Want.IsZero() {
		query.Set("want", o.Want.String())
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	k := c.newCall(ctx, putOp, http.MethodPost, path)
	for n := 1; ; n++ {
		body := newUploadBody(up)
		object, err := k.put(ctx, body)
		if err == nil {
			return object, nil
		}
		if !body.stop() || body.err.Load() != nil || up.seeker == nil && body.started.Load() {
			return Object{}, err
		}
		if err := c.waitRetry(ctx, n, err); err != nil {
			return Object{}, err
		}
		if err := up.rewind(); err != nil {
			return Object{}, err
		}
	}
}

// query is the class of the object.
func (o PutOptions) query() url.Values {
	query := url.Values{}
	switch {
	case o.Cached:
		query.Set("class", "cached")
	case o.Named:
		query.Set("class", classNamed)
	}
	return query
}

// put makes one try.
func (k *call) put(ctx context.Context, body *uploadBody) (Object, error) {
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	if body.size < 0 || body.size > expectContinueMin {
		// With Expect, a node refuses before the body is sent. Otherwise its
		// answer may be lost when it closes the connection in the middle of
		// the body.
		header.Set("Expect", "100-continue")
	}
	status, raw, err := k.doOnce(ctx, header, body)
	if own := body.err.Load(); err != nil && own != nil && ctx.Err() == nil {
		return Object{}, *own // the transport failed because the source did
	}
	if err != nil {
		return Object{}, err
	}
	object := Object{Created: status == http.StatusCreated}
	if err := k.decode(raw, &object); err != nil {
		return Object{}, err
	}
	return object, k.checkStored(object, body)
}

// checkStored compares the node's answer with the address and size that were
// sent.
func (k *call) checkStored(object Object, body *uploadBody) error {
	if !body.complete.Load() {
		return k.unexpected(nil, "it came before the end of the object was sent")
	}
	sent := body.hash.Sum()
	if object.Address == sent && object.Size == body.hash.N() {
		return nil
	}
	return fault.New(k.op, fault.IntegrityFail, "%s has %d bytes as %s, but was sent %d bytes of %s", k.client.nodeLabel, object.Size, object.Address, body.hash.N(), sent).
		Advise("Put it again. If it happens again, a proxy between here and the node changes bytes.").Because(&callCause{corr: k.corrID, cause: &b3.Mismatch{Want: sent, Got: object.Address}})
}

// Stat returns the size of an object, without its bytes.
func (c *Client) Stat(ctx context.Context, address b3.Address) (Object, error) {
	k, err := c.objectCall(ctx, "client.stat", http.MethodHead, address)
	if err != nil {
		return Object{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	object := Object{Address: address}
	err = k.retry(ctx, func() error {
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

// Delete removes an object from the node. An unknown object is
// [fault.NotFound]; but if the answer of a try was lost and the next one finds
// nothing, the object is deleted, and the error is nil.
func (c *Client) Delete(ctx context.Context, address b3.Address) error {
	k, err := c.objectCall(ctx, "client.delete", http.MethodDelete, address)
	if err != nil {
		return err
	}
	err = k.doJSON(ctx, nil, nil)
	if k.maybeApplied && fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// objectCall is a call about one object. It refuses the zero address, which a
// caller has not set.
func (c *Client) objectCall(ctx context.Context, op, method string, address b3.Address) (*call, error) {
	if address.IsZero() {
		return nil, fault.New(op, fault.Malformed, "there is no address").
			Advise("Give the address that Put returned, or one that b3.Parse has read.")
	}
	return c.newCall(ctx, op, method, "/o/"+address.String()), nil
}
