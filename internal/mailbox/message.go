package mailbox

import (
	"time"

	"micronode/internal/wal"
)

// messageState is the state of a message.
type messageState uint8

const (
	stateSending     messageState = iota // not stored yet, and invisible
	stateReady                           // to be leased
	stateDelayed                         // to be leased from due on
	stateLeased                          // to one receiver, until due
	stateLeaseLocked                     // leased; an operation of its receiver is being logged
	stateDead                            // leased too often; kept until due
	stateGone
	stateDeadLocked // dead; its resend or drop is being logged
)

// storedMessage is a message in queueState. There may be hundreds of thousands,
// so its size counts: residentCost is what one takes with all that refers to it.
type storedMessage struct {
	// set at construction
	seq           uint64 // the order in which messages were sent
	id            string
	box           *box
	size          int   // of its body
	sentAt        int64 // as nanos writes it
	maxDeliveries int

	body        []byte         // nil if it is only on the disk
	position    wal.Position   // of the record that has it there
	cacheNext   *storedMessage // the next in the list of cached bodies
	cachePrev   *storedMessage
	cached      bool // it is in that list
	bodyPending bool // leased, but the body is still being read
	damaged     bool // the body is damaged on disk
	state       messageState
	heapIndex   int32 // its index in the heap that it is in

	deliveries int
	receipt    string    // of the last lease
	due        time.Time // when the state ends by itself
	reason     string    // of the last nack
	diedAt     int64     // as nanos writes it
}

// messageOverhead is about how many bytes a message takes besides its body.
const messageOverhead = 256

func (s *storedMessage) cost() int64 { return int64(s.size) + messageOverhead }

// messageHeap is a binary heap of messages. A message is in one heap at a time,
// and knows its index, so that it can be removed from the middle.
type messageHeap struct {
	less  func(a, b *storedMessage) bool
	items []*storedMessage
}

func bySeq(a, b *storedMessage) bool { return a.seq < b.seq }

func byDue(a, b *storedMessage) bool {
	if !a.due.Equal(b.due) {
		return a.due.Before(b.due)
	}
	return a.seq < b.seq
}

func (m *messageHeap) first() *storedMessage {
	if len(m.items) == 0 {
		return nil
	}
	return m.items[0]
}

func (m *messageHeap) add(msg *storedMessage) {
	msg.heapIndex = int32(len(m.items))
	m.items = append(m.items, msg)
	m.up(len(m.items) - 1)
}

func (m *messageHeap) remove(msg *storedMessage) {
	at, last := int(msg.heapIndex), len(m.items)-1
	m.swap(at, last)
	m.items[last] = nil
	m.items = m.items[:last]
	if at < last {
		m.down(at)
		m.up(at)
	}
}

func (m *messageHeap) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !m.less(m.items[at], m.items[parent]) {
			return
		}
		m.swap(at, parent)
		at = parent
	}
}

func (m *messageHeap) down(at int) {
	for {
		child := 2*at + 1
		if child >= len(m.items) {
			return
		}
		if right := child + 1; right < len(m.items) && m.less(m.items[right], m.items[child]) {
			child = right
		}
		if !m.less(m.items[child], m.items[at]) {
			return
		}
		m.swap(at, child)
		at = child
	}
}

func (m *messageHeap) swap(i, j int) {
	m.items[i], m.items[j] = m.items[j], m.items[i]
	m.items[i].heapIndex, m.items[j].heapIndex = int32(i), int32(j)
}
