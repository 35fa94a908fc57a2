package flow

import (
	"context"
	"sync"

	"micronode/fault"
)

// FairSpec names and bounds a fair queue. Service, Quantum and at least one
// band are required.
type FairSpec struct {
	Service string
	Quantum int        // bytes that a class may take in one turn
	Urgent  BandSpec   // taken before everything else, in order; none without a name
	Bands   []BandSpec // share what is left
	From    string
	To      string
	Each    string
}

// BandSpec names and bounds one sort of items in a fair queue. Each band is an
// entry of its own in the inventory.
type BandSpec struct {
	Name   string
	Cap    int    // how many items may wait
	Bytes  int    // how much they may cost together
	Policy Policy // RejectNew or DropOldest
}

// Parcel is an item on its way into a fair queue. Items of one class leave in
// the order in which they came; between classes, bytes are shared out evenly.
type Parcel[T any] struct {
	Class uint64 // a topic, a peer, a stream
	Cost  int    // its bytes
	Item  T
}

// Fair is a queue that is shared by classes which do not trust each other:
// topics on their way to one peer, peers on their way to one engine. It serves
// them by deficit round robin: in each round every class may take Quantum
// bytes, and what it does not use it keeps for the next, as long as it has
// something waiting. Over any stretch of time in which two classes both wait,
// what they got differs by no more than a quantum and the largest item each.
//
// It is bounded in items and in bytes. When a band is full it takes from the
// rich: a newcomer whose class holds less than the fullest class of its band
// displaces an item of that one; otherwise it is turned away itself. So a
// flood fills its own class and nobody else's.
//
// What is not in use costs next to nothing: classes exist while they hold
// something.
type Fair[T any] struct {
	// set at construction
	seam      seam
	quantum   int
	busy      []error // by band
	closedErr error
	op        string

	idle waiters[struct{}]

	mu      sync.Mutex //lockblock:leaf a few assignments; waking happens after unlock
	closed  bool
	bands   []band // bands[0] is the urgent one
	urgent  ring[Parcel[T]]
	classes map[classKey]*class[T]
	turn    *class[T] // whose turn it is, in the circle of classes that hold something
	spare   *class[T] // the last one that was emptied, kept for the next
	poppers waitlist[struct{}]
}

// band is the state of one band, guarded by the queue's mutex.
type band struct {
	spec      BandSpec
	enrolment enrolment
	items     int
	bytes     int
	counts    Counts
}

type classKey struct {
	band  int
	class uint64
}

// class is what waits under one name, in a circle with the others.
type class[T any] struct {
	key        classKey
	prev, next *class[T]
	waiting    ring[Parcel[T]]
	bytes      int
	deficit    int  // bytes that it may still take
	begun      bool // it was given its quantum of this round
}

// NewFair makes a fair queue and enters its bands into the inventory.
func NewFair[T any](inv *Inventory, spec FairSpec) *Fair[T] {
	if spec.Quantum < 1 || len(spec.Bands) == 0 {
		panic("flow: a fair queue needs a quantum and a band")
	}
	f := &Fair[T]{seam: inv.seam, quantum: spec.Quantum, op: "queue " + spec.Service + "/" + spec.Bands[0].Name}
	f.closedErr = &fault.Error{Op: f.op, Kind: fault.Canceled, Err: ErrClosed}
	f.bands = make([]band, 1+len(spec.Bands))
	f.busy = make([]error, len(f.bands))
	for i := range f.bands {
		one := spec.Urgent
		if i > 0 {
			one = spec.Bands[i-1]
		}
		if one.Name != "" {
			f.enrol(inv, spec, i, one)
		}
	}
	f.urgent.cap = spec.Urgent.Cap
	return f
}

func (f *Fair[T]) enrol(inv *Inventory, spec FairSpec, i int, one BandSpec) {
	if one.Bytes < 1 || one.Policy == Coalesce {
		panic("flow: band " + spec.Service + "/" + one.Name + " needs a bound in bytes, and rejects or drops")
	}
	f.bands[i].spec = one
	f.busy[i] = &fault.Error{Op: "queue " + spec.Service + "/" + one.Name, Kind: fault.Busy}
	f.bands[i].enrolment = inv.enrol(Entry{
		Service: spec.Service, Name: one.Name, Kind: "queue", Cap: one.Cap,
		Policy: one.Policy.String(), From: spec.From, To: spec.To, Each: spec.Each,
	}, func() (int, Counts) { return f.read(i) })
}

// Urgent is the band that goes before all others; the bands of the spec are
// numbered from 1 on.
const Urgent = 0

// TryPush offers one item and never waits. It displaces nobody: on a full band
// it fails with fault.Busy, on a closed queue with ErrClosed.
func (f *Fair[T]) TryPush(b int, p Parcel[T]) error {
	f.seam.point("fair push")
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return f.closedErr
	}
	if !f.bands[b].fits(p.Cost) {
		f.bands[b].counts.Refused++
		f.mu.Unlock()
		return f.busy[b]
	}
	f.store(b, p)
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return nil
}

// Offer offers a batch and never waits. What is turned away, of the batch or of
// what had been waiting, is appended to turned, which the caller looks through:
// somebody may have to be told. A closed queue turns everything away.
func (f *Fair[T]) Offer(b int, batch []Parcel[T], turned []T) []T {
	f.seam.point("fair offer")
	f.mu.Lock()
	for _, p := range batch {
		turned = f.offer(b, p, turned)
	}
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return turned
}

// offer takes one item in, makes room for it, or turns it away. Guarded by mu.
func (f *Fair[T]) offer(b int, p Parcel[T], turned []T) []T {
	if f.closed {
		return append(turned, p.Item)
	}
	in := &f.bands[b]
	for !in.fits(p.Cost) {
		victim := f.fullest(b, p)
		if victim == nil {
			in.counts.Refused++
			return append(turned, p.Item)
		}
		in.counts.Dropped++
		turned = append(turned, f.displace(victim).Item)
	}
	f.store(b, p)
	return turned
}

func (b *band) fits(cost int) bool {
	return b.items < b.spec.Cap && b.bytes+cost <= b.spec.Bytes
}

// fullest is the class that has to make room for a newcomer, or nil if it is
// the newcomer's own and the newcomer is to be refused. Guarded by mu.
func (f *Fair[T]) fullest(b int, p Parcel[T]) *class[T] {
	own := f.classes[classKey{b, p.Class}]
	most := p.Cost
	if own != nil {
		most += own.bytes
	}
	var victim *class[T]
	for _, c := range f.classes {
		if c.key.band == b && c.bytes > most {
			victim, most = c, c.bytes
		}
	}
	if victim == nil && f.bands[b].spec.Policy == DropOldest {
		return own
	}
	return victim
}

// displace takes an item of a class out again: the newest, or the oldest where
// that is the policy. Guarded by mu.
func (f *Fair[T]) displace(c *class[T]) Parcel[T] {
	var p Parcel[T]
	if f.bands[c.key.band].spec.Policy == DropOldest {
		p = c.waiting.pop()
	} else {
		p = c.waiting.popLast()
	}
	f.left(c, p.Cost)
	return p
}

// store puts an item behind the others of its class. Guarded by mu.
func (f *Fair[T]) store(b int, p Parcel[T]) {
	in := &f.bands[b]
	in.items++
	in.bytes += p.Cost
	in.counts.Accepted++
	if b == Urgent {
		f.urgent.push(p)
		return
	}
	c := f.classes[classKey{b, p.Class}]
	if c == nil {
		c = f.open(classKey{b, p.Class})
	}
	c.waiting.push(p)
	c.bytes += p.Cost
}

// open gives a class its place at the end of the circle. Guarded by mu.
func (f *Fair[T]) open(key classKey) *class[T] {
	c := f.spare
	f.spare = nil
	if c == nil {
		c = &class[T]{}
	}
	c.key, c.waiting.cap = key, f.bands[key.band].spec.Cap
	if f.classes == nil {
		f.classes = map[classKey]*class[T]{}
	}
	f.classes[key] = c
	if f.turn == nil {
		c.prev, c.next, f.turn = c, c, c
		return c
	}
	c.prev, c.next = f.turn.prev, f.turn
	c.prev.next, c.next.prev = c, c
	return c
}

// left takes note that an item has gone, and takes a class without any out of
// the circle: a class that waits for nothing saves nothing up. Guarded by mu.
func (f *Fair[T]) left(c *class[T], cost int) {
	in := &f.bands[c.key.band]
	in.items--
	in.bytes -= cost
	c.bytes -= cost
	if c.waiting.n > 0 {
		return
	}
	delete(f.classes, c.key)
	c.prev.next, c.next.prev = c.next, c.prev
	if f.turn == c {
		f.turn = c.next
	}
	if f.turn == c {
		f.turn = nil
	}
	c.prev, c.next, c.deficit, c.begun = nil, nil, 0, false
	f.spare = c
}

// Take moves items into into, waiting until ctx ends for the first one. It
// takes no more than there is room for, and stops once they cost most bytes
// together. A closed queue still gives what it holds; when it is empty, Take
// fails with ErrClosed.
func (f *Fair[T]) Take(ctx context.Context, into []T, most int) (int, error) {
	for {
		if ctx.Err() != nil {
			return 0, Ended(ctx, f.op)
		}
		f.seam.point("fair take")
		f.mu.Lock()
		if n := f.fill(into, most); n > 0 {
			next := f.nextPopper()
			f.mu.Unlock()
			f.wake(next)
			return n, nil
		}
		if f.closed {
			f.mu.Unlock()
			return 0, f.closedErr
		}
		w := f.idle.get()
		f.poppers.add(w)
		f.mu.Unlock()

		settled := await(ctx, f.seam, &f.mu, &f.poppers, w)
		f.idle.put(w)
		if settled && ctx.Err() != nil {
			f.passOn()
		}
	}
}

// passOn wakes another consumer in place of one that was woken and leaves.
func (f *Fair[T]) passOn() {
	f.mu.Lock()
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
}

// fill takes what is due. Guarded by mu.
func (f *Fair[T]) fill(into []T, most int) (n int) {
	for spent := 0; n < len(into) && spent < most; n++ {
		b, p, any := f.next()
		if !any {
			break
		}
		f.bands[b].counts.Delivered++
		into[n] = p.Item
		spent += p.Cost
	}
	return n
}

// next takes the item that is due: an urgent one, or that of the class whose
// turn it is. Guarded by mu.
func (f *Fair[T]) next() (int, Parcel[T], bool) {
	if f.urgent.n > 0 {
		p := f.urgent.pop()
		f.bands[Urgent].items--
		f.bands[Urgent].bytes -= p.Cost
		return Urgent, p, true
	}
	if f.turn == nil {
		return 0, Parcel[T]{}, false
	}
	for {
		c := f.turn
		if !c.begun {
			c.begun = true
			c.deficit += f.quantum
		}
		cost := c.waiting.first().Cost
		if c.next == c {
			c.deficit = max(c.deficit, cost) // nobody else waits
		}
		if cost <= c.deficit {
			c.deficit -= cost
			b, p := c.key.band, c.waiting.pop()
			f.left(c, cost)
			return b, p, true
		}
		c.begun = false
		f.turn = c.next
	}
}

// nextPopper takes a consumer off the list if there is something for it. One
// wake goes from hand to hand: whoever leaves something behind wakes the next.
// Guarded by mu; the caller wakes after unlocking.
func (f *Fair[T]) nextPopper() *waiting[struct{}] {
	if f.poppers.n == 0 || f.urgent.n == 0 && f.turn == nil {
		return nil
	}
	return f.poppers.settleFirst(struct{}{})
}

func (f *Fair[T]) wake(w *waiting[struct{}]) {
	if w != nil {
		f.seam.wake(&w.Waiter)
	}
}

// Close refuses every later item. What is in the queue can still be taken;
// consumers that wait for more are told. Closing twice is harmless.
func (f *Fair[T]) Close() {
	f.seam.point("fair close")
	f.mu.Lock()
	f.closed = true
	chain := f.poppers.settleAll(false)
	f.mu.Unlock()
	wakeAll(f.seam, chain)
}

// Retire closes the queue and takes it out of the inventory, which keeps its
// counts.
func (f *Fair[T]) Retire() {
	f.Close()
	for i := range f.bands {
		if f.bands[i].spec.Name != "" {
			f.bands[i].enrolment.retire()
		}
	}
}

// Len is how many items wait in a band.
func (f *Fair[T]) Len(b int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bands[b].items
}

func (f *Fair[T]) read(i int) (depth int, counts Counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bands[i].items, f.bands[i].counts
}
