package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"micronode/bench/ground"
	"micronode/bench/load"
	"micronode/bench/peers"
)

const (
	objectSize  = 16 << 10
	connections = 32
)

// objectRows asks for and stores objects of 16 KiB by address, over kept
// HTTP/1.1 connections.
func objectRows(t turns) []Work {
	one := getting{turns: t, size: objectSize, objects: 1, asked: 1, connections: connections}
	get := func(bar, aim float64, peer peers.Peer) Work {
		return Row{
			Name: fmt.Sprintf("object GET 16 KiB, %d connections, beside %s", connections, peer.Name),
			Unit: "/s", Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: one.side(peers.Micronode()),
			Peer: one.side(peer),
		}
	}
	put := func(puts int, peer peers.Peer) Work {
		return Row{
			Name: fmt.Sprintf("object PUT 16 KiB, %d connections, beside %s", connections, peer.Name),
			Unit: "/s", Rounds: t.rounds,
			Ours: putting(peers.Micronode(), puts),
			Peer: putting(peer, puts),
		}
	}
	return []Work{
		get(0, 0, peers.Bare()),
		get(0, 0, peers.Nginx()),
		get(5, 8, peers.Kubo()),
		put(t.puts, peers.Bare()),
		// Kubo stores on disk and removes nothing here: fewer are enough.
		put(t.puts/8, peers.Kubo()),
	}
}

// growthAxes asks whether a GET becomes dearer with what is stored, and what
// more connections do to it. The objects are of 1 KiB, so that the larger
// stores fit in memory and the network does not hide the look-up.
//
// One object among many is a question about the look-up alone: nothing there
// may grow, and no peer is needed to say so. Any object of many is a question
// about caches too, the processor's and ours; the peer, which has a map and
// nothing else, shows the former.
func growthAxes(t turns) []Work {
	t.rounds = max(t.rounds-2, 3)
	t.time /= 2
	small := getting{turns: t, size: 1 << 10, objects: 1, asked: 1, connections: connections}
	oneAmong := func(n int) getting { s := small; s.objects = n; return s }
	anyAmong := func(n int) getting { s := small; s.objects, s.asked = n, n; return s }
	askedBy := func(n int) getting { s := small; s.connections = n; return s }
	ours := func(at func(int) getting) func(int) Side {
		return func(n int) Side { return at(n).side(peers.Micronode()) }
	}
	bare := func(at func(int) getting) func(int) Side {
		return func(n int) Side { return at(n).side(peers.Bare()) }
	}
	return []Work{
		Axis{Name: "growth: object GET 1 KiB, one among the stored", Unit: "/s", Of: "objects", Sizes: t.objects,
			Bar: 0.95, Rounds: t.rounds, Ours: ours(oneAmong)},
		Axis{Name: "growth: object GET 1 KiB, any of the stored", Unit: "/s", Of: "objects", Sizes: t.objects,
			Rounds: t.rounds, Ours: ours(anyAmong), Peer: bare(anyAmong)},
		Axis{Name: "growth: object GET 1 KiB, more connections", Unit: "/s", Of: "connections", Sizes: []int{1, 32, 256},
			Rounds: t.rounds, Ours: ours(askedBy), Peer: bare(askedBy)},
	}
}

// getting is a server that holds objects and is asked for some of them.
type getting struct {
	turns       turns
	size        int // of an object
	objects     int // that are stored
	asked       int // that are asked for
	connections int
}

func (s getting) side(peer peers.Peer) Side {
	return Side{peer.Name, func(ctx context.Context, g *ground.Ground) (Measure, error) {
		stored := peers.Objects(s.objects, s.size, 0)
		server, err := peer.Start(ctx, g, stored)
		if err != nil {
			return nil, err
		}
		plan := load.Plan{
			Address: server.Address, Connections: s.connections, Warm: s.turns.warm, Time: s.turns.time,
			Script: anyOf(server, stored[:s.asked], s.connections),
		}
		return func(ctx context.Context) (Sample, error) { return drive(ctx, server, plan) }, server.Fetch(ctx, stored)
	}}
}

// anyOf is a script that asks for any of the objects. The requests are made
// before, so that the generator does nothing but send them.
func anyOf(server *peers.Server, objects []peers.Object, connections int) load.Script {
	exchanges := make([]load.Exchange, len(objects))
	for i, object := range objects {
		exchanges[i] = server.Get(object)
	}
	if len(exchanges) == 1 {
		return load.Always(exchanges[0])
	}
	return anyExchange(exchanges, connections)
}

// drive takes one turn of load and notes what the server spent on it.
func drive(ctx context.Context, server *peers.Server, plan load.Plan) (Sample, error) {
	runtime.GC() // of the generator, now rather than in the middle
	before := server.Process.CPU()
	report, err := load.Run(ctx, plan)
	if err != nil {
		return Sample{}, err
	}
	spent := server.Process.CPU() - before
	// The requests of the warm-up cost the same; they are in the time spent.
	share := float64(plan.Time) / float64(plan.Time+plan.Warm)
	if plan.Time == 0 {
		share = 1
	}
	return Sample{
		Value: report.Rate(), P50: report.Latency.Quantile(0.5), P99: report.Latency.Quantile(0.99),
		CPU: time.Duration(float64(spent) * share / float64(report.Answers)),
	}, nil
}

// putting is a peer that is given new objects in each turn. They are removed
// after it, where the peer keeps them in memory.
func putting(peer peers.Peer, puts int) Side {
	return Side{peer.Name, func(ctx context.Context, g *ground.Ground) (Measure, error) {
		server, err := peer.Start(ctx, g, nil)
		if err != nil {
			return nil, err
		}
		turn := uint64(0)
		return func(ctx context.Context) (Sample, error) {
			turn++
			objects := peers.Objects(puts, objectSize, turn)
			sample, err := drive(ctx, server, load.Plan{
				Address: server.WriteAddress(), Connections: connections, Script: prepared(objects, server.Put),
			})
			if err != nil {
				return sample, err
			}
			return sample, server.Clear(ctx, objects)
		}, nil
	}}
}

// prepared is a script that sends each object once, written before the clock
// runs.
func prepared(objects []peers.Object, how func(peers.Object) load.Exchange) load.Script {
	exchanges := make([]load.Exchange, len(objects))
	for i, object := range objects {
		exchanges[i] = how(object)
	}
	return peers.Each(len(exchanges), connections, func(i int) load.Exchange { return exchanges[i] })
}
