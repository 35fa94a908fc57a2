package search

import "testing"

// A small catalogue is written in small batches: what is analysed at a time
// takes many times its size.
func TestBatchesFitTheCatalogue(t *testing.T) {
	for catalogue, want := range map[int64]int{128 << 20: 4 << 20, 1 << 40: 4 << 20, 8 << 20: 512 << 10, 1 << 20: 64 << 10, 0: 64 << 10} {
		if got := batchBytes(catalogue); got != want {
			t.Errorf("a catalogue of %d bytes: %d, want %d", catalogue, got, want)
		}
	}
}
