package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"micronode/b3"
	"micronode/bench/load"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

const (
	hedgeAfter      = 150 * time.Millisecond // hedge_ms, as it is by default
	endpointLatency = 20 * time.Millisecond  // the minimum latency of an endpoint, as on a network
	lookupInterval  = 10 * time.Millisecond  // from one look-up of a side to its next: with slow targets, about twenty are in flight
	minTurnTime     = 4 * time.Second        // of a turn, so that p99 is not the outlier of a single look-up
)

// indexRows compare what the index has cached with a handler that serves fixed
// bytes, and look-ups with failing targets with look-ups without.
//
// With failing targets, of the three that are asked first, one never answers,
// one takes 800 ms, and the third does not know. It is always the first ones
// that fail, so that the node cannot learn which to avoid. The two that come
// next know. What is compared is how much later than hedge_ms the answer comes:
// nothing can be done before that.
//
// Both sides are asked at the same fixed rate and in the same seconds.
// Closed-loop callers would ask the healthy side seven times as often, until
// the machine is saturated, and those of the failing side would all ask in the
// same moment, every 170 ms. And when the machine stalls for a while, because
// other processes use it, that affects both.
func indexRows(t schedule) []Benchmark {
	cached := &cachedResolve{turns: t}
	unlucky := func(name string, bar, aim float64, every int, environment ...string) Benchmark {
		both := &lookupPair{turns: t, environment: environment}
		return Row{Name: "index, look-up with one dead and one slow target among α, " + name + ", beside all healthy", Unit: "ms at p99, less hedge_ms", Lower: true,
			Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: Side{"unlucky", both.unlucky(failFirstTargets(every))}, Peer: Side{"healthy", both.healthy}}
	}
	return []Benchmark{
		Row{Name: fmt.Sprintf("index, cached resolve, %d connections, beside bare net/http", connections), Unit: "/s", Bar: 0.7, Aim: 0.9, Rounds: t.rounds,
			Ours: Side{"micronode", cached.ours}, Peer: Side{"bare net/http", cached.bare}},
		// Every look-up hedges here, which the budget would forbid by default.
		unlucky("every look-up", 1.5, 1, 1, "MICRO_INDEX__DHT__HEDGE_BUDGET=1"),
		// One in ten is what a budget of 0.2 has room for.
		unlucky("one look-up in ten, the default budget", 1.5, 1, 10),
		t.dhtRow("found", func(r peers.LookupStats) float64 { return 100 * float64(r.Found) / float64(r.Asked) }),
		t.dhtRow("hedged", func(r peers.LookupStats) float64 { return 100 * r.Hedged / r.Lookups }),
	}
}

// indexAxes measure whether a resolve costs more as more is cached or stored.
func indexAxes(t schedule) []Benchmark {
	t.rounds = max(t.rounds-2, 3)
	t.duration /= 2
	return []Benchmark{
		Axis{Name: "growth: index, cached resolve, one among the remembered", Unit: "/s", Of: "answers", Sizes: t.objects, Bar: 0.95, Rounds: t.rounds,
			Ours: func(n int) Side { return t.cachedResolveSide(n, 1) }},
		Axis{Name: "growth: index, cached resolve, any of the remembered", Unit: "/s", Of: "answers", Sizes: t.objects, Rounds: t.rounds,
			Ours: func(n int) Side { return t.cachedResolveSide(n, n) }},
		// This one falls a little, and not because of the work of a resolve:
		// what it does and the 7 KB that it allocates are the same among one
		// object and among a hundred thousand. It is the collector, which has
		// 65 MB of small objects to scan instead of 5 MB, in each cycle.
		// Without it (GOGC=off) BenchmarkOwnResolve of package index spends the
		// same processor time at every size: 45 to 54 µs among one, 37 to 46
		// among a hundred thousand; with it, 49 to 53 and 55 to 79. So there is
		// no bar.
		Axis{Name: "growth: index, resolve of what is here, one among the stored", Unit: "/s", Of: "objects", Sizes: t.objects, Rounds: t.rounds,
			Ours: t.ownResolveSide},
	}
}

// cachedResolve is an answer that a node has cached, and a handler that serves
// the same bytes. Ours is started first.
type cachedResolve struct {
	turns schedule
	key   peers.Object
	body  []byte
}

func (c *cachedResolve) ours(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	index, err := peers.StartIndex(ctx, g, peers.Routing{Endpoints: 1})
	if err != nil {
		return nil, err
	}
	c.key = peers.Keys(1, 0)[0]
	c.body, err = index.CachedBody(ctx, c.key)
	return c.turns.repeatExchange(&index.Server, index.Resolve(c.key)), err
}

func (c *cachedResolve) bare(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	same := peers.Object{Body: c.body}
	server, err := peers.Bare().Start(ctx, g, []peers.Object{same})
	if err != nil {
		return nil, err
	}
	exchange := server.Get(same)
	exchange.Length, exchange.Body, exchange.Contains = load.AnyLength, nil, []byte(c.key.Address.String()) // what the generator looks at costs it the same on both sides
	return c.turns.repeatExchange(server, exchange), nil
}

// cachedResolveSide is a node that has n answers cached and is asked for some
// of them.
func (s schedule) cachedResolveSide(n, asked int) Side {
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		index, err := peers.StartIndex(ctx, g, peers.Routing{Endpoints: 1})
		if err != nil {
			return nil, err
		}
		keys := peers.Keys(n, 0)
		plan := load.Plan{Address: index.Address, Connections: connections, Warmup: s.warmup, Duration: s.duration, Script: randomGets(&index.Server, keys[:asked], connections)}
		return func(ctx context.Context) (Sample, error) { return runLoad(ctx, &index.Server, plan) }, index.Fetch(ctx, keys)
	}}
}

// ownResolveSide is a node that has n objects and is asked for one of them.
func (s schedule) ownResolveSide(n int) Side {
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		stored := peers.Objects(n, 64, 0)
		server, err := peers.Micronode().Start(ctx, g, stored)
		if err != nil {
			return nil, err
		}
		index := peers.Index{Server: *server}
		return s.repeatExchange(server, index.Resolve(stored[0])), nil
	}}
}

// failFirstTargets makes the first targets fail for every n-th key.
func failFirstTargets(every int) func(b3.Address, int) peers.Behaviour {
	return func(key b3.Address, nth int) peers.Behaviour {
		if int(key[0])%every != 0 || nth > 2 {
			return peers.HasProviders
		}
		return []peers.Behaviour{peers.Silent, peers.Slow, peers.HasNone}[nth]
	}
}

// lookupPair is a node whose look-ups meet failing targets, and one whose
// look-ups do not. A turn of the first is one of both.
type lookupPair struct {
	turns       schedule
	environment []string
	healthyNode *peers.Index
	last        Sample // of the healthy one
}

func (l *lookupPair) start(ctx context.Context, g *testbed.Testbed, conduct func(b3.Address, int) peers.Behaviour) (*peers.Index, error) {
	return peers.StartIndex(ctx, g, peers.Routing{Endpoints: 5, Latency: endpointLatency, Behaviour: conduct}, l.environment...)
}

func (l *lookupPair) unlucky(conduct func(b3.Address, int) peers.Behaviour) func(context.Context, *testbed.Testbed) (Measure, error) {
	return func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		index, err := l.start(ctx, g, conduct)
		if err != nil {
			return nil, err
		}
		asked := uint64(0) // how often both were asked: each time for other keys
		return func(ctx context.Context) (sample Sample, err error) {
			runtime.GC() // of this process, now rather than in the middle
			if err := l.lookupBoth(ctx, index, l.turns.warmup, asked+1, &sample); err != nil {
				return Sample{}, err
			}
			asked += 2
			err = l.lookupBoth(ctx, index, max(2*l.turns.duration, minTurnTime), asked, &sample)
			sample.Value = (sample.P99 - hedgeAfter).Seconds() * 1e3
			return sample, err
		}, nil
	}
}

func (l *lookupPair) healthy(ctx context.Context, g *testbed.Testbed) (_ Measure, err error) {
	l.healthyNode, err = l.start(ctx, g, nil)
	return func(context.Context) (Sample, error) { return l.last, nil }, err
}

// lookupBoth asks both for a while, each key once, one in the middle between
// two ticks of the other.
func (l *lookupPair) lookupBoth(ctx context.Context, unlucky *peers.Index, span time.Duration, nth uint64, sample *Sample) error {
	var failed [2]error
	var sides sync.WaitGroup
	began := time.Now()
	sides.Go(func() { *sample, failed[0] = lookupAtInterval(ctx, unlucky, began, span, nth) })
	sides.Go(func() {
		l.last, failed[1] = lookupAtInterval(ctx, l.healthyNode, began.Add(lookupInterval/2), span, nth)
	})
	sides.Wait()
	l.last.Value = l.last.P99.Seconds() * 1e3
	return errors.Join(failed[:]...)
}

// lookupAtInterval starts a look-up at every tick, and measures how long after
// its tick each was answered. All of them must be.
func lookupAtInterval(ctx context.Context, index *peers.Index, began time.Time, span time.Duration, nth uint64) (Sample, error) {
	took := make([]time.Duration, max(span/lookupInterval, 1))
	failed := make([]error, len(took))
	keys := peers.Keys(len(took), nth)
	before := index.Process.CPU()
	var all sync.WaitGroup
	for i := range took {
		beat := began.Add(time.Duration(i) * lookupInterval)
		time.Sleep(time.Until(beat))
		all.Go(func() {
			failed[i] = index.LookupProviders(ctx, keys[i])
			took[i] = time.Since(beat)
		})
	}
	all.Wait()
	spent := index.Process.CPU() - before
	slices.Sort(took)
	return Sample{P50: took[len(took)/2], P99: took[len(took)*99/100], CPU: spent / time.Duration(len(took))}, errors.Join(failed...)
}

// dhtRow makes look-ups in a DHT of twelve nodes of which four were just
// killed. Where the time is spent, and over how many hops, is shown by the
// tests of the DHT.
func (s schedule) dhtRow(what string, value func(peers.LookupStats) float64) Benchmark {
	return Row{Name: fmt.Sprintf("index, DHT of %d nodes, %d of them gone: %s", peers.DHTNodes, peers.DHTLeaving, what), Unit: "% of look-ups", Rounds: 3,
		Ours: Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
			dht, err := peers.StartDHT(ctx, g)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) (Sample, error) {
				r, err := dht.Turn(ctx)
				if err != nil {
					return Sample{}, err
				}
				return Sample{Value: value(r), P50: r.P50, P99: r.P99}, nil
			}, nil
		}}}
}
