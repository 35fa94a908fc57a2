package explore_test

import (
	"context"
	"errors"
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

// fairBooks is what became of every item of a run.
type fairBooks struct {
	closed    bool
	taken     []int // accepted and delivered
	turned    []int // refused or displaced
	delivered map[int]int
}

func (b *fairBooks) deliver(w *explore.World, items []int) {
	for _, item := range items {
		if b.delivered == nil {
			b.delivered = map[int]int{}
		}
		b.delivered[item]++
		w.Check(b.delivered[item] == 1, "item %d was delivered twice", item)
		b.taken = append(b.taken, item)
	}
}

// settle checks at the end that every item was delivered or given back, once.
func (b *fairBooks) settle(w *explore.World, f *flow.Fair[int], items int) {
	all := slices.Concat(b.taken, b.turned)
	slices.Sort(all)
	for i, item := range all {
		w.Check(i == item, "delivered %v, turned away %v: not each of %d once", b.taken, b.turned, items)
	}
	w.Check(len(all) == items, "delivered %v, turned away %v of %d", b.taken, b.turned, items)
	w.Check(f.Len(1) == 0 && f.Bytes(1) == 0 && f.Len(flow.Urgent) == 0, "left over: %d items, %d bytes", f.Len(1), f.Bytes(1))
}

// takeAll takes batches of up to n until the queue is closed and empty.
func takeAll(w *explore.World, f *flow.Fair[int], n int, books *fairBooks) {
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

// Two producers, two consumers and a shutdown at any moment: nobody is left
// waiting, every item is delivered or given back, and none is taken once a Close
// has returned.
func TestTwoProducersFairTwoConsumersShutdown(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		f := fairOf(w, 2, flow.RejectNew)
		books := &fairBooks{}
		offer := func(batch ...flow.Parcel[int]) {
			after := books.closed
			turned := f.Offer(1, batch, nil)
			w.Check(!after || len(turned) == len(batch), "taken after close: only %v came back", turned)
			books.turned = append(books.turned, turned...)
		}
		w.Go("flood", func() { offer(flow.Parcel[int]{Class: 1, Item: 0}, flow.Parcel[int]{Class: 1, Item: 1}) })
		w.Go("quiet, and shutdown", func() {
			offer(flow.Parcel[int]{Class: 2, Item: 2})
			f.Close()
			books.closed = true
			offer(flow.Parcel[int]{Class: 2, Item: 3})
		})
		w.Go("one by one", func() { takeAll(w, f, 1, books) })
		w.Go("batches", func() { takeAll(w, f, 4, books) })
		w.After(func() { books.settle(w, f, 4) })
	})
}

// The same with single pushes, an urgent one among them, and errors in place of
// what is turned away.
func TestFairPushesRaceShutdown(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		f := fairOf(w, 1, flow.DropOldest)
		books := &fairBooks{}
		push := func(band, item int) {
			after := books.closed
			err := f.TryPush(band, flow.Parcel[int]{Class: uint64(item), Cost: 5, Item: item})
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
			books.settle(w, f, 3)
			f.Retire()
			for _, stat := range w.Inventory().Read() {
				w.Check(stat.Instances == 0 && stat.Accepted == stat.Delivered+stat.Dropped, "%+v", stat)
			}
		})
	})
}

// A consumer that is canceled just when it was woken takes what it was woken
// for, or sees to it that another one does.
func TestFairConsumerCanceledJustAfterItWasWoken(t *testing.T) {
	explore.Test(t, thorough, func(w *explore.World) {
		f := fairOf(w, 2, flow.RejectNew)
		books := &fairBooks{}
		ctx, cancel := w.Context()
		w.Go("impatient", func() {
			into := make([]int, 1)
			if got, err := f.Take(ctx, into, 1); err == nil {
				books.deliver(w, into[:got])
				w.Check(f.TryPush(1, flow.Parcel[int]{Item: 1}) == nil, "there is room for another")
			} else {
				w.Check(errors.Is(err, fault.Canceled) && got == 0, "take: %d, %v", got, err)
			}
		})
		w.Go("patient", func() { // waits for ever, if nobody tells it
			into := make([]int, 1)
			got, err := f.Take(context.Background(), into, 1)
			w.Check(err == nil, "take: %v", err)
			books.deliver(w, into[:got])
		})
		w.Go("deadline", cancel)
		w.Go("producer", func() { w.Check(f.TryPush(1, flow.Parcel[int]{Item: 0}) == nil, "there is room") })
		w.After(func() { books.settle(w, f, len(books.taken)) })
	})
}

// Each newcomer of a class that has less displaces one of the flood, by places
// and by bytes, while somebody takes, somebody looks, and the queue is closed in
// the end. Urgent items overtake.
func TestFairDisplacesTheRichWhileItIsTaken(t *testing.T) {
	for _, policy := range []flow.Policy{flow.RejectNew, flow.DropOldest} {
		t.Run(policy.String(), func(t *testing.T) {
			explore.Test(t, quick, func(w *explore.World) {
				f := fairOf(w, 3, policy)
				books := &fairBooks{}
				next := 0
				parcels := func(class uint64, costs ...int) (batch []flow.Parcel[int]) {
					for _, cost := range costs {
						batch = append(batch, flow.Parcel[int]{Class: class, Cost: cost, Item: next})
						next++
					}
					return batch
				}
				flood, quiet := parcels(1, 4, 4, 4, 4, 9), slices.Concat(parcels(2, 4), parcels(3, 11), parcels(4, 21))
				urgent := parcels(0, 1, 1)
				offer := func(band int, batch []flow.Parcel[int]) {
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
				w.After(func() { books.settle(w, f, next) })
			})
		})
	}
}

// Permits for a batch: taken by the engine, given back by the writer, and
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

// Readers wait for permits of a peer until their patience ends; the writer gives
// them back in batches. Nobody holds more than there are, none is lost on one who
// left, and nobody waits while one is free.
func TestPermitsAreAwaitedInBatches(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		permits := flow.NewPermits(w.Inventory(), flow.PermitsSpec{Service: "overlay", Name: "inflight", Cap: 2, Waiting: 2})
		written := flow.NewQueue[int](w.Inventory(), flow.QueueSpec{Service: "overlay", Name: "written", Cap: 8})
		out, posting := permits.TryAcquire(2), 2
		w.Check(out == 2 && written.TryPush(out) == nil, "two are out")
		post := func(ctx context.Context, n int) {
			for n > 0 {
				got, err := permits.AcquireSome(ctx, n)
				if err != nil {
					w.Check(ctx.Err() != nil && got == 0, "left with %d: %v", got, err)
					break
				}
				out += got
				w.Check(got > 0 && got <= n && out <= 2, "got %d of %d, %d of 2 permits are out", got, n, out)
				n -= got
				w.Check(written.TryPush(got) == nil, "there is room")
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

// Letters are told in batches, and each is heard once, whoever closes when or
// never.
func TestBusTellsBatches(t *testing.T) {
	t.Run("closed", func(t *testing.T) { busTellsBatches(t, true) })
	t.Run("open", func(t *testing.T) { busTellsBatches(t, false) })
}

func busTellsBatches(t *testing.T, closes bool) {
	explore.Test(t, quick, func(w *explore.World) {
		bus := flow.NewBus[int](w.Inventory(), flow.BusSpec{Service: "overlay", Name: "deliveries", Cap: 8, Readers: 1})
		reader, err := bus.Subscribe("stream", nil)
		w.Check(err == nil, "subscribe: %v", err)
		told := 0
		w.Go("worker", func() {
			for _, batch := range [][]int{{0, 1}, nil, {2, 3, 4}} {
				if bus.PublishAll(batch) == nil {
					told += len(batch)
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
					w.Check(errors.Is(err, flow.ErrClosed) && heard == told, "heard %d of %d, %v", heard, told, err)
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
		told := 0
		w.Go("publisher", func() {
			if bus.Publish(1) == nil {
				told++
			}
		})
		w.Go("subscriber", func() {
			heard := 0
			for {
				if _, err := reader.Recv(context.Background()); err != nil {
					w.Check(errors.Is(err, flow.ErrClosed), "recv: %v", err)
					w.Check(heard == told, "heard %d of %d", heard, told)
					return
				}
				heard++
			}
		})
		w.Go("last one leaves", bus.Retire)
		w.After(func() {
			stat := w.Inventory().Read()[0]
			w.Check(stat.Instances == 0 && int(stat.Accepted) == told, "told %d: %+v", told, stat)
		})
	})
}

// crate is a small fair queue, as far as waking goes, with a switch for each
// mistake: batches go in, batches come out, and one wake goes from hand to hand.
type crate struct {
	seam flow.Seam
	bug  string

	mu      sync.Mutex
	items   []int
	closed  bool
	waiting []*flow.Waiter
}

func (c *crate) offer(batch ...int) (turned []int) {
	c.seam.Point("offer")
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return batch
	}
	if c.bug == "looks at closed, then stores" {
		c.mu.Unlock()
		c.seam.Point("looks away")
		c.mu.Lock()
	}
	for _, item := range batch {
		if len(c.items) == 2 {
			if c.bug != "displaced and forgotten" {
				turned = append(turned, c.items[0])
			}
			c.items = c.items[1:]
		}
		c.items = append(c.items, item)
	}
	w := c.nextWaiter()
	c.mu.Unlock()
	c.wake(w)
	return turned
}

func (c *crate) take(ctx context.Context, most int) ([]int, error) {
	for woken := false; ; woken = true {
		ended := ctx.Err() != nil
		if c.bug == "looks at its context twice" {
			if woken && ended {
				c.passOn()
			}
			c.seam.Point("looks away")
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		if ended {
			if c.bug != "leaver keeps the wake" {
				c.passOn()
			}
			return nil, ctx.Err()
		}
		c.seam.Point("take")
		c.mu.Lock()
		if n := min(most, len(c.items)); n > 0 {
			got := c.items[:n:n]
			c.items = c.items[n:]
			var w *flow.Waiter
			if c.bug != "taker keeps the wake" {
				w = c.nextWaiter()
			}
			c.mu.Unlock()
			c.wake(w)
			return got, nil
		}
		if c.closed {
			c.mu.Unlock()
			return nil, errBoxClosed
		}
		w := new(flow.Waiter)
		c.waiting = append(c.waiting, w)
		c.mu.Unlock()
		if !c.seam.Park(ctx, w) {
			c.giveUp(w)
		}
	}
}

// giveUp takes a waiter off the list, or receives the wake that is under way.
func (c *crate) giveUp(w *flow.Waiter) {
	c.seam.Point("gives up")
	c.mu.Lock()
	i := slices.Index(c.waiting, w)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	c.mu.Unlock()
	if i < 0 {
		c.seam.Park(context.Background(), w)
	}
}

func (c *crate) passOn() {
	c.seam.Point("passes on")
	c.mu.Lock()
	w := c.nextWaiter()
	c.mu.Unlock()
	c.wake(w)
}

func (c *crate) close() {
	c.seam.Point("close")
	c.mu.Lock()
	c.closed = true
	chain := c.waiting
	c.waiting = nil
	if c.bug == "close wakes only if empty" && len(c.items) > 0 {
		chain = nil
	}
	c.mu.Unlock()
	for _, w := range chain {
		c.wake(w)
	}
}

func (c *crate) nextWaiter() *flow.Waiter {
	if len(c.waiting) == 0 || len(c.items) == 0 {
		return nil
	}
	w := c.waiting[0]
	c.waiting = c.waiting[1:]
	return w
}

func (c *crate) wake(w *flow.Waiter) {
	if w != nil {
		c.seam.Wake(w)
	}
}

// crateWithoutClose has one batch for two who take one each, and one who may be
// gone by then: everybody who is patient must be served.
func crateWithoutClose(bug string) func(*explore.World) {
	return func(w *explore.World) {
		c := &crate{seam: w, bug: bug}
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

// crateWithClose has a shutdown at any moment.
func crateWithClose(bug string) func(*explore.World) {
	return func(w *explore.World) {
		c := &crate{seam: w, bug: bug}
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
		t.Run(bug, func(t *testing.T) { mustFind(t, crateWithoutClose(bug), sign) })
	}
	for bug, sign := range map[string]string{
		"looks at closed, then stores": "of 4",
		"displaced and forgotten":      "of 4",
		"close wakes only if empty":    "deadlock",
	} {
		t.Run(bug, func(t *testing.T) { mustFind(t, crateWithClose(bug), sign) })
	}
}

func TestTheCrateWithoutABugHolds(t *testing.T) {
	one := explore.Options{Preemptions: 1}
	explore.Test(t, one, crateWithoutClose(""))
	explore.Test(t, one, crateWithClose(""))
}
