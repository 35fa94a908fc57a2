package ingress

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// Options are what a server is made of. All but Warm, OnAnswer and Exempt are
// required.
type Options struct {
	Service string // the metrics label for what is refused before a route is known
	Name    string // "http" or "admin": begins the names of the server's lanes

	Table     *Table
	Times     HTTP
	Limits    Limits
	Authorise Authorise

	Inventory *flow.Inventory
	Metrics   *observe.Metrics
	Logger    *slog.Logger

	// Exempt leaves out the bounds on rate and on requests at a time. It is
	// for the admin plane, which must answer when nothing else does.
	Exempt bool

	// Warm finds prepared responses, for listeners whose warm lane is on.
	Warm Warm

	// OnAnswer is told of every request that went through the chain, when it
	// is over, on its goroutine: it must not block. The warm lane only counts.
	OnAnswer func(Answer)
}

// Answer is what an access log would say of a request.
type Answer struct {
	Service string
	Route   string // the pattern, never the path
	Method  string
	Status  int // 499 if the client left before
	Bytes   int64
	Took    time.Duration
	Client  netip.Addr
	Local   bool
	CorrID  string
}

// Server answers requests by its table. It has no listener of its own: Listen
// and Attach make them. It is an http.Handler, so that a table can be tried
// without a socket.
type Server struct {
	// set at construction
	service     string
	name        string
	times       HTTP
	limits      Limits
	allow       Authorise
	inventory   *flow.Inventory
	instruments *observe.Instruments
	logger      *slog.Logger
	onAnswer    func(Answer)
	exempt      bool
	warm        Warm
	cors        *cors    // nil if no other origin is listed
	manners     []manner // of every answer
	secure      manner   // of every answer over TLS; without a key if there is none

	mux      *http.ServeMux
	routes   map[string]*mounted // by pattern, for the warm lane
	unrouted *counts
	peers    *peers
	inflight *flow.Lane // nil if exempt
	streams  *flow.Lane // nil if exempt
	bare     *Listener  // stands in where a request came by no listener of ours
}

// noRoute is the route label of requests that match no route.
const noRoute = "none"

// New puts a server together.
func New(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		service: o.Service, name: o.Name, times: o.Times, limits: o.Limits, allow: o.Authorise,
		inventory: o.Inventory, instruments: o.Metrics.For(o.Service), logger: o.Logger, onAnswer: o.OnAnswer,
		exempt: o.Exempt, warm: o.Warm, mux: http.NewServeMux(), routes: map[string]*mounted{},
	}
	if !o.Exempt { // no page has business with the admin plane
		s.cors = newCORS(o.Times.CORS)
	}
	s.manners = mannersOf(s.cors)
	if o.Times.HSTS > 0 {
		s.secure = staySecure(o.Times.HSTS)
	}
	s.bare = &Listener{server: s}
	s.unrouted = newCounts(s.instruments, noRoute)
	s.peers = newPeers(o.Limits, o.Exempt)
	if !o.Exempt {
		s.inflight = flow.NewLane(o.Inventory, flow.LaneSpec{
			Service: o.Service, Name: o.Name + "_inflight", Running: o.Limits.Inflight, From: "connections", To: "handlers",
		})
		s.streams = flow.NewLane(o.Inventory, flow.LaneSpec{
			Service: o.Service, Name: o.Name + "_streams", Running: o.Limits.Streams, From: "connections", To: "SSE and WebSocket writers",
		})
	}
	s.mount(o)
	return s, nil
}

func (o Options) check() error {
	const op = "ingress.new"
	switch {
	case o.Table == nil || o.Inventory == nil || o.Metrics == nil || o.Logger == nil || o.Name == "":
		return fault.New(op, fault.Internal, "a server needs a Name, a Table, an Inventory, Metrics and a Logger")
	case o.Authorise == nil:
		return fault.New(op, fault.Internal, "a server needs an Authorise; one that lets everybody in must be written down as such")
	}
	if err := o.Times.Validate(); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, o.Limits.Validate())
}

// mount makes the mux of the table.
func (s *Server) mount(o Options) {
	rates := workRates(o.Table.routes, o.Limits)
	for _, route := range o.Table.routes {
		m := newMounted(s, route, o.Metrics.For(route.Service))
		m.work = rates[route.Service]
		if !route.Queued {
			m.work = nil
		}
		if s.routes[route.Pattern] == nil || slices.Contains(route.Methods, http.MethodGet) {
			s.routes[route.Pattern] = m
		}
		for _, method := range route.Methods {
			s.mux.Handle(method+" "+route.Pattern, m)
		}
	}
}

// ServeHTTP is the chain up to the route: the correlation ID, what a connection
// is for, who it claims to talk to, and what a page may ask.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.arrive(w, r)
	defer c.end(r)
	if c.listener.draining.Load() {
		s.reject("draining")
		w.Header().Set("Connection", "close")
		c.fail(r, errDraining)
		return
	}
	if err := c.listener.hosts.check(c, r); err != nil {
		c.fail(r, err)
		return
	}
	if s.preflight(c, r) {
		return
	}
	if crooked(r.URL.Path) {
		if c.body {
			c.Header().Set("Connection", "close") // nobody reads it
		}
		c.fail(r, errCrooked)
		return
	}
	s.mux.ServeHTTP(c, r)
	if c.missed != 0 {
		c.fail(r, missing(c, r))
	}
}

// errCrooked refuses what the mux would redirect. A path that means another one
// is a mistake or a trick, and to help with either is not our business.
var errCrooked = &fault.Error{Op: "http.route", Kind: fault.Malformed, Detail: "the path has an empty segment or a dot segment",
	Next: "Write the path that is meant, without //, /./ and /../."}

// crooked reports whether a path has segments that a file system would resolve.
func crooked(path string) bool {
	for rest, more := strings.TrimPrefix(path, "/"), true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if segment == "." || segment == ".." || segment == "" && more {
			return true
		}
	}
	return false
}

// arrive makes the call of a request.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request) *call {
	c := &call{under: w, server: s, listener: s.bare, start: time.Now(), http2: r.ProtoMajor == 2, body: hasBody(r), request: r}
	if on, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.conn, c.listener, c.client = on, on.listener, on.client
		on.answering.Store(true)
		if c.http2 {
			on.http2.Store(true)
		}
	}
	given := ""
	if values := r.Header[corrKey]; len(values) > 0 {
		given = values[0]
	}
	var ok bool
	if c.corrID, ok = observe.ParseCorrID(given); !ok {
		c.corrID = observe.NewCorrID()
	}
	header := w.Header()
	c.corrValue[0] = c.corrID
	header[corrKey] = c.corrValue[:]
	s.behave(header, r)
	s.cors.share(header, r.Header[originKey])
	return c
}

// corrKey is observe.CorrHeader as it stands in a header map. To make it so at
// every request costs two allocations.
var corrKey = http.CanonicalHeaderKey(observe.CorrHeader)

// missing says why the mux found no route.
func missing(c *call, r *http.Request) error {
	const op = "http.route"
	switch c.missed {
	case http.StatusMethodNotAllowed:
		return fault.New(op, fault.MethodNotAllowed, "this path answers to %s", c.Header().Get("Allow"))
	case http.StatusNotFound:
		err := fault.New(op, fault.NotFound, "there is no such path")
		err.Next = "GET /openapi.json lists the paths there are."
		return err
	default:
		return fault.New(op, fault.Malformed, "this is no request for a path")
	}
}

// reject counts a refusal that came before any route.
func (s *Server) reject(reason string) { s.instruments.Rejected.WithLabelValues(reason).Inc() }

// ServeHTTP is the chain from the route on. It reads from top to bottom in the
// order in which things are checked: cheap before costly, and nothing is
// queued or decoded for a caller that may not ask.
func (m *mounted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := w.(*call)
	c.route = m
	ctx := c.within(r.Context())
	if c.body {
		r = r.WithContext(ctx) // the body is about to be replaced, and the original is net/http's
	}
	if err := m.answer(ctx, c, r); err != nil {
		c.fail(r, err)
	}
}

func (m *mounted) answer(ctx context.Context, c *call, r *http.Request) error {
	if err := m.takeBody(c, r); err != nil {
		return err
	}
	if err := m.takeRate(c); err != nil {
		return err
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.leave()
	if err := m.authorise(ctx, c, r); err != nil {
		return err
	}
	ctx, err := m.bound(ctx, c, r)
	if err != nil {
		return err
	}
	defer c.bounds.release()
	return late(ctx, m.run(ctx, c, r.WithContext(ctx)))
}

// run waits in the route's lane, if it has one, and calls the handler.
func (m *mounted) run(ctx context.Context, c *call, r *http.Request) error {
	if err := flow.Ended(ctx, "http.deadline"); err != nil {
		return err // the caller's deadline had passed when the request came
	}
	if lane := m.route.Lane; lane != nil {
		if err := lane.Enter(ctx); err != nil {
			if fault.KindOf(err) == fault.Busy {
				m.reject("busy")
			}
			return err
		}
		defer lane.Leave()
	}
	return m.route.Handler(c, r)
}
