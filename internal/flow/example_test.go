package flow_test

import (
	"context"
	"errors"
	"fmt"

	"micronode/fault"
	"micronode/internal/flow"
)

// A queue refuses when it is full, returns what it holds after it was closed,
// and all of it can be read from the inventory.
func Example() {
	inv := flow.NewInventory()
	work := flow.NewQueue[string](inv, flow.QueueSpec{
		Service: "node", Name: "work", Cap: 2, Policy: flow.RejectNew, From: "gateway", To: "workers",
	})

	for _, job := range []string{"first", "second", "third"} {
		if err := work.TryPush(job); errors.Is(err, fault.Busy) {
			fmt.Println(job, "refused:", err)
		}
	}
	work.Close()

	for {
		job, err := work.Pop(context.Background())
		if errors.Is(err, flow.ErrClosed) {
			break
		}
		fmt.Println(job, "done")
	}
	for _, part := range inv.Read() {
		fmt.Printf("%s %s/%s: accepted %d, refused %d\n", part.Kind, part.Service, part.Name, part.Accepted, part.Refused)
	}
	// Output:
	// third refused: queue node/work: Queue full
	// first done
	// second done
	// queue node/work: accepted 2, refused 1
}

// Two topics share the queue to one peer. One of them floods it; the other
// still gets every second turn, and when the queue is full the items of the
// flood are evicted.
func ExampleFair() {
	const gossip = 1 // the first band; flow.Urgent goes before it
	inv := flow.NewInventory()
	egress := flow.NewFair[string](inv, flow.FairSpec{
		Service: "overlay", Quantum: 1000, From: "engine", To: "writer", Each: "session",
		Urgent: flow.BandSpec{Name: "control", Cap: 8, Bytes: 4000},
		Bands:  []flow.BandSpec{{Name: "gossip_egress", Cap: 4, Bytes: 8000}},
	})
	flood, quiet := uint64(1), uint64(2)
	turned := egress.Offer(gossip, []flow.FairItem[string]{
		{Class: flood, Cost: 1000, Item: "flood 1"}, {Class: flood, Cost: 1000, Item: "flood 2"},
		{Class: flood, Cost: 1000, Item: "flood 3"}, {Class: flood, Cost: 1000, Item: "flood 4"},
		{Class: flood, Cost: 1000, Item: "flood 5"}, {Class: quiet, Cost: 1000, Item: "quiet 1"},
	}, nil)
	fmt.Println("turned away:", turned)
	_ = egress.TryPush(flow.Urgent, flow.FairItem[string]{Cost: 50, Item: "ping"})
	egress.Close()

	batch := make([]string, 3)
	for {
		n, err := egress.Take(context.Background(), batch, 64_000)
		if errors.Is(err, flow.ErrClosed) {
			break
		}
		fmt.Println("written:", batch[:n])
	}
	// Output:
	// turned away: [flood 5 flood 4]
	// written: [ping flood 1 quiet 1]
	// written: [flood 2 flood 3]
}

// A slow reader of a bus loses the oldest events and catches up from the
// snapshot that the writer keeps.
func ExampleBus() {
	inv := flow.NewInventory()
	head := flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "registry", Name: "head", From: "committer"}, 0)
	bus := flow.NewBus[int](inv, flow.BusSpec{Service: "registry", Name: "committed", Cap: 2, Readers: 8, From: "committer"})

	reader, _ := bus.Subscribe("publisher", func(_ context.Context, missed uint64) error {
		fmt.Printf("missed %d, head is %d\n", missed, head.Load())
		return nil
	})
	for version := 1; version <= 5; version++ {
		head.Store(version)
		_ = bus.Publish(version)
	}
	bus.Close()

	for {
		version, err := reader.Recv(context.Background())
		if err != nil {
			break
		}
		fmt.Println("version", version)
	}
	// Output:
	// missed 3, head is 5
	// version 4
	// version 5
}
