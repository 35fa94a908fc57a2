package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"micronode/bench/ground"
	"micronode/bench/peers"
)

// spender is whose processor time the rows with letters tell: a letter costs
// something wherever it passes.
const spender = "all processes"

// overlayRows send letters from process to process, each side with as many under
// way as suits it best.
func overlayRows(t turns) []Work {
	rate := func(name string, size int, bar, aim float64, ours, peer peers.Carrier) Work {
		return Row{
			Name: "overlay, " + name + ", beside " + peer.Name, Unit: "/s", Spender: spender, Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.carrying(ours, ours.Carry(size, 1), perSecond), Peer: t.carrying(peer, peer.Carry(size, 1), perSecond),
		}
	}
	volume := func(name string, size int, bar, aim float64, ours, peer peers.Carrier) Work {
		return Row{
			Name: "overlay, " + name + ", beside " + peer.Name, Unit: "MiB/s", Spender: spender, Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.carrying(ours, ours.Carry(size, 1), mebibytes), Peer: t.carrying(peer, peer.Carry(size, 1), mebibytes),
		}
	}
	return []Work{
		rate("1 KiB, TLS, two hops, unsigned", 1<<10, 0.8, 1.5, peers.OverlayRelayed(), peers.NATS()),
		rate("1 KiB, TLS, one hop, signed", 1<<10, 3, 10, peers.Overlay(true), peers.Gossipsub()),
		// NATS always has a server between the two. Beside our one hop it is
		// measured with one hop as well: with its server inside the receiver.
		volume("64 KiB, TLS, one hop, unsigned", 64<<10, 1, 2, peers.Overlay(false), peers.NATSInside()),
		volume("64 KiB, TLS, two hops, unsigned", 64<<10, 0, 0, peers.OverlayRelayed(), peers.NATS()),
	}
}

// letterAxes ask what larger letters and more who want them cost. NATS at the
// same sizes shows how much of it is the machine's.
func letterAxes(t turns) []Work {
	t.rounds = max(t.rounds-2, 3)
	t.time /= 2
	carrying := func(carrier peers.Carrier, size, counters int) Side {
		return t.carrying(carrier, carrier.Carry(size, counters), perSecond)
	}
	axes := []Work{Axis{
		Name: "growth: overlay, unsigned letters to one, larger letters", Unit: "/s", Of: "bytes", Sizes: letterSizes,
		Spender: spender, Rounds: t.rounds,
		Ours: func(size int) Side { return carrying(peers.Overlay(false), size, 1) },
		Peer: func(size int) Side { return carrying(peers.NATS(), size, 1) },
	}}
	for _, size := range letterSizes {
		axes = append(axes, Axis{
			Name: fmt.Sprintf("growth: overlay, unsigned letters of %s bytes, to more", grouped(float64(size))), Unit: "delivered/s", Of: "receivers", Sizes: []int{1, 3, 16},
			Spender: spender, Rounds: t.rounds,
			Ours: func(counters int) Side { return carrying(peers.Overlay(false), size, counters) },
			Peer: func(counters int) Side { return carrying(peers.NATS(), size, counters) },
		})
	}
	return axes
}

// letterSizes are small, usual and as large as a chunk.
var letterSizes = []int{128, 1 << 10, 64 << 10}

// perSecond and mebibytes say what is made of a rate of letters.
func perSecond(rate float64, _ int) float64    { return rate }
func mebibytes(rate float64, size int) float64 { return rate * float64(size) / (1 << 20) }

// carrying is a carrier at work. A turn in which a letter was lost, came twice
// or was changed is an error.
func (t turns) carrying(carrier peers.Carrier, task peers.Task, value func(rate float64, size int) float64) Side {
	return Side{carrier.Name, func(ctx context.Context, g *ground.Ground) (Measure, error) {
		line, err := carrier.Start(ctx, g, task)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			runtime.GC() // of the loop, now rather than in the middle
			before := line.CPU()
			report, err := line.Turn(ctx, t.warm, t.time)
			if err != nil {
				return Sample{}, err
			}
			spent := line.CPU() - before
			return Sample{Value: value(report.Rate, task.Size), CPU: spent / time.Duration(max(report.Letters, 1))}, nil
		}, nil
	}}
}
