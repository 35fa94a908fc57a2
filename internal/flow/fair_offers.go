package flow

import (
	"context"
	"weak"

	"micronode/fault"
)

// refuse counts a refused item and returns the error, which is the same each
// time, so that a flood allocates nothing. Guarded by mu.
func (f *Fair[T]) refuse(b int) error {
	in := &f.bands[b]
	in.refused++
	if in.busy == nil {
		in.busy = &fault.Error{Op: f.op(b), Kind: fault.Busy}
	}
	return in.busy
}

// TryPush offers one item and never waits. It evicts nothing: on a full band it
// fails with fault.Busy, on a closed queue with ErrClosed.
func (f *Fair[T]) TryPush(b int, p FairItem[T]) error {
	f.mustHave(b)
	p.Cost = max(p.Cost, 1)
	f.inv.seam.point("fair push")
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return f.closedErr()
	}
	if !f.bands[b].fits(p.Cost, f.byteLimit(b)) {
		err := f.refuse(b)
		f.mu.Unlock()
		return err
	}
	f.enqueue(b, &p)
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return nil
}

// Offer offers a batch and never waits. Every refused item of the batch and
// every evicted item is appended to turned: the caller may have to report them.
// A closed queue refuses all items. A cost in the batch that is below one
// becomes one.
func (f *Fair[T]) Offer(b int, batch []FairItem[T], turned []T) []T {
	f.mustHave(b)
	f.inv.seam.point("fair offer")
	f.mu.Lock()
	for i := range batch {
		p := &batch[i]
		p.Cost = max(p.Cost, 1)
		took := false
		if turned, took = f.offer(b, p, turned, true); !took {
			turned = append(turned, p.Item)
		}
	}
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return turned
}

// OfferSome offers a batch up to the first item for which there is no room, and
// returns how many it took. It evicts from the richest class as Offer does, and
// appends evicted items to turned; but no item evicts another of its own class,
// whatever the policy. So a caller can wait for room instead, see AwaitRoom, or
// return an error.
func (f *Fair[T]) OfferSome(b int, batch []FairItem[T], turned []T) (int, []T) {
	f.mustHave(b)
	f.inv.seam.point("fair offer")
	f.mu.Lock()
	n, took := 0, true
	for n < len(batch) {
		p := &batch[n]
		p.Cost = max(p.Cost, 1)
		if turned, took = f.offer(b, p, turned, false); !took {
			break
		}
		n++
	}
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return n, turned
}

// AwaitRoom waits until a band has room for an item of some cost, or ctx ends.
// Another producer may use the room first. AwaitRoom fails with fault.Busy if
// too many producers wait already, and with ErrClosed on a closed queue.
func (f *Fair[T]) AwaitRoom(ctx context.Context, b, cost int) error {
	f.mustHave(b)
	var w *waiting[struct{}] // ours, once we have waited
	for {
		if ctx.Err() != nil {
			return Ended(ctx, f.op(b))
		}
		f.inv.seam.point("fair room")
		f.mu.Lock()
		err := f.roomFor(b, max(cost, 1))
		if err == nil || f.closed || f.pushers.n >= f.maxWaiting || f.isEmpty() { // what makes room in other queues wakes nobody here
			f.putWaiter(w)
			f.mu.Unlock()
			return err
		}
		if w == nil {
			w = f.getWaiter()
		}
		f.pushers.add(w)
		f.mu.Unlock()

		await(ctx, f.inv.seam, &f.mu, &f.pushers, w) // the next round sees the outcome
	}
}

// roomFor is nil if there is room, and otherwise the error for callers that do
// not wait for it. Guarded by mu.
func (f *Fair[T]) roomFor(b, cost int) error {
	switch {
	case f.closed:
		return f.closedErr()
	case f.bands[b].fits(cost, f.byteLimit(b)):
		return nil
	case f.bands[b].busy == nil:
		f.bands[b].busy = &fault.Error{Op: f.op(b), Kind: fault.Busy}
	}
	return f.bands[b].busy
}

// mustHave panics if the program uses an urgent band that the spec does not
// name: items in such a band would be lost.
func (f *Fair[T]) mustHave(b int) {
	if f.bands[b].serial == 0 {
		panic("flow: " + f.op(1) + " was made without an urgent band; name one in its spec")
	}
}

// offer enqueues one item, evicting others for it if it must, and reports
// whether it did. Own says whether items of its own class may be evicted.
// Guarded by mu.
func (f *Fair[T]) offer(b int, p *FairItem[T], turned []T, own bool) ([]T, bool) {
	if f.closed {
		return turned, false
	}
	in, limit := &f.bands[b], f.byteLimit(b) // once: other queues change it meanwhile
	if in.fits(p.Cost, limit) {
		f.enqueue(b, p)
		return turned, true
	}
	donor, n := f.makeRoom(b, p, own, limit)
	if n == 0 {
		in.refused++
		return turned, false
	}
	// The new item is enqueued first: a class that replaces all its items must
	// not lose its position in the circle.
	f.enqueue(b, p)
	in.dropped += uint64(n)
	for range n {
		var none T
		turned = append(turned, none)
		f.remove(donor, f.victimSlot(donor), &turned[len(turned)-1])
	}
	return turned, true
}

// fits reports whether a band has room for an item, within a limit of bytes.
func (b *band) fits(cost, limit int) bool {
	return b.items < b.spec.Cap && b.bytes+cost <= limit
}

// byteLimit is how many bytes a band may hold now: less than its own bound while
// other queues hold much of the budget that they share. What is urgent may use
// all that is left, everything else at most as much. Guarded by mu.
func (f *Fair[T]) byteLimit(b int) int {
	in := &f.bands[b]
	switch {
	case f.shared == nil:
		return in.spec.Bytes
	case b == Urgent:
		return min(in.spec.Bytes, in.bytes+f.shared.left())
	default:
		return min(in.spec.Bytes, f.shared.left())
	}
}

// enqueue puts an item behind the others of its class. Guarded by mu.
func (f *Fair[T]) enqueue(b int, p *FairItem[T]) {
	in := &f.bands[b]
	in.items++
	in.bytes += p.Cost
	f.shared.add(p.Cost)
	in.accepted++
	if f.slab == nil {
		f.ensureSlab()
	}
	if b == Urgent {
		f.slab.append(&f.urgent, p)
		return
	}
	c := f.classOf(classKey{b, p.Class})
	if c == nil {
		c = f.addClass(classKey{b, p.Class})
	}
	f.slab.append(&c.waiting, p)
	c.bytes += p.Cost
}

// classOf finds a class that holds something; nil if there is none. Often there
// is only one, and then it is its turn. Guarded by mu.
func (f *Fair[T]) classOf(key classKey) *class {
	if f.turn != nil && f.turn.key == key {
		return f.turn
	}
	return f.slab.classes[key]
}

// ensureSlab gets a slab for the first item: the last one, unless it was
// collected. Guarded by mu.
func (f *Fair[T]) ensureSlab() {
	if f.slab = f.kept.Value(); f.slab == nil {
		f.slab = new(slab[T])
		f.kept = weak.Make(f.slab)
	}
}

// addClass appends a class to the circle. Guarded by mu.
func (f *Fair[T]) addClass(key classKey) *class {
	c := f.slab.newClass(key)
	if f.turn == nil {
		c.prev, c.next, f.turn = c, c, c
		return c
	}
	c.prev, c.next = f.turn.prev, f.turn
	c.prev.next, c.next.prev = c, c
	return c
}
