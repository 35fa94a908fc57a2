package ingress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"micronode/fault"
)

// boundBody bounds the body: a length over the cap is refused before a byte of
// it is read, a body without one is cut at the cap. A compressed body is
// inflated as it is read, under caps of its own.
func (m *mountedRoute) boundBody(c *call, r *http.Request) error {
	if r.ContentLength > m.bodyCap {
		m.reject("body_cap")
		return m.bodyTooLarge()
	}
	// The reader of net/http also makes the server close the connection.
	limited := http.MaxBytesReader(c.inner, r.Body, m.bodyCap)
	r.Body = &requestBody{ReadCloser: limited, route: m, call: c}
	if err := m.inflate(r); err != nil {
		c.Header().Set("Accept-Encoding", codings)
		return err
	}
	if m.route.Class == Control { // the others stream
		r.Body = &heldBody{ReadCloser: r.Body, call: c}
	}
	return nil
}

func (m *mountedRoute) bodyTooLarge() error {
	return fault.New("http.body", fault.BodyTooLarge, "the body is over the cap of %d bytes", m.bodyCap)
}

// slowBodyDetail is the error detail for a client that sends too slowly.
const slowBodyDetail = "the client sent the body too slowly"

// hasReadTime reports whether the deadline for reading the body lies ahead.
func (c *call) hasReadTime() bool {
	end := c.readDeadline.Load()
	return end == 0 || time.Now().UnixNano() < end
}

// isSlowClient reports whether a request that ran out of time did so because its
// own bytes did not come. The handler may have returned before the read of the
// body did: then that read still waits.
func (c *call) isSlowClient(ctx context.Context) bool {
	if c.bodyStalled.Load() {
		return true
	}
	cut := c.conn != nil && !c.http2 && c.conn.readTimedOut.Load()
	return c.awaitingBody.Load() && (cut || fault.KindOf(context.Cause(ctx)) == fault.Timeout)
}

// bodyProgressBytes is how many bytes count as progress of a body. With less, a
// client could hold a transfer for ever by sending a byte now and then.
const bodyProgressBytes = 1 << 10

// requestBody gives the errors of reading a request's body their kinds, and
// extends the deadline of a transfer as bytes come.
type requestBody struct {
	io.ReadCloser
	route *mountedRoute
	call  *call
}

// Read reads from the client. While it waits, the call is marked as waiting for
// the client; not if the time was up before, which is the fault of this side.
func (b *requestBody) Read(p []byte) (int, error) {
	b.call.awaitingBody.Store(b.call.hasReadTime())
	n, err := b.ReadCloser.Read(p[:b.call.bodyStep(len(p))])
	err = b.classify(err)
	b.call.awaitingBody.Store(false)
	switch err {
	case nil:
		if err := b.call.awaitBody(n); err != nil {
			return n, err
		}
		b.call.noteBodyProgress(n)
		return n, nil
	case io.EOF:
		b.call.chargeBody(n)
		b.call.bodyComplete.Store(true)
		b.call.endReadDeadline()
		return n, io.EOF
	default:
		return n, err
	}
}

// classify gives an error its kind, and records whether the client was late.
func (b *requestBody) classify(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	err = b.toFault(err)
	if fault.KindOf(err) == fault.RequestTimeout {
		b.call.bodyStalled.Store(true)
	}
	return err
}

// noteBodyProgress extends the deadline of a transfer. It is not called for the
// last bytes: after them net/http reads ahead to detect that the client leaves,
// and an expired deadline would look like that.
func (c *call) noteBodyProgress(n int) {
	if c.bytesSinceProgress += int64(n); c.transferWatch != nil && c.bytesSinceProgress >= bodyProgressBytes {
		c.transferWatch.moved(int(c.bytesSinceProgress))
		c.bytesSinceProgress = 0
		c.transferWatch.progress()
		c.transferWatch.extendRead()
	}
}

// NoteProgress records that a transfer has moved n bytes that its client does not
// see: those that are here of an object whose rest it sends.
func NoteProgress(r *http.Request, n int) {
	if c := callOf(r.Context()); c != nil && c.transferWatch != nil {
		c.transferWatch.moved(n)
		c.transferWatch.progress()
		c.transferWatch.extendRead()
	}
}

func (b *requestBody) toFault(err error) error {
	const op = "http.body"
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		b.route.reject("body_cap")
		return b.route.bodyTooLarge()
	}
	switch kind := fault.KindOf(err); {
	case kind == fault.Timeout && b.call.awaitingBody.Load():
		return &fault.Error{Op: op, Kind: fault.RequestTimeout, Detail: slowBodyDetail, Err: err}
	case kind == fault.Timeout:
		return &fault.Error{Op: op, Kind: fault.Timeout, Detail: "the deadline passed before the body arrived", Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF), kind == fault.BrokenPipe, kind == fault.Canceled:
		b.route.instruments.IOErrors.WithLabelValues("read").Inc()
		return fault.WrapKind(op, fault.BrokenPipe, err)
	default:
		// What is left is a chunked coding that does not parse.
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the body does not parse", Err: err}
	}
}
