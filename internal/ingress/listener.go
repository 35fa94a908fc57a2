package ingress

import (
	"context"
	"crypto/tls"
	"errors"
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
	Name  string   // names the lane of its connections: "http", "admin", "local"
	Addr  string   // host:port; port 0 picks one
	Hosts []string // more names that it answers to, on loopback
	TLS   *Keyring // nil for plain HTTP
	Local bool     // the local socket: only our own user gets this far
	Warm  bool     // run the warm lane, where it can be
}

// Listener accepts connections and has net/http read requests from them.
type Listener struct {
	// set at construction
	server   *Server
	options  ListenOptions
	addr     net.Addr
	again    func(context.Context) (net.Listener, error) // opens it after a failure; nil if it was given
	conns    *flow.Lane
	hosts    *hosts
	loopback bool
	lane     *warmLane // nil if it is off

	streams  streams
	draining atomic.Bool

	mu    sync.Mutex //lockblock:leaf guards the fields below
	inner net.Listener
	http  *http.Server
	live  map[*conn]struct{}
}

// Listen opens a TCP listener. It accepts nothing before Serve, but clients
// can connect: what is open must be served soon.
func (s *Server) Listen(ctx context.Context, o ListenOptions) (*Listener, error) {
	inner, err := open(ctx, o.Addr)
	if err != nil {
		return nil, err
	}
	l := s.listener(inner, o)
	l.again = func(ctx context.Context) (net.Listener, error) { return open(ctx, l.addr.String()) }
	return l, nil
}

// Attach takes a listener that somebody else has opened, such as the local
// socket. The listener is the server's from then on.
func (s *Server) Attach(inner net.Listener, o ListenOptions) *Listener { return s.listener(inner, o) }

func (s *Server) listener(inner net.Listener, o ListenOptions) *Listener {
	addr := inner.Addr()
	l := &Listener{
		server: s, options: o, addr: addr, inner: inner, live: map[*conn]struct{}{},
		loopback: ipOf(addr).IsLoopback(),
		conns: flow.NewLane(s.inventory, flow.LaneSpec{
			Service: s.service, Name: o.Name + "_conns", Running: s.limits.MaxConns, From: "clients", To: "net/http",
		}),
	}
	if l.loopback && !o.Local {
		l.hosts = hostsOf(addr, o.Addr, o.Hosts)
		if o.Warm && o.TLS == nil && s.warm != nil {
			l.lane = newWarmLane(l)
		}
	}
	return l
}

// Addr is where it listens: the port that was picked, if one was.
func (l *Listener) Addr() net.Addr { return l.addr }

// keepAlive finds clients that have vanished without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}

// open listens. Go asks the kernel for a backlog as long as the kernel allows
// (see Backlog), and turns Nagle's algorithm off on every connection.
func open(ctx context.Context, addr string) (net.Listener, error) {
	inner, err := (&net.ListenConfig{KeepAliveConfig: keepAlive}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, CannotListen("http.listen", addr, "--http or --admin", err)
	}
	return inner, nil
}

// CannotListen says why a socket could not be opened, and what to do: flag is
// how another address is chosen.
func CannotListen(op, addr, flag string, err error) error {
	wrong := &fault.Error{Op: op, Kind: fault.Malformed, Detail: "cannot listen on " + addr, Err: err,
		Next: "Use an address of this machine as host:port, like 127.0.0.1:8080; port 0 picks a free one."}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		wrong.Kind, wrong.Detail = fault.Conflict, addr+" is in use"
		wrong.Next = "Stop the program that listens there (another micronode?), or choose another port with " + flag + "; port 0 picks a free one."
	case errors.Is(err, syscall.EACCES):
		wrong.Kind, wrong.Detail = fault.Forbidden, "this user may not listen on "+addr
		wrong.Next = "Use a port of 1024 or above, or give the program the capability CAP_NET_BIND_SERVICE."
	}
	return wrong
}

// Backlog is how many connections may wait to be accepted: what the kernel
// allows, which is what Go asks for. The contract wants 4096 or more, which is
// the default of Linux since 5.4; zero means that nobody knows.
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
	stop := context.AfterFunc(ctx, func() { defer close(over); l.cut() }) //lockblock:allow it only closes what Serve waits for, when the supervisor says so
	defer func() {
		if !stop() {
			<-over // or else it would cut what the next life lets in
		}
	}()
	if l.options.TLS != nil {
		err = server.ServeTLS(accepts{inner, l}, "", "")
	} else {
		err = server.Serve(accepts{inner, l})
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

// start takes the open listener, or opens it again, and makes net/http's
// server for this life.
func (l *Listener) start(ctx context.Context) (net.Listener, *http.Server, error) {
	l.mu.Lock()
	inner := l.inner
	l.mu.Unlock()
	if inner == nil {
		if l.again == nil {
			return nil, nil, fault.New("http.serve", fault.Internal, "the listener %s was given to us and is closed", l.options.Name)
		}
		var err error
		if inner, err = l.again(ctx); err != nil {
			return nil, nil, err
		}
	}
	server := l.newHTTP()
	l.streams.reopen()
	l.mu.Lock()
	l.inner, l.http = inner, server
	l.mu.Unlock()
	if l.draining.Load() {
		l.close() // the drain may have come while it was opened
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
		ConnState:         l.changed,
		ConnContext:       withConn,
		ErrorLog:          log.New(&grumbles{server: l.server}, "", 0),
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

// accepts is the listener that net/http sees: it only gets connections for
// which there is room.
type accepts struct {
	net.Listener
	listener *Listener
}

// Accept waits for a connection that may stay. The others are closed at once.
func (a accepts) Accept() (net.Conn, error) {
	for {
		raw, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, why := a.listener.admit(raw)
		switch {
		case why != "":
			a.listener.server.reject(why)
			_ = raw.Close() // there is nothing more to say to it
		case a.listener.draining.Load():
			_ = c.Close() // the drain may have looked before it was there
		default:
			return c, nil
		}
	}
}

// Close is called by net/http when it stops accepting, for whatever reason.
func (a accepts) Close() error {
	a.listener.mu.Lock()
	a.listener.inner = nil
	a.listener.mu.Unlock()
	return a.Listener.Close()
}

// admit counts a connection in, or says why it may not stay.
func (l *Listener) admit(raw net.Conn) (*conn, string) {
	c := &conn{Conn: raw, listener: l, client: ipOf(raw.RemoteAddr()), opened: time.Now()}
	c.tcp, _ = raw.(*net.TCPConn)
	if err := l.conns.Enter(context.Background()); err != nil { // nobody waits in this lane
		return nil, "max_conns"
	}
	if !l.options.Local && c.client.IsValid() {
		var ok bool
		if c.peer, ok = l.server.peers.join(c.client); !ok {
			l.conns.Leave()
			return nil, "conns_per_ip"
		}
	}
	if l.lane != nil {
		c.warm = newWarmth(l.lane)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[c] = struct{}{}
	return c, ""
}

// release gives back what a connection was counted for.
func (l *Listener) release(c *conn) {
	l.mu.Lock()
	delete(l.live, c)
	l.mu.Unlock()
	if c.peer != nil {
		l.server.peers.leave(c.peer)
	}
	l.conns.Leave()
}

type connKey struct{}

// withConn lets a request find its connection.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(nc))
}

// connOf finds our connection, below TLS if need be.
func connOf(nc net.Conn) *conn {
	if over, ok := nc.(*tls.Conn); ok {
		nc = over.NetConn()
	}
	return nc.(*conn)
}

// changed hears from net/http what a connection is doing.
func (l *Listener) changed(nc net.Conn, state http.ConnState) {
	c := connOf(nc)
	c.state.Store(int32(state))
	if state == http.StateIdle {
		c.answering.Store(false)
		if c.warm != nil {
			c.between.Store(betweenIdle)
		}
	}
}

// grumbles is where net/http tells what it cannot tell a client: failed
// handshakes, failed accepts. Strangers cause most of it, so it is counted,
// and a line is logged now and then.
type grumbles struct {
	server *Server // set at construction

	mu      sync.Mutex //lockblock:leaf guards two fields
	last    time.Time
	skipped int
}

const grumblePause = 5 * time.Second

// Write takes a line of net/http's log.
func (g *grumbles) Write(p []byte) (int, error) {
	op := "http"
	switch line := string(p); {
	case strings.Contains(line, "TLS handshake"):
		op = "handshake"
	case strings.Contains(line, "Accept error"):
		op = "accept"
	}
	g.server.instruments.IOErrors.WithLabelValues(op).Inc()
	if skipped, say := g.turn(time.Now()); say {
		g.server.logger.Warn("net/http: "+strings.TrimSpace(string(p)), "listener", g.server.name, "not_shown", skipped)
	}
	return len(p), nil
}

func (g *grumbles) turn(now time.Time) (skipped int, say bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.last) < grumblePause {
		g.skipped++
		return 0, false
	}
	skipped, g.skipped, g.last = g.skipped, 0, now
	return skipped, true
}
