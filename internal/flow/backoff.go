package flow

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait between attempts. A delay is drawn from a range, so
// that callers that failed together do not retry together. Both ends of the range
// double with every attempt, until the upper one has reached Max.
type Backoff struct {
	Min   time.Duration // the shortest first delay
	First time.Duration // the limit of the first delay
	Max   time.Duration // the limit of all delays

	// FullJitter leaves the lower end at Min. It spreads the callers most, and
	// the mean delay is half as long: for what should be back soon.
	FullJitter bool
}

// Limit is the longest delay after n earlier ones: First, doubled n times, and
// not above Max.
func (b Backoff) Limit(n int) time.Duration {
	limit := min(b.First, b.Max)
	for ; n > 0 && limit < b.Max; n-- {
		if limit > b.Max/2 {
			return b.Max
		}
		limit *= 2
	}
	return limit
}

// Delay draws the delay after n earlier ones: at most Limit(n), and at least the
// same share of it as Min is of First.
func (b Backoff) Delay(n int) time.Duration {
	limit, shortest := b.Limit(n), b.Min
	if !b.FullJitter {
		shortest = time.Duration(float64(limit) * float64(b.Min) / float64(max(b.First, 1)))
	}
	return shortest + rand.N(max(0, limit-shortest)+1)
}

// Wait waits for Delay(n) and reports whether there is time for another attempt.
// It does not start a wait that would exceed the deadline of ctx.
func (b Backoff) Wait(ctx context.Context, n int) bool {
	delay := b.Delay(n)
	if left, bounded := Remaining(ctx); bounded && left <= delay {
		return false
	}
	return Sleep(ctx, delay) == nil
}
