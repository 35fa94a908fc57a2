package node

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
)

const (
	reachPause   = 10 * time.Second // between two looks
	reachTimeout = 5 * time.Second  // for one
)

// reach asks a store on another machine, now and then, whether it answers, so
// that readiness tells the truth about it before somebody's request does.
type reach struct {
	store      store.Opener
	dependency *observe.Dependency
}

// Serve looks until ctx ends.
func (r reach) Serve(ctx context.Context) error {
	for {
		r.look(ctx)
		if flow.Sleep(ctx, reachPause) != nil {
			return nil // told to stop
		}
	}
}

// look asks for an object. That it is not there is an answer like any other.
func (r reach) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	_, err := r.store.Stat(limited, b3.Of([]byte("is there anybody")))
	switch {
	case err == nil, fault.KindOf(err) == fault.NotFound:
		r.dependency.Up()
	case ctx.Err() == nil:
		r.dependency.Down("the store does not answer: "+fault.DetailOf(err), fault.NextOf(err))
	}
}
