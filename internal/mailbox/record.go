package mailbox

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
)

// record is something that has happened, as it is written down. Which fields it
// has depends on its kind. Numbers instead of names keep it short; they are
// never used for something else.
type record struct {
	Kind kind  `cbor:"1,keyasint"`
	At   int64 `cbor:"2,keyasint"` // when it happened, in nanoseconds of Unix time

	// of a letter
	ID         string `cbor:"3,keyasint,omitempty"`
	Seq        uint64 `cbor:"4,keyasint,omitempty"`
	Box        string `cbor:"5,keyasint,omitempty"`
	Body       []byte `cbor:"6,keyasint,omitempty"`
	Sent       int64  `cbor:"7,keyasint,omitempty"`
	Most       int    `cbor:"8,keyasint,omitempty"`
	Deliveries int    `cbor:"9,keyasint,omitempty"`
	Receipt    string `cbor:"10,keyasint,omitempty"`
	Due        int64  `cbor:"11,keyasint,omitempty"`
	Reason     string `cbor:"12,keyasint,omitempty"`
	Died       int64  `cbor:"13,keyasint,omitempty"`
	Stage      stage  `cbor:"14,keyasint,omitempty"` // in which it was when everything was written anew

	// of a key
	Key   []byte `cbor:"15,keyasint,omitempty"`
	Print []byte `cbor:"16,keyasint,omitempty"`

	// of a note
	Boards []string `cbor:"17,keyasint,omitempty"`
}

// kind is what has happened.
type kind uint8

const (
	sent     kind = iota + 1 // a message was taken in
	lent                     // it was leased
	acked                    // it was dealt with
	nacked                   // it was given back
	extended                 // its lease was
	posted                   // a note was pinned
	standing                 // a letter as it is, when everything is written anew
	keptKey                  // a key whose message may be gone, likewise
)

func (r record) encode() []byte {
	b, _ := cbor.Marshal(r) // texts, bytes and numbers cannot fail
	return b
}

func decodeRecord(b []byte) (r record, err error) {
	if err := cbor.Unmarshal(b, &r); err != nil {
		return record{}, fault.WrapKind("mailbox.open", fault.IntegrityFail, fmt.Errorf("a record cannot be read: %w", err))
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

func sentRecord(l *letter, k *keyed) record {
	r := record{Kind: sent, At: nanos(l.sentAt), ID: l.id, Seq: l.seq, Box: l.box.name, Body: l.body, Sent: nanos(l.sentAt), Most: l.most, Due: nanos(l.due)}
	if k != nil {
		r.Key, r.Print = k.key[:], k.print[:]
	}
	return r
}

func leasedRecord(now time.Time, l *letter) record {
	return record{Kind: lent, At: nanos(now), ID: l.id, Deliveries: l.deliveries, Receipt: l.receipt, Due: nanos(l.due)}
}

func ackedRecord(now time.Time, l *letter) record {
	return record{Kind: acked, At: nanos(now), ID: l.id}
}

func nackedRecord(now time.Time, l *letter, from time.Time, reason string) record {
	return record{Kind: nacked, At: nanos(now), ID: l.id, Deliveries: l.deliveries, Due: nanos(from), Reason: reason}
}

func extendedRecord(now time.Time, l *letter, until time.Time) record {
	return record{Kind: extended, At: nanos(now), ID: l.id, Deliveries: l.deliveries, Receipt: l.receipt, Due: nanos(until)}
}

func postedRecord(now time.Time, boards []string, n Note) record {
	return record{Kind: posted, At: nanos(now), ID: n.ID, Body: n.Body, Sent: nanos(n.At), Boards: boards}
}

// standingRecord is a letter as it is.
func standingRecord(l *letter) record {
	return record{Kind: standing, ID: l.id, Seq: l.seq, Box: l.box.name, Body: l.body, Sent: nanos(l.sentAt), Most: l.most,
		Deliveries: l.deliveries, Receipt: l.receipt, Due: nanos(l.due), Reason: l.reason, Died: nanos(l.diedAt), Stage: l.stage}
}

func keyRecord(k *keyed) record {
	return record{Kind: keptKey, ID: k.id, Key: k.key[:], Print: k.print[:], Sent: nanos(k.at)}
}

// replay does once more what was written down. A letter is known by its ID, and
// what is said of it holds whatever stage it is in: records of different letters
// may be in another order than that in which they happened, and notes of leases
// may be missing at the end, or be there twice.
func (o *office) replay(r record) {
	if r.At != 0 {
		o.advance(fromNanos(r.At), func(*box) {})
	}
	l := o.byID[r.ID]
	switch r.Kind {
	case sent, standing:
		if l == nil {
			o.restore(r)
		}
	case keptKey:
		o.remember(r, fromNanos(r.Sent))
	case posted:
		o.post(r.Boards, Note{ID: r.ID, Body: r.Body, At: fromNanos(r.Sent)})
	case lent:
		if l != nil && r.Deliveries > l.deliveries {
			o.lift(l)
			o.lease(l, r.Deliveries, r.Receipt, fromNanos(r.Due))
		}
	case extended:
		if l != nil && r.Deliveries == l.deliveries {
			o.lift(l)
			o.lease(l, r.Deliveries, r.Receipt, fromNanos(r.Due))
		}
	case acked:
		if l != nil {
			o.lift(l)
			o.usage.Messages--
			o.unbook(l)
		}
	case nacked:
		if l != nil && r.Deliveries >= l.deliveries {
			o.lift(l)
			o.usage.Leased++ // which nack takes back
			l.deliveries = r.Deliveries
			o.nack(fromNanos(r.At), l, fromNanos(r.Due), r.Reason)
		}
	}
}

// lift takes a letter out of whatever it is in, so that it is only booked.
func (o *office) lift(l *letter) {
	switch l.stage {
	case ready:
		l.box.ready.remove(l)
	case delayed:
		o.due.remove(l)
	case leased:
		o.due.remove(l)
		o.release(l)
	case dead:
		o.due.remove(l)
		l.box.dead = slices.DeleteFunc(l.box.dead, func(other *letter) bool { return other == l })
		l.box.letters++
		l.box.bytes += l.cost()
		o.usage.Messages++
		o.usage.Dead--
		o.usage.Died--
	}
}

// restore takes in a letter that was written down.
func (o *office) restore(r record) {
	l := &letter{seq: r.Seq, id: r.ID, box: o.box(r.Box), body: r.Body, sentAt: fromNanos(r.Sent), most: r.Most,
		deliveries: r.Deliveries, due: fromNanos(r.Due), reason: r.Reason}
	o.seq = max(o.seq, r.Seq)
	o.enter(l)
	if len(r.Key) > 0 {
		o.remember(r, l.sentAt)
	}
	o.usage.Messages++
	switch r.Stage {
	case leased, settling:
		o.lease(l, r.Deliveries, r.Receipt, l.due)
	case dead:
		o.die(l, fromNanos(r.Died))
	default:
		o.await(fromNanos(r.At), l)
	}
}

// remember takes in a key that was written down.
func (o *office) remember(r record, at time.Time) {
	k := &keyed{id: r.ID, at: at}
	copy(k.key[:], r.Key)
	copy(k.print[:], r.Print)
	if len(r.Key) == len(keyHash{}) && len(r.Print) == len(b3.Address{}) && o.keys.known[k.key] == nil {
		o.keys.add(k)
	}
}

// snapshot is everything that an office holds, as records that make another one
// the same. Letters that are not kept yet are not among them: their own records
// are still to be written.
func (o *office) snapshot() (all []record) {
	for _, k := range o.keys.order {
		if o.keys.known[k.key] == k && k.pending == nil {
			all = append(all, keyRecord(k))
		}
	}
	for _, b := range o.boxes {
		for _, l := range b.dead {
			all = append(all, standingRecord(l))
		}
	}
	for _, l := range o.byID {
		if l.stage != coming && l.stage != dead {
			all = append(all, standingRecord(l))
		}
	}
	return append(all, o.boards.snapshot()...)
}

// recordBoards is how many boards one record names at most.
const recordBoards = 5000

// snapshot is the notes in the order in which they were pinned.
func (b *boards) snapshot() (all []record) {
	type pinned struct {
		seq uint64
		n   *note
		on  *board
	}
	var pins []pinned
	for _, n := range b.order {
		for on, seq := range n.boards {
			pins = append(pins, pinned{seq, n, on})
		}
	}
	slices.SortFunc(pins, func(a, b pinned) int { return cmp.Compare(a.seq, b.seq) })
	var last *note
	for _, p := range pins {
		if p.n != last || len(all[len(all)-1].Boards) == recordBoards {
			all, last = append(all, record{Kind: posted, ID: p.n.ID, Body: p.n.Body, Sent: nanos(p.n.At)}), p.n
		}
		r := &all[len(all)-1]
		r.Boards = append(r.Boards, p.on.name)
	}
	return all
}
