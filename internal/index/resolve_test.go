package index

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index/record"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// The registry's names take precedence over this node's own, and both are
// resolved without a look-up.
func TestNamesAreTheRegistrysThenOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withRegistry(fakeRegistry{"docs": address("governed")}), withEngine(newFakeEngine(target("a", countingAsk(&asked, answersEmpty)))))
		manifest := r.put("manifest")
		for _, name := range []string{"docs", "own/part"} {
			r.names.install(*signed("self", name, manifest, 1))
		}
		for text, want := range map[string]record.Source{"name:docs": record.Registry, "own/part": record.Local, "name:own/part@" + r.selfText: record.Local} {
			got, err := r.Resolve(t.Context(), mustParseID(t, text), Options{})
			testkit.Must(t, err)
			testkit.Equal(t, text+" comes from", got.Source, want)
			if want == record.Local && (got.Manifest != manifest || !slices.Equal(providerIDs(got), []string{r.selfText})) {
				t.Errorf("%s stands for %v", text, got)
			}
			if want == record.Registry && got.Manifest != address("governed") {
				t.Errorf("%s stands for %v", text, got.Manifest)
			}
		}
		_, err := r.Resolve(t.Context(), mustParseID(t, "name:other"), Options{})
		testkit.WantKind(t, err, fault.NotFound)
		testkit.Equal(t, "asked, for the governed manifest only", asked.Load(), 1)
	})
}

// Own objects are answered without a look-up; cached answers, too.
func TestLocalThenCacheThenOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(10*time.Millisecond, providerOf("bob")))))))
		here := r.put("here")
		got, err := r.Resolve(t.Context(), byAddress(here), Options{})
		testkit.Must(t, err)
		if got.Source != record.Local || got.Manifest != here || !slices.Equal(providerIDs(got), []string{r.selfText}) || got.Providers[0].Latency != "local" {
			t.Errorf("what we have is %+v", got)
		}
		there := byAddress(address("there"))
		for _, want := range []record.Source{record.DHT, record.Cache} {
			got, err = r.Resolve(t.Context(), there, Options{})
			testkit.Must(t, err)
			testkit.Equal(t, "source", got.Source, want)
			if !slices.Equal(providerIDs(got), []string{providerOf("bob").ID}) {
				t.Errorf("providers are %v", providerIDs(got))
			}
		}
		testkit.Equal(t, "asked", asked.Load(), 1)
		testkit.Equal(t, "hits", r.count("index_cache_hits_total"), 1)
		testkit.Equal(t, "misses", r.count("index_cache_misses_total"), 1)
		for _, source := range []string{"local", "dht", "cache"} {
			testkit.Equal(t, "answers from "+source, r.count("resolve_latency_seconds", "source="+source), 1)
		}
		time.Sleep(10 * time.Second)
		got, err = r.Resolve(t.Context(), there, Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "after its life it comes from", got.Source, record.DHT)
	})
}

// Another node's name is a record signed by that node, and its manifest is
// looked up within the same budget.
func TestNamesOfOthersAreLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manifest := address("folder")
		v := &fakeOverlay{}
		v.join("bob", func(_ context.Context, q record.Question) (record.Answer, error) {
			if q.Kind == record.ByName {
				return record.Answer{Name: signed("bob", "docs", manifest, 5)}, nil
			}
			return record.Answer{Providers: []record.Provider{providerOf("bob")}}, nil
		})
		r := open(t, withPeers(v))
		id := mustParseID(t, "docs@"+idOfNode("bob").String())
		got, err := r.Resolve(t.Context(), id, Options{})
		testkit.Must(t, err)
		if got.Source != record.Peer || got.Manifest != manifest || !slices.Equal(providerIDs(got), []string{providerOf("bob").ID}) || got.Providers[0].Latency != "near" {
			t.Errorf("the name is %+v", got)
		}
		if got, err = r.Resolve(t.Context(), id, Options{}); err != nil || got.Source != record.Cache {
			t.Errorf("again: %+v, %v", got, err)
		}
		_, err = r.Resolve(t.Context(), mustParseID(t, "docs@"+idOfNode("carol").String()), Options{})
		testkit.WantKind(t, err, fault.UpstreamFailed) // bob's signature under carol's name is invalid
		synctest.Wait()
		if lies := r.log.ofType(Lied); len(lies) == 0 {
			t.Error("nobody was told of the lie")
		}
	})
}

// A name that is known is an answer, even without providers of its manifest.
func TestANameWithoutProvidersIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, say := range map[string]askFunc{"silent": neverAnswers, "ignorant": answersEmpty, "failing": alwaysFails} {
			r := open(t, withRegistry(fakeRegistry{"docs": address("far")}), withEngine(newFakeEngine(target("a", say))))
			began := time.Now()
			got, err := r.Resolve(t.Context(), mustParseID(t, "docs"), Options{})
			testkit.Must(t, err)
			if got.Manifest != address("far") || len(got.Providers) != 0 || time.Since(began) > 1250*time.Millisecond {
				t.Errorf("%s: %+v after %s", what, got, time.Since(began))
			}
			r.stopAndReport()
		}
	})
}

// If all targets are silent, the caller gets an error at the end of the budget,
// and not later.
func TestSilenceIsTimeoutAtTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeOverlay{}
		v.join("bob", neverAnswers)
		v.join("carol", neverAnswers)
		network := newFakeEngine(target("a", neverAnswers), target("b", neverAnswers), target("c", neverAnswers), target("d", neverAnswers))
		network.walk = neverAnswers
		r := open(t, withEngine(network), withPeers(v))
		for _, budget := range []time.Duration{1200 * time.Millisecond, 400 * time.Millisecond} {
			next := r.settings.Load().Config
			next.DHT.DeadlineMS, next.DHT.HedgeMS = int(budget/time.Millisecond), config.Auto[int]{Value: 100}
			testkit.Must(t, r.Reconfigure(next))
			began := time.Now()
			answer := r.get("/resolve/" + address("nowhere").String())
			took := time.Since(began)
			testkit.Equal(t, "status", answer.Code, 504)
			if off := took - budget; off < -50*time.Millisecond || off > 50*time.Millisecond {
				t.Errorf("it took %s, with a budget of %s", took, budget)
			}
		}
		testkit.Equal(t, "deadlines hit", r.count("resolve_deadline_hit_total"), 2)
		testkit.Equal(t, "time-outs", r.count("io_timeouts_total", "op=lookup"), 2)
		testkit.Equal(t, "hedges that nobody won", r.count("hedge_total", "winner=none"), 2)
	})
}

// A caller's own deadline shortens its wait, and no more than that.
func TestACallersDeadlineIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(500*time.Millisecond, providerOf("bob"))))))
		began := time.Now()
		testkit.Equal(t, "status", r.get("/resolve/"+address("x").String(), "Request-Timeout", "0.2").Code, 504)
		testkit.Equal(t, "it waited", time.Since(began), 200*time.Millisecond)
		time.Sleep(400 * time.Millisecond)
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "what came later is remembered:", got.Source, record.Cache)
	})
}

// Callers with the same question share one look-up.
func TestManyCallersOneLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(100*time.Millisecond, providerOf("bob")))))))
		var answered atomic.Int64
		for range 100 {
			go func() {
				if got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); err == nil && len(got.Providers) == 1 {
					answered.Add(1)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		testkit.Equal(t, "asked", asked.Load(), 1)
		testkit.Equal(t, "answered", answered.Load(), 100)
	})
}

// A caller that joins late has its own budget: the end of the shared look-up is
// not the end of its own.
func TestWhoJoinsLateHasItsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, func(ctx context.Context, q record.Question) (record.Answer, error) {
			if asked.Load() > 1 {
				return answersAfter(10*time.Millisecond, providerOf("bob"))(ctx, q)
			}
			return neverAnswers(ctx, q)
		})))), withConfig(func(c *Config) { c.DHT.HedgeBudget = 0 }))
		first := make(chan error, 1)
		go func() { _, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); first <- err }()
		time.Sleep(time.Second)
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "found by", providerIDs(got)[0], providerOf("bob").ID)
		testkit.WantKind(t, <-first, fault.Timeout)
	})
}

// A caller that leaves does not stop the look-up for the others.
func TestWhoLeavesDoesNotStopTheLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(300*time.Millisecond, providerOf("bob")))))))
		ctx, leave := context.WithCancel(t.Context())
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { _, err := r.Resolve(ctx, byAddress(address("x")), Options{}); left <- err }()
		synctest.Wait()
		go func() { _, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); stayed <- err }()
		synctest.Wait()
		leave()
		testkit.WantKind(t, <-left, fault.Canceled)
		testkit.Must(t, <-stayed)
		testkit.Equal(t, "asked", asked.Load(), 1)
	})
}

// An empty answer is cached only if it is certain.
func TestNotFoundIsRememberedOnlyIfCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := byAddress(address("x"))
		for _, one := range []struct {
			what    string
			says    askFunc
			kind    fault.Kind
			certain bool
		}{
			{"nobody", answersEmpty, fault.NotFound, true},
			{"silence", neverAnswers, fault.Timeout, false},
			{"failure", alwaysFails, fault.UpstreamFailed, false},
		} {
			var asked atomic.Int64
			network := newFakeEngine(target("a", countingAsk(&asked, one.says)))
			network.walk = one.says
			r := open(t, withEngine(network))
			_, err := r.Resolve(t.Context(), id, Options{})
			testkit.WantKind(t, err, one.kind)
			_, fresh, ok := r.cache.Get(keyOf(id.Question(r.self)), time.Now())
			testkit.Equal(t, one.what+" is remembered", ok && fresh, one.certain)
			before := asked.Load()
			_, err = r.Resolve(t.Context(), id, Options{})
			testkit.WantKind(t, err, one.kind)
			testkit.Equal(t, one.what+" is asked for again", asked.Load() > before, !one.certain)
			if one.certain {
				time.Sleep(2 * time.Second)
				_, err = r.Resolve(t.Context(), id, Options{})
				testkit.WantKind(t, err, one.kind)
				testkit.Equal(t, "after two seconds asked", asked.Load(), 2)
				testkit.Equal(t, "a put", r.put("x"), address("x"))
				got, err := r.Resolve(t.Context(), id, Options{})
				testkit.Must(t, err)
				testkit.Equal(t, "after a put it comes from", got.Source, record.Local)
				if _, _, ok := r.cache.Get(keyOf(id.Question(r.self)), time.Now()); ok {
					t.Error("a put leaves the negative entry")
				}
			}
			r.stopAndReport()
		}
	})
}

// A failure among empty answers makes the result inconclusive.
func TestAFailureAmongTheIgnorantIsNotCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersEmpty), target("b", alwaysFails))))
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.WantKind(t, err, fault.UpstreamFailed)
		if _, _, ok := r.cache.Get(keyOf(byAddress(address("x")).Question(r.self)), time.Now()); ok {
			t.Error("it is remembered that nobody has it")
		}
	})
}

// A node without targets says so.
func TestALoneNodeSaysThatItIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.WantKind(t, err, fault.NotFound)
		if got := fault.DetailOf(err); got == "" || r.cache.Len() != 0 {
			t.Errorf("it says %q and remembers %d", got, r.cache.Len())
		}
		found, err := r.Providers(t.Context(), address("x"), ProviderOptions{})
		testkit.Must(t, err)
		if len(found.Providers) != 0 || found.Hedge != (Hedge{Winner: "none"}) || found.Source != "" {
			t.Errorf("providers: %+v", found)
		}
	})
}

// A stale answer is for callers that accept one, and is refreshed.
func TestStaleOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(100*time.Millisecond, providerOf("bob")))))))
		id := byAddress(address("x"))
		_, err := r.Resolve(t.Context(), id, Options{})
		testkit.Must(t, err)
		time.Sleep(11 * time.Second)
		began := time.Now()
		got, err := r.Resolve(t.Context(), id, Options{Stale: true})
		testkit.Must(t, err)
		if !got.Stale || got.Source != record.Cache || time.Since(began) != 0 {
			t.Errorf("stale: %+v after %s", got, time.Since(began))
		}
		synctest.Wait()
		testkit.Equal(t, "asked again behind its back", asked.Load(), 2)
		time.Sleep(time.Second)
		if got, err = r.Resolve(t.Context(), id, Options{Stale: true}); err != nil || got.Stale {
			t.Errorf("a new answer is there: %+v, %v", got, err)
		}
		time.Sleep(time.Hour)
		if got, err = r.Resolve(t.Context(), id, Options{Stale: true}); err != nil || got.Stale || got.Source != record.DHT {
			t.Errorf("one that is too old is given: %+v, %v", got, err)
		}
	})
}

// Fewer providers than the quorum are better than none when the budget is used
// up.
func TestLessThanTheQuorumIsBetterThanNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(time.Millisecond, providerOf("bob"))), target("b", neverAnswers))), withConfig(func(c *Config) { c.DHT.Quorum = 2 }))
		found, err := r.Providers(t.Context(), address("x"), ProviderOptions{})
		testkit.Must(t, err)
		testkit.Equal(t, "providers", len(found.Providers), 1)
		testkit.Equal(t, "remembered", r.cache.Len(), 0)
		mine := r.put("mine")
		found, err = r.Providers(t.Context(), mine, ProviderOptions{})
		testkit.Must(t, err)
		if len(found.Providers) != 2 || found.Source != record.Local || found.Providers[0].Provider.ID != r.selfText {
			t.Errorf("with our own: %+v", found)
		}
	})
}

// A look-up that started under one configuration uses it to the end; later
// callers use the new one, with a look-up of their own.
func TestAConfigurationHoldsFromStartToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alpha, beta atomic.Int64
		slow := func(n *atomic.Int64) askFunc {
			return countingAsk(n, answersAfter(300*time.Millisecond, providerOf("bob")))
		}
		r := open(t, withEngine(newFakeEngine(target("a", slow(&alpha)), target("b", slow(&beta)))), withConfig(func(c *Config) {
			c.DHT.Alpha, c.DHT.Beta, c.DHT.HedgeMS = 1, 1, config.Auto[int]{Value: 200}
		}))
		old := make(chan error, 1)
		go func() { _, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); old <- err }()
		synctest.Wait()
		next := r.settings.Load().Config
		next.DHT.DeadlineMS, next.DHT.HedgeMS, next.DHT.Beta, next.Workers = 100, config.Auto[int]{Value: 50}, 0, config.Auto[int]{Value: 9}
		testkit.Must(t, r.Reconfigure(next))
		if r.settings.Load().Workers.Value == 9 {
			t.Error("a reload changes what needs a restart")
		}
		began := time.Now()
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.WantKind(t, err, fault.Timeout)
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("the new budget is %s", took)
		}
		testkit.Equal(t, "the new one asked α again", alpha.Load(), 2)
		testkit.Must(t, <-old)
		testkit.Equal(t, "the old one asked β", beta.Load(), 1)
		testkit.Equal(t, "told", len(r.log.ofType(Reconfigured)), 1)
	})
}

// With one dead and one silent target in α, β answers soon after it is asked.
func TestTheSecondWaveWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", neverAnswers), target("b", alwaysFails), target("c", neverAnswers), target("d", answersAfter(20*time.Millisecond, providerOf("bob"))))))
		began := time.Now()
		found, err := r.Providers(t.Context(), address("x"), ProviderOptions{})
		testkit.Must(t, err)
		testkit.Equal(t, "it took", time.Since(began), 170*time.Millisecond)
		if !found.Hedge.Fired || found.Hedge.Winner != "beta" {
			t.Errorf("hedge: %+v", found.Hedge)
		}
		testkit.Equal(t, "hedges that β won", r.count("hedge_total", "winner=beta"), 1)
		testkit.Equal(t, "look-ups", r.count("index_dht_lookup_ms"), 1)
		synctest.Wait()
		for _, name := range []string{"a", "c"} {
			testkit.Equal(t, "the breaker of "+name, r.breakers.State("dht "+name), "closed")
		}
	})
}

// No target of the waves knows it, but one of the many others does.
func TestTheRestIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeOverlay{}
		for i := range 20 {
			v.join("peer "+string(rune('a'+i)), answersEmpty)
		}
		v.join("the one", answersAfter(time.Millisecond, providerOf("the one")))
		r := open(t, withPeers(v))
		r.targets.observe(peerKey(idOfNode("the one")), 5*time.Second, true, time.Now()) // so it ranks last
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		if got.Hedge.Winner != "none" || got.Source != record.Peer || providerIDs(got)[0] != providerOf("the one").ID {
			t.Errorf("%+v", got)
		}
		if got.Hedge.Fired {
			t.Error("nobody was silent, and yet it is called a hedge")
		}
	})
}

// The network's own walk finds what the waves do not.
func TestTheWalkIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine(target("a", answersEmpty))
		network.walk = answersAfter(100*time.Millisecond, providerOf("far"))
		r := open(t, withEngine(network))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		if got.Hedge.Winner != "none" || got.Source != record.DHT || providerIDs(got)[0] != providerOf("far").ID {
			t.Errorf("%+v", got)
		}
	})
}

// A store that fails is not an empty one.
func TestABrokenStoreIsNotAnEmptyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withStore(func(s store.Store) store.Store { return busyStore{s} }), withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))))
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.WantKind(t, err, fault.StorageBusy)
		testkit.Equal(t, "told to peers", len(r.Answer(record.Question{Kind: record.CID, Address: address("x")}).Providers), 0)
	})
}

// BenchmarkUncachedResolve asks five peers, of which the first answer counts.
func BenchmarkUncachedResolve(b *testing.B) {
	v := &fakeOverlay{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		v.join(name, answersAfter(0, providerOf(name), providerOf("x")))
	}
	r := open(b, withPeers(v), withConfig(func(c *Config) { c.Cache.Entries = 0 }))
	b.ReportAllocs()
	for b.Loop() {
		_, err := r.Resolve(context.Background(), byAddress(address("x")), Options{})
		testkit.Must(b, err)
	}
}

// BenchmarkOwnResolve resolves an object of this node, among more and more
// objects. Neither time nor allocations depend on their number, except for the
// work of the collector: compare ns/op with a run with GOGC=off.
func BenchmarkOwnResolve(b *testing.B) {
	for _, objects := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint("objects=", objects), func(b *testing.B) {
			r := open(b)
			var first b3.Address
			for i := range objects {
				text := string(binary.LittleEndian.AppendUint64(make([]byte, 56), uint64(i)))
				info, _, err := r.ram.Put(context.Background(), strings.NewReader(text), store.PutOptions{Size: 64})
				testkit.Must(b, err)
				if i == 0 {
					first = info.Address
				}
			}
			request := httptest.NewRequest(http.MethodGet, "/resolve/"+first.String(), nil)
			b.ReportAllocs()
			for b.Loop() {
				answer := httptest.NewRecorder()
				if r.server.ServeHTTP(answer, request); answer.Code != http.StatusOK {
					b.Fatal(answer.Code, answer.Body)
				}
			}
		})
	}
}
