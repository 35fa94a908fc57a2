package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"micronode/bench/load"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

const (
	objectSize  = 16 << 10
	connections = 32
)

// objectRows gets and puts objects of 16 KiB by address, over kept HTTP/1.1
// connections.
func objectRows(t schedule) []Benchmark {
	one := getLoad{turns: t, size: objectSize, objects: 1, asked: 1, connections: connections}
	get := func(bar, aim float64, peer peers.Peer) Benchmark {
		return Row{
			Name: fmt.Sprintf("object GET 16 KiB, %d connections, beside %s", connections, peer.Name),
			Unit: "/s", Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: one.side(peers.Micronode()),
			Peer: one.side(peer),
		}
	}
	put := func(puts int, peer peers.Peer) Benchmark {
		return Row{
			Name: fmt.Sprintf("object PUT 16 KiB, %d connections, beside %s", connections, peer.Name),
			Unit: "/s", Rounds: t.rounds,
			Ours: putSide(peers.Micronode(), puts),
			Peer: putSide(peer, puts),
		}
	}
	return []Benchmark{
		get(0, 0, peers.Bare()),
		get(0, 0, peers.Nginx()),
		get(5, 8, peers.Kubo()),
		put(t.puts, peers.Bare()),
		// Kubo stores on disk and removes nothing here: fewer are enough.
		put(t.puts/8, peers.Kubo()),
	}
}

// growthAxes measures whether a GET costs more as more is stored, and with more
// connections. The objects are of 1 KiB, so that the larger stores fit in
// memory and the network does not hide the look-up.
//
// One object among many measures the look-up alone: nothing there may grow, and
// no peer is needed for that. Any object of many measures caches too, the
// processor's and ours; the peer, which has a map and nothing else, shows the
// former.
func growthAxes(t schedule) []Benchmark {
	t.rounds = max(t.rounds-2, 3)
	t.duration /= 2
	small := getLoad{turns: t, size: 1 << 10, objects: 1, asked: 1, connections: connections}
	oneAmong := func(n int) getLoad { s := small; s.objects = n; return s }
	anyAmong := func(n int) getLoad { s := small; s.objects, s.asked = n, n; return s }
	askedBy := func(n int) getLoad { s := small; s.connections = n; return s }
	ours := func(at func(int) getLoad) func(int) Side {
		return func(n int) Side { return at(n).side(peers.Micronode()) }
	}
	bare := func(at func(int) getLoad) func(int) Side {
		return func(n int) Side { return at(n).side(peers.Bare()) }
	}
	return []Benchmark{
		Axis{Name: "growth: object GET 1 KiB, one among the stored", Unit: "/s", Of: "objects", Sizes: t.objects,
			Bar: 0.95, Rounds: t.rounds, Ours: ours(oneAmong)},
		Axis{Name: "growth: object GET 1 KiB, any of the stored", Unit: "/s", Of: "objects", Sizes: t.objects,
			Rounds: t.rounds, Ours: ours(anyAmong), Peer: bare(anyAmong)},
		Axis{Name: "growth: object GET 1 KiB, more connections", Unit: "/s", Of: "connections", Sizes: []int{1, 32, 256},
			Rounds: t.rounds, Ours: ours(askedBy), Peer: bare(askedBy)},
	}
}

// getLoad is a server that holds objects and gets requests for some of them.
type getLoad struct {
	turns       schedule
	size        int // of an object
	objects     int // that are stored
	asked       int // that are requested
	connections int
}

func (l getLoad) side(peer peers.Peer) Side {
	return Side{peer.Name, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		stored := peers.Objects(l.objects, l.size, 0)
		server, err := peer.Start(ctx, g, stored)
		if err != nil {
			return nil, err
		}
		plan := load.Plan{
			Address: server.Address, Connections: l.connections, Warmup: l.turns.warmup, Duration: l.turns.duration,
			Script: randomGets(server, stored[:l.asked], l.connections),
		}
		return func(ctx context.Context) (Sample, error) { return runLoad(ctx, server, plan) }, server.Fetch(ctx, stored)
	}}
}

// randomGets is a script that requests random objects. The requests are made
// before, so that the generator does nothing but send them.
func randomGets(server *peers.Server, objects []peers.Object, connections int) load.Script {
	exchanges := make([]load.Exchange, len(objects))
	for i, object := range objects {
		exchanges[i] = server.Get(object)
	}
	if len(exchanges) == 1 {
		return load.Always(exchanges[0])
	}
	return randomExchange(exchanges, connections)
}

// runLoad runs one turn of load and records what the server spent on it.
func runLoad(ctx context.Context, server *peers.Server, plan load.Plan) (Sample, error) {
	runtime.GC() // of the generator, now rather than in the middle
	before := server.Process.CPU()
	report, err := load.Run(ctx, plan)
	if err != nil {
		return Sample{}, err
	}
	spent := server.Process.CPU() - before
	// The requests of the warm-up cost the same; they are in the time spent.
	share := float64(plan.Duration) / float64(plan.Duration+plan.Warmup)
	if plan.Duration == 0 {
		share = 1
	}
	return Sample{
		Value: report.Rate(), P50: report.Latency.Quantile(0.5), P99: report.Latency.Quantile(0.99),
		CPU: time.Duration(float64(spent) * share / float64(report.Responses)),
	}, nil
}

// putSide is a peer that gets new objects in each turn. They are removed after
// it, where the peer keeps them in memory.
func putSide(peer peers.Peer, puts int) Side {
	return Side{peer.Name, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		server, err := peer.Start(ctx, g, nil)
		if err != nil {
			return nil, err
		}
		turn := uint64(0)
		return func(ctx context.Context) (Sample, error) {
			turn++
			objects := peers.Objects(puts, objectSize, turn)
			sample, err := runLoad(ctx, server, load.Plan{
				Address: server.WriteAddress(), Connections: connections, Script: eachOnce(objects, server.Put),
			})
			if err != nil {
				return sample, err
			}
			return sample, server.Clear(ctx, objects)
		}, nil
	}}
}

// eachOnce is a script that sends each object once, written before the clock
// starts.
func eachOnce(objects []peers.Object, how func(peers.Object) load.Exchange) load.Script {
	exchanges := make([]load.Exchange, len(objects))
	for i, object := range objects {
		exchanges[i] = how(object)
	}
	return peers.Each(len(exchanges), connections, func(i int) load.Exchange { return exchanges[i] })
}
