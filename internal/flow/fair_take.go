package flow

import (
	"context"
)

// remove takes an item out of its class, and an empty class out of the circle:
// a class without items loses its deficit. Guarded by mu.
func (f *Fair[T]) remove(c *class, at int32, to *T) {
	cost := f.slab.remove(&c.waiting, at, to)
	c.bytes -= cost
	f.subtract(c.key.band, cost)
	if c.waiting.n > 0 {
		return
	}
	c.prev.next, c.next.prev = c.next, c.prev
	if f.turn == c {
		f.turn = c.next
	}
	if f.turn == c {
		f.turn = nil
	}
	f.slab.freeClass(c)
}

// subtract updates the counts of a band that an item has left. Guarded by mu.
func (f *Fair[T]) subtract(b, cost int) {
	f.bands[b].items--
	f.bands[b].bytes -= cost
	f.shared.add(-cost)
}

// Take moves items into into, waiting until ctx ends for the first one. It
// takes at most len(into) items, and stops once they cost most bytes together;
// the first is taken whatever it costs. A Take whose ctx has ended takes
// nothing. A closed queue still returns what it holds, without waiting; when it
// is empty, Take fails with ErrClosed.
func (f *Fair[T]) Take(ctx context.Context, into []T, most int) (int, error) {
	if len(into) == 0 {
		panic("flow: " + f.op(1) + ": Take needs room for an item")
	}
	var w *waiting[struct{}] // ours, once we have waited
	for {
		if ctx.Err() != nil {
			f.wakeAnother()
			return 0, Ended(ctx, f.op(1))
		}
		f.inv.seam.point("fair take")
		f.mu.Lock()
		if n := f.takeBatch(into, most); n > 0 {
			f.putWaiter(w)
			next, chain := f.nextPopper(), f.pushers.dequeueAll(true)
			f.mu.Unlock()
			f.wake(next)
			wakeAll(f.inv.seam, chain)
			return n, nil
		}
		if f.closed {
			f.mu.Unlock()
			return 0, f.closedErr()
		}
		if w == nil {
			w = f.getWaiter()
		}
		f.poppers.add(w)
		f.mu.Unlock()

		await(ctx, f.inv.seam, &f.mu, &f.poppers, w) // the next round sees the outcome
	}
}

// getWaiter returns an unused waiter, or a new one. There are as many as ever
// waited at a time. Guarded by mu.
func (f *Fair[T]) getWaiter() *waiting[struct{}] {
	w := f.idle
	if w == nil {
		return &waiting[struct{}]{Waiter: Waiter{ready: make(chan struct{}, 1)}}
	}
	f.idle = w.next
	return w
}

// putWaiter keeps a waiter for reuse; nil is ignored. Guarded by mu.
func (f *Fair[T]) putWaiter(w *waiting[struct{}]) {
	if w != nil {
		w.next, f.idle = f.idle, w
	}
}

// wakeAnother wakes another consumer in place of one that leaves, which may
// have been woken just before. The leaving consumer cannot know: its context
// can end between the wake and the check of the context. One wake too many does
// no harm.
func (f *Fair[T]) wakeAnother() {
	f.inv.seam.point("fair pass on")
	f.mu.Lock()
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
}

// takeBatch takes the items that are ready. Guarded by mu.
func (f *Fair[T]) takeBatch(into []T, most int) (n int) {
	for spent := 0; f.hasReady() && n < len(into) && (n == 0 || spent < most); n++ {
		b, cost := f.next(&into[n])
		f.bands[b].delivered++
		spent += cost
	}
	if n > 0 {
		f.releaseSlab()
	}
	return n
}

// releaseSlab drops the slab of an empty queue. A queue in use soon needs it
// again and finds it through the weak pointer; that of an idle queue is garbage
// collected. Guarded by mu.
func (f *Fair[T]) releaseSlab() {
	if f.isEmpty() {
		f.slab = nil
	}
}

// isEmpty reports whether nothing waits. Guarded by mu.
func (f *Fair[T]) isEmpty() bool { return f.urgent.n == 0 && f.turn == nil }

// hasReady says whether anything waits that may be taken now. Guarded by mu.
func (f *Fair[T]) hasReady() bool {
	if f.urgent.n > 0 || f.turn == nil {
		return f.urgent.n > 0
	}
	for c := f.turn; ; {
		if f.canTake(c) {
			return true
		}
		if c = c.next; c == f.turn {
			return false
		}
	}
}

// next takes the next item, an urgent one or one of the class whose turn it is,
// and returns its band and cost. A batch may end in the middle of a turn; the
// class then continues with the deficit that is left. A turn passes without an
// item only if the item costs more than the deficit of its class, and each such
// turn adds a quantum: all of the loop is bounded by the bytes that wait over
// the quantum. A class that may not take another item is skipped, and its
// deficit does not grow meanwhile. Guarded by mu; an item is ready.
func (f *Fair[T]) next(to *T) (b, cost int) {
	if f.urgent.n > 0 {
		cost = f.slab.remove(&f.urgent, f.urgent.first, to)
		f.subtract(Urgent, cost)
		return Urgent, cost
	}
	for {
		c := f.turn
		at := f.ready(c)
		if at == 0 {
			c.credited, c.deficit = false, min(c.deficit, f.quantum)
			f.turn = c.next
			continue
		}
		if !c.credited {
			c.credited = true
			c.deficit += f.quantum
		}
		cost = f.slab.slots[at].item.Cost
		if c.next == c {
			c.deficit = max(c.deficit, cost) // no other class waits
		}
		if cost <= c.deficit {
			c.deficit -= cost
			b = c.key.band
			if f.maxOutstanding > 0 {
				f.outstanding[c.key]++
				f.outstandingTotal++
			}
			if f.members {
				f.byMember[memberKey{c.key, f.slab.slots[at].item.Member}]++
			}
			f.remove(c, at, to)
			return b, cost
		}
		c.credited = false
		f.turn = c.next
	}
}

// nextPopper takes a consumer off the list if there is an item for it. One wake
// leads to the next: a consumer that leaves items behind wakes another. Guarded
// by mu; the caller wakes after unlocking.
func (f *Fair[T]) nextPopper() *waiting[struct{}] {
	if f.poppers.n == 0 || !f.hasReady() {
		return nil
	}
	return f.poppers.grantFirst(struct{}{})
}

func (f *Fair[T]) wake(w *waiting[struct{}]) {
	if w != nil {
		f.inv.seam.wake(&w.Waiter)
	}
}
