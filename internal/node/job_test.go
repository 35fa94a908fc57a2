package node

import (
	"context"
	"errors"
	"testing"

	"micronode/internal/supervise"
)

// When a worker is killed in the moment in which it has completed its job, the
// pool runs the job again. By then the caller reads its results, so the work
// must not be done a second time.
func TestWhatIsDoneIsNotDoneAgain(t *testing.T) {
	times := 0
	j := &job{caller: t.Context(), idempotent: true, done: make(chan error, 1), do: func(context.Context) error { times++; return nil }}
	killed, kill := context.WithCancelCause(t.Context())
	j.Run(killed)
	kill(supervise.ErrKilled)
	if err := <-j.done; err != nil {
		t.Errorf("the work was done, and the result is %v", err)
	}
	j.Run(t.Context())
	if times != 1 {
		t.Errorf("the work was done %d times", times)
	}
	j.Abandon(errors.New("late")) // nothing receives it: this must not block
}

// Work that failed because its worker was killed is repeated, and the second
// result counts.
func TestWhatAKilledWorkerLeavesIsDoneAgain(t *testing.T) {
	times := 0
	killed, kill := context.WithCancelCause(t.Context())
	j := &job{caller: t.Context(), idempotent: true, done: make(chan error, 1), do: func(ctx context.Context) error {
		if times++; times == 1 {
			kill(supervise.ErrKilled)
			<-ctx.Done()
		}
		return ctx.Err()
	}}
	j.Run(killed)
	j.Run(t.Context())
	if err := <-j.done; err != nil || times != 2 {
		t.Errorf("done %d times, result %v", times, err)
	}
}
