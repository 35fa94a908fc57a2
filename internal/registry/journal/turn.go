package journal

import (
	"context"

	"micronode/internal/flow"
)

// turn lets one caller at a time do something that may take long. It is not a
// mutex: who waits for it can be called away.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. Who has left does not get it.
func (t turn) take(ctx context.Context, op string) error {
	if err := flow.Ended(ctx, op); err != nil {
		return err
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return flow.Ended(ctx, op)
	}
}

func (t turn) give() { <-t }
