package flow_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

// sharing makes queues as sessions have them, with one budget for all.
func sharing(n, bytes int) (budget *flow.SharedBytes, all []*flow.Fair[string]) {
	inv := flow.NewInventory()
	budget = flow.NewSharedBytes(bytes)
	for range n {
		all = append(all, flow.NewFair[string](inv, flow.FairSpec{
			Service: "overlay", Quantum: 100, Waiting: 1, Each: "session", Shared: budget,
			Urgent: flow.BandSpec{Name: "control", Cap: 100, Bytes: 1000},
			Bands:  []flow.BandSpec{{Name: "gossip_egress", Cap: 100, Bytes: 1000}, {Name: "chunks", Cap: 100, Bytes: 1000, Policy: flow.DropOldest}},
		}))
	}
	return budget, all
}

// Of what queues share, one holds at most as much as is left, so there is always
// something for the next. What left a queue, however it did, is free again.
func TestQueuesShareABudget(t *testing.T) {
	budget, all := sharing(3, 1200)
	fill := func(f *flow.Fair[string], band int) (n int) {
		for n < 50 && f.TryPush(band, flow.FairItem[string]{Class: 'a', Cost: 100, Item: "a"}) == nil {
			n++
		}
		return n
	}
	testkit.Equal(t, "the first", fill(all[0], 1), 6)
	testkit.Equal(t, "the second", fill(all[1], 1), 3)
	testkit.Equal(t, "the third, of another sort", fill(all[2], 2), 2)
	testkit.Equal(t, "what waits", budget.Used(), 1100)
	testkit.Equal(t, "what is urgent has the rest", fill(all[2], flow.Urgent), 1)
	testkit.Equal(t, "what waits", budget.Used(), 1200)
	if got := give(all[1], 100, "a4"); !slices.Equal(got, []string{"a4"}) {
		t.Errorf("turned away: %v", got)
	}
	if turned := all[2].Offer(2, []flow.FairItem[string]{{Class: 'a', Cost: 100, Item: "new"}}, nil); !slices.Equal(turned, []string{"new"}) {
		t.Errorf("turned away: %v", turned)
	}
	testkit.Equal(t, "the first leaves", drainAll(all[0], 4), strings.TrimSpace(strings.Repeat("a ", 6)))
	testkit.Equal(t, "what waits", budget.Used(), 600)
	testkit.Equal(t, "the third has room", fill(all[2], 1), 3)
	drainAll(all[1], 1)
	drainAll(all[2], 100)
	testkit.Equal(t, "in the end", budget.Used(), 0)
}

// A class gives way to another of the same queue, also when the shared budget is
// what is short.
func TestABudgetIsShortForClasses(t *testing.T) {
	budget, all := sharing(1, 1000)
	testkit.Equal(t, "turned away", len(give(all[0], 100, "a1", "a2", "a3", "a4", "a5", "a6")), 1)
	if got := give(all[0], 100, "b1", "b2", "b3"); !slices.Equal(got, []string{"a5", "a4", "b3"}) {
		t.Errorf("turned away: %v", got)
	}
	testkit.Equal(t, "left", drainAll(all[0], 9), "a1 b1 a2 b2 a3")
	testkit.Equal(t, "in the end", budget.Used(), 0)
}

// A producer waits for room that its own queue makes. Nobody would wake it for
// room that others make, so it does not wait for that.
func TestNobodyWaitsForTheRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := sharing(2, 1000)
		give(all[0], 100, "a1", "a2", "a3", "a4", "a5")
		got := make(chan error)
		go func() { got <- all[0].AwaitRoom(t.Context(), 1, 100) }()
		synctest.Wait()
		if _, err := all[0].Take(t.Context(), make([]string, 1), 1); err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "it waited for its own queue", <-got, nil)
	})
	_, all := sharing(2, 300)
	give(all[0], 100, "a1")
	give(all[0], 50, "a2")
	if err := all[1].AwaitRoom(t.Context(), 1, 200); fault.KindOf(err) != fault.Busy {
		t.Errorf("it may wait for ever: %v", err)
	}
}

// The budget is exact, however many queues use it at a time.
func TestABudgetIsSafe(t *testing.T) {
	budget, all := sharing(8, 2000)
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() {
			for range 500 {
				give(f, 30, "a1", "b2", "c3")
				into := make([]string, 2)
				_, _ = f.Take(context.Background(), into, 1<<20)
			}
			f.Close()
		})
	}
	group.Wait()
	for _, f := range all {
		drainAll(f, 10)
	}
	testkit.Equal(t, "in the end", budget.Used(), 0)
}
