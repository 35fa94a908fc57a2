package ingress

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/observe"
)

// call is one request on its way through the chain, and the response writer
// that its handler gets. It knows whether an answer has begun, which decides
// what can still be done about an error.
type call struct {
	// set when the request arrives
	under    http.ResponseWriter
	server   *Server
	listener *Listener
	conn     *conn // nil without a listener of ours
	client   netip.Addr
	start    time.Time
	corrID   string
	http2    bool
	body     bool          // the request has one
	request  *http.Request // as net/http gave it

	// memory for what every request needs, so that it is allocated once
	corrValue [1]string // the header of the answer
	context   callContext
	dog       watchdog

	// owned by the goroutine of the request
	route  *mounted  // nil until the mux has found one
	watch  *watchdog // &dog, for a transfer
	bounds bounds
	status int // what was answered; zero while nothing was
	bytes  int64
	missed int // the status by which the mux refused, if it did
	left   bool

	// of the body, which a proxy reads on another goroutine
	whole   atomic.Bool // it was read to its end
	arrived int64       // owned by who reads it: bytes since the read deadline was last moved
}

type callKey struct{}

// callContext is the context of a request in which its call can be found.
type callContext struct {
	context.Context
	call *call
}

// Value finds the call, and what the context below it has.
func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c.call
	}
	return c.Context.Value(key)
}

// within makes the context of the call, on top of that of its request.
func (c *call) within(ctx context.Context) context.Context {
	c.context = callContext{observe.WithCorrID(ctx, c.corrID), c}
	return &c.context
}

// callOf finds the call of a request in its context, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Client is the address of the connection that a request came by. It is the
// zero Addr on a socket without addresses.
func Client(r *http.Request) netip.Addr {
	if c := callOf(r.Context()); c != nil {
		return c.client
	}
	return netip.Addr{}
}

// Local reports whether a request came by the local socket.
func Local(r *http.Request) bool {
	c := callOf(r.Context())
	return c != nil && c.listener.options.Local
}

// Header is that of the answer.
func (c *call) Header() http.Header { return c.under.Header() }

// Unwrap gives http.ResponseController what lies below.
func (c *call) Unwrap() http.ResponseWriter { return c.under }

// WriteHeader begins the answer. A status with which the mux itself refuses is
// kept back: it is answered in our own words.
func (c *call) WriteHeader(status int) {
	if c.route == nil {
		if status >= http.StatusBadRequest {
			c.missed = status
			return
		}
		c.hurry(0) // a redirect to the clean form of a path
	}
	c.note(status)
	c.under.WriteHeader(status)
}

// note remembers that the answer has begun. Informational answers are not it.
func (c *call) note(status int) {
	if c.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	c.status = status
	c.server.cors.addVary(c.under.Header())
	if c.watch != nil {
		c.watch.answered()
	}
}

// Write sends a part of the answer.
func (c *call) Write(p []byte) (n int, err error) {
	if c.missed != 0 {
		return len(p), nil
	}
	c.note(http.StatusOK)
	if c.watch == nil || !c.http2 {
		n, err = c.under.Write(p)
		c.bytes += int64(n)
		return n, err
	}
	for n < len(p) && err == nil {
		var m int
		c.setWriteDeadline(time.Now().Add(c.watch.limit))
		m, err = c.under.Write(p[n:min(n+pieceSize, len(p))])
		n += m
		c.watch.moved()
	}
	c.bytes += int64(n)
	return n, err
}

// copies are the buffers of ReadFrom.
var copies = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// ReadFrom lets io.Copy reach what lies below, down to the kernel's own copy
// from a file.
func (c *call) ReadFrom(src io.Reader) (n int64, err error) {
	below, able := c.under.(io.ReaderFrom)
	if !able || c.missed != 0 {
		buffer := copies.Get().(*[pieceSize]byte)
		defer copies.Put(buffer)
		return io.CopyBuffer(onlyWriter{c}, onlyReader{src}, buffer[:])
	}
	c.note(http.StatusOK)
	if header := c.Header(); isFile(src) && len(header["Content-Length"]) > 0 && len(header["Content-Type"]) > 0 {
		// Before the head is sent, net/http would read the beginning of the
		// file itself, to guess the type.
		if err := http.NewResponseController(c.under).Flush(); err != nil {
			return 0, err
		}
	}
	n, err = below.ReadFrom(src)
	c.bytes += n
	return n, err
}

// isFile reports whether the kernel can copy from a reader.
func isFile(src io.Reader) bool {
	if limited, ok := src.(*io.LimitedReader); ok {
		src = limited.R
	}
	_, ok := src.(*os.File)
	return ok
}

// FlushError sends what was written so far.
func (c *call) FlushError() error {
	c.note(http.StatusOK)
	return http.NewResponseController(c.under).Flush()
}

// setWriteDeadline bounds writing of the answer. In HTTP/1 the connection is
// ours alone; in HTTP/2 it is shared, and each stream has its own deadline.
// Where there is no such thing as a deadline, there is nobody to be stuck.
func (c *call) setWriteDeadline(t time.Time) {
	if c.conn != nil && !c.http2 {
		_ = c.conn.SetWriteDeadline(t) // fails on a closed connection, and then writing will say so
		return
	}
	_ = http.NewResponseController(c.under).SetWriteDeadline(t)
}

// setReadDeadline bounds reading of the body.
func (c *call) setReadDeadline(t time.Time) {
	_ = http.NewResponseController(c.under).SetReadDeadline(t)
}

// begin puts a transfer under watch.
func (c *call) begin(watch *watchdog) {
	c.watch = watch
	if c.body {
		watch.read = c.setReadDeadline
		watch.readOn()
	}
	if c.conn != nil && !c.http2 {
		c.conn.watch.Store(watch)
	}
}

// fail answers with an error. If the answer has begun, all that is left is to
// cut it off, so that nobody takes it for a whole one.
func (c *call) fail(r *http.Request, err error) {
	kind := fault.KindOf(err)
	c.notice(r, kind)
	if c.status != 0 {
		c.count().IOErrors.WithLabelValues("cut").Inc()
		panic(http.ErrAbortHandler)
	}
	if kind == fault.Unauthorized {
		c.Header().Set("WWW-Authenticate", "Bearer")
	}
	c.hurry(kind)
	c.missed = 0
	if observe.CorrID(r.Context()) == "" {
		r = r.WithContext(observe.WithCorrID(r.Context(), c.corrID))
	}
	observe.WriteProblem(problemWriter{c}, r, err)
}

// problemWriter writes even if no route was found.
type problemWriter struct{ *call }

// WriteHeader begins the refusal.
func (w problemWriter) WriteHeader(status int) {
	w.note(status)
	w.under.WriteHeader(status)
}

// How long, and for how many bytes, a refusal waits for the rest of a body.
const (
	restWait = 20 * time.Millisecond
	restMost = 64 << 10
)

// hurry keeps a refusal from waiting for the body. net/http would read the rest
// of it first, however slowly that comes, to keep the connection. If the rest
// is here already, which is usual for a small one, it is read and the
// connection stays; if not, the connection is closed after the answer.
//
// A client that does not even take the refusal is not waited for either.
func (c *call) hurry(kind fault.Kind) {
	c.setWriteDeadline(time.Now().Add(answerGrace))
	if !c.body || c.http2 || c.whole.Load() {
		return
	}
	wait := c.request.Header.Get("Expect") == "" && c.request.ContentLength <= restMost
	switch kind {
	case fault.Timeout, fault.BodyTooLarge, fault.RatioCap:
		wait = false // it is known to be slow, or too much
	}
	if wait && c.restIsHere() {
		return
	}
	c.Header().Set("Connection", "close")
	c.setReadDeadline(time.Now().Add(answerGrace)) // for what net/http still reads before it closes
}

// restIsHere reads the rest of the body and reports whether that was all.
func (c *call) restIsHere() bool {
	c.setReadDeadline(time.Now().Add(restWait))
	n, err := io.CopyN(io.Discard, c.request.Body, restMost)
	return err == io.EOF && n < restMost
}

// late gives an error the kind that the client should see: what ended because
// the deadline of the route passed is a time-out, whatever the handler made of
// it.
func late(ctx context.Context, err error) error {
	if fault.KindOf(err) == fault.Canceled && fault.KindOf(context.Cause(ctx)) == fault.Timeout {
		return fault.Wrap("http", context.Cause(ctx))
	}
	return err
}

// notice looks at an error before it is answered: time-outs are counted, and
// for a client that has left there is no answer to count.
func (c *call) notice(r *http.Request, kind fault.Kind) {
	switch {
	case kind == fault.Timeout:
		c.count().IOTimeouts.WithLabelValues("request").Inc()
	case kind == fault.BrokenPipe, kind == fault.Canceled && r.Context().Err() != nil:
		c.left = true
	}
}

// count is where the route's service counts, or the server's if there is none.
func (c *call) count() *observe.Instruments {
	if c.route != nil {
		return c.route.instruments
	}
	return c.server.instruments
}

// end runs when everything else has, and after a panic too.
func (c *call) end(r *http.Request) {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		c.server.logger.ErrorContext(observe.WithCorrID(r.Context(), c.corrID), "a handler panicked",
			"route", c.pattern(), "panic", p, "stack", string(debug.Stack()))
		if c.status == 0 {
			c.fail(r, fault.New("http", fault.Internal, "the handler failed"))
			p = nil
		}
	}
	c.settle(r)
	if p != nil {
		panic(http.ErrAbortHandler) // the answer has begun; only cutting the connection is left
	}
}

// clientLeft is the status that metrics show for a client that did not wait
// for its answer, as is the custom. It is never sent.
const clientLeft = 499

// settle counts the request.
func (c *call) settle(r *http.Request) {
	status := c.status
	switch {
	case c.left:
		status = clientLeft
	case status == 0: // net/http says so if nobody did
		status = http.StatusOK
		c.server.cors.addVary(c.under.Header())
	}
	took := time.Since(c.start)
	if c.route != nil {
		c.route.served(r.Method, status, took)
	} else {
		c.server.unrouted.served(r.Method, status, took)
	}
	if tell := c.server.onAnswer; tell != nil {
		tell(Answer{
			Service: c.service(), Route: c.pattern(), Method: r.Method, Status: status, Bytes: c.bytes, Took: took,
			Client: c.client, Local: c.listener.options.Local, CorrID: c.corrID,
		})
	}
}

func (c *call) pattern() string {
	if c.route != nil {
		return c.route.route.Pattern
	}
	return noRoute
}

func (c *call) service() string {
	if c.route != nil {
		return c.route.route.Service
	}
	return c.server.service
}
