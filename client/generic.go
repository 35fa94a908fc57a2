package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"micronode/fault"
)

// Call makes a small call of a route that this package has no method for: a
// newer one, or one that only the parts of a node use among each other. It
// sends the document in, unless it is nil, and decodes the answer into out,
// unless that is nil. GET, PUT and DELETE are retried as all calls are; POST
// is not, because this package does not know whether repeating it is safe.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	return c.newCall(ctx, "client.call", method, path).doJSON(ctx, in, out)
}

// CallPart calls a part of this node in another process, by a route that only
// the parts use. When that process drains, the part is NotReady for the caller,
// not Canceled: the caller itself continues.
func (c *Client) CallPart(ctx context.Context, op, part, path string, in, out any) error {
	err := c.Call(ctx, http.MethodPost, path, in, out)
	if fault.KindOf(err) == fault.Canceled && ctx.Err() == nil {
		return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the part " + part + " is shutting down", RetryAfter: time.Second, Err: err,
			Next: "Start it again with `micronode run --only " + part + "`; the node reconnects by itself."}
	}
	return fault.Wrap(op, err)
}

// Open opens a route that answers with bytes. They are returned as the node
// sends them, without verification, and a broken transfer is not resumed. The
// context must live until the last byte was read, and the body must be closed.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	k := c.newCall(ctx, "client.open", http.MethodGet, path)
	answer, err := k.send(ctx, http.Header{"Accept-Encoding": {"identity"}}, nil)
	if err != nil {
		return nil, err
	}
	return &responseBody{call: k, ctx: ctx, answer: answer}, nil
}

// responseBody is the body of an answer; its errors are those of this package.
type responseBody struct {
	call   *call
	ctx    context.Context
	answer *http.Response
}

func (r *responseBody) Read(p []byte) (int, error) {
	n, err := r.answer.Body.Read(p)
	if err != nil && err != io.EOF {
		err = r.call.tryError(r.ctx, r.answer.Request.Context(), err)
	}
	return n, err
}

func (r *responseBody) Close() error { return r.answer.Body.Close() }

// Events is a stream of server-sent events. It is for one goroutine, and must
// be closed.
type Events struct {
	stream *Subscription // set at construction: reads the events and ends the stream
}

// Hear opens a stream of events on a route. The context must live as long as
// the stream.
func (c *Client) Hear(ctx context.Context, path string) (*Events, error) {
	stream, err := c.newCall(ctx, "client.hear", http.MethodGet, path).stream(ctx, http.Header{})
	if err != nil {
		return nil, err
	}
	return &Events{stream}, nil
}

// Next waits for the next event of a name and decodes it. A [*Lagged] says
// that events were lost; the next call of Next continues. Every other error
// ends the stream, as with [Subscription.Next].
func (e *Events) Next(ctx context.Context, name string, into any) error {
	return e.stream.nextEvent(ctx, func(one event) (bool, error) {
		if one.name != name {
			return false, nil
		}
		return true, e.stream.call.unmarshal(one.data, into)
	})
}

// Close ends the stream. The error is always nil.
func (e *Events) Close() error { return e.stream.Close() }
