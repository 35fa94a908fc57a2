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

// fakeStore is a store that answers or does not.
type fakeStore struct {
	store.Opener
	mu  sync.Mutex
	err error // guarded by mu
}

func (f *fakeStore) Stat(context.Context, b3.Address) (store.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return store.Info{}, f.err
}

// setErr sets its further answers.
func (f *fakeStore) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Readiness follows a store that goes down and comes up again.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "one"}}, DrainTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		readiness := observe.NewReadiness(flow.NewInventory(), supervisor)
		remote := &fakeStore{err: fault.New("store.stat", fault.NotFound, "no such object")}
		watch := storeMonitor{store: remote, dependency: readiness.Dependency("store", "reach", observe.ForReads)}
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
			remote.setErr(step.err)
			time.Sleep(storeProbeInterval + time.Second)
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
