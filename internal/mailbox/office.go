package mailbox

import (
	"crypto/rand"
	"slices"
	"strconv"
	"time"
)

// office is the state of a mailbox, and what can happen to it. It is a pure
// machine: it has no lock, no clock and no disk, and what it does follows from
// what it is told. RAM and Disk are this machine behind a lock; Disk writes down
// what it is told, and tells it again after a restart.
//
// What has to be written down before it holds comes in two steps. The first
// says whether it may be, and takes hold of what it needs, so that nothing can
// come between; the second does it, or lets go.
type office struct {
	// set at construction
	limits Limits
	wipe   bool   // bodies are zeroed when nobody needs them
	name   string // makes IDs different from those of other offices
	newest func() string

	boxes map[string]*box
	byID  map[string]*letter // all but those that are gone
	due   pile               // delayed, leased and dead letters
	keys  keyring
	boards

	seq   uint64
	bytes int64 // of letters
	usage Usage // counts; bytes are apart
}

// box is a queue. It is there while there is something in it.
type box struct {
	name     string
	ready    pile
	receipts map[string]*letter
	dead     []*letter // oldest first
	letters  int       // all but dead ones
	bytes    int64     // of those
}

func newOffice(limits Limits, wipe bool) *office {
	return &office{limits: limits, wipe: wipe, name: rand.Text()[:10], newest: rand.Text,
		boxes: map[string]*box{}, byID: map[string]*letter{}, due: pile{before: byDue},
		keys: keyring{known: map[keyHash]*keyed{}}, boards: newBoards(limits, wipe)}
}

// box returns the box of a name, which is made if it is not there.
func (o *office) box(name string) *box {
	b := o.boxes[name]
	if b == nil {
		b = &box{name: name, ready: pile{before: bySeq}, receipts: map[string]*letter{}}
		o.boxes[name] = b
	}
	return b
}

// leave forgets a box in which there is nothing.
func (o *office) leave(b *box) {
	if b.letters == 0 && len(b.dead) == 0 {
		delete(o.boxes, b.name)
	}
}

// advance lets time pass: what is due happens. It tells of each box in which
// something became ready.
func (o *office) advance(now time.Time, tell func(*box)) {
	for l := o.due.first(); l != nil && !l.due.After(now); l = o.due.first() {
		o.due.remove(l)
		switch l.stage {
		case dead:
			o.dropDead(l)
			continue
		case leased:
			o.usage.Timeouts++
			o.release(l)
			if l.deliveries >= l.most {
				l.reason = TimedOut
				o.die(l, l.due)
				continue
			}
		}
		o.makeReady(l)
		tell(l.box)
	}
	o.keys.forget(now.Add(-o.limits.KeyLife))
}

// accept begins to take a message in.
func (o *office) accept(op string, now time.Time, m Message) (*letter, error) {
	cost := int64(len(m.Body)) + letterCost
	b := o.boxes[m.Box]
	switch {
	case b == nil && len(o.boxes) >= o.limits.Boxes:
		return nil, NoRoom(op, "there are %d boxes already", len(o.boxes))
	case b != nil && b.letters >= o.limits.BoxMessages:
		return nil, NoRoom(op, "the box holds %d messages already", b.letters)
	case b != nil && b.bytes+cost > o.limits.BoxBytes, b == nil && cost > o.limits.BoxBytes:
		return nil, NoRoom(op, "the box has no room for %d bytes", len(m.Body))
	case o.bytes+o.boards.bytes+cost > o.limits.Bytes:
		return nil, NoRoom(op, "the mailbox has no room for %d bytes", len(m.Body))
	}
	o.seq++
	l := &letter{seq: o.seq, id: o.name + "-" + strconv.FormatUint(o.seq, 36), box: o.box(m.Box), body: m.Body, sentAt: now, most: m.MaxDeliveries}
	if m.Delay > 0 {
		l.due = now.Add(m.Delay)
	}
	o.enter(l)
	return l, nil
}

// enter books a letter that comes.
func (o *office) enter(l *letter) {
	o.byID[l.id] = l
	l.box.letters++
	l.box.bytes += l.cost()
	o.bytes += l.cost()
}

// admit ends the taking in of a letter: from now on it can be leased.
func (o *office) admit(now time.Time, l *letter) {
	o.usage.Messages++
	o.await(now, l)
}

// await makes a letter ready when it is due.
func (o *office) await(now time.Time, l *letter) {
	if l.due.After(now) {
		l.stage = delayed
		o.due.add(l)
		return
	}
	o.makeReady(l)
}

func (o *office) makeReady(l *letter) {
	l.stage, l.receipt = ready, ""
	l.box.ready.add(l)
}

// withdraw gives up the taking in of a letter.
func (o *office) withdraw(l *letter) { o.unbook(l) }

// unbook forgets a letter that is in no pile.
func (o *office) unbook(l *letter) {
	l.stage = gone
	delete(o.byID, l.id)
	l.box.letters--
	l.box.bytes -= l.cost()
	o.bytes -= l.cost()
	o.leave(l.box)
	o.scrap(l)
}

// scrap lets go of a body.
func (o *office) scrap(l *letter) {
	if o.wipe {
		clear(l.body)
	}
	l.body = nil
}

// take leases the next letter of a box, if there is one.
func (o *office) take(now time.Time, b *box, visibility time.Duration) *letter {
	l := b.ready.first()
	if l == nil {
		return nil
	}
	b.ready.remove(l)
	o.lease(l, l.deliveries+1, o.newest(), now.Add(visibility))
	return l
}

// lease leases a letter that is in no pile.
func (o *office) lease(l *letter, deliveries int, receipt string, until time.Time) {
	l.deliveries, l.receipt = deliveries, receipt
	l.stage, l.due = leased, until
	l.box.receipts[receipt] = l
	o.due.add(l)
	o.usage.Leased++
}

// hold takes hold of a letter that is leased, so that its receiver can say
// something of it.
func (o *office) hold(op, name, receipt string) (*letter, error) {
	b := o.boxes[name]
	if b == nil {
		return nil, NoLease(op)
	}
	l := b.receipts[receipt]
	if l == nil || l.stage != leased {
		return nil, NoLease(op)
	}
	o.due.remove(l)
	l.stage = settling
	return l, nil
}

// resume lets go of a letter that was held: its lease goes on until a time.
func (o *office) resume(l *letter, until time.Time) {
	l.stage, l.due = leased, until
	o.due.add(l)
}

// release ends the lease of a letter.
func (o *office) release(l *letter) {
	delete(l.box.receipts, l.receipt)
	o.usage.Leased--
}

// ack does away with a letter that is held.
func (o *office) ack(l *letter) {
	o.release(l)
	o.usage.Messages--
	o.unbook(l)
}

// nack gives a letter back that is held, to be leased again from a time on.
func (o *office) nack(now time.Time, l *letter, from time.Time, reason string) {
	o.release(l)
	l.reason, l.due = reason, from
	if l.deliveries >= l.most {
		o.die(l, now)
		return
	}
	o.await(now, l)
}

// die makes a letter a dead one. When its box has too many, the oldest goes.
func (o *office) die(l *letter, at time.Time) {
	b := l.box
	l.stage, l.receipt, l.diedAt, l.due = dead, "", at, at.Add(o.limits.DeadLife)
	b.letters--
	b.bytes -= l.cost()
	o.usage.Messages--
	o.usage.Died++
	o.usage.Dead++
	b.dead = append(b.dead, l)
	o.due.add(l)
	if len(b.dead) > o.limits.Dead {
		oldest := b.dead[0]
		o.due.remove(oldest)
		o.dropDead(oldest)
	}
}

// dropDead forgets a dead letter that is in no pile.
func (o *office) dropDead(l *letter) {
	o.buryDead(l)
	o.usage.Dropped++
}

func (o *office) buryDead(l *letter) {
	b := l.box
	at := slices.Index(b.dead, l)
	b.dead = slices.Delete(b.dead, at, at+1)
	delete(o.byID, l.id)
	l.stage = gone
	o.bytes -= l.cost()
	o.usage.Dead--
	o.leave(b)
	o.scrap(l)
}

// listDead lists dead letters of a box after one. If that one is not there any
// more, it was the oldest, so the list begins at the start.
func (o *office) listDead(name, after string, limit int) []DeadLetter {
	b := o.boxes[name]
	if b == nil {
		return nil
	}
	from := 1 + slices.IndexFunc(b.dead, func(l *letter) bool { return l.id == after })
	var list []DeadLetter
	for _, l := range b.dead[from:min(len(b.dead), from+max(0, limit))] {
		list = append(list, DeadLetter{ID: l.id, Body: o.shown(l.body), Deliveries: l.deliveries, Reason: l.reason, SentAt: l.sentAt, DiedAt: l.diedAt})
	}
	return list
}

// shown is a body for somebody outside. What is going to be wiped is copied.
func (o *office) shown(body []byte) []byte {
	if o.wipe {
		return slices.Clone(body)
	}
	return body
}

// deliver is what a receiver is given.
func (o *office) deliver(l *letter) Delivery {
	return Delivery{ID: l.id, Receipt: l.receipt, Body: o.shown(l.body), Deliveries: l.deliveries, SentAt: l.sentAt}
}

// next is when something happens by itself, if anything does.
func (o *office) next() (time.Time, bool) {
	l := o.due.first()
	if l == nil {
		return time.Time{}, false
	}
	return l.due, true
}

// count is how much there is.
func (o *office) count() Usage {
	u := o.usage
	u.Boxes, u.Boards, u.Notes = int64(len(o.boxes)), int64(len(o.boards.byName)), int64(o.boards.pins)
	u.Bytes = o.bytes + o.boards.bytes
	return u
}

// clear forgets everything.
func (o *office) clear() {
	for _, l := range o.byID {
		o.scrap(l)
	}
	o.boards.clear()
	o.boxes, o.byID, o.due.letters, o.bytes, o.usage = map[string]*box{}, map[string]*letter{}, nil, 0, Usage{}
	o.keys = keyring{known: map[keyHash]*keyed{}}
}
