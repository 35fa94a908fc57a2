package node

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// far is a store that answers or does not.
type far struct {
	store.Opener
	mu  sync.Mutex
	err error // guarded by mu
}

func (f *far) Stat(context.Context, b3.Address) (store.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return store.Info{}, f.err
}

// become sets what it answers from now on.
func (f *far) become(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Readiness follows a store that goes away and comes back.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "one"}}, Total: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		readiness := observe.NewReadiness(flow.NewInventory(), supervisor)
		remote := &far{err: fault.New("store.stat", fault.NotFound, "no such object")}
		watch := reach{store: remote, dependency: readiness.Dependency("store", "reach", observe.ForReads)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- watch.Serve(ctx) }()
		for _, step := range []struct {
			err     error
			missing bool
		}{
			{fault.New("store.stat", fault.NotFound, "no such object"), false},
			{fault.New("store.stat", fault.Timeout, "it took too long"), true},
			{nil, false},
		} {
			remote.become(step.err)
			time.Sleep(reachPause + time.Second)
			synctest.Wait()
			missing := false
			for _, dependency := range readiness.Evaluate().Missing {
				missing = missing || dependency == "store/reach"
			}
			if missing != step.missing {
				t.Errorf("after %v: missing %t", step.err, missing)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
