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
	storeProbeInterval = 10 * time.Second // between two probes
	storeProbeTimeout  = 5 * time.Second  // for one
)

// storeMonitor probes a store on another machine, now and then, so that
// readiness is right before a request fails.
type storeMonitor struct {
	store      store.Opener
	dependency *observe.Dependency
}

// Serve probes until ctx ends.
func (s storeMonitor) Serve(ctx context.Context) error {
	for {
		s.probe(ctx)
		if flow.Sleep(ctx, storeProbeInterval) != nil {
			return nil // stopped
		}
	}
}

// probe looks up an object. NotFound is an answer like any other.
func (s storeMonitor) probe(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, storeProbeTimeout)
	defer cancel()
	_, err := s.store.Stat(limited, b3.Of([]byte("is there anybody")))
	switch {
	case err == nil, fault.KindOf(err) == fault.NotFound:
		s.dependency.Up()
	case ctx.Err() == nil:
		s.dependency.Down("the store does not answer: "+fault.DetailOf(err), fault.NextOf(err))
	}
}
