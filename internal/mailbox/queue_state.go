package mailbox

import (
	"crypto/rand"
	"slices"
	"strconv"
	"time"
)

// queueState is the state of a mailbox and its transitions. It is a pure state
// machine: no lock, clock or disk. RAM and Disk are this machine behind a lock;
// Disk logs its inputs, and replays them after a restart.
//
// Changes that must be logged have two steps. The first checks and locks, so
// that nothing can come between; the second applies or unlocks.
type queueState struct {
	// set at construction
	limits     Limits
	zero       bool   // bodies are zeroed when they are not needed
	idPrefix   string // makes IDs different from those of other mailboxes
	newReceipt func() string

	boxes map[string]*box
	byID  map[string]*storedMessage // all but those that are gone
	due   messageHeap               // delayed, leased and dead letters
	keys  keyTable
	noticeboards

	seq   uint64
	bytes int64 // of messages
	bodyCache
	usage Usage // counts; bytes are apart
}

// box is a queue. It exists while there is something in it.
type box struct {
	name      string
	ready     messageHeap
	byReceipt map[string]*storedMessage
	dead      []*storedMessage // oldest first
	messages  int              // all but dead ones
	bytes     int64            // of those
}

func newQueueState(limits Limits, zero bool) *queueState {
	return &queueState{limits: limits, zero: zero, idPrefix: rand.Text()[:10], newReceipt: rand.Text,
		boxes: map[string]*box{}, byID: map[string]*storedMessage{}, due: messageHeap{less: byDue},
		keys: newKeyTable(), noticeboards: newNoticeboards(limits, limits.Bytes, zero)}
}

// enableDisk sets that bodies are on the disk. Everything else may take so much
// memory, and cached bodies so much of that.
func (q *queueState) enableDisk(memory, cacheBytes int64) {
	q.bodyCache.memoryBudget, q.bodyCache.capacity = max(memory, 1), cacheBytes
	q.noticeboards.maxBytes = min(memory, q.limits.Bytes) / 2
}

// box returns the box of a name, and makes it if needed.
func (q *queueState) box(name string) *box {
	b := q.boxes[name]
	if b == nil {
		b = &box{name: name, ready: messageHeap{less: bySeq}, byReceipt: map[string]*storedMessage{}}
		q.boxes[name] = b
	}
	return b
}

// removeBoxIfEmpty removes an empty box.
func (q *queueState) removeBoxIfEmpty(b *box) {
	if b.messages == 0 && len(b.dead) == 0 {
		delete(q.boxes, b.name)
	}
}

// advance applies what is due at now. It calls onReady for each box in which a
// message became ready.
func (q *queueState) advance(now time.Time, onReady func(*box)) {
	for msg := q.due.first(); msg != nil && !msg.due.After(now); msg = q.due.first() {
		q.due.remove(msg)
		switch msg.state {
		case stateDead:
			q.evictDead(msg)
			continue
		case stateLeased:
			q.usage.Timeouts++
			q.endLease(msg)
			if msg.deliveries >= msg.maxDeliveries {
				msg.reason = q.accountReason(msg.reason, ReasonTimedOut)
				q.markDead(msg, msg.due)
				continue
			}
		}
		q.makeReady(msg)
		onReady(msg.box)
	}
	q.keys.prune(now.Add(-q.limits.KeyLife))
}

// beginSend checks and reserves room for a message.
func (q *queueState) beginSend(op string, now time.Time, m Message) (*storedMessage, error) {
	cost := int64(len(m.Body)) + messageOverhead
	b := q.boxes[m.Box]
	switch {
	case b == nil && len(q.boxes) >= q.limits.Boxes:
		return nil, NoRoom(op, "boxes", "the maximum of %d boxes is reached", len(q.boxes))
	case b != nil && b.messages >= q.limits.BoxMessages:
		return nil, NoRoom(op, "box_messages", "the box has reached its maximum of %d messages", b.messages)
	case b != nil && b.bytes+cost > q.limits.BoxBytes, b == nil && cost > q.limits.BoxBytes:
		return nil, NoRoom(op, "box_bytes", "the box has no space for %d bytes", len(m.Body))
	case q.bytes+q.noticeboards.bytes+cost > q.limits.Bytes:
		return nil, NoRoom(op, q.bytesSetting(), "the mailbox has no space for %d bytes", len(m.Body))
	case q.bodiesOnDisk() && q.residentBytes()+residentCost > q.bodyCache.memoryBudget:
		return nil, NoRoom(op, "ram_bytes", "the state of %d messages fills the memory for it", len(q.byID))
	}
	q.seq++
	msg := &storedMessage{seq: q.seq, id: q.idPrefix + "-" + strconv.FormatUint(q.seq, 36), box: q.box(m.Box), body: m.Body, size: len(m.Body), sentAt: nanos(now), maxDeliveries: m.MaxDeliveries}
	if m.Delay > 0 {
		msg.due = now.Add(m.Delay)
	}
	q.reserve(msg)
	return msg, nil
}

// bytesSetting is the setting that bounds the bytes of all messages.
func (q *queueState) bytesSetting() string {
	if q.bodiesOnDisk() {
		return "disk_bytes"
	}
	return "ram_bytes"
}

// fullness reports which part of the space for messages is taken, and on the
// disk which part of the memory for their state.
func (q *queueState) fullness() (space, memory float64) {
	space = float64(q.bytes+q.noticeboards.bytes) / float64(max(1, q.limits.Bytes))
	if q.bodiesOnDisk() {
		memory = float64(q.residentBytes()) / float64(q.bodyCache.memoryBudget)
	}
	return space, memory
}

// makeKeyRoom makes room for a new idempotency key.
func (q *queueState) makeKeyRoom(op string) error {
	displaced, err := q.keys.makeRoom(op, q.limits.Keys)
	if displaced {
		q.usage.KeysDisplaced++
	}
	return err
}

// reserve counts a message in.
func (q *queueState) reserve(msg *storedMessage) {
	q.byID[msg.id] = msg
	msg.box.messages++
	msg.box.bytes += msg.cost()
	q.bytes += msg.cost()
}

// commitSend ends a send: from now on the message can be leased.
func (q *queueState) commitSend(now time.Time, msg *storedMessage) {
	q.usage.Messages++
	q.cacheBody(msg)
	q.schedule(now, msg)
}

// schedule makes a message ready when it is due.
func (q *queueState) schedule(now time.Time, msg *storedMessage) {
	if msg.due.After(now) {
		msg.state = stateDelayed
		q.due.add(msg)
		return
	}
	q.makeReady(msg)
}

func (q *queueState) makeReady(msg *storedMessage) {
	msg.state, msg.receipt = stateReady, ""
	msg.box.ready.add(msg)
}

// abortSend undoes beginSend.
func (q *queueState) abortSend(msg *storedMessage) { q.remove(msg) }

// remove removes a message that is in no heap.
func (q *queueState) remove(msg *storedMessage) {
	msg.state = stateGone
	delete(q.byID, msg.id)
	msg.box.messages--
	msg.box.bytes -= msg.cost()
	q.bytes -= msg.cost()
	q.removeBoxIfEmpty(msg.box)
	q.releaseBody(msg)
}

// releaseBody releases a body.
func (q *queueState) releaseBody(msg *storedMessage) {
	if q.zero {
		clear(msg.body)
	}
	q.uncacheBody(msg)
	msg.body, msg.reason = nil, q.accountReason(msg.reason, "")
}

// leaseNext leases the next message of a box, if there is one.
func (q *queueState) leaseNext(now time.Time, b *box, visibility time.Duration) *storedMessage {
	msg := b.ready.first()
	if msg == nil {
		return nil
	}
	b.ready.remove(msg)
	q.lease(msg, msg.deliveries+1, q.newReceipt(), now.Add(visibility))
	return msg
}

// lease leases a message that is in no heap.
func (q *queueState) lease(msg *storedMessage, deliveries int, receipt string, until time.Time) {
	msg.deliveries, msg.receipt = deliveries, receipt
	msg.state, msg.due = stateLeased, until
	msg.box.byReceipt[receipt] = msg
	q.due.add(msg)
	q.usage.Leased++
}

// lockLease locks a leased message for an operation of its receiver.
func (q *queueState) lockLease(op, name, receipt string) (*storedMessage, error) {
	b := q.boxes[name]
	if b == nil {
		return nil, NoLease(op)
	}
	msg := b.byReceipt[receipt]
	if msg == nil || msg.state != stateLeased {
		return nil, NoLease(op)
	}
	q.due.remove(msg)
	msg.state = stateLeaseLocked
	return msg, nil
}

// unlockLease unlocks a message: its lease continues until a time.
func (q *queueState) unlockLease(msg *storedMessage, until time.Time) {
	msg.state, msg.due = stateLeased, until
	q.due.add(msg)
}

// endLease ends the lease of a message.
func (q *queueState) endLease(msg *storedMessage) {
	msg.bodyPending = false
	delete(msg.box.byReceipt, msg.receipt)
	q.usage.Leased--
}

// ack removes a locked message.
func (q *queueState) ack(msg *storedMessage) {
	q.endLease(msg)
	q.usage.Messages--
	q.remove(msg)
}

// nack returns a locked message to its box, to be leased again from a time on.
func (q *queueState) nack(now time.Time, msg *storedMessage, from time.Time, reason string) {
	q.endLease(msg)
	msg.reason, msg.due = q.accountReason(msg.reason, reason), from
	if msg.deliveries >= msg.maxDeliveries {
		q.markDead(msg, now)
		return
	}
	q.schedule(now, msg)
}

// markDead makes a message a dead letter. When its box has too many, the oldest
// is evicted.
func (q *queueState) markDead(msg *storedMessage, at time.Time) {
	b := msg.box
	msg.state, msg.receipt, msg.diedAt, msg.due = stateDead, "", nanos(at), at.Add(q.limits.DeadLife)
	b.messages--
	b.bytes -= msg.cost()
	q.usage.Messages--
	q.usage.Died++
	q.usage.Dead++
	i, _ := slices.BinarySearchFunc(b.dead, msg, compareDiedAt)
	b.dead = slices.Insert(b.dead, i, msg)
	q.due.add(msg)
	if len(b.dead) > q.limits.DeadLetters {
		oldest := b.dead[0]
		q.due.remove(oldest)
		q.evictDead(oldest)
	}
}

// compareDiedAt is the order of dead letters: by time of death. Of two that
// died at one instant, the one that was inserted first comes first.
func compareDiedAt(a, b *storedMessage) int {
	if a.diedAt > b.diedAt {
		return 1
	}
	return -1
}

// lockDead locks a dead letter for a resend or a drop. Meanwhile it counts as a
// message of its box, which must have room for it.
func (q *queueState) lockDead(op, name, id string, forResend bool) (*storedMessage, error) {
	b := q.boxes[name]
	if b == nil {
		return nil, NoDeadLetter(op)
	}
	at := slices.IndexFunc(b.dead, func(msg *storedMessage) bool { return msg.id == id })
	if at < 0 {
		return nil, NoDeadLetter(op)
	}
	msg := b.dead[at]
	switch {
	case forResend && msg.damaged:
		return nil, damagedBody(op)
	case forResend && b.messages >= q.limits.BoxMessages:
		return nil, NoRoom(op, "box_messages", "the box has reached its maximum of %d messages", b.messages)
	case forResend && b.bytes+msg.cost() > q.limits.BoxBytes:
		return nil, NoRoom(op, "box_bytes", "the box has no space for %d bytes", msg.cost()-messageOverhead)
	}
	q.unschedule(msg)
	q.usage.Died++ // undoes the decrement of unschedule
	msg.state = stateDeadLocked
	return msg, nil
}

// unlockDead unlocks a dead letter: it is dead as before.
func (q *queueState) unlockDead(msg *storedMessage) {
	q.usage.Died--
	q.markDead(msg, fromNanos(msg.diedAt))
}

// resend makes a message that is in no heap ready again.
func (q *queueState) resend(msg *storedMessage) {
	msg.deliveries, msg.reason, msg.due, msg.diedAt = 0, q.accountReason(msg.reason, ""), time.Time{}, 0
	q.makeReady(msg)
}

// evictDead evicts a dead letter that is in no heap.
func (q *queueState) evictDead(msg *storedMessage) {
	q.removeDead(msg)
	q.usage.Dropped++
}

func (q *queueState) removeDead(msg *storedMessage) {
	b := msg.box
	at := slices.Index(b.dead, msg)
	b.dead = slices.Delete(b.dead, at, at+1)
	delete(q.byID, msg.id)
	msg.state = stateGone
	q.bytes -= msg.cost()
	q.usage.Dead--
	q.removeBoxIfEmpty(b)
	q.releaseBody(msg)
}

// listDead lists dead letters of a box after one. If that one is gone, it was
// the oldest, so the list begins at the start. Bodies that are only on the disk
// are left out.
func (q *queueState) listDead(name, after string, limit int) (list []deadPageEntry) {
	b := q.boxes[name]
	if b == nil {
		return nil
	}
	from := 1 + slices.IndexFunc(b.dead, func(msg *storedMessage) bool { return msg.id == after })
	for _, msg := range b.dead[from:min(len(b.dead), from+max(0, limit))] {
		list = append(list, deadPageEntry{msg, msg.needsRead(), DeadLetter{ID: msg.id, Body: q.bodyForCaller(msg.body), Deliveries: msg.deliveries, Reason: msg.reason, SentAt: fromNanos(msg.sentAt), DiedAt: fromNanos(msg.diedAt)}})
	}
	return list
}

// deadPageEntry is an entry of a page of dead letters.
type deadPageEntry struct {
	message   *storedMessage
	needsRead bool // its body is still to be read
	DeadLetter
}

// bodyForCaller returns a body for a caller. With zero it is a copy.
func (q *queueState) bodyForCaller(body []byte) []byte {
	if q.zero {
		return slices.Clone(body)
	}
	return body
}

// makeDelivery makes the delivery of a leased message. A body that is only on
// the disk is left out: it is read without the lock.
func (q *queueState) makeDelivery(msg *storedMessage) Delivery {
	d := Delivery{ID: msg.id, Receipt: msg.receipt, Body: q.bodyForCaller(msg.body), Deliveries: msg.deliveries, SentAt: fromNanos(msg.sentAt)}
	msg.bodyPending = msg.needsRead()
	q.evictBody(msg) // its receiver will acknowledge it; other bodies need the memory
	return d
}

// nextDue returns when something is due next, if anything is.
func (q *queueState) nextDue() (time.Time, bool) {
	msg := q.due.first()
	if msg == nil {
		return time.Time{}, false
	}
	return msg.due, true
}

// currentUsage returns how much there is.
func (q *queueState) currentUsage() Usage {
	u := q.usage
	u.Boxes, u.Boards, u.Notes = int64(len(q.boxes)), int64(len(q.noticeboards.byName)), int64(q.noticeboards.postings)
	u.Bytes = q.bytes + q.noticeboards.bytes
	u.Memory = u.Bytes
	if q.bodiesOnDisk() {
		u.Memory = q.residentBytes() + q.bodyCache.bytes
	}
	return u
}

// clear removes everything.
func (q *queueState) clear() {
	for _, msg := range q.byID {
		q.releaseBody(msg)
	}
	q.noticeboards.clear()
	q.boxes, q.byID, q.due.items, q.bytes, q.usage = map[string]*box{}, map[string]*storedMessage{}, nil, 0, Usage{}
	q.keys = newKeyTable()
	q.bodyCache = bodyCache{memoryBudget: q.bodyCache.memoryBudget, capacity: q.bodyCache.capacity}
}
