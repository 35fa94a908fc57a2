package flow_test

import (
	"context"
	"testing"

	"micronode/internal/flow"
)

// The cost of a push and a pop beside a buffered channel's, and the number of
// allocations, which is zero. bench/ holds the two against each other.

func BenchmarkQueuePushPop(b *testing.B) {
	q := flow.NewQueue[*int](flow.NewInventory(), flow.QueueSpec{Service: "node", Name: "work", Cap: 256})
	item, ctx := new(int), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = q.TryPush(item)
		_, _ = q.Pop(ctx)
	}
}

func BenchmarkChannelPushPop(b *testing.B) {
	c := make(chan *int, 256)
	item, ctx := new(int), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		select {
		case c <- item:
		default:
		}
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
}

func BenchmarkSnapshotLoad(b *testing.B) {
	snap := flow.NewSnapshot(flow.NewInventory(), flow.SnapshotSpec{Service: "node", Name: "config"}, new(int))
	b.ReportAllocs()
	for b.Loop() {
		_ = snap.Load()
	}
}

func BenchmarkLaneEnterLeave(b *testing.B) {
	lane := flow.NewLane(flow.NewInventory(), flow.LaneSpec{Service: "store", Name: "put", Running: 8})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = lane.Enter(ctx)
		lane.Leave()
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	inv := flow.NewInventory()
	q := flow.NewQueue[*int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})
	lane := flow.NewLane(inv, flow.LaneSpec{Service: "store", Name: "put", Running: 1})
	snap := flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "node", Name: "config"}, new(int))
	item, ctx := new(int), context.Background()
	for name, path := range map[string]func(){
		"push, push to a full queue and pop": func() { _ = q.TryPush(item); _ = q.TryPush(item); _, _ = q.Pop(ctx) },
		"enter, enter a full lane and leave": func() { _ = lane.Enter(ctx); _ = lane.Enter(ctx); lane.Leave() },
		"load":                               func() { _ = snap.Load() },
	} {
		if n := testing.AllocsPerRun(100, path); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
