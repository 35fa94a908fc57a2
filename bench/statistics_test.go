package main

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 9, 2}, 3},
	} {
		before := slices.Clone(c.values)
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("the order of the turns was lost: %v", c.values)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
}

func TestSpreadIsOfTurnsThatFollowEachOther(t *testing.T) {
	// The machine became half as fast in the second turn: both sides did, and
	// the ratio stayed.
	low, high := spread([]float64{100, 50, 100}, []float64{50, 25, 40})
	if low != 2 || high != 2.5 {
		t.Errorf("from %v to %v, want 2 to 2.5", low, high)
	}
}

// The slope of a power law is found whatever its scale.
func TestTenfold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Float64Range(0.1, 10).Draw(t, "slope")
		scale := rapid.Float64Range(0.001, 1e6).Draw(t, "scale")
		sizes := []int{1, 32, 1000, 100_000}
		var values []float64
		for _, size := range sizes {
			values = append(values, scale*math.Pow(want, math.Log10(float64(size))))
		}
		if got := tenfold(sizes, values); math.Abs(got/want-1) > 1e-6 {
			t.Fatalf("slope %v, want %v", got, want)
		}
	})
}
