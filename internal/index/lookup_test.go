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
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/flow/explore"
	"micronode/internal/index/record"
)

// ask has something looked up for a client, and gives the error.
func (r *rig) ask(text string, from uint64) <-chan error {
	told := make(chan error, 1)
	go func() {
		_, err := r.Resolve(context.Background(), byAddress(address(text)), Options{From: from})
		told <- err
	}()
	return told
}

// mostOfOne is how many look-ups of a single client are under way at most: all
// that the workers may start, and half of the spare ones.
const mostOfOne = mostLookups - mostSpare + mostSpare/2

// flood makes as many look-ups as one client can have under way, and as many as
// can wait.
func (r *rig) flood(from uint64) (waiting []<-chan error) {
	for i := range mostOfOne + mostWaiting {
		if waiting = append(waiting, r.ask(fmt.Sprint(i), from)); i%256 == 0 {
			synctest.Wait() // the workers take what they can
		}
	}
	synctest.Wait()
	return waiting
}

// sky looks at the flights, or changes something of them.
func (r *rig) sky(do func(*flights)) {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	do(&r.flights)
}

// A full queue refuses at once, and is counted.
func TestAFullQueueIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork(target("a", silent))
		network.walk = silent
		r := open(t, over(network))
		waiting := r.flood(0)
		equal(t, "in the queue", r.work.Len(workBand), mostWaiting)
		began := time.Now()
		_, err := r.Resolve(t.Context(), byAddress(address("one more")), Options{})
		is(t, err, fault.Busy)
		equal(t, "it waited", time.Since(began), 0)
		equal(t, "refusals", r.count("busy_rejections_total", "endpoint=work"), 1)
		equal(t, "the status", r.get("/resolve/"+address("one more").String()).Code, 429)

		var others []<-chan error
		for i := range mostSpare/4 + 1 {
			others = append(others, r.ask(fmt.Sprint("somebody else's ", i), 2))
		}
		synctest.Wait()
		equal(t, "still in the queue", r.work.Len(workBand), mostWaiting)
		ended := map[fault.Kind]int{}
		for _, told := range waiting {
			ended[fault.KindOf(<-told)]++
			if time.Since(began) == 0 {
				// One of those who came from elsewhere found no spare permit, and
				// took the place of one of the flood.
				equal(t, "of the flood were turned away at once", ended[fault.Busy], 1)
			}
		}
		equal(t, "ran out of time", ended[fault.Timeout], mostOfOne)
		equal(t, "were not begun, with so little time left", ended[fault.Busy], mostWaiting)
		for _, told := range others {
			ended[fault.KindOf(<-told)]++
		}
		equal(t, "of all, ran out of time", ended[fault.Timeout], mostOfOne+mostSpare/4)
		equal(t, "of all, were not begun", ended[fault.Busy], mostWaiting+1)
	})
}

// One client that floods the node with look-ups that never end does not keep the
// others waiting: theirs begin in the very moment in which they come, one after
// the other and many at a time, as long as there are spare permits.
func TestAFloodDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polite := map[record.Question]bool{}
		for i := range 2 * mostSpare {
			polite[record.Question{Kind: record.CID, Address: address(fmt.Sprint("polite ", i))}] = true
		}
		quick := knowing(10*time.Millisecond, where("bob"))
		network := newNetwork(target("a", func(ctx context.Context, q record.Question) (record.Answer, error) {
			if polite[q] {
				return quick(ctx, q)
			}
			return silent(ctx, q)
		}))
		network.walk = silent
		r := open(t, over(network))
		for range 3 {
			r.flood(1) // and again, although it is refused
		}
		r.sky(func(fs *flights) { equal(t, "of the flood are under way", len(fs.aloft)-mostWaiting, mostOfOne) })
		for i := range 10 {
			began := time.Now()
			must(t, <-r.ask(fmt.Sprint("polite ", i), 2))
			equal(t, "one look-up of another client took", time.Since(began), 10*time.Millisecond)
		}
		began := time.Now()
		var all []<-chan error
		for i := range mostSpare / 4 {
			all = append(all, r.ask(fmt.Sprint("polite ", mostSpare+i), 2))
		}
		for _, told := range all {
			must(t, <-told)
		}
		equal(t, "as many as its share, at once, took", time.Since(began), 10*time.Millisecond)
		time.Sleep(2 * time.Second)
		r.sky(func(fs *flights) {
			equal(t, "clients that are remembered", len(fs.hands), 0)
			equal(t, "spare permits", fs.spare, mostSpare)
		})
	})
}

// However many clients flood, each takes less of what is spare than is left, so
// that something always is.
func TestManyFloodsLeaveSomething(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 64).Draw(t, "spare")
		fs := newFlights(most)
		var aloft []*flight
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(aloft) > 0 && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				at := rapid.IntRange(0, len(aloft)-1).Draw(t, "which")
				if f := aloft[at]; fs.land(f) && f.spare {
					fs.giveBack()
				}
				aloft = slices.Delete(aloft, at, at+1)
				continue
			}
			client := rapid.Uint64Range(1, 5).Draw(t, "client")
			key := flightKey{question: record.Question{Address: address(fmt.Sprint(i))}}
			left, had := fs.spare, fs.hands[client]
			f, _ := fs.board(key, func() *flight { return &flight{key: key, from: client} })
			if f.spare != (had < left) {
				t.Fatalf("a client with %d in hand gets a spare permit of %d: %v", had, left, f.spare)
			}
			aloft = append(aloft, f)
		}
		hands, spare := map[uint64]int{}, most
		for _, f := range aloft {
			hands[f.from]++
			if f.spare {
				spare--
			}
		}
		if !maps.Equal(hands, fs.hands) || spare != fs.spare || spare < 0 {
			t.Fatalf("in hand %v, spare %d; it should be %v and %d", fs.hands, fs.spare, hands, spare)
		}
	})
}

// Where nothing is spare, clients take turns in the queue.
func TestAFloodWaitsBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", knowing(100*time.Millisecond, where("bob"))))))
		r.sky(func(fs *flights) { fs.spare = 0 })
		r.flood(1)
		began := time.Now()
		must(t, <-r.ask("the other's", 2))
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("the other client waited for %s", took)
		}
		time.Sleep(2 * time.Second)
	})
}

// Who has waited for half of its budget is told to come again, and nobody is
// asked for it any more.
func TestWhoWaitedTooLongIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, knowing(700*time.Millisecond, where("bob")))))))
		began := time.Now()
		waiting := r.flood(1)
		ended := map[fault.Kind]int{}
		for _, told := range waiting {
			if err := <-told; err != nil {
				ended[fault.KindOf(err)]++
			}
		}
		equal(t, "all were told after", time.Since(began), 700*time.Millisecond)
		equal(t, "of those who waited, were told to come again", ended[fault.Busy], mostWaiting)
		equal(t, "all others were answered: asked", asked.Load(), mostOfOne)
		must(t, <-r.ask("afterwards", 1))
	})
}

// A worker that dies loses no look-up and does none twice.
func TestADeadWorkerLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, over(newNetwork(target("a", counted(&asked, knowing(50*time.Millisecond, where("bob")))))))
		r.rough = true
		synctest.Wait()
		for worker := range r.spec.Config.workers() {
			must(t, r.supervisor.Kill("index worker", worker))
		}
		told := r.ask("x", 0)
		must(t, <-told)
		equal(t, "asked", asked.Load(), 1)

		f := &flight{index: r.Index, done: make(chan struct{})}
		r.sky(func(fs *flights) { fs.hands[f.from]++ })
		r.aloft.TryAcquire(1)
		f.Abandon(fault.New("test", fault.Internal, "gone"))
		f.Abandon(nil)
		f.Run(t.Context())
		<-f.done
		is(t, f.found.err, fault.Internal)
		if !f.Idempotent() {
			t.Error("a second start does harm")
		}
	})
}

// A target that panics has failed, and the others go on.
func TestATargetThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", func(context.Context, record.Question) (record.Answer, error) { panic("oh") }), target("b", knowing(time.Millisecond, where("bob"))))))
		must(t, <-r.ask("x", 0))
	})
}

// A look-up that breaks off is told to those who wait, and the next one starts.
func TestALookupThatBreaksOffIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &fragile{network: newNetwork(target("a", knowing(time.Millisecond, where("bob"))))}
		r := open(t, func(s *Spec) { s.Engine = network })
		r.rough = true
		network.breaks.Store(true)
		_, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		is(t, err, fault.Internal)
		network.breaks.Store(false)
		must(t, <-r.ask("x", 0))
	})
}

// fragile is a network whose driver has a bug.
type fragile struct {
	*network
	breaks atomic.Bool
}

func (f *fragile) Near(q record.Question, most int) []Target {
	if f.breaks.Load() {
		panic("a bug")
	}
	return f.network.Near(q, most)
}

// A drain lets the look-ups that were taken end, and tells the others.
func TestADrainLetsLookupsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, over(newNetwork(target("a", knowing(300*time.Millisecond, where("bob"))))))
		r.run()
		var taken []<-chan error
		for i := range mostOfOne + 10 {
			taken = append(taken, r.ask(fmt.Sprint(i), 1))
		}
		synctest.Wait()
		ended := make(chan struct{})
		go func() { r.drained(); close(ended) }()
		synctest.Wait()
		_, err := r.Resolve(t.Context(), byAddress(address("too late")), Options{})
		is(t, err, fault.Canceled)
		for _, told := range taken {
			must(t, <-told)
		}
		<-ended
		_, err = r.Resolve(t.Context(), byAddress(address("much too late")), Options{})
		is(t, err, fault.Canceled)
	})
}

// A drain that has no time tells those who wait, and leaves nobody behind.
func TestADrainWithoutTimeTellsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork(target("a", silent))
		network.walk = silent
		r := build(t, over(network), with(func(c *Config) { c.DHT.DeadlineMS = 10_000 }))
		r.rough = true
		r.run()
		var taken []<-chan error
		for i := range mostOfOne + 10 {
			taken = append(taken, r.ask(fmt.Sprint(i), 1))
		}
		synctest.Wait()
		report := r.drained()
		if report.Took > 6*time.Second {
			t.Errorf("the drain took %s", report.Took)
		}
		for i, told := range taken {
			if err := <-told; fault.KindOf(err) != fault.Canceled {
				t.Fatalf("the caller %d was told %v", i, err)
			}
		}
	})
}

// The breakers leave a target alone that fails, and tell of it.
func TestABrokenTargetIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		network := newNetwork(target("a", counted(&asked, failing)))
		network.size.Store(1)
		network.walk = failing
		r := open(t, over(network))
		for i := range 20 {
			_, err := r.Resolve(t.Context(), byAddress(address(fmt.Sprint(i))), Options{})
			if kind := fault.KindOf(err); kind != fault.UpstreamFailed && kind != fault.BreakerOpen {
				t.Fatalf("%d: %v", i, err)
			}
		}
		equal(t, "asked", asked.Load(), 5)
		answer := r.get("/resolve/" + address("x").String())
		if answer.Code != 503 || answer.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v", answer.Code, answer.Header())
		}
		synctest.Wait()
		equal(t, "opened", r.count("breaker_open_total"), 2) // the peer's and that of the walk
		equal(t, "open", r.count("breaker_state", "state=open"), 2)
		equal(t, "told", len(r.log.of(BreakerOpened)), 2)
		time.Sleep(11 * time.Second)
		equal(t, "after the cool-down, half open", r.count("breaker_state", "state=half-open"), 2)
	})
}

// Targets stand in line by how soon they are likely to be of use; no sort is
// left out, and those whose breaker is open come last.
func TestTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &village{}
		for _, name := range []string{"near", "far", "useless", "broken"} {
			v.join(name, ignorant)
		}
		r := open(t, among(v), over(newNetwork(target("a", ignorant))), with(func(c *Config) { c.Delegated = []string{"https://routing.example.org"} }))
		now := time.Now()
		for range 10 {
			r.targets.note(neighbourKey(idOfNode("near")), 10*time.Millisecond, true, now)
			r.targets.note(neighbourKey(idOfNode("far")), 900*time.Millisecond, true, now)
			r.targets.note(neighbourKey(idOfNode("useless")), 10*time.Millisecond, false, now)
			if done, err := r.breakers.Allow(neighbourKey(idOfNode("broken"))); err == nil {
				done(fault.UpstreamFailed)
			}
		}
		q := record.Question{Kind: record.CID, Address: address("x")}
		var keys []string
		for _, one := range r.line(r.settings.Load(), q, 5) {
			keys = append(keys, one.Key)
		}
		want := []string{neighbourKey(idOfNode("near")), "dht a", endpointKey("https://routing.example.org"),
			neighbourKey(idOfNode("useless")), neighbourKey(idOfNode("far")), neighbourKey(idOfNode("broken"))}
		if !slices.Equal(keys, want) {
			t.Errorf("the line is %q, want %q", keys, want)
		}
		q = record.Question{Kind: record.ByName, Name: "docs", Of: idOfNode("near")}
		if line := r.line(r.settings.Load(), q, 5); slices.ContainsFunc(line, func(one Target) bool { return one.Source == record.Delegated }) {
			t.Error("an endpoint is asked for a name")
		}
		plan := r.plan(r.settings.Load(), q, time.Second)
		if len(plan.Alpha) != 3 || len(plan.Beta) != 2 || plan.Walk == nil {
			t.Errorf("the plan is %d, %d, %v", len(plan.Alpha), len(plan.Beta), plan.Walk)
		}
	})
}

// A peer that never answers does not stay at the head of the line, although it
// never fails.
func TestTheSilentMoveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &village{}
		v.join("silent", silent)
		v.join("slow", knowing(200*time.Millisecond, where("slow")))
		v.peers[0].RTT = time.Millisecond
		r := open(t, among(v), with(func(c *Config) { c.DHT.Alpha, c.DHT.HedgeBudget = 2, 0 }))
		q := record.Question{Kind: record.CID, Address: address("x")}
		first := func() string { return r.line(r.settings.Load(), q, 2)[0].Key }
		equal(t, "at first", first(), neighbourKey(idOfNode("silent")))
		for i := range 10 {
			must(t, <-r.ask(fmt.Sprint(i), 0))
		}
		equal(t, "later", first(), neighbourKey(idOfNode("slow")))
		equal(t, "its breaker", r.breakers.State(neighbourKey(idOfNode("silent"))), "closed")
	})
}

// One peer that is dead and one that is slow cost a look-up once: the next one
// asks those first who answered.
func TestBadLuckStrikesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := knowing(20*time.Millisecond, where("bob"))
		network := newNetwork(target("dead", silent), target("slow", knowing(800*time.Millisecond, where("bob"))), target("ignorant", ignorant),
			target("d", bob), target("e", bob))
		r := open(t, over(network))
		for i, want := range []time.Duration{170, 20, 20, 20} {
			began := time.Now()
			must(t, <-r.ask(fmt.Sprint(i), 0))
			equal(t, fmt.Sprintf("look-up %d took", i), time.Since(began), want*time.Millisecond)
		}
	})
}

// Of very many neighbours the nearest are asked.
func TestOfManyNeighboursTheNearest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &village{}
		for i := range 500 {
			v.join(fmt.Sprint("peer ", i), ignorant)
			v.peers[i].RTT = time.Duration(500-i) * time.Millisecond
		}
		r := open(t, among(v))
		near := r.neighbours(record.Question{})
		if len(near) != mostNeighbours || near[0].ID != idOfNode("peer 499") {
			t.Errorf("%d, the first %v", len(near), near[0])
		}
		if all := r.connected(); len(all) != 500 {
			t.Errorf("%d are connected", len(all))
		}
	})
}

// The automatic mode learns when silence is unusual.
func TestTheDelayAdapts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", knowing(40*time.Millisecond, where("bob"))))), with(func(c *Config) { c.DHT.HedgeMS = config.Auto[int]{Auto: true} }))
		equal(t, "at first", r.after(r.settings.Load()), autoHedge)
		for i := range 30 {
			must(t, <-r.ask(fmt.Sprint(i), 0))
		}
		equal(t, "later", r.after(r.settings.Load()), 40*time.Millisecond)
	})
}

// Whoever boards while the node shuts down is told, whatever comes first, and
// every look-up ends once.
func TestBoardingRacesShutdown(t *testing.T) {
	explore.Test(t, explore.Options{Preemptions: 2, MaxRuns: 2_000_000}, func(w *explore.World) {
		x := &Index{flights: newFlights(0)} // all go through the queue
		x.work = flow.NewFair[*flight](w.Inventory(), flow.FairSpec{Service: service, Quantum: 1, From: "a", To: "b",
			Bands: []flow.BandSpec{{Name: "work", Cap: 1, Bytes: 1}}})
		x.aloft = flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: service, Name: "look-ups", Cap: 1, Waiting: 1, From: "a", To: "b"})
		under := &settings{Config: DefaultConfig()}
		var boarded []*flight
		for i := range 2 {
			w.Go(fmt.Sprint("client ", i), func() {
				for j := range 2 {
					boarded = append(boarded, x.board(context.Background(), under, record.Question{Kind: record.CID, Address: address(fmt.Sprint(j))}, uint64(i+1)))
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
				job.(*flight).land(landing{})
				x.aloft.Release()
			}
		})
		w.Go("shutdown", func() {
			x.closing.Store(true)
			x.work.Close()
		})
		w.After(func() {
			w.Check(len(x.flights.aloft) == 0, "%d are left in the air", len(x.flights.aloft))
			ended := map[*flight]bool{}
			for _, f := range boarded {
				select {
				case <-f.done:
					ended[f] = true
				default:
					w.Check(false, "somebody waits for ever")
				}
				kind := fault.KindOf(f.found.err)
				w.Check(f.found.err == nil || kind == fault.Busy || kind == fault.Canceled, "told %v", f.found.err)
			}
			flew := 0
			for f := range ended {
				if f.found.err == nil {
					flew++
				}
			}
			w.Check(flew == flown, "%d flew, %d were flown", flew, flown)
			select {
			case <-x.flights.over():
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
