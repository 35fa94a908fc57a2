package flow_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func workQueue(capacity int) *flow.Queue[int] {
	return flow.NewQueue[int](flow.NewInventory(), flow.QueueSpec{
		Service: "node", Name: "work", Cap: capacity, From: "gateway", To: "workers",
	})
}

func TestAFullQueueRefusesAtOnceAndSaysWhich(t *testing.T) {
	q := workQueue(2)
	for item := range 2 {
		if err := q.TryPush(item); err != nil {
			t.Fatal(err)
		}
	}
	err := q.TryPush(2)
	if !errors.Is(err, fault.Busy) || !strings.Contains(err.Error(), "node/work") {
		t.Fatalf("push to a full queue: %v", err)
	}
	if q.Len() != 2 || q.Cap() != 2 {
		t.Fatalf("%d of %d", q.Len(), q.Cap())
	}
}

func TestAClosedQueueGivesWhatItHoldsThenSaysClosed(t *testing.T) {
	q := workQueue(2)
	_ = q.TryPush(1)
	q.Close()
	if err := q.TryPush(2); !errors.Is(err, flow.ErrClosed) || fault.KindOf(err) != fault.Canceled {
		t.Fatalf("push: %v", err)
	}
	if item, err := q.Pop(t.Context()); item != 1 || err != nil {
		t.Fatalf("pop: %d, %v", item, err)
	}
	if _, err := q.Pop(t.Context()); !errors.Is(err, flow.ErrClosed) {
		t.Fatalf("pop of an empty closed queue: %v", err)
	}
}

func TestConsumersAreServedInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workQueue(4)
		var mu sync.Mutex
		got := map[int]int{} // item by consumer
		for consumer := range 4 {
			go func() {
				item, _ := q.Pop(context.Background())
				mu.Lock()
				got[consumer] = item
				mu.Unlock()
			}()
			synctest.Wait() // it is parked: the next comes after it
		}
		for item := range 4 {
			_ = q.TryPush(item)
		}
		synctest.Wait()
		for consumer, item := range got {
			if consumer != item {
				t.Errorf("consumer %d, who came %d., got item %d", consumer, consumer, item)
			}
		}
	})
}

func TestPopTellsADeadlineFromACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workQueue(1)
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := q.Pop(late); !errors.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "node/work") {
			t.Errorf("deadline: %v", err)
		}
		if _, err := q.Pop(late); !errors.Is(err, fault.Timeout) {
			t.Errorf("deadline passed before: %v", err)
		}
		draining := errors.New("draining")
		left, cancel := context.WithCancelCause(t.Context())
		go cancel(draining)
		if _, err := q.Pop(left); !errors.Is(err, fault.Canceled) || !errors.Is(err, draining) {
			t.Errorf("cancellation: %v", err)
		}
	})
}

func TestAQueueDoesNotKeepWhatItHandedOver(t *testing.T) {
	inv := flow.NewInventory()
	q := flow.NewQueue[*[64]byte](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})
	collected := make(chan struct{})
	item := new([64]byte)
	runtime.AddCleanup(item, func(c chan struct{}) { close(c) }, collected)
	_ = q.TryPush(item)
	_, _ = q.TryPop()
	awaitCollected(t, collected)
	runtime.KeepAlive(q) // the queue itself must outlive the item
}

func TestLaneWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := flow.NewLane(flow.NewInventory(), flow.LaneSpec{Service: "store", Name: "put", Running: 1, Waiting: 1})
		if err := lane.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() { second <- lane.Enter(t.Context()) }()
		synctest.Wait()
		if err := lane.Enter(t.Context()); !errors.Is(err, fault.Busy) {
			t.Errorf("third: %v", err)
		}
		lane.Leave()
		if err := <-second; err != nil {
			t.Errorf("second: %v", err)
		}
		lane.Leave()

		// A caller whose deadline passes while it waits has had a Timeout.
		_ = lane.Enter(t.Context())
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := lane.Enter(late); !errors.Is(err, fault.Timeout) {
			t.Errorf("late: %v", err)
		}
		lane.Leave()
	})
}

func TestPermitsAreBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := flow.NewPermits(flow.NewInventory(), flow.PermitsSpec{Service: "overlay", Name: "inflight", Cap: 1, Waiting: 1})
		_ = permits.Acquire(t.Context())
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err := permits.Acquire(late)
		if fault.KindOf(err) != fault.Backpressure || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("late: %v", err)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		if err := permits.Acquire(left); fault.KindOf(err) != fault.Canceled {
			t.Errorf("canceled: %v", err)
		}
		drain, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := permits.Drain(drain); !errors.Is(err, fault.Timeout) {
			t.Errorf("drain while one is out: %v", err)
		}
		permits.Release()
		if err := permits.Drain(t.Context()); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
}

func TestBusReaderMissesNothingWhileItKeepsUp(t *testing.T) {
	bus := flow.NewBus[string](flow.NewInventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 2, Readers: 1})
	_ = bus.Publish("before it came")
	reader, err := bus.Subscribe("audit", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, event := range []string{"a", "b", "c"} {
		_ = bus.Publish(event)
		if got, err := reader.Recv(t.Context()); got != event || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestBusLagIsReportedOnceAndCounted(t *testing.T) {
	inv := flow.NewInventory()
	bus := flow.NewBus[int](inv, flow.BusSpec{Service: "node", Name: "bus", Cap: 2, Readers: 1})
	reader, _ := bus.Subscribe("audit", nil)
	for event := range 5 {
		_ = bus.Publish(event)
	}
	if depth := inv.Read()[0].Depth; depth != 2 {
		t.Errorf("depth %d, want the 2 that are kept", depth)
	}
	_, err := reader.Recv(t.Context())
	if err == nil || err.Error() != "bus node/bus: audit fell behind and missed 3 events" || fault.KindOf(err) != fault.Lagging {
		t.Fatalf("lag: %v", err)
	}
	for _, want := range []int{3, 4} {
		if got, err := reader.Recv(t.Context()); got != want || err != nil {
			t.Fatalf("got %d, %v; want %d", got, err, want)
		}
	}
	if lagged := inv.Read()[0].Lagged["audit"]; lagged != 3 {
		t.Errorf("counted %d", lagged)
	}
}

func TestInventoryAddsUpSessions(t *testing.T) {
	inv := flow.NewInventory()
	spec := flow.QueueSpec{Service: "overlay", Name: "gossip_egress", Cap: 4, Policy: flow.DropOldest, Each: "session"}
	a, b := flow.NewQueue[int](inv, spec), flow.NewQueue[int](inv, spec)
	for range 6 {
		_ = a.TryPush(1)
	}
	_ = b.TryPush(1)
	stat := inv.Read()[0]
	if stat.Depth != 5 || stat.Accepted != 7 || stat.Dropped != 2 || stat.Instances != 2 || stat.Cap != 4 || stat.Policy != "drop-oldest" {
		t.Errorf("%+v", stat)
	}
	a.Retire()
	a.Retire()
	stat = inv.Read()[0]
	if stat.Depth != 1 || stat.Accepted != 7 || stat.Dropped != 2 || stat.Instances != 1 {
		t.Errorf("after one retired: %+v", stat)
	}
}

func TestInventoryKeepsLagOfClosedReaders(t *testing.T) {
	inv := flow.NewInventory()
	bus := flow.NewBus[int](inv, flow.BusSpec{Service: "node", Name: "bus", Cap: 1, Readers: 1})
	for range 2 {
		reader, _ := bus.Subscribe("stream", nil)
		for event := range 3 {
			_ = bus.Publish(event)
		}
		_, _ = reader.Recv(t.Context())
		reader.Close()
	}
	if lagged := inv.Read()[0].Lagged["stream"]; lagged != 4 {
		t.Errorf("two readers missed two each, counted %d", lagged)
	}
}

// Topics come and go, each with a bus: the counts stay, what was missed included.
func TestRetiredBusesKeepTheirCounts(t *testing.T) {
	inv := flow.NewInventory()
	spec := flow.BusSpec{Service: "overlay", Name: "deliveries", Cap: 1, Readers: 1, Each: "topic"}
	a, b := flow.NewBus[int](inv, spec), flow.NewBus[int](inv, spec)
	for _, bus := range []*flow.Bus[int]{a, b} {
		reader, err := bus.Subscribe("stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		for event := range 3 {
			_ = bus.Publish(event)
		}
		_, _ = reader.Recv(t.Context()) // reports the two that were missed
		_, _ = reader.Recv(t.Context())
	}
	for instances := 2; instances >= 0; instances-- {
		stat := inv.Read()[0]
		if stat.Instances != instances || stat.Each != "topic" || stat.Accepted != 6 || stat.Delivered != 2 || stat.Lagged["stream"] != 4 {
			t.Errorf("with %d left: %+v", instances, stat)
		}
		retired := []*flow.Bus[int]{a, b, a}[instances] // twice is harmless
		retired.Retire()
		if err := retired.Publish(1); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("publish on a retired bus: %v", err)
		}
	}
}

// The slots grow with what is published, and events are still found after each
// growth.
func TestBusGrowsAndKeepsTheLast(t *testing.T) {
	for _, capacity := range []int{1, 7, 8, 9, 100} {
		bus := flow.NewBus[int](flow.NewInventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: capacity, Readers: 1})
		reader, _ := bus.Subscribe("audit", nil)
		for event := range 150 {
			_ = bus.Publish(event)
		}
		if _, err := reader.Recv(t.Context()); !errors.Is(err, fault.Lagging) {
			t.Fatalf("cap %d: %v", capacity, err)
		}
		for want := 150 - capacity; want < 150; want++ {
			if got, err := reader.Recv(t.Context()); got != want || err != nil {
				t.Fatalf("cap %d: got %d, %v; want %d", capacity, got, err, want)
			}
		}
	}
}

func TestInventoryIsSorted(t *testing.T) {
	inv := flow.NewInventory()
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "edge", Name: "work", Cap: 1})
	flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "node", Name: "config"}, 0)
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "telemetry", Cap: 1, Policy: flow.Coalesce})
	var order []string
	for _, stat := range inv.Read() {
		order = append(order, stat.Service+"/"+stat.Kind+"/"+stat.Name)
	}
	if got := strings.Join(order, " "); got != "edge/queue/work node/queue/telemetry node/queue/work node/snapshot/config" {
		t.Error(got)
	}
}

func TestMistakesOfTheProgramPanicAndSayWhatToDo(t *testing.T) {
	for want, make := range map[string]func(*flow.Inventory){
		"needs a Service and a Name": func(inv *flow.Inventory) {
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Cap: 1})
		},
		"needs a bound of 1 or more": func(inv *flow.Inventory) {
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work"})
		},
		"cannot have a negative number waiting": func(inv *flow.Inventory) {
			flow.NewLane(inv, flow.LaneSpec{Service: "node", Name: "put", Running: 1, Waiting: -1})
		},
		"say so in Each": func(inv *flow.Inventory) {
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})
		},
		"two different parts need two names": func(inv *flow.Inventory) {
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 1, Each: "peer"})
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 2, Each: "peer"})
		},
		"needs Readers": func(inv *flow.Inventory) {
			flow.NewBus[int](inv, flow.BusSpec{Service: "node", Name: "bus", Cap: 1})
		},
		"released more often than acquired": func(inv *flow.Inventory) {
			flow.NewPermits(inv, flow.PermitsSpec{Service: "node", Name: "jobs", Cap: 1}).Release()
		},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if message, _ := recover().(string); !strings.Contains(message, want) {
					t.Errorf("panic %q", message)
				}
			}()
			make(flow.NewInventory())
		})
	}
}

func TestBusReaderWaitsForTheNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := flow.NewBus[int](flow.NewInventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 2, Readers: 3})
		heard := make(chan int, 3)
		for range 3 {
			reader, err := bus.Subscribe("stream", nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				event, _ := reader.Recv(t.Context())
				heard <- event
				_, err := reader.Recv(t.Context())
				if !errors.Is(err, flow.ErrClosed) {
					t.Errorf("after close: %v", err)
				}
			}()
		}
		synctest.Wait()
		_ = bus.Publish(7)
		for range 3 {
			if event := <-heard; event != 7 {
				t.Errorf("heard %d", event)
			}
		}
		synctest.Wait()
		bus.Close()

		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		quiet := flow.NewBus[int](flow.NewInventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 2, Readers: 1})
		reader, _ := quiet.Subscribe("stream", nil)
		if _, err := reader.Recv(late); !errors.Is(err, fault.Timeout) {
			t.Errorf("nothing came: %v", err)
		}
	})
}

func TestSnapshotTellsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snap := flow.NewSnapshot(flow.NewInventory(), flow.SnapshotSpec{Service: "node", Name: "config"}, "one")
		value, seen := snap.LoadVersion()
		if value != "one" || snap.Load() != "one" {
			t.Fatalf("first value %q", value)
		}
		go snap.Store("two")
		value, seen, err := snap.WaitForChange(t.Context(), seen)
		if value != "two" || err != nil {
			t.Fatalf("changed to %q, %v", value, err)
		}
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if value, _, err := snap.WaitForChange(late, seen); value != "two" || !errors.Is(err, fault.Timeout) {
			t.Fatalf("no change: %q, %v", value, err)
		}
	})
}

// awaitCollected collects garbage until the item is gone; a queue that keeps a
// reference to it prevents that, and the test fails after enough rounds.
func awaitCollected(t *testing.T, collected chan struct{}) {
	t.Helper()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the item is still reachable after it was popped")
}

// A reader without state receives everything that is kept, after a lag too,
// until the bus is closed.
func TestForEachSeesEveryEvent(t *testing.T) {
	b := flow.NewBus[int](flow.NewInventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 4, Readers: 1})
	r, err := b.Subscribe("audit", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		_ = b.Publish(i)
	}
	b.Close()
	var received []int
	r.ForEach(t.Context(), func(i int) { received = append(received, i) })
	if !slices.Equal(received, []int{2, 3, 4, 5}) {
		t.Errorf("told %v", received)
	}
}
