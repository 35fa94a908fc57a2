package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

// waiter is a receiver that waits for a message.
type waiter struct {
	ready  chan struct{} // closed when the rest is set
	letter *letter       // in hand
}

// Receive implements mailbox.Engine. That a box is empty is said only when the
// index knows all that had happened when it was asked.
func (m *Mailbox) Receive(ctx context.Context, name string, visibility, wait time.Duration) (mailbox.Delivery, error) {
	const op = "mailbox.receive"
	visibility, err := m.spec.Limits.CheckLease(op, visibility)
	if err != nil {
		return mailbox.Delivery{}, err
	}
	if err := mailbox.CheckName(op, name); err != nil {
		return mailbox.Delivery{}, err
	}
	patience := time.Now().Add(wait)
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return mailbox.Delivery{}, err
	}
	defer cancel()
	for try := 0; ; try++ {
		l, err := m.obtain(ctx, op, name, patience, try > 0)
		if err != nil {
			return mailbox.Delivery{}, err
		}
		got, err := m.lease(ctx, op, l, visibility)
		if !errors.Is(err, errStale) {
			return got, err
		}
	}
}

// obtain takes the next letter of a box in hand, and waits for one if there is
// none. Who had one that another node was faster to lease keeps the place.
func (m *Mailbox) obtain(ctx context.Context, op, name string, patience time.Time, first bool) (*letter, error) {
	if l := m.claim(name); l != nil {
		return l, nil
	}
	if err := m.reach(ctx, op); err != nil {
		return nil, err
	}
	if l := m.claim(name); l != nil {
		return l, nil
	}
	if time.Until(patience) <= 0 {
		return nil, mailbox.NoMessage(op)
	}
	if err := m.lane.Enter(ctx); err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer m.lane.Leave()
	return m.await(ctx, op, name, patience, first)
}

// claim takes the next letter of a box in hand, if there is one. Those who wait
// have been given what there was, so nobody is overtaken.
func (m *Mailbox) claim(name string) *letter {
	m.enter()
	defer m.leave()
	b := m.index.boxes[name]
	if b == nil {
		return nil
	}
	return m.index.claim(b)
}

// serve gives those who wait at a box what is ready. The caller holds mu.
func (m *Mailbox) serve(b *box) {
	for len(m.queues[b.name]) > 0 {
		l := m.index.claim(b)
		if l == nil {
			return
		}
		w := m.queues[b.name][0]
		m.unlist(b.name, w)
		w.letter = l
		close(w.ready)
	}
}

// unlist takes a waiter off its list. The caller holds mu.
func (m *Mailbox) unlist(name string, w *waiter) {
	list := slices.DeleteFunc(m.queues[name], func(other *waiter) bool { return other == w })
	if len(list) == 0 {
		delete(m.queues, name)
		return
	}
	m.queues[name] = list
}

// await waits for a letter.
func (m *Mailbox) await(ctx context.Context, op, name string, patience time.Time, first bool) (*letter, error) {
	w := &waiter{ready: make(chan struct{})}
	m.enter()
	place := len(m.queues[name])
	if first {
		place = 0
	}
	m.queues[name] = slices.Insert(m.queues[name], place, w)
	if b := m.index.boxes[name]; b != nil {
		m.serve(b)
	}
	m.leave()

	timer := time.NewTimer(time.Until(patience))
	defer timer.Stop()
	var gaveUp error
	select {
	case <-w.ready:
	case <-timer.C:
		gaveUp = m.nothing(ctx, op)
	case <-ctx.Done():
		gaveUp = flow.Ended(ctx, op)
	}
	now := m.enter()
	defer m.leave()
	m.unlist(name, w)
	if gaveUp != nil && w.letter != nil {
		m.index.release(now, w.letter)
	}
	return w.letter, gaveUp
}

// nothing is what a receiver is told who has waited: that there is no message,
// or that nobody can know.
func (m *Mailbox) nothing(ctx context.Context, op string) error {
	if !m.line.connected.Load() {
		return m.line.refusal(ctx, op, errAway)
	}
	return mailbox.NoMessage(op)
}

// lease leases a letter that is in hand. With errStale, another node had it
// first.
func (m *Mailbox) lease(ctx context.Context, op string, l *letter, visibility time.Duration) (mailbox.Delivery, error) {
	defer m.release(l)
	e, found, err := m.look(ctx, op, l.token)
	if err != nil {
		return mailbox.Delivery{}, err
	}
	now := time.Now()
	if !found || !e.ready(now) {
		return mailbox.Delivery{}, errStale
	}
	expect := e.seq
	e.record = e.ordered(e.seq)
	e.Stage, e.Lease, e.Mark = leased, rand.Text(), rand.Text()
	e.Deliveries, e.Due = e.Deliveries+1, now.Add(visibility).UnixNano()
	e.mine = true
	if err := m.write(ctx, op, e, expect, 0); err != nil {
		return mailbox.Delivery{}, err
	}
	return mailbox.Delivery{ID: e.ID, Receipt: receiptOf(e.token, e.Lease), Body: e.body, Deliveries: e.Deliveries, SentAt: at(e.SentAt)}, nil
}

// release lets go of a letter that is in hand.
func (m *Mailbox) release(l *letter) {
	now := m.enter()
	defer m.leave()
	m.index.release(now, l)
}

// ready tells whether a letter can be leased.
func (e entry) ready(now time.Time) bool {
	over := e.Due <= now.UnixNano()
	return over && (e.Stage == waiting || e.Stage == leased && e.Deliveries < e.Most)
}

// ordered is a record that remembers when its letter came.
func (r record) ordered(seq uint64) record {
	if r.Order == 0 {
		r.Order = seq
	}
	return r
}
