package flow

import (
	"context"
	"sync"
	"weak"

	"micronode/fault"
)

// FairSpec names and bounds a fair queue. Service, Quantum and at least one
// band are required.
type FairSpec struct {
	Service string
	Quantum int        // bytes that a class may take in one turn; about as much as a usual item costs
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
	Policy Policy // RejectNew or DropOldest; an urgent band only rejects
}

// Parcel is an item on its way into a fair queue. Items of one class leave in
// the order in which they came; between classes, bytes are shared out evenly.
type Parcel[T any] struct {
	Class uint64 // a topic, a peer, a stream
	Cost  int    // its bytes; an item costs at least one
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
// rich. The richest class is the one that holds most of what is short, places
// or bytes. A newcomer whose class would still hold less of it displaces items
// of the richest, the newest ones or, with DropOldest, the oldest: as many as it
// needs, while the richest still holds more, or none if that is not enough. Then
// the newcomer is turned away or, with DropOldest, displaces the oldest of its
// own class. So a flood fills its own class and nobody else's.
//
// What is not in use costs next to nothing, because there is a queue for each
// of ten thousand sessions, and most of them wait for nothing. Classes exist
// while they hold something; the room for items that an empty queue still has
// is the garbage collector's to take; errors are made when somebody gets one.
type Fair[T any] struct {
	// set at construction
	inv     *Inventory
	service string
	quantum int

	mu      sync.Mutex //lockblock:leaf a few assignments for each item of a batch; waking happens after unlock
	closed  bool
	bands   []band                 // bands[0] is the urgent one
	shelf   *shelf[T]              // nil while nothing waits
	kept    weak.Pointer[shelf[T]] // the shelf, or that of the last time
	urgent  line
	turn    *class // whose turn it is, in the circle of classes that hold something
	poppers waitlist[struct{}]
	idle    *waiting[struct{}] // off the list, for the next who waits; linked by next
}

// band is one band of a queue. What changes in it is guarded by the queue's
// mutex.
type band struct {
	// set at construction
	spec   BandSpec
	serial int // in the inventory; zero if there is no such band

	items int
	bytes int
	busy  error // what those get who are turned away; nil before the first

	accepted, delivered, refused, dropped uint64
}

type classKey struct {
	band  int
	class uint64
}

// class is what waits under one name, in a circle with the others.
type class struct {
	key        classKey
	prev, next *class
	waiting    line
	bytes      int
	deficit    int  // bytes that it may still take
	begun      bool // it was given its quantum of this round; only so while it is its turn
}

// NewFair makes a fair queue and enters its bands into the inventory.
func NewFair[T any](inv *Inventory, spec FairSpec) *Fair[T] {
	if spec.Quantum < 1 || len(spec.Bands) == 0 {
		panic("flow: a fair queue of " + spec.Service + " needs a quantum and a band")
	}
	f := &Fair[T]{inv: inv, service: spec.Service, quantum: spec.Quantum, bands: make([]band, 1+len(spec.Bands))}
	if spec.Urgent.Name != "" {
		if spec.Urgent.Policy != RejectNew {
			panic("flow: band " + spec.Service + "/" + spec.Urgent.Name + " is urgent, so it can only reject")
		}
		f.enrol(spec, Urgent, spec.Urgent)
	}
	for i, one := range spec.Bands {
		f.enrol(spec, i+1, one)
	}
	return f
}

func (f *Fair[T]) enrol(spec FairSpec, i int, one BandSpec) {
	if one.Bytes < 1 || one.Policy == Coalesce {
		panic("flow: band " + spec.Service + "/" + one.Name + " needs a bound in bytes, and rejects or drops")
	}
	f.bands[i].spec = one
	f.bands[i].serial = f.inv.enrol(Entry{
		Service: spec.Service, Name: one.Name, Kind: "queue", Cap: one.Cap,
		Policy: one.Policy.String(), From: spec.From, To: spec.To, Each: spec.Each,
	}, func() (int, Counts) { return f.read(i) }).serial
}

// op is the name of a band in errors.
func (f *Fair[T]) op(b int) string { return "queue " + f.service + "/" + f.bands[b].spec.Name }

func (f *Fair[T]) closedErr() error {
	return &fault.Error{Op: f.op(1), Kind: fault.Canceled, Err: ErrClosed}
}

// refuse counts an item that is turned away, and says why. A flood gets the
// same error each time. Guarded by mu.
func (f *Fair[T]) refuse(b int) error {
	in := &f.bands[b]
	in.refused++
	if in.busy == nil {
		in.busy = &fault.Error{Op: f.op(b), Kind: fault.Busy}
	}
	return in.busy
}

// Urgent is the band that goes before all others; the bands of the spec are
// numbered from 1 on.
const Urgent = 0

// TryPush offers one item and never waits. It displaces nobody: on a full band
// it fails with fault.Busy, on a closed queue with ErrClosed.
func (f *Fair[T]) TryPush(b int, p Parcel[T]) error {
	f.mustHave(b)
	p.Cost = max(p.Cost, 1)
	f.inv.seam.point("fair push")
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return f.closedErr()
	}
	if !f.bands[b].fits(p.Cost) {
		err := f.refuse(b)
		f.mu.Unlock()
		return err
	}
	f.store(b, &p)
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return nil
}

// Offer offers a batch and never waits. What is turned away, of the batch or of
// what had been waiting, is appended to turned, which the caller looks through:
// somebody may have to be told. A closed queue turns everything away. A cost in
// the batch that is below one becomes one.
func (f *Fair[T]) Offer(b int, batch []Parcel[T], turned []T) []T {
	f.mustHave(b)
	f.inv.seam.point("fair offer")
	f.mu.Lock()
	for i := range batch {
		p := &batch[i]
		p.Cost = max(p.Cost, 1)
		turned = f.offer(b, p, turned)
	}
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
	return turned
}

// mustHave stops a program that speaks of an urgent band which it did not ask
// for: such a band would swallow what it is given.
func (f *Fair[T]) mustHave(b int) {
	if f.bands[b].serial == 0 {
		panic("flow: " + f.op(1) + " was made without an urgent band; name one in its spec")
	}
}

// offer takes one item in, makes room for it, or turns it away. Guarded by mu.
func (f *Fair[T]) offer(b int, p *Parcel[T], turned []T) []T {
	if f.closed {
		return append(turned, p.Item)
	}
	in := &f.bands[b]
	if in.fits(p.Cost) {
		f.store(b, p)
		return turned
	}
	donor, n := f.makeRoom(b, p)
	if n == 0 {
		in.refused++
		return append(turned, p.Item)
	}
	// The newcomer comes in first: a class that replaces all that it has must
	// not lose its place in the circle for it.
	f.store(b, p)
	in.dropped += uint64(n)
	for range n {
		var none T
		turned = append(turned, none)
		f.leave(donor, f.edge(donor), &turned[len(turned)-1])
	}
	return turned
}

func (b *band) fits(cost int) bool {
	return b.items < b.spec.Cap && b.bytes+cost <= b.spec.Bytes
}

// makeRoom says which class gives up how many items for a newcomer that does
// not fit; zero if it is to be turned away. Guarded by mu.
func (f *Fair[T]) makeRoom(b int, p *Parcel[T]) (*class, int) {
	in := &f.bands[b]
	if b == Urgent || p.Cost > in.spec.Bytes {
		return nil, 0
	}
	own := f.classOf(classKey{b, p.Class}) // the band is full, so there is a shelf
	items, bytes := 1, p.Cost              // what its class would hold
	if own != nil {
		items, bytes = items+own.waiting.n, bytes+own.bytes
	}
	if rich := f.richer(in, b, p.Cost, items, bytes); rich != nil {
		if n := f.toll(in, rich, p.Cost, bytes); n > 0 {
			return rich, n
		}
	}
	if own != nil && in.spec.Policy == DropOldest {
		return own, f.toll(in, own, p.Cost, 0)
	}
	return nil, 0
}

// richer finds the class that holds most of what is short, or nil if none holds
// more of it than a newcomer's class would: in items if there is no place left,
// in bytes if there are too few, in both if both are short. Guarded by mu.
func (f *Fair[T]) richer(in *band, b, cost, items, bytes int) *class {
	full, short := in.items == in.spec.Cap, in.bytes+cost > in.spec.Bytes
	if full && items > in.items-items || short && bytes >= in.bytes-(bytes-cost) {
		return nil // it has half of the band, so nobody has more; a flood ends here
	}
	var most, largest *class // in items, in bytes
	for c := f.turn; ; {
		if c.key.band == b {
			if c.waiting.n > items {
				most, items = c, c.waiting.n
			}
			if c.bytes > bytes {
				largest, bytes = c, c.bytes
			}
		}
		if c = c.next; c == f.turn {
			break
		}
	}
	if full && most == nil {
		return nil
	}
	if short {
		return largest
	}
	return most
}

// toll is how many items a class has to give up to let a newcomer of this cost
// in. It is zero if the class is not to give that many, because it stops giving
// once it holds no more than keeps bytes. Guarded by mu.
func (f *Fair[T]) toll(in *band, c *class, cost, keeps int) (n int) {
	need := in.bytes + cost - in.spec.Bytes
	if need <= 0 {
		return 1 // it is about the place
	}
	for at, rest := f.edge(c), c.bytes; need > 0; n++ {
		if at == 0 || rest <= keeps {
			return 0
		}
		one := &f.shelf.places[at]
		need -= one.parcel.Cost
		rest -= one.parcel.Cost
		at = one.prev
		if in.spec.Policy == DropOldest {
			at = one.next
		}
	}
	return n
}

// edge is where a class loses items: at its end, or at its beginning where that
// is the policy. Guarded by mu.
func (f *Fair[T]) edge(c *class) int32 {
	if f.bands[c.key.band].spec.Policy == DropOldest {
		return c.waiting.first
	}
	return c.waiting.last
}

// store puts an item behind the others of its class. Guarded by mu.
func (f *Fair[T]) store(b int, p *Parcel[T]) {
	in := &f.bands[b]
	in.items++
	in.bytes += p.Cost
	in.accepted++
	if f.shelf == nil {
		f.setUp()
	}
	if b == Urgent {
		f.shelf.append(&f.urgent, p)
		return
	}
	c := f.classOf(classKey{b, p.Class})
	if c == nil {
		c = f.open(classKey{b, p.Class})
	}
	f.shelf.append(&c.waiting, p)
	c.bytes += p.Cost
}

// classOf finds a class that holds something; nil if there is none. Often there
// is only one, and then it is its turn. Guarded by mu.
func (f *Fair[T]) classOf(key classKey) *class {
	if f.turn != nil && f.turn.key == key {
		return f.turn
	}
	return f.shelf.classes[key]
}

// setUp finds a shelf for the first item: that of the last time, unless it was
// collected. Guarded by mu.
func (f *Fair[T]) setUp() {
	if f.shelf = f.kept.Value(); f.shelf == nil {
		f.shelf = new(shelf[T])
		f.kept = weak.Make(f.shelf)
	}
}

// open gives a class its place at the end of the circle. Guarded by mu.
func (f *Fair[T]) open(key classKey) *class {
	c := f.shelf.open(key)
	if f.turn == nil {
		c.prev, c.next, f.turn = c, c, c
		return c
	}
	c.prev, c.next = f.turn.prev, f.turn
	c.prev.next, c.next.prev = c, c
	return c
}

// leave takes an item out of its class, and a class that is left without any
// out of the circle: who waits for nothing saves nothing up. Guarded by mu.
func (f *Fair[T]) leave(c *class, at int32, to *T) {
	cost := f.shelf.remove(&c.waiting, at, to)
	c.bytes -= cost
	f.gone(c.key.band, cost)
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
	f.shelf.close(c)
}

// gone takes note that an item has left its band. Guarded by mu.
func (f *Fair[T]) gone(b, cost int) {
	f.bands[b].items--
	f.bands[b].bytes -= cost
}

// Take moves items into into, waiting until ctx ends for the first one. It
// takes no more than there is room for, and stops once they cost most bytes
// together; the first is taken whatever it costs. A Take whose ctx has ended
// takes nothing. A closed queue still gives what it holds, without waiting;
// when it is empty, Take fails with ErrClosed.
func (f *Fair[T]) Take(ctx context.Context, into []T, most int) (int, error) {
	if len(into) == 0 {
		panic("flow: " + f.op(1) + ": Take needs room for an item")
	}
	var w *waiting[struct{}] // ours, once we have waited
	for {
		if ctx.Err() != nil {
			f.passOn()
			return 0, Ended(ctx, f.op(1))
		}
		f.inv.seam.point("fair take")
		f.mu.Lock()
		if n := f.fill(into, most); n > 0 {
			f.rest(w)
			next := f.nextPopper()
			f.mu.Unlock()
			f.wake(next)
			return n, nil
		}
		if f.closed {
			f.mu.Unlock()
			return 0, f.closedErr()
		}
		if w == nil {
			w = f.waiter()
		}
		f.poppers.add(w)
		f.mu.Unlock()

		await(ctx, f.inv.seam, &f.mu, &f.poppers, w) // what came of it shows in the next round
	}
}

// waiter finds something to wait on. There are as many as ever waited at a
// time. Guarded by mu.
func (f *Fair[T]) waiter() *waiting[struct{}] {
	w := f.idle
	if w == nil {
		return &waiting[struct{}]{Waiter: Waiter{ready: make(chan struct{}, 1)}}
	}
	f.idle = w.next
	return w
}

// rest takes a waiter back, if there was one. Guarded by mu.
func (f *Fair[T]) rest(w *waiting[struct{}]) {
	if w != nil {
		w.next, f.idle = f.idle, w
	}
}

// passOn wakes another consumer in place of one that leaves, which may have
// been woken just before. There is no telling afterwards: between the wake and
// a look at the context, the context can end. One wake too many does no harm.
func (f *Fair[T]) passOn() {
	f.inv.seam.point("fair pass on")
	f.mu.Lock()
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
}

// fill takes what is due. Guarded by mu.
func (f *Fair[T]) fill(into []T, most int) (n int) {
	for spent := 0; f.holds() && n < len(into) && (n == 0 || spent < most); n++ {
		b, cost := f.next(&into[n])
		f.bands[b].delivered++
		spent += cost
	}
	if n > 0 && !f.holds() {
		// While the queue is in use the shelf is soon needed again, and will
		// still be there. That of an idle queue goes with the next garbage.
		f.shelf = nil
	}
	return n
}

// holds says whether anything waits. Guarded by mu.
func (f *Fair[T]) holds() bool { return f.urgent.n > 0 || f.turn != nil }

// next takes the item that is due, and says of which band it is and what it cost:
// an urgent one, or that of the class whose turn it is. A batch may end in the middle of a turn; the class then goes on
// with what it has left. A turn passes without an item only if the item costs
// more than the class has saved up, and each such turn brings it a quantum
// nearer: all of the loop is bounded by the bytes that wait over the quantum.
// Guarded by mu; something waits.
func (f *Fair[T]) next(to *T) (b, cost int) {
	if f.urgent.n > 0 {
		cost = f.shelf.remove(&f.urgent, f.urgent.first, to)
		f.gone(Urgent, cost)
		return Urgent, cost
	}
	for {
		c := f.turn
		if !c.begun {
			c.begun = true
			c.deficit += f.quantum
		}
		cost = f.shelf.places[c.waiting.first].parcel.Cost
		if c.next == c {
			c.deficit = max(c.deficit, cost) // nobody else waits
		}
		if cost <= c.deficit {
			c.deficit -= cost
			b = c.key.band
			f.leave(c, c.waiting.first, to)
			return b, cost
		}
		c.begun = false
		f.turn = c.next
	}
}

// nextPopper takes a consumer off the list if there is something for it. One
// wake goes from hand to hand: whoever leaves something behind wakes the next.
// Guarded by mu; the caller wakes after unlocking.
func (f *Fair[T]) nextPopper() *waiting[struct{}] {
	if f.poppers.n == 0 || !f.holds() {
		return nil
	}
	return f.poppers.settleFirst(struct{}{})
}

func (f *Fair[T]) wake(w *waiting[struct{}]) {
	if w != nil {
		f.inv.seam.wake(&w.Waiter)
	}
}

// Close refuses every later item. What is in the queue can still be taken;
// consumers that wait for more are told. Closing twice is harmless.
func (f *Fair[T]) Close() {
	f.inv.seam.point("fair close")
	f.mu.Lock()
	f.closed = true
	chain := f.poppers.settleAll(false)
	f.mu.Unlock()
	wakeAll(f.inv.seam, chain)
}

// Retire closes the queue and takes it out of the inventory, which keeps its
// counts. Take what it holds first, if the counts are to say where it went.
func (f *Fair[T]) Retire() {
	f.Close()
	for i := range f.bands {
		if one := &f.bands[i]; one.serial != 0 {
			enrolment{f.inv, key{f.service, "queue", one.spec.Name}, one.serial}.retire()
		}
	}
}

// Len is how many items wait in a band.
func (f *Fair[T]) Len(b int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bands[b].items
}

// Bytes is how much the items that wait in a band cost together.
func (f *Fair[T]) Bytes(b int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bands[b].bytes
}

func (f *Fair[T]) read(i int) (depth int, counts Counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := &f.bands[i]
	return b.items, Counts{Accepted: b.accepted, Delivered: b.delivered, Refused: b.refused, Dropped: b.dropped}
}
