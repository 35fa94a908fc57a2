package flow

import (
	"context"
	"sync"
)

// waiting is one goroutine in a waitlist. A waker that takes it off the list
// settles it: it says what the waiter got, under the lock of the list's owner.
// A waiter that gives up takes itself off.
type waiting[T any] struct {
	Waiter

	// guarded by the mutex of the list's owner
	prev, next *waiting[T]
	settled    bool // taken off by a waker
	granted    bool // and given what it waited for; otherwise the owner closed
	item       T
}

// waitlist is a first-in, first-out list of waiters, guarded by its owner's
// mutex. It is doubly linked because a waiter may give up in the middle.
type waitlist[T any] struct {
	first, last *waiting[T]
	n           int
}

func (l *waitlist[T]) add(w *waiting[T]) {
	w.prev, w.next, w.settled, w.granted = l.last, nil, false, false
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
}

func (l *waitlist[T]) remove(w *waiting[T]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	l.n--
}

// settleFirst takes the longest waiter off the list and grants it the item.
// The caller wakes it once the lock is released.
func (l *waitlist[T]) settleFirst(item T) *waiting[T] {
	w := l.first
	l.remove(w)
	w.settled, w.granted, w.item = true, true, item
	return w
}

// settleSome takes up to n of the longest waiters off the list and grants them
// what they wait for. It returns the chain of them for wakeAll, and how many.
func (l *waitlist[T]) settleSome(n int) (chain *waiting[T], settled int) {
	if n >= l.n {
		settled = l.n
		return l.settleAll(true), settled
	}
	var last *waiting[T]
	for ; settled < n; settled++ {
		w := l.first
		l.remove(w)
		w.settled, w.granted = true, true
		if last == nil {
			chain = w
		} else {
			last.next = w
		}
		last = w
	}
	return chain, settled
}

// settleAll takes every waiter off the list and returns the chain of them for
// wakeAll. granted tells them whether something happened or the owner closed.
func (l *waitlist[T]) settleAll(granted bool) *waiting[T] {
	chain := l.first
	for w := chain; w != nil; w = w.next {
		w.settled, w.granted = true, granted
	}
	*l = waitlist[T]{}
	return chain
}

// wakeAll wakes a chain from settleAll. The link is read before the wake: a
// woken waiter belongs to its goroutine again and may be listed elsewhere.
func wakeAll[T any](s seam, chain *waiting[T]) {
	for w := chain; w != nil; {
		next := w.next
		s.wake(&w.Waiter)
		w = next
	}
}

// await parks the calling goroutine until its waiter, which is on the list, is
// settled or ctx ends, and reports whether it was settled. Mu is the mutex of
// the list's owner. A waiter that is settled in the very moment in which ctx
// ends counts as settled: what it was handed is neither lost nor given twice.
func await[T any](ctx context.Context, s seam, mu *sync.Mutex, l *waitlist[T], w *waiting[T]) bool {
	if s.park(ctx, &w.Waiter) {
		return true
	}
	s.point("give up")
	mu.Lock()
	settled := w.settled
	if !settled {
		l.remove(w)
	}
	mu.Unlock()
	if settled {
		// The waker has not yet got as far as the wake. Receive it, so that it
		// does not reach the next one who uses this waiter.
		s.park(context.Background(), &w.Waiter)
	}
	return settled
}

// waiters keeps waiters for reuse, so that parking allocates nothing once a
// queue is warm.
type waiters[T any] struct{ pool sync.Pool }

func (p *waiters[T]) get() *waiting[T] {
	if w, ok := p.pool.Get().(*waiting[T]); ok {
		return w
	}
	return &waiting[T]{Waiter: Waiter{ready: make(chan struct{}, 1)}}
}

// put takes back a waiter that is off every list and whose wake, if there was
// one, has been received.
func (p *waiters[T]) put(w *waiting[T]) {
	var zero T
	w.item = zero
	p.pool.Put(w)
}
