package flow

import (
	"context"
	"sync"
)

// waiting is one goroutine in a waitlist. A waker takes it off the list and
// records what the waiter got, under the lock of the list's owner. A waiter
// whose context ends takes itself off.
type waiting[T any] struct {
	Waiter

	// guarded by the mutex of the list's owner
	prev, next *waiting[T]
	dequeued   bool // taken off by a waker
	granted    bool // and granted what it waited for; otherwise the owner closed
	item       T
}

// waitlist is a first-in, first-out list of waiters, guarded by its owner's
// mutex. It is doubly linked because a waiter may leave from the middle.
type waitlist[T any] struct {
	first, last *waiting[T]
	n           int
}

func (l *waitlist[T]) add(w *waiting[T]) {
	w.prev, w.next, w.dequeued, w.granted = l.last, nil, false, false
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

// grantFirst takes the longest waiter off the list and grants it the item.
// The caller wakes it once the lock is released.
func (l *waitlist[T]) grantFirst(item T) *waiting[T] {
	w := l.first
	l.remove(w)
	w.dequeued, w.granted, w.item = true, true, item
	return w
}

// grantSome takes up to n of the longest waiters off the list and grants them
// what they wait for. It returns the chain of them for wakeAll, and how many.
func (l *waitlist[T]) grantSome(n int) (chain *waiting[T], granted int) {
	if n >= l.n {
		granted = l.n
		return l.dequeueAll(true), granted
	}
	var last *waiting[T]
	for ; granted < n; granted++ {
		w := l.first
		l.remove(w)
		w.dequeued, w.granted = true, true
		if last == nil {
			chain = w
		} else {
			last.next = w
		}
		last = w
	}
	return chain, granted
}

// dequeueAll takes every waiter off the list and returns the chain of them for
// wakeAll. granted says whether something happened or the owner closed.
func (l *waitlist[T]) dequeueAll(granted bool) *waiting[T] {
	chain := l.first
	for w := chain; w != nil; w = w.next {
		w.dequeued, w.granted = true, granted
	}
	*l = waitlist[T]{}
	return chain
}

// wakeAll wakes a chain from dequeueAll. The link is read before the wake: a
// woken waiter belongs to its goroutine again and may be listed elsewhere.
func wakeAll[T any](s seam, chain *waiting[T]) {
	for w := chain; w != nil; {
		next := w.next
		s.wake(&w.Waiter)
		w = next
	}
}

// await parks the calling goroutine until its waiter, which is on the list, is
// dequeued or ctx ends, and reports whether it was dequeued. Mu is the mutex of
// the list's owner. A waiter that is dequeued at the very moment at which ctx
// ends counts as dequeued: what it was granted is neither lost nor granted
// twice.
func await[T any](ctx context.Context, s seam, mu *sync.Mutex, l *waitlist[T], w *waiting[T]) bool {
	if s.park(ctx, &w.Waiter) {
		return true
	}
	s.point("give up")
	mu.Lock()
	dequeued := w.dequeued
	if !dequeued {
		l.remove(w)
	}
	mu.Unlock()
	if dequeued {
		// The waker has not yet got as far as the wake. Receive it, so that it
		// does not reach the next user of this waiter.
		s.park(context.Background(), &w.Waiter)
	}
	return dequeued
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

// put keeps a waiter for reuse. It is off every list and its wake, if there was
// one, has been received.
func (p *waiters[T]) put(w *waiting[T]) {
	var zero T
	w.item = zero
	p.pool.Put(w)
}
