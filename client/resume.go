package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"micronode/b3"
	"micronode/fault"
)

// minResume is the smallest source whose Put can go on: sending less again costs
// less than the questions.
const minResume = 8 << 20

// maxStalls is how often in a row a Put that can go on may fail without a further
// byte at the node, beside the tries of every call.
const maxStalls = 3

// Kept is how much of an object a node has kept of a Put that broke.
type Kept struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
}

// Kept returns how many bytes a node has kept of a Put that broke.
func (c *Client) Kept(ctx context.Context, address b3.Address) (int64, error) {
	k := c.newCall(ctx, "client.kept", http.MethodGet, "/o/"+address.String()+"/kept")
	var answer Kept
	if err := k.doJSON(ctx, nil, &answer); err != nil {
		return 0, err
	}
	if answer.Size < 0 {
		return 0, k.unexpected(nil, "it has kept %d bytes", answer.Size)
	}
	return answer.Size, nil
}

// putResumed puts a source that can be read more than once, and goes on from what
// the node has of it. It reports false if the node cannot do that.
func (c *Client) putResumed(ctx context.Context, up upload, o PutOptions) (object Object, done bool, err error) {
	// What is it, and does the node have it already?
	address, size := up.want, up.size
	if address.IsZero() {
		if address, size, err = addressOf(ctx, io.LimitReader(up.src, up.size), func([]byte) {}); err != nil {
			return Object{}, true, readError(ctx, err)
		}
		if size != up.size {
			return Object{}, false, nil // it has changed: Put says so
		}
		up.want = address
	}
	if !o.Cached {
		missing, err := c.missing(ctx, []b3.Address{address}, o.Named)
		if err == nil && len(missing) == 0 {
			if up.progress != nil {
				up.progress(size, size)
			}
			return Object{Address: address, Size: size}, true, nil
		}
	}

	// Each try begins behind what the node has by then. One that brought further
	// bytes there is no failure.
	query := o.query()
	query.Set("want", address.String())
	before, stalls, busy, distrusted := int64(-1), 0, 0, false
	for n := 1; ; n++ {
		kept, err := c.Kept(ctx, address)
		if kind := fault.KindOf(err); n == 1 && (kind == fault.NotFound || kind == fault.MethodNotAllowed) {
			return Object{}, false, nil // a node of an earlier version
		}
		if kind := fault.KindOf(err); kind == fault.Busy && busy < maxStalls {
			// The Put that broke has not ended yet: the node will notice.
			busy++
			continue
		} else if kind == fault.Busy {
			return Object{}, false, nil // somebody else puts it
		}
		if err != nil {
			return Object{}, true, err
		}
		if kept = min(kept, size-1); distrusted {
			kept = 0
		}
		if stalls++; kept > before {
			n, stalls = 1, 0
		}
		before = kept
		object, err := c.putFrom(ctx, up, kept, query)
		switch kind := fault.KindOf(err); {
		case err == nil:
			return object, true, nil
		case kind == fault.IntegrityFail && kept > 0 && !distrusted:
			distrusted = true // what was kept is wrong, and the node has dropped it
			continue
		case kind == fault.Conflict && stalls < maxStalls:
			continue // another put of it has what was kept, or it was dropped just now
		}
		if err := c.waitRetry(ctx, n, err); err != nil {
			return Object{}, true, err
		}
	}
}

// putFrom makes one try, which sends a source from an offset on.
func (c *Client) putFrom(ctx context.Context, up upload, from int64, query url.Values) (Object, error) {
	if err := up.rewind(); err != nil {
		return Object{}, err
	}
	up.from = from
	body := newUploadBody(up)
	if _, err := io.CopyN(&body.hash, &contextReader{ctx, up.src}, from); err != nil {
		return Object{}, readError(ctx, err)
	}
	query.Set("from", strconv.FormatInt(from, 10))
	query.Del("front")
	if from > 0 {
		query.Set("front", body.hash.Sum().String())
		body.reportProgress()
	}
	object, err := c.newCall(ctx, putOp, http.MethodPost, "/o?"+query.Encode()).put(ctx, body)
	if err != nil {
		body.stop()
		if own := body.err.Load(); own != nil {
			return Object{}, *own
		}
	}
	return object, err
}

// readError is the failure of a source that is read before anything is sent, or the
// end of the context.
func readError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(putOp, ctx.Err())
	}
	return sourceReadError(err)
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return r.Reader.Read(p)
}

// length is how many bytes are sent; -1 if that is unknown.
func (u *uploadBody) length() int64 {
	if u.size < 0 {
		return -1
	}
	return u.size - u.from
}
