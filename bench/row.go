package main

import (
	"context"
	"fmt"
	"time"

	"micronode/bench/testbed"
)

// Benchmark is something that is measured: a Row or an Axis.
type Benchmark interface {
	Title() string
	Run(ctx context.Context, g *testbed.Testbed) (Result, error)
}

// Row is one comparison, or, without a peer, one figure.
type Row struct {
	Name   string
	Unit   string
	CPUOf  string  // whose processor time is reported; empty: the server's
	Lower  bool    // lower is better: a cost, not a rate
	Bar    float64 // what must be reached: the ratio ours/peer, or without a peer the figure; 0: for information
	Aim    float64 // what should be reached; 0: the bar
	Rounds int     // turns for each side
	Ours   Side
	Peer   Side // without a name: none
}

// Side is one of the two.
type Side struct {
	Name string
	// Start sets it up on the testbed and returns how to measure it once.
	Start func(ctx context.Context, g *testbed.Testbed) (Measure, error)
}

// Measure takes one turn.
type Measure func(ctx context.Context) (Sample, error)

// Sample is the result of one turn.
type Sample struct {
	Value    float64
	P50, P99 time.Duration // of a response; 0 if that is not what is measured
	CPU      time.Duration // of the server, per response; 0 likewise
}

// Title is the name of the row.
func (r Row) Title() string { return r.Name }

// Run measures both sides in turns, ours, peer, ours, peer, so that noise of
// the machine affects both.
func (r Row) Run(ctx context.Context, g *testbed.Testbed) (Result, error) {
	sides := []Side{r.Ours}
	if r.Peer.Name != "" {
		sides = append(sides, r.Peer)
	}
	series, err := alternate(ctx, g, sides, r.CPUOf, r.Rounds)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: r.Name, Unit: r.Unit, Lower: r.Lower, Bar: r.Bar, Aim: r.Aim, Ours: series[0]}
	if len(series) > 1 {
		result.Peer = series[1]
	}
	return result.withVerdict(), nil
}

// alternate starts all sides, then measures each once, again and again.
func alternate(ctx context.Context, g *testbed.Testbed, sides []Side, cpuOf string, rounds int) ([]*Series, error) {
	measures, series := make([]Measure, len(sides)), make([]*Series, len(sides))
	for i, side := range sides {
		measure, err := side.Start(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.Name, err)
		}
		measures[i], series[i] = measure, &Series{Name: side.Name, CPUOf: cpuOf}
	}
	for range rounds {
		for i, measure := range measures {
			// A measurement may ignore the context; it is checked between two.
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sample, err := measure(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].Name, err)
			}
			series[i].add(sample)
		}
	}
	return series, nil
}
