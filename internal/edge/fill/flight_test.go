package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// gate is an origin that waits until its gate is opened.
type gate struct{ open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{})} }

func (g *gate) then(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-g.open:
			next(w, r)
		case <-r.Context().Done():
		}
	}
}

// concurrentClients sends many requests at once.
type concurrentClients struct {
	group   sync.WaitGroup
	mu      sync.Mutex
	answers []readAnswer
	errs    []error
}

func (c *concurrentClients) ask(w *fixture, r Request) {
	c.group.Go(func() {
		answer, err := w.ask(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs = append(c.errs, err)
		} else {
			c.answers = append(c.answers, answer)
		}
	})
}

func TestManyAskOneFetches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("once", "Cache-Control", "max-age=60")))
		for range 100 {
			c.ask(w, request("/"))
		}
		synctest.Wait()
		if w.work.Len(workBand) != 0 || w.Stats().Flights != 1 {
			t.Errorf("%d wait in the queue, %d are aloft; one key takes one slot", w.work.Len(workBand), w.Stats().Flights)
		}
		close(g.open)
		c.group.Wait()
		for _, got := range c.answers {
			if got.body != "once" {
				t.Errorf("%+v", got)
			}
		}
		w.wantAsked(1)
		if len(c.errs) != 0 || len(c.answers) != 100 || w.coalesced != 99 || w.misses != 100 {
			t.Errorf("%d answers, %v, %d coalesced, %d misses", len(c.answers), c.errs, w.coalesced, w.misses)
		}
	})
}

// A waiter of an answer that is for other requests only fetches for itself, in
// parallel with all the others.
func TestManyAskForDifferentVariants(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t), &concurrentClients{}
		var now, most atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			answerWith("in "+r.Header.Get("Accept-Language"), "Cache-Control", "max-age=60", "Vary", "Accept-Language")(rw, r)
		})
		for i := range 12 {
			c.ask(w, request("/", "Accept-Language", string(rune('a'+i%3))))
		}
		c.group.Wait()
		if len(c.errs) != 0 || len(c.answers) != 12 {
			t.Fatalf("%d answers, %v", len(c.answers), c.errs)
		}
		count := map[string]int{}
		for _, got := range c.answers {
			count[got.body]++
		}
		if count["in a"] != 4 || count["in b"] != 4 || count["in c"] != 4 {
			t.Errorf("%v", count)
		}
		w.wantAsked(3)
		if most.Load() != 2 {
			t.Errorf("%d variants were fetched at a time, want the two that were left", most.Load())
		}
	})
}

func TestManyAskForWhatCannotBeKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t), &concurrentClients{}
		var n atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			answerWith(fmt.Sprint("for you: ", n.Add(1)), "Cache-Control", "no-store")(rw, r)
		})
		began := time.Now()
		for range workers + 1 {
			c.ask(w, request("/"))
		}
		c.group.Wait()
		seen := map[string]bool{}
		for _, got := range c.answers {
			seen[got.body] = true
		}
		if len(c.errs) != 0 || len(seen) != workers+1 {
			t.Errorf("%d answers that are not shared, want %d; %v", len(seen), workers+1, c.errs)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s: one waited for the other", took)
		}
		// The key is marked: the next requests do not wait for each other.
		began = time.Now()
		for range workers {
			c.ask(w, request("/"))
		}
		c.group.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %s: one waited for the other, again", took)
		}
		w.wantEmpty()
		before := w.coalesced
		time.Sleep(hitForMissTTL + time.Second)
		for range 2 {
			c.ask(w, request("/"))
		}
		c.group.Wait()
		if w.coalesced != before+1 {
			t.Error("it is remembered for too long")
		}
		w.origin(answerWith("for all", "Cache-Control", "max-age=60"))
		w.get("/")
		if !w.get("/").Hit {
			t.Error("it can be kept now, and is not")
		}
	})
}

func TestTheFillOutlivesThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g := newFixture(t, with(func(c *Config) { c.Timeout = 20 * time.Second })), newGate()
		w.origin(g.then(answerWith("late", "Cache-Control", "max-age=60")))
		w.wantRefused(request("/"), fault.Timeout, ReasonTimeout)
		close(g.open)
		synctest.Wait()
		if got := w.get("/"); !got.Hit || got.body != "late" {
			t.Errorf("what came late is not here: %+v", got)
		}
		w.wantAsked(1)
	})
}

func TestOneWhoLeavesDoesNotStopTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("for the others", "Cache-Control", "max-age=60")))
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := w.Get(ctx, request("/"))
			left <- err
		}()
		synctest.Wait()
		c.ask(w, request("/"))
		synctest.Wait()
		cancel()
		if err := <-left; fault.KindOf(err) != fault.Canceled {
			t.Errorf("the one who left got %v", err)
		}
		close(g.open)
		c.group.Wait()
		if len(c.answers) != 1 || c.answers[0].body != "for the others" {
			t.Errorf("%v %v", c.answers, c.errs)
		}
		if len(w.rejects) != 0 {
			t.Errorf("one who leaves is no refusal: %v", w.rejects)
		}
	})
}

func TestBusy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("x", "Cache-Control", "max-age=60")))
		for i := range workCap + workers {
			c.ask(w, request(fmt.Sprint("/", i)))
			if i < workers {
				synctest.Wait() // each worker has its own
			}
		}
		synctest.Wait()
		w.wantRefused(request("/one-too-many"), fault.Busy, ReasonBusy)
		c.ask(w, request("/7")) // it needs no slot
		synctest.Wait()
		close(g.open)
		c.group.Wait()
		if len(c.errs) != 0 || len(c.answers) != workCap+workers+1 {
			t.Errorf("%d answers, %d errors", len(c.answers), len(c.errs))
		}
		w.get("/one-too-many")
	})
}

func TestAdmission(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		full := false
		w := newFixture(t, func(s *Spec) {
			s.Admit = func(string, uint64) error {
				if full {
					return fault.New("test", fault.RateLimited, "enough")
				}
				return nil
			}
		})
		w.origin(answerWith("x", "Cache-Control", "max-age=60, stale-while-revalidate=600"))
		w.get("/")
		full = true
		w.wantRefused(request("/other"), fault.RateLimited, ReasonRate)
		if !w.get("/").Hit {
			t.Error("a hit needs no admission")
		}
		time.Sleep(2 * time.Minute)
		if !w.get("/").Stale {
			t.Error("what is stale serves while nothing may be fetched")
		}
		synctest.Wait()
		w.wantAsked(1)
	})
}

func TestAKilledWorkerCostsNobodyAnAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("after all", "Cache-Control", "max-age=60")))
		for range 10 {
			c.ask(w, request("/"))
		}
		synctest.Wait()
		for worker := range pool {
			if err := w.sup.Kill("worker", worker); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		close(g.open)
		c.group.Wait()
		if len(c.answers) != 10 {
			t.Errorf("%d answers, %v", len(c.answers), c.errs)
		}
		w.wantAsked(2)
	})
}

// A kill and the end of a fill may cross: a completed fill is not fetched
// again.
func TestASecondTryOfWhatHadWorked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		f, _ := w.boardOrLaunch(&flight{fillRequest: fillRequest{target: target{host: "origin.test", path: "/"}, key: "k"}, background: true})
		again := &job{w.Cache, f}
		again.Run(t.Context())
		again.Run(t.Context())
		again.Abandon(fault.Internal)
		w.wantAsked(1)
		if !again.Idempotent() || f.outcome.err != nil || w.Stats().Entries != 1 {
			t.Errorf("%+v", f.outcome)
		}
	})
}

// faultyStore is a store that fails in ways that stores do not.
type faultyStore struct {
	store.Store
	put  func(context.Context, io.Reader, store.PutOptions) (store.Info, bool, error)
	open func(context.Context, b3.Address) (store.Handle, error)
}

func (f *faultyStore) Put(ctx context.Context, src io.Reader, o store.PutOptions) (store.Info, bool, error) {
	if f.put != nil {
		return f.put(ctx, src, o)
	}
	return f.Store.Put(ctx, src, o)
}

func (f *faultyStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	if f.open != nil {
		return f.open(ctx, a)
	}
	return f.Store.Open(ctx, a)
}

func withFaultyStore(b *faultyStore) option {
	return func(s *Spec) {
		b.Store = store.NewRAM(store.RAMSpec{Budget: 1 << 20})
		s.Store = b
	}
}

func TestAPanicStrandsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, c := &faultyStore{}, &concurrentClients{}
		w := newFixture(t, withFaultyStore(b))
		b.put = func(context.Context, io.Reader, store.PutOptions) (store.Info, bool, error) { panic("ouch") }
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		for range 5 {
			c.ask(w, request("/"))
		}
		c.group.Wait()
		if len(c.errs) != 5 {
			t.Fatalf("%d answers, %v", len(c.answers), c.errs)
		}
		for _, err := range c.errs {
			if fault.KindOf(err) != fault.NotReady {
				t.Errorf("%v is %s", err, fault.KindOf(err))
			}
		}
		b.put = nil
		time.Sleep(time.Minute) // the workers are restarted
		w.get("/")
	})
}

func TestDrainAndClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(answerWith("here", "Cache-Control", "max-age=60"))
		w.get("/here")
		w.origin(g.then(answerWith("there", "Cache-Control", "max-age=60")))
		for i := range workers + 3 {
			c.ask(w, request(fmt.Sprint("/", i)))
		}
		synctest.Wait()
		w.Drain()
		w.wantRefused(request("/new"), fault.NotReady, "")
		if !w.get("/here").Hit {
			t.Error("what is here is served to the end")
		}
		c.ask(w, request("/1")) // it joins what is under way
		synctest.Wait()
		if err := w.Cache.Close(); err != nil {
			t.Fatal(err)
		}
		c.group.Wait()
		if len(c.answers) != 0 || len(c.errs) != workers+4 {
			t.Errorf("%d answers, %d errors", len(c.answers), len(c.errs))
		}
		for _, err := range c.errs {
			if fault.KindOf(err) != fault.NotReady {
				t.Errorf("%v is %s", err, fault.KindOf(err))
			}
		}
		close(g.open)
		synctest.Wait()
		if n := w.Stats().Entries; n != 1 {
			t.Errorf("%d entries: a closed cache kept what came later", n)
		}
	})
}

// A drain that takes too long aborts the workers; the waiters get an error.
func TestAbortedWorkersTellThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t), &concurrentClients{}
		w.origin(newGate().then(nil))
		for i := range workers {
			c.ask(w, request(fmt.Sprint("/", i)))
		}
		synctest.Wait()
		w.sup.Shutdown("now")
		c.group.Wait()
		for _, err := range c.errs {
			if fault.KindOf(err) != fault.NotReady {
				t.Errorf("%v is %s", err, fault.KindOf(err))
			}
		}
	})
}

// A body that the store evicts at once can still be read by the waiters.
func TestEvictedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, g, c := &faultyStore{}, newGate(), &concurrentClients{}
		w := newFixture(t, withFaultyStore(b))
		b.open = func(ctx context.Context, a b3.Address) (store.Handle, error) {
			handle, err := b.Store.Open(ctx, a)
			_ = b.Store.Delete(ctx, a)
			return handle, err
		}
		w.origin(g.then(answerWith("brief", "Cache-Control", "max-age=60")))
		for range 5 {
			c.ask(w, request("/"))
		}
		synctest.Wait()
		close(g.open)
		c.group.Wait()
		for _, got := range c.answers {
			if got.body != "brief" {
				t.Errorf("%+v", got)
			}
		}
		if len(c.answers) != 5 {
			t.Errorf("%v", c.errs)
		}
		w.wantAsked(1)
		w.get("/") // an entry without a body is a miss
		w.wantAsked(2)
		if w.hits != 0 {
			t.Errorf("%d hits without a body", w.hits)
		}
	})
}

func TestEvictedBeforeItCouldBeOpened(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &faultyStore{}
		w := newFixture(t, withFaultyStore(b))
		gone := 2
		b.open = func(ctx context.Context, a b3.Address) (store.Handle, error) {
			if gone > 0 {
				gone--
				_ = b.Store.Delete(ctx, a)
			}
			return b.Store.Open(ctx, a)
		}
		w.origin(answerWith("third time", "Cache-Control", "max-age=60"))
		if got := w.get("/"); got.body != "third time" {
			t.Errorf("%+v", got)
		}
		w.wantAsked(3)
		gone = 3
		w.wantRefused(request("/never"), fault.StoreFull, "")
		gone = 0
		b.open = func(context.Context, b3.Address) (store.Handle, error) { return nil, errors.New("no disk") }
		w.wantRefused(request("/broken"), fault.Internal, "")
		w.wantRefused(request("/"), fault.Internal, "")
	})
}

func TestPurgeWhileFetching(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(func(rw http.ResponseWriter, r *http.Request) {
			answerWith("old"+r.URL.Path, "Cache-Control", "max-age=60")(rw, r)
		}))
		c.ask(w, request("/"))
		c.ask(w, request("/"))
		c.ask(w, request("/elsewhere"))
		synctest.Wait()
		if n, err := w.Purge(t.Context(), PurgeRequest{URL: "https://origin.test/"}); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		w.origin(answerWith("new", "Cache-Control", "max-age=60"))
		if got := w.get("/"); got.body != "new" {
			t.Errorf("one who asked after the purge got %q", got.body)
		}
		close(g.open)
		c.group.Wait()
		if len(c.answers) != 3 {
			t.Fatalf("%v", c.errs)
		}
		for _, got := range c.answers {
			if got.body != "old/" && got.body != "old/elsewhere" {
				t.Errorf("one who asked before the purge got %q", got.body)
			}
		}
		if got := w.get("/"); got.body != "new" || !got.Hit {
			t.Errorf("what was fetched before the purge landed: %+v", got)
		}
		if !w.get("/elsewhere").Hit {
			t.Error("the purge of one stopped another")
		}
	})
}

// A flight that was launched before a purge is not stored, even without any
// other fetch meanwhile.
func TestPurgedFlightLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("old", "Cache-Control", "max-age=60")))
		c.ask(w, request("/"))
		synctest.Wait()
		_, _ = w.Purge(t.Context(), PurgeRequest{Prefix: "https://"})
		close(g.open)
		c.group.Wait()
		w.wantEmpty()
	})
}

// A body that arrives just when the last waiter leaves is released.
func TestLandingAndLeavingAtOnce(t *testing.T) {
	for range 20 {
		inBubble(t, func(t *testing.T) {
			w, c := newFixture(t, with(func(c *Config) { c.Timeout = time.Minute })), &concurrentClients{}
			w.origin(func(rw http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second) // the deadline of the requests
				answerWith("just in time", "Cache-Control", "max-age=60")(rw, r)
			})
			for range 5 {
				c.ask(w, request("/"))
			}
			c.group.Wait()
			if len(c.answers)+len(c.errs) != 5 {
				t.Errorf("%d answers, %d errors", len(c.answers), len(c.errs))
			}
		})
	}
}

// No request waits for the answer to a request with personal headers.
func TestPersonalFlightsTakeNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t, with(func(c *Config) { c.ForwardHeaders = []string{"*"} })), newGate(), &concurrentClients{}
		personal := g.then(answerWith("yours", "Cache-Control", "max-age=60"))
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				personal(rw, r)
				return
			}
			answerWith("for all", "Cache-Control", "max-age=60")(rw, r)
		})
		c.ask(w, request("/", "Authorization", "Bearer me"))
		synctest.Wait()
		if got := w.get("/"); got.body != "for all" {
			t.Errorf("%+v", got)
		}
		close(g.open)
		c.group.Wait()
		if len(c.answers) != 1 || c.answers[0].body != "yours" {
			t.Errorf("%v", c.answers)
		}
		if got := w.get("/"); !got.Hit || got.body != "for all" {
			t.Errorf("an answer to one threw out that for all: %+v", got)
		}
	})
}

// closeCounter counts how often a handle is closed.
type closeCounter struct {
	store.Handle
	n int
}

func (c *closeCounter) Close() error { c.n++; return nil }

// The state machine of flights, driven at random and compared with its
// invariants.
func TestFlightsByChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := newFlights()
		var all []*flight
		waiting := map[*flight]int{} // aboard and not completed
		claims := map[*flight]int{}  // completed and not released
		handles := map[*flight]*closeCounter{}
		pick := func(t *rapid.T) *flight {
			if len(all) == 0 { // a flight is needed before anything can happen to it
				f := &flight{background: true}
				fs.launch(f)
				all = append(all, f)
			}
			return rapid.SampledFrom(all).Draw(t, "flight")
		}
		id := func(t *rapid.T) flightID {
			return flightID{rapid.SampledFrom([]string{"a", "ab", "b"}).Draw(t, "key"), rapid.SampledFrom([]string{"", "v"}).Draw(t, "variant")}
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				name, background := id(t), rapid.Bool().Draw(t, "background")
				if f := fs.board(name, background); f != nil {
					if f.completed || f.invalidated || f.id != name {
						t.Fatal("boarded a flight that takes nobody")
					}
					if !background {
						waiting[f]++
					}
					return
				}
				f := &flight{id: name, fillRequest: fillRequest{key: name.key}, joinable: rapid.Bool().Draw(t, "joinable"), background: background}
				fs.launch(f)
				all = append(all, f)
				if !background {
					waiting[f]++
				}
			},
			"leave": func(t *rapid.T) {
				f := pick(t)
				switch {
				case waiting[f] > 0:
					owed, deserted := fs.leave(f)
					if owed != nil {
						t.Fatal("a claim on a flight that is aloft")
					}
					waiting[f]--
					if last := waiting[f] == 0 && !f.background; deserted != last {
						t.Fatalf("deserted: %t, with %d waiting", deserted, waiting[f])
					}
					if deserted && fs.joinable[f.id] == f {
						t.Fatal("somebody may board what is about to be withdrawn")
					}
					if deserted {
						grounded := f.invalidated
						fs.reopenBoarding(f)
						if fs.joinable[f.id] == f && grounded {
							t.Fatal("somebody may board what was purged")
						}
					}
				case claims[f] > 0:
					owed, _ := fs.leave(f)
					owed.release()
					claims[f]--
				}
			},
			"read": func(t *rapid.T) {
				f := pick(t)
				if claims[f] == 0 {
					return
				}
				b := &handleRef{Handle: handles[f], shared: f.outcome.bodyHandle}
				_, _ = b.Close(), b.Close()
				claims[f]--
			},
			"settle": func(t *rapid.T) {
				f := pick(t)
				h := &closeCounter{}
				l := newSharedHandle(h)
				if won := fs.complete(f, outcome{bodyHandle: l}); won == (handles[f] != nil) {
					t.Fatalf("settled: %t, and was before: %t", won, handles[f] != nil)
				}
				if handles[f] == nil {
					handles[f], claims[f], waiting[f] = h, waiting[f], 0
				} else if l.release(); h.n != 1 {
					t.Fatal("what came second was not closed")
				}
				if f.outcome.bodyHandle.handle == h {
					l.release()
				}
			},
			"ground": func(t *rapid.T) {
				p := purgeMatch{key: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "purged"), exact: rapid.Bool().Draw(t, "exact")}
				fs.invalidate(p)
				for f := range fs.active {
					if p.matches(f.key) != f.invalidated && !f.invalidated {
						t.Fatal("a flight escaped the purge")
					}
				}
			},
			"": func(t *rapid.T) {
				for f := range fs.active {
					if f.completed || f.aboard != waiting[f] {
						t.Fatalf("aloft with %d aboard, want %d; settled: %t", f.aboard, waiting[f], f.completed)
					}
				}
				for name, f := range fs.joinable {
					if _, aloft := fs.active[f]; !aloft || f.invalidated || !f.joinable || f.id != name {
						t.Fatal("listed, but takes nobody")
					}
				}
				for _, f := range all {
					h := handles[f]
					if _, aloft := fs.active[f]; aloft == f.completed {
						t.Fatal("neither aloft nor settled, or both")
					}
					if h != nil && h.n != map[bool]int{true: 1}[claims[f] == 0] {
						t.Fatalf("%d claims, and closed %d times", claims[f], h.n)
					}
				}
			},
		})
	})
}

// Everything at random: workers die, clients leave, purges come. Every request
// gets an answer or an error, and afterwards nothing is left open.
func TestNobodyIsStranded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 5, 30).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			c := &concurrentClients{}
			var n atomic.Uint64
			w.origin(func(rw http.ResponseWriter, r *http.Request) {
				i := n.Add(1) * (seed | 1)
				time.Sleep(time.Duration(i>>8%3000) * time.Millisecond)
				switch i >> 32 % 5 {
				case 0:
					answerWith("private", "Cache-Control", "no-store")(rw, r)
				case 1:
					answerWith(r.Header.Get("Accept-Language"), "Cache-Control", "max-age=1", "Vary", "Accept-Language")(rw, r)
				case 2:
					rw.WriteHeader(503)
				case 3:
					panic(http.ErrAbortHandler)
				default:
					answerWith("x", "Cache-Control", "max-age=1, stale-while-revalidate=5", "Etag", `"e"`)(rw, r)
				}
			})
			asked := 0
			for i, step := range steps {
				r := request(fmt.Sprint("/", step%2), "Accept-Language", string(rune('a'+i%3)))
				switch {
				case step < 6:
					c.ask(w, r)
					asked++
				case step == 6:
					_ = w.sup.Kill("worker", i%pool) // it may be dead already
				case step == 7:
					_, _ = w.Purge(context.Background(), PurgeRequest{Prefix: "https://origin.test/"})
				default:
					time.Sleep(time.Duration(step*i) * 10 * time.Millisecond)
				}
			}
			c.group.Wait()
			if len(c.answers)+len(c.errs) != asked {
				t.Errorf("%d asked, %d were answered", asked, len(c.answers)+len(c.errs))
			}
			for _, err := range c.errs {
				switch fault.KindOf(err) {
				case fault.Timeout, fault.UpstreamFailed, fault.NotReady:
				default:
					t.Errorf("%v is %s", err, fault.KindOf(err))
				}
			}
		})
	})
}

// Between the look-up of a flight and the launch of one, another request
// launches.
func TestTwoLaunchAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var w *fixture
		g, c := newGate(), &concurrentClients{}
		first := true
		w = newFixture(t, func(s *Spec) {
			s.Admit = func(string, uint64) error {
				if first {
					first = false
					c.ask(w, request("/"))
					time.Sleep(time.Millisecond)
				}
				return nil
			}
		})
		w.origin(g.then(answerWith("once", "Cache-Control", "max-age=60")))
		done := make(chan readAnswer)
		go func() {
			got, _ := w.ask(request("/"))
			done <- got
		}()
		time.Sleep(time.Second)
		close(g.open)
		if got := <-done; got.body != "once" {
			t.Errorf("%+v", got)
		}
		c.group.Wait()
		w.wantAsked(1)
		if w.coalesced != 1 {
			t.Errorf("%d coalesced", w.coalesced)
		}
	})
}

// A request that has waited in vain a few times fetches for itself.
func TestJoinsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t), &concurrentClients{}
		var n atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			// It varies by another header each time, so the answer never
			// matches the waiters.
			vary := []string{"Accept", "Accept-Language", "Accept-Encoding"}[n.Add(1)%3]
			answerWith("for "+r.Header.Get("Accept"), "Cache-Control", "max-age=60", "Vary", vary)(rw, r)
		})
		for i := range 8 {
			one := fmt.Sprint("x/", i)
			c.ask(w, request("/", "Accept", one, "Accept-Language", one, "Accept-Encoding", one))
		}
		c.group.Wait()
		seen := map[string]bool{}
		for _, got := range c.answers {
			seen[got.body] = true
		}
		if len(c.errs) != 0 || len(seen) != 8 {
			t.Errorf("%v, %v", seen, c.errs)
		}
	})
}

// Closing one reference twice does not release another one.
func TestClosingTwice(t *testing.T) {
	fs, h := newFlights(), &closeCounter{}
	f := &flight{joinable: true}
	fs.launch(f)
	fs.board(f.id, false)
	l := newSharedHandle(h)
	fs.complete(f, outcome{bodyHandle: l})
	l.release()
	first, second := &handleRef{Handle: h, shared: l}, &handleRef{Handle: h, shared: l}
	_, _ = first.Close(), first.Close()
	if h.n != 0 {
		t.Error("closed while somebody reads")
	}
	_ = second.Close()
	if h.n != 1 {
		t.Errorf("closed %d times", h.n)
	}
}
