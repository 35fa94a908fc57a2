package flow_test

import (
	"context"
	"fmt"
	"testing"

	"micronode/internal/flow"
)

// The cost of a push and a pop beside a buffered channel's, and the number of
// allocations, which is zero. bench/ compares the two.

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

// BenchmarkFair is the egress of a session: batches of 64 frames of 1 KiB in,
// batches of 64 out. The figure is for one frame.
func BenchmarkFair(b *testing.B) {
	for _, classes := range []uint64{1, 8} {
		b.Run(fmt.Sprintf("%d classes", classes), func(b *testing.B) {
			f, batch := fairBatch(64, classes)
			into, ctx := make([]*int, 64), context.Background()
			b.ReportAllocs()
			for done := 0; done < b.N; done += 64 {
				_ = f.Offer(1, batch, nil)
				_, _ = f.Take(ctx, into, 1<<20)
			}
		})
	}
	// The expensive cases: a full queue of many classes, where a flood is
	// refused, and where an item of a class without any evicts one of the
	// richest.
	b.Run("refused", func(b *testing.B) {
		f, _ := fairFull(b)
		flood, turned := []flow.FairItem[*int]{{Class: 0, Cost: 1024}}, make([]*int, 0, 1)
		b.ReportAllocs()
		for b.Loop() {
			_ = f.Offer(1, flood, turned)
		}
	})
	b.Run("displaced", func(b *testing.B) {
		f, classes := fairFull(b)
		one, turned := []flow.FairItem[*int]{{Cost: 1024}}, make([]*int, 0, 1)
		b.ReportAllocs()
		for class := classes; b.Loop(); class++ {
			one[0].Class = class % 1000
			_ = f.Offer(1, one, turned)
		}
	})
}

func fairBatch(n int, classes uint64) (*flow.Fair[*int], []flow.FairItem[*int]) {
	f := flow.NewFair[*int](flow.NewInventory(), flow.FairSpec{
		Service: "overlay", Quantum: 4096, Bands: []flow.BandSpec{{Name: "gossip_egress", Cap: 512, Bytes: 4 << 20}},
	})
	var batch []flow.FairItem[*int]
	for i := range n {
		batch = append(batch, flow.FairItem[*int]{Class: uint64(i) % classes, Cost: 1024, Item: new(int)})
	}
	return f, batch
}

// fairFull is a queue with one item in each of 100 classes and a flood in the
// first.
func fairFull(b *testing.B) (f *flow.Fair[*int], classes uint64) {
	f, batch := fairBatch(100, 100)
	f.Offer(1, batch, nil)
	for f.TryPush(1, batch[0]) == nil {
	}
	if f.Len(1) != 512 {
		b.Fatalf("%d items", f.Len(1))
	}
	return f, 100
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	inv := flow.NewInventory()
	q := flow.NewQueue[*int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})
	lane := flow.NewLane(inv, flow.LaneSpec{Service: "store", Name: "put", Running: 1})
	snap := flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "node", Name: "config"}, new(int))
	fair, batch := fairBatch(64, 8)
	into, turned := make([]*int, 64), make([]*int, 0, 64)
	permits := flow.NewPermits(inv, flow.PermitsSpec{Service: "overlay", Name: "inflight", Cap: 64})
	item, ctx := new(int), context.Background()
	for name, path := range map[string]func(){
		"push, push to a full queue and pop": func() { _ = q.TryPush(item); _ = q.TryPush(item); _, _ = q.Pop(ctx) },
		"enter, enter a full lane and leave": func() { _ = lane.Enter(ctx); _ = lane.Enter(ctx); lane.Leave() },
		"load":                               func() { _ = snap.Load() },
		"offer and take a batch":             func() { _ = fair.Offer(1, batch, turned); _, _ = fair.Take(ctx, into, 1<<20) },
		"permits for a batch":                func() { permits.ReleaseMany(permits.TryAcquire(100)) },
	} {
		if n := testing.AllocsPerRun(100, path); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
