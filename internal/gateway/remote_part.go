package gateway

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/corr"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// Part is a part of the node, as the gateway sees it.
type Part struct {
	Routes []ingress.Route    // its own table, wherever it runs
	Warm   ingress.WarmRoutes // its prepared answers for the warm lane; empty if it is remote
	Remote *RemotePart        // where it runs; nil if that is here
}

// Mount combines the tables of all parts and the process's own routes, and all
// prepared answers.
func Mount(parts []Part, own ...ingress.Route) (*ingress.Table, ingress.WarmRoutes, error) {
	var routes []ingress.Route
	var warm ingress.WarmRoutes
	for _, part := range parts {
		if part.Remote == nil {
			routes, warm = append(routes, part.Routes...), append(warm, part.Warm...)
			continue
		}
		for _, route := range part.Routes {
			routes = append(routes, part.Remote.Route(route))
		}
	}
	table, err := ingress.NewTable(slices.Concat(routes, own)...)
	return table, warm, err
}

const passOp = "gateway.pass"

// RemotePartSpec is what the gateway knows of a part in another process.
type RemotePartSpec struct {
	Name string // of the part
	Addr PartAddr

	// Prove authenticates the part, where the kernel does not.
	Prove ProofFunc

	// OnImpostor is called when the server at the part's address did not prove
	// to be it; may be nil.
	OnImpostor func()

	// RequestToken returns the capability with which this process forwards a
	// request that it has accepted for a scope. Empty where none is needed. The
	// caller's own capability is never forwarded.
	RequestToken func(r *http.Request, scope string) (token string, err error)

	// PartToken returns the capability with which this process proves that it
	// is a part of the node, so that its forwarded client is believed; empty
	// where the kernel vouches for it. Nil if the part need not tell clients
	// apart.
	PartToken func() (token string, err error)

	MaxRequests int // how many may be under way
	MaxStreams  int // how many of the endless ones
}

// RemotePart is a part that runs in another process. Its methods may be called
// concurrently.
type RemotePart struct {
	// set at construction
	spec                              RemotePartSpec
	requestTransport, streamTransport *http.Transport // streams have connections of their own, so that they never hold up the rest
	requestProxy, streamProxy         *httputil.ReverseProxy
}

// NewRemotePart makes the client of a part. It does not connect: the first
// request does.
func NewRemotePart(spec RemotePartSpec) *RemotePart {
	a := &RemotePart{spec: spec, requestTransport: spec.Addr.Transport(spec.MaxRequests, spec.Prove), streamTransport: spec.Addr.Transport(spec.MaxStreams, spec.Prove)}
	a.requestProxy, a.streamProxy = a.proxy(a.requestTransport), a.proxy(a.streamTransport)
	return a
}

func (rp *RemotePart) proxy(transport *http.Transport) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rp.rewrite, Transport: transport, ModifyResponse: rp.modifyResponse, ErrorHandler: rp.handleError,
		BufferPool: copyBuffers{}, ErrorLog: log.New(io.Discard, "", 0), // failures are answered, and counted there
	}
}

// Close closes idle connections.
func (rp *RemotePart) Close() {
	rp.requestTransport.CloseIdleConnections()
	rp.streamTransport.CloseIdleConnections()
}

// Route is a route of the part as it is mounted here. The part's lane stays
// with the part; the limits are those of the same route there.
func (rp *RemotePart) Route(route ingress.Route) ingress.Route {
	proxy, scope := rp.requestProxy, route.Scope
	if route.Class == ingress.Stream {
		proxy = rp.streamProxy
	}
	hasDeadline, waits := route.Class == ingress.Control, route.Waits
	route.Lane = nil
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		token, err := rp.spec.RequestToken(r, scope)
		if err != nil {
			return fault.Wrap(passOp, err)
		}
		voucher, err := rp.partToken()
		if err != nil {
			return fault.Wrap(passOp, err)
		}
		t := &proxiedRequest{w: w, serverHeader: maps.Clone(w.Header()), requestToken: token, partToken: voucher, hasDeadline: hasDeadline}
		if waits {
			t.waiting = r
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), proxiedRequestKey{}, t)))
		return t.err
	}
	return route
}

func (rp *RemotePart) partToken() (token string, err error) {
	if rp.spec.PartToken == nil {
		return "", nil
	}
	return rp.spec.PartToken()
}

// proxiedRequest is a request that is forwarded to a part. It belongs to the
// goroutine of the request.
type proxiedRequest struct {
	w            http.ResponseWriter
	serverHeader http.Header   // the header that the server set before the part was called
	requestToken string        // of this process; empty if the part needs none
	partToken    string        // proves that this process is a part; empty if it need not
	hasDeadline  bool          // the route has a deadline for the whole request
	waiting      *http.Request // the client's, if its capability may have ended before the part answered

	err error // why there is no answer
}

type proxiedRequestKey struct{}

func proxiedRequestOf(r *http.Request) *proxiedRequest {
	return r.Context().Value(proxiedRequestKey{}).(*proxiedRequest)
}

// droppedHeaders are headers that have been handled here. The gateway sets some
// of them again.
var droppedHeaders = []string{
	"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers", "Access-Control-Request-Private-Network", "Deadline",
	ingress.ClientHeader, ingress.VoucherHeader, ingress.AnonymousHeader, ingress.SenderHeader, ingress.StrangerHeader, ingress.SiteHeader,
}

// rewrite makes the request that is sent to the part.
func (rp *RemotePart) rewrite(p *httputil.ProxyRequest) {
	t, base := proxiedRequestOf(p.In), rp.spec.Addr.base
	p.Out.URL.Scheme, p.Out.URL.Host = base.Scheme, base.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // unchanged: an origin may need it so
	if base.Scheme == "http" && rp.spec.Addr.socket == "" && !config.IsLoopbackHost(hostname(p.In.Host)) {
		p.Out.Host = base.Host // a listener on loopback answers to its own names only; the others need the client's Host
	}
	p.Out.Header[ingress.BaseHeader] = []string{ingress.BaseURL(p.In)}
	deadline := p.In.Header.Get("Deadline")
	for _, name := range droppedHeaders {
		p.Out.Header.Del(name)
	}
	switch end, bounded := p.In.Context().Deadline(); {
	case bounded && t.hasDeadline:
		p.Out.Header.Set("Request-Timeout", remainingSeconds(time.Until(end)))
	case deadline != "":
		p.Out.Header.Set("Deadline", deadline)
	}
	if ingress.RequireCredentials(p.In) != nil {
		p.Out.Header.Set(ingress.AnonymousHeader, "1")
	}
	if ingress.BySiteHost(p.In) {
		p.Out.Header.Set(ingress.SiteHeader, "1")
	}
	if ingress.IsStranger(p.In) {
		p.Out.Header.Set(ingress.StrangerHeader, "1")
	}
	switch {
	case t.requestToken != "":
		p.Out.Header.Set("Authorization", "Bearer "+t.requestToken)
	case strings.HasPrefix(ingress.Bearer(p.In.Header), capability.Prefix):
		p.Out.Header.Del("Authorization") // one of ours; others are for an origin
	}
	if rp.spec.PartToken != nil {
		if client := ingress.Client(p.In); client.IsValid() {
			p.Out.Header.Set(ingress.ClientHeader, client.String())
		}
		if sender := ingress.Sender(p.In); sender != "" {
			p.Out.Header.Set(ingress.SenderHeader, sender)
		}
		if t.partToken != "" {
			p.Out.Header.Set(ingress.VoucherHeader, t.partToken)
		}
	}
	p.Out.Header.Set(corr.Header, corr.From(p.In.Context()))
}

// hostname is the name in a Host value, without its port.
func hostname(hostport string) string {
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		return name
	}
	return strings.Trim(hostport, "[]")
}

// remainingSeconds is the Request-Timeout for a part: slightly less than what
// is left, so that its own time-out arrives in time.
func remainingSeconds(left time.Duration) string {
	left -= min(left/10, 50*time.Millisecond)
	return strconv.FormatFloat(max(left, time.Millisecond).Seconds(), 'f', 3, 64)
}

// modifyResponse merges the header of an answer before it is passed back. Where
// both sides set the same header, the part's is used.
func (rp *RemotePart) modifyResponse(response *http.Response) error {
	t := proxiedRequestOf(response.Request)
	if response.StatusCode == http.StatusUnauthorized && t.requestToken != "" {
		return &fault.Error{Op: passOp, Kind: fault.UpstreamFailed, Detail: "the part " + rp.spec.Name + " does not know the capabilities of this process", RetryAfter: time.Second,
			Next: "Give both the same auth.root, and see that their clocks agree."}
	}
	if t.waiting != nil { // the part knows the capability of this process only, which did not end
		if err := ingress.StillAuthorised(t.waiting); err != nil {
			return fault.Wrap(passOp, err)
		}
	}
	header := t.w.Header()
	for name, values := range t.serverHeader { // an interim answer removes all of them
		header[name] = values
	}
	for name := range response.Header {
		delete(header, name)
	}
	return nil
}

// handleError keeps the error, for the server to answer.
func (rp *RemotePart) handleError(_ http.ResponseWriter, r *http.Request, err error) {
	t := proxiedRequestOf(r)
	header := t.w.Header()
	for name, values := range t.serverHeader {
		header[name] = values
	}
	t.err = rp.explain(r, err)
}

// explain turns a failure into the fault for the client.
func (rp *RemotePart) explain(r *http.Request, err error) error {
	own, typed := errors.AsType[*fault.Error](err)
	switch {
	case r.Context().Err() != nil:
		return flow.Ended(r.Context(), passOp)
	case typed && (own.Op == passOp || strings.HasPrefix(own.Op, "http.")):
		return err // ours, or an error of the request's body
	}
	if IsImpostor(err) && rp.spec.OnImpostor != nil {
		rp.spec.OnImpostor()
	}
	return ExplainFailure(passOp, rp.spec.Name, rp.spec.Addr, err)
}

// ExplainFailure maps a failed call to a fault: NotReady if nothing listens,
// UpstreamFailed if the part closed the connection.
func ExplainFailure(op, name string, addr PartAddr, err error) error {
	own, typed := errors.AsType[*fault.Error](err)
	dial, dialled := errors.AsType[*net.OpError](err)
	switch {
	case IsImpostor(err):
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, RetryAfter: time.Second, Err: err,
			Detail: "what listens at " + addr.String() + " does not prove to be the part " + name + ": " + own.Detail,
			Next:   "Nothing was sent to it. Check what listens there. If it is the part, give both the same auth.root and version, and connect them without a proxy that terminates TLS."}
	case typed && own.Kind == fault.Forbidden && strings.HasSuffix(own.Op, ".dial"):
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: "the socket of the part " + name + " belongs to another user", Next: own.Next, RetryAfter: time.Second, Err: err}
	case typed && strings.HasSuffix(own.Op, ".dial"), dialled && dial.Op == "dial":
		return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the part " + name + " does not answer at " + addr.String(), RetryAfter: time.Second, Err: err,
			Next: "Start it with `micronode run --only " + name + "`, or correct node.parts." + name + "; the node reconnects by itself."}
	}
	return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: "the part " + name + " broke off", RetryAfter: time.Second, Err: err,
		Next: "Retry in a moment. If it persists, check the log of that part."}
}

// copyBuffers are the buffers for copying bodies.
type copyBuffers struct{}

const bufferSize = 32 << 10

var bufferPool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Get takes one from the pool.
func (copyBuffers) Get() []byte { return bufferPool.Get().(*[bufferSize]byte)[:] }

// Put returns it.
func (copyBuffers) Put(b []byte) { bufferPool.Put((*[bufferSize]byte)(b)) }
