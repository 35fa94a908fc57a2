package main

import (
	"context"
	"fmt"
	"time"

	"micronode/bench/ground"
)

// Work is something that is measured: a Row or an Axis.
type Work interface {
	Title() string
	Run(ctx context.Context, g *ground.Ground) (Result, error)
}

// Row is one comparison, or, without a peer, one figure.
type Row struct {
	Name    string
	Unit    string
	Spender string  // whose processor time is told; empty: the server's
	Lower   bool    // lower is better: a cost, not a rate
	Bar     float64 // what must be reached: the ratio ours/peer, or without a peer the figure; 0: for information
	Aim     float64 // what should be reached; 0: the bar
	Rounds  int     // turns for each side
	Ours    Side
	Peer    Side // without a name: none
}

// Side is one of the two.
type Side struct {
	Name string
	// Start sets it up on the ground and tells how to measure it once.
	Start func(ctx context.Context, g *ground.Ground) (Measure, error)
}

// Measure takes one turn.
type Measure func(ctx context.Context) (Sample, error)

// Sample is what one turn gave.
type Sample struct {
	Value    float64
	P50, P99 time.Duration // of an answer; 0 if that is not what is measured
	CPU      time.Duration // of the server, for an answer; 0 likewise
}

// Title is the name of the row.
func (r Row) Title() string { return r.Name }

// Run measures both sides in turns, ours, peer, ours, peer, so that a change of
// the machine's mood reaches both.
func (r Row) Run(ctx context.Context, g *ground.Ground) (Result, error) {
	sides := []Side{r.Ours}
	if r.Peer.Name != "" {
		sides = append(sides, r.Peer)
	}
	series, err := inTurns(ctx, g, sides, r.Spender, r.Rounds)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: r.Name, Unit: r.Unit, Lower: r.Lower, Bar: r.Bar, Aim: r.Aim, Ours: series[0]}
	if len(series) > 1 {
		result.Peer = series[1]
	}
	return result.judged(), nil
}

// inTurns starts all sides, then measures each once, again and again.
func inTurns(ctx context.Context, g *ground.Ground, sides []Side, spender string, rounds int) ([]*Series, error) {
	measures, series := make([]Measure, len(sides)), make([]*Series, len(sides))
	for i, side := range sides {
		measure, err := side.Start(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.Name, err)
		}
		measures[i], series[i] = measure, &Series{Name: side.Name, Spender: spender}
	}
	for range rounds {
		for i, measure := range measures {
			// A measurement may be deaf to the context; between two it is heard.
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
