package flow

import (
	"context"
	"sync"

	"micronode/fault"
)

// semaphore lets a bounded number of goroutines inside and a bounded number
// wait in order. Lane and Permits are two APIs for it.
type semaphore struct {
	// set at construction
	capacity   int // how many may be inside
	maxWaiting int // how many may wait
	enrolment  enrolment
	full       fault.Kind // what a caller gets when the waiting list is full
	late       fault.Kind // what a waiter gets when its deadline passes

	idle waiters[struct{}]

	mu      sync.Mutex //lockblock:leaf a few assignments; waking happens after unlock
	closed  bool
	inside  int
	waiting waitlist[struct{}]
	drained waitlist[struct{}] // waiters for inside to become zero
	counts  Counts
	fullErr error // of the kind full; nil before the first use
}

func (s *semaphore) enrol(inv *Inventory, entry Entry, full, late fault.Kind) {
	s.capacity, s.maxWaiting, s.full, s.late = entry.Cap, entry.Waiting, full, late
	s.enrolment = inv.enrol(entry, s)
}

func (s *semaphore) seam() seam { return s.enrolment.inv.seam }

// op is the name of the semaphore in errors. Errors are made on first use:
// there is a semaphore for each session, and most never refuse anything.
func (s *semaphore) op() string {
	k := &s.enrolment.key
	return k.kind + " " + k.service + "/" + k.name
}

func (s *semaphore) closedErr() error {
	return &fault.Error{Op: s.op(), Kind: fault.Canceled, Err: ErrClosed}
}

// enter goes inside, waiting in order until ctx ends if it must.
func (s *semaphore) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return s.ended(ctx)
	}
	s.seam().point("gate enter")
	s.mu.Lock()
	if err := s.admit(); err != nil {
		s.mu.Unlock()
		return err
	}
	if s.inside < s.capacity {
		s.inside++
		s.counts.Accepted++
		s.mu.Unlock()
		return nil
	}
	w := s.idle.get()
	s.waiting.add(w)
	s.mu.Unlock()

	dequeued := await(ctx, s.seam(), &s.mu, &s.waiting, w)
	granted := w.granted
	s.idle.put(w)
	switch {
	case !dequeued:
		return s.ended(ctx)
	case !granted:
		return s.closedErr()
	default:
		return nil
	}
}

// admit says whether a caller may go inside or wait. The waiting list is empty
// while there is room, so a caller never overtakes a waiter. Guarded by mu.
func (s *semaphore) admit() error {
	switch {
	case s.closed:
		return s.closedErr()
	case s.inside >= s.capacity && s.waiting.n >= s.maxWaiting:
		s.counts.Refused++
		if s.fullErr == nil {
			s.fullErr = &fault.Error{Op: s.op(), Kind: s.full}
		}
		return s.fullErr
	default:
		return nil
	}
}

// leave grants the slot to the longest waiter, or frees it.
func (s *semaphore) leave() {
	s.seam().point("gate leave")
	s.mu.Lock()
	if s.inside == 0 {
		s.mu.Unlock()
		panic("flow: " + s.op() + ": released more often than acquired; pair each successful call with one release")
	}
	s.counts.Delivered++
	if s.waiting.n > 0 {
		s.counts.Accepted++
		w := s.waiting.grantFirst(struct{}{})
		s.mu.Unlock()
		s.seam().wake(&w.Waiter)
		return
	}
	s.inside--
	var chain *waiting[struct{}]
	if s.inside == 0 {
		chain = s.drained.dequeueAll(true)
	}
	s.mu.Unlock()
	wakeAll(s.seam(), chain)
}

// enterMany enters up to n times, as often as there is room, without waiting.
func (s *semaphore) enterMany(n int) int {
	if n < 0 {
		panic("flow: " + s.op() + ": the number asked for at once must be 0 or more")
	}
	s.seam().point("gate enter")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0
	}
	got := min(n, s.capacity-s.inside) // zero while the waiting list is not empty
	s.inside += got
	s.counts.Accepted += uint64(got)
	s.counts.Refused += uint64(n - got)
	return got
}

// leaveMany leaves n times and grants the slots to the longest waiters.
func (s *semaphore) leaveMany(n int) {
	if n < 0 {
		panic("flow: " + s.op() + ": the number released at once must be 0 or more")
	}
	if n == 0 {
		return
	}
	s.seam().point("gate leave")
	s.mu.Lock()
	if s.inside < n {
		s.mu.Unlock()
		panic("flow: " + s.op() + ": released more often than acquired; pair each successful call with one release")
	}
	s.counts.Delivered += uint64(n)
	chain, let := s.waiting.grantSome(n)
	s.counts.Accepted += uint64(let)
	s.inside -= n - let
	if s.inside == 0 { // so no waiter was granted a slot
		chain = s.drained.dequeueAll(true)
	}
	s.mu.Unlock()
	wakeAll(s.seam(), chain)
}

// close refuses every later enter and wakes all waiters with ErrClosed.
// Goroutines that are inside are not affected.
func (s *semaphore) close() {
	s.seam().point("gate close")
	s.mu.Lock()
	s.closed = true
	chain := s.waiting.dequeueAll(false)
	s.mu.Unlock()
	wakeAll(s.seam(), chain)
}

// drain closes and waits until inside is zero, or until ctx ends.
func (s *semaphore) drain(ctx context.Context) error {
	s.close()
	s.seam().point("gate drain")
	s.mu.Lock()
	if s.inside == 0 {
		s.mu.Unlock()
		return nil
	}
	w := s.idle.get()
	s.drained.add(w)
	s.mu.Unlock()

	dequeued := await(ctx, s.seam(), &s.mu, &s.drained, w)
	s.idle.put(w)
	if !dequeued {
		return Ended(ctx, s.op()+" drain")
	}
	return nil
}

// ended counts a caller whose ctx ended and returns an error of the kind that
// the semaphore has for it.
func (s *semaphore) ended(ctx context.Context) error {
	s.mu.Lock()
	s.counts.Expired++
	s.mu.Unlock()
	err := Ended(ctx, s.op())
	if fault.KindOf(err) == fault.Timeout && s.late != fault.Timeout {
		return fault.WrapKind(s.op(), s.late, err)
	}
	return err
}

func (s *semaphore) read() (depth int, counts Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts = s.counts
	counts.Inside = s.inside
	counts.Utilization = float64(s.inside+s.waiting.n) / float64(s.capacity+s.maxWaiting)
	return s.waiting.n, counts
}
