package flow

import "math"

// Occupy takes every free slot of a component, so that it refuses whatever
// comes next, and returns a function that releases them. It reports false for a
// component that cannot be full, or is not known.
//
// It is for tests of how a node reacts to a full queue, whichever it is. It
// fills queues with empty items that must not be consumed, so the component's
// consumers must not run meanwhile.
func (inv *Inventory) Occupy(service, kind, name string) (release func(), ok bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	known := inv.components[key{service, kind, name}]
	if known == nil {
		return nil, false
	}
	for _, inst := range known.instances {
		if one, can := inst.(interface{ occupy() (release func()) }); can {
			return one.occupy(), true
		}
	}
	return nil, false
}

func (q *Queue[T]) occupy() (leave func()) {
	var none T
	n := q.Cap() - q.Len()
	for range n {
		_ = q.TryPush(none) // there is room
	}
	return func() {
		for range n {
			q.TryPop()
		}
	}
}

// occupy takes every free slot and every free position in the waiting list.
// Each leave grants the slot to a waiter.
func (s *semaphore) occupy() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inside, waiting := s.capacity-s.inside, s.maxWaiting-s.waiting.n
	s.inside += inside
	for range waiting {
		s.waiting.add(s.idle.get())
	}
	return func() {
		for range inside + waiting {
			s.leave()
		}
	}
}

func (b fairBand[T]) occupy() (leave func()) {
	n := b.queue.bands[b.index].spec.Cap - b.queue.Len(b.index)
	for range n {
		_ = b.queue.TryPush(b.index, FairItem[T]{Cost: 1}) // there is room
	}
	return func() {
		b.queue.mu.Lock()
		defer b.queue.mu.Unlock()
		hands := b.queue.maxOutstanding
		b.queue.maxOutstanding = 0 // these do not count as outstanding
		b.queue.takeBatch(make([]T, n), math.MaxInt)
		b.queue.maxOutstanding = hands
	}
}
