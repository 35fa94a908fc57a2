package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// allProcesses is whose processor time the rows with messages report: a message
// costs something in every process that it passes.
const allProcesses = "all processes"

// overlayRows send messages between processes, each side with the window that
// suits it best.
func overlayRows(t schedule) []Benchmark {
	rate := func(name string, size int, bar, aim float64, ours, peer peers.PubSub) Benchmark {
		return Row{
			Name: "overlay, " + name + ", beside " + peer.Name, Unit: "/s", CPUOf: allProcesses, Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.carrierSide(ours, ours.NewTask(size, 1), perSecond), Peer: t.carrierSide(peer, peer.NewTask(size, 1), perSecond),
		}
	}
	throughput := func(name string, size int, bar, aim float64, ours, peer peers.PubSub) Benchmark {
		return Row{
			Name: "overlay, " + name + ", beside " + peer.Name, Unit: "MiB/s", CPUOf: allProcesses, Bar: bar, Aim: aim, Rounds: t.rounds,
			Ours: t.carrierSide(ours, ours.NewTask(size, 1), mebibytesPerSecond), Peer: t.carrierSide(peer, peer.NewTask(size, 1), mebibytesPerSecond),
		}
	}
	return []Benchmark{
		rate("1 KiB, TLS, two hops, unsigned", 1<<10, 0.8, 1.5, peers.OverlayRelayed(), peers.NATS()),
		rate("1 KiB, TLS, one hop, signed", 1<<10, 3, 10, peers.Overlay(true), peers.Gossipsub()),
		// NATS always has a server between the two. Beside our one hop it is
		// measured with one hop as well: with its server inside the receiver.
		throughput("64 KiB, TLS, one hop, unsigned", 64<<10, 1, 2, peers.Overlay(false), peers.NATSInside()),
		throughput("64 KiB, TLS, two hops, unsigned", 64<<10, 0, 0, peers.OverlayRelayed(), peers.NATS()),
	}
}

// messageAxes measure what larger messages and more subscribers cost. NATS at
// the same sizes shows how much of it is the machine's.
func messageAxes(t schedule) []Benchmark {
	t.rounds = max(t.rounds-2, 3)
	t.duration /= 2
	side := func(carrier peers.PubSub, size, counters int) Side {
		return t.carrierSide(carrier, carrier.NewTask(size, counters), perSecond)
	}
	axes := []Benchmark{Axis{
		Name: "growth: overlay, unsigned messages to one, larger messages", Unit: "/s", Of: "bytes", Sizes: messageSizes,
		CPUOf: allProcesses, Rounds: t.rounds,
		Ours: func(size int) Side { return side(peers.Overlay(false), size, 1) },
		Peer: func(size int) Side { return side(peers.NATS(), size, 1) },
	}}
	for _, size := range messageSizes {
		axes = append(axes, Axis{
			Name: fmt.Sprintf("growth: overlay, unsigned messages of %s bytes, to more", groupDigits(float64(size))), Unit: "delivered/s", Of: "receivers", Sizes: []int{1, 3, 16},
			CPUOf: allProcesses, Rounds: t.rounds,
			Ours: func(counters int) Side { return side(peers.Overlay(false), size, counters) },
			Peer: func(counters int) Side { return side(peers.NATS(), size, counters) },
		})
	}
	return axes
}

// messageSizes are small, usual and as large as a chunk.
var messageSizes = []int{128, 1 << 10, 64 << 10}

// perSecond and mebibytes convert a rate of messages.
func perSecond(rate float64, _ int) float64             { return rate }
func mebibytesPerSecond(rate float64, size int) float64 { return rate * float64(size) / (1 << 20) }

// carrierSide is a running pub/sub system. A turn in which a message was lost,
// duplicated or changed is an error.
func (s schedule) carrierSide(carrier peers.PubSub, task peers.PubSubTask, value func(rate float64, size int) float64) Side {
	return Side{carrier.Name, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		line, err := carrier.Start(ctx, g, task)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			runtime.GC() // of the loop, now rather than in the middle
			before := line.CPU()
			report, err := line.Turn(ctx, s.warmup, s.duration)
			if err != nil {
				return Sample{}, err
			}
			spent := line.CPU() - before
			return Sample{Value: value(report.Rate, task.Size), CPU: spent / time.Duration(max(report.Messages, 1))}, nil
		}, nil
	}}
}
