package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// clumsy is an index that dies over the first object that it is asked for.
type clumsy struct {
	finder
	asked int
}

func (c *clumsy) Fetch(context.Context, b3.Address) (store.Info, bool, error) {
	if c.asked++; c.asked == 1 {
		panic("what is this")
	}
	return store.Info{}, true, nil
}

// Whoever waits for an object whose fetching died is told, and the next one who
// asks for it has it fetched.
func TestAnObjectThatNeverArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stageState}}, Total: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := supervisor.NewGroup(supervise.GroupSpec{Service: "edge", Kind: "bring", Stage: stageState, Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		index := &clumsy{}
		c := &content{finder: func() finder { return index }, tasks: tasks, onWay: map[b3.Address]*bringing{}}
		bring := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return c.Bring(ctx, b3.Of([]byte("a")))
		}
		if err := bring(); fault.KindOf(err) != fault.Internal {
			t.Errorf("the first who asked: %v", err)
		}
		synctest.Wait() // until its task is gone, and there is room for another
		if err := bring(); err != nil {
			t.Errorf("the next one: %v", err)
		}
		tasks.Close()
		if err := tasks.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
