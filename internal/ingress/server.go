package ingress

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
	"micronode/internal/bandwidth"
	"micronode/internal/corr"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// Options are what a server is made of. All but Bandwidth, Tasks,
// Sites, Warm, OnRequestDone and Exempt are required.
type Options struct {
	Service string // the metrics label for refusals before a route is known
	Name    string // "http" or "admin": begins the names of the server's lanes

	Table     *Table
	Times     HTTP
	Limits    Limits
	Authorise Authorise

	Inventory *flow.Inventory
	Metrics   *observe.Metrics
	Logger    *slog.Logger

	// Bandwidth counts and bounds the bytes that leave this machine; nil for
	// none.
	Bandwidth *bandwidth.Meter

	// Tasks owns the goroutines of handlers on HTTP/2, and tracks handlers on
	// HTTP/1 that overran their deadline, so that a drain waits for them and
	// reports those that are left. Without it, a handler on HTTP/2 that ignores
	// its context holds its client without a limit.
	Tasks *supervise.Group

	// Exempt removes the limits of rates and of concurrent requests. It is for
	// the admin plane, which must answer when nothing else does.
	Exempt bool

	// Sites finds the site that a host stands for, as the first element of a
	// path below SitePrefix; the host has no port and is in lower case. Nil for
	// a server without sites.
	Sites func(host string) (site string, ok bool)

	// Warm finds prepared responses, for listeners whose warm lane is on.
	Warm WarmSource

	// Refusals remembers the clients that a limit rejects; nil for one of its own.
	Refusals *observe.Refusals

	// OnRequestDone is called for every request that went through the chain,
	// when it is over, on its goroutine: it must not block. The warm lane only
	// counts.
	OnRequestDone func(RequestSummary)
}

// RequestSummary is the content of an access log line.
type RequestSummary struct {
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
// and Attach make them. It is an http.Handler, so that a table can be tested
// without a socket.
type Server struct {
	// set at construction
	service       string
	name          string
	times         HTTP
	limits        Limits
	authorise     Authorise
	inventory     *flow.Inventory
	instruments   *observe.Instruments
	logger        *slog.Logger
	onRequestDone func(RequestSummary)
	tasks         *supervise.Group // may be nil
	exempt        bool
	warmSource    WarmSource
	sites         func(host string) (string, bool) // nil for a server without sites
	policy        atomic.Pointer[policy]
	public        map[PublicGroup]bool
	publicWork    *rate.Limiter      // of what strangers may cause; nil for nothing
	bandwidth     *bandwidth.Meter   // of what leaves this machine; nil if it is not counted
	publicBytes   *bandwidth.Limiter // of what strangers read; nil for no limit
	hsts          defaultHeader      // of every answer over TLS; without a key if it is off

	mux        *http.ServeMux
	routes     map[string]*mountedRoute // by pattern, for the warm lane
	unrouted   *mountedRoute            // the route of requests for which the mux has not found one
	clients    *clientTable
	inflight   *sharePool     // nil if exempt
	streams    *sharePool     // nil if exempt
	reads      *flow.FairLane // of requests that are cheap; nil if exempt
	readers    transfers      // that hold slots of reads
	stuck      *flow.Lane     // of handlers that have overrun their deadline
	memory     *heldMemory    // what requests hold; nil if exempt
	noListener *Listener      // for requests that came by no listener of ours

	noAddrShares clientShares // of clients without an address

	refusedOrigins refusedOrigins        // of the last while
	proxyNoted     atomic.Bool           // the log has named a proxy that is not trusted
	overrunLimiter logLimiter            // of the log lines about overruns
	overdue        atomic.Int64          // handlers and reads of the warm lane that have overrun
	stuckReads     atomic.Int64          // the latter
	refusals       *observe.Refusals     // clients that a limit has rejected
	notProxies     observe.RepeatedLines // of the log lines about connections that only proxies may open
	unknownHosts   observe.RepeatedLines // of those about forwarded hosts
}

// noRoute is the route label of requests that match no route.
const noRoute = "none"

// New puts a server together.
func New(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		service: o.Service, name: o.Name, times: o.Times, limits: o.Limits, authorise: o.Authorise,
		inventory: o.Inventory, instruments: o.Metrics.For(o.Service), logger: o.Logger, onRequestDone: o.OnRequestDone, tasks: o.Tasks,
		exempt: o.Exempt, bandwidth: o.Bandwidth, warmSource: o.Warm, sites: o.Sites, mux: http.NewServeMux(), routes: map[string]*mountedRoute{},
		refusals: cmp.Or(o.Refusals, &observe.Refusals{}),
	}
	s.policy.Store(newPolicy(o.Times, o.Exempt))
	if !o.Exempt {
		s.public, s.publicWork = newPublic(o.Times.Public), newPublicWork(o.Limits)
		if o.Limits.PublicBytes > 0 {
			s.publicBytes = bandwidth.NewLimiter(o.Inventory, o.Service, o.Name+"_public_bytes", int64(o.Limits.PublicBytes))
		}
	}
	if o.Times.HSTS > 0 {
		s.hsts = newHSTS(o.Times.HSTS)
	}
	s.noListener = &Listener{server: s}
	s.unrouted = &mountedRoute{
		server: s, route: Route{Service: o.Service, Pattern: noRoute}, instruments: s.instruments, routeMetrics: newRouteMetrics(s.instruments, noRoute),
	}
	s.clients = newClientTable(o.Limits, o.Exempt, firstLaneShare+len(o.Table.routes))
	s.stuck = flow.NewLane(o.Inventory, flow.LaneSpec{
		Service: o.Service, Name: o.Name + "_stuck", Running: stuckRoutes * o.Limits.Stuck, From: "handlers", To: "none: they did not return by their deadline",
	})
	if !o.Exempt {
		s.memory = &heldMemory{size: int64(o.Limits.Memory)}
		s.inflight = &sharePool{slots: int64(o.Limits.Inflight), index: shareRequests, lane: flow.NewLane(o.Inventory, flow.LaneSpec{
			Service: o.Service, Name: o.Name + "_inflight", Running: o.Limits.Inflight, From: "connections", To: "handlers",
		})}
		s.reads = flow.NewFairLane(o.Inventory, flow.FairLaneSpec{
			Service: o.Service, Name: o.Name + "_reads", Running: o.Limits.Reads, Waiting: o.Limits.ReadsWaiting, From: "connections", To: "handlers",
			Next: "Many reads wait for their turn. If slow clients hold it up, raise limits.reads; if the machine is busy, share the load with another node.",
		})
		s.streams = &sharePool{slots: int64(o.Limits.Streams), index: shareStreams, lane: flow.NewLane(o.Inventory, flow.LaneSpec{
			Service: o.Service, Name: o.Name + "_streams", Running: o.Limits.Streams, From: "connections", To: "SSE and WebSocket writers",
		})}
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
		return fault.New(op, fault.Internal, "a server needs an Authorise; one that allows everything must be set explicitly")
	}
	if err := o.Times.Validate(); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, o.Limits.Validate())
}

// mount makes the mux of the table.
func (s *Server) mount(o Options) {
	rates := newWorkLimiters(o.Table.routes, o.Limits)
	for i, route := range o.Table.routes {
		m := newMountedRoute(s, route, o.Metrics.For(route.Service))
		m.workLimiter = rates[route.Service]
		m.lanePool = newLanePool(route, firstLaneShare+i)
		if !route.Queued {
			m.workLimiter = nil
		}
		if s.routes[route.Pattern] == nil || slices.Contains(route.Methods, http.MethodGet) {
			s.routes[route.Pattern] = m
		}
		for _, method := range route.Methods {
			s.mux.Handle(method+" "+route.Pattern, m)
		}
	}
}

// ServeHTTP is the chain up to the route: the correlation ID, the framing, Host
// and Origin, and CORS preflights.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.newCall(w, r)
	defer c.recoverAndFinish(r)
	if c.listener.draining.Load() {
		s.reject("draining")
		w.Header().Set("Connection", "close")
		c.fail(r, errDraining)
		return
	}
	if err := c.checkFraming(r); err != nil {
		c.fail(r, err)
		return
	}
	if c.http2 {
		if err := c.holdFields(); err != nil {
			c.fail(r, err)
			return
		}
	}
	r = c.enterSite(r)
	if err := c.checkHost(r); err != nil {
		c.fail(r, err)
		return
	}
	if r.Method == http.MethodOptions && s.preflight(c, r) {
		return
	}
	if hasDotSegment(r.URL.Path) {
		if c.body {
			c.Header().Set("Connection", "close") // nothing reads it
		}
		c.fail(r, errDotSegment)
		return
	}
	s.mux.ServeHTTP(c, r)
	if c.muxStatus != 0 {
		c.fail(r, noRouteError(c, r))
	}
}

// errDotSegment rejects what the mux would redirect. A path that means another
// one is a mistake or an attack, and a redirect would help both.
var errDotSegment = &fault.Error{Op: "http.route", Kind: fault.Malformed, Detail: "the path has an empty segment or a dot segment",
	Next: "Write the path without //, /./ and /../."}

// hasDotSegment reports whether a path has segments that a file system would
// resolve.
func hasDotSegment(path string) bool {
	for rest, more := strings.TrimPrefix(path, "/"), true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if segment == "." || segment == ".." || segment == "" && more {
			return true
		}
	}
	return false
}

// newCall makes the call of a request.
func (s *Server) newCall(w http.ResponseWriter, r *http.Request) *call {
	c := &call{
		inner: w, server: s, listener: s.noListener, route: s.unrouted, start: time.Now(),
		http2: r.ProtoMajor == 2, body: r.ContentLength != 0, request: r,
	}
	if known, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.conn, c.listener, c.client = known, known.listener, known.client
		known.inRequest.Store(true)
		if c.http2 && known.http2.CompareAndSwap(false, true) {
			known.releaseHead() // from now on each request holds its own
		}
	}
	c.policy = s.policy.Load()
	c.identifyClient(r)
	given := ""
	if values := r.Header[corrHeaderKey]; len(values) > 0 {
		given = values[0]
	}
	if c.corrID = given; !corr.Valid(given) {
		c.corrID = corr.New()
	}
	header := w.Header()
	c.corrValue[0] = c.corrID
	header[corrHeaderKey] = c.corrValue[:]
	s.setDefaultHeaders(c.policy, header, r)
	c.policy.cors.setHeaders(header, r.Header[originKey])
	return c
}

// identifyClient finds out whose request it is: that of the connection, unless
// a trusted proxy says otherwise. The clients of a proxy have limits of their
// own for each of their requests.
func (c *call) identifyClient(r *http.Request) {
	if c.conn == nil || c.listener.options.Local {
		return
	}
	c.forwarded, c.passedOn = c.conn.proxied, c.listener.loopback && isPassedOn(r.Header)
	if c.policy.trusts(c.client) {
		if said, any := c.policy.readForwarded(r.Header, c.client); any {
			c.proxied, c.client, c.forwarded = said, said.client, true
			c.believeHost(r.Host)
		}
	} else if c.passedOn && !c.server.exempt {
		c.server.noteUntrustedProxy(c.client)
	}
	if c.conn.clientState == nil && c.client.IsValid() {
		c.held = c.server.clients.hold(c.client)
	}
	c.remote = c.leavesMachine()
}

// noteUntrustedProxy logs once that a proxy in front of the node is not listed.
func (s *Server) noteUntrustedProxy(ip netip.Addr) {
	if s.proxyNoted.CompareAndSwap(false, true) {
		s.logger.Warn("a proxy that is not trusted forwards requests: all its clients share one limit, none has the rights of this machine, and URLs have its address",
			"address", ip, "next", `Add it to the configuration: [http] trusted_proxies = ["`+ip.String()+`"].`)
	}
}

// noteOnlyProxies logs, not too often, that somebody else than a trusted proxy
// has connected where only these may.
func (s *Server) noteOnlyProxies(ip netip.Addr) {
	if held, ok := s.notProxies.Admit("", time.Now()); ok {
		s.logger.Warn("a connection was closed: without TLS, only trusted proxies may connect to this listener", "address", ip, "also_refused", held,
			"next", `If it is a proxy of yours, add it to the configuration: [http] trusted_proxies = ["`+ip.String()+`"]. A reload applies it.`)
	}
}

// noteUnknownHost logs, not too often, that a proxy passed on a host that is
// not one of this node: a client made it up, or the settings lack it.
func (s *Server) noteUnknownHost(said, host string) {
	if _, ok := s.unknownHosts.Admit("", time.Now()); ok {
		s.logger.Warn("a proxy passes on a forwarded host that is not one of this node: it does not count, and URLs have the Host of the request", "forwarded_host", said, "host", host,
			"next", "If clients do use it, add it to http.hosts, or set http.public_url. If not, a client made it up: have the proxy set X-Forwarded-Host and remove Forwarded, as in docs/public.md.")
	}
}

// onLoopback reports whether a request comes from this machine, and not through
// a proxy.
func (c *call) onLoopback() bool { return c.listener.loopback && !c.forwarded && !c.passedOn }

// corrHeaderKey is corr.Header in canonical form. To canonicalise it at
// every request costs two allocations.
var corrHeaderKey = http.CanonicalHeaderKey(corr.Header)

// noRouteError returns why the mux found no route.
func noRouteError(c *call, r *http.Request) error {
	const op = "http.route"
	switch c.muxStatus {
	case http.StatusMethodNotAllowed:
		return fault.New(op, fault.MethodNotAllowed, "this path accepts %s", c.Header().Get("Allow"))
	case http.StatusNotFound:
		return fault.New(op, fault.NotFound, "there is no such path").Advise("GET /openapi.json lists the paths.")
	default:
		return fault.New(op, fault.Malformed, "the request target is not a path")
	}
}

// reject counts a refusal that came before any route.
func (s *Server) reject(reason string) { s.instruments.Rejected.WithLabelValues(reason).Inc() }

// ServeHTTP is the chain from the route on. serve reads from top to bottom in
// the order of the checks: cheap before costly, and nothing is queued or
// decoded for an unauthorised caller.
func (m *mountedRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := w.(*call)
	c.route = m
	if c.isPublic(m) && !c.site && !changesState(r.Method) {
		setPublicCORS(c.Header())
	}
	c.context = callContext{corr.With(r.Context(), c.corrID), c}
	if c.body {
		r = r.WithContext(&c.context) // the body is about to be replaced, and the original is net/http's
	}
	if err := m.serve(&c.context, c, r); err != nil {
		c.fail(r, err)
	}
}

func (m *mountedRoute) serve(ctx context.Context, c *call, r *http.Request) error {
	if c.listener.options.ReadsOnly && (changesState(r.Method) || !m.route.Open && !c.isPublic(m)) {
		m.reject("reads_only")
		return errReadsOnly
	}
	if c.body {
		if err := m.boundBody(c, r); err != nil {
			return err
		}
	}
	if !m.route.Cheap && !m.isFromThisMachine(c) {
		if err := m.spendRate(c); err != nil {
			return err
		}
	}
	if err := m.acquireSlot(ctx, c); err != nil {
		return err
	}
	defer func() {
		if !c.abandoned { // otherwise it is released already, or kept until the handler returns
			m.releaseSlot(c)
		}
	}()
	if !m.route.Open {
		if err := m.checkAuth(ctx, m.authRequest(c, r)); err != nil {
			if m.isFromThisMachine(c) { // without a capability it is like all others
				err = cmp.Or(m.spendRate(c), err)
			}
			return err
		}
	}
	if m.workLimiter != nil && !m.isFromThisMachine(c) {
		if err := m.spendWork(c); err != nil {
			return err
		}
	}
	ctx, err := m.setDeadline(ctx, c, r)
	if err != nil {
		return err
	}
	defer c.limits.release(c)
	if err := m.runHandler(ctx, c, r.WithContext(ctx)); err != nil {
		return c.timeoutError(ctx, err)
	}
	return nil
}

// runHandler runs the handler, and makes sure that the request is answered by
// the deadline.
func (m *mountedRoute) runHandler(ctx context.Context, c *call, r *http.Request) error {
	if err := flow.Ended(ctx, "http.deadline"); err != nil {
		return err // the caller's deadline had passed when the request came
	}
	switch {
	case c.conn == nil: // the connection is not ours
	case !c.http2:
		c.conn.trackCall(c)
	case m.server.tasks != nil:
		return m.runDetached(ctx, c, r)
	}
	return m.handle(ctx, c, r)
}

// handle enters the route's lane, if it has one, and calls the handler.
func (m *mountedRoute) handle(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	if lane := m.route.Lane; lane != nil {
		leave, err := m.acquireLaneShare(ctx)
		if err != nil {
			return err
		}
		defer leave()
		c := callOf(ctx)
		if err := lane.Enter(ctx); err != nil {
			if fault.KindOf(err) == fault.Busy {
				m.reject("busy")
			}
			return err
		}
		defer lane.Leave()
		if c != nil {
			c.holdsLane.Store(true)
			defer c.holdsLane.Store(false)
		}
	}
	return m.route.Handler(w, r)
}
