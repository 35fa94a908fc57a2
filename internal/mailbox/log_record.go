package mailbox

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/wal"
)

// logRecord is a change, as it is logged. Which fields it has depends on its
// kind. Numbers instead of names keep it short; a number is never reused.
type logRecord struct {
	Kind recordKind `cbor:"1,keyasint"`
	At   int64      `cbor:"2,keyasint"` // when it happened, in nanoseconds of Unix time

	// of a message
	ID            string       `cbor:"3,keyasint,omitempty"`
	Seq           uint64       `cbor:"4,keyasint,omitempty"`
	Box           string       `cbor:"5,keyasint,omitempty"`
	Body          []byte       `cbor:"6,keyasint,omitempty"`
	Sent          int64        `cbor:"7,keyasint,omitempty"`
	MaxDeliveries int          `cbor:"8,keyasint,omitempty"`
	Deliveries    int          `cbor:"9,keyasint,omitempty"`
	Receipt       string       `cbor:"10,keyasint,omitempty"`
	Due           int64        `cbor:"11,keyasint,omitempty"`
	Reason        string       `cbor:"12,keyasint,omitempty"`
	Died          int64        `cbor:"13,keyasint,omitempty"`
	State         messageState `cbor:"14,keyasint,omitempty"` // in which it was at the compaction

	// of a key
	Key         []byte `cbor:"15,keyasint,omitempty"`
	Fingerprint []byte `cbor:"16,keyasint,omitempty"`
	Sender      string `cbor:"19,keyasint,omitempty"`

	// of a note
	Boards []string `cbor:"17,keyasint,omitempty"`

	// of a message again
	Damaged bool `cbor:"18,keyasint,omitempty"` // its body was lost on the disk
}

// recordKind is the kind of a change.
type recordKind uint8

const (
	kindSent     recordKind = iota + 1 // a message was sent
	kindLeased                         // it was leased
	kindAcked                          // it was acknowledged, or dropped
	kindNacked                         // it was returned
	kindExtended                       // its lease was extended
	kindPosted                         // a note was posted
	kindMessage                        // a message as it is at a compaction
	kindKey                            // a key whose message may be gone, likewise
	kindResent                         // a dead letter was sent again
)

func (r logRecord) encode() []byte {
	b, _ := cbor.Marshal(r) // texts, bytes and numbers cannot fail
	return b
}

func decodeRecord(b []byte) (r logRecord, err error) {
	if err := cbor.Unmarshal(b, &r); err != nil {
		return logRecord{}, fault.WrapKind("mailbox.open", fault.IntegrityFail, fmt.Errorf("a record cannot be read: %w", err))
	}
	return r, nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func sentRecord(msg *storedMessage, k *keyEntry) logRecord {
	r := logRecord{Kind: kindSent, At: msg.sentAt, ID: msg.id, Seq: msg.seq, Box: msg.box.name, Body: msg.body, Sent: msg.sentAt, MaxDeliveries: msg.maxDeliveries, Due: nanos(msg.due)}
	if k != nil {
		r.Key, r.Fingerprint, r.Sender = k.key[:], k.fingerprint[:], k.box.sender.name
	}
	return r
}

func leasedRecord(now time.Time, msg *storedMessage) logRecord {
	return logRecord{Kind: kindLeased, At: nanos(now), ID: msg.id, Deliveries: msg.deliveries, Receipt: msg.receipt, Due: nanos(msg.due)}
}

func ackedRecord(now time.Time, msg *storedMessage) logRecord {
	return logRecord{Kind: kindAcked, At: nanos(now), ID: msg.id}
}

func nackedRecord(now time.Time, msg *storedMessage, from time.Time, reason string) logRecord {
	return logRecord{Kind: kindNacked, At: nanos(now), ID: msg.id, Deliveries: msg.deliveries, Due: nanos(from), Reason: reason}
}

func extendedRecord(now time.Time, msg *storedMessage, until time.Time) logRecord {
	return logRecord{Kind: kindExtended, At: nanos(now), ID: msg.id, Deliveries: msg.deliveries, Receipt: msg.receipt, Due: nanos(until)}
}

func resentRecord(now time.Time, msg *storedMessage) logRecord {
	return logRecord{Kind: kindResent, At: nanos(now), ID: msg.id}
}

func postedRecord(now time.Time, boards []string, n Note) logRecord {
	return logRecord{Kind: kindPosted, At: nanos(now), ID: n.ID, Body: n.Body, Sent: nanos(n.At), Boards: boards}
}

func keyRecord(k *keyEntry) logRecord {
	return logRecord{Kind: kindKey, ID: k.id, Box: k.box.name, Key: k.key[:], Fingerprint: k.fingerprint[:], Sender: k.box.sender.name, Sent: nanos(k.at)}
}

// replay applies a logged record again. A message is found by its ID, and a
// record holds whatever state the message is in: records of different messages
// may be in another order than that in which they happened, and those of leases
// may be missing at the end, or be there twice. At is the position of the
// record.
func (q *queueState) replay(r logRecord, at wal.Position) {
	if r.At != 0 {
		q.advance(fromNanos(r.At), func(*box) {})
	}
	msg := q.byID[r.ID]
	switch r.Kind {
	case kindSent, kindMessage:
		if msg == nil {
			q.restore(r, at)
		}
	case kindKey:
		q.restoreKey(r, fromNanos(r.Sent))
	case kindPosted:
		q.post(r.Boards, Note{ID: r.ID, Body: r.Body, At: fromNanos(r.Sent)})
	case kindLeased:
		if msg != nil && r.Deliveries > msg.deliveries {
			q.unschedule(msg)
			q.lease(msg, r.Deliveries, r.Receipt, fromNanos(r.Due))
		}
	case kindExtended:
		if msg != nil && r.Deliveries == msg.deliveries {
			q.unschedule(msg)
			q.lease(msg, r.Deliveries, r.Receipt, fromNanos(r.Due))
		}
	case kindAcked:
		if msg != nil {
			q.unschedule(msg)
			q.usage.Messages--
			q.remove(msg)
		}
	case kindResent:
		if msg != nil {
			q.unschedule(msg)
			q.resend(msg)
		}
	case kindNacked:
		if msg != nil && r.Deliveries >= msg.deliveries {
			q.unschedule(msg)
			q.usage.Leased++ // which nack decrements
			msg.deliveries = r.Deliveries
			q.nack(fromNanos(r.At), msg, fromNanos(r.Due), r.Reason)
		}
	}
}

// unschedule takes a message out of its heap or list, so that it is only
// counted.
func (q *queueState) unschedule(msg *storedMessage) {
	switch msg.state {
	case stateReady:
		msg.box.ready.remove(msg)
	case stateDelayed:
		q.due.remove(msg)
	case stateLeased:
		q.due.remove(msg)
		q.endLease(msg)
	case stateDead:
		q.due.remove(msg)
		msg.box.dead = slices.DeleteFunc(msg.box.dead, func(other *storedMessage) bool { return other == msg })
		msg.box.messages++
		msg.box.bytes += msg.cost()
		q.usage.Messages++
		q.usage.Dead--
		q.usage.Died--
	}
}

// restore restores a message from its record.
func (q *queueState) restore(r logRecord, at wal.Position) {
	msg := &storedMessage{seq: r.Seq, id: r.ID, box: q.box(r.Box), size: len(r.Body), position: at, sentAt: r.Sent, maxDeliveries: r.MaxDeliveries,
		deliveries: r.Deliveries, due: fromNanos(r.Due), reason: q.accountReason("", r.Reason), damaged: r.Damaged}
	q.seq = max(q.seq, r.Seq)
	q.reserve(msg)
	if len(r.Key) > 0 {
		q.restoreKey(r, fromNanos(msg.sentAt))
	}
	q.usage.Messages++
	switch r.State {
	case stateLeased, stateLeaseLocked:
		q.lease(msg, r.Deliveries, r.Receipt, msg.due)
	case stateDead:
		q.markDead(msg, fromNanos(r.Died))
	default:
		q.schedule(fromNanos(r.At), msg)
	}
}

// restoreKey restores a key from its record. If fewer keys may be remembered
// than before, the same ones are displaced as when they are used.
func (q *queueState) restoreKey(r logRecord, at time.Time) {
	k := &keyEntry{id: r.ID, at: at}
	copy(k.key[:], r.Key)
	copy(k.fingerprint[:], r.Fingerprint)
	if len(r.Key) == len(keyHash{}) && len(r.Fingerprint) == len(b3.Address{}) && q.keys.byHash[k.key] == nil && q.makeKeyRoom("mailbox.open") == nil {
		q.keys.add(k, r.Sender, r.Box)
	}
}

// maxRecordBoards is how many boards one record names at most.
const maxRecordBoards = 5000

// snapshot returns the notes in the order in which they were posted.
func (b *noticeboards) snapshot() (all []logRecord) {
	type pinned struct {
		seq uint64
		n   *storedNote
		on  *noticeboard
	}
	var postings []pinned
	for _, n := range b.order {
		for on, seq := range n.postings {
			postings = append(postings, pinned{seq, n, on})
		}
	}
	slices.SortFunc(postings, func(a, b pinned) int { return cmp.Compare(a.seq, b.seq) })
	var last *storedNote
	for _, p := range postings {
		if p.n != last || len(all[len(all)-1].Boards) == maxRecordBoards {
			all, last = append(all, logRecord{Kind: kindPosted, ID: p.n.ID, Body: p.n.Body, Sent: nanos(p.n.At)}), p.n
		}
		r := &all[len(all)-1]
		r.Boards = append(r.Boards, p.on.name)
	}
	return all
}
