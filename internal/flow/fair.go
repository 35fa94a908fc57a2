package flow

import (
	"sync"
	"weak"

	"micronode/fault"
)

// FairSpec names and bounds a fair queue. Service, Quantum and at least one
// band are required.
type FairSpec struct {
	Service        string
	Quantum        int          // bytes that a class may take in one turn; about as much as a usual item costs
	Urgent         BandSpec     // taken before all other items, in order; none without a name
	Bands          []BandSpec   // share what is left
	Waiting        int          // how many producers may wait for room; zero means that none waits
	MaxOutstanding int          // the most items that are taken and not yet Done, over all classes; zero means no limit and no Done
	PerClass       int          // the most of them of one class, where its share is more; zero means its share
	Shared         *SharedBytes // a budget of bytes that it shares with other queues; nil if there is none
	Members        bool         // a class is shared by members, which do not trust each other either; all items cost the same
	From           string
	To             string
	Each           string
	Effect         Effect // on the node, when a band is full or does not move
	Next           string // what an operator can do then
}

// BandSpec names and bounds one sort of items in a fair queue. Each band is an
// entry of its own in the inventory.
type BandSpec struct {
	Name   string
	Cap    int    // how many items may wait
	Bytes  int    // how much they may cost together
	Policy Policy // RejectNew or DropOldest; an urgent band only rejects
}

// FairItem is an item on its way into a fair queue. Items of one class leave in
// the order in which they came; between classes, bytes are shared out evenly.
type FairItem[T any] struct {
	Class  uint64 // a topic, a peer, a stream
	Member uint64 // who in the class sent it; only with Members. Zero is nobody in particular, and has no share of its own
	Cost   int    // its bytes; an item costs at least one
	Item   T
}

// Fair is a queue that is shared by classes which do not trust each other:
// topics on their way to one peer, peers on their way to one engine. It serves
// them by deficit round robin: in each round every class may take Quantum
// bytes, and it keeps what it does not use for the next round, as long as it
// has items waiting. Over any stretch of time in which two classes both wait,
// the bytes that they took differ by at most a quantum and the largest item of
// each.
//
// It is bounded in items and in bytes. When a band is full, it evicts from the
// richest class: the one that holds most of what is short, slots or bytes. A
// new item whose class would still hold less of it evicts items of the richest
// class, the newest ones or, with DropOldest, the oldest: as many as it needs,
// while the richest class still holds more, or none if that is not enough. In
// that case the new item is refused or, with DropOldest, evicts the oldest of
// its own class. So a flood fills only its own class.
//
// With MaxOutstanding, consumers are shared out too: a class takes an item only
// while it has fewer outstanding than the limit has left. One class alone gets
// half of the limit, two get a third each, and a class with nothing outstanding
// can take an item as long as the limit is not reached. So a class whose items
// never end holds up only itself. A closed queue applies no limit.
//
// With Members, a class is shared out in the same way: a member takes an item
// only while it has fewer outstanding than are left of what its class may have,
// the member with the fewest comes first, and a full band evicts the newest item
// of the member that has the most waiting.
//
// With Shared, the bands of all queues that have the same budget share it, too:
// a band may hold at most as many bytes as the budget has left.
//
// An idle queue costs next to nothing, because there is one for each of ten
// thousand sessions, and most of them are empty. A class exists while it holds
// items; the garbage collector may take the memory of an empty queue; errors
// are made on first use.
type Fair[T any] struct {
	// set at construction
	inv            *Inventory
	service        string
	quantum        int
	maxWaiting     int // how many producers may wait for room
	maxOutstanding int // how many items may be outstanding; zero means no limit
	perClass       int // how many of them of one class; zero means no limit but its share
	members        bool
	shared         *SharedBytes

	mu               sync.Mutex //lockblock:leaf a few assignments for each item of a batch; waking happens after unlock
	closed           bool
	bands            []band                // bands[0] is the urgent one
	slab             *slab[T]              // nil while nothing waits
	kept             weak.Pointer[slab[T]] // the slab, or the last one of an empty queue
	urgent           slotList
	turn             *class // the class whose turn it is, in the circle of classes that hold items
	poppers          waitlist[struct{}]
	pushers          waitlist[struct{}] // producers that wait for room
	idle             *waiting[struct{}] // unused waiters, linked by next
	outstanding      map[classKey]int   // taken and not done, by class; never zero
	outstandingTotal int                // all of them
	byMember         map[memberKey]int  // outstanding, by member; nil without members
}

// band is one band of a queue. What changes in it is guarded by the queue's
// mutex.
type band struct {
	// set at construction
	spec   BandSpec
	serial int // in the inventory; zero if there is no such band

	items int
	bytes int
	busy  error // the error of a refusal; nil before the first

	accepted, delivered, refused, dropped, withdrawn uint64
}

type classKey struct {
	band  int
	class uint64
}

// memberKey is one member of one class.
type memberKey struct {
	class  classKey
	member uint64
}

// class is the items of one class that wait, in a circle with the other
// classes.
type class struct {
	key        classKey
	prev, next *class
	waiting    slotList
	bytes      int
	deficit    int  // bytes that it may still take
	credited   bool // it has got its quantum of this round; true only during its turn
}

// NewFair makes a fair queue and enters its bands into the inventory.
func NewFair[T any](inv *Inventory, spec FairSpec) *Fair[T] {
	if spec.Quantum < 1 || len(spec.Bands) == 0 {
		panic("flow: a fair queue of " + spec.Service + " needs a quantum and a band")
	}
	f := &Fair[T]{inv: inv, service: spec.Service, quantum: spec.Quantum, maxWaiting: spec.Waiting, maxOutstanding: spec.MaxOutstanding, perClass: spec.PerClass, members: spec.Members, shared: spec.Shared, bands: make([]band, 1+len(spec.Bands))}
	if spec.MaxOutstanding > 0 {
		f.outstanding = map[classKey]int{}
	}
	if spec.Members {
		f.byMember = map[memberKey]int{}
	}
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
	if spec.Members && (spec.MaxOutstanding == 0 || one.Policy != RejectNew) {
		panic("flow: band " + spec.Service + "/" + one.Name + " has members, so it needs MaxOutstanding, and rejects")
	}
	if one.Bytes < 1 || one.Policy == Coalesce {
		panic("flow: band " + spec.Service + "/" + one.Name + " needs a bound in bytes, and rejects or drops")
	}
	f.bands[i].spec = one
	f.bands[i].serial = f.inv.enrol(Entry{
		Service: spec.Service, Name: one.Name, Kind: kindQueue, Cap: one.Cap,
		Bytes: one.Bytes, Policy: one.Policy.String(), Displaces: i != Urgent, From: spec.From, To: spec.To, Each: spec.Each, Effect: spec.Effect, Next: spec.Next,
	}, fairBand[T]{f, i}).serial
}

// op is the name of a band in errors.
func (f *Fair[T]) op(b int) string { return "queue " + f.service + "/" + f.bands[b].spec.Name }

func (f *Fair[T]) closedErr() error {
	return &fault.Error{Op: f.op(1), Kind: fault.Canceled, Err: ErrClosed}
}

// Urgent is the band that goes before all others; the bands of the spec are
// numbered from 1 on.
const Urgent = 0

// Close refuses every later item. What is in the queue can still be taken;
// consumers that wait for more get ErrClosed. Closing twice is harmless.
func (f *Fair[T]) Close() {
	f.inv.seam.point("fair close")
	f.mu.Lock()
	f.closed = true
	chain, pushers := f.poppers.dequeueAll(false), f.pushers.dequeueAll(false)
	f.mu.Unlock()
	wakeAll(f.inv.seam, chain)
	wakeAll(f.inv.seam, pushers)
}

// Retire closes the queue and takes it out of the inventory, which keeps its
// counts. Take what it holds first, if the counts are to say where it went.
func (f *Fair[T]) Retire() {
	f.Close()
	for i := range f.bands {
		if one := &f.bands[i]; one.serial != 0 {
			enrolment{f.inv, key{f.service, kindQueue, one.spec.Name}, one.serial}.retire()
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

// fairBand is a band as the inventory knows it.
type fairBand[T any] struct {
	queue *Fair[T]
	index int
}

func (b fairBand[T]) read() (depth int, counts Counts) { return b.queue.read(b.index) }

func (f *Fair[T]) read(i int) (depth int, counts Counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := &f.bands[i]
	return b.items, Counts{Accepted: b.accepted, Delivered: b.delivered, Refused: b.refused, Dropped: b.dropped, Expired: b.withdrawn,
		Utilization: max(float64(b.items)/float64(max(1, b.spec.Cap)), float64(b.bytes)/float64(max(1, f.byteLimit(i))))}
}
