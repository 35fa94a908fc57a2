package nats

import (
	"cmp"
	"slices"
	"time"

	"micronode/internal/mailbox"
)

// letterCost is what a letter takes, about, besides its body.
const letterCost = 256

// index is what this node knows of the letters: where each one stands, and what
// comes next in each box. It is a pure machine, without a lock and a clock. It
// may be behind, and what it says is never more than a guess at what can be
// done; JetStream decides.
type index struct {
	// set at construction
	limits mailbox.Limits
	wake   func(b *box) // is told that a letter of the box is ready

	letters map[string]*letter // by token
	boxes   map[string]*box
	due     pile      // what happens by itself, and when
	doomed  []*letter // whose last lease has ended; somebody has to write that down
	keys    int
	bytes   int64
	usage   mailbox.Usage
	turn    uint64 // how often all was read anew
}

// box is a queue. It is there while there is something in it.
type box struct {
	name    string
	ready   pile
	dead    []*letter // in the order in which they died
	letters int       // all but dead ones
	bytes   int64     // of those
}

// letter is what is known of one.
type letter struct {
	token string // set at construction: whoever has it in hand reads it without a lock

	// guarded by the lock of the index
	entry // without the body
	box   *box

	books   books
	claimed bool   // somebody on this node is changing it
	timed   bool   // that its lease has ended was counted
	turn    uint64 // when it was last heard of

	pile  *pile
	place int
}

// books is as what a letter is counted.
type books int

const (
	asNothing  books = iota
	asEntering       // it is on its way, and its room is taken
	asWaiting
	asLeased
	asDead
	asGone // only its key counts
)

func newIndex(limits mailbox.Limits, wake func(b *box)) *index {
	return &index{limits: limits, wake: wake, letters: map[string]*letter{}, boxes: map[string]*box{}, due: pile{before: byDue}}
}

func (l *letter) cost() int64 { return l.size + letterCost }

// box returns the box of a name, which is made if it is not there.
func (x *index) box(name string) *box {
	b := x.boxes[name]
	if b == nil {
		b = &box{name: name, ready: pile{before: byOrder}}
		x.boxes[name] = b
	}
	return b
}

// enter books the room for a letter that is on its way.
func (x *index) enter(e entry) *letter {
	l := &letter{token: e.token, entry: e, turn: x.turn}
	x.letters[e.token] = l
	x.count(l, asEntering)
	return l
}

// withdraw gives the room back of a letter that did not come, unless it did.
func (x *index) withdraw(l *letter) {
	if l.books == asEntering {
		x.forget(l)
	}
}

// apply takes note of a record. One that is not newer than what is known changes
// nothing but that the letter was heard of.
func (x *index) apply(now time.Time, e entry) *letter {
	e.body = nil
	l := x.letters[e.token]
	switch {
	case l == nil:
		l = &letter{token: e.token, entry: e}
		x.letters[e.token] = l
	case e.seq <= l.seq:
		l.turn = x.turn
		if e.mine && e.seq == l.seq {
			x.own(l)
		}
		return l
	default:
		if l.Stage == leased && e.Stage == dead && e.Reason == mailbox.TimedOut {
			x.timeOut(l) // another node was the first to notice that our lease has ended
		}
		e.mine = e.mine || l.mine && l.Lease == e.Lease
		x.uncount(l)
		l.entry, l.timed = e, false
	}
	if l.Order == 0 {
		l.Order = e.seq
	}
	l.turn = x.turn
	x.file(now, l)
	return l
}

// own takes note that a lease was given by this node, of which a follower heard
// before the one who gave it.
func (x *index) own(l *letter) {
	l.mine = true
	if l.Stage == leased && l.books == asWaiting {
		x.timeOut(l)
	}
}

// timeOut counts that a lease of this node has ended, once.
func (x *index) timeOut(l *letter) {
	if l.mine && !l.timed {
		l.timed = true
		x.usage.Timeouts++
	}
}

// file counts a letter and puts it where it belongs.
func (x *index) file(now time.Time, l *letter) {
	lapsed := l.Due <= now.UnixNano()
	switch l.Stage {
	case waiting:
		x.count(l, asWaiting)
		x.await(l, lapsed)
	case leased:
		if lapsed {
			x.lapse(l)
			return
		}
		x.count(l, asLeased)
		x.await(l, false)
	case dead:
		x.count(l, asDead)
		x.await(l, false)
	case gone:
		x.count(l, asGone)
		x.await(l, false)
	}
}

// await puts a letter on a pile, unless somebody has it in hand.
func (x *index) await(l *letter, ready bool) {
	switch {
	case l.claimed:
	case ready:
		l.box.ready.add(l)
		x.wake(l.box)
	default:
		x.due.add(l)
	}
}

// lapse ends a lease. The last one of a letter makes it a dead one, and that has
// to be written down; before, it is neither to be had nor dead.
func (x *index) lapse(l *letter) {
	x.timeOut(l)
	x.count(l, asWaiting)
	switch {
	case l.Deliveries < l.Most:
		x.await(l, true)
	case !l.claimed:
		x.doomed = append(x.doomed, l)
	}
}

// claim takes the next letter of a box in hand, if there is one.
func (x *index) claim(b *box) *letter {
	l := b.ready.first()
	if l != nil {
		unpile(l)
		l.claimed = true
	}
	return l
}

// release lets go of a letter, whatever became of it.
func (x *index) release(now time.Time, l *letter) {
	l.claimed = false
	if x.letters[l.token] == l {
		x.uncount(l)
		x.file(now, l)
	}
}

// takeDoomed takes letters in hand that have to be made dead ones: those of one
// box, or all with "".
func (x *index) takeDoomed(of string) (taken []*letter) {
	x.doomed = slices.DeleteFunc(x.doomed, func(l *letter) bool {
		current := x.letters[l.token] == l && !l.claimed && l.Stage == leased && l.books == asWaiting
		if current && (of == "" || l.Box == of) {
			l.claimed = true
			taken = append(taken, l)
			return true
		}
		return !current
	})
	return taken
}

// advance lets time pass.
func (x *index) advance(now time.Time) {
	for l := x.due.first(); l != nil && l.Due <= now.UnixNano(); l = x.due.first() {
		unpile(l)
		switch l.Stage {
		case waiting:
			x.await(l, true)
		case leased:
			x.lapse(l)
		case dead:
			x.usage.Dropped++
			x.forget(l)
		case gone:
			x.forget(l)
		}
	}
}

// next is when something happens by itself, if anything does.
func (x *index) next() (time.Time, bool) {
	if l := x.due.first(); l != nil {
		return at(l.Due), true
	}
	return time.Time{}, false
}

// count books a letter as something, instead of what it was before.
func (x *index) count(l *letter, as books) {
	x.uncount(l)
	l.books = as
	if l.Print != "" {
		x.keys++
	}
	if as == asGone {
		return
	}
	l.box = x.box(l.Box)
	x.bytes += l.cost()
	if as == asDead {
		x.usage.Dead++
		place, _ := slices.BinarySearchFunc(l.box.dead, l, byDeath)
		l.box.dead = slices.Insert(l.box.dead, place, l)
		return
	}
	l.box.letters++
	l.box.bytes += l.cost()
	if as != asEntering {
		x.usage.Messages++
	}
	if as == asLeased {
		x.usage.Leased++
	}
}

// uncount undoes count, and takes the letter off its pile.
func (x *index) uncount(l *letter) {
	unpile(l)
	as, b := l.books, l.box
	l.books, l.box = asNothing, nil
	if as != asNothing && l.Print != "" {
		x.keys--
	}
	if as == asNothing || as == asGone {
		return
	}
	x.bytes -= l.cost()
	if as == asDead {
		x.usage.Dead--
		b.dead = slices.DeleteFunc(b.dead, func(other *letter) bool { return other == l })
	} else {
		b.letters--
		b.bytes -= l.cost()
	}
	if as == asWaiting || as == asLeased {
		x.usage.Messages--
	}
	if as == asLeased {
		x.usage.Leased--
	}
	if b.letters == 0 && len(b.dead) == 0 {
		delete(x.boxes, b.name)
	}
}

// byDeath is the order of dead letters: that of their deaths.
func byDeath(a, b *letter) int {
	return cmp.Or(cmp.Compare(a.DiedAt, b.DiedAt), cmp.Compare(a.Order, b.Order), cmp.Compare(a.token, b.token))
}

// forget lets go of a letter for good.
func (x *index) forget(l *letter) {
	x.uncount(l)
	if x.letters[l.token] == l {
		delete(x.letters, l.token)
	}
}

// tidy forgets what was not heard of since everything is read anew: it is not
// there any more.
func (x *index) tidy() {
	for _, l := range x.letters {
		if l.turn < x.turn && l.seq > 0 {
			x.forget(l)
		}
	}
}

// remembered is how many keys are remembered. Letters that outlive their keys
// do not count, so all have to be looked at; that is done only when there may be
// too many.
func (x *index) remembered(now time.Time) (n int) {
	oldest := now.Add(-x.limits.KeyLife).UnixNano()
	for _, l := range x.letters {
		if l.Print != "" && l.SentAt > oldest {
			n++
		}
	}
	return n
}

// room refuses a message for which there is none.
func (x *index) room(op string, now time.Time, m mailbox.Message) error {
	cost := int64(len(m.Body)) + letterCost
	b := x.boxes[m.Box]
	switch {
	case m.Key != "" && x.keys >= x.limits.Keys && x.remembered(now) >= x.limits.Keys:
		return mailbox.NoRoom(op, "%d keys are remembered already", x.keys)
	case b == nil && len(x.boxes) >= x.limits.Boxes:
		return mailbox.NoRoom(op, "there are %d boxes already", len(x.boxes))
	case b != nil && b.letters >= x.limits.BoxMessages:
		return mailbox.NoRoom(op, "the box holds %d messages already", b.letters)
	case b != nil && b.bytes+cost > x.limits.BoxBytes, b == nil && cost > x.limits.BoxBytes:
		return mailbox.NoRoom(op, "the box has no room for %d bytes", len(m.Body))
	case x.bytes+cost > x.limits.Bytes:
		return mailbox.NoRoom(op, "the mailbox has no room for %d bytes", len(m.Body))
	}
	return nil
}
