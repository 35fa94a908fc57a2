package index

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index/record"
	"micronode/internal/store"
)

// What the registry says wins over this node's own names, and those are found
// without asking anybody.
func TestNamesAreTheRegistrysThenOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, governed(decided{"docs": address("governed")}), over(newNetwork(target("a", counted(&asked, ignorant)))))
		manifest := r.put("manifest")
		for _, name := range []string{"docs", "own/part"} {
			r.names.install(*signed("self", name, manifest, 1))
		}
		for text, want := range map[string]record.Source{"name:docs": record.Registry, "own/part": record.Local, "name:own/part@" + r.selfText: record.Local} {
			got, err := r.Resolve(t.Context(), parsed(t, text), Options{})
			must(t, err)
			equal(t, text+" comes from", got.Source, want)
			if want == record.Local && (got.Manifest != manifest || !slices.Equal(ids(got), []string{r.selfText})) {
				t.Errorf("%s stands for %v", text, got)
			}
			if want == record.Registry && got.Manifest != address("governed") {
				t.Errorf("%s stands for %v", text, got.Manifest)
			}
		}
		_, err := r.Resolve(t.Context(), parsed(t, "name:other"), Options{})
		is(t, err, fault.NotFound)
		equal(t, "asked, for the governed manifest only", asked.Load(), 1)
	})
}

// What we have is answered without a question; what we remember, too.
func TestLocalThenCacheThenOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, knowing(10*time.Millisecond, where("bob")))))))
		here := r.put("here")
		got, err := r.Resolve(t.Context(), byAddress(here), Options{})
		must(t, err)
		if got.Source != record.Local || got.Manifest != here || !slices.Equal(ids(got), []string{r.selfText}) || got.Providers[0].Latency != "local" {
			t.Errorf("what we have is %+v", got)
		}
		there := byAddress(address("there"))
		for _, want := range []record.Source{record.DHT, record.Cache} {
			got, err = r.Resolve(t.Context(), there, Options{})
			must(t, err)
			equal(t, "source", got.Source, want)
			if !slices.Equal(ids(got), []string{where("bob").ID}) {
				t.Errorf("providers are %v", ids(got))
			}
		}
		equal(t, "asked", asked.Load(), 1)
		equal(t, "hits", r.count("index_cache_hits_total"), 1)
		equal(t, "misses", r.count("index_cache_misses_total"), 1)
		for _, source := range []string{"local", "dht", "cache"} {
			equal(t, "answers from "+source, r.count("resolve_latency_seconds", "source="+source), 1)
		}
		time.Sleep(10 * time.Second)
		got, err = r.Resolve(t.Context(), there, Options{})
		must(t, err)
		equal(t, "after its life it comes from", got.Source, record.DHT)
	})
}

// A stranger's name is a record that the stranger has signed, and its manifest
// is looked for in the same budget.
func TestNamesOfOthersAreLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manifest := address("folder")
		v := &village{}
		v.join("bob", func(_ context.Context, q record.Question) (record.Answer, error) {
			if q.Kind == record.ByName {
				return record.Answer{Name: signed("bob", "docs", manifest, 5)}, nil
			}
			return record.Answer{Providers: []record.Provider{where("bob")}}, nil
		})
		r := open(t, among(v))
		id := parsed(t, "docs@"+idOfNode("bob").String())
		got, err := r.Resolve(t.Context(), id, Options{})
		must(t, err)
		if got.Source != record.Peer || got.Manifest != manifest || !slices.Equal(ids(got), []string{where("bob").ID}) || got.Providers[0].Latency != "near" {
			t.Errorf("the name is %+v", got)
		}
		if got, err = r.Resolve(t.Context(), id, Options{}); err != nil || got.Source != record.Cache {
			t.Errorf("again: %+v, %v", got, err)
		}
		_, err = r.Resolve(t.Context(), parsed(t, "docs@"+idOfNode("carol").String()), Options{})
		is(t, err, fault.UpstreamFailed) // bob's signature under carol's name is no answer
		synctest.Wait()
		if lies := r.log.of(Lied); len(lies) == 0 {
			t.Error("nobody was told of the lie")
		}
	})
}

// That the name is known is worth an answer, even if nobody can be found who
// has what it means.
func TestANameWithoutProvidersIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, say := range map[string]speech{"silent": silent, "ignorant": ignorant, "failing": failing} {
			r := open(t, governed(decided{"docs": address("far")}), over(newNetwork(target("a", say))))
			began := time.Now()
			got, err := r.Resolve(t.Context(), parsed(t, "docs"), Options{})
			must(t, err)
			if got.Manifest != address("far") || len(got.Providers) != 0 || time.Since(began) > 1250*time.Millisecond {
				t.Errorf("%s: %+v after %s", what, got, time.Since(began))
			}
			r.drained()
		}
	})
}

// All are silent: the caller is told at the end of the budget, and not later.
func TestSilenceIsTimeoutAtTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &village{}
		v.join("bob", silent)
		v.join("carol", silent)
		network := newNetwork(target("a", silent), target("b", silent), target("c", silent), target("d", silent))
		network.walk = silent
		r := open(t, over(network), among(v))
		for _, budget := range []time.Duration{1200 * time.Millisecond, 400 * time.Millisecond} {
			next := r.settings.Load().Config
			next.DHT.DeadlineMS, next.DHT.HedgeMS = int(budget/time.Millisecond), config.Auto[int]{Value: 100}
			must(t, r.Reconfigure(next))
			began := time.Now()
			answer := r.get("/resolve/" + address("nowhere").String())
			took := time.Since(began)
			equal(t, "status", answer.Code, 504)
			if off := took - budget; off < -50*time.Millisecond || off > 50*time.Millisecond {
				t.Errorf("it took %s, with a budget of %s", took, budget)
			}
		}
		equal(t, "deadlines hit", r.count("resolve_deadline_hit_total"), 2)
		equal(t, "time-outs", r.count("io_timeouts_total", "op=lookup"), 2)
		equal(t, "hedges that nobody won", r.count("hedge_total", "winner=none"), 2)
	})
}

// A caller's own deadline shortens its wait, and no more than that.
func TestACallersDeadlineIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", knowing(500*time.Millisecond, where("bob"))))))
		began := time.Now()
		equal(t, "status", r.get("/resolve/"+address("x").String(), "Request-Timeout", "0.2").Code, 504)
		equal(t, "it waited", time.Since(began), 200*time.Millisecond)
		time.Sleep(400 * time.Millisecond)
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		equal(t, "what came later is remembered:", got.Source, record.Cache)
	})
}

// Those who ask the same wait for one look-up.
func TestManyCallersOneLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, knowing(100*time.Millisecond, where("bob")))))))
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
		equal(t, "asked", asked.Load(), 1)
		equal(t, "answered", answered.Load(), 100)
	})
}

// Who joins late has its own budget: the end of the others' look-up is not the
// end of its own.
func TestWhoJoinsLateHasItsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, func(ctx context.Context, q record.Question) (record.Answer, error) {
			if asked.Load() > 1 {
				return knowing(10*time.Millisecond, where("bob"))(ctx, q)
			}
			return silent(ctx, q)
		})))), with(func(c *Config) { c.DHT.HedgeBudget = 0 }))
		first := make(chan error, 1)
		go func() { _, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); first <- err }()
		time.Sleep(time.Second)
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		equal(t, "found by", ids(got)[0], where("bob").ID)
		is(t, <-first, fault.Timeout)
	})
}

// A caller that leaves does not stop the look-up for the others.
func TestWhoLeavesDoesNotStopTheLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, knowing(300*time.Millisecond, where("bob")))))))
		ctx, leave := context.WithCancel(t.Context())
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { _, err := r.Resolve(ctx, byAddress(address("x")), Options{}); left <- err }()
		synctest.Wait()
		go func() { _, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); stayed <- err }()
		synctest.Wait()
		leave()
		is(t, <-left, fault.Canceled)
		must(t, <-stayed)
		equal(t, "asked", asked.Load(), 1)
	})
}

// What nobody has is remembered only if that is certain.
func TestNotFoundIsRememberedOnlyIfCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := byAddress(address("x"))
		for _, one := range []struct {
			what    string
			says    speech
			kind    fault.Kind
			certain bool
		}{
			{"nobody", ignorant, fault.NotFound, true},
			{"silence", silent, fault.Timeout, false},
			{"failure", failing, fault.UpstreamFailed, false},
		} {
			var asked atomic.Int64
			network := newNetwork(target("a", counted(&asked, one.says)))
			network.walk = one.says
			r := open(t, over(network))
			_, err := r.Resolve(t.Context(), id, Options{})
			is(t, err, one.kind)
			_, fresh, ok := r.cache.Get(keyOf(id.Question(r.self)), time.Now())
			equal(t, one.what+" is remembered", ok && fresh, one.certain)
			before := asked.Load()
			_, err = r.Resolve(t.Context(), id, Options{})
			is(t, err, one.kind)
			equal(t, one.what+" is asked for again", asked.Load() > before, !one.certain)
			if one.certain {
				time.Sleep(2 * time.Second)
				_, err = r.Resolve(t.Context(), id, Options{})
				is(t, err, one.kind)
				equal(t, "after two seconds asked", asked.Load(), 2)
				equal(t, "a put", r.put("x"), address("x"))
				got, err := r.Resolve(t.Context(), id, Options{})
				must(t, err)
				equal(t, "after a put it comes from", got.Source, record.Local)
				if _, _, ok := r.cache.Get(keyOf(id.Question(r.self)), time.Now()); ok {
					t.Error("a put leaves the negative entry")
				}
			}
			r.drained()
		}
	})
}

// One who failed among some who know nothing leaves the matter open.
func TestAFailureAmongTheIgnorantIsNotCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", ignorant), target("b", failing))))
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		is(t, err, fault.NotFound)
		if _, _, ok := r.cache.Get(keyOf(byAddress(address("x")).Question(r.self)), time.Now()); ok {
			t.Error("it is remembered that nobody has it")
		}
	})
}

// A node that knows nobody says so.
func TestALoneNodeSaysThatItIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		is(t, err, fault.NotFound)
		if got := fault.DetailOf(err); got == "" || r.cache.Len() != 0 {
			t.Errorf("it says %q and remembers %d", got, r.cache.Len())
		}
		found, err := r.Providers(t.Context(), address("x"), ProviderOptions{})
		must(t, err)
		if len(found.Providers) != 0 || found.Hedge != quiet || found.Source != "" {
			t.Errorf("providers: %+v", found)
		}
	})
}

// An old answer is for those who want it, and a new one is looked for.
func TestStaleOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, knowing(100*time.Millisecond, where("bob")))))))
		id := byAddress(address("x"))
		_, err := r.Resolve(t.Context(), id, Options{})
		must(t, err)
		time.Sleep(11 * time.Second)
		began := time.Now()
		got, err := r.Resolve(t.Context(), id, Options{Stale: true})
		must(t, err)
		if !got.Stale || got.Source != record.Cache || time.Since(began) != 0 {
			t.Errorf("stale: %+v after %s", got, time.Since(began))
		}
		synctest.Wait()
		equal(t, "asked again behind its back", asked.Load(), 2)
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

// Somebody who has too little is better than nobody, when the time is over.
func TestLessThanTheQuorumIsBetterThanNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", knowing(time.Millisecond, where("bob"))), target("b", silent))), with(func(c *Config) { c.DHT.Quorum = 2 }))
		found, err := r.Providers(t.Context(), address("x"), ProviderOptions{})
		must(t, err)
		equal(t, "providers", len(found.Providers), 1)
		equal(t, "remembered", r.cache.Len(), 0)
		mine := r.put("mine")
		found, err = r.Providers(t.Context(), mine, ProviderOptions{})
		must(t, err)
		if len(found.Providers) != 2 || found.Source != record.Local || found.Providers[0].Provider.ID != r.selfText {
			t.Errorf("with our own: %+v", found)
		}
	})
}

// A look-up that started under one configuration keeps it to the end; who comes
// later has the new one, and a look-up of its own.
func TestAConfigurationHoldsFromStartToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alpha, beta atomic.Int64
		slow := func(n *atomic.Int64) speech { return counted(n, knowing(300*time.Millisecond, where("bob"))) }
		r := open(t, over(newNetwork(target("a", slow(&alpha)), target("b", slow(&beta)))), with(func(c *Config) {
			c.DHT.Alpha, c.DHT.Beta, c.DHT.HedgeMS = 1, 1, config.Auto[int]{Value: 200}
		}))
		old := make(chan error, 1)
		go func() { _, err := r.Resolve(t.Context(), byAddress(address("x")), Options{}); old <- err }()
		synctest.Wait()
		next := r.settings.Load().Config
		next.DHT.DeadlineMS, next.DHT.HedgeMS, next.DHT.Beta, next.Workers = 100, config.Auto[int]{Value: 50}, 0, config.Auto[int]{Value: 9}
		must(t, r.Reconfigure(next))
		if r.settings.Load().Workers.Value == 9 {
			t.Error("a reload changes what needs a restart")
		}
		began := time.Now()
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		is(t, err, fault.Timeout)
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("the new budget is %s", took)
		}
		equal(t, "the new one asked α again", alpha.Load(), 2)
		must(t, <-old)
		equal(t, "the old one asked β", beta.Load(), 1)
		equal(t, "told", len(r.log.of(Reconfigured)), 1)
	})
}

// With one dead and one silent among α, β answers soon after it is asked.
func TestTheSecondWaveWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", silent), target("b", failing), target("c", silent), target("d", knowing(20*time.Millisecond, where("bob"))))))
		began := time.Now()
		found, err := r.Providers(t.Context(), address("x"), ProviderOptions{})
		must(t, err)
		equal(t, "it took", time.Since(began), 170*time.Millisecond)
		if !found.Hedge.Fired || found.Hedge.Winner != "beta" {
			t.Errorf("hedge: %+v", found.Hedge)
		}
		equal(t, "hedges that β won", r.count("hedge_total", "winner=beta"), 1)
		equal(t, "look-ups", r.count("index_dht_lookup_ms"), 1)
		synctest.Wait()
		for _, name := range []string{"a", "c"} {
			equal(t, "the breaker of "+name, r.breakers.State("dht "+name), "closed")
		}
	})
}

// Nobody of the waves knows it, but one of the many others does.
func TestTheRestIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &village{}
		for i := range 20 {
			v.join("peer "+string(rune('a'+i)), ignorant)
		}
		v.join("the one", knowing(time.Millisecond, where("the one")))
		r := open(t, among(v))
		r.targets.note(neighbourKey(idOfNode("the one")), 5*time.Second, true, time.Now()) // so it stands at the end of the line
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		if got.Hedge.Winner != "none" || got.Source != record.Peer || ids(got)[0] != where("the one").ID {
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
		network := newNetwork(target("a", ignorant))
		network.walk = knowing(100*time.Millisecond, where("far"))
		r := open(t, over(network))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		if got.Hedge.Winner != "none" || got.Source != record.DHT || ids(got)[0] != where("far").ID {
			t.Errorf("%+v", got)
		}
	})
}

// A store that cannot be asked is not an empty one.
func TestABrokenStoreIsNotAnEmptyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, onStore(func(s store.Store) store.Store { return broken{s} }), over(newNetwork(target("a", knowing(0, where("bob"))))))
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		is(t, err, fault.StorageBusy)
		equal(t, "told to peers", len(r.Answer(record.Question{Kind: record.CID, Address: address("x")}).Providers), 0)
	})
}
