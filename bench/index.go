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
	"micronode/bench/ground"
	"micronode/bench/load"
	"micronode/bench/peers"
)

const (
	hedgeAfter = 150 * time.Millisecond // hedge_ms, as it is by default
	distance   = 20 * time.Millisecond  // what an answer of an endpoint takes at least, here as on a network
	pace       = 10 * time.Millisecond  // from one look-up of a side to its next: with bad luck, about twenty are under way
	leastTime  = 4 * time.Second        // of a turn, so that p99 is not the mishap of a single look-up
)

// indexRows hold what the index remembers against a handler that knows nothing
// but the bytes, and look-ups with bad luck against look-ups without.
//
// Bad luck is: of the three that are asked first, one never answers, one takes
// 800 ms, and the third does not know. It strikes whoever is asked first, so
// that the node cannot learn whom to avoid. The two that come next know. What
// is compared is how much later than hedge_ms the answer comes: there is nothing
// to be done before that.
//
// Both sides are asked at the same pace, whatever they take, and in the same
// seconds. Callers who wait for an answer before they ask again would ask the
// healthy side seven times as often, until the machine is full, and those of the
// unlucky side would all ask in the same moment, every 170 ms. And when the
// machine stands still for a while, as it does when others use it, that
// reaches both.
func indexRows(t turns) []Work {
	cached := &recalling{turns: t}
	unlucky := func(name string, bar, aim float64, every int, environment ...string) Work {
		both := &lookups{turns: t, environment: environment}
		return Row{Name: "index, look-up with one dead and one slow target among α, " + name + ", beside all healthy", Unit: "ms at p99, less hedge_ms", Lower: true,
			Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: Side{"unlucky", both.unlucky(badLuck(every))}, Peer: Side{"healthy", both.healthy}}
	}
	return []Work{
		Row{Name: fmt.Sprintf("index, cached resolve, %d connections, beside bare net/http", connections), Unit: "/s", Bar: 0.7, Aim: 0.9, Rounds: t.rounds,
			Ours: Side{"micronode", cached.ours}, Peer: Side{"bare net/http", cached.bare}},
		// Every look-up hedges here, which the budget would forbid by default.
		unlucky("every look-up", 1.5, 1, 1, "MICRO_INDEX__DHT__HEDGE_BUDGET=1"),
		// One in ten is what a budget of 0.2 has room for.
		unlucky("one look-up in ten, the default budget", 1.5, 1, 10),
		t.dhtRow("found", func(r peers.Searches) float64 { return 100 * float64(r.Found) / float64(r.Asked) }),
		t.dhtRow("hedged", func(r peers.Searches) float64 { return 100 * r.Hedged / r.LookedUp }),
	}
}

// indexAxes ask whether a resolve becomes dearer with what is remembered or
// stored.
func indexAxes(t turns) []Work {
	t.rounds = max(t.rounds-2, 3)
	t.time /= 2
	return []Work{
		Axis{Name: "growth: index, cached resolve, one among the remembered", Unit: "/s", Of: "answers", Sizes: t.objects, Bar: 0.95, Rounds: t.rounds,
			Ours: func(n int) Side { return t.recallingAny(n, 1) }},
		Axis{Name: "growth: index, cached resolve, any of the remembered", Unit: "/s", Of: "answers", Sizes: t.objects, Rounds: t.rounds,
			Ours: func(n int) Side { return t.recallingAny(n, n) }},
		// This one falls a little, and not by the work of a resolve: what it does
		// and the 7 KB that it allocates are the same among one object and among a
		// hundred thousand. It is the collector, which has 65 MB of small objects to
		// look at instead of 5 MB, each time that so much has been allocated again.
		// Without it (GOGC=off) BenchmarkOwnResolve of package index spends the same
		// processor time at every size: 45 to 54 µs among one, 37 to 46 among a hundred
		// thousand; with it, 49 to 53 and 55 to 79. So there is no bar.
		Axis{Name: "growth: index, resolve of what is here, one among the stored", Unit: "/s", Of: "objects", Sizes: t.objects, Rounds: t.rounds,
			Ours: t.resolvingOwn},
	}
}

// recalling is an answer that a node remembers, and a handler that gives the
// same bytes. Ours is started first.
type recalling struct {
	turns turns
	key   peers.Object
	body  []byte
}

func (c *recalling) ours(ctx context.Context, g *ground.Ground) (Measure, error) {
	index, err := peers.StartIndex(ctx, g, peers.Routing{Endpoints: 1})
	if err != nil {
		return nil, err
	}
	c.key = peers.Keys(1, 0)[0]
	c.body, err = index.Answer(ctx, c.key)
	return c.turns.asking(&index.Server, index.Resolve(c.key)), err
}

func (c *recalling) bare(ctx context.Context, g *ground.Ground) (Measure, error) {
	same := peers.Object{Body: c.body}
	server, err := peers.Bare().Start(ctx, g, []peers.Object{same})
	if err != nil {
		return nil, err
	}
	exchange := server.Get(same)
	exchange.Length, exchange.Body, exchange.Holds = load.AnyLength, nil, []byte(c.key.Address.String()) // what the generator looks at costs it the same on both sides
	return c.turns.asking(server, exchange), nil
}

// recallingAny is a node that remembers so many answers and is asked for some of
// them.
func (t turns) recallingAny(n, asked int) Side {
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		index, err := peers.StartIndex(ctx, g, peers.Routing{Endpoints: 1})
		if err != nil {
			return nil, err
		}
		keys := peers.Keys(n, 0)
		plan := load.Plan{Address: index.Address, Connections: connections, Warm: t.warm, Time: t.time, Script: anyOf(&index.Server, keys[:asked], connections)}
		return func(ctx context.Context) (Sample, error) { return drive(ctx, &index.Server, plan) }, index.Fetch(ctx, keys)
	}}
}

// resolvingOwn is a node that has so many objects and is asked for one of them.
func (t turns) resolvingOwn(n int) Side {
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		stored := peers.Objects(n, 64, 0)
		server, err := peers.Micronode().Start(ctx, g, stored)
		if err != nil {
			return nil, err
		}
		index := peers.Index{Server: *server}
		return t.asking(server, index.Resolve(stored[0])), nil
	}}
}

// badLuck strikes the first of those who are asked for every so-manieth key.
func badLuck(every int) func(b3.Address, int) peers.Conduct {
	return func(key b3.Address, nth int) peers.Conduct {
		if int(key[0])%every != 0 || nth > 2 {
			return peers.Knows
		}
		return []peers.Conduct{peers.Silent, peers.Slow, peers.KnowsNot}[nth]
	}
}

// lookups is a node whose look-ups have bad luck, and one whose look-ups have
// none. A turn of the first is one of both.
type lookups struct {
	turns       turns
	environment []string
	lucky       *peers.Index
	last        Sample // of the lucky one
}

func (l *lookups) start(ctx context.Context, g *ground.Ground, conduct func(b3.Address, int) peers.Conduct) (*peers.Index, error) {
	return peers.StartIndex(ctx, g, peers.Routing{Endpoints: 5, Distance: distance, Conduct: conduct}, l.environment...)
}

func (l *lookups) unlucky(conduct func(b3.Address, int) peers.Conduct) func(context.Context, *ground.Ground) (Measure, error) {
	return func(ctx context.Context, g *ground.Ground) (Measure, error) {
		index, err := l.start(ctx, g, conduct)
		if err != nil {
			return nil, err
		}
		asked := uint64(0) // how often both were asked: each time for other keys
		return func(ctx context.Context) (sample Sample, err error) {
			runtime.GC() // of the one who asks, now rather than in the middle
			if err := l.both(ctx, index, l.turns.warm, asked+1, &sample); err != nil {
				return Sample{}, err
			}
			asked += 2
			err = l.both(ctx, index, max(2*l.turns.time, leastTime), asked, &sample)
			sample.Value = (sample.P99 - hedgeAfter).Seconds() * 1e3
			return sample, err
		}, nil
	}
}

func (l *lookups) healthy(ctx context.Context, g *ground.Ground) (_ Measure, err error) {
	l.lucky, err = l.start(ctx, g, nil)
	return func(context.Context) (Sample, error) { return l.last, nil }, err
}

// both asks both for a while, each key once, the one in the middle between two
// beats of the other.
func (l *lookups) both(ctx context.Context, unlucky *peers.Index, span time.Duration, nth uint64, sample *Sample) error {
	var failed [2]error
	var sides sync.WaitGroup
	began := time.Now()
	sides.Go(func() { *sample, failed[0] = seekFor(ctx, unlucky, began, span, nth) })
	sides.Go(func() { l.last, failed[1] = seekFor(ctx, l.lucky, began.Add(pace/2), span, nth) })
	sides.Wait()
	l.last.Value = l.last.P99.Seconds() * 1e3
	return errors.Join(failed[:]...)
}

// seekFor begins a look-up at every beat of the pace, and takes how long after
// its beat each was answered. All of them must be.
func seekFor(ctx context.Context, index *peers.Index, began time.Time, span time.Duration, nth uint64) (Sample, error) {
	took := make([]time.Duration, max(span/pace, 1))
	failed := make([]error, len(took))
	keys := peers.Keys(len(took), nth)
	before := index.Process.CPU()
	var all sync.WaitGroup
	for i := range took {
		beat := began.Add(time.Duration(i) * pace)
		time.Sleep(time.Until(beat))
		all.Go(func() {
			failed[i] = index.Seek(ctx, keys[i])
			took[i] = time.Since(beat)
		})
	}
	all.Wait()
	spent := index.Process.CPU() - before
	slices.Sort(took)
	return Sample{P50: took[len(took)/2], P99: took[len(took)*99/100], CPU: spent / time.Duration(len(took))}, errors.Join(failed...)
}

// dhtRow looks things up in a DHT of twelve nodes of which four have just gone
// without a word. Where the time goes to, and over how many hops, the tests of
// the DHT tell.
func (t turns) dhtRow(what string, value func(peers.Searches) float64) Work {
	return Row{Name: fmt.Sprintf("index, DHT of %d nodes, %d of them gone: %s", peers.DHTNodes, peers.DHTLeaving, what), Unit: "% of look-ups", Rounds: 3,
		Ours: Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
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
