package ingress

import (
	"errors"
	"io"
	"net/http"

	"micronode/fault"
)

// hasBody reports whether a request brings a body, of known length or not.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 }

// takeBody bounds the body: a length over the cap is refused before a byte of
// it is read, a body without one is cut at the cap. A compressed body is
// inflated as it is read, under caps of its own.
func (m *mounted) takeBody(c *call, r *http.Request) error {
	if !hasBody(r) {
		return nil
	}
	if r.ContentLength > m.bodyCap {
		m.reject("body_cap")
		return m.tooLarge()
	}
	// The reader of net/http also makes the server close the connection.
	limited := http.MaxBytesReader(c.under, r.Body, m.bodyCap)
	r.Body = &body{ReadCloser: limited, route: m, call: c}
	err := m.inflate(r)
	if err != nil {
		c.Header().Set("Accept-Encoding", codings)
	}
	return err
}

func (m *mounted) tooLarge() error {
	return fault.New("http.body", fault.BodyTooLarge, "the body is over the cap of %d bytes", m.bodyCap)
}

// progressStep is how many bytes count as progress of a body. With less, a
// client could hold a transfer for ever by sending a byte now and then.
const progressStep = 1 << 10

// body gives the errors of reading a request's body their kinds, and moves the
// deadline of a transfer on as bytes come.
type body struct {
	io.ReadCloser
	route *mounted
	call  *call
}

// Read reads from the client.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch err {
	case nil:
		b.call.arrive(n)
		return n, nil
	case io.EOF:
		b.call.whole.Store(true)
		return n, io.EOF
	default:
		return n, b.name(err)
	}
}

// arrive moves the deadline of a transfer on. It is not for the last bytes:
// after them net/http reads ahead to see whether the client leaves, and a
// deadline would look like that.
func (c *call) arrive(n int) {
	if c.arrived += int64(n); c.watch != nil && c.arrived >= progressStep {
		c.arrived = 0
		c.watch.moved()
		c.watch.readOn()
	}
}

func (b *body) name(err error) error {
	const op = "http.body"
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		b.route.reject("body_cap")
		return b.route.tooLarge()
	}
	switch kind := fault.KindOf(err); {
	case kind == fault.Timeout:
		b.route.instruments.IOTimeouts.WithLabelValues("read").Inc()
		return &fault.Error{Op: op, Kind: fault.Timeout, Detail: "the body came too slowly", Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF), kind == fault.BrokenPipe, kind == fault.Canceled:
		b.route.instruments.IOErrors.WithLabelValues("read").Inc()
		return fault.WrapKind(op, fault.BrokenPipe, err)
	default:
		// What is left is a chunked coding that does not parse.
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the body does not parse", Err: err}
	}
}
