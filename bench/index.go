package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/bench/ground"
	"micronode/bench/load"
	"micronode/bench/peers"
)

const (
	hedgeAfter = 150 * time.Millisecond // hedge_ms, as it is by default
	distance   = 20 * time.Millisecond  // what an answer of an endpoint takes at least, here as on a network
	seekers    = 32                     // look-ups under way
)

// indexRows hold what the index remembers against a handler that knows nothing
// but the bytes, and look-ups with bad luck against look-ups without.
//
// Bad luck is: of the three that are asked first, one never answers, one takes
// 800 ms, and the third does not know. It strikes whoever is asked first, so
// that the node cannot learn whom to avoid. The two that come next know. What
// is compared is how much later than hedge_ms the answer comes: there is nothing
// to be done before that.
func indexRows(t turns) []Work {
	cached := &recalling{turns: t}
	unlucky := func(name string, bar, aim float64, every int, environment ...string) Work {
		return Row{Name: "index, look-up with one dead and one slow target among α, " + name + ", beside all healthy", Unit: "ms at p99, less hedge_ms", Lower: true,
			Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.seeking("unlucky", hedgeAfter, badLuck(every), environment...), Peer: t.seeking("healthy", 0, nil, environment...)}
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

// seeking looks up one key after the other, none of them twice, and tells how
// much later than a time the answers come at p99.
func (t turns) seeking(name string, later time.Duration, conduct func(b3.Address, int) peers.Conduct, environment ...string) Side {
	return Side{name, func(ctx context.Context, g *ground.Ground) (Measure, error) {
		index, err := peers.StartIndex(ctx, g, peers.Routing{Endpoints: 5, Distance: distance, Conduct: conduct}, environment...)
		if err != nil {
			return nil, err
		}
		var asked atomic.Uint64
		script := func(int) (load.Exchange, bool) { return index.Seek(peers.Keys(1, asked.Add(1))[0].Address), true }
		plan := load.Plan{Address: index.Address, Connections: seekers, Warm: t.warm, Time: 2 * t.time, Script: script}
		return func(ctx context.Context) (Sample, error) {
			sample, err := drive(ctx, &index.Server, plan)
			sample.Value = (sample.P99 - later).Seconds() * 1e3
			return sample, err
		}, nil
	}}
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
