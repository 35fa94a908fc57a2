package nats

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"micronode/internal/mailbox"
)

// messageOverhead is about what a message takes besides its body.
const messageOverhead = 256

// messageIndex is what this node knows of the messages: the state of each, and
// what comes next in each box. It is a pure state machine, without lock or
// clock. It may be behind, and is never more than a guess at what can be done;
// JetStream decides.
type messageIndex struct {
	// set at construction
	limits mailbox.Limits
	wake   func(b *box) // called when a message of the box is ready

	messages   map[string]*indexedMessage // by token
	boxes      map[string]*box
	due        messageHeap       // what is due, by time
	expired    []*indexedMessage // whose last lease has ended; to be made dead letters
	keys       int
	keysOf     map[keyOwner]int
	bytes      int64
	usage      mailbox.Usage
	generation uint64 // how often all was read again
}

// box is a queue. It exists while there is something in it.
type box struct {
	name     string
	ready    messageHeap
	dead     []*indexedMessage // in the order in which they died
	messages int               // all but dead ones
	bytes    int64             // of those
}

// keyOwner is one sender in one box: the same key of another one is another key.
type keyOwner struct{ sender, box string }

// indexedMessage is the state of one message.
type indexedMessage struct {
	token string // set at construction: the holder of a claim reads it without a lock

	// guarded by the lock of the index
	storedMessage // without the body
	box           *box

	countedAs      countState
	claimed        bool   // an operation on this node is changing it
	timeoutCounted bool   // that its lease has ended was counted
	generation     uint64 // when it was last read

	heap      *messageHeap
	heapIndex int
}

// countState is how a message is counted.
type countState int

const (
	countNone     countState = iota
	countReserved            // it is being sent, and its room is reserved
	countWaiting
	countLeased
	countDead
	countGone // only its key counts
)

func newMessageIndex(limits mailbox.Limits, wake func(b *box)) *messageIndex {
	return &messageIndex{limits: limits, wake: wake, messages: map[string]*indexedMessage{}, boxes: map[string]*box{}, keysOf: map[keyOwner]int{}, due: messageHeap{less: byDue}}
}

func (i *indexedMessage) cost() int64 { return i.size + messageOverhead }

// box returns the box of a name, and makes it if needed.
func (x *messageIndex) box(name string) *box {
	b := x.boxes[name]
	if b == nil {
		b = &box{name: name, ready: messageHeap{less: byOrder}}
		x.boxes[name] = b
	}
	return b
}

// reserve reserves the room for a message that is being sent.
func (x *messageIndex) reserve(e storedMessage) *indexedMessage {
	l := &indexedMessage{token: e.token, storedMessage: e, generation: x.generation}
	x.messages[e.token] = l
	x.count(l, countReserved)
	return l
}

// cancelReservation releases the room of a message that was not sent, unless
// its record was read.
func (x *messageIndex) cancelReservation(l *indexedMessage) {
	if l.countedAs == countReserved {
		x.remove(l)
	}
}

// apply applies a record. One that is not newer than what is known only updates
// the generation.
func (x *messageIndex) apply(now time.Time, e storedMessage) *indexedMessage {
	e.body = nil
	l := x.messages[e.token]
	switch {
	case l == nil:
		l = &indexedMessage{token: e.token, storedMessage: e}
		x.messages[e.token] = l
	case e.seq <= l.seq:
		l.generation = x.generation
		if e.leasedHere && e.seq == l.seq {
			x.markLeasedHere(l)
		}
		return l
	default:
		if l.State == stateLeased && e.State == stateDead && e.Reason == mailbox.ReasonTimedOut {
			x.countTimeout(l) // another node was the first to notice that our lease has ended
		}
		e.leasedHere = e.leasedHere || l.leasedHere && l.Lease == e.Lease
		x.uncount(l)
		l.storedMessage, l.timeoutCounted = e, false
	}
	if l.Order == 0 {
		l.Order = e.seq
	}
	l.generation = x.generation
	x.enqueue(now, l)
	return l
}

// markLeasedHere records that this node gave a lease which it consumed before
// the call that gave it returned.
func (x *messageIndex) markLeasedHere(l *indexedMessage) {
	l.leasedHere = true
	if l.State == stateLeased && l.countedAs == countWaiting {
		x.countTimeout(l)
	}
}

// countTimeout counts that a lease of this node has ended, once.
func (x *messageIndex) countTimeout(l *indexedMessage) {
	if l.leasedHere && !l.timeoutCounted {
		l.timeoutCounted = true
		x.usage.Timeouts++
	}
}

// enqueue counts a message and puts it where it belongs.
func (x *messageIndex) enqueue(now time.Time, l *indexedMessage) {
	expired := l.Due <= now.UnixNano()
	switch l.State {
	case stateWaiting:
		x.count(l, countWaiting)
		x.push(l, expired)
	case stateLeased:
		if expired {
			x.expireLease(l)
			return
		}
		x.count(l, countLeased)
		x.push(l, false)
	case stateDead:
		x.count(l, countDead)
		x.push(l, false)
	case stateGone:
		x.count(l, countGone)
		x.push(l, false)
	}
}

// push puts a message on a heap, unless it is claimed.
func (x *messageIndex) push(l *indexedMessage, ready bool) {
	switch {
	case l.claimed:
	case ready:
		l.box.ready.add(l)
		x.wake(l.box)
	default:
		x.due.add(l)
	}
}

// expireLease ends a lease. The last one of a message makes it a dead letter,
// which has to be written; before that, it can neither be leased nor listed.
func (x *messageIndex) expireLease(l *indexedMessage) {
	x.countTimeout(l)
	x.count(l, countWaiting)
	switch {
	case l.Deliveries < l.MaxDeliveries:
		x.push(l, true)
	case !l.claimed:
		x.expired = append(x.expired, l)
	}
}

// claim claims the next message of a box, if there is one.
func (x *messageIndex) claim(b *box) *indexedMessage {
	l := b.ready.first()
	if l != nil {
		removeFromHeap(l)
		l.claimed = true
	}
	return l
}

// release ends a claim, whatever its outcome.
func (x *messageIndex) release(now time.Time, l *indexedMessage) {
	l.claimed = false
	if x.messages[l.token] == l {
		x.uncount(l)
		x.enqueue(now, l)
	}
}

// claimExpired claims messages that have to be made dead letters: those of one
// box, or all with "".
func (x *messageIndex) claimExpired(name string) (taken []*indexedMessage) {
	x.expired = slices.DeleteFunc(x.expired, func(l *indexedMessage) bool {
		current := x.messages[l.token] == l && !l.claimed && l.State == stateLeased && l.countedAs == countWaiting
		if current && (name == "" || l.Box == name) {
			l.claimed = true
			taken = append(taken, l)
			return true
		}
		return !current
	})
	return taken
}

// advance applies what is due at now.
func (x *messageIndex) advance(now time.Time) {
	for l := x.due.first(); l != nil && l.Due <= now.UnixNano(); l = x.due.first() {
		removeFromHeap(l)
		switch l.State {
		case stateWaiting:
			x.push(l, true)
		case stateLeased:
			x.expireLease(l)
		case stateDead:
			x.usage.Dropped++
			x.remove(l)
		case stateGone:
			x.remove(l)
		}
	}
}

// nextDue returns when something is due next, if anything is.
func (x *messageIndex) nextDue() (time.Time, bool) {
	if l := x.due.first(); l != nil {
		return fromNanos(l.Due), true
	}
	return time.Time{}, false
}

// count counts a message in a state, instead of its last one.
func (x *messageIndex) count(l *indexedMessage, as countState) {
	x.uncount(l)
	l.countedAs = as
	if l.Fingerprint != "" {
		x.keys++
		x.keysOf[keyOwner{l.Sender, l.Box}]++
	}
	if as == countGone {
		return
	}
	l.box = x.box(l.Box)
	x.bytes += l.cost()
	if as == countDead {
		x.usage.Dead++
		i, _ := slices.BinarySearchFunc(l.box.dead, l, compareDeath)
		l.box.dead = slices.Insert(l.box.dead, i, l)
		return
	}
	l.box.messages++
	l.box.bytes += l.cost()
	if as != countReserved {
		x.usage.Messages++
	}
	if as == countLeased {
		x.usage.Leased++
	}
}

// uncount undoes count, and takes the message off its heap.
func (x *messageIndex) uncount(l *indexedMessage) {
	removeFromHeap(l)
	as, b := l.countedAs, l.box
	l.countedAs, l.box = countNone, nil
	if as != countNone && l.Fingerprint != "" {
		x.keys--
		owner := keyOwner{l.Sender, l.Box}
		if x.keysOf[owner]--; x.keysOf[owner] == 0 {
			delete(x.keysOf, owner)
		}
	}
	if as == countNone || as == countGone {
		return
	}
	x.bytes -= l.cost()
	if as == countDead {
		x.usage.Dead--
		b.dead = slices.DeleteFunc(b.dead, func(other *indexedMessage) bool { return other == l })
	} else {
		b.messages--
		b.bytes -= l.cost()
	}
	if as == countWaiting || as == countLeased {
		x.usage.Messages--
	}
	if as == countLeased {
		x.usage.Leased--
	}
	if b.messages == 0 && len(b.dead) == 0 {
		delete(x.boxes, b.name)
	}
}

// compareDeath is the order of dead letters: by time of death.
func compareDeath(a, b *indexedMessage) int {
	return cmp.Or(cmp.Compare(a.DiedAt, b.DiedAt), cmp.Compare(a.Order, b.Order), cmp.Compare(a.token, b.token))
}

// remove removes a message for good.
func (x *messageIndex) remove(l *indexedMessage) {
	x.uncount(l)
	if x.messages[l.token] == l {
		delete(x.messages, l.token)
	}
}

// pruneUnseen removes what was not read since the resync began: it does not
// exist any more.
func (x *messageIndex) pruneUnseen() {
	for _, l := range x.messages {
		if l.generation < x.generation && l.seq > 0 {
			x.remove(l)
		}
	}
}

// hasKeyRoom reports whether one more key may be remembered. A sender in a box
// may have as many as are left: one alone half, two a third each, so there is
// always a place for the next one. Messages that outlive their keys do not
// count, so all are scanned; that is done only when there may be too many.
func (x *messageIndex) hasKeyRoom(now time.Time, owner keyOwner) bool {
	if x.keysOf[owner] < x.limits.Keys-x.keys {
		return true
	}
	oldest := now.Add(-x.limits.KeyLife).UnixNano()
	keys, owned := 0, 0
	for _, l := range x.messages {
		if l.Fingerprint == "" || l.SentAt <= oldest {
			continue
		}
		keys++
		if l.Sender == owner.sender && l.Box == owner.box {
			owned++
		}
	}
	return owned < x.limits.Keys-keys
}

// checkRoom refuses a message for which there is no room.
func (x *messageIndex) checkRoom(op string, now time.Time, m mailbox.Message) error {
	cost := int64(len(m.Body)) + messageOverhead
	b := x.boxes[m.Box]
	switch {
	case m.Key != "" && !x.hasKeyRoom(now, keyOwner{m.Sender, m.Box}):
		return mailbox.NoRoom(op, "keys", "this sender has its share of the %d idempotency keys for this box", x.limits.Keys)
	case b == nil && len(x.boxes) >= x.limits.Boxes:
		return mailbox.NoRoom(op, "boxes", "the maximum of %d boxes is reached", len(x.boxes))
	case b != nil && b.messages >= x.limits.BoxMessages:
		return mailbox.NoRoom(op, "box_messages", "the box has reached its maximum of %d messages", b.messages)
	case b != nil && b.bytes+cost > x.limits.BoxBytes, b == nil && cost > x.limits.BoxBytes:
		return mailbox.NoRoom(op, "box_bytes", "the box has no space for %d bytes", len(m.Body))
	case x.bytes+cost > x.limits.Bytes:
		return mailbox.NoRoom(op, "ram_bytes", "the mailbox has no space for %d bytes", len(m.Body))
	}
	return nil
}

// messageHeap is a heap of messages. A message is in one heap at most.
type messageHeap struct {
	items []*indexedMessage
	less  func(a, b *indexedMessage) bool
}

func (m *messageHeap) Len() int           { return len(m.items) }
func (m *messageHeap) Less(i, j int) bool { return m.less(m.items[i], m.items[j]) }
func (m *messageHeap) Swap(i, j int) {
	m.items[i], m.items[j] = m.items[j], m.items[i]
	m.items[i].heapIndex, m.items[j].heapIndex = i, j
}

// Push implements heap.Interface.
func (m *messageHeap) Push(l any) {
	added := l.(*indexedMessage)
	added.heap, added.heapIndex = m, len(m.items)
	m.items = append(m.items, added)
}

// Pop implements heap.Interface.
func (m *messageHeap) Pop() any {
	last := len(m.items) - 1
	l := m.items[last]
	m.items[last] = nil
	m.items = m.items[:last]
	l.heap = nil
	return l
}

func (m *messageHeap) add(l *indexedMessage) { heap.Push(m, l) }

func (m *messageHeap) first() *indexedMessage {
	if len(m.items) == 0 {
		return nil
	}
	return m.items[0]
}

// removeFromHeap removes a message from its heap, if it is in one.
func removeFromHeap(l *indexedMessage) {
	if l.heap != nil {
		heap.Remove(l.heap, l.heapIndex)
	}
}

func byOrder(a, b *indexedMessage) bool { return a.Order < b.Order }
func byDue(a, b *indexedMessage) bool   { return a.Due < b.Due }
