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
	"micronode/internal/bandwidth"
	"micronode/internal/corr"
	"micronode/internal/observe"
)

// call is one request on its way through the chain, and the response writer
// that its handler gets. It knows whether the answer has begun, which decides
// how an error can still be reported.
type call struct {
	// set when the request arrives
	inner     http.ResponseWriter
	server    *Server
	listener  *Listener
	conn      *conn // nil without a listener of ours
	client    netip.Addr
	policy    *policy
	proxied   proxied      // what a trusted proxy says of the request
	site      bool         // it came by the host of a site
	forwarded bool         // it came through a proxy that the operator trusts
	passedOn  bool         // it says that some proxy on this machine passed it on
	remote    bool         // its bytes leave this machine
	held      *clientState // the state of the client, where the connection has none; released at the end
	start     time.Time
	corrID    string
	http2     bool
	body      bool          // the request has one
	request   *http.Request // as net/http gave it

	// memory for what every request needs, so that it is allocated once
	corrValue [1]string // the header of the answer
	context   callContext
	watchdog  watchdog

	// owned by the goroutine of the request
	route         *mountedRoute // the server's unrouted, until the mux has found one
	transferWatch *watchdog     // &watchdog, for a transfer
	progressWatch *watchdog     // &watchdog, for a transfer and a stream
	deadline      time.Time     // for the whole request; zero if there is none
	limits        requestLimits

	// of a transfer that leaves this machine: see bandwidth.go
	transferContext context.Context // ends when the transfer is to end
	strangerKnown   bool            // stranger was found out
	stranger        bool

	muxStatus int // the status by which the mux refused, if it did

	// shared by the handler and the deadline: see overrun.go
	responder  atomic.Int32
	status     atomic.Int32 // of the answer; zero until it begins
	bytes      atomic.Int64
	clientLeft atomic.Bool
	holdsSlot  atomic.Bool // among the running requests
	holdsLane  atomic.Bool // a slot of the route's lane
	readClass  uint64      // the class of its slot among the cheap requests; written before holdsSlot
	inReads    bool        // its slot is among the cheap requests; written before holdsSlot
	share      *share      // that the slot counts against; nil if it counts against none; written before holdsSlot

	detached    *detachedHandler // nil for a handler on net/http's goroutine
	abandoned   bool             // owned by net/http's goroutine: the detached handler did not return
	overrunDone chan struct{}    // closed when the deadline has answered
	inStuckLane bool             // counted among the stuck; written before overrunDone is closed
	handlerDone chan struct{}    // closed when a stuck handler has returned; nil if nothing waits for it

	controllerMu sync.Mutex //lockblock:leaf held while a deadline of a stream of HTTP/2 is set

	writeDeadlineSet time.Time // owned by the handler: when the write deadline of its stream was last set

	holding holding // what it holds of limits.memory

	// of the body, which a proxy reads on another goroutine
	bodyComplete       atomic.Bool  // it was read to its end
	awaitingBody       atomic.Bool  // a read of it is waiting for bytes
	bodyStalled        atomic.Bool  // they were late
	readDeadline       atomic.Int64 // in Unix nanoseconds; zero for none
	bytesSinceProgress int64        // owned by the reader: bytes since the read deadline was last moved
}

type callKey struct{}

// callContext is the context of a request in which its call can be found.
type callContext struct {
	context.Context
	call *call
}

// Value returns the call, or what the inner context has.
func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c.call
	}
	return c.Context.Value(key)
}

// callOf finds the call of a request in its context, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// clientState is the state of the client's network, or nil without a connection
// of ours.
func (c *call) clientState() *clientState {
	if c.conn == nil || c.held != nil {
		return c.held
	}
	return c.conn.clientState
}

// Client is the address of the client of a request: that of its connection, or
// what a trusted proxy says. It is the zero Addr on a socket without addresses.
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
func (c *call) Header() http.Header { return c.inner.Header() }

// Unwrap returns the inner writer, for http.ResponseController.
func (c *call) Unwrap() http.ResponseWriter { return c.inner }

// WriteHeader begins the answer. An error status of the mux itself is held
// back: call.fail answers with a problem document instead.
func (c *call) WriteHeader(status int) {
	if c.route == c.server.unrouted {
		if status >= http.StatusBadRequest {
			c.muxStatus = status
			return
		}
		c.limitRefusal(0) // a redirect to the clean form of a path
	}
	if c.startResponse(status) {
		c.inner.WriteHeader(status)
	}
}

// startResponse records that the answer has begun, and reports whether it may
// go on: the deadline may have answered before. Informational answers do not
// count.
func (c *call) startResponse(status int) bool {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return c.detached == nil && c.responder.Load() <= responderHandler
	}
	if !c.claimResponse() {
		return false
	}
	if c.status.CompareAndSwap(0, int32(status)) {
		if c.detached != nil {
			c.detached.copyHeaders()
		}
		c.policy.cors.addVary(c.inner.Header())
		if c.conn != nil && !c.http2 && c.conn.readTimedOut.Load() {
			c.inner.Header().Set("Connection", "close")
		}
		if c.progressWatch != nil {
			c.progressWatch.startResponse()
		}
	}
	return true
}

// Write sends a part of the answer.
func (c *call) Write(p []byte) (n int, err error) {
	if c.muxStatus != 0 {
		return len(p), nil
	}
	if !c.startResponse(http.StatusOK) {
		return 0, errOverrun
	}
	if c.remote {
		return c.writeRemote(p)
	}
	return c.write(p)
}

// write sends what may be sent now.
func (c *call) write(p []byte) (n int, err error) {
	if c.transferWatch == nil || !c.http2 {
		n, err = c.inner.Write(p)
		c.bytes.Add(int64(n))
		if c.transferWatch == nil && c.progressWatch != nil && err == nil {
			c.progressWatch.progress()
		}
		return n, err
	}
	for n < len(p) && err == nil {
		var m int
		if now := time.Now(); now.Sub(c.writeDeadlineSet) > writePollStep {
			c.writeDeadlineSet = now
			c.setWriteDeadline(now.Add(c.transferWatch.limit))
		}
		m, err = c.inner.Write(p[n:min(n+http2Chunk, len(p))])
		n += m
		c.transferWatch.progress()
		c.transferWatch.moved(m)
	}
	c.bytes.Add(int64(n))
	return n, err
}

// http2Chunk is what a stream of HTTP/2 writes between two checks of the clock:
// a frame. A slow client takes long for more.
const http2Chunk = 16 << 10

// copyBuffers are the buffers of ReadFrom.
var copyBuffers = sync.Pool{New: func() any { return new([copyChunk]byte) }}

// ReadFrom lets io.Copy reach the inner writer, down to the kernel's own copy
// from a file.
func (c *call) ReadFrom(src io.Reader) (n int64, err error) {
	below, able := c.inner.(io.ReaderFrom)
	if !able || c.muxStatus != 0 {
		buffer := copyBuffers.Get().(*[copyChunk]byte)
		defer copyBuffers.Put(buffer)
		return io.CopyBuffer(onlyWriter{c}, onlyReader{src}, buffer[:])
	}
	if !c.startResponse(http.StatusOK) {
		return 0, errOverrun
	}
	if header := c.Header(); isFile(src) && len(header["Content-Length"]) > 0 && len(header["Content-Type"]) > 0 {
		// Before the header is sent, net/http would read the beginning of the
		// file itself, to guess the type.
		if err := http.NewResponseController(c.inner).Flush(); err != nil {
			return 0, err
		}
	}
	if c.remote && c.transferWatch != nil {
		return c.readFromRemote(below, src)
	}
	n, err = below.ReadFrom(src)
	c.bytes.Add(n)
	if c.remote {
		c.server.bandwidth.Up().Charge(bandwidth.Gateway, int(n))
	}
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
	if !c.startResponse(http.StatusOK) {
		return errOverrun
	}
	return http.NewResponseController(c.inner).Flush()
}

// setWriteDeadline bounds writing of the answer. In HTTP/1 the connection is
// ours alone; in HTTP/2 it is shared, and each stream has its own deadline.
// Writers without deadlines (tests) cannot block.
func (c *call) setWriteDeadline(t time.Time) {
	if c.conn != nil && !c.http2 {
		_ = c.conn.SetWriteDeadline(t) // fails on a closed connection, and then the write reports it
		return
	}
	c.withController(func(under *http.ResponseController) error { return under.SetWriteDeadline(t) })
}

// setReadDeadline bounds reading of the body.
func (c *call) setReadDeadline(t time.Time) {
	c.readDeadline.Store(t.UnixNano())
	c.withController(func(under *http.ResponseController) error { return under.SetReadDeadline(t) })
}

// endReadDeadline removes the deadline for reading when the body is complete.
// From then on net/http reads ahead to detect that the client leaves. To it, a
// deadline that passes means that the client has left: it ends the context of
// this request and of all later ones of the connection.
func (c *call) endReadDeadline() {
	if c.conn != nil && !c.http2 {
		c.withController(func(under *http.ResponseController) error { return under.SetReadDeadline(time.Time{}) })
	}
}

// withController calls do with the inner writer's controller, unless the
// deadline has answered: then net/http may be done with the stream.
func (c *call) withController(do func(*http.ResponseController) error) {
	under := http.NewResponseController(c.inner)
	if c.detached == nil {
		_ = do(under)
		return
	}
	c.controllerMu.Lock()
	defer c.controllerMu.Unlock()
	if c.responder.Load() != responderDeadline {
		_ = do(under)
	}
}

// fail answers with an error. If the answer has begun, the connection is cut,
// so that the client does not take a part for the whole.
func (c *call) fail(r *http.Request, err error) {
	kind := fault.KindOf(err)
	c.countFailure(r, kind)
	switch turn := c.responder.Load(); {
	case turn == responderHandler, turn == responderCut && c.abandoned:
		c.route.instruments.IOErrors.WithLabelValues("cut").Inc()
		panic(http.ErrAbortHandler)
	case !c.abandoned && !c.claimResponse():
		return // the deadline has answered before
	}
	if kind == fault.Unauthorized {
		c.Header().Set("WWW-Authenticate", "Bearer")
	}
	c.limitRefusal(kind)
	if what, isLimit := c.route.limitOf(err); isLimit {
		c.server.noteRefusedClient(c.client, what)
	}
	c.muxStatus = 0
	if corr.From(r.Context()) == "" {
		r = r.WithContext(corr.With(r.Context(), c.corrID))
	}
	observe.WriteProblem(problemWriter{c}, r, err)
}

// problemWriter writes even if no route was found, and in place of an abandoned
// handler: call.fail has checked that it may.
type problemWriter struct{ *call }

// WriteHeader begins the refusal.
func (w problemWriter) WriteHeader(status int) {
	w.status.Store(int32(status))
	w.policy.cors.addVary(w.inner.Header())
	w.inner.WriteHeader(status)
}

// Write sends it.
func (w problemWriter) Write(p []byte) (int, error) {
	n, err := w.inner.Write(p)
	w.bytes.Add(int64(n))
	if w.remote {
		w.server.bandwidth.Up().Charge(bandwidth.Gateway, n)
	}
	return n, err
}

// How long, and for how many bytes, a refusal waits for the rest of a body.
const (
	restTimeout = 20 * time.Millisecond
	restMax     = 64 << 10
)

// limitRefusal keeps a refusal from waiting for the body. net/http would read
// the rest of it first, however slowly that comes, to keep the connection. If
// the rest is here already, which is usual for a small one, it is read and the
// connection stays; if not, the connection is closed after the answer.
//
// A client that does not read the refusal is cut off as well.
func (c *call) limitRefusal(kind fault.Kind) {
	if c.abandoned {
		_ = http.NewResponseController(c.inner).SetWriteDeadline(time.Now().Add(answerGrace)) // the stream is ours alone now
		return
	}
	c.setWriteDeadline(time.Now().Add(answerGrace))
	if !c.body || c.http2 || c.bodyComplete.Load() {
		return
	}
	wait := c.request.Header.Get("Expect") == "" && c.request.ContentLength <= restMax
	switch kind {
	case fault.Timeout, fault.RequestTimeout, fault.BodyTooLarge, fault.RatioCap:
		wait = false // it is known to be slow, or too much
	}
	if wait && c.discardRest() {
		return
	}
	c.Header().Set("Connection", "close")
	c.setReadDeadline(time.Now().Add(answerGrace)) // for what net/http still reads before it closes
}

// discardRest reads the rest of the body and reports whether that was all.
func (c *call) discardRest() bool {
	c.setReadDeadline(time.Now().Add(restTimeout))
	n, err := io.CopyN(io.Discard, c.request.Body, restMax)
	if err != io.EOF || n >= restMax {
		return false
	}
	c.endReadDeadline()
	return true
}

// timeoutError gives an error the kind that the client should see: what ended
// because the deadline of the route passed is a time-out, whatever error the
// handler made of it, and RequestTimeout if the client's bytes were late.
// (net/http ends the context of a request whose body cannot be read, before the
// read returns.)
func (c *call) timeoutError(ctx context.Context, err error) error {
	if context.Cause(ctx) == errGaveWay {
		return errGaveWay
	}
	if kind := fault.KindOf(err); (kind == fault.Canceled || kind == fault.Timeout) && c.isSlowClient(ctx) {
		return &fault.Error{Op: "http.body", Kind: fault.RequestTimeout, Detail: slowBodyDetail, Err: err}
	}
	if fault.KindOf(err) == fault.Canceled && fault.KindOf(context.Cause(ctx)) == fault.Timeout {
		return fault.Wrap("http", context.Cause(ctx))
	}
	return err
}

// countFailure looks at an error before it is answered: it counts time-outs and
// marks a client that has left, for which no answer is counted.
func (c *call) countFailure(r *http.Request, kind fault.Kind) {
	switch {
	case kind == fault.Timeout:
		c.route.instruments.IOTimeouts.WithLabelValues("request").Inc()
	case kind == fault.RequestTimeout:
		c.route.instruments.IOTimeouts.WithLabelValues("read").Inc()
	case kind == fault.BrokenPipe, kind == fault.Canceled && r.Context().Err() != nil:
		c.clientLeft.Store(true)
	}
}

// statusClientClosed is the status that metrics show for a client that left
// before its answer, as is the custom. It is never sent.
const statusClientClosed = 499

// recoverAndFinish runs last, and after a panic too.
func (c *call) recoverAndFinish(r *http.Request) {
	p := recover()
	if c.held != nil {
		defer c.server.clients.unhold(c.held)
	}
	defer c.releaseHeld()
	stack := debug.Stack
	if died, ok := p.(*handlerPanic); ok {
		p, stack = died.value, func() []byte { return died.stack }
	}
	if p != nil && p != http.ErrAbortHandler {
		c.server.logger.ErrorContext(corr.With(r.Context(), c.corrID), "a handler panicked",
			"route", c.route.route.Pattern, "panic", p, "stack", string(stack()))
		if c.responder.Load() == responderNone {
			c.fail(r, fault.New("http", fault.Internal, "the handler failed"))
			p = nil
		}
	}
	if !c.finish() {
		panic(http.ErrAbortHandler) // the deadline has answered, and closed the connection
	}
	status := int(c.status.Load())
	switch {
	case c.clientLeft.Load():
		status = statusClientClosed
	case status == 0: // net/http's default
		status = http.StatusOK
		c.policy.cors.addVary(c.inner.Header())
	}
	c.noteRefusedOrigin(r)
	c.recordRequest(r.Method, status, c.bytes.Load())
	if p != nil {
		panic(http.ErrAbortHandler) // the answer has begun; only cutting the connection is left
	}
}

// recordRequest counts the request, with the status that was sent.
func (c *call) recordRequest(method string, status int, bytes int64) {
	took := time.Since(c.start)
	c.chargeHeads()
	c.route.counter(method, status).Inc()
	c.route.latency.Observe(took.Seconds())
	if onDone := c.server.onRequestDone; onDone != nil {
		onDone(RequestSummary{
			Service: c.route.route.Service, Route: c.route.route.Pattern, Method: method, Status: status, Bytes: bytes, Took: took,
			Client: c.client, Local: c.listener.options.Local, CorrID: c.corrID,
		})
	}
}
