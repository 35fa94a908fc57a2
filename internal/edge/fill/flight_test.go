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
	"micronode/internal/flow"
	"micronode/internal/store"
)

// gate is an origin that waits to be let through.
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

// crowd asks many times at once.
type crowd struct {
	group   sync.WaitGroup
	mu      sync.Mutex
	answers []said
	errs    []error
}

func (c *crowd) ask(w *world, r Request) {
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
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(g.then(answering("once", "Cache-Control", "max-age=60")))
		for range 100 {
			c.ask(w, request("/"))
		}
		synctest.Wait()
		if w.work.Len() != 0 || w.Stats().Flights != 1 {
			t.Errorf("%d wait in the queue, %d are aloft; one key takes one slot", w.work.Len(), w.Stats().Flights)
		}
		close(g.open)
		c.group.Wait()
		for _, got := range c.answers {
			if got.body != "once" {
				t.Errorf("%+v", got)
			}
		}
		w.counted(1)
		if len(c.errs) != 0 || len(c.answers) != 100 || w.coalesced != 99 || w.misses != 100 {
			t.Errorf("%d answers, %v, %d coalesced, %d misses", len(c.answers), c.errs, w.coalesced, w.misses)
		}
	})
}

// Who waits for an answer that turns out to be for somebody else fetches for
// itself, at the same time as all the others.
func TestManyAskForDifferentVariants(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, c := newWorld(t), &crowd{}
		var now, most atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			answering("in "+r.Header.Get("Accept-Language"), "Cache-Control", "max-age=60", "Vary", "Accept-Language")(rw, r)
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
		w.counted(3)
		if most.Load() != 2 {
			t.Errorf("%d variants were fetched at a time, want the two that were left", most.Load())
		}
	})
}

func TestManyAskForWhatCannotBeKept(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, c := newWorld(t), &crowd{}
		var n atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			answering(fmt.Sprint("for you: ", n.Add(1)), "Cache-Control", "no-store")(rw, r)
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
		// And it is remembered: the next ones do not even wait for each other.
		began = time.Now()
		for range workers {
			c.ask(w, request("/"))
		}
		c.group.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %s: one waited for the other, again", took)
		}
		w.empty()
		before := w.coalesced
		time.Sleep(lonelyFor + time.Second)
		for range 2 {
			c.ask(w, request("/"))
		}
		c.group.Wait()
		if w.coalesced != before+1 {
			t.Error("it is remembered for too long")
		}
		w.origin(answering("for all", "Cache-Control", "max-age=60"))
		w.get("/")
		if !w.get("/").Hit {
			t.Error("it can be kept now, and is not")
		}
	})
}

func TestTheFillOutlivesThoseWhoWait(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g := newWorld(t, with(func(c *Config) { c.Timeout = 20 * time.Second })), newGate()
		w.origin(g.then(answering("late", "Cache-Control", "max-age=60")))
		w.refuses(request("/"), fault.Timeout, ReasonTimeout)
		close(g.open)
		synctest.Wait()
		if got := w.get("/"); !got.Hit || got.body != "late" {
			t.Errorf("what came late is not here: %+v", got)
		}
		w.counted(1)
	})
}

func TestOneWhoLeavesDoesNotStopTheOthers(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(g.then(answering("for the others", "Cache-Control", "max-age=60")))
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
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(g.then(answering("x", "Cache-Control", "max-age=60")))
		for i := range workCap + workers {
			c.ask(w, request(fmt.Sprint("/", i)))
			if i < workers {
				synctest.Wait() // each worker has its own
			}
		}
		synctest.Wait()
		w.refuses(request("/one-too-many"), fault.Busy, ReasonBusy)
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
	inTime(t, func(t *testing.T) {
		full := false
		w := newWorld(t, func(s *Spec) {
			s.Admit = func() error {
				if full {
					return fault.New("test", fault.RateLimited, "enough")
				}
				return nil
			}
		})
		w.origin(answering("x", "Cache-Control", "max-age=60, stale-while-revalidate=600"))
		w.get("/")
		full = true
		w.refuses(request("/other"), fault.RateLimited, ReasonRate)
		if !w.get("/").Hit {
			t.Error("a hit needs no admission")
		}
		time.Sleep(2 * time.Minute)
		if !w.get("/").Stale {
			t.Error("what is stale serves while nothing may be fetched")
		}
		synctest.Wait()
		w.counted(1)
	})
}

func TestAKilledWorkerCostsNobodyAnAnswer(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(g.then(answering("after all", "Cache-Control", "max-age=60")))
		for range 10 {
			c.ask(w, request("/"))
		}
		synctest.Wait()
		for worker := range workers {
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
		w.counted(2)
	})
}

// A kill and the end of a fill may cross: what is settled is not fetched again.
func TestASecondTryOfWhatHadWorked(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := newWorld(t)
		w.origin(answering("x", "Cache-Control", "max-age=60"))
		f, _ := w.enter(&flight{order: order{target: target{host: "origin.test", path: "/"}, key: "k"}, background: true})
		again := &job{w.Cache, f}
		again.Run(t.Context())
		again.Run(t.Context())
		again.Abandon(fault.Internal)
		w.counted(1)
		if !again.Idempotent() || f.outcome.err != nil || w.Stats().Entries != 1 {
			t.Errorf("%+v", f.outcome)
		}
	})
}

// breaking is a store that fails in ways that stores do not.
type breaking struct {
	store.Store
	put  func(context.Context, io.Reader, store.PutOptions) (store.Info, bool, error)
	open func(context.Context, b3.Address) (store.Handle, error)
}

func (b *breaking) Put(ctx context.Context, src io.Reader, o store.PutOptions) (store.Info, bool, error) {
	if b.put != nil {
		return b.put(ctx, src, o)
	}
	return b.Store.Put(ctx, src, o)
}

func (b *breaking) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	if b.open != nil {
		return b.open(ctx, a)
	}
	return b.Store.Open(ctx, a)
}

func breakable(b *breaking) option {
	return func(s *Spec) {
		b.Store = store.NewRAM(flow.NewInventory(), store.RAMSpec{Service: "edge", Budget: 1 << 20})
		s.Store = b
	}
}

func TestAPanicStrandsNobody(t *testing.T) {
	inTime(t, func(t *testing.T) {
		b, c := &breaking{}, &crowd{}
		w := newWorld(t, breakable(b))
		b.put = func(context.Context, io.Reader, store.PutOptions) (store.Info, bool, error) { panic("ouch") }
		w.origin(answering("x", "Cache-Control", "max-age=60"))
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
		time.Sleep(time.Minute) // the workers come back
		w.get("/")
	})
}

func TestDrainAndClose(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(answering("here", "Cache-Control", "max-age=60"))
		w.get("/here")
		w.origin(g.then(answering("there", "Cache-Control", "max-age=60")))
		for i := range workers + 3 {
			c.ask(w, request(fmt.Sprint("/", i)))
		}
		synctest.Wait()
		w.Drain()
		w.refuses(request("/new"), fault.NotReady, "")
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

// A drain that takes too long aborts the workers; those who wait are told.
func TestAbortedWorkersTellThoseWhoWait(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, c := newWorld(t), &crowd{}
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

// What the store gives up at once can still be read by those who waited for it.
func TestEvictedAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		b, g, c := &breaking{}, newGate(), &crowd{}
		w := newWorld(t, breakable(b))
		b.open = func(ctx context.Context, a b3.Address) (store.Handle, error) {
			handle, err := b.Store.Open(ctx, a)
			_ = b.Store.Delete(ctx, a)
			return handle, err
		}
		w.origin(g.then(answering("brief", "Cache-Control", "max-age=60")))
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
		w.counted(1)
		w.get("/") // an entry without a body is a miss
		w.counted(2)
		if w.hits != 0 {
			t.Errorf("%d hits without a body", w.hits)
		}
	})
}

func TestEvictedBeforeItCouldBeOpened(t *testing.T) {
	inTime(t, func(t *testing.T) {
		b := &breaking{}
		w := newWorld(t, breakable(b))
		gone := 2
		b.open = func(ctx context.Context, a b3.Address) (store.Handle, error) {
			if gone > 0 {
				gone--
				_ = b.Store.Delete(ctx, a)
			}
			return b.Store.Open(ctx, a)
		}
		w.origin(answering("third time", "Cache-Control", "max-age=60"))
		if got := w.get("/"); got.body != "third time" {
			t.Errorf("%+v", got)
		}
		w.counted(3)
		gone = 3
		w.refuses(request("/never"), fault.StoreFull, "")
		gone = 0
		b.open = func(context.Context, b3.Address) (store.Handle, error) { return nil, errors.New("no disk") }
		w.refuses(request("/broken"), fault.Internal, "")
		w.refuses(request("/"), fault.Internal, "")
	})
}

func TestPurgeWhileFetching(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(g.then(func(rw http.ResponseWriter, r *http.Request) {
			answering("old"+r.URL.Path, "Cache-Control", "max-age=60")(rw, r)
		}))
		c.ask(w, request("/"))
		c.ask(w, request("/"))
		c.ask(w, request("/elsewhere"))
		synctest.Wait()
		if n, err := w.Purge(t.Context(), Purge{URL: "https://origin.test/"}); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		w.origin(answering("new", "Cache-Control", "max-age=60"))
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

// A flight that was launched before a purge is not kept even if nobody else
// fetched meanwhile.
func TestPurgedFlightLeavesNothing(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t), newGate(), &crowd{}
		w.origin(g.then(answering("old", "Cache-Control", "max-age=60")))
		c.ask(w, request("/"))
		synctest.Wait()
		_, _ = w.Purge(t.Context(), Purge{Prefix: "https://"})
		close(g.open)
		c.group.Wait()
		w.empty()
	})
}

// What came in the very moment in which the last one left is let go of.
func TestLandingAndLeavingAtOnce(t *testing.T) {
	for range 20 {
		inTime(t, func(t *testing.T) {
			w, c := newWorld(t, with(func(c *Config) { c.Timeout = time.Minute })), &crowd{}
			w.origin(func(rw http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second) // the deadline of those who ask
				answering("just in time", "Cache-Control", "max-age=60")(rw, r)
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

// Nobody waits for the answer to somebody who says who it is.
func TestPersonalFlightsTakeNobody(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, g, c := newWorld(t, with(func(c *Config) { c.ForwardHeaders = []string{"*"} })), newGate(), &crowd{}
		personal := g.then(answering("yours", "Cache-Control", "max-age=60"))
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				personal(rw, r)
				return
			}
			answering("for all", "Cache-Control", "max-age=60")(rw, r)
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

// closes counts how often a handle is closed.
type closes struct {
	store.Handle
	n int
}

func (c *closes) Close() error { c.n++; return nil }

// The machine of flights, driven by chance and compared with what must hold.
func TestFlightsByChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := newFlights()
		var all []*flight
		waiting := map[*flight]int{} // aboard and not settled
		claims := map[*flight]int{}  // settled and not given back
		handles := map[*flight]*closes{}
		pick := func(t *rapid.T) *flight {
			if len(all) == 0 { // something must fly before anything can happen to it
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
					if f.settled || f.grounded || f.id != name {
						t.Fatal("boarded a flight that takes nobody")
					}
					if !background {
						waiting[f]++
					}
					return
				}
				f := &flight{id: name, order: order{key: name.key}, joinable: rapid.Bool().Draw(t, "joinable"), background: background}
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
					if fs.leave(f) != nil {
						t.Fatal("a claim on a flight that is aloft")
					}
					waiting[f]--
				case claims[f] > 0:
					fs.leave(f).release()
					claims[f]--
				}
			},
			"read": func(t *rapid.T) {
				f := pick(t)
				if claims[f] == 0 {
					return
				}
				b := &borrowed{Handle: handles[f], loan: f.outcome.loan}
				_, _ = b.Close(), b.Close()
				claims[f]--
			},
			"settle": func(t *rapid.T) {
				f := pick(t)
				h := &closes{}
				l := newLoan(h)
				if won := fs.settle(f, outcome{loan: l}); won == (handles[f] != nil) {
					t.Fatalf("settled: %t, and was before: %t", won, handles[f] != nil)
				}
				if handles[f] == nil {
					handles[f], claims[f], waiting[f] = h, waiting[f], 0
				} else if l.release(); h.n != 1 {
					t.Fatal("what came second was not closed")
				}
				if f.outcome.loan.handle == h {
					l.release()
				}
			},
			"ground": func(t *rapid.T) {
				p := purge{key: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "purged"), exact: rapid.Bool().Draw(t, "exact")}
				fs.ground(p)
				for f := range fs.aloft {
					if p.covers(f.key) != f.grounded && !f.grounded {
						t.Fatal("a flight escaped the purge")
					}
				}
			},
			"": func(t *rapid.T) {
				for f := range fs.aloft {
					if f.settled || f.aboard != waiting[f] {
						t.Fatalf("aloft with %d aboard, want %d; settled: %t", f.aboard, waiting[f], f.settled)
					}
				}
				for name, f := range fs.joinable {
					if _, aloft := fs.aloft[f]; !aloft || f.grounded || !f.joinable || f.id != name {
						t.Fatal("listed, but takes nobody")
					}
				}
				for _, f := range all {
					h := handles[f]
					if _, aloft := fs.aloft[f]; aloft == f.settled {
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

// The whole, by chance: workers die, clients leave, purges come. Everybody gets
// an answer or an error, and afterwards nothing is left open.
func TestNobodyIsStranded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 5, 30).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := &crowd{}
			var n atomic.Uint64
			w.origin(func(rw http.ResponseWriter, r *http.Request) {
				i := n.Add(1) * (seed | 1)
				time.Sleep(time.Duration(i>>8%3000) * time.Millisecond)
				switch i >> 32 % 5 {
				case 0:
					answering("private", "Cache-Control", "no-store")(rw, r)
				case 1:
					answering(r.Header.Get("Accept-Language"), "Cache-Control", "max-age=1", "Vary", "Accept-Language")(rw, r)
				case 2:
					rw.WriteHeader(503)
				case 3:
					panic(http.ErrAbortHandler)
				default:
					answering("x", "Cache-Control", "max-age=1, stale-while-revalidate=5", "Etag", `"e"`)(rw, r)
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
					_ = w.sup.Kill("worker", i%workers) // it may be dead already
				case step == 7:
					_, _ = w.Purge(context.Background(), Purge{Prefix: "https://origin.test/"})
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

// Between the look for a flight and the launch of one, somebody else launches.
func TestTwoLaunchAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		var w *world
		g, c := newGate(), &crowd{}
		first := true
		w = newWorld(t, func(s *Spec) {
			s.Admit = func() error {
				if first {
					first = false
					c.ask(w, request("/"))
					time.Sleep(time.Millisecond)
				}
				return nil
			}
		})
		w.origin(g.then(answering("once", "Cache-Control", "max-age=60")))
		done := make(chan said)
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
		w.counted(1)
		if w.coalesced != 1 {
			t.Errorf("%d coalesced", w.coalesced)
		}
	})
}

// Somebody who waits in vain a few times fetches for itself.
func TestPatienceEnds(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, c := newWorld(t), &crowd{}
		var n atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			// It varies by another header each time, so what one waits for never fits.
			vary := []string{"Accept", "Accept-Language", "Accept-Encoding"}[n.Add(1)%3]
			answering("for "+r.Header.Get("Accept"), "Cache-Control", "max-age=60", "Vary", vary)(rw, r)
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

// One who closes twice does not close for another.
func TestClosingTwice(t *testing.T) {
	fs, h := newFlights(), &closes{}
	f := &flight{joinable: true}
	fs.launch(f)
	fs.board(f.id, false)
	l := newLoan(h)
	fs.settle(f, outcome{loan: l})
	l.release()
	first, second := &borrowed{Handle: h, loan: l}, &borrowed{Handle: h, loan: l}
	_, _ = first.Close(), first.Close()
	if h.n != 0 {
		t.Error("closed while somebody reads")
	}
	_ = second.Close()
	if h.n != 1 {
		t.Errorf("closed %d times", h.n)
	}
}
