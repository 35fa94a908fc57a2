package mailbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// keeper is where a desk writes down what happens; nil for nowhere. It is a
// logbook.
type keeper interface {
	Commit(ctx context.Context, done func(error), records ...[]byte) error
	Note(ctx context.Context, records ...[]byte) error
}

// desk is an office that many can come to at a time: it has the lock, the clock
// and those who wait. RAM and Disk are desks.
type desk struct {
	// set at construction
	limits Limits
	zero   bool
	kept   keeper // nil if nothing is written down
	grown  func() // is told when something was; with kept only
	lane   *flow.Lane
	wakes  *flow.Queue[struct{}] // to the sweeper: something is due earlier than it thinks

	mu sync.Mutex

	// guarded by mu
	office  *office
	waiting map[string][]*waiter // by box, in the order in which they came
	closed  bool
	armed   time.Time // when the sweeper looks next; zero if it waits for a wake
}

// waiter is a receiver that waits for a message.
type waiter struct {
	visibility time.Duration
	ready      chan struct{} // closed when the rest is set

	// set by whoever takes it off the list
	letter   *letter
	delivery Delivery
	record   record
	err      error
}

func newDesk(inv *flow.Inventory, limits Limits, zero bool) *desk {
	return &desk{
		limits: limits, zero: zero, office: newOffice(limits, zero), waiting: map[string][]*waiter{},
		lane: flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "receivers", Running: max(1, limits.Waiting), From: "handlers, facets", To: "boxes"}),
		wakes: flow.NewQueue[struct{}](inv, flow.QueueSpec{Service: service, Name: "wakes", Cap: 1, Policy: flow.Coalesce,
			From: "whoever sends or receives", To: "mailbox sweeper"}),
	}
}

// enter locks the office at the present time, unless the desk is closed or the
// caller has left.
func (d *desk) enter(ctx context.Context, op string) (time.Time, error) {
	if err := flow.Ended(ctx, op); err != nil {
		return time.Time{}, err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return time.Time{}, fault.Wrap(op, flow.ErrClosed)
	}
	now := time.Now()
	d.advance(now)
	return now, nil
}

// leave unlocks the office. The sweeper is told if something is due before it
// looks again.
func (d *desk) leave() {
	next, any := d.office.next()
	early := any && (d.armed.IsZero() || next.Before(d.armed))
	if early {
		d.armed = next
	}
	d.mu.Unlock()
	if early {
		_ = d.wakes.TryPush(struct{}{}) // a closed queue: nobody sweeps any more
	}
}

// advance lets time pass, and gives those who wait what became ready. The
// caller holds mu.
func (d *desk) advance(now time.Time) {
	d.office.advance(now, func(b *box) { d.serve(now, b) })
}

// serve gives those who wait at a box what is ready. The caller holds mu.
func (d *desk) serve(now time.Time, b *box) {
	for len(d.waiting[b.name]) > 0 {
		w := d.waiting[b.name][0]
		l := d.office.take(now, b, w.visibility)
		if l == nil {
			return
		}
		w.letter, w.delivery, w.record = l, d.office.deliver(l), leasedRecord(now, l)
		d.unlist(b.name, w)
		close(w.ready)
	}
}

// unlist takes a waiter off its list. The caller holds mu.
func (d *desk) unlist(name string, w *waiter) {
	list := d.waiting[name]
	list = slices.DeleteFunc(list, func(other *waiter) bool { return other == w })
	if len(list) == 0 {
		delete(d.waiting, name)
		return
	}
	d.waiting[name] = list
}

// settle writes something down and calls done, with the office locked, when it
// is settled. Without a place to write, it is at once; if everything was
// forgotten meanwhile, there is nothing left to be done.
func (d *desk) settle(ctx context.Context, r record, done func(err error)) error {
	if d.kept != nil {
		defer d.grown()
		return d.kept.Commit(ctx, func(err error) {
			d.mu.Lock()
			done(err)
			d.leave()
		}, r.encode())
	}
	var err error
	d.mu.Lock()
	if d.closed {
		err = flow.ErrClosed
	}
	done(err)
	d.leave()
	return err
}

// Send implements Engine.
func (d *desk) Send(ctx context.Context, m Message) (Sent, error) {
	const op = "mailbox.send"
	var name keyed
	if m.Key != "" {
		name = keyed{key: hashKey(m.Key), print: Fingerprint(m)}
	}
	if err := d.limits.Check(op, &m); err != nil {
		return Sent{}, err
	}
	for {
		l, k, err := d.accept(ctx, op, m, name)
		switch {
		case err != nil:
			return Sent{}, err
		case l != nil:
			return Sent{ID: l.id}, fault.Wrap(op, d.keep(ctx, l, k))
		case k.pending == nil:
			return Sent{ID: k.id, Repeated: true}, nil
		}
		// The same message is being taken in at this moment. What comes of it
		// comes of this one too, unless it fails; then this one is tried.
		select {
		case <-k.pending:
		case <-ctx.Done():
			return Sent{}, flow.Ended(ctx, op)
		}
	}
}

// accept begins to take a message in. A message that was sent before is not
// taken in: then there is no letter, but what is known of its key.
func (d *desk) accept(ctx context.Context, op string, m Message, k keyed) (*letter, *keyed, error) {
	now, err := d.enter(ctx, op)
	if err != nil {
		return nil, nil, err
	}
	defer d.leave()
	if m.Key != "" {
		known, err := d.office.keys.find(op, k.key, k.print)
		if err != nil {
			return nil, nil, err
		}
		if known != nil {
			seen := *known
			return nil, &seen, nil
		}
		if err := d.office.keys.room(op, d.limits.Keys, now, d.limits.KeyLife); err != nil {
			return nil, nil, err
		}
	}
	l, err := d.office.accept(op, now, m)
	if err != nil {
		return nil, nil, err
	}
	if d.zero {
		l.body = slices.Clone(l.body)
	}
	if m.Key == "" {
		return l, nil, nil
	}
	k.id, k.at, k.pending = l.id, now, make(chan struct{})
	d.office.keys.add(&k)
	return l, &k, nil
}

// keep ends the taking in of a letter. What is written of it is read under the
// lock: Close may be letting go of its body at this moment.
func (d *desk) keep(ctx context.Context, l *letter, k *keyed) error {
	d.mu.Lock()
	r := sentRecord(l, k)
	d.mu.Unlock()
	return d.settle(ctx, r, func(err error) {
		if err != nil {
			d.office.withdraw(l)
		} else {
			now := time.Now()
			d.office.admit(now, l)
			d.serve(now, l.box)
		}
		if k != nil {
			if err != nil {
				d.office.keys.drop(k)
			}
			close(k.pending)
			k.pending = nil
		}
	})
}

// Receive implements Engine.
func (d *desk) Receive(ctx context.Context, name string, visibility, wait time.Duration) (Delivery, error) {
	const op = "mailbox.receive"
	visibility, err := d.limits.CheckLease(op, visibility)
	if err != nil {
		return Delivery{}, err
	}
	if err := CheckName(op, name); err != nil {
		return Delivery{}, err
	}
	got, r, err := d.take(ctx, op, name, visibility)
	if fault.KindOf(err) == fault.NotFound && wait > 0 {
		if err := d.lane.Enter(ctx); err != nil {
			return Delivery{}, fault.Wrap(op, err)
		}
		defer d.lane.Leave()
		got, r, err = d.await(ctx, op, name, visibility, wait)
	}
	if err != nil || d.kept == nil {
		return got, err
	}
	if err := d.kept.Note(ctx, r.encode()); err != nil {
		return Delivery{}, fault.Wrap(op, err) // the lease ends by itself
	}
	return got, nil
}

// take leases the next message of a box if there is one.
func (d *desk) take(ctx context.Context, op, name string, visibility time.Duration) (Delivery, record, error) {
	now, err := d.enter(ctx, op)
	if err != nil {
		return Delivery{}, record{}, err
	}
	defer d.leave()
	b := d.office.boxes[name]
	if b == nil {
		return Delivery{}, record{}, NoMessage(op)
	}
	l := d.office.take(now, b, visibility)
	if l == nil {
		return Delivery{}, record{}, NoMessage(op)
	}
	return d.office.deliver(l), leasedRecord(now, l), nil
}

// await waits for a message. One that was handed over in the very moment in
// which the caller gave up is returned all the same: it is leased.
func (d *desk) await(ctx context.Context, op, name string, visibility, wait time.Duration) (Delivery, record, error) {
	w := &waiter{visibility: visibility, ready: make(chan struct{})}
	now, err := d.enter(ctx, op)
	if err != nil {
		return Delivery{}, record{}, err
	}
	d.waiting[name] = append(d.waiting[name], w)
	if b := d.office.boxes[name]; b != nil {
		d.serve(now, b)
	}
	d.leave()

	patience := time.NewTimer(wait)
	defer patience.Stop()
	var gaveUp error
	select {
	case <-w.ready:
	case <-patience.C:
		gaveUp = NoMessage(op)
	case <-ctx.Done():
		gaveUp = flow.Ended(ctx, op)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.letter == nil && w.err == nil {
		d.unlist(name, w)
		return Delivery{}, record{}, gaveUp
	}
	return w.delivery, w.record, w.err
}

// held takes hold of a message by its receipt.
func (d *desk) held(ctx context.Context, op, name, receipt string) (*letter, time.Time, error) {
	now, err := d.enter(ctx, op)
	if err != nil {
		return nil, now, err
	}
	defer d.leave()
	l, err := d.office.hold(op, name, receipt)
	return l, now, err
}

// Ack implements Engine.
func (d *desk) Ack(ctx context.Context, name, receipt string) error {
	const op = "mailbox.ack"
	l, now, err := d.held(ctx, op, name, receipt)
	if err != nil {
		return err
	}
	return fault.Wrap(op, d.settle(ctx, ackedRecord(now, l), func(err error) {
		if err != nil {
			d.office.resume(l, l.due)
			return
		}
		d.office.ack(l)
	}))
}

// Nack implements Engine.
func (d *desk) Nack(ctx context.Context, name, receipt string, delay time.Duration, reason string) error {
	const op = "mailbox.nack"
	if err := CheckNack(op, delay); err != nil {
		return err
	}
	reason = Reason(reason)
	l, now, err := d.held(ctx, op, name, receipt)
	if err != nil {
		return err
	}
	from := now.Add(delay)
	return fault.Wrap(op, d.settle(ctx, nackedRecord(now, l, from, reason), func(err error) {
		if err != nil {
			d.office.resume(l, l.due)
			return
		}
		now := time.Now()
		d.office.nack(now, l, from, reason)
		d.serve(now, l.box)
	}))
}

// Extend implements Engine.
func (d *desk) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	const op = "mailbox.extend"
	visibility, err := d.limits.CheckLease(op, visibility)
	if err != nil {
		return err
	}
	l, now, err := d.held(ctx, op, name, receipt)
	if err != nil {
		return err
	}
	until := now.Add(visibility)
	return fault.Wrap(op, d.settle(ctx, extendedRecord(now, l, until), func(err error) {
		if err != nil {
			until = l.due
		}
		d.office.resume(l, until)
	}))
}

// Dead implements Engine.
func (d *desk) Dead(ctx context.Context, name, after string, limit int) ([]DeadLetter, error) {
	const op = "mailbox.dead"
	if err := CheckName(op, name); err != nil {
		return nil, err
	}
	if _, err := d.enter(ctx, op); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.office.listDead(name, after, limit), nil
}

// Post implements Engine.
func (d *desk) Post(ctx context.Context, names []string, n Note) error {
	const op = "mailbox.post"
	if err := CheckPost(op, names, n); err != nil || len(names) == 0 {
		return err
	}
	now, err := d.enter(ctx, op)
	if err != nil {
		return err
	}
	err = d.office.boards.room(op, names, n)
	d.leave()
	if err != nil {
		return err
	}
	return fault.Wrap(op, d.settle(ctx, postedRecord(now, names, n), func(err error) {
		if err == nil {
			d.office.post(names, n)
		}
	}))
}

// Board implements Engine.
func (d *desk) Board(ctx context.Context, name, after string, limit int) ([]Note, error) {
	const op = "mailbox.board"
	if err := CheckName(op, name); err != nil {
		return nil, err
	}
	if _, err := d.enter(ctx, op); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.office.list(name, after, limit), nil
}

// Usage implements Engine.
func (d *desk) Usage() Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return Usage{}
	}
	return d.office.count()
}

// sweep lets time pass when something is due: for those who wait. It sleeps
// until the next instant at which something happens, or until somebody makes
// that an earlier one.
func (d *desk) sweep(ctx context.Context) error {
	for {
		pause, any := d.look()
		turn, cancel := ctx, func() {}
		if any {
			turn, cancel = context.WithTimeout(ctx, pause)
		}
		_, err := d.wakes.Pop(turn)
		cancel()
		if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
			return nil
		}
	}
}

// look lets time pass, and says how long it is until there is something to do.
func (d *desk) look() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.advance(now)
	next, any := d.office.next()
	d.armed = next // zero if there is none
	return next.Sub(now), any
}

// close ends everything: those who wait are told. It reports whether it did, or
// somebody had before.
func (d *desk) close() bool {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return false
	}
	d.closed = true
	for _, list := range d.waiting {
		for _, w := range list {
			w.err = fault.Wrap("mailbox.receive", flow.ErrClosed)
			close(w.ready)
		}
	}
	d.waiting = map[string][]*waiter{}
	d.mu.Unlock()
	d.lane.Close()
	d.wakes.Close()
	return true
}

// forget lets go of everything that is kept.
func (d *desk) forget() {
	d.mu.Lock()
	d.office.clear()
	d.mu.Unlock()
}
