package flow

import (
	"context"

	"micronode/fault"
)

// FairLaneSpec names and bounds a fair lane. Service, Name, Running and Waiting
// are required.
type FairLaneSpec struct {
	Service  string
	Name     string
	Waiting  int // how many may wait
	Running  int // how many run at a time
	PerClass int // how many of them of one class, where its share is more; zero means its share
	From     string
	To       string
	Effect   Effect // on the node, when it is full or does not move
	Next     string // what an operator can do then
}

// FairLane is a Lane for classes that do not trust each other: clients that
// read. A class runs as many pieces of work as are free, so that one alone gets
// half of the lane and a slot is free for the next; with PerClass, it gets no more
// than that. The rest waits, and the classes that wait are served in turn. When
// the waiting list is full, the class that holds most of it loses its newest
// waiter to one that holds less. It is a Fair queue of goroutines.
type FairLane struct {
	queue *Fair[*waiting[struct{}]]
	idle  waiters[struct{}]
}

// laneBand is the one band of the queue.
const laneBand = 1

// NewFairLane makes a lane and enters it into the inventory.
func NewFairLane(inv *Inventory, spec FairLaneSpec) *FairLane {
	return &FairLane{queue: NewFair[*waiting[struct{}]](inv, FairSpec{
		Service: spec.Service, Quantum: 1, MaxOutstanding: spec.Running, PerClass: spec.PerClass, From: spec.From, To: spec.To, Effect: spec.Effect, Next: spec.Next,
		Bands: []BandSpec{{Name: spec.Name, Cap: spec.Waiting, Bytes: spec.Waiting, Policy: RejectNew}},
	})}
}

// Enter starts a piece of work of a class, waiting for its turn until ctx ends
// if it must. It fails with fault.Busy when the waiting list is full, and with
// fault.Timeout or fault.Canceled when ctx ends. After a nil error the caller
// must call Leave exactly once.
func (l *FairLane) Enter(ctx context.Context, class uint64) error {
	f := l.queue
	if ctx.Err() != nil {
		return Ended(ctx, f.op(laneBand))
	}
	f.inv.seam.point("fair lane enter")
	f.mu.Lock()
	if l.tryEnter(class) {
		f.mu.Unlock()
		return nil
	}
	w := l.idle.get()
	w.dequeued, w.granted = false, false
	turned, took := f.offer(laneBand, &FairItem[*waiting[struct{}]]{Class: class, Cost: 1, Item: w}, nil, false)
	for _, evicted := range turned {
		evicted.dequeued = true
	}
	f.mu.Unlock()
	for _, evicted := range turned {
		f.inv.seam.wake(&evicted.Waiter)
	}
	if !took {
		l.idle.put(w)
		return l.busy()
	}
	return l.await(ctx, class, w)
}

// TryEnter starts a piece of work of a class if it need not wait. After true
// the caller must call Leave exactly once.
func (l *FairLane) TryEnter(class uint64) bool {
	l.queue.inv.seam.point("fair lane enter")
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return l.tryEnter(class)
}

// tryEnter overtakes nobody: whoever waits has its share, or it would have been
// let in when the slot became free. Guarded by the queue's mu.
func (l *FairLane) tryEnter(class uint64) bool {
	f, key := l.queue, classKey{laneBand, class}
	if !f.mayHaveMore(f.outstanding[key]) {
		return false
	}
	f.outstanding[key]++
	f.outstandingTotal++
	f.bands[laneBand].accepted++
	f.bands[laneBand].delivered++
	return true
}

// await parks the caller until its waiter is granted a slot or evicted, or ctx
// ends.
func (l *FairLane) await(ctx context.Context, class uint64, w *waiting[struct{}]) error {
	f := l.queue
	if !f.inv.seam.park(ctx, &w.Waiter) {
		f.inv.seam.point("fair lane give up")
		f.mu.Lock()
		dequeued := w.dequeued
		if !dequeued {
			at, c := f.seek(classKey{laneBand, class}, func(one *waiting[struct{}]) bool { return one == w })
			var gone *waiting[struct{}]
			f.remove(c, at, &gone)
			f.bands[laneBand].withdrawn++
			f.releaseSlab()
		}
		f.mu.Unlock()
		if !dequeued {
			l.idle.put(w)
			return Ended(ctx, f.op(laneBand))
		}
		f.inv.seam.park(context.Background(), &w.Waiter) // the waker has not yet got as far as the wake
	}
	granted := w.granted
	l.idle.put(w)
	if !granted {
		return l.busy()
	}
	return nil
}

func (l *FairLane) busy() error { return &fault.Error{Op: l.queue.op(laneBand), Kind: fault.Busy} }

// Leave ends a piece of work of a class and lets waiters in.
func (l *FairLane) Leave(class uint64) {
	f, key := l.queue, classKey{laneBand, class}
	f.inv.seam.point("fair lane leave")
	f.mu.Lock()
	if f.outstanding[key] == 0 {
		f.mu.Unlock()
		panic("flow: " + f.op(laneBand) + ": Leave without Enter")
	}
	if f.outstanding[key]--; f.outstanding[key] == 0 {
		delete(f.outstanding, key)
	}
	f.outstandingTotal--
	chain := l.grant()
	f.mu.Unlock()
	wakeAll(f.inv.seam, chain)
}

// grant takes the waiters off the list that may run now, and returns the chain
// of them for wakeAll. Guarded by the queue's mu.
func (l *FairLane) grant() (chain *waiting[struct{}]) {
	f := l.queue
	taken := false
	for f.hasReady() {
		var w *waiting[struct{}]
		f.next(&w)
		f.bands[laneBand].delivered++
		w.dequeued, w.granted, taken = true, true, true
		w.next, chain = chain, w
	}
	if taken {
		f.releaseSlab()
	}
	return chain
}

// RunningOf is how many pieces of work of a class run.
func (l *FairLane) RunningOf(class uint64) int {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return l.queue.outstanding[classKey{laneBand, class}]
}

// Running is how many run at a time, at most.
func (l *FairLane) Running() int { return l.queue.maxOutstanding }
