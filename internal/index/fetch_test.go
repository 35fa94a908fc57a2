package index

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/netguard"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// fetchOverlay is an overlay in which some peers serve objects.
type fetchOverlay struct {
	fakeOverlay
	bodies map[oap.PeerID]func(ctx context.Context) (io.ReadCloser, error)
}

func (f *fetchOverlay) Open(ctx context.Context, _ b3.Address, from oap.PeerID) (io.ReadCloser, error) {
	return f.bodies[from](ctx)
}

// OpenPart is that of a peer of an earlier version: it sends all from the
// offset on, and knows no trees.
func (f *fetchOverlay) OpenPart(ctx context.Context, _ b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error) {
	if view != oap.Whole {
		return nil, fault.New("test", fault.Malformed, "no address")
	}
	body, err := f.bodies[peer](ctx)
	if err == nil {
		_, err = io.CopyN(io.Discard, body, from)
	}
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, length), body}, nil
}

// serve makes a peer report that it has the object, and serve it with give.
func (f *fetchOverlay) serve(name string, give func(ctx context.Context) (io.ReadCloser, error)) {
	at := providerOf(name)
	at.HTTP = nil
	f.join(name, answersAfter(0, at))
	if f.bodies == nil {
		f.bodies = map[oap.PeerID]func(context.Context) (io.ReadCloser, error){}
	}
	f.bodies[idOfNode(name)] = give
}

func bodyOf(s string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

func failsWith(kind fault.Kind) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return nil, fault.New("test", kind, "no") }
}

// blocksUntilDone blocks until its context ends.
func blocksUntilDone(ctx context.Context) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func withOverlay(n PeerSet) option { return func(s *Spec) { s.Overlay = n } }

// withQuorum3 makes a look-up find more than one provider.
func withQuorum3(s *Spec) { s.Config.DHT.Quorum = 3 }

// An object is fetched from a peer that has it, verified, stored, and then
// resolved locally.
func TestFetchFromAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		overlay.serve("ana", bodyOf("hello"))
		r := open(t, withOverlay(overlay))
		info, created, err := r.Fetch(t.Context(), address("hello"))
		if err != nil || !created || info.Size != 5 {
			t.Fatal(info, created, err)
		}
		if _, created, err = r.Fetch(t.Context(), address("hello")); err != nil || created {
			t.Error(created, err)
		}
		found, err := r.Resolve(t.Context(), byAddress(address("hello")), Options{})
		if err != nil || found.Source != record.Local {
			t.Error(found, err)
		}
		synctest.Wait()
		if events := r.log.ofType(Fetched); len(events) != 1 || !strings.Contains(events[0].Detail, idOfNode("ana").String()) {
			t.Errorf("%v", events)
		}
	})
}

// The cached providers are gone; others, which have it by now, are found
// without waiting for the cached answer to expire.
func TestFetchWhenWhoHadItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		overlay.serve("ana", failsWith(fault.NoRoute))
		r := open(t, withOverlay(overlay))
		if found, err := r.Resolve(t.Context(), byAddress(address("hello")), Options{}); err != nil || len(found.Providers) != 1 {
			t.Fatal(found, err)
		}
		overlay.join("ana", answersAfter(0))
		overlay.serve("bea", bodyOf("hello"))
		if info, created, err := r.Fetch(t.Context(), address("hello")); err != nil || !created || info.Size != 5 {
			t.Error(info, created, err)
		}
	})
}

// A fetched object is reported to the listener, so that its words are found
// without waiting for the next reconciliation.
func TestWhatIsFetchedIsCatalogued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay, heard := &fetchOverlay{}, &fakeListener{}
		overlay.serve("ana", bodyOf("the quick brown fox"))
		r := open(t, withOverlay(overlay), func(s *Spec) { s.Objects = heard })
		fox := address("the quick brown fox")
		_, _, err := r.Fetch(t.Context(), fox)
		testkit.Must(t, err)
		testkit.Equal(t, "reported", heard.String(), "+"+fox.String())
	})
}

func TestFetchFromALiar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		for _, name := range []string{"lia", "lio"} {
			overlay.serve(name, bodyOf("hallo"))
		}
		r := open(t, withOverlay(overlay), withQuorum3)
		_, _, err := r.Fetch(t.Context(), address("hello"))
		if fault.KindOf(err) != fault.IntegrityFail {
			t.Error(err)
		}
		if _, err := r.ram.Stat(t.Context(), address("hallo")); fault.KindOf(err) != fault.NotFound {
			t.Error("what a liar gave was kept")
		}
		synctest.Wait()
		if lies := r.log.ofType(Lied); len(lies) != 2 {
			t.Errorf("%v", lies)
		}
		overlay.serve("ana", bodyOf("hello"))
		time.Sleep(time.Minute) // the cache entry expires
		if _, created, err := r.Fetch(t.Context(), address("hello")); err != nil || !created {
			t.Error(created, err)
		}
	})
}

// While one source is silent, another is tried; the first that sends bytes
// wins, and the other is cancelled.
func TestFetchIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		var cut atomic.Int32
		overlay.serve("idle", func(ctx context.Context) (io.ReadCloser, error) {
			defer cut.Add(1)
			return blocksUntilDone(ctx)
		})
		overlay.serve("ana", func(ctx context.Context) (io.ReadCloser, error) {
			time.Sleep(time.Second)
			return bodyOf("hello")(ctx)
		})
		r := open(t, withOverlay(overlay), withQuorum3)
		r.providers.observe(idOfNode("ana").String(), 0, false, time.Now()) // so that it ranks second
		began := time.Now()
		if _, created, err := r.Fetch(t.Context(), address("hello")); err != nil || !created {
			t.Fatal(created, err)
		}
		if took := time.Since(began); took != fetchHedgeDelay+time.Second {
			t.Errorf("it took %s", took)
		}
		synctest.Wait()
		if cut.Load() != 1 {
			t.Error("the loser was not cut off")
		}
	})
}

// A late winner is closed: its body is not read.
func TestALateGiverIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		closed := make(chan struct{})
		overlay.serve("late", func(context.Context) (io.ReadCloser, error) {
			time.Sleep(time.Minute) // ignores its context
			return &closeRecorder{io.NopCloser(strings.NewReader("hello")), closed}, nil
		})
		overlay.serve("ana", bodyOf("hello"))
		r := open(t, withOverlay(overlay), withQuorum3)
		r.providers.observe(idOfNode("ana").String(), 0, false, time.Now())
		if _, _, err := r.Fetch(t.Context(), address("hello")); err != nil {
			t.Fatal(err)
		}
		<-closed
	})
}

type closeRecorder struct {
	io.ReadCloser
	closed chan struct{}
}

func (c *closeRecorder) Close() error { close(c.closed); return nil }

// Callers that want the same object share one fetch. A caller that leaves does
// not affect the others; when all have left, it is cancelled.
func TestFetchTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		var opens atomic.Int32
		gate := make(chan struct{})
		overlay.serve("ana", func(ctx context.Context) (io.ReadCloser, error) {
			opens.Add(1)
			select {
			case <-gate:
				return bodyOf("hello")(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		r := open(t, withOverlay(overlay))
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() {
				if _, _, err := r.Fetch(t.Context(), address("hello")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := r.Fetch(short, address("hello")); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		close(gate)
		done.Wait()
		if opens.Load() != 1 {
			t.Errorf("fetched %d times", opens.Load())
		}
		gate = make(chan struct{})
		again, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := r.Fetch(again, address("other")); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		synctest.Wait()
		if r.fetches.Len() != 0 {
			t.Error("a fetch goes on that nobody waits for")
		}
	})
}

// The error says why nothing was fetched: no provider has it, or a failure.
func TestFetchFails(t *testing.T) {
	for name, test := range map[string]struct {
		gives []func(context.Context) (io.ReadCloser, error)
		kind  fault.Kind
	}{
		"nobody":            {nil, fault.NotFound},
		"gone":              {[]func(context.Context) (io.ReadCloser, error){failsWith(fault.NotFound)}, fault.NotFound},
		"broken":            {[]func(context.Context) (io.ReadCloser, error){failsWith(fault.UpstreamFailed)}, fault.UpstreamFailed},
		"broken and gone":   {[]func(context.Context) (io.ReadCloser, error){failsWith(fault.UpstreamFailed), failsWith(fault.NotFound)}, fault.UpstreamFailed},
		"too large for us":  {[]func(context.Context) (io.ReadCloser, error){bodyOf(strings.Repeat("x", 2<<20))}, fault.BodyTooLarge},
		"silent for ever":   {[]func(context.Context) (io.ReadCloser, error){blocksUntilDone}, fault.Timeout},
		"broken then right": {[]func(context.Context) (io.ReadCloser, error){failsWith(fault.Transient), bodyOf("hello")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				overlay := &fetchOverlay{}
				for i, give := range test.gives {
					overlay.serve(string(rune('a'+i)), give)
				}
				r := open(t, withOverlay(overlay), withQuorum3)
				_, _, err := r.Fetch(t.Context(), address("hello"))
				if test.kind == 0 && err != nil || test.kind != 0 && fault.KindOf(err) != test.kind {
					t.Error(err)
				}
			})
		})
	}
}

// gatewayOf is a gateway as a provider.
func gatewayOf(name, base string) record.Provider {
	return record.Provider{ID: idOfNode(name).String(), HTTP: []string{base}, Seen: time.Now()}
}

// Gateways serve objects too, over HTTP, and any other answer is a typed error.
func TestFetchFromAGateway(t *testing.T) {
	served := func(answer http.HandlerFunc) string {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return server.URL
	}
	right := served(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/o/"+address("hello").String() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	for name, test := range map[string]struct {
		base string
		kind fault.Kind
	}{
		"right": {right, 0},
		"IPFS": {served(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "/ipfs/"+address("hello").CID()+"?format=raw" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, "hello")
		}), 0},
		"moved":       {served(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, right+r.URL.Path, http.StatusFound) }), fault.UpstreamFailed},
		"missing":     {served(http.NotFound), fault.NotFound},
		"failing":     {served(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), fault.UpstreamFailed},
		"wrong bytes": {served(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hallo") }), fault.IntegrityFail},
		"cut off": {served(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "he")
		}), fault.UpstreamFailed},
		"dead":       {"http://127.0.0.1:1", fault.UpstreamFailed},
		"no gateway": {"ftp://127.0.0.1:1", fault.NotFound}, // removed by sanitize
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, withEngine(newFakeEngine(target("near", answersAfter(0, gatewayOf("g", test.base))))))
			_, created, err := r.Fetch(t.Context(), address("hello"))
			if test.kind == 0 && (err != nil || !created) || test.kind != 0 && fault.KindOf(err) != test.kind {
				t.Errorf("%v %v", created, err)
			}
		})
	}
}

// A node in the public network does not dial private addresses, whatever DNS
// name hides them.
func TestPrivateDoors(t *testing.T) {
	var knocks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		knocks.Add(1)
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	r := open(t)
	g := newGatewayClient(func() netguard.DialPolicy { return netguard.DialPolicy{} }, r.metrics, r.gatewayClient.treePermits)
	defer g.close()
	for _, base := range []string{server.URL, "http://localhost" + port, "http://169.254.169.254", "http://[::1]" + port} {
		if _, err := g.open(t.Context(), base, address("hello"), 1<<20); fault.KindOf(err) != fault.UpstreamFailed {
			t.Errorf("%s: %v", base, err)
		}
	}
	private := newGatewayClient(func() netguard.DialPolicy { return netguard.DialPolicy{Private: true} }, r.metrics, r.gatewayClient.treePermits)
	defer private.close()
	if _, err := private.open(t.Context(), server.URL, address("hello"), 1<<20); fault.KindOf(err) != fault.UpstreamFailed {
		t.Error(err)
	}
	if knocks.Load() != 0 {
		t.Errorf("%d knocks", knocks.Load())
	}
	for _, base := range []string{"http://user@127.0.0.1:1", "file:///etc/passwd", "http://", "http://\x00"} {
		if _, err := g.open(t.Context(), base, address("hello"), 1<<20); fault.KindOf(err) != fault.NoRoute {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// A fetch of an object that a router attributes to very many providers tries a
// few of them, and reports that it has not tried all.
func TestAFetchTriesAFew(t *testing.T) {
	var dialled, asked atomic.Int64
	var ports []string
	for range 20 {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.NotFound(w, r)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				dialled.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		ports = append(ports, server.URL[strings.LastIndexByte(server.URL, ':'):])
	}
	crowd := func(ips int) (all []record.Provider) {
		for i := range 100 {
			p := record.Provider{ID: fmt.Sprintf("crowd-%03d", i)}
			for j := range 8 {
				p.HTTP = append(p.HTTP, fmt.Sprintf("http://127.0.0.%d%s", 1+(8*i+j)%ips, ports[(8*i+j)%len(ports)]))
			}
			all = append(all, p)
		}
		return all
	}
	for name, c := range map[string]struct {
		ips         int // their IP addresses, besides the ports
		change      func(*Fetch)
		connections int64 // two for each gateway: a request for an object, and for a block
		reason      string
	}{
		"providers":   {1, func(f *Fetch) { f.Providers = 2 }, 16, refusedProviders},
		"addresses":   {1, func(f *Fetch) { f.Providers, f.Addresses = 2, 3 }, 12, refusedAddresses},
		"hosts":       {1, func(f *Fetch) { f.Hosts = 5 }, 10, refusedHosts},
		"connections": {1, func(f *Fetch) { f.Connections = 3 }, 3, refusedConnections},
		"the usual":   {200, func(*Fetch) {}, 32, refusedHosts},
	} {
		t.Run(name, func(t *testing.T) {
			dialled.Store(0)
			asked.Store(0)
			r := open(t, withEngine(newFakeEngine(target("near", answersAfter(0, crowd(c.ips)...)))), withConfig(func(f *Config) { c.change(&f.Fetch) }))
			_, _, err := r.Fetch(t.Context(), address("hello"))
			if fault.KindOf(err) != fault.UpstreamFailed || !strings.Contains(fault.NextOf(err), "index.fetch") {
				t.Errorf("%v; %s", err, fault.NextOf(err))
			}
			if n := dialled.Load(); n == 0 || n > c.connections {
				t.Errorf("%d connections, want %d at most", n, c.connections)
			}
			if n := asked.Load(); n > c.connections {
				t.Errorf("%d requests", n)
			}
			if n := r.count("index_fetch_refused_total", "reason="+c.reason); n == 0 {
				t.Errorf("nothing is counted as refused for want of %s", c.reason)
			}
		})
	}
}

// A fetch that looks for providers a second time may only try what the first
// has left of its limits.
func TestAFetchTriesAFewInAll(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.NotFound(w, r)
	}))
	defer server.Close()
	var looked atomic.Int64
	r := open(t, withEngine(newFakeEngine(target("near", func(context.Context, record.Question) (record.Answer, error) {
		return record.Answer{Providers: []record.Provider{gatewayOf(fmt.Sprint("stranger", looked.Add(1)), server.URL)}}, nil
	}))), withConfig(func(c *Config) { c.Fetch.Providers = 1 }))
	_, err := r.Resolve(t.Context(), byAddress(address("hello")), Options{}) // so that the fetch finds a cached answer
	testkit.Must(t, err)
	_, _, err = r.Fetch(t.Context(), address("hello"))
	testkit.WantKind(t, err, fault.UpstreamFailed)
	if looked.Load() != 2 || asked.Load() != 2 {
		t.Errorf("%d look-ups, %d requests: want two of each, an object and a block of one provider", looked.Load(), asked.Load())
	}
}

// A gateway that stalls in the middle is not waited for.
func TestIdleTimeoutBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		stop := context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
		defer stop()
		p := newIdleTimeoutBody(in, cancel)
		go func() {
			for range 3 {
				time.Sleep(gatewayIdleTimeout - time.Second)
				_, _ = io.WriteString(out, "x")
			}
		}()
		began := time.Now()
		all, err := io.ReadAll(p)
		if string(all) != "xxx" || fault.KindOf(err) != fault.UpstreamFailed {
			t.Errorf("%q %v", all, err)
		}
		if took := time.Since(began); took != 3*(gatewayIdleTimeout-time.Second)+gatewayIdleTimeout {
			t.Errorf("it took %s", took)
		}
		_ = p.Close()
	})
}

// A gateway that sends is not cut because a limit of this node takes longer.
func TestALimitOfTheNodeCutsNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newIdleTimeoutBody(io.NopCloser(strings.NewReader("bytes")), cancel)
		p.pace = func(int) error { return flow.Sleep(ctx, 10*gatewayIdleTimeout) }
		if all, err := io.ReadAll(p); string(all) != "bytes" || err != nil {
			t.Errorf("%q %v", all, err)
		}
		_ = p.Close()
	})
}

// What comes in order is slow because of a limit of this node, and goes on.
func TestALimitOfTheNodeCutsNoBodyInOrder(t *testing.T) {
	for limited, want := range map[bool]fault.Kind{false: fault.Timeout, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			slow := readerFunc(func(p []byte) (int, error) {
				time.Sleep(time.Second)
				return copy(p, make([]byte, 1<<10)), nil
			})
			r := &countingReader{Reader: io.LimitReader(slow, 300<<10), since: time.Now(), read: func() {}, isLimited: func() bool { return limited }}
			if n, err := io.Copy(io.Discard, r); fault.KindOf(err) != want {
				t.Errorf("limited %t: %d bytes, %v", limited, n, err)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A lack of free tasks is not reported as NotFound.
func TestFetchWithoutARacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		overlay.serve("ana", bodyOf("hello"))
		r := open(t, withOverlay(overlay))
		ranked, _, err := r.findProviders(t.Context(), address("hello"))
		testkit.Must(t, err)
		r.racers.Close()
		if _, _, err := r.fetchFrom(r.newAllowance().withContext(t.Context()), address("hello"), ranked); err == nil || fault.KindOf(err) == fault.NotFound {
			t.Errorf("%d have it, and it says: %v", len(ranked), err)
		}
	})
}

// Over a bad line answers come later than a look-up waits for them. A fetch waits
// longer; and when nobody answers at all, it ends with Timeout.
func TestAFetchOverABadLine(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		kind  fault.Kind
	}{"late": {3 * time.Second, 0}, "too late": {time.Minute, fault.Timeout}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				overlay := &fetchOverlay{}
				overlay.serve("ana", bodyOf("hello"))
				at := providerOf("ana")
				at.HTTP = nil
				overlay.answers[idOfNode("ana")] = answersAfter(c.after, at)
				r := open(t, withOverlay(overlay))
				began := time.Now()
				_, created, err := r.Fetch(t.Context(), address("hello"))
				if created != (c.kind == 0) || err != nil && fault.KindOf(err) != c.kind || time.Since(began) > 15*time.Second {
					t.Errorf("%t, %v, after %s", created, err, time.Since(began))
				}
			})
		})
	}
}

// A fetch that finds nobody says who was lost before, and how far it came; not
// only that nobody has the object.
func TestABrokenFetchSaysWhoWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		overlay.join("ana", answersEmpty)
		r := open(t, withOverlay(overlay))
		_, _, err := r.Fetch(t.Context(), address("hello"))
		testkit.WantKind(t, err, fault.NotFound, "what nobody has had")
		r.arrivals.ended(address("hello"), fault.New("test", fault.UpstreamFailed, "stopped at 37 %%; it lost the peer bob").Advise("Find bob."), time.Now())
		_, _, err = r.Fetch(t.Context(), address("hello"))
		testkit.WantKind(t, err, fault.UpstreamFailed, "what was lost on its way")
		if detail := fault.DetailOf(err); !strings.Contains(detail, "37 %; it lost the peer bob") || fault.NextOf(err) != "Find bob." {
			t.Errorf("%s; %s", detail, fault.NextOf(err))
		}
		time.Sleep(brokenAge)
		_, _, err = r.Fetch(t.Context(), address("hello"))
		testkit.WantKind(t, err, fault.NotFound, "what was lost long ago")

		for i := range maxBroken + 5 {
			r.arrivals.ended(address(fmt.Sprint(i)), fault.New("test", fault.UpstreamFailed, "lost"), time.Now().Add(time.Duration(i)))
		}
		if n := len(r.arrivals.broken); n != maxBroken {
			t.Errorf("%d broken transfers are remembered, want %d", n, maxBroken)
		}
	})
}
