package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"micronode/fault"
)

// Retry says how a call that may be repeated is repeated. A zero field has the
// default of the contract: 3 tries, pauses of 50–100 ms that double up to 2 s.
type Retry struct {
	Tries int           // in all; 1 means that nothing is repeated
	First time.Duration // the shortest first pause; the longest is twice that
	Cap   time.Duration // no pause of our own is longer
}

// settled fills in the defaults.
func (r Retry) settled() (Retry, error) {
	if r.Tries < 0 || r.First < 0 || r.Cap < 0 {
		return r, wrong("Leave a field zero for its default.", "a field of Retry is negative")
	}
	if r.Tries == 0 {
		r.Tries = 3
	}
	if r.First == 0 {
		r.First = 50 * time.Millisecond
	}
	if r.Cap == 0 {
		r.Cap = 2 * time.Second
	}
	return r, nil
}

// pause is how long to wait after the nth try has failed. The jitter keeps
// those who failed together from coming back together.
func (r Retry) pause(n int) time.Duration {
	wait := r.First + rand.N(r.First+1)
	for ; n > 1 && wait < r.Cap; n-- {
		wait *= 2
	}
	return min(wait, r.Cap)
}

// again waits until the next try may begin. It returns the error at once if
// there is none: because the tries are used up, because a retry cannot help,
// or because nobody would be there any more to see it: the pause would outlive
// the deadline, or is longer than this client waits for anything.
func (c *Client) again(ctx context.Context, n int, failed error) error {
	own, _ := errors.AsType[*fault.Error](failed)
	if own == nil || n >= c.retry.Tries || !own.Kind.Retryable() {
		return failed
	}
	pause := max(c.retry.pause(n), own.RetryAfter)
	if end, ok := ctx.Deadline(); pause > c.timeout || ok && time.Until(end) <= pause {
		return failed
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &fault.Error{Op: own.Op, Kind: fault.KindOf(ctx.Err()), Detail: "given up before the next try",
			Err: fmt.Errorf("%w; the last try: %w", ctx.Err(), failed)}
	}
}
