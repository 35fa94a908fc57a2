package ingress

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// ListenOptions are what a listener is made of. Name is required, and Addr for
// Listen.
type ListenOptions struct {
	Name  string           // names the lane of its connections: "http", "admin", "local"
	Addr  string           // host:port; port 0 picks one
	Hosts []string         // more names that it answers to, on loopback
	TLS   *TLSConfigSource // nil for plain HTTP
	Local bool             // the local socket: only the node's own user can connect
	Warm  bool             // run the warm lane, where possible

	// ReadsOnly refuses everything but reads of the public groups, whoever asks:
	// what authorises more must not be sent without TLS, and counts for nothing
	// if it is. Strangers may read Public, besides what the server's settings
	// open.
	ReadsOnly bool
	Public    []PublicGroup

	// ProxyProtocol is set where connections of trusted proxies begin with a
	// header of the PROXY protocol.
	ProxyProtocol bool

	// ProxiesOnly closes connections of all but the trusted proxies. It is for a
	// listener that is reachable from elsewhere and has no TLS.
	ProxiesOnly bool
}

// Listener accepts connections and has net/http read requests from them.
type Listener struct {
	// set at construction
	server   *Server
	options  ListenOptions
	addr     net.Addr
	reopen   func(context.Context) (net.Listener, error) // opens it after a failure; nil for an attached listener
	connLane *flow.Lane
	hosts    *hostSet
	loopback bool
	warmLane *warmLane // nil if it is off

	streams  streamSet
	draining atomic.Bool

	mu    sync.Mutex //lockblock:leaf guards the fields below
	inner net.Listener
	http  *http.Server
	conns map[*conn]struct{}
}

// Listen opens a TCP listener. It accepts nothing before Serve, but clients
// can connect: what is open must be served soon.
func (s *Server) Listen(ctx context.Context, o ListenOptions) (*Listener, error) {
	inner, err := listenTCP(ctx, o.Addr)
	if err != nil {
		return nil, err
	}
	l := s.listener(inner, o)
	l.reopen = func(ctx context.Context) (net.Listener, error) { return listenTCP(ctx, l.addr.String()) }
	return l, nil
}

// Attach takes a listener that the caller has opened, such as the local socket.
// The server owns the listener from then on.
func (s *Server) Attach(inner net.Listener, o ListenOptions) *Listener { return s.listener(inner, o) }

func (s *Server) listener(inner net.Listener, o ListenOptions) *Listener {
	addr := inner.Addr()
	l := &Listener{
		server: s, options: o, addr: addr, inner: inner, conns: map[*conn]struct{}{},
		loopback: ipOf(addr).IsLoopback(),
		connLane: flow.NewLane(s.inventory, flow.LaneSpec{
			Service: s.service, Name: o.Name + "_conns", Running: s.limits.MaxConns, From: "clients", To: "net/http",
		}),
	}
	if l.loopback && !o.Local {
		l.hosts = newHostSet(addr, o.Addr, o.Hosts)
		if o.Warm && o.TLS == nil && s.warmSource != nil {
			l.warmLane = newWarmLane(l)
		}
	}
	return l
}

// Addr is where it listens: the port that was picked, if one was.
func (l *Listener) Addr() net.Addr { return l.addr }

// keepAlive detects clients that have vanished without closing.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}

// listenTCP listens. Go asks the kernel for a backlog as long as the kernel allows
// (see Backlog), and turns Nagle's algorithm off on every connection.
func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	inner, err := (&net.ListenConfig{KeepAliveConfig: keepAlive}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, ListenError("http.listen", addr, "--http or --admin", err)
	}
	return inner, nil
}

// ListenError explains why a socket could not be opened, and what to do: flag
// is how another address is chosen.
func ListenError(op, addr, flag string, err error) error {
	wrong := &fault.Error{Op: op, Kind: fault.Malformed, Detail: "cannot listen on " + addr, Err: err,
		Next: "Use an address of this machine as host:port, like 127.0.0.1:8080; port 0 picks a free one."}
	switch {
	case fault.IsErrno(err, syscall.EADDRINUSE):
		wrong.Kind, wrong.Detail = fault.Conflict, addr+" is in use"
		wrong.Next = "Stop the program that listens there (another micronode?), or choose another port with " + flag + "; port 0 picks a free one."
	case fault.IsErrno(err, syscall.EACCES):
		wrong.Kind, wrong.Detail = fault.Forbidden, "this user may not listen on "+addr
		wrong.Next = "Use a port of 1024 or above, or give the program the capability CAP_NET_BIND_SERVICE."
	}
	return wrong
}

// nextPorts is how many ports after a taken one are tried, before the kernel
// picks one.
const nextPorts = 20

// NextPorts lists where to listen if an address is only a default: the address
// itself, the ports after it, and at last any port.
func NextPorts(addr string) []string {
	list := []string{addr}
	host, text, err := net.SplitHostPort(addr)
	port, bad := strconv.Atoi(text)
	if err != nil || bad != nil || port == 0 {
		return list
	}
	for next := port + 1; next <= min(port+nextPorts, 1<<16-1); next++ {
		list = append(list, net.JoinHostPort(host, strconv.Itoa(next)))
	}
	return append(list, net.JoinHostPort(host, "0"))
}

// IsTaken reports whether an address could not be listened on because another
// socket has it.
func IsTaken(err error) bool { return fault.IsErrno(err, syscall.EADDRINUSE) }

// Backlog is how many connections may wait to be accepted: what the kernel
// allows, which is what Go asks for. The contract wants 4096 or more, which is
// the default of Linux since 5.4; zero means unknown.
func Backlog() int {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// Serve accepts connections until Drain, or until ctx ends, which cuts them
// all. It is the Serve of a supervise.Service; after a failure it may be called
// again, and opens the same address again.
func (l *Listener) Serve(ctx context.Context) error {
	const op = "http.serve"
	if l.draining.Load() {
		return nil
	}
	inner, server, err := l.start(ctx)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(over); l.closeAll() }) //lockblock:allow it only closes what Serve waits for, when the supervisor says so
	defer func() {
		if !stop() {
			<-over // otherwise it could close connections of the next run
		}
	}()
	if l.options.TLS != nil {
		err = server.ServeTLS(admittingListener{inner, l}, "", "")
	} else {
		err = server.Serve(admittingListener{inner, l})
	}
	switch {
	case l.draining.Load():
		return nil
	case ctx.Err() != nil:
		return flow.Ended(ctx, op)
	default:
		return fault.WrapKind(op, fault.Transient, err)
	}
}

// start takes the open listener, or opens it again, and makes net/http's server
// for this run.
func (l *Listener) start(ctx context.Context) (net.Listener, *http.Server, error) {
	l.mu.Lock()
	inner := l.inner
	l.mu.Unlock()
	if inner == nil {
		if l.reopen == nil {
			return nil, nil, fault.New("http.serve", fault.Internal, "the inherited listener %s is closed", l.options.Name)
		}
		var err error
		if inner, err = l.reopen(ctx); err != nil {
			return nil, nil, err
		}
	}
	server := l.newHTTP()
	l.streams.reopen()
	l.mu.Lock()
	l.inner, l.http = inner, server
	l.mu.Unlock()
	if l.draining.Load() {
		l.stopAccepting() // a drain may have begun while it was opened
	}
	return inner, server, nil
}

// newHTTP is net/http's server with our bounds. The chain does the rest.
func (l *Listener) newHTTP() *http.Server {
	times := l.server.times
	server := &http.Server{
		Handler:           l.server,
		ReadHeaderTimeout: times.HeaderTimeout,
		IdleTimeout:       times.IdleTimeout,
		MaxHeaderBytes:    int(l.server.limits.Header),
		ConnState:         l.onConnState,
		ConnContext:       withConn,
		ErrorLog:          log.New(&errorLog{server: l.server}, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 128,
			WriteByteTimeout:     times.Progress,
			SendPingTimeout:      times.Heartbeat,
			PingTimeout:          times.Progress,
		},
		// Otherwise OPTIONS * would be answered past the chain.
		DisableGeneralOptionsHandler: true,
	}
	if l.options.TLS != nil {
		server.TLSConfig = l.options.TLS.config()
	}
	return server
}

// admittingListener is the listener that net/http sees: it returns only
// admitted connections.
type admittingListener struct {
	net.Listener
	listener *Listener
}

// Accept waits for a connection that is admitted. The others are closed at
// once.
func (a admittingListener) Accept() (net.Conn, error) {
	for {
		raw, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, why := a.listener.admit(raw)
		switch {
		case why != "":
			a.listener.server.reject(why)
			if what, isLimit := connLimits[why]; isLimit {
				a.listener.server.noteRefusedClient(ipOf(raw.RemoteAddr()), what)
			}
			_ = raw.Close() // there is nothing to send to it
		case a.listener.draining.Load():
			_ = c.Close() // the drain may have listed the connections before
		default:
			return c, nil
		}
	}
}

// Close is called by net/http when it stops accepting, whatever the reason.
func (a admittingListener) Close() error {
	a.listener.mu.Lock()
	a.listener.inner = nil
	a.listener.mu.Unlock()
	return a.Listener.Close()
}

// admit counts a connection in, for its client and for the listener, or returns
// the reason for a rejection. At a limit, an idle connection is closed for a new
// one.
func (l *Listener) admit(raw net.Conn) (*conn, string) {
	c := &conn{Conn: raw, listener: l, client: ipOf(raw.RemoteAddr()), opened: time.Now()}
	c.tcp, _ = raw.(*net.TCPConn)
	// A trusted proxy is many clients: its connections count together, and its
	// requests one by one; where it says who its client is when it connects, the
	// connection counts for that one: see admitClient.
	fromProxy := !l.options.Local && l.server.policy.Load().trusts(c.client)
	if l.options.ProxiesOnly && !fromProxy {
		l.server.noteOnlyProxies(c.client)
		return nil, "not_a_proxy"
	}
	if !l.options.Local && c.client.IsValid() && !fromProxy {
		secure := l.options.TLS != nil
		one, why := l.server.clients.acquire(c.client, secure)
		if why == "conns_per_ip" && l.server.exempt && l.evictIdle(one) {
			one, why = l.server.clients.acquire(c.client, secure) // on the admin plane, a probe must get through
		}
		if why != "" {
			return nil, why
		}
		c.clientState = one
	}
	err := l.connLane.Enter(context.Background()) // this lane has no waiters
	if err != nil && l.evictIdle(nil) {
		err = l.connLane.Enter(context.Background())
	}
	if err != nil {
		if c.clientState != nil {
			l.server.clients.release(c.clientState)
		}
		return nil, "max_conns"
	}
	if l.options.ProxyProtocol && fromProxy {
		c.expectProxyHeader()
	} else if l.warmLane != nil {
		c.warmConn = &warmConn{lane: l.warmLane}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return c, ""
}

// evictIdle closes the oldest connection without a request under way, of one
// client or of all, and reports whether there was one.
func (l *Listener) evictIdle(state *clientState) bool {
	victim := l.idlest(state)
	if victim == nil {
		return false
	}
	l.server.reject("gave_way")
	_ = victim.closeNow() // it is closed either way
	return true
}

// idlest prefers a connection that has never sent a byte to one whose first
// header is incomplete, and that to one that waits for its next request.
func (l *Listener) idlest(state *clientState) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	best := 0
	for c := range l.conns {
		quiet := c.idleRank()
		if state != nil && c.clientState != state || quiet == 0 || quiet < best || quiet == best && c.opened.After(victim.opened) {
			continue
		}
		victim, best = c, quiet
	}
	return victim
}

// idleRank is how idle a connection is; zero if it is not.
func (c *conn) idleRank() int {
	state := http.ConnState(c.state.Load())
	switch {
	case c.inRequest.Load() || c.phase.Load() == phaseBusy:
		return 0
	case !c.received.Load():
		return 3
	case state == http.StateNew && c.phase.Load() == phaseNetHTTP:
		return 2
	case state == http.StateIdle || c.phase.Load() == phaseWaiting:
		return 1
	default:
		return 0
	}
}

// release removes a connection from the counts of its client and listener.
func (l *Listener) release(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	state := c.clientState
	l.mu.Unlock()
	if state != nil {
		l.server.clients.release(state)
	}
	l.connLane.Leave()
}

type connKey struct{}

// withConn puts the connection into the context of its requests.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	c := connOf(nc)
	c.tlsConn, _ = nc.(*tls.Conn)
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns our connection, below TLS if need be.
func connOf(nc net.Conn) *conn {
	if over, ok := nc.(*tls.Conn); ok {
		nc = over.NetConn()
	}
	return nc.(*conn)
}

// onConnState records the state that net/http reports for a connection.
func (l *Listener) onConnState(nc net.Conn, state http.ConnState) {
	c := connOf(nc)
	c.state.Store(int32(state))
	if state == http.StateIdle {
		c.inRequest.Store(false)
		c.header.next()
		c.headRead.Store(0)
		c.releaseHead()
		c.idleState.Store(idleReported)
		if c.warmConn != nil {
			c.laneIdle.Store(idleReported)
		}
		if c.readTimedOut.Load() && !c.http2.Load() {
			_ = c.closeNow() // the next request, somebody else's behind a proxy, would be canceled before it begins
		}
	}
}

// errorLog takes net/http's own log: failed handshakes, failed accepts.
// Untrusted clients cause most of it, so the lines are counted, and one is
// logged now and then.
type errorLog struct {
	server  *Server // set at construction
	limiter logLimiter
}

// Write takes a line of net/http's log.
func (e *errorLog) Write(p []byte) (int, error) {
	op := "http"
	switch line := string(p); {
	case strings.Contains(line, "TLS handshake"):
		op = "handshake"
	case strings.Contains(line, "Accept error"):
		op = "accept"
	}
	e.server.instruments.IOErrors.WithLabelValues(op).Inc()
	if skipped, say := e.limiter.allow(time.Now()); say {
		e.server.logger.Warn("net/http: "+strings.TrimSpace(string(p)), "listener", e.server.name, "not_shown", skipped)
	}
	return len(p), nil
}

// logLimiter keeps clients from filling the log: it allows a line now and then,
// and counts those that are skipped.
type logLimiter struct {
	mu      sync.Mutex //lockblock:leaf guards two fields
	last    time.Time
	skipped int
}

const logInterval = 5 * time.Second

// allow reports whether a line may be logged, and how many were skipped before.
func (l *logLimiter) allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) < logInterval {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped, l.last = l.skipped, 0, now
	return skipped, true
}
