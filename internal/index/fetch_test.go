package index

import (
	"context"
	"io"
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
	"micronode/internal/oap"
	"micronode/internal/store"
)

// giver is an overlay in which some peers give objects.
type giver struct {
	village
	gives map[oap.PeerID]func(ctx context.Context) (io.ReadCloser, error)
}

func (g *giver) Open(ctx context.Context, _ b3.Address, from oap.PeerID) (io.ReadCloser, error) {
	return g.gives[from](ctx)
}

// has lets a peer say that it has the object, and give it in some way.
func (g *giver) has(name string, give func(ctx context.Context) (io.ReadCloser, error)) {
	at := where(name)
	at.HTTP = nil
	g.join(name, knowing(0, at))
	if g.gives == nil {
		g.gives = map[oap.PeerID]func(context.Context) (io.ReadCloser, error){}
	}
	g.gives[idOfNode(name)] = give
}

func text(s string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

func refuses(kind fault.Kind) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return nil, fault.New("test", kind, "no") }
}

// never begins to give.
func never(ctx context.Context) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func withOverlay(n Neighbours) setting { return func(s *Spec) { s.Overlay = n } }

// wide lets a look-up find more than one provider.
func wide(s *Spec) { s.Config.DHT.Quorum = 3 }

// An object is taken from a peer that has it, verified, kept, and known.
func TestFetchFromAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		overlay.has("ana", text("hello"))
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
		if events := r.log.of(Fetched); len(events) != 1 || !strings.Contains(events[0].Detail, idOfNode("ana").String()) {
			t.Errorf("%v", events)
		}
	})
}

// A provider that gives other bytes is told of, and the next one is asked.
// Nothing wrong is kept.
// Those who had it when somebody asked are gone; others, who have it by now, are
// found without waiting until the old answer is forgotten.
func TestFetchWhenWhoHadItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		overlay.has("ana", refuses(fault.NoRoute))
		r := open(t, withOverlay(overlay))
		if found, err := r.Resolve(t.Context(), byAddress(address("hello")), Options{}); err != nil || len(found.Providers) != 1 {
			t.Fatal(found, err)
		}
		overlay.join("ana", knowing(0))
		overlay.has("bea", text("hello"))
		if info, created, err := r.Fetch(t.Context(), address("hello")); err != nil || !created || info.Size != 5 {
			t.Error(info, created, err)
		}
	})
}

// What was fetched can be found by its words, without waiting for the librarian's
// next round.
func TestWhatIsFetchedIsCatalogued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		overlay.has("ana", text("the quick brown fox"))
		cards := newCards()
		r := open(t, withOverlay(overlay), func(s *Spec) {
			var err error
			s.Library, err = OpenLibrary(flow.NewInventory(), LibrarySpec{Store: s.Store, Searcher: cards, MaxBytes: 1 << 30, Metrics: s.Metrics, Readiness: s.Readiness})
			must(t, err)
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.spec.Library.librarian.serve(ctx) }()
		time.Sleep(time.Minute) // it has looked around, and found nothing
		_, _, err := r.Fetch(t.Context(), address("the quick brown fox"))
		must(t, err)
		time.Sleep(time.Second)
		if found, err := r.spec.Library.Search(t.Context(), "fox", 20, 0); err != nil || found.Total != 1 {
			t.Errorf("%+v, %v", found, err)
		}
		stop()
		<-done
		must(t, r.spec.Library.Close())
	})
}

func TestFetchFromALiar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		for _, name := range []string{"lia", "lio"} {
			overlay.has(name, text("hallo"))
		}
		r := open(t, withOverlay(overlay), wide)
		_, _, err := r.Fetch(t.Context(), address("hello"))
		if fault.KindOf(err) != fault.IntegrityFail {
			t.Error(err)
		}
		if _, err := r.ram.Stat(t.Context(), address("hallo")); fault.KindOf(err) != fault.NotFound {
			t.Error("what a liar gave was kept")
		}
		synctest.Wait()
		if lies := r.log.of(Lied); len(lies) != 2 {
			t.Errorf("%v", lies)
		}
		overlay.has("ana", text("hello"))
		time.Sleep(time.Minute) // the cache forgets
		if _, created, err := r.Fetch(t.Context(), address("hello")); err != nil || !created {
			t.Error(created, err)
		}
	})
}

// One that is silent gets company; the first who gives wins, and the other is
// cut off.
func TestFetchIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		var cut atomic.Int32
		overlay.has("idle", func(ctx context.Context) (io.ReadCloser, error) {
			defer cut.Add(1)
			return never(ctx)
		})
		overlay.has("ana", func(ctx context.Context) (io.ReadCloser, error) {
			time.Sleep(time.Second)
			return text("hello")(ctx)
		})
		r := open(t, withOverlay(overlay), wide)
		r.providers.note(idOfNode("ana").String(), 0, false, time.Now()) // so that she is the second
		began := time.Now()
		if _, created, err := r.Fetch(t.Context(), address("hello")); err != nil || !created {
			t.Fatal(created, err)
		}
		if took := time.Since(began); took != fetchAfter+time.Second {
			t.Errorf("it took %s", took)
		}
		synctest.Wait()
		if cut.Load() != 1 {
			t.Error("the loser was not cut off")
		}
	})
}

// A late winner is closed: nobody reads what it gives.
func TestALateGiverIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		closed := make(chan struct{})
		overlay.has("late", func(context.Context) (io.ReadCloser, error) {
			time.Sleep(time.Minute) // deaf to its context
			return &watched{io.NopCloser(strings.NewReader("hello")), closed}, nil
		})
		overlay.has("ana", text("hello"))
		r := open(t, withOverlay(overlay), wide)
		r.providers.note(idOfNode("ana").String(), 0, false, time.Now())
		if _, _, err := r.Fetch(t.Context(), address("hello")); err != nil {
			t.Fatal(err)
		}
		<-closed
	})
}

type watched struct {
	io.ReadCloser
	closed chan struct{}
}

func (w *watched) Close() error { close(w.closed); return nil }

// Those who want the same object wait for one fetch. One who leaves takes
// nothing from the others; when all have left, it ends.
func TestFetchTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		var opens atomic.Int32
		gate := make(chan struct{})
		overlay.has("ana", func(ctx context.Context) (io.ReadCloser, error) {
			opens.Add(1)
			select {
			case <-gate:
				return text("hello")(ctx)
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
		if _, _, err := r.Fetch(short, address("other")); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		synctest.Wait()
		if len(r.fetches.onWay) != 0 {
			t.Error("a fetch goes on that nobody waits for")
		}
	})
}

// Why nothing came is told: that nobody has it, or what went wrong.
func TestFetchFails(t *testing.T) {
	for name, test := range map[string]struct {
		gives []func(context.Context) (io.ReadCloser, error)
		kind  fault.Kind
	}{
		"nobody":            {nil, fault.NotFound},
		"gone":              {[]func(context.Context) (io.ReadCloser, error){refuses(fault.NotFound)}, fault.NotFound},
		"broken":            {[]func(context.Context) (io.ReadCloser, error){refuses(fault.UpstreamFailed)}, fault.UpstreamFailed},
		"broken and gone":   {[]func(context.Context) (io.ReadCloser, error){refuses(fault.UpstreamFailed), refuses(fault.NotFound)}, fault.UpstreamFailed},
		"too large for us":  {[]func(context.Context) (io.ReadCloser, error){text(strings.Repeat("x", 2<<20))}, fault.BodyTooLarge},
		"silent for ever":   {[]func(context.Context) (io.ReadCloser, error){never}, fault.Timeout},
		"broken then right": {[]func(context.Context) (io.ReadCloser, error){refuses(fault.Transient), text("hello")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				overlay := &giver{}
				for i, give := range test.gives {
					overlay.has(string(rune('a'+i)), give)
				}
				r := open(t, withOverlay(overlay), wide)
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

// Gateways give objects too, over HTTP, and what else they may answer is a
// typed failure.
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
		"no gateway": {"ftp://127.0.0.1:1", fault.NotFound}, // washed away
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, over(newNetwork(target("near", knowing(0, gatewayOf("g", test.base))))))
			_, created, err := r.Fetch(t.Context(), address("hello"))
			if test.kind == 0 && (err != nil || !created) || test.kind != 0 && fault.KindOf(err) != test.kind {
				t.Errorf("%v %v", created, err)
			}
		})
	}
}

// A node that listens in public does not knock at private doors, whatever name
// they hide behind.
func TestPrivateDoors(t *testing.T) {
	var knocks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		knocks.Add(1)
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	g := newGateways(func() reach { return reach{} })
	defer g.close()
	for _, base := range []string{server.URL, "http://localhost" + port, "http://169.254.169.254", "http://[::1]" + port} {
		if _, err := g.open(t.Context(), base, address("hello")); fault.KindOf(err) != fault.UpstreamFailed {
			t.Errorf("%s: %v", base, err)
		}
	}
	private := newGateways(func() reach { return reach{private: true} })
	defer private.close()
	if _, err := private.open(t.Context(), server.URL, address("hello")); fault.KindOf(err) != fault.UpstreamFailed {
		t.Error(err)
	}
	if knocks.Load() != 0 {
		t.Errorf("%d knocks", knocks.Load())
	}
	for _, base := range []string{"http://user@127.0.0.1:1", "file:///etc/passwd", "http://", "http://\x00"} {
		if _, err := g.open(t.Context(), base, address("hello")); fault.KindOf(err) != fault.NoRoute {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// A gateway that stops in the middle is not waited for.
func TestAPatientReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		stop := context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
		defer stop()
		p := newPatient(in, cancel)
		go func() {
			for range 3 {
				time.Sleep(gatewayPatience - time.Second)
				_, _ = io.WriteString(out, "x")
			}
		}()
		began := time.Now()
		all, err := io.ReadAll(p)
		if string(all) != "xxx" || fault.KindOf(err) != fault.UpstreamFailed {
			t.Errorf("%q %v", all, err)
		}
		if took := time.Since(began); took != 3*(gatewayPatience-time.Second)+gatewayPatience {
			t.Errorf("it took %s", took)
		}
		_ = p.Close()
	})
}

// A fetch that all have left ends in a moment. Who comes in that moment does not
// get its end, but one of its own.
func TestFetchOfWhatWasJustGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		ended := make(chan struct{})
		s := &fetches{onWay: map[b3.Address]*fetching{}}
		s.begin = func(task func(context.Context) error) error { go task(t.Context()); return nil }
		s.fetch = func(ctx context.Context, a b3.Address) (store.Info, bool, error) {
			if begun.Add(1) == 1 {
				<-ctx.Done()
				<-ended // it takes its time to end
				return store.Info{}, false, flow.Ended(ctx, opFetch)
			}
			return store.Info{Address: a, Size: 5}, true, nil
		}
		first := s.join(address("hello"))
		synctest.Wait()
		s.leave(first)
		second := s.join(address("hello"))
		synctest.Wait()
		close(ended)
		if <-second.done; second.err != nil || second.info.Size != 5 || !second.created {
			t.Errorf("%+v, %v", second.info, second.err)
		}
		s.leave(second)
		synctest.Wait()
		if len(s.onWay) != 0 {
			t.Errorf("%d are on their way", len(s.onWay))
		}
	})
}

// That there was no room to ask anybody is not that nobody has it.
func TestFetchWithoutARacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &giver{}
		overlay.has("ana", text("hello"))
		r := open(t, withOverlay(overlay))
		ranked, _, err := r.whoHas(t.Context(), address("hello"))
		must(t, err)
		r.racers.Close()
		if _, _, err := r.bringFrom(t.Context(), address("hello"), ranked); err == nil || fault.KindOf(err) == fault.NotFound {
			t.Errorf("%d have it, and it says: %v", len(ranked), err)
		}
	})
}
