package node

import (
	"context"
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
	err error
}

func (f *far) Stat(context.Context, b3.Address) (store.Info, error) { return store.Info{}, f.err }

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
			remote.err = step.err
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
