package flow

import (
	"context"
	"sync"

	"micronode/fault"
)

// Policy says what a push does to a full queue.
type Policy uint8

const (
	// RejectNew refuses the new item with fault.Busy. It is for work that a
	// caller waits for: the refusal reaches the caller, which can slow down.
	RejectNew Policy = iota

	// DropOldest makes room by dropping the item that waited longest, and
	// counts it. It is for telemetry, where the newest is worth the most.
	DropOldest

	// Coalesce overwrites the newest waiting item. It is for "something
	// changed" messages: the last value pushed is always the last delivered.
	Coalesce
)

// String is how the policy is written in the inventory.
func (p Policy) String() string {
	switch p {
	case DropOldest:
		return "drop-oldest"
	case Coalesce:
		return "coalesce"
	default:
		return "reject-new"
	}
}

// QueueSpec names and bounds a queue. Service, Name and Cap are required.
type QueueSpec struct {
	Service string // the owner: the service label of its metrics
	Name    string // what it is called in metrics, logs and the inventory
	Cap     int    // how many items may wait
	Policy  Policy
	From    string // the producers
	To      string // the consumers
	Each    string // "session", if there is one queue for each; otherwise there is one
	Effect  Effect // on the node, when it is full or does not move
	Next    string // what an operator can do then
}

// Queue passes items from many producers to many consumers. Items leave in
// order of arrival; consumers are served in the order in which they began to
// wait. An item that was accepted is delivered exactly once, unless the policy
// drops or overwrites it, and then it is counted.
type Queue[T any] struct {
	// set at construction
	spec      QueueSpec
	seam      seam
	enrolment enrolment
	busy      error
	closedErr error

	idle waiters[T]

	mu      sync.Mutex //lockblock:leaf a few assignments; waking happens after unlock
	closed  bool
	ring    ring[T]
	poppers waitlist[T] // not empty only while the ring is empty
	counts  Counts
}

// NewQueue makes a queue and enters it into the inventory. A queue without a
// name or a bound is a mistake in the program, so it panics.
func NewQueue[T any](inv *Inventory, spec QueueSpec) *Queue[T] {
	q := &Queue[T]{spec: spec, seam: inv.seam, ring: ring[T]{cap: spec.Cap}}
	op := "queue " + spec.Service + "/" + spec.Name
	q.busy = &fault.Error{Op: op, Kind: fault.Busy}
	q.closedErr = &fault.Error{Op: op, Kind: fault.Canceled, Err: ErrClosed}
	q.enrolment = inv.enrol(Entry{
		Service: spec.Service, Name: spec.Name, Kind: kindQueue, Cap: spec.Cap,
		Policy: spec.Policy.String(), From: spec.From, To: spec.To, Each: spec.Each, Effect: spec.Effect, Next: spec.Next,
	}, q)
	return q
}

// TryPush offers an item and never waits. On a full queue it does what the
// policy says; on a closed one it fails with ErrClosed.
func (q *Queue[T]) TryPush(item T) error {
	q.seam.point("queue push")
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return q.closedErr
	}
	if q.poppers.n > 0 {
		q.counts.Accepted++
		q.counts.Delivered++
		w := q.poppers.grantFirst(item)
		q.mu.Unlock()
		q.seam.wake(&w.Waiter)
		return nil
	}
	err := q.enqueue(item)
	q.mu.Unlock()
	return err
}

// enqueue puts the item into the ring as the policy allows. Guarded by mu.
func (q *Queue[T]) enqueue(item T) error {
	if q.ring.n < q.spec.Cap {
		q.counts.Accepted++
		q.ring.push(item)
		return nil
	}
	switch q.spec.Policy {
	case DropOldest:
		q.counts.Accepted++
		q.counts.Dropped++
		q.ring.pop()
		q.ring.push(item)
		return nil
	case Coalesce:
		q.counts.Accepted++
		q.counts.Coalesced++
		q.ring.replaceLast(item)
		return nil
	default:
		q.counts.Refused++
		return q.busy
	}
}

// Pop takes the oldest item, waiting for one until ctx ends. A closed queue
// still returns what it holds; when it is empty, Pop fails with ErrClosed. A
// Pop whose ctx has ended takes nothing, with one exception: an item that was
// granted at the very moment of cancellation is returned, not lost.
func (q *Queue[T]) Pop(ctx context.Context) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, Ended(ctx, q.op())
	}
	q.seam.point("queue pop")
	q.mu.Lock()
	if q.ring.n > 0 {
		q.counts.Delivered++
		item := q.ring.pop()
		q.mu.Unlock()
		return item, nil
	}
	if q.closed {
		q.mu.Unlock()
		return none, q.closedErr
	}
	w := q.idle.get()
	q.poppers.add(w)
	q.mu.Unlock()

	dequeued := await(ctx, q.seam, &q.mu, &q.poppers, w)
	item, granted := w.item, w.granted
	q.idle.put(w)
	switch {
	case !dequeued:
		return none, Ended(ctx, q.op())
	case !granted:
		return none, q.closedErr
	default:
		return item, nil
	}
}

// TryPop takes the oldest item if there is one.
func (q *Queue[T]) TryPop() (T, bool) {
	var none T
	q.seam.point("queue try pop")
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring.n == 0 {
		return none, false
	}
	q.counts.Delivered++
	return q.ring.pop(), true
}

// Close refuses every later push. What is in the queue can still be popped;
// consumers that wait for more get ErrClosed. Closing twice is harmless.
func (q *Queue[T]) Close() {
	q.seam.point("queue close")
	q.mu.Lock()
	q.closed = true
	chain := q.poppers.dequeueAll(false)
	q.mu.Unlock()
	wakeAll(q.seam, chain)
}

// Retire closes the queue and takes it out of the inventory, which keeps its
// counts. It is for queues that come and go with a session.
func (q *Queue[T]) Retire() {
	q.Close()
	q.enrolment.retire()
}

// Len is how many items wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring.n
}

// Cap is how many items may wait.
func (q *Queue[T]) Cap() int { return q.spec.Cap }

func (q *Queue[T]) op() string { return "queue " + q.spec.Service + "/" + q.spec.Name }

func (q *Queue[T]) read() (depth int, counts Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts = q.counts
	counts.Utilization = float64(q.ring.n) / float64(q.spec.Cap)
	return q.ring.n, counts
}

// ring is a circular buffer that grows by doubling up to its cap, so that a
// thousand idle queues cost next to nothing.
type ring[T any] struct {
	cap   int
	slots []T
	head  int // index of the oldest
	n     int
}

func (r *ring[T]) at(i int) int {
	if i += r.head; i >= len(r.slots) {
		i -= len(r.slots)
	}
	return i
}

func (r *ring[T]) push(item T) {
	if r.n == len(r.slots) {
		r.grow()
	}
	r.slots[r.at(r.n)] = item
	r.n++
}

func (r *ring[T]) pop() T {
	var none T
	item := r.slots[r.head]
	r.slots[r.head] = none // do not keep a delivered item alive
	r.head = r.at(1)
	r.n--
	return item
}

func (r *ring[T]) replaceLast(item T) { r.slots[r.at(r.n-1)] = item }

func (r *ring[T]) grow() {
	larger := make([]T, min(max(8, 2*len(r.slots)), r.cap))
	for i := range r.n {
		larger[i] = r.slots[r.at(i)]
	}
	r.slots, r.head = larger, 0
}
