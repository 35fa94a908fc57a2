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

// residentCost is about how many bytes a message on the disk takes in memory.
const residentCost = 512

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
func (q *queueState) cacheBody(l *storedMessage) {
	if !q.bodiesOnDisk() || l.size == 0 || l.body == nil {
		return
	}
	l.cached, l.cachePrev = true, q.bodyCache.newest
	if l.cachePrev != nil {
		l.cachePrev.cacheNext = l
	} else {
		q.bodyCache.oldest = l
	}
	q.bodyCache.newest = l
	q.bodyCache.bytes += int64(l.size)
	for available := min(q.bodyCache.capacity, q.bodyCache.memoryBudget-q.residentBytes()); q.bodyCache.bytes > available && q.bodyCache.oldest != nil; {
		q.evictBody(q.bodyCache.oldest)
	}
}

// evictBody drops a body from memory that is on the disk.
func (q *queueState) evictBody(l *storedMessage) {
	if l.cached {
		q.uncacheBody(l)
		l.body = nil
	}
}

// uncacheBody removes a message from the list of cached bodies.
func (q *queueState) uncacheBody(l *storedMessage) {
	if !l.cached {
		return
	}
	if l.cachePrev != nil {
		l.cachePrev.cacheNext = l.cacheNext
	} else {
		q.bodyCache.oldest = l.cacheNext
	}
	if l.cacheNext != nil {
		l.cacheNext.cachePrev = l.cachePrev
	} else {
		q.bodyCache.newest = l.cachePrev
	}
	l.cachePrev, l.cacheNext, l.cached = nil, nil, false
	q.bodyCache.bytes -= int64(l.size)
}

// accountReason counts the bytes of a reason that replaces another.
func (q *queueState) accountReason(before, now string) string {
	q.bodyCache.reasonBytes += int64(len(now) - len(before))
	return now
}

// undoLease undoes a lease that never reached its receiver: the message can be
// leased again from a time on, and the delivery does not count.
func (q *queueState) undoLease(now time.Time, l *storedMessage, from time.Time) {
	q.due.remove(l)
	q.endLease(l)
	l.deliveries--
	l.due = from
	q.schedule(now, l)
}

// markDamaged makes a message with a damaged body a dead letter. It may be one
// already.
func (q *queueState) markDamaged(now time.Time, l *storedMessage) {
	if l.damaged || l.state == stateGone {
		return
	}
	l.damaged, l.reason = true, q.accountReason(l.reason, ReasonDamaged)
	q.usage.Damaged++
	switch l.state {
	case stateReady, stateDelayed, stateLeased:
		q.unschedule(l)
		q.markDead(l, now)
	}
}

// ReasonDamaged is the reason of a dead letter whose body was damaged on the disk.
const ReasonDamaged = "its body is damaged on disk"
