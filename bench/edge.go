package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"micronode/bench/ground"
	"micronode/bench/load"
	"micronode/bench/peers"
)

// edgeRows ask the edge for what it holds: an object that it fetched from an
// origin, and tiles of a map.
func edgeRows(t turns) []Work {
	one := getting{turns: t, size: objectSize, objects: 1, asked: 1, connections: connections}
	warm := func(bar, aim float64, peer peers.Peer) Work {
		return Row{
			Name: fmt.Sprintf("edge, warm 16 KiB, %d connections, beside %s", connections, peer.Name),
			Unit: "/s", Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: one.side(peers.MicronodeEdge()),
			Peer: one.side(peer),
		}
	}
	tiles := func(kind string, bar, aim float64, ours func(*ground.Ground) (*peers.Map, error)) Work {
		return Row{
			Name: "edge, random z6 tiles from " + kind + ", beside go-pmtiles",
			Unit: "/s", Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.tiles(peers.MicronodeTiles(), ours),
			Peer: t.tiles(peers.GoPMTiles(), peers.PMTilesMap), // it serves nothing else
		}
	}
	return []Work{
		warm(0.6, 0.85, peers.Nginx()),
		warm(1, 0, peers.Varnish()),
		warm(3, 0, peers.Caddy()),
		tiles("PMTiles", 3, 5, peers.PMTilesMap),
		tiles("MBTiles", 1.5, 3, peers.MBTilesMap),
	}
}

// tiles asks a server for any tile of zoom 6.
func (t turns) tiles(server peers.TileServer, draw func(*ground.Ground) (*peers.Map, error)) Side {
	return Side{server.Name, func(ctx context.Context, g *ground.Ground) (Measure, error) {
		drawn, err := draw(g)
		if err != nil {
			return nil, err
		}
		running, exchanges, err := server.Start(ctx, g, drawn)
		if err != nil {
			return nil, err
		}
		plan := load.Plan{Address: running.Address, Connections: connections, Warm: t.warm, Time: t.time, Script: anyExchange(exchanges, connections)}
		return func(ctx context.Context) (Sample, error) { return drive(ctx, running, plan) }, nil
	}}
}

// anyExchange is a script that sends any of the exchanges. Each connection has
// its own chance: they are asked from different threads.
func anyExchange(exchanges []load.Exchange, connections int) load.Script {
	chance := make([]*rand.Rand, connections)
	for i := range chance {
		chance[i] = rand.New(rand.NewPCG(1, uint64(i)))
	}
	return func(connection int) (load.Exchange, bool) {
		return exchanges[chance[connection].IntN(len(exchanges))], true
	}
}
