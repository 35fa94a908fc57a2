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
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

const op = "gateway.pass"

// AwaySpec is what the gateway knows of a part in another process.
type AwaySpec struct {
	Name  string // of the part
	Place Place

	// Vouch gives the capability by which this process vouches for a request that
	// it has let in for a scope. Empty leaves the request with what it came with.
	Vouch func(r *http.Request, scope string) (token string, err error)

	// Introduce gives the capability by which this process shows that it is a part
	// of the node, so that it is believed for whom it asks; empty where the kernel
	// vouches. Nil if the part need not know the clients apart.
	Introduce func() (token string, err error)

	Requests int // how many may be under way
	Streams  int // how many of those that have no end
}

// Away is a part that runs in another process. Its methods may be called by many
// at once.
type Away struct {
	// set at construction
	spec            AwaySpec
	brief, lasting  *http.Transport // streams have connections of their own, so that they never hold up the rest
	passed, flowing *httputil.ReverseProxy
}

// NewAway makes the way to a part. It does not connect: the first request does.
func NewAway(spec AwaySpec) *Away {
	a := &Away{spec: spec, brief: spec.Place.Transport(spec.Requests), lasting: spec.Place.Transport(spec.Streams)}
	a.passed, a.flowing = a.proxy(a.brief), a.proxy(a.lasting)
	return a
}

func (a *Away) proxy(over *http.Transport) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: a.rewrite, Transport: over, ModifyResponse: a.answered, ErrorHandler: a.failed,
		BufferPool: buffers{}, ErrorLog: log.New(io.Discard, "", 0), // what fails is answered, and counted there
	}
}

// Close gives idle connections back.
func (a *Away) Close() {
	a.brief.CloseIdleConnections()
	a.lasting.CloseIdleConnections()
}

// Route is a route of the part as it is mounted here. What it waits in is the
// part's affair; what is let in is decided by the same line as there.
func (a *Away) Route(route ingress.Route) ingress.Route {
	over, scope := a.passed, route.Scope
	if route.Class == ingress.Stream {
		over = a.flowing
	}
	timed := route.Class == ingress.Control
	route.Lane = nil
	route.Handler = func(w http.ResponseWriter, r *http.Request) error {
		token, err := a.spec.Vouch(r, scope)
		if err != nil {
			return fault.Wrap(op, err)
		}
		voucher, err := a.introduce()
		if err != nil {
			return fault.Wrap(op, err)
		}
		t := &trip{w: w, before: maps.Clone(w.Header()), token: token, voucher: voucher, timed: timed}
		over.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tripKey{}, t)))
		return t.err
	}
	return route
}

func (a *Away) introduce() (token string, err error) {
	if a.spec.Introduce == nil {
		return "", nil
	}
	return a.spec.Introduce()
}

// trip is a request on its way to a part. It belongs to the goroutine of the
// request.
type trip struct {
	w       http.ResponseWriter
	before  http.Header // what the server said before the part was asked
	token   string      // by which this process vouches; empty if it does not
	voucher string      // by which it shows that it is a part; empty if it need not
	timed   bool        // the route has a deadline for all of it

	err error // why there is no answer
}

type tripKey struct{}

func tripOf(r *http.Request) *trip { return r.Context().Value(tripKey{}).(*trip) }

// notPassed are headers that have been dealt with here. The gateway writes some
// of them anew.
var notPassed = []string{
	"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers", "Access-Control-Request-Private-Network", "Deadline",
	ingress.ClientHeader, ingress.VoucherHeader,
}

// rewrite makes the request that is sent to the part.
func (a *Away) rewrite(p *httputil.ProxyRequest) {
	t, at := tripOf(p.In), a.spec.Place.base
	p.Out.URL.Scheme, p.Out.URL.Host = at.Scheme, at.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came: an origin may want it so
	if at.Scheme == "http" && a.spec.Place.socket == "" && !config.OnThisMachine(hostname(p.In.Host)) {
		p.Out.Host = at.Host // a listener on loopback answers to its own names only; the others want to know how they were called
	}
	if p.In.TLS != nil {
		p.Out.Header.Set("X-Forwarded-Proto", "https")
	}
	deadline := p.In.Header.Get("Deadline")
	for _, name := range notPassed {
		p.Out.Header.Del(name)
	}
	switch end, bounded := p.In.Context().Deadline(); {
	case bounded && t.timed:
		p.Out.Header.Set("Request-Timeout", seconds(time.Until(end)))
	case deadline != "":
		p.Out.Header.Set("Deadline", deadline)
	}
	if t.token != "" {
		p.Out.Header.Set("Authorization", "Bearer "+t.token)
	}
	if client := ingress.Client(p.In); a.spec.Introduce != nil && client.IsValid() {
		p.Out.Header.Set(ingress.ClientHeader, client.String())
		if t.voucher != "" {
			p.Out.Header.Set(ingress.VoucherHeader, t.voucher)
		}
	}
	p.Out.Header.Set(observe.CorrHeader, observe.CorrID(p.In.Context()))
}

// hostname is the name in a Host value, without its port.
func hostname(hostport string) string {
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		return name
	}
	return strings.Trim(hostport, "[]")
}

// seconds is what a part is told of the time that is left: a little less, so
// that its own word of it arrives in time.
func seconds(left time.Duration) string {
	left -= min(left/10, 50*time.Millisecond)
	return strconv.FormatFloat(max(left, time.Millisecond).Seconds(), 'f', 3, 64)
}

// answered looks at the head of an answer before it is passed back. Where both
// sides have the same header, the part's counts.
func (a *Away) answered(answer *http.Response) error {
	t := tripOf(answer.Request)
	if answer.StatusCode == http.StatusUnauthorized && t.token != "" {
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: "the part " + a.spec.Name + " does not know the capabilities of this process", RetryAfter: time.Second,
			Next: "Give both the same auth.root, and see that their clocks agree."}
	}
	header := t.w.Header()
	for name, values := range t.before { // an interim answer takes all of them away
		header[name] = values
	}
	for name := range answer.Header {
		delete(header, name)
	}
	return nil
}

// failed keeps why there is no answer, for the server to tell.
func (a *Away) failed(_ http.ResponseWriter, r *http.Request, err error) {
	t := tripOf(r)
	header := t.w.Header()
	for name, values := range t.before {
		header[name] = values
	}
	t.err = a.explain(r, err)
}

// explain says what a failure means to the one who asked.
func (a *Away) explain(r *http.Request, err error) error {
	own, typed := errors.AsType[*fault.Error](err)
	switch {
	case r.Context().Err() != nil:
		return flow.Ended(r.Context(), op)
	case typed && (own.Op == op || strings.HasPrefix(own.Op, "http.")):
		return err // ours, or what was wrong with the body of the request
	}
	return Failed(op, a.spec.Name, a.spec.Place, err)
}

// Failed is what it means that a call of a part came to nothing: nobody is there,
// or somebody is and broke off.
func Failed(op, name string, place Place, err error) error {
	own, typed := errors.AsType[*fault.Error](err)
	dial, dialled := errors.AsType[*net.OpError](err)
	switch {
	case typed && own.Kind == fault.Forbidden && strings.HasSuffix(own.Op, ".dial"):
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: "the socket of the part " + name + " belongs to somebody else", Next: own.Next, RetryAfter: time.Second, Err: err}
	case typed && strings.HasSuffix(own.Op, ".dial"), dialled && dial.Op == "dial":
		return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the part " + name + " does not answer at " + place.String(), RetryAfter: time.Second, Err: err,
			Next: "Start it with `micronode run --only " + name + "`, or correct node.parts." + name + "; it is asked again by itself."}
	}
	return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: "the part " + name + " broke off", RetryAfter: time.Second, Err: err,
		Next: "Ask again in a moment. If it goes on, look at the log of that part."}
}

// buffers are what bodies are copied through.
type buffers struct{}

const bufferSize = 32 << 10

var bufferPool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Get takes one.
func (buffers) Get() []byte { return bufferPool.Get().(*[bufferSize]byte)[:] }

// Put gives it back.
func (buffers) Put(b []byte) { bufferPool.Put((*[bufferSize]byte)(b)) }
