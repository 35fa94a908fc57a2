package main

import (
	"math"
	"slices"
)

// median is the middle of the values, the mean of the two middle ones if their
// number is even. Of nothing it is NaN, which passes no bar.
func median(values []float64) float64 {
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 0:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[n/2]
}

// spread is the smallest and the largest of the ratios of consecutive turns. It
// shows how much of a ratio is noise of the machine.
func spread(ours, peer []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i := range min(len(ours), len(peer)) {
		ratio := ours[i] / peer[i]
		low, high = min(low, ratio), max(high, ratio)
	}
	return low, high
}

// tenfold is what a value is multiplied by when its size grows tenfold: the
// slope of the line through the logarithms, by least squares. 1 is flat.
func tenfold(sizes []int, values []float64) float64 {
	var meanX, meanY float64
	n := float64(len(sizes))
	for i, size := range sizes {
		meanX += math.Log10(float64(size)) / n
		meanY += math.Log10(values[i]) / n
	}
	var xy, xx float64
	for i, size := range sizes {
		dx := math.Log10(float64(size)) - meanX
		xy += dx * (math.Log10(values[i]) - meanY)
		xx += dx * dx
	}
	return math.Pow(10, xy/xx)
}
