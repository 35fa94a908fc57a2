package flow

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"micronode/fault"
)

// BusSpec names and bounds a bus. Service, Name, Cap and Readers are required.
type BusSpec struct {
	Service string
	Name    string
	Cap     int // how many events are kept for slow readers
	Readers int // how many readers there may be
	From    string
	To      string
	Each    string // "topic", if there is one bus for each; otherwise there is one
}

// Bus delivers every event to every reader. It never waits for a reader: one
// that falls more than Cap events behind loses the oldest and learns how many,
// and then reads the state they led to from a Snapshot instead.
type Bus[T any] struct {
	// set at construction
	spec      BusSpec
	inventory *Inventory
	seam      seam
	enrolment enrolment
	op        string
	closedErr error

	idle waiters[struct{}]

	mu      sync.Mutex //lockblock:leaf a few assignments, or one for each reader; waking happens after unlock
	closed  bool
	slots   []T    // grows to Cap as events come; event number e is in slot e mod Cap
	next    uint64 // number of the next event
	readers map[*Reader[T]]struct{}
	parked  waitlist[struct{}]
	lagged  map[string]uint64 // by consumer
	counts  Counts
}

// NewBus makes a bus and enters it into the inventory.
func NewBus[T any](inv *Inventory, spec BusSpec) *Bus[T] {
	if spec.Readers < 1 {
		panic("flow: bus " + spec.Service + "/" + spec.Name + " needs Readers, the number of readers it may have")
	}
	b := &Bus[T]{spec: spec, inventory: inv, seam: inv.seam, op: "bus " + spec.Service + "/" + spec.Name}
	b.closedErr = &fault.Error{Op: b.op, Kind: fault.Canceled, Err: ErrClosed}
	b.enrolment = inv.enrol(Entry{
		Service: spec.Service, Name: spec.Name, Kind: "bus", Cap: spec.Cap,
		Policy: "drop-oldest, lag told", From: spec.From, To: spec.To, Each: spec.Each,
	}, b)
	return b
}

// Publish delivers an event to all readers and never waits. On a closed bus it
// fails with ErrClosed.
func (b *Bus[T]) Publish(event T) error {
	return b.PublishAll([]T{event})
}

// PublishAll publishes several events, in their order and with nothing between
// them. A reader that waits is woken once.
func (b *Bus[T]) PublishAll(events []T) error {
	b.seam.point("bus publish")
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return b.closedErr
	}
	for _, event := range events {
		b.append(event)
	}
	b.counts.Accepted += uint64(len(events))
	var chain *waiting[struct{}]
	if len(events) > 0 {
		chain = b.parked.dequeueAll(true)
	}
	b.mu.Unlock()
	wakeAll(b.seam, chain)
	return nil
}

// append stores an event, over the oldest if the bus is full. Guarded by mu.
func (b *Bus[T]) append(event T) {
	if len(b.slots) < b.spec.Cap {
		b.grow()
		b.slots = append(b.slots, event)
	} else {
		b.slots[b.next%uint64(b.spec.Cap)] = event
	}
	b.next++
}

// grow doubles the slots when they are full, and never beyond Cap: there may be
// a bus for each of a thousand topics, and most of them publish little. Guarded
// by mu.
func (b *Bus[T]) grow() {
	if n := len(b.slots); n == cap(b.slots) {
		b.slots = append(make([]T, 0, min(max(8, 2*n), b.spec.Cap)), b.slots...)
	}
}

// Close ends the bus. Readers still get what is kept for them, then ErrClosed.
func (b *Bus[T]) Close() {
	b.seam.point("bus close")
	b.mu.Lock()
	b.closed = true
	chain := b.parked.dequeueAll(false)
	b.mu.Unlock()
	wakeAll(b.seam, chain)
}

// Retire closes the bus and takes it out of the inventory, which keeps its
// counts, the lag of each consumer included. It is for buses that come and go
// with a topic. What a reader still fetches afterwards is not counted any more.
func (b *Bus[T]) Retire() {
	b.Close()
	b.enrolment.retire()
}

// Reconcile is called by Recv, on the reader's goroutine and with no lock held,
// after events were lost. It reads the state they led to.
type Reconcile func(ctx context.Context, missed uint64) error

// Subscribe adds a reader that sees every event published from now on. The
// consumer names the reader's role in metrics, so it must come from a fixed
// set. With a reconcile hook, Recv calls it after a lag and continues; without
// one (nil), Recv returns the lag as an error. Beyond spec.Readers readers it
// fails with fault.Busy.
func (b *Bus[T]) Subscribe(consumer string, reconcile Reconcile) (*Reader[T], error) {
	b.seam.point("bus subscribe")
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, b.closedErr
	case len(b.readers) >= b.spec.Readers:
		b.counts.Refused++
		return nil, fault.New(b.op, fault.Busy, "the bus already has its maximum of %d readers", b.spec.Readers)
	}
	if b.readers == nil {
		b.readers, b.lagged = map[*Reader[T]]struct{}{}, map[string]uint64{}
	}
	b.lagged[consumer] += 0 // so that metrics show the zero from the start
	r := &Reader[T]{bus: b, consumer: consumer, reconcile: reconcile, at: b.next}
	b.readers[r] = struct{}{}
	return r, nil
}

// Reader is one subscription to a bus. It belongs to one goroutine.
type Reader[T any] struct {
	// set at construction
	bus       *Bus[T]
	consumer  string
	reconcile Reconcile

	// guarded by bus.mu
	at     uint64 // number of the next event to read
	closed bool
}

// LagError says that a reader lost events. Its kind is fault.Lagging.
type LagError struct {
	Bus      string
	Consumer string
	Missed   uint64
}

// Error is for logs.
func (e *LagError) Error() string {
	return fmt.Sprintf("%s: %s fell behind and missed %d events", e.Bus, e.Consumer, e.Missed)
}

// Unwrap makes errors.Is(err, fault.Lagging) true.
func (e *LagError) Unwrap() error { return fault.Lagging }

// Recv returns the next event, waiting for it until ctx ends. After a lag it
// calls the reconcile hook and continues with the oldest event that was kept,
// or returns a *LagError if there is no hook; the next call continues.
func (r *Reader[T]) Recv(ctx context.Context) (T, error) {
	var none T
	for {
		if ctx.Err() != nil {
			return none, Ended(ctx, r.bus.op)
		}
		event, w, err := r.take()
		if w != nil {
			err = r.wait(ctx, w)
			if err == nil {
				continue
			}
		}
		lag, behind := err.(*LagError)
		if behind {
			r.bus.inventory.notifyLag(r.bus.spec.Service+"/"+r.bus.spec.Name, r.consumer, lag.Missed)
		}
		if !behind || r.reconcile == nil {
			return event, err
		}
		if err := r.reconcile(ctx, lag.Missed); err != nil {
			return none, fault.Wrap(r.bus.op+" reconcile "+r.consumer, err)
		}
	}
}

// take returns the next event, the error in its place, or a listed waiter if
// there is nothing yet.
func (r *Reader[T]) take() (event T, w *waiting[struct{}], err error) {
	b := r.bus
	b.seam.point("bus recv")
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := b.next - uint64(len(b.slots))
	switch {
	case r.closed:
		return event, nil, b.closedErr
	case r.at < oldest:
		missed := oldest - r.at
		r.at = oldest
		b.lagged[r.consumer] += missed
		return event, nil, &LagError{Bus: b.op, Consumer: r.consumer, Missed: missed}
	case r.at < b.next:
		event = b.slots[r.at%uint64(b.spec.Cap)]
		r.at++
		b.counts.Delivered++
		return event, nil, nil
	case b.closed:
		return event, nil, b.closedErr
	default:
		w = b.idle.get()
		b.parked.add(w)
		return event, w, nil
	}
}

// wait parks until something was published or the bus was closed; the next take
// finds out which.
func (r *Reader[T]) wait(ctx context.Context, w *waiting[struct{}]) error {
	b := r.bus
	dequeued := await(ctx, b.seam, &b.mu, &b.parked, w)
	b.idle.put(w)
	if !dequeued {
		return Ended(ctx, b.op)
	}
	return nil
}

// ForEach calls handle for every event until the bus is closed or ctx ends. It
// is for a reader that has no state to catch up with: the bus counts what it
// lost.
func (r *Reader[T]) ForEach(ctx context.Context, handle func(T)) {
	for {
		event, err := r.Recv(ctx)
		switch {
		case err == nil:
			handle(event)
		case fault.KindOf(err) != fault.Lagging:
			return
		}
	}
}

// Close unsubscribes the reader. A Recv after it fails with ErrClosed.
func (r *Reader[T]) Close() {
	r.bus.seam.point("bus unsubscribe")
	r.bus.mu.Lock()
	defer r.bus.mu.Unlock()
	r.closed = true
	delete(r.bus.readers, r)
}

// read reports as depth how far the slowest reader is behind.
func (b *Bus[T]) read() (depth int, counts Counts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.readers {
		depth = max(depth, min(int(b.next-r.at), b.spec.Cap))
	}
	counts = b.counts
	counts.Lagged = maps.Clone(b.lagged)
	return depth, counts
}
