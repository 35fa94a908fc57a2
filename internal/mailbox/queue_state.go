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
		keys: keyTable{byHash: map[keyHash]*keyEntry{}}, noticeboards: newNoticeboards(limits, limits.Bytes, zero)}
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
	for l := q.due.first(); l != nil && !l.due.After(now); l = q.due.first() {
		q.due.remove(l)
		switch l.state {
		case stateDead:
			q.evictDead(l)
			continue
		case stateLeased:
			q.usage.Timeouts++
			q.endLease(l)
			if l.deliveries >= l.maxDeliveries {
				l.reason = q.accountReason(l.reason, ReasonTimedOut)
				q.markDead(l, l.due)
				continue
			}
		}
		q.makeReady(l)
		onReady(l.box)
	}
	q.keys.prune(now.Add(-q.limits.KeyLife))
}

// beginSend checks and reserves room for a message.
func (q *queueState) beginSend(op string, now time.Time, m Message) (*storedMessage, error) {
	cost := int64(len(m.Body)) + messageOverhead
	b := q.boxes[m.Box]
	switch {
	case b == nil && len(q.boxes) >= q.limits.Boxes:
		return nil, NoRoom(op, "the maximum of %d boxes is reached", len(q.boxes))
	case b != nil && b.messages >= q.limits.BoxMessages:
		return nil, NoRoom(op, "the box has reached its maximum of %d messages", b.messages)
	case b != nil && b.bytes+cost > q.limits.BoxBytes, b == nil && cost > q.limits.BoxBytes:
		return nil, NoRoom(op, "the box has no space for %d bytes", len(m.Body))
	case q.bytes+q.noticeboards.bytes+cost > q.limits.Bytes:
		return nil, NoRoom(op, "the mailbox has no space for %d bytes", len(m.Body))
	case q.bodiesOnDisk() && q.residentBytes()+residentCost > q.bodyCache.memoryBudget:
		return nil, NoRoom(op, "the memory of %d messages has reached ram_bytes", len(q.byID))
	}
	q.seq++
	l := &storedMessage{seq: q.seq, id: q.idPrefix + "-" + strconv.FormatUint(q.seq, 36), box: q.box(m.Box), body: m.Body, size: len(m.Body), sentAt: now, maxDeliveries: m.MaxDeliveries}
	if m.Delay > 0 {
		l.due = now.Add(m.Delay)
	}
	q.reserve(l)
	return l, nil
}

// reserve counts a message in.
func (q *queueState) reserve(l *storedMessage) {
	q.byID[l.id] = l
	l.box.messages++
	l.box.bytes += l.cost()
	q.bytes += l.cost()
}

// commitSend ends a send: from now on the message can be leased.
func (q *queueState) commitSend(now time.Time, l *storedMessage) {
	q.usage.Messages++
	q.cacheBody(l)
	q.schedule(now, l)
}

// schedule makes a message ready when it is due.
func (q *queueState) schedule(now time.Time, l *storedMessage) {
	if l.due.After(now) {
		l.state = stateDelayed
		q.due.add(l)
		return
	}
	q.makeReady(l)
}

func (q *queueState) makeReady(l *storedMessage) {
	l.state, l.receipt = stateReady, ""
	l.box.ready.add(l)
}

// abortSend undoes beginSend.
func (q *queueState) abortSend(l *storedMessage) { q.remove(l) }

// remove removes a message that is in no heap.
func (q *queueState) remove(l *storedMessage) {
	l.state = stateGone
	delete(q.byID, l.id)
	l.box.messages--
	l.box.bytes -= l.cost()
	q.bytes -= l.cost()
	q.removeBoxIfEmpty(l.box)
	q.releaseBody(l)
}

// releaseBody releases a body.
func (q *queueState) releaseBody(l *storedMessage) {
	if q.zero {
		clear(l.body)
	}
	q.uncacheBody(l)
	l.body, l.reason = nil, q.accountReason(l.reason, "")
}

// leaseNext leases the next message of a box, if there is one.
func (q *queueState) leaseNext(now time.Time, b *box, visibility time.Duration) *storedMessage {
	l := b.ready.first()
	if l == nil {
		return nil
	}
	b.ready.remove(l)
	q.lease(l, l.deliveries+1, q.newReceipt(), now.Add(visibility))
	return l
}

// lease leases a message that is in no heap.
func (q *queueState) lease(l *storedMessage, deliveries int, receipt string, until time.Time) {
	l.deliveries, l.receipt = deliveries, receipt
	l.state, l.due = stateLeased, until
	l.box.byReceipt[receipt] = l
	q.due.add(l)
	q.usage.Leased++
}

// lockLease locks a leased message for an operation of its receiver.
func (q *queueState) lockLease(op, name, receipt string) (*storedMessage, error) {
	b := q.boxes[name]
	if b == nil {
		return nil, NoLease(op)
	}
	l := b.byReceipt[receipt]
	if l == nil || l.state != stateLeased {
		return nil, NoLease(op)
	}
	q.due.remove(l)
	l.state = stateLeaseLocked
	return l, nil
}

// unlockLease unlocks a message: its lease continues until a time.
func (q *queueState) unlockLease(l *storedMessage, until time.Time) {
	l.state, l.due = stateLeased, until
	q.due.add(l)
}

// endLease ends the lease of a message.
func (q *queueState) endLease(l *storedMessage) {
	l.bodyPending = false
	delete(l.box.byReceipt, l.receipt)
	q.usage.Leased--
}

// ack removes a locked message.
func (q *queueState) ack(l *storedMessage) {
	q.endLease(l)
	q.usage.Messages--
	q.remove(l)
}

// nack returns a locked message to its box, to be leased again from a time on.
func (q *queueState) nack(now time.Time, l *storedMessage, from time.Time, reason string) {
	q.endLease(l)
	l.reason, l.due = q.accountReason(l.reason, reason), from
	if l.deliveries >= l.maxDeliveries {
		q.markDead(l, now)
		return
	}
	q.schedule(now, l)
}

// markDead makes a message a dead letter. When its box has too many, the oldest
// is evicted.
func (q *queueState) markDead(l *storedMessage, at time.Time) {
	b := l.box
	l.state, l.receipt, l.diedAt, l.due = stateDead, "", at, at.Add(q.limits.DeadLife)
	b.messages--
	b.bytes -= l.cost()
	q.usage.Messages--
	q.usage.Died++
	q.usage.Dead++
	i, _ := slices.BinarySearchFunc(b.dead, l, compareDiedAt)
	b.dead = slices.Insert(b.dead, i, l)
	q.due.add(l)
	if len(b.dead) > q.limits.DeadLetters {
		oldest := b.dead[0]
		q.due.remove(oldest)
		q.evictDead(oldest)
	}
}

// compareDiedAt is the order of dead letters: by time of death. Of two that
// died at one instant, the one that was inserted first comes first.
func compareDiedAt(a, b *storedMessage) int {
	if a.diedAt.After(b.diedAt) {
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
	at := slices.IndexFunc(b.dead, func(l *storedMessage) bool { return l.id == id })
	if at < 0 {
		return nil, NoDeadLetter(op)
	}
	l := b.dead[at]
	switch {
	case forResend && l.damaged:
		return nil, damagedBody(op)
	case forResend && b.messages >= q.limits.BoxMessages:
		return nil, NoRoom(op, "the box has reached its maximum of %d messages", b.messages)
	case forResend && b.bytes+l.cost() > q.limits.BoxBytes:
		return nil, NoRoom(op, "the box has no space for %d bytes", l.cost()-messageOverhead)
	}
	q.unschedule(l)
	q.usage.Died++ // undoes the decrement of unschedule
	l.state = stateDeadLocked
	return l, nil
}

// unlockDead unlocks a dead letter: it is dead as before.
func (q *queueState) unlockDead(l *storedMessage) {
	q.usage.Died--
	q.markDead(l, l.diedAt)
}

// resend makes a message that is in no heap ready again.
func (q *queueState) resend(l *storedMessage) {
	l.deliveries, l.reason, l.due, l.diedAt = 0, q.accountReason(l.reason, ""), time.Time{}, time.Time{}
	q.makeReady(l)
}

// evictDead evicts a dead letter that is in no heap.
func (q *queueState) evictDead(l *storedMessage) {
	q.removeDead(l)
	q.usage.Dropped++
}

func (q *queueState) removeDead(l *storedMessage) {
	b := l.box
	at := slices.Index(b.dead, l)
	b.dead = slices.Delete(b.dead, at, at+1)
	delete(q.byID, l.id)
	l.state = stateGone
	q.bytes -= l.cost()
	q.usage.Dead--
	q.removeBoxIfEmpty(b)
	q.releaseBody(l)
}

// listDead lists dead letters of a box after one. If that one is gone, it was
// the oldest, so the list begins at the start. Bodies that are only on the disk
// are left out.
func (q *queueState) listDead(name, after string, limit int) (list []deadPageEntry) {
	b := q.boxes[name]
	if b == nil {
		return nil
	}
	from := 1 + slices.IndexFunc(b.dead, func(l *storedMessage) bool { return l.id == after })
	for _, l := range b.dead[from:min(len(b.dead), from+max(0, limit))] {
		list = append(list, deadPageEntry{l, l.needsRead(), DeadLetter{ID: l.id, Body: q.bodyForCaller(l.body), Deliveries: l.deliveries, Reason: l.reason, SentAt: l.sentAt, DiedAt: l.diedAt}})
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
func (q *queueState) makeDelivery(l *storedMessage) Delivery {
	d := Delivery{ID: l.id, Receipt: l.receipt, Body: q.bodyForCaller(l.body), Deliveries: l.deliveries, SentAt: l.sentAt}
	l.bodyPending = l.needsRead()
	q.evictBody(l) // its receiver will acknowledge it; other bodies need the memory
	return d
}

// nextDue returns when something is due next, if anything is.
func (q *queueState) nextDue() (time.Time, bool) {
	l := q.due.first()
	if l == nil {
		return time.Time{}, false
	}
	return l.due, true
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
	for _, l := range q.byID {
		q.releaseBody(l)
	}
	q.noticeboards.clear()
	q.boxes, q.byID, q.due.items, q.bytes, q.usage = map[string]*box{}, map[string]*storedMessage{}, nil, 0, Usage{}
	q.keys = keyTable{byHash: map[keyHash]*keyEntry{}}
	q.bodyCache = bodyCache{memoryBudget: q.bodyCache.memoryBudget, capacity: q.bodyCache.capacity}
}
