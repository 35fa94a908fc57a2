package explore_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/flow/explore"
)

// fairOf is a fair queue with an urgent band and one other.
func fairOf(w *explore.World, capacity int, policy flow.Policy) *flow.Fair[int] {
	return flow.NewFair[int](w.Inventory(), flow.FairSpec{
		Service: "overlay", Quantum: 10, From: "engine", To: "writer", Each: "session",
		Urgent: flow.BandSpec{Name: "control", Cap: 1, Bytes: 100},
		Bands:  []flow.BandSpec{{Name: "gossip_egress", Cap: capacity, Bytes: 20, Policy: policy}},
	})
}

// fairOutcomes is the outcome of every item of a run.
type fairOutcomes struct {
	closed    bool
	taken     []int // accepted and delivered
	turned    []int // refused or evicted
	delivered map[int]int
}

func (o *fairOutcomes) deliver(w *explore.World, items []int) {
	for _, item := range items {
		if o.delivered == nil {
			o.delivered = map[int]int{}
		}
		o.delivered[item]++
		w.Check(o.delivered[item] == 1, "item %d was delivered twice", item)
		o.taken = append(o.taken, item)
	}
}

// checkComplete checks at the end that every item was delivered or returned,
// once.
func (o *fairOutcomes) checkComplete(w *explore.World, f *flow.Fair[int], items int) {
	all := slices.Concat(o.taken, o.turned)
	slices.Sort(all)
	for i, item := range all {
		w.Check(i == item, "delivered %v, turned away %v: not each of %d once", o.taken, o.turned, items)
	}
	w.Check(len(all) == items, "delivered %v, turned away %v of %d", o.taken, o.turned, items)
	w.Check(f.Len(1) == 0 && f.Bytes(1) == 0 && f.Len(flow.Urgent) == 0, "left over: %d items, %d bytes", f.Len(1), f.Bytes(1))
}

// takeAll takes batches of up to n until the queue is closed and empty.
func takeAll(w *explore.World, f *flow.Fair[int], n int, books *fairOutcomes) {
	into := make([]int, n)
	for {
		got, err := f.Take(context.Background(), into, 100)
		if err != nil {
			w.Check(errors.Is(err, flow.ErrClosed), "take: %v", err)
			return
		}
		books.deliver(w, into[:got])
	}
}

// Two producers, two consumers and a shutdown at any moment: no consumer is
// left waiting, every item is delivered or returned, and none is taken once a
// Close has returned.
func TestTwoProducersFairTwoConsumersShutdown(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		f := fairOf(w, 2, flow.RejectNew)
		books := &fairOutcomes{}
		offer := func(batch ...flow.FairItem[int]) {
			after := books.closed
			turned := f.Offer(1, batch, nil)
			w.Check(!after || len(turned) == len(batch), "taken after close: only %v came back", turned)
			books.turned = append(books.turned, turned...)
		}
		w.Go("flood", func() { offer(flow.FairItem[int]{Class: 1, Item: 0}, flow.FairItem[int]{Class: 1, Item: 1}) })
		w.Go("quiet, and shutdown", func() {
			offer(flow.FairItem[int]{Class: 2, Item: 2})
			f.Close()
			books.closed = true
			offer(flow.FairItem[int]{Class: 2, Item: 3})
		})
		w.Go("one by one", func() { takeAll(w, f, 1, books) })
		w.Go("batches", func() { takeAll(w, f, 4, books) })
		w.After(func() { books.checkComplete(w, f, 4) })
	})
}

// The same with single pushes, an urgent one among them, and errors in place of
// refused items.
func TestFairPushesRaceShutdown(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		f := fairOf(w, 1, flow.DropOldest)
		books := &fairOutcomes{}
		push := func(band, item int) {
			after := books.closed
			err := f.TryPush(band, flow.FairItem[int]{Class: uint64(item), Cost: 5, Item: item})
			w.Check(err == nil || errors.Is(err, fault.Busy) || errors.Is(err, flow.ErrClosed), "push of %d: %v", item, err)
			w.Check(!after || errors.Is(err, flow.ErrClosed), "push of %d after close: %v", item, err)
			if err != nil {
				books.turned = append(books.turned, item)
			}
		}
		w.Go("gossip", func() { push(1, 0); push(1, 1) })
		w.Go("control", func() { push(flow.Urgent, 2) })
		w.Go("writer", func() { takeAll(w, f, 2, books) })
		w.Go("shutdown", func() {
			f.Close()
			books.closed = true
			f.Close() // twice is harmless
		})
		w.After(func() {
			books.checkComplete(w, f, 3)
			f.Retire()
			for _, stat := range w.Inventory().Read() {
				w.Check(stat.Instances == 0 && stat.Accepted == stat.Delivered+stat.Dropped, "%+v", stat)
			}
		})
	})
}

// A consumer that is canceled just when it was woken takes what it was woken
// for, or wakes another one.
func TestFairConsumerCanceledJustAfterItWasWoken(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		f := fairOf(w, 2, flow.RejectNew)
		books := &fairOutcomes{}
		ctx, cancel := w.Context()
		w.Go("impatient", func() {
			into := make([]int, 1)
			if got, err := f.Take(ctx, into, 1); err == nil {
				books.deliver(w, into[:got])
				w.Check(f.TryPush(1, flow.FairItem[int]{Item: 1}) == nil, "there is room for another")
			} else {
				w.Check(errors.Is(err, fault.Canceled) && got == 0, "take: %d, %v", got, err)
			}
		})
		w.Go("patient", func() { // waits for ever, unless it is woken
			into := make([]int, 1)
			got, err := f.Take(context.Background(), into, 1)
			w.Check(err == nil, "take: %v", err)
			books.deliver(w, into[:got])
		})
		w.Go("deadline", cancel)
		w.Go("producer", func() { w.Check(f.TryPush(1, flow.FairItem[int]{Item: 0}) == nil, "there is room") })
		w.After(func() { books.checkComplete(w, f, len(books.taken)) })
	})
}

// Each new item of a class that has less evicts one of the flood, by slots and
// by bytes, while one thread takes, another reads the counts, and the queue is
// closed in the end. Urgent items overtake.
func TestFairDisplacesTheRichWhileItIsTaken(t *testing.T) {
	for _, policy := range []flow.Policy{flow.RejectNew, flow.DropOldest} {
		t.Run(policy.String(), func(t *testing.T) {
			explore.Test(t, quick, func(w *explore.World) {
				f := fairOf(w, 3, policy)
				books := &fairOutcomes{}
				next := 0
				parcels := func(class uint64, costs ...int) (batch []flow.FairItem[int]) {
					for _, cost := range costs {
						batch = append(batch, flow.FairItem[int]{Class: class, Cost: cost, Item: next})
						next++
					}
					return batch
				}
				flood, quiet := parcels(1, 4, 4, 4, 4, 9), slices.Concat(parcels(2, 4), parcels(3, 11), parcels(4, 21))
				urgent := parcels(0, 1, 1)
				offer := func(band int, batch []flow.FairItem[int]) {
					turned := f.Offer(band, batch, nil)
					books.turned = append(books.turned, turned...)
				}
				w.Go("flood", func() { offer(1, flood) })
				w.Go("quiet", func() {
					offer(1, quiet)
					offer(flow.Urgent, urgent)
					f.Close()
				})
				w.Go("writer", func() { takeAll(w, f, 2, books) })
				w.Go("scrape", func() {
					for _, stat := range w.Inventory().Read() {
						held := stat.Accepted - stat.Delivered - stat.Dropped
						w.Check(stat.Depth <= stat.Cap && held == uint64(stat.Depth), "counts do not add up: %+v", stat)
					}
					w.Check(f.Bytes(1) <= 20, "%d bytes of 20", f.Bytes(1))
				})
				w.After(func() { books.checkComplete(w, f, next) })
			})
		})
	}
}

// Permits for a batch: acquired by the engine, released by the writer, and
// drained.
func TestPermitsInBatchesAreNeverOverAndAllComeBack(t *testing.T) {
	for _, line := range []int{0, 1} {
		explore.Test(t, quick, func(w *explore.World) {
			permits := flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: "overlay", Name: "inflight", Cap: 2, Waiting: line})
			out := 0
			batch := func(n int) {
				got := permits.TryAcquire(n)
				out += got
				w.Check(out <= 2, "%d of 2 permits are out", out)
				w.Point("writes")
				out -= got
				permits.ReleaseMany(got)
			}
			w.Go("a", func() { batch(2) })
			w.Go("b", func() { batch(3) })
			if line > 0 {
				w.Go("waits in line", func() {
					if err := permits.Acquire(context.Background()); err == nil {
						out++
						w.Check(out <= 2, "%d of 2 permits are out", out)
						out--
						permits.ReleaseMany(1)
					}
				})
			}
			w.Go("drain", func() {
				w.Check(permits.Drain(context.Background()) == nil && out == 0, "drained with %d out", out)
				w.Check(permits.TryAcquire(1) == 0, "drained permits gave one")
			})
			w.After(func() {
				stat := w.Inventory().Read()[0]
				w.Check(stat.Inside == 0 && stat.Accepted == stat.Delivered, "left over: %+v", stat)
			})
		})
	}
}

// Readers wait for permits of a peer until their contexts end; the writer
// releases the first two in one batch. Never are more held than there are, none is lost on
// a waiter that left, and none waits while one is free.
func TestPermitsAreAwaitedInBatches(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		permits := flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: "overlay", Name: "inflight", Cap: 2, Waiting: 2})
		written := flow.NewQueue[int](w.Inventory(), flow.QueueSpec{Service: "overlay", Name: "written", Cap: 8})
		out, posting := permits.TryAcquire(2), 2
		w.Check(out == 2 && written.TryPush(out) == nil, "two are out")
		post := func(ctx context.Context, n int) {
			for n > 0 {
				if err := permits.Acquire(ctx); err != nil {
					w.Check(ctx.Err() != nil, "left: %v", err)
					break
				}
				out++
				w.Check(out <= 2, "%d of 2 permits are out", out)
				n--
				w.Check(written.TryPush(1) == nil, "there is room")
			}
			if posting--; posting == 0 {
				written.Close()
			}
		}
		hasty, cancel := w.Context()
		w.Go("patient", func() { post(context.Background(), 2) })
		w.Go("hasty", func() { post(hasty, 1) })
		w.Go("patience ends", cancel)
		w.Go("writer", func() {
			for {
				n, err := written.Pop(context.Background())
				if err != nil {
					return
				}
				out -= n
				permits.ReleaseMany(n)
			}
		})
		w.After(func() {
			stat := w.Inventory().Read()[0]
			w.Check(out == 0 && stat.Inside == 0 && stat.Accepted == stat.Delivered, "%d out, left over: %+v", out, stat)
		})
	})
}

// Two producers wait for room in the queue of a peer, one of them until its
// context ends, while its writer takes and the session may close at any moment.
// None is left waiting while there is room, and every item is delivered or
// returned.
func TestRoomIsAwaited(t *testing.T) {
	t.Run("one gives up", func(t *testing.T) { roomIsAwaited(t, true, false) })
	t.Run("closed", func(t *testing.T) { roomIsAwaited(t, false, true) })
	t.Run("one gives up as it closes", func(t *testing.T) {
		if os.Getenv("EXPLORE_ALL") == "" {
			t.Skip("a minute of interleavings: make explore runs them")
		}
		roomIsAwaited(t, true, true)
	})
}

func roomIsAwaited(t *testing.T, givesUp, closes bool) {
	explore.Test(t, quick, func(w *explore.World) {
		f := flow.NewFair[int](w.Inventory(), flow.FairSpec{
			Service: "overlay", Quantum: 10, Waiting: 2, Bands: []flow.BandSpec{{Name: "gossip_egress", Cap: 1, Bytes: 20}},
		})
		books := &fairOutcomes{}
		posting := 2
		post := func(ctx context.Context, items ...int) {
			for len(items) > 0 {
				n, turned := f.OfferSome(1, []flow.FairItem[int]{{Class: 1, Item: items[0]}}, nil)
				w.Check(len(turned) == 0, "%v made room for one of its own class", turned)
				if items = items[n:]; n > 0 {
					continue
				}
				if err := f.AwaitRoom(ctx, 1, 1); err != nil {
					w.Check(ctx.Err() != nil || errors.Is(err, flow.ErrClosed), "room: %v", err)
					books.turned = append(books.turned, items...)
					break
				}
			}
			if posting--; posting == 0 && !closes {
				f.Close()
			}
		}
		hasty, cancel := w.Context()
		w.Go("patient", func() { post(context.Background(), 0, 1) })
		w.Go("hasty", func() { post(hasty, 2) })
		if givesUp {
			w.Go("patience ends", cancel)
		}
		w.Go("writer", func() { takeAll(w, f, 1, books) })
		if closes {
			w.Go("shutdown", f.Close)
		}
		w.After(func() { books.checkComplete(w, f, 3) })
	})
}

// Messages are published in batches, and each is received once, whichever
// thread closes when, or never.
func TestBusPublishesBatches(t *testing.T) {
	t.Run("closed", func(t *testing.T) { busPublishesBatches(t, true) })
	t.Run("open", func(t *testing.T) { busPublishesBatches(t, false) })
}

func busPublishesBatches(t *testing.T, closes bool) {
	explore.Test(t, quick, func(w *explore.World) {
		bus := flow.NewBus[int](w.Inventory(), flow.BusSpec{Service: "overlay", Name: "deliveries", Cap: 8, Readers: 1})
		reader, err := bus.Subscribe("stream", nil)
		w.Check(err == nil, "subscribe: %v", err)
		published := 0
		w.Go("worker", func() {
			for _, batch := range [][]int{{0, 1}, nil, {2, 3, 4}} {
				if bus.PublishAll(batch) == nil {
					published += len(batch)
				}
			}
		})
		if closes {
			w.Go("closer", bus.Close)
		}
		w.Go("subscriber", func() {
			for heard := 0; closes || heard < 5; heard++ {
				event, err := reader.Recv(context.Background())
				if err != nil {
					w.Check(errors.Is(err, flow.ErrClosed) && heard == published, "heard %d of %d, %v", heard, published, err)
					return
				}
				w.Check(event == heard, "heard %d in place of %d", event, heard)
			}
		})
	})
}

// A topic's bus is retired while a reader waits and another still reads.
func TestBusRetiresUnderItsReaders(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		bus := flow.NewBus[int](w.Inventory(), flow.BusSpec{Service: "overlay", Name: "deliveries", Cap: 4, Readers: 1, Each: "topic"})
		reader, err := bus.Subscribe("stream", nil)
		w.Check(err == nil, "subscribe: %v", err)
		published := 0
		w.Go("publisher", func() {
			if bus.Publish(1) == nil {
				published++
			}
		})
		w.Go("subscriber", func() {
			heard := 0
			for {
				if _, err := reader.Recv(context.Background()); err != nil {
					w.Check(errors.Is(err, flow.ErrClosed), "recv: %v", err)
					w.Check(heard == published, "heard %d of %d", heard, published)
					return
				}
				heard++
			}
		})
		w.Go("last one leaves", bus.Retire)
		w.After(func() {
			stat := w.Inventory().Read()[0]
			w.Check(stat.Instances == 0 && int(stat.Accepted) == published, "told %d: %+v", published, stat)
		})
	})
}

// buggyFairQueue is a small fair queue, as far as waking goes, with a switch
// for each mistake: batches go in, batches come out, and one wake leads to the
// next.
type buggyFairQueue struct {
	seam flow.Seam
	bug  string

	mu      sync.Mutex
	items   []int
	closed  bool
	waiting []*flow.Waiter
}

func (b *buggyFairQueue) offer(batch ...int) (turned []int) {
	b.seam.Point("offer")
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return batch
	}
	if b.bug == "looks at closed, then stores" {
		b.mu.Unlock()
		b.seam.Point("looks away")
		b.mu.Lock()
	}
	for _, item := range batch {
		if len(b.items) == 2 {
			if b.bug != "displaced and forgotten" {
				turned = append(turned, b.items[0])
			}
			b.items = b.items[1:]
		}
		b.items = append(b.items, item)
	}
	w := b.nextWaiter()
	b.mu.Unlock()
	b.wake(w)
	return turned
}

func (b *buggyFairQueue) take(ctx context.Context, most int) ([]int, error) {
	for woken := false; ; woken = true {
		ended := ctx.Err() != nil
		if b.bug == "looks at its context twice" {
			if woken && ended {
				b.wakeAnother()
			}
			b.seam.Point("looks away")
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		if ended {
			if b.bug != "leaver keeps the wake" {
				b.wakeAnother()
			}
			return nil, ctx.Err()
		}
		b.seam.Point("take")
		b.mu.Lock()
		if n := min(most, len(b.items)); n > 0 {
			got := b.items[:n:n]
			b.items = b.items[n:]
			var w *flow.Waiter
			if b.bug != "taker keeps the wake" {
				w = b.nextWaiter()
			}
			b.mu.Unlock()
			b.wake(w)
			return got, nil
		}
		if b.closed {
			b.mu.Unlock()
			return nil, errChannelClosed
		}
		w := new(flow.Waiter)
		b.waiting = append(b.waiting, w)
		b.mu.Unlock()
		if !b.seam.Park(ctx, w) {
			b.cancelWait(w)
		}
	}
}

// cancelWait takes a waiter off the list, or receives the wake that is under way.
func (b *buggyFairQueue) cancelWait(w *flow.Waiter) {
	b.seam.Point("gives up")
	b.mu.Lock()
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	b.mu.Unlock()
	if i < 0 {
		b.seam.Park(context.Background(), w)
	}
}

func (b *buggyFairQueue) wakeAnother() {
	b.seam.Point("passes on")
	b.mu.Lock()
	w := b.nextWaiter()
	b.mu.Unlock()
	b.wake(w)
}

func (b *buggyFairQueue) close() {
	b.seam.Point("close")
	b.mu.Lock()
	b.closed = true
	chain := b.waiting
	b.waiting = nil
	if b.bug == "close wakes only if empty" && len(b.items) > 0 {
		chain = nil
	}
	b.mu.Unlock()
	for _, w := range chain {
		b.wake(w)
	}
}

func (b *buggyFairQueue) nextWaiter() *flow.Waiter {
	if len(b.waiting) == 0 || len(b.items) == 0 {
		return nil
	}
	w := b.waiting[0]
	b.waiting = b.waiting[1:]
	return w
}

func (b *buggyFairQueue) wake(w *flow.Waiter) {
	if w != nil {
		b.seam.Wake(w)
	}
}

// fairQueueWithoutClose has one batch for two consumers that take one each, and
// one whose context may have ended by then: every consumer without a deadline
// must be served.
func fairQueueWithoutClose(bug string) func(*explore.World) {
	return func(w *explore.World) {
		c := &buggyFairQueue{seam: w, bug: bug}
		ctx, cancel := w.Context()
		taken := 0
		w.Go("impatient", func() {
			if got, err := c.take(ctx, 1); err == nil {
				taken += len(got)
				w.Check(len(c.offer(1)) == 0, "one was taken, so there is room for one")
			}
		})
		for _, name := range []string{"patient", "as patient"} {
			w.Go(name, func() {
				got, err := c.take(context.Background(), 1)
				w.Check(err == nil && len(got) == 1, "take: %v, %v", got, err)
			})
		}
		w.Go("deadline", cancel)
		w.Go("producer", func() { w.Check(len(c.offer(1, 2)) == 0, "there is room for two") })
	}
}

// fairQueueWithClose has a shutdown at any moment.
func fairQueueWithClose(bug string) func(*explore.World) {
	return func(w *explore.World) {
		c := &buggyFairQueue{seam: w, bug: bug}
		delivered, turned := 0, 0
		for _, name := range []string{"producer a", "producer b"} {
			w.Go(name, func() {
				back := c.offer(1, 2)
				turned += len(back)
			})
		}
		for _, name := range []string{"consumer a", "consumer b"} {
			w.Go(name, func() {
				for {
					got, err := c.take(context.Background(), 1)
					if err != nil {
						return
					}
					delivered += len(got)
				}
			})
		}
		w.Go("shutdown", c.close)
		w.After(func() {
			w.Check(delivered+turned == 4, "%d delivered, %d turned away, of 4", delivered, turned)
		})
	}
}

func TestEverySeededBugOfAFairQueueIsFound(t *testing.T) {
	for bug, sign := range map[string]string{
		"taker keeps the wake":       "deadlock",
		"leaver keeps the wake":      "deadlock",
		"looks at its context twice": "deadlock",
	} {
		t.Run(bug, func(t *testing.T) { mustFind(t, fairQueueWithoutClose(bug), sign) })
	}
	for bug, sign := range map[string]string{
		"looks at closed, then stores": "of 4",
		"displaced and forgotten":      "of 4",
		"close wakes only if empty":    "deadlock",
	} {
		t.Run(bug, func(t *testing.T) { mustFind(t, fairQueueWithClose(bug), sign) })
	}
}

func TestTheFairQueueWithoutABugHolds(t *testing.T) {
	one := explore.Options{Preemptions: 1}
	explore.Test(t, one, fairQueueWithoutClose(""))
	explore.Test(t, one, fairQueueWithClose(""))
}

// Two consumers with at most two items outstanding, a class that may have one
// of them, and a producer that withdraws an item: each item is delivered or
// withdrawn, and no consumer is left waiting for the end of another's item.
func TestFairOutstandingAndWithdrawals(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		f := flow.NewFair[int](w.Inventory(), flow.FairSpec{
			Service: "edge", Quantum: 1, MaxOutstanding: 2, Bands: []flow.BandSpec{{Name: "work", Cap: 4, Bytes: 4}},
		})
		books := &fairOutcomes{}
		open := 2
		work := func() {
			var into [1]int
			for {
				if _, err := f.Take(context.Background(), into[:], 1); err != nil {
					w.Check(errors.Is(err, flow.ErrClosed), "take: %v", err)
					return
				}
				books.deliver(w, into[:])
				f.Done(1, 7)
			}
		}
		w.Go("one", work)
		w.Go("other", work)
		last := func() {
			if open--; open == 0 {
				f.Close()
			}
		}
		w.Go("producer", func() {
			turned := f.Offer(1, []flow.FairItem[int]{{Class: 7, Item: 0}, {Class: 7, Item: 1}}, nil)
			books.turned = append(books.turned, turned...)
			last()
		})
		w.Go("who leaves", func() {
			if f.Withdraw(1, 7, func(item int) bool { return item == 1 }) {
				books.turned = append(books.turned, 1)
			}
			last()
		})
		w.After(func() { books.checkComplete(w, f, 2) })
	})
}
