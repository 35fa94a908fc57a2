package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A quantile is that of the sorted values, to the width of a bucket.
func TestQuantileIsThatOfTheSortedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 300).Draw(t, "values")
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		var h Histogram
		for _, v := range values {
			h.Add(time.Duration(v))
		}
		slices.Sort(values)
		exact := values[min(int(share*float64(len(values))), len(values)-1)]
		got := int64(h.Quantile(share))
		if got < exact || float64(got) > float64(exact)*1.016 {
			t.Fatalf("quantile %v of %v: %d, want %d", share, values, got, exact)
		}
	})
}

func TestMergedHistogramsCountAsOne(t *testing.T) {
	var slow, fast Histogram
	for range 99 {
		fast.Add(time.Millisecond)
	}
	slow.Add(time.Second)
	slow.Add(-time.Second) // a clock that steps back counts as zero
	fast.Merge(&slow)
	if got := fast.Count(); got != 101 {
		t.Errorf("count %d, want 101", got)
	}
	if got := fast.Quantile(1); got < time.Second {
		t.Errorf("the largest is %s, want a second", got)
	}
	if got := fast.Quantile(0); got != 0 {
		t.Errorf("the smallest is %s, want 0", got)
	}
}

func TestQuantileOfNothingIsZero(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("got %s", got)
	}
}

func TestTheLargestDurationHasABucket(t *testing.T) {
	var h Histogram
	h.Add(1<<63 - 1)
	if got := h.Quantile(0.5); got < time.Hour {
		t.Errorf("got %s", got)
	}
}
