package index

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/breaker"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/flow/explore"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// ask looks something up for a client, and returns the error.
func (ti *testIndex) ask(text string, from uint64) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := ti.Resolve(context.Background(), byAddress(address(text)), Options{ClientClass: from})
		result <- err
	}()
	return result
}

// maxOfOne is the maximum number of running look-ups of a single client: all
// that the workers may start, and half of the spare ones.
const maxOfOne = maxLookups - maxSpare + maxSpare/2

// flood starts as many look-ups as one client can have running, and as many as
// can wait.
func (ti *testIndex) flood(from uint64) (waiting []<-chan error) {
	for i := range maxOfOne + maxWaiting {
		if waiting = append(waiting, ti.ask(fmt.Sprint(i), from)); i%256 == 0 {
			synctest.Wait() // the workers take what they can
		}
	}
	synctest.Wait()
	return waiting
}

// withFlights calls do with the flights, under their lock.
func (ti *testIndex) withFlights(do func(*flights)) {
	ti.flights.mu.Lock()
	defer ti.flights.mu.Unlock()
	do(&ti.flights)
}

// A full queue rejects look-ups at once, and counts it.
func TestAFullQueueIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine(target("a", neverAnswers))
		network.walk = neverAnswers
		r := open(t, withEngine(network))
		waiting := r.flood(0)
		testkit.Equal(t, "in the queue", r.work.Len(workBand), maxWaiting)
		began := time.Now()
		_, err := r.Resolve(t.Context(), byAddress(address("one more")), Options{})
		testkit.WantKind(t, err, fault.Busy)
		testkit.Equal(t, "it waited", time.Since(began), 0)
		testkit.Equal(t, "refusals", r.count("busy_rejections_total", "endpoint=work"), 1)
		testkit.Equal(t, "the status", r.get("/resolve/"+address("one more").String()).Code, 429)

		var others []<-chan error
		for i := range maxSpare/4 + 1 {
			others = append(others, r.ask(fmt.Sprint("somebody else's ", i), 2))
		}
		synctest.Wait()
		testkit.Equal(t, "still in the queue", r.work.Len(workBand), maxWaiting)
		ended := map[fault.Kind]int{}
		for _, result := range waiting {
			ended[fault.KindOf(<-result)]++
			if time.Since(began) == 0 {
				// One of the look-ups of other clients found no spare permit,
				// and displaced one of the flood.
				testkit.Equal(t, "of the flood were turned away at once", ended[fault.Busy], 1)
			}
		}
		testkit.Equal(t, "ran out of time", ended[fault.Timeout], maxOfOne)
		testkit.Equal(t, "were not begun, with so little time left", ended[fault.Busy], maxWaiting)
		for _, result := range others {
			ended[fault.KindOf(<-result)]++
		}
		testkit.Equal(t, "of all, ran out of time", ended[fault.Timeout], maxOfOne+maxSpare/4)
		testkit.Equal(t, "of all, were not begun", ended[fault.Busy], maxWaiting+1)
	})
}

// One client that floods the node with look-ups that never end does not delay
// the others: theirs start at once, one after the other and many at a time, as
// long as there are spare permits.
func TestAFloodDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polite := map[record.Question]bool{}
		for i := range 2 * maxSpare {
			polite[record.Question{Kind: record.CID, Address: address(fmt.Sprint("polite ", i))}] = true
		}
		quick := answersAfter(10*time.Millisecond, providerOf("bob"))
		network := newFakeEngine(target("a", func(ctx context.Context, q record.Question) (record.Answer, error) {
			if polite[q] {
				return quick(ctx, q)
			}
			return neverAnswers(ctx, q)
		}))
		network.walk = neverAnswers
		r := open(t, withEngine(network))
		for range 3 {
			r.flood(1) // and again, although it is rejected
		}
		r.withFlights(func(fs *flights) {
			testkit.Equal(t, "of the flood are under way", len(fs.joinable)-maxWaiting, maxOfOne)
		})
		for i := range 10 {
			began := time.Now()
			testkit.Must(t, <-r.ask(fmt.Sprint("polite ", i), 2))
			testkit.Equal(t, "one look-up of another client took", time.Since(began), 10*time.Millisecond)
		}
		began := time.Now()
		var all []<-chan error
		for i := range maxSpare / 4 {
			all = append(all, r.ask(fmt.Sprint("polite ", maxSpare+i), 2))
		}
		for _, result := range all {
			testkit.Must(t, <-result)
		}
		testkit.Equal(t, "as many as its share, at once, took", time.Since(began), 10*time.Millisecond)
		time.Sleep(2 * time.Second)
		r.withFlights(func(fs *flights) {
			testkit.Equal(t, "clients that are remembered", len(fs.perClient), 0)
			testkit.Equal(t, "spare permits", fs.spare, maxSpare)
		})
	})
}

// However many clients flood, each takes fewer spare permits than are left, so
// that some always remain.
func TestManyFloodsLeaveSomething(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 64).Draw(t, "spare")
		fs := newFlights(most)
		var aloft []*flight
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(aloft) > 0 && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				at := rapid.IntRange(0, len(aloft)-1).Draw(t, "which")
				if f := aloft[at]; fs.finish(f) && f.hasSparePermit {
					fs.releaseSpare()
				}
				aloft = slices.Delete(aloft, at, at+1)
				continue
			}
			client := rapid.Uint64Range(1, 5).Draw(t, "client")
			key := flightKey{question: record.Question{Address: address(fmt.Sprint(i))}}
			left, had := fs.spare, fs.perClient[client]
			f, _ := fs.join(key, func() *flight { return &flight{key: key, clientClass: client} })
			if f.hasSparePermit != (had < left) {
				t.Fatalf("a client with %d look-ups gets a spare permit of %d: %v", had, left, f.hasSparePermit)
			}
			aloft = append(aloft, f)
		}
		hands, spare := map[uint64]int{}, most
		for _, f := range aloft {
			hands[f.clientClass]++
			if f.hasSparePermit {
				spare--
			}
		}
		if !maps.Equal(hands, fs.perClient) || spare != fs.spare || spare < 0 {
			t.Fatalf("look-ups by client %v, spare %d; it should be %v and %d", fs.perClient, fs.spare, hands, spare)
		}
	})
}

// Without spare permits, clients take turns in the queue.
func TestAFloodWaitsBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(100*time.Millisecond, providerOf("bob"))))))
		r.withFlights(func(fs *flights) { fs.spare = 0 })
		r.flood(1)
		began := time.Now()
		testkit.Must(t, <-r.ask("the other's", 2))
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("the other client waited for %s", took)
		}
		time.Sleep(2 * time.Second)
	})
}

// A look-up that has waited for half of its budget fails with Busy, and no
// target is asked for it.
func TestWhoWaitedTooLongIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(700*time.Millisecond, providerOf("bob")))))))
		began := time.Now()
		waiting := r.flood(1)
		ended := map[fault.Kind]int{}
		for _, result := range waiting {
			if err := <-result; err != nil {
				ended[fault.KindOf(err)]++
			}
		}
		testkit.Equal(t, "all have a result after", time.Since(began), 700*time.Millisecond)
		testkit.Equal(t, "of those that waited, were rejected with Busy", ended[fault.Busy], maxWaiting)
		testkit.Equal(t, "all others were answered: asked", asked.Load(), maxOfOne)
		testkit.Must(t, <-r.ask("afterwards", 1))
	})
}

// A worker that dies loses no look-up and repeats none.
func TestADeadWorkerLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(50*time.Millisecond, providerOf("bob")))))))
		r.allowAborts = true
		synctest.Wait()
		for worker := range r.spec.Config.workers() {
			testkit.Must(t, r.supervisor.Kill("index worker", worker))
		}
		result := r.ask("x", 0)
		testkit.Must(t, <-result)
		testkit.Equal(t, "asked", asked.Load(), 1)

		f := &flight{index: r.Index, done: make(chan struct{})}
		r.withFlights(func(fs *flights) { fs.perClient[f.clientClass]++ })
		r.lookupPermits.TryAcquire(1)
		f.Abandon(fault.New("test", fault.Internal, "gone"))
		f.Abandon(nil)
		f.Run(t.Context())
		<-f.done
		testkit.WantKind(t, f.err, fault.Internal)
		if !f.Idempotent() {
			t.Error("a second start does harm")
		}
	})
}

// A target that panics has failed, and the others go on.
func TestATargetThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", func(context.Context, record.Question) (record.Answer, error) { panic("oh") }), target("b", answersAfter(time.Millisecond, providerOf("bob"))))))
		testkit.Must(t, <-r.ask("x", 0))
	})
}

// A look-up that panics fails its callers, and the next one starts.
func TestALookupThatBreaksOffIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &panickyEngine{fakeEngine: newFakeEngine(target("a", answersAfter(time.Millisecond, providerOf("bob"))))}
		r := open(t, func(s *Spec) { s.Engine = network })
		r.allowAborts = true
		network.breaks.Store(true)
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.WantKind(t, err, fault.Internal)
		network.breaks.Store(false)
		testkit.Must(t, <-r.ask("x", 0))
	})
}

// panickyEngine is an engine with a bug.
type panickyEngine struct {
	*fakeEngine
	breaks atomic.Bool
}

func (p *panickyEngine) Closest(q record.Question, most int) []Target {
	if p.breaks.Load() {
		panic("a bug")
	}
	return p.fakeEngine.Closest(q, most)
}

// A drain lets accepted look-ups finish, and rejects the others.
func TestADrainLetsLookupsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, withEngine(newFakeEngine(target("a", answersAfter(300*time.Millisecond, providerOf("bob"))))))
		r.run()
		var taken []<-chan error
		for i := range maxOfOne + 10 {
			taken = append(taken, r.ask(fmt.Sprint(i), 1))
		}
		synctest.Wait()
		ended := make(chan struct{})
		go func() { r.stopAndReport(); close(ended) }()
		synctest.Wait()
		_, err := r.Resolve(t.Context(), byAddress(address("too late")), Options{})
		testkit.WantKind(t, err, fault.Canceled)
		for _, result := range taken {
			testkit.Must(t, <-result)
		}
		<-ended
		_, err = r.Resolve(t.Context(), byAddress(address("much too late")), Options{})
		testkit.WantKind(t, err, fault.Canceled)
	})
}

// A drain without time fails the waiting callers, and leaves none behind.
func TestADrainWithoutTimeTellsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine(target("a", neverAnswers))
		network.walk = neverAnswers
		r := build(t, withEngine(network), withConfig(func(c *Config) { c.DHT.DeadlineMS = 10_000 }))
		r.allowAborts = true
		r.run()
		var taken []<-chan error
		for i := range maxOfOne + 10 {
			taken = append(taken, r.ask(fmt.Sprint(i), 1))
		}
		synctest.Wait()
		report := r.stopAndReport()
		if report.Took > 6*time.Second {
			t.Errorf("the drain took %s", report.Took)
		}
		for i, result := range taken {
			if err := <-result; fault.KindOf(err) != fault.Canceled {
				t.Fatalf("the caller %d got %v", i, err)
			}
		}
	})
}

// The breaker suspends a target that fails, and an event reports it.
func TestABrokenTargetIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		network := newFakeEngine(target("a", countingAsk(&asked, alwaysFails)))
		network.size.Store(1)
		network.walk = alwaysFails
		r := open(t, withEngine(network))
		for i := range 20 {
			_, err := r.Resolve(t.Context(), byAddress(address(fmt.Sprint(i))), Options{})
			if kind := fault.KindOf(err); kind != fault.UpstreamFailed && kind != fault.BreakerOpen {
				t.Fatalf("%d: %v", i, err)
			}
		}
		testkit.Equal(t, "asked", asked.Load(), 5)
		answer := r.get("/resolve/" + address("x").String())
		if answer.Code != 503 || answer.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v", answer.Code, answer.Header())
		}
		synctest.Wait()
		testkit.Equal(t, "opened", r.count("breaker_open_total"), 2) // the peer's and that of the walk
		testkit.Equal(t, "open", r.count("breaker_state", "state=open"), 2)
		testkit.Equal(t, "events", len(r.log.ofType(BreakerOpened)), 2)
		time.Sleep(11 * time.Second)
		testkit.Equal(t, "after the cool-down, half open", r.count("breaker_state", "state=half-open"), 2)
	})
}

// Targets are ordered by how soon they are likely to be useful; no source is
// left out, and those with an open breaker come last.
func TestTargetOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeOverlay{}
		for _, name := range []string{"near", "far", "useless", "broken"} {
			v.join(name, answersEmpty)
		}
		r := open(t, withPeers(v), withEngine(newFakeEngine(target("a", answersEmpty))), withConfig(func(c *Config) { c.Delegated = []string{"https://routing.example.org"} }))
		now := time.Now()
		for range 10 {
			r.targets.observe(peerKey(idOfNode("near")), 10*time.Millisecond, true, now)
			r.targets.observe(peerKey(idOfNode("far")), 900*time.Millisecond, true, now)
			r.targets.observe(peerKey(idOfNode("useless")), 10*time.Millisecond, false, now)
			if done, err := r.breakers.Allow(peerKey(idOfNode("broken"))); err == nil {
				done(fault.UpstreamFailed)
			}
		}
		q := record.Question{Kind: record.CID, Address: address("x")}
		var keys []string
		for _, one := range r.rankTargets(r.settings.Load(), q) {
			keys = append(keys, one.Key)
		}
		want := []string{peerKey(idOfNode("near")), "dht a", endpointKey("https://routing.example.org"),
			peerKey(idOfNode("useless")), peerKey(idOfNode("far")), peerKey(idOfNode("broken"))}
		if !slices.Equal(keys, want) {
			t.Errorf("the line is %q, want %q", keys, want)
		}
		q = record.Question{Kind: record.ByName, Name: "docs", Owner: idOfNode("near")}
		if ranked := r.rankTargets(r.settings.Load(), q); slices.ContainsFunc(ranked, func(one Target) bool { return one.Source == record.Delegated }) {
			t.Error("an endpoint is asked for a name")
		}
		plan := r.plan(r.settings.Load(), q, 0, time.Second, 1)
		if len(plan.Alpha) != 3 || len(plan.Beta) != 2 || plan.Walk == nil {
			t.Errorf("the plan is %d, %d, %v", len(plan.Alpha), len(plan.Beta), plan.Walk)
		}
	})
}

// A peer that never answers does not stay first, although it never fails.
func TestTheSilentMoveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeOverlay{}
		v.join("silent", neverAnswers)
		v.join("slow", answersAfter(200*time.Millisecond, providerOf("slow")))
		v.peers[0].RTT = time.Millisecond
		r := open(t, withPeers(v), withConfig(func(c *Config) { c.DHT.Alpha, c.DHT.HedgeBudget = 2, 0 }))
		q := record.Question{Kind: record.CID, Address: address("x")}
		first := func() string { return r.rankTargets(r.settings.Load(), q)[0].Key }
		testkit.Equal(t, "at first", first(), peerKey(idOfNode("silent")))
		for i := range 10 {
			testkit.Must(t, <-r.ask(fmt.Sprint(i), 0))
		}
		testkit.Equal(t, "later", first(), peerKey(idOfNode("slow")))
		testkit.Equal(t, "its breaker", r.breakers.State(peerKey(idOfNode("silent"))), "closed")
	})
}

// Guests that answer one question in twenty do not keep an answer from anybody,
// however much was hedged already: the router that knows it is asked a little
// later.
func TestSilentPeersDelayAndDoNotForbid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeOverlay{}
		for i := range 3 {
			var asked atomic.Int64
			name := fmt.Sprint("guest ", i)
			v.join(name, func(ctx context.Context, q record.Question) (record.Answer, error) {
				if asked.Add(1)%20 == 0 {
					return answersEmpty(ctx, q)
				}
				return neverAnswers(ctx, q)
			})
			v.peers[i].RTT = time.Millisecond
		}
		v.join("knows", answersAfter(20*time.Millisecond, providerOf("bob")))
		v.peers[3].RTT = 500 * time.Millisecond // so that it is in the second wave
		r := open(t, withPeers(v))
		failed := 0
		for i := range 600 {
			if err := <-r.ask(fmt.Sprint(i), 0); err != nil {
				failed++
			}
		}
		testkit.Equal(t, "failed look-ups of 600", failed, 0)
	})
}

// A peer that leaves nearly all questions without an answer is left alone,
// although it answers some.
func TestAnAnswerNowAndThenDoesNotKeepABreakerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		v := &fakeOverlay{}
		v.join("guest", func(ctx context.Context, q record.Question) (record.Answer, error) {
			if asked.Add(1)%5 == 0 {
				return answersEmpty(ctx, q)
			}
			return neverAnswers(ctx, q)
		})
		r := open(t, withPeers(v))
		for i := range 20 {
			<-r.ask(fmt.Sprint(i), 0)
		}
		testkit.Equal(t, "its breaker", r.breakers.State(peerKey(idOfNode("guest"))), "open")
	})
}

// A dead peer and a slow one cost a look-up once: the next one starts with the
// peers that answered.
func TestBadLuckStrikesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := answersAfter(20*time.Millisecond, providerOf("bob"))
		network := newFakeEngine(target("dead", neverAnswers), target("slow", answersAfter(800*time.Millisecond, providerOf("bob"))), target("ignorant", answersEmpty),
			target("d", bob), target("e", bob))
		r := open(t, withEngine(network))
		for i, want := range []time.Duration{170, 20, 20, 20} {
			began := time.Now()
			testkit.Must(t, <-r.ask(fmt.Sprint(i), 0))
			testkit.Equal(t, fmt.Sprintf("look-up %d took", i), time.Since(began), want*time.Millisecond)
		}
	})
}

// Of very many peers the nearest are asked.
func TestOfManyNeighboursTheNearest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeOverlay{}
		for i := range 500 {
			v.join(fmt.Sprint("peer ", i), answersEmpty)
			v.peers[i].RTT = time.Duration(500-i) * time.Millisecond
		}
		r := open(t, withPeers(v))
		near := r.peersToAsk(record.Question{})
		if len(near) != maxPeersConsidered || near[0].ID != idOfNode("peer 499") {
			t.Errorf("%d, the first %v", len(near), near[0])
		}
		if all := r.connectedPeers(); len(all) != 500 {
			t.Errorf("%d are connected", len(all))
		}
	})
}

// The automatic mode learns when silence is unusual.
func TestTheDelayAdapts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(40*time.Millisecond, providerOf("bob"))))), withConfig(func(c *Config) { c.DHT.HedgeMS = config.Auto[int]{Auto: true} }))
		testkit.Equal(t, "at first", r.delay.After(), defaultHedgeDelay)
		for i := range 30 {
			testkit.Must(t, <-r.ask(fmt.Sprint(i), 0))
		}
		testkit.Equal(t, "later", r.delay.After(), 40*time.Millisecond)
	})
}

// A caller that joins while the node shuts down gets a result, whatever happens
// first, and every look-up finishes once.
func TestJoiningRacesShutdown(t *testing.T) {
	explore.Test(t, explore.Options{Preemptions: 2, MaxRuns: 2_000_000}, func(w *explore.World) {
		x := &Index{flights: newFlights(0)} // all go through the queue
		x.work = flow.NewFair[*flight](w.Inventory(), flow.FairSpec{Service: service, Quantum: 1, From: "a", To: "b",
			Bands: []flow.BandSpec{{Name: "work", Cap: 1, Bytes: 1}}})
		x.lookupPermits = flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: service, Name: "look-ups", Cap: 1, Waiting: 1, From: "a", To: "b"})
		cfg := &settings{Config: DefaultConfig()}
		var boarded []*flight
		for i := range 2 {
			w.Go(fmt.Sprint("client ", i), func() {
				for j := range 2 {
					boarded = append(boarded, x.joinFlight(context.Background(), cfg, record.Question{Kind: record.CID, Address: address(fmt.Sprint(j))}, uint64(i+1)))
				}
			})
		}
		var flown int
		w.Go("worker", func() {
			for {
				job, err := x.nextFlight(context.Background())
				if err != nil {
					return
				}
				flown++
				job.(*flight).finish(finding{}, nil)
				x.lookupPermits.Release()
			}
		})
		w.Go("shutdown", func() {
			x.closing.Store(true)
			x.work.Close()
		})
		w.After(func() {
			w.Check(len(x.flights.joinable) == 0, "%d are left in the air", len(x.flights.joinable))
			ended := map[*flight]bool{}
			for _, f := range boarded {
				select {
				case <-f.done:
					ended[f] = true
				default:
					w.Check(false, "somebody waits for ever")
				}
				kind := fault.KindOf(f.err)
				w.Check(f.err == nil || kind == fault.Busy || kind == fault.Canceled, "the result is %v", f.err)
			}
			flew := 0
			for f := range ended {
				if f.err == nil {
					flew++
				}
			}
			w.Check(flew == flown, "%d flew, %d were flown", flew, flown)
			select {
			case <-x.flights.emptied():
			default:
				w.Check(false, "the drain would wait for ever")
			}
		})
	})
}

// A request that loads its settings once never sees a mixture of two.
func TestSettingsAreNeverTorn(t *testing.T) {
	explore.Test(t, explore.Options{Preemptions: 3, MaxRuns: 2_000_000}, func(w *explore.World) {
		made := func(n int) *settings {
			c := DefaultConfig()
			c.DHT.Alpha, c.DHT.Beta, c.DHT.Quorum = n, n, n
			return &settings{Config: c}
		}
		x := &Index{settings: flow.NewSnapshot(w.Inventory(), flow.SnapshotSpec{Service: service, Name: "settings", From: "a", To: "b"}, made(1))}
		w.Go("reload", func() {
			x.settings.Store(made(2))
			x.settings.Store(made(3))
		})
		for i := range 2 {
			w.Go(fmt.Sprint("request ", i), func() {
				last := 0
				for range 2 {
					s := x.settings.Load()
					w.Check(s.DHT.Alpha == s.DHT.Beta && s.DHT.Beta == s.DHT.Quorum, "torn: %d %d %d", s.DHT.Alpha, s.DHT.Beta, s.DHT.Quorum)
					w.Check(s.DHT.Alpha >= last, "an older one came back")
					last = s.DHT.Alpha
				}
			})
		}
	})
}

// An empty answer is returned, and cached, only if all targets that could know
// were asked and have answered.
func TestNobodyHasItOnlyIfAllSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := false
		flaky := func(ctx context.Context, q record.Question) (record.Answer, error) {
			if left {
				return answersEmpty(ctx, q)
			}
			return alwaysFails(ctx, q)
		}
		r := open(t, withEngine(newFakeEngine(target("empty", answersEmpty), target("broken", flaky))))
		for i := range 12 {
			kind := fault.UpstreamFailed
			if r.breakers.State("dht broken") == breaker.Open {
				kind = fault.BreakerOpen
			}
			_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
			if testkit.WantKind(t, err, kind); kind == fault.BreakerOpen && fault.RetryAfterOf(err) == 0 {
				t.Errorf("look-up %d does not say when to come back", i)
			}
			_, err = r.Providers(t.Context(), address("x"), ProviderOptions{})
			if err == nil {
				t.Errorf("look-up %d: an empty list, though one could not be asked", i)
			}
		}
		testkit.Equal(t, "answers that are remembered", r.cache.Len(), 0)
		synctest.Wait()
		if events := r.log.ofType(BreakerOpened); len(events) != 1 || events[0].Key != "dht broken" || events[0].Detail == "" {
			t.Errorf("events: %+v", events)
		}
		left = true
		time.Sleep(r.spec.Config.Breaker.Cooldown + time.Second)
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.WantKind(t, err, fault.NotFound)
		testkit.Equal(t, "answers that are remembered", r.cache.Len(), 1)
	})
}
