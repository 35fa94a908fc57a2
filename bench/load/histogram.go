package load

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that are 1/64 of a power of two wide,
// so that a quantile is right to 1.6 %, whatever its size. The zero value is
// empty. It never allocates.
type Histogram struct {
	counts [buckets]uint32
	total  uint64
}

const (
	fineBits = 6 // each power of two is cut into 1<<fineBits buckets
	buckets  = (64 - fineBits) << fineBits
)

// Add counts one duration. Below zero is zero.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucketOf(uint64(max(d, 0)))]++
	h.total++
}

// Merge adds the counts of another one.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.total }

// Quantile is the duration that the given share of all does not exceed; zero
// if there is none.
func (h *Histogram) Quantile(share float64) time.Duration {
	rank, seen := uint64(share*float64(h.total)), uint64(0)
	for i, n := range h.counts {
		seen += uint64(n)
		if n > 0 && seen > min(rank, h.total-1) {
			return time.Duration(bucketUpperBound(i))
		}
	}
	return 0
}

// bucketOf is the bucket of a value: exact below 64, then the leading bits.
func bucketOf(v uint64) int {
	if v < 1<<fineBits {
		return int(v)
	}
	shift := bits.Len64(v) - fineBits - 1
	return min(shift<<fineBits+int(v>>shift), buckets-1)
}

// bucketUpperBound is the largest value of a bucket.
func bucketUpperBound(bucket int) uint64 {
	if bucket < 2<<fineBits {
		return uint64(bucket)
	}
	shift := bucket>>fineBits - 1
	leading := uint64(bucket - shift<<fineBits)
	return (leading+1)<<shift - 1
}
