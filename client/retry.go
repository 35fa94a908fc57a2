package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"micronode/fault"
)

// Retry configures how calls are retried. A zero field has the default of the
// contract: 3 tries, pauses of 50–100 ms that double up to 2 s.
type Retry struct {
	Tries int           // in all; 1 disables retries
	First time.Duration // the shortest first pause; the longest is twice that
	Cap   time.Duration // no pause of our own is longer
}

// withDefaults fills in the defaults.
func (r Retry) withDefaults() (Retry, error) {
	if r.Tries < 0 || r.First < 0 || r.Cap < 0 {
		return r, optionError("Leave a field zero for its default.", "a field of Retry is negative")
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

// backoff is how long to wait after the nth try has failed. The jitter keeps
// clients that failed together from retrying together.
func (r Retry) backoff(n int) time.Duration {
	wait := r.First + rand.N(r.First+1)
	for ; n > 1 && wait < r.Cap; n-- {
		wait *= 2
	}
	return min(wait, r.Cap)
}

// waitRetry waits until the next try may begin. It returns the error at once
// if there is none: the tries are used up, a retry cannot help, the pause
// would outlive the deadline, or it is longer than the client's timeout.
func (c *Client) waitRetry(ctx context.Context, n int, failed error) error {
	own, _ := errors.AsType[*fault.Error](failed)
	if own == nil || n >= c.retry.Tries || !own.Kind.Retryable() {
		return failed
	}
	pause := c.retry.backoff(n)
	if cause, _ := errors.AsType[*callCause](failed); cause != nil && cause.status != 0 { // a node has answered, and knows; what no node has answered is a hint for our caller
		pause = max(pause, own.RetryAfter)
	}
	if end, ok := ctx.Deadline(); pause > c.timeout || ok && time.Until(end) <= pause {
		return failed
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &fault.Error{Op: own.Op, Kind: fault.KindOf(ctx.Err()), Detail: "cancelled before the next attempt",
			Err: fmt.Errorf("%w; the last attempt: %w", ctx.Err(), failed)}
	}
}
