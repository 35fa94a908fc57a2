package node

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// panickingFinder is an index that panics at the first object.
type panickingFinder struct {
	objectFinder
	asked int
}

func (p *panickingFinder) Fetch(context.Context, b3.Address) (store.Info, bool, error) {
	if p.asked++; p.asked == 1 {
		panic("what is this")
	}
	return store.Info{}, true, nil
}

func (p *panickingFinder) IsArriving(b3.Address) (is bool, changed <-chan struct{}) {
	return false, nil
}

// A caller that waits for an object whose fetch panicked gets an error, and the
// next request starts a new fetch.
func TestAnObjectThatNeverArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stageState}}, DrainTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := supervisor.NewGroup(supervise.GroupSpec{Service: "edge", Kind: "bring", Stage: stageState, Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		index := &panickingFinder{}
		c := &edgeContent{index: func() objectFinder { return index }, tasks: tasks, flights: map[b3.Address]*flight{}, flightsByClient: map[netip.Addr]int{}}
		bring := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return c.Fetch(ctx, netip.Addr{}, b3.Of([]byte("a")))
		}
		if err := bring(); fault.KindOf(err) != fault.Internal {
			t.Errorf("the first who asked: %v", err)
		}
		synctest.Wait() // until its task has ended, and there is room for another
		if err := bring(); err != nil {
			t.Errorf("the next one: %v", err)
		}
		tasks.Close()
		if err := tasks.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// blockingFinder is an index whose fetches block until they are released.
type blockingFinder struct {
	objectFinder
	release chan struct{}
}

func (*blockingFinder) IsArriving(b3.Address) (is bool, changed <-chan struct{}) { return false, nil }

func (b *blockingFinder) Fetch(ctx context.Context, _ b3.Address) (store.Info, bool, error) {
	select {
	case <-b.release:
		return store.Info{}, true, nil
	case <-ctx.Done():
		return store.Info{}, false, ctx.Err()
	}
}

// A client that starts fetches without end, and waits for none of them, leaves
// capacity for others. When its objects have come, it has its share again.
func TestOneClientHasEverythingFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stageState}}, DrainTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := supervisor.NewGroup(supervise.GroupSpec{Service: "edge", Kind: "bring", Stage: stageState, Max: maxFlights})
		if err != nil {
			t.Fatal(err)
		}
		index := &blockingFinder{release: make(chan struct{})}
		c := &edgeContent{index: func() objectFinder { return index }, tasks: tasks, flights: map[b3.Address]*flight{}, flightsByClient: map[netip.Addr]int{}}
		ask := func(from string, n int) (begun int) {
			for i := range n {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				err := c.Fetch(ctx, netip.MustParseAddr(from), b3.Of(fmt.Append(nil, from, i)))
				cancel()
				switch kind := fault.KindOf(err); {
				case kind == fault.Timeout:
					begun++
				case kind != fault.Busy || fault.NextOf(err) == "":
					t.Fatalf("%s, object %d: %v", from, i, err)
				}
			}
			return begun
		}
		for range 2 {
			if n := ask("192.0.2.1", 2*maxFlights); n != maxFlights/2 {
				t.Errorf("one client has %d objects fetched at a time", n)
			}
			if n := ask("192.0.2.2", 2*maxFlights); n < maxFlights/4 {
				t.Errorf("another has %d", n)
			}
			if n := ask("192.0.2.3", 1); n != 1 {
				t.Error("a third one has none")
			}
			close(index.release)
			synctest.Wait()
			index.release = make(chan struct{})
			if len(c.flights) != 0 || len(c.flightsByClient) != 0 {
				t.Errorf("%d objects of %d clients are on their way", len(c.flights), len(c.flightsByClient))
			}
		}
		tasks.Close()
		if err := tasks.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
