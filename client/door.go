package client

import (
	"context"
	"io"
	"net/http"
)

// Call makes a small call of a route that this package has no method for: one
// that is newer than it, or one that only the parts of a node use among each
// other. The document in goes along, unless it is nil, and the answer is decoded
// into out, unless that is nil. GET, PUT and DELETE are tried again as all calls
// are; POST is not, because nobody here knows whether twice is once.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	return c.newCall(ctx, "client.call", method, path).control(ctx, in, out)
}

// Open opens a route that answers with bytes. They are as the node sends them:
// nothing is verified here, and nothing is taken up again. The context must live
// until the last byte was read, and the body must be closed.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	k := c.newCall(ctx, "client.open", http.MethodGet, path)
	answer, err := k.send(ctx, http.Header{"Accept-Encoding": {"identity"}}, nil)
	if err != nil {
		return nil, err
	}
	return &opened{call: k, ctx: ctx, answer: answer}, nil
}

// opened is the body of an answer, with errors of ours.
type opened struct {
	call   *call
	ctx    context.Context
	answer *http.Response
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.answer.Body.Read(p)
	if err != nil && err != io.EOF {
		err = o.call.failure(o.ctx, o.answer.Request.Context(), err)
	}
	return n, err
}

func (o *opened) Close() error { return o.answer.Body.Close() }

// Events is a stream of server-sent events. It is for one goroutine, and must be
// closed.
type Events struct {
	stream *Subscription // set at construction: how a stream is read, and how it ends
}

// Hear begins to follow a route that answers with events. The context must
// live as long as they are followed.
func (c *Client) Hear(ctx context.Context, path string) (*Events, error) {
	stream, err := c.newCall(ctx, "client.hear", http.MethodGet, path).stream(ctx, http.Header{})
	if err != nil {
		return nil, err
	}
	return &Events{stream}, nil
}

// Next waits for the next event of a name and decodes it. A [*Lagged] says that
// some were missed, and after it Next goes on; every other error ends the
// stream, as with [Subscription.Next].
func (e *Events) Next(ctx context.Context, name string, into any) error {
	return e.stream.take(ctx, func(one event) (bool, error) {
		if one.name != name {
			return false, nil
		}
		return true, e.stream.call.parse(one.data, into)
	})
}

// Close ends the stream. The error is always nil.
func (e *Events) Close() error { return e.stream.Close() }
