package mailbox

import (
	"time"

	"micronode/internal/wal"
)

// snapshot is everything in a queueState, from which records can be made that
// restore it. Messages that are not stored yet are left out: their own records
// are still to be written.
type snapshot struct {
	keys      []*keyEntry // which do not change
	messages  []messageSnapshot
	deadCount int // how many of them are dead: they come first, in their order
	notes     []logRecord
}

// messageSnapshot is the mutable state of a message at one moment.
type messageSnapshot struct {
	message    *storedMessage
	position   wal.Position
	receipt    string
	reason     string
	due        time.Time
	diedAt     int64
	deliveries int32
	state      messageState
	damaged    bool
}

// snapshot takes a snapshot.
func (q *queueState) snapshot() *snapshot {
	s := &snapshot{keys: make([]*keyEntry, 0, len(q.keys.byHash)), messages: make([]messageSnapshot, 0, len(q.byID)), notes: q.noticeboards.snapshot()}
	for k := q.keys.byAge.oldest; k != nil; k = k.newer[ofAll] {
		if k.pending == nil {
			s.keys = append(s.keys, k)
		}
	}
	for _, b := range q.boxes {
		for _, msg := range b.dead {
			s.messages = append(s.messages, snapshotMessage(msg))
		}
	}
	s.deadCount = len(s.messages)
	for _, msg := range q.byID {
		if msg.state != stateSending && msg.state != stateDead {
			s.messages = append(s.messages, snapshotMessage(msg))
		}
	}
	return s
}

// snapshotMessage takes a snapshot of a message. A locked dead letter is still
// dead: its own record is yet to be written. A leased message whose body is
// still being read is not leased: if that fails, the lease never existed.
func snapshotMessage(msg *storedMessage) messageSnapshot {
	s := messageSnapshot{message: msg, position: msg.position, receipt: msg.receipt, reason: msg.reason, due: msg.due, diedAt: msg.diedAt,
		deliveries: int32(msg.deliveries), state: msg.state, damaged: msg.damaged}
	switch {
	case msg.state == stateDeadLocked:
		s.state = stateDead
	case msg.state == stateLeased && msg.bodyPending:
		s.state, s.receipt, s.due, s.deliveries = stateReady, "", time.Time{}, s.deliveries-1
	}
	return s
}

// record makes the record of a message. What it takes from the message itself
// never changes.
func (s *messageSnapshot) record(body []byte) logRecord {
	msg := s.message
	return logRecord{Kind: kindMessage, ID: msg.id, Seq: msg.seq, Box: msg.box.name, Body: body, Sent: msg.sentAt, MaxDeliveries: msg.maxDeliveries,
		Deliveries: int(s.deliveries), Receipt: s.receipt, Due: nanos(s.due), Reason: s.reason, Died: s.diedAt, State: s.state, Damaged: s.damaged}
}

// relocate updates all positions after a compaction of the log.
func (q *queueState) relocate(s *snapshot, translate func(wal.Position) wal.Position) {
	for i := range s.messages {
		s.messages[i].message.position = s.messages[i].position
	}
	for _, msg := range q.byID {
		msg.position = translate(msg.position)
	}
}
