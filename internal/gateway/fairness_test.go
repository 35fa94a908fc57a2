package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// memListener is a listener in memory, so that time can be faked around two
// servers.
type memListener struct {
	addr    net.Addr
	arrived chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newMemListener(addr net.Addr) *memListener {
	return &memListener{addr: addr, arrived: make(chan net.Conn), closed: make(chan struct{})}
}

func (m *memListener) Addr() net.Addr { return m.addr }
func (m *memListener) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }

func (m *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-m.arrived:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// dialFrom dials from an address.
func (m *memListener) dialFrom(addr net.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case m.arrived <- addrConn{there, addr}:
			return here, nil
		case <-m.closed:
			return nil, net.ErrClosed
		}
	}
}

// addrConn is a connection with a given remote address.
type addrConn struct {
	net.Conn
	from net.Addr
}

func (c addrConn) RemoteAddr() net.Addr { return c.from }

func tcpAddr(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }

// silentOverlay is an overlay with one peer, which answers only that it has one
// object.
type silentOverlay struct{ knownObject b3.Address }

func (silentOverlay) ConnectedPeers() []index.ConnectedPeer {
	return []index.ConnectedPeer{{ID: oap.PeerID{1}}}
}

func (s silentOverlay) Ask(ctx context.Context, _ oap.PeerID, asked index.Question) (index.Answer, error) {
	if asked.Address == s.knownObject {
		return index.Answer{Providers: []index.Provider{{ID: "bob", HTTP: []string{"https://bob.example"}}}}, nil
	}
	<-ctx.Done()
	return index.Answer{}, ctx.Err()
}

func (silentOverlay) Open(context.Context, b3.Address, oap.PeerID) (io.ReadCloser, error) {
	return nil, errors.New("nobody fetches here")
}

func (silentOverlay) OpenPart(context.Context, b3.Address, oap.PeerID, oap.View, int64, int64) (io.ReadCloser, error) {
	return nil, errors.New("nobody fetches here")
}

// splitNode is a gateway and an index, as in two processes of one node.
type splitNode struct {
	t           *testing.T
	inventory   *flow.Inventory
	metrics     *observe.Metrics
	knownObject b3.Address // the object of the index's one peer
}

// startServer runs a server until the test ends.
func (s *splitNode) startServer(table *ingress.Table, on *memListener, o ingress.ListenOptions) {
	s.t.Helper()
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.Inflight, limits.MaxConns, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 10_000, 10_000, 10_000
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: o.Name, Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Inventory: s.inventory, Metrics: s.metrics, Logger: slog.New(slog.DiscardHandler),
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	listener, served := server.Attach(on, o), make(chan error, 1)
	go func() { served <- listener.Serve(context.Background()) }()
	s.t.Cleanup(func() {
		_ = listener.Drain(context.Background())
		<-served
	})
}

// startIndex runs an index behind a local socket.
func (s *splitNode) startIndex(on *memListener) {
	s.t.Helper()
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}}, DrainTimeout: 20 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	stages, settings := index.Stages{State: "state", Workers: "workers"}, index.DefaultConfig()
	settings.DHT.DeadlineMS = 10_000
	objects := store.NewRAM(store.RAMSpec{Budget: 1 << 20, MaxObject: 1 << 10})
	x, err := index.New(s.t.Context(), s.inventory, supervisor, stages, index.Spec{
		Config: settings, Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Store: objects, Overlay: silentOverlay{s.knownObject},
		Self: func() index.Provider { return index.Provider{} }, Metrics: s.metrics, Readiness: observe.NewReadiness(s.inventory, supervisor),
	})
	if err == nil {
		err = x.Add(supervisor, stages, func(index.Event) {})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	table, err := ingress.NewTable(x.Routes()...)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_, _ = supervisor.Run(ctx)
		close(ended)
	}()
	s.t.Cleanup(func() {
		stop()
		<-ended
		if err := errors.Join(x.Close(), objects.Close()); err != nil {
			s.t.Error(err)
		}
	})
	s.startServer(table, on, ingress.ListenOptions{Name: "local", Local: true})
}

// startGateway runs a gateway before an index behind a local socket.
func (s *splitNode) startGateway(on, to *memListener) {
	s.t.Helper()
	addr, err := ParsePartAddr("@index")
	if err != nil {
		s.t.Fatal(err)
	}
	nothing := func() (string, error) { return "", nil } // on a socket the kernel vouches
	away := NewRemotePart(RemotePartSpec{Name: "index", Addr: addr, MaxRequests: 10_000, MaxStreams: 1, PartToken: nothing,
		RequestToken: func(*http.Request, string) (string, error) { return nothing() }})
	away.requestTransport.DialContext = to.dialFrom(&net.UnixAddr{Name: "@gateway", Net: "unix"})
	s.t.Cleanup(away.Close)
	table, _, err := Mount([]Part{{Routes: new(index.Index).Routes(), Remote: away}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.startServer(table, on, ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:8080"})
}

// resolve resolves an address as a client of the gateway.
func resolve(t *testing.T, gateway *memListener, client string, address b3.Address) (status int) {
	transport := &http.Transport{DialContext: gateway.dialFrom(tcpAddr(client)), DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/resolve/"+address.String(), nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// A client of a gateway requests more than the index in another process can
// look up, until it is refused. Another client of the same gateway makes one
// request and is answered at once: the index shares by the gateway's clients,
// and not by its connections, which are all the gateway's.
func TestAFloodThroughTheGatewayLeavesTheOthersTheirPermits(t *testing.T) {
	const flood = 1000 // 384 are under way for one client, and 512 wait
	synctest.Test(t, func(t *testing.T) {
		p := &splitNode{t: t, inventory: flow.NewInventory(), metrics: observe.NewMetrics(observe.Build{}), knownObject: b3.Of([]byte("wanted"))}
		socket, public := newMemListener(&net.UnixAddr{Name: "@index", Net: "unix"}), newMemListener(tcpAddr("127.0.0.1:8080"))
		p.startIndex(socket)
		p.startGateway(public, socket)

		var clients sync.WaitGroup
		var refused, late atomic.Int64
		for i := range flood {
			clients.Go(func() {
				switch resolve(t, public, "192.0.2.1:4000", b3.Of([]byte(strconv.Itoa(i)))) {
				case http.StatusTooManyRequests:
					refused.Add(1)
				case http.StatusGatewayTimeout:
					late.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != flood-896 {
			t.Errorf("%d of the flood were refused", n)
		}
		began := time.Now()
		if status := resolve(t, public, "192.0.2.2:4000", p.knownObject); status != http.StatusOK || time.Since(began) != 0 {
			t.Errorf("the other client: %d after %s", status, time.Since(began))
		}
		clients.Wait()
		if refused.Load()+late.Load() != flood {
			t.Errorf("of %d, %d were refused and %d had no time left", flood, refused.Load(), late.Load())
		}
	})
}
