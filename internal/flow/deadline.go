package flow

import (
	"context"
	"errors"
	"time"

	"micronode/fault"
)

// ErrClosed is the cause of the error that a closed queue, lane, bus or set of
// permits returns. Its kind is fault.Canceled: the component is going away.
var ErrClosed = &fault.Error{Kind: fault.Canceled, Detail: "closed"}

// Ended turns the end of ctx into a typed error of the operation: fault.Timeout
// if its deadline passed, fault.Canceled otherwise. A cause that was given when
// ctx was canceled stays visible to errors.Is; if it is a fault, its kind wins.
// Ended of a ctx that has not ended is nil.
func Ended(ctx context.Context, op string) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if _, typed := errors.AsType[*fault.Error](cause); typed {
		return fault.Wrap(op, cause)
	}
	return fault.WrapKind(op, fault.KindOf(err), cause)
}

// Remaining is the time until the deadline of ctx, never negative. It reports
// false if ctx has no deadline.
func Remaining(ctx context.Context) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return max(0, time.Until(deadline)), true
}

// Reserve returns a ctx that ends a little earlier than its parent, so that
// the caller has time left to answer after a call that used up all it was
// given. A parent without a deadline is only made cancelable.
func Reserve(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-reserve))
}

// Sleep waits for d or until ctx ends, whichever is first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return Ended(ctx, "sleep")
	}
}

// Join returns a ctx with the values and the deadline of the first that also
// ends when the second does, with the second's cause. It is for work that has
// two reasons to stop: the caller has left, or the worker is stopping.
func Join(ctx, other context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return joined, func() {
		detach()
		cancel(context.Canceled)
	}
}
