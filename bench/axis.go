package main

import (
	"context"

	"micronode/bench/testbed"
)

// Axis measures how a cost grows: the same work at several sizes. Its figure is
// what a tenfold size multiplies the value by. A peer at the same sizes shows
// how much of that is the machine's (its caches, its cores) and not ours.
type Axis struct {
	Name   string
	Unit   string // of the value at one size
	Of     string // what grows
	Sizes  []int
	CPUOf  string  // whose processor time is reported; empty: the server's
	Bar    float64 // of the ratio of the two slopes, or of ours without a peer; 0: for information
	Rounds int
	Ours   func(size int) Side
	Peer   func(size int) Side // nil: none
}

// Title is the name of the axis.
func (a Axis) Title() string { return a.Name }

// Run measures all sizes of both sides in each round, so that noise of the
// machine does not look like a slope.
func (a Axis) Run(ctx context.Context, g *testbed.Testbed) (Result, error) {
	var sides []Side
	for _, size := range a.Sizes {
		sides = append(sides, a.Ours(size))
		if a.Peer != nil {
			sides = append(sides, a.Peer(size))
		}
	}
	series, err := alternate(ctx, g, sides, a.CPUOf, a.Rounds)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: a.Name, Unit: "× per tenfold " + a.Of, Bar: a.Bar}
	each := len(series) / len(a.Sizes)
	for i, size := range a.Sizes {
		at := series[i*each : (i+1)*each]
		result.Points = append(result.Points, Point{Size: size, Of: a.Of, Unit: a.Unit, Ours: at[0]})
		if a.Peer != nil {
			result.Points[i].Peer = at[1]
		}
	}
	result.Ours = slopes(result.Points, func(p Point) *Series { return p.Ours })
	if a.Peer != nil {
		result.Peer = slopes(result.Points, func(p Point) *Series { return p.Peer })
	}
	return result.withVerdict(), nil
}

// slopes is the slope of each round. The figure of all is not their median but
// the slope through the medians of the points: a round with one outlier would
// tilt the former.
func slopes(points []Point, of func(Point) *Series) *Series {
	slope := &Series{Name: of(points[0]).Name}
	fit := func(value func(*Series) float64) float64 {
		var sizes []int
		var values []float64
		for _, point := range points {
			sizes, values = append(sizes, point.Size), append(values, value(of(point)))
		}
		return tenfold(sizes, values)
	}
	for round := range of(points[0]).Values {
		slope.Values = append(slope.Values, fit(func(s *Series) float64 { return s.Values[round] }))
	}
	slope.Figure = fit(func(s *Series) float64 { return s.Figure })
	return slope
}
