package main

import (
	"context"
	"time"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// nodeRows are figures of an idle node.
func nodeRows(t schedule) []Benchmark {
	return []Benchmark{
		Row{Name: "node: start to /readyz 200", Unit: "ms", Lower: true, Bar: 300, Aim: 80, Rounds: max(t.rounds, 5),
			Ours: Side{"micronode", startTime}},
		Row{Name: "node: idle memory", Unit: "MB", Lower: true, Bar: 35, Aim: 25, Rounds: 3,
			Ours: Side{"micronode", t.idleMemory((*testbed.Process).RSS)}},
		Row{Name: "node: idle memory of its own", Unit: "MB", Lower: true, Bar: 12, Aim: 10, Rounds: 3,
			Ours: Side{"micronode", t.idleMemory((*testbed.Process).OwnMemory)}},
	}
}

// startTime is from the start of the process to the first 200 of /readyz.
func startTime(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	return func(ctx context.Context) (Sample, error) {
		begin := time.Now()
		process, err := peers.StartToReady(ctx, g)
		if err != nil {
			return Sample{}, err
		}
		ready := time.Since(begin)
		return Sample{Value: ready.Seconds() * 1e3}, process.Stop()
	}, peers.Prepare(ctx, g)
}

// idleMemory is memory of a node that is ready and idle.
func (s schedule) idleMemory(held func(*testbed.Process) (int64, error)) func(context.Context, *testbed.Testbed) (Measure, error) {
	return func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		return func(ctx context.Context) (Sample, error) {
			process, err := peers.StartToReady(ctx, g)
			if err != nil {
				return Sample{}, err
			}
			select {
			case <-time.After(s.idle):
			case <-ctx.Done():
				return Sample{}, ctx.Err()
			}
			bytes, err := held(process)
			if err != nil {
				return Sample{}, err
			}
			return Sample{Value: float64(bytes) / 1e6}, process.Stop()
		}, peers.Prepare(ctx, g)
	}
}
