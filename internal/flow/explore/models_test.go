package explore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/flow/explore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	thorough = explore.Options{Preemptions: 3, MaxRuns: 2_000_000}
	quick    = explore.Options{Preemptions: 2, MaxRuns: 2_000_000}
)

func queueOf(w *explore.World, capacity int, policy flow.Policy) *flow.Queue[int] {
	return flow.NewQueue[int](w.Inventory(), flow.QueueSpec{
		Service: "node", Name: "work", Cap: capacity, Policy: policy, From: "producers", To: "consumers",
	})
}

// push offers an item and fails the run if the queue accepts it although a
// Close had already returned, or refuses it with an error other than Busy and
// ErrClosed.
func push(w *explore.World, q *flow.Queue[int], item int, closed *bool) (accepted bool) {
	after := *closed
	err := q.TryPush(item)
	w.Check(err == nil || errors.Is(err, fault.Busy) || errors.Is(err, flow.ErrClosed), "push of %d: %v", item, err)
	w.Check(!after || errors.Is(err, flow.ErrClosed), "push of %d after close: %v", item, err)
	return err == nil
}

// popAll takes items until the queue is closed and empty.
func popAll(w *explore.World, q *flow.Queue[int], got *[]int) {
	for {
		item, err := q.Pop(context.Background())
		if err != nil {
			w.Check(errors.Is(err, flow.ErrClosed), "pop: %v", err)
			return
		}
		*got = append(*got, item)
	}
}

func TestProducerQueueConsumerShutdown(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		q := queueOf(w, 1, flow.RejectNew)
		var closed bool
		var sent, got []int
		w.Go("producer", func() {
			for item := range 3 {
				if push(w, q, item, &closed) {
					sent = append(sent, item)
				}
			}
		})
		w.Go("consumer", func() { popAll(w, q, &got) })
		w.Go("shutdown", func() {
			q.Close()
			closed = true
			q.Close() // twice is harmless
		})
		w.After(func() {
			w.Check(slices.Equal(sent, got), "accepted %v, delivered %v", sent, got)
			w.Check(q.Len() == 0 && q.Cap() == 1, "left over: %d of %d", q.Len(), q.Cap())
		})
	})
}

func TestTwoProducersTwoConsumersOneCanceled(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		q := queueOf(w, 2, flow.RejectNew)
		var sent, got []int
		producers := 2
		for p := range producers {
			w.Go([]string{"producer A", "producer B"}[p], func() {
				item := 10 * (p + 1)
				w.Check(q.TryPush(item) == nil, "the queue has room for both")
				sent = append(sent, item)
				if producers--; producers == 0 {
					q.Close()
				}
			})
		}
		ctx, cancel := w.Context()
		w.Go("impatient consumer", func() {
			item, err := q.Pop(ctx)
			switch {
			case err == nil:
				got = append(got, item)
			default:
				w.Check(errors.Is(err, fault.Canceled), "pop: %v", err)
			}
		})
		w.Go("patient consumer", func() { popAll(w, q, &got) })
		w.Go("deadline", cancel)
		w.After(func() {
			slices.Sort(sent)
			slices.Sort(got)
			w.Check(slices.Equal(sent, got), "accepted %v, delivered %v", sent, got)
		})
	})
}

func TestCloseWakesEveryWaitingConsumer(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		q := queueOf(w, 1, flow.RejectNew)
		var got []int
		for _, name := range []string{"a", "b", "c"} {
			w.Go(name, func() { popAll(w, q, &got) })
		}
		w.Go("shutdown", q.Close)
	})
}

func TestTryPopRacesPop(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		q := queueOf(w, 2, flow.RejectNew)
		var got []int
		w.Go("producer", func() {
			for item := range 2 {
				w.Check(q.TryPush(item) == nil, "there is room")
			}
			q.Close()
		})
		w.Go("sweeper", func() {
			if item, ok := q.TryPop(); ok {
				got = append(got, item)
			}
		})
		w.Go("consumer", func() { popAll(w, q, &got) })
		w.After(func() {
			slices.Sort(got)
			w.Check(slices.Equal(got, []int{0, 1}), "delivered %v", got)
		})
	})
}

func TestDropOldestKeepsTheNewestAndCounts(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		q := queueOf(w, 1, flow.DropOldest)
		var got []int
		w.Go("producer", func() {
			for item := range 3 {
				w.Check(q.TryPush(item) == nil, "drop-oldest never refuses")
			}
			q.Close()
		})
		w.Go("consumer", func() { popAll(w, q, &got) })
		w.Go("scrape", func() {
			for _, stat := range w.Inventory().Read() {
				w.Check(stat.Depth <= stat.Cap, "depth %d of %d", stat.Depth, stat.Cap)
				held := stat.Accepted - stat.Delivered - stat.Dropped
				w.Check(held == uint64(stat.Depth), "counts do not add up: %+v", stat)
			}
		})
		w.After(func() {
			dropped := int(w.Inventory().Read()[0].Dropped)
			w.Check(len(got)+dropped == 3, "delivered %v, dropped %d of 3", got, dropped)
			w.Check(slices.IsSorted(got) && got[len(got)-1] == 2, "delivered %v: the newest must come, in order", got)
		})
	})
}

func TestCoalesceDeliversTheLast(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		q := queueOf(w, 1, flow.Coalesce)
		var got []int
		w.Go("watcher", func() {
			for item := range 3 {
				w.Check(q.TryPush(item) == nil, "coalesce never refuses")
			}
			q.Close()
		})
		w.Go("reloader", func() { popAll(w, q, &got) })
		w.After(func() {
			stat := w.Inventory().Read()[0]
			w.Check(got[len(got)-1] == 2, "the last value was not delivered: %v", got)
			w.Check(len(got)+int(stat.Coalesced) == 3, "delivered %v, coalesced %d of 3", got, stat.Coalesced)
		})
	})
}

// More items than the first slots of the ring hold, in order of arrival, while
// the ring grows and wraps.
func TestRingGrowsInOrder(t *testing.T) {
	explore.Test(t, explore.Options{Preemptions: 1}, func(w *explore.World) {
		q := queueOf(w, 12, flow.RejectNew)
		var got []int
		w.Go("producer", func() {
			for item := range 12 {
				w.Check(q.TryPush(item) == nil, "there is room")
			}
			q.Close()
		})
		w.Go("consumer", func() { popAll(w, q, &got) })
		w.After(func() { w.Check(len(got) == 12 && slices.IsSorted(got), "delivered %v", got) })
	})
}

func TestPopOfCanceledTakesNothing(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		q := queueOf(w, 1, flow.RejectNew)
		ctx, cancel := w.Context()
		w.Go("aborted worker", func() {
			cancel()
			w.Check(q.TryPush(7) == nil, "there is room")
			_, err := q.Pop(ctx)
			w.Check(errors.Is(err, fault.Canceled) && q.Len() == 1, "a canceled pop took the item: %v", err)
		})
	})
}

// The bus of a node: the writer stores the state, then publishes an event.
// Whatever a reader misses, after the last event it knows the last state.
func TestBusLagAndReconcile(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		bus := flow.NewBus[int](w.Inventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 1, Readers: 2})
		state := flow.NewSnapshot(w.Inventory(), flow.SnapshotSpec{Service: "node", Name: "state"}, 0)
		known, heard, missed := 0, 0, 0
		reader, err := bus.Subscribe("audit", func(_ context.Context, n uint64) error {
			missed += int(n)
			known = max(known, state.Load())
			return nil
		})
		w.Check(err == nil, "subscribe: %v", err)
		w.Go("writer", func() {
			for version := 1; version <= 3; version++ {
				state.Store(version)
				w.Check(bus.Publish(version) == nil, "publish on an open bus")
			}
			bus.Close()
			w.Check(errors.Is(bus.Publish(4), flow.ErrClosed), "publish on a closed bus")
		})
		w.Go("reader", func() {
			for {
				event, err := reader.Recv(context.Background())
				if err != nil {
					w.Check(errors.Is(err, flow.ErrClosed), "recv: %v", err)
					break
				}
				heard++
				known = max(known, event)
			}
			reader.Close()
		})
		w.After(func() {
			w.Check(known == 3, "the reader believes in version %d of 3", known)
			w.Check(heard+missed == 3, "heard %d and missed %d of 3", heard, missed)
		})
	})
}

func TestBusReturnsLagWithoutAHook(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		bus := flow.NewBus[int](w.Inventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 1, Readers: 1})
		reader, _ := bus.Subscribe("stream", nil)
		_, err := bus.Subscribe("one too many", nil)
		w.Check(errors.Is(err, fault.Busy), "a second reader: %v", err)
		heard, missed := 0, 0
		ctx, cancel := w.Context()
		w.Go("writer", func() {
			for event := range 2 {
				w.Check(bus.Publish(event) == nil, "publish")
			}
		})
		w.Go("caller leaves", cancel)
		w.Go("reader", func() {
			for heard+missed < 2 {
				_, err := reader.Recv(ctx)
				lag, behind := errors.AsType[*flow.LagError](err)
				switch {
				case err == nil:
					heard++
				case behind:
					w.Check(errors.Is(err, fault.Lagging), "a lag is Lagging: %v", err)
					missed += int(lag.Missed)
				default:
					w.Check(errors.Is(err, fault.Canceled), "recv: %v", err)
					stat := w.Inventory().Read()[0]
					w.Check(stat.Depth <= stat.Cap, "behind by %d of %d", stat.Depth, stat.Cap)
					reader.Close()
					_, err = reader.Recv(context.Background())
					w.Check(errors.Is(err, flow.ErrClosed), "recv on a closed reader: %v", err)
					return
				}
			}
		})
		w.After(func() {
			lagged := w.Inventory().Read()[0].Lagged["stream"]
			w.Check(int(lagged) == missed, "missed %d, counted %d", missed, lagged)
			bus.Close()
			_, err := bus.Subscribe("late", nil)
			w.Check(errors.Is(err, flow.ErrClosed), "subscribe to a closed bus: %v", err)
		})
	})
}

func TestBusReconcileFailureReachesTheReader(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		bus := flow.NewBus[int](w.Inventory(), flow.BusSpec{Service: "node", Name: "bus", Cap: 1, Readers: 1})
		reader, _ := bus.Subscribe("audit", func(context.Context, uint64) error { return fault.StorageBusy })
		w.Go("all", func() {
			for event := range 3 {
				w.Check(bus.Publish(event) == nil, "publish")
			}
			_, err := reader.Recv(context.Background())
			w.Check(errors.Is(err, fault.StorageBusy), "recv: %v", err)
			event, err := reader.Recv(context.Background())
			w.Check(err == nil && event == 2, "then the newest: %d, %v", event, err)
		})
	})
}

// A reader of the config sees the old one or the new one, never a mixture, and
// one that waits for changes ends up with the last.
func TestConfigSwap(t *testing.T) {
	type config struct{ alpha, beta int }
	explore.Test(t, quick, func(w *explore.World) {
		snap := flow.NewSnapshot(w.Inventory(), flow.SnapshotSpec{Service: "node", Name: "config"}, config{})
		w.Go("reloader", func() {
			for n := 1; n <= 2; n++ {
				snap.Store(config{n, n})
			}
		})
		w.Go("request", func() {
			for range 2 {
				seen := snap.Load()
				w.Check(seen.alpha == seen.beta, "torn config: %+v", seen)
			}
		})
		w.Go("watcher", func() {
			seen, version := snap.LoadVersion()
			for seen.alpha < 2 {
				next, later, err := snap.WaitForChange(context.Background(), version)
				w.Check(err == nil && later > version && next.alpha == next.beta, "changed: %+v %d %v", next, later, err)
				seen, version = next, later
			}
		})
	})
}

func TestConfigWatcherGivesUp(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		snap := flow.NewSnapshot(w.Inventory(), flow.SnapshotSpec{Service: "node", Name: "config"}, "old")
		ctx, cancel := w.Context()
		w.Go("reloader", func() { snap.Store("new") })
		w.Go("deadline", cancel)
		w.Go("watcher", func() {
			value, version, err := snap.WaitForChange(ctx, 0)
			switch {
			case err == nil:
				w.Check(value == "new" && version == 1, "changed to %q, version %d", value, version)
			default:
				w.Check(errors.Is(err, fault.Canceled) && value == "old", "changed: %q %v", value, err)
			}
		})
		w.After(func() { w.Check(w.Inventory().Read()[0].Accepted == 1, "one store is counted") })
	})
}

func TestPermitsNeverExceedAndNeverStrand(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		permits := flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: "feed", Name: "feed_fanout", Cap: 1, Waiting: 2})
		inside := 0
		use := func(ctx context.Context) error {
			if err := permits.Acquire(ctx); err != nil {
				return err
			}
			inside++
			w.Check(inside <= 1, "%d hold the one permit", inside)
			w.Point("at work")
			inside--
			permits.Release()
			return nil
		}
		ctx, cancel := w.Context()
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() { w.Check(use(context.Background()) == nil, "a patient caller gets in") })
		}
		w.Go("impatient", func() {
			err := use(ctx)
			w.Check(err == nil || errors.Is(err, fault.Canceled), "acquire: %v", err)
		})
		w.Go("deadline", cancel)
		w.After(func() {
			stat := w.Inventory().Read()[0]
			w.Check(stat.Inside == 0 && stat.Depth == 0 && stat.Accepted == stat.Delivered, "left over: %+v", stat)
		})
	})
}

func TestPermitsRunOut(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		permits := flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: "feed", Name: "feed_fanout", Cap: 1, Each: "peer"})
		refused := 0
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() {
				err := permits.Acquire(context.Background())
				if err != nil {
					w.Check(errors.Is(err, fault.Backpressure), "acquire: %v", err)
					refused++
					return
				}
				w.Point("at work")
				permits.Release()
			})
		}
		w.After(func() {
			w.Check(refused <= 1, "both were refused")
			w.Check(permits.Drain(context.Background()) == nil, "nobody is inside")
			permits.Close()
			permits.Retire()
			permits.Retire()
			stat := w.Inventory().Read()[0]
			w.Check(stat.Instances == 0 && int(stat.Refused) == refused, "counts are kept: %+v", stat)
		})
	})
}

// A drain that returns nil means that inside is zero and stays zero.
func TestLaneDrain(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		lane := flow.NewLane(w.Inventory(), flow.LaneSpec{Service: "store", Name: "put", Running: 1, Waiting: 1})
		inside, drained := 0, false
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() {
				if err := lane.Enter(context.Background()); err != nil {
					w.Check(errors.Is(err, flow.ErrClosed), "enter: %v", err)
					return
				}
				inside++
				w.Check(!drained && inside == 1, "inside %d, drained %t", inside, drained)
				w.Point("streaming")
				inside--
				lane.Leave()
			})
		}
		w.Go("shutdown", func() {
			err := lane.Drain(context.Background())
			drained = true
			w.Check(err == nil && inside == 0, "drain returned with %d inside: %v", inside, err)
			w.Check(errors.Is(lane.Enter(context.Background()), flow.ErrClosed), "a drained lane lets nobody in")
		})
	})
}

func TestLaneDrainDeadline(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		lane := flow.NewLane(w.Inventory(), flow.LaneSpec{Service: "store", Name: "put", Running: 1})
		ctx, cancel := w.Context()
		w.Check(lane.Enter(context.Background()) == nil, "there is room")
		left := false
		w.Go("stream", func() {
			lane.Leave()
			left = true
		})
		w.Go("shutdown", func() {
			if err := lane.Drain(ctx); err != nil {
				w.Check(errors.Is(err, fault.Canceled), "drain: %v", err)
			}
		})
		w.Go("deadline", cancel)
		w.After(func() { w.Check(left && w.Inventory().Read()[0].Inside == 0, "the stream never ended") })
	})
}

func TestLaneIsBusyAtOnce(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		lane := flow.NewLane(w.Inventory(), flow.LaneSpec{Service: "store", Name: "put", Running: 1, Waiting: 1})
		busy := 0
		for _, name := range []string{"a", "b", "c"} {
			w.Go(name, func() {
				switch err := lane.Enter(context.Background()); {
				case err == nil:
					w.Point("at work")
					lane.Leave()
				default:
					w.Check(errors.Is(err, fault.Busy), "enter: %v", err)
					busy++
				}
			})
		}
		w.After(func() {
			w.Check(busy <= 1, "%d of 3 were refused by a lane for 2", busy)
			lane.Close()
			lane.Retire()
		})
	})
}

func TestLeavingTwiceIsAMistake(t *testing.T) {
	result := explore.Run(quick, func(w *explore.World) {
		lane := flow.NewLane(w.Inventory(), flow.LaneSpec{Service: "store", Name: "put", Running: 1})
		w.Go("careless", lane.Leave)
	})
	if result.Failure == nil {
		t.Fatal("leaving a lane that was never entered must panic")
	}
}

// Sessions come and go: their queues' counts stay.
func TestRetiredQueuesKeepTheirCounts(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		accepted := 0
		for _, name := range []string{"session a", "session b"} {
			w.Go(name, func() {
				q := flow.NewQueue[int](w.Inventory(), flow.QueueSpec{Service: "overlay", Name: "gossip_egress", Cap: 1, Each: "session"})
				if q.TryPush(1) == nil {
					accepted++
				}
				q.Retire()
				w.Check(errors.Is(q.TryPush(2), flow.ErrClosed), "a retired queue is closed")
				_, err := q.Pop(context.Background())
				w.Check(err == nil, "what was in it can be taken out: %v", err)
			})
		}
		w.After(func() {
			stat := w.Inventory().Read()[0]
			w.Check(stat.Instances == 0 && int(stat.Accepted) == accepted, "%+v, accepted %d", stat, accepted)
		})
	})
}
