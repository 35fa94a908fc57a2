package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"micronode/bench/load"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// edgeRows request what the edge holds: an object that it fetched from an
// origin, and tiles of a map.
func edgeRows(t schedule) []Benchmark {
	one := getLoad{turns: t, size: objectSize, objects: 1, asked: 1, connections: connections}
	warm := func(bar, aim float64, peer peers.Peer) Benchmark {
		return Row{
			Name: fmt.Sprintf("edge, warm 16 KiB, %d connections, beside %s", connections, peer.Name),
			Unit: "/s", Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: one.side(peers.MicronodeEdge()),
			Peer: one.side(peer),
		}
	}
	tiles := func(kind string, bar, aim float64, ours func(*testbed.Testbed) (*peers.Map, error)) Benchmark {
		return Row{
			Name: "edge, random z6 tiles from " + kind + ", beside go-pmtiles",
			Unit: "/s", Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.tileSide(peers.MicronodeTiles(), ours),
			Peer: t.tileSide(peers.GoPMTiles(), peers.PMTilesMap), // it serves nothing else
		}
	}
	return []Benchmark{
		warm(0.6, 0.85, peers.Nginx()),
		warm(1, 0, peers.Varnish()),
		warm(3, 0, peers.Caddy()),
		tiles("PMTiles", 3, 5, peers.PMTilesMap),
		tiles("MBTiles", 1.5, 3, peers.MBTilesMap),
	}
}

// tileSide requests random tiles of zoom 6 from a server.
func (s schedule) tileSide(server peers.TileServer, draw func(*testbed.Testbed) (*peers.Map, error)) Side {
	return Side{server.Name, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		drawn, err := draw(g)
		if err != nil {
			return nil, err
		}
		running, exchanges, err := server.Start(ctx, g, drawn)
		if err != nil {
			return nil, err
		}
		plan := load.Plan{Address: running.Address, Connections: connections, Warmup: s.warmup, Duration: s.duration, Script: randomExchange(exchanges, connections)}
		return func(ctx context.Context) (Sample, error) { return runLoad(ctx, running, plan) }, nil
	}}
}

// randomExchange is a script that sends random exchanges. Each connection has
// its own random source: they are used by different threads.
func randomExchange(exchanges []load.Exchange, connections int) load.Script {
	chance := make([]*rand.Rand, connections)
	for i := range chance {
		chance[i] = rand.New(rand.NewPCG(1, uint64(i)))
	}
	return func(connection int) (load.Exchange, bool) {
		return exchanges[chance[connection].IntN(len(exchanges))], true
	}
}
