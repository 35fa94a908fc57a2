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

// wire is a listener in memory, so that time can be faked around two servers.
type wire struct {
	addr    net.Addr
	arrived chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newWire(addr net.Addr) *wire {
	return &wire{addr: addr, arrived: make(chan net.Conn), closed: make(chan struct{})}
}

func (w *wire) Addr() net.Addr { return w.addr }
func (w *wire) Close() error   { w.once.Do(func() { close(w.closed) }); return nil }

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.arrived:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// from dials from an address.
func (w *wire) from(addr net.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case w.arrived <- called{there, addr}:
			return here, nil
		case <-w.closed:
			return nil, net.ErrClosed
		}
	}
}

// called is a connection that says where it comes from.
type called struct {
	net.Conn
	from net.Addr
}

func (c called) RemoteAddr() net.Addr { return c.from }

func tcp(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }

// quiet is an overlay with one peer, which says nothing but who has the one
// thing that it knows of.
type quiet struct{ knows b3.Address }

func (quiet) Neighbours() []index.Neighbour { return []index.Neighbour{{ID: oap.PeerID{1}}} }

func (q quiet) Ask(ctx context.Context, _ oap.PeerID, asked index.Question) (index.Answer, error) {
	if asked.Address == q.knows {
		return index.Answer{Providers: []index.Provider{{ID: "bob", HTTP: []string{"https://bob.example"}}}}, nil
	}
	<-ctx.Done()
	return index.Answer{}, ctx.Err()
}

func (quiet) Open(context.Context, b3.Address, oap.PeerID) (io.ReadCloser, error) {
	return nil, errors.New("nobody fetches here")
}

// parts is a gateway and an index, as in two processes of one node.
type parts struct {
	t         *testing.T
	inventory *flow.Inventory
	metrics   *observe.Metrics
	wanted    b3.Address // what the one peer of the index knows of
}

// serve runs a server until the test ends.
func (p *parts) serve(table *ingress.Table, on *wire, o ingress.ListenOptions) {
	p.t.Helper()
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.Inflight, limits.MaxConns, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 10_000, 10_000, 10_000
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: o.Name, Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Inventory: p.inventory, Metrics: p.metrics, Logger: slog.New(slog.DiscardHandler),
		Authorise: func(context.Context, ingress.Ask) error { return nil },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	listener, served := server.Attach(on, o), make(chan error, 1)
	go func() { served <- listener.Serve(context.Background()) }()
	p.t.Cleanup(func() {
		_ = listener.Drain(context.Background())
		<-served
	})
}

// index runs an index behind a local socket.
func (p *parts) index(on *wire) {
	p.t.Helper()
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}}, Total: 20 * time.Second})
	if err != nil {
		p.t.Fatal(err)
	}
	stages, settings := index.Stages{State: "state", Workers: "workers"}, index.DefaultConfig()
	settings.DHT.DeadlineMS = 10_000
	objects := store.NewRAM(p.inventory, store.RAMSpec{Service: "store", Budget: 1 << 20, MaxObject: 1 << 10})
	x, err := index.New(p.t.Context(), p.inventory, supervisor, stages, index.Spec{
		Config: settings, Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Store: objects, Overlay: quiet{p.wanted},
		Self: func() index.Provider { return index.Provider{} }, Metrics: p.metrics, Readiness: observe.NewReadiness(p.inventory, supervisor),
	})
	if err == nil {
		err = x.Add(supervisor, stages, func(index.Event) {})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	table, err := ingress.NewTable(x.Routes()...)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_, _ = supervisor.Run(ctx)
		close(ended)
	}()
	p.t.Cleanup(func() {
		stop()
		<-ended
		if err := errors.Join(x.Close(), objects.Close()); err != nil {
			p.t.Error(err)
		}
	})
	p.serve(table, on, ingress.ListenOptions{Name: "local", Local: true})
}

// gateway runs a gateway before an index behind a local socket.
func (p *parts) gateway(on, to *wire) {
	p.t.Helper()
	place, err := ParsePlace("@index")
	if err != nil {
		p.t.Fatal(err)
	}
	nothing := func() (string, error) { return "", nil } // on a socket the kernel vouches
	away := NewAway(AwaySpec{Name: "index", Place: place, Requests: 10_000, Streams: 1, Introduce: nothing,
		Vouch: func(*http.Request, string) (string, error) { return nothing() }})
	away.brief.DialContext = to.from(&net.UnixAddr{Name: "@gateway", Net: "unix"})
	p.t.Cleanup(away.Close)
	table, _, err := Mount([]Part{{Routes: new(index.Index).Routes(), Away: away}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.serve(table, on, ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:8080"})
}

// asks resolves something as a client of the gateway at an address.
func asks(t *testing.T, gateway *wire, client string, address b3.Address) (status int) {
	transport := &http.Transport{DialContext: gateway.from(tcp(client)), DisableKeepAlives: true}
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

// A client of a gateway asks for more than the index in another process can look
// up, until it is refused. Another client of the same gateway asks for one thing
// and has it at once: the index shares by the gateway's clients, and not by its
// connections, which are all the gateway's.
func TestAFloodThroughTheGatewayLeavesTheOthersTheirPermits(t *testing.T) {
	const flood = 1000 // 384 are under way for one client, and 512 wait
	synctest.Test(t, func(t *testing.T) {
		p := &parts{t: t, inventory: flow.NewInventory(), metrics: observe.NewMetrics(observe.Build{}), wanted: b3.Of([]byte("wanted"))}
		socket, public := newWire(&net.UnixAddr{Name: "@index", Net: "unix"}), newWire(tcp("127.0.0.1:8080"))
		p.index(socket)
		p.gateway(public, socket)

		var clients sync.WaitGroup
		var refused, late atomic.Int64
		for i := range flood {
			clients.Go(func() {
				switch asks(t, public, "192.0.2.1:4000", b3.Of([]byte(strconv.Itoa(i)))) {
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
		if status := asks(t, public, "192.0.2.2:4000", p.wanted); status != http.StatusOK || time.Since(began) != 0 {
			t.Errorf("the other client: %d after %s", status, time.Since(began))
		}
		clients.Wait()
		if refused.Load()+late.Load() != flood {
			t.Errorf("of %d, %d were refused and %d had no time left", flood, refused.Load(), late.Load())
		}
	})
}
