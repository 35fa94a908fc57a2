package mailbox

import "time"

// bodyCache is the part of queueState that decides which bodies are in memory.
// In RAM all are. On the disk, memory is for the state of each message, and for
// notes. What is left of it is for the bodies that were sent last: where
// messages are received soon, they never have to be read.
type bodyCache struct {
	memoryBudget int64          // of a mailbox on disk; zero for one in RAM
	capacity     int64          // how much of it cached bodies may take
	oldest       *storedMessage // of those whose bodies are cached
	newest       *storedMessage
	bytes        int64 // of cached bodies
	reasonBytes  int64 // of the reasons of nacks
}

// residentCost is about how many bytes a message on the disk takes in memory: 260
// that waits, 370 that is leased.
const residentCost = 384

// bodiesOnDisk reports whether bodies are on the disk.
func (q *queueState) bodiesOnDisk() bool { return q.bodyCache.memoryBudget > 0 }

// residentBytes is about what a mailbox on disk takes in memory besides bodies.
func (q *queueState) residentBytes() int64 {
	return int64(len(q.byID))*residentCost + q.bodyCache.reasonBytes + q.noticeboards.bytes
}

// needsRead reports whether a body has to be read.
func (s *storedMessage) needsRead() bool { return s.body == nil && s.size > 0 && !s.damaged }

// cacheBody keeps the body of a message that is on the disk in memory, too, as
// long as there is room. The oldest bodies are evicted first.
func (q *queueState) cacheBody(msg *storedMessage) {
	if !q.bodiesOnDisk() || msg.size == 0 || msg.body == nil {
		return
	}
	msg.cached, msg.cachePrev = true, q.bodyCache.newest
	if msg.cachePrev != nil {
		msg.cachePrev.cacheNext = msg
	} else {
		q.bodyCache.oldest = msg
	}
	q.bodyCache.newest = msg
	q.bodyCache.bytes += int64(msg.size)
	for available := min(q.bodyCache.capacity, q.bodyCache.memoryBudget-q.residentBytes()); q.bodyCache.bytes > available && q.bodyCache.oldest != nil; {
		q.evictBody(q.bodyCache.oldest)
	}
}

// evictBody drops a body from memory that is on the disk.
func (q *queueState) evictBody(msg *storedMessage) {
	if msg.cached {
		q.uncacheBody(msg)
		msg.body = nil
	}
}

// uncacheBody removes a message from the list of cached bodies.
func (q *queueState) uncacheBody(msg *storedMessage) {
	if !msg.cached {
		return
	}
	if msg.cachePrev != nil {
		msg.cachePrev.cacheNext = msg.cacheNext
	} else {
		q.bodyCache.oldest = msg.cacheNext
	}
	if msg.cacheNext != nil {
		msg.cacheNext.cachePrev = msg.cachePrev
	} else {
		q.bodyCache.newest = msg.cachePrev
	}
	msg.cachePrev, msg.cacheNext, msg.cached = nil, nil, false
	q.bodyCache.bytes -= int64(msg.size)
}

// accountReason counts the bytes of a reason that replaces another.
func (q *queueState) accountReason(before, now string) string {
	q.bodyCache.reasonBytes += int64(len(now) - len(before))
	return now
}

// undoLease undoes a lease that never reached its receiver: the message can be
// leased again from a time on, and the delivery does not count.
func (q *queueState) undoLease(now time.Time, msg *storedMessage, from time.Time) {
	q.due.remove(msg)
	q.endLease(msg)
	msg.deliveries--
	msg.due = from
	q.schedule(now, msg)
}

// markDamaged makes a message with a damaged body a dead letter. It may be one
// already.
func (q *queueState) markDamaged(now time.Time, msg *storedMessage) {
	if msg.damaged || msg.state == stateGone {
		return
	}
	msg.damaged, msg.reason = true, q.accountReason(msg.reason, ReasonDamaged)
	q.usage.Damaged++
	switch msg.state {
	case stateReady, stateDelayed, stateLeased:
		q.unschedule(msg)
		q.markDead(msg, now)
	}
}

// ReasonDamaged is the reason of a dead letter whose body was damaged on the disk.
const ReasonDamaged = "its body is damaged on disk"
