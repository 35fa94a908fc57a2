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
	done    chan struct{}   // closed when the rest is set
	message *indexedMessage // claimed
}

// Receive implements mailbox.Engine. It returns NoMessage only when the index
// knows all that had happened when it was called.
func (m *Mailbox) Receive(ctx context.Context, name string, visibility, wait time.Duration) (mailbox.Delivery, error) {
	const op = "mailbox.receive"
	visibility, err := m.spec.Limits.CheckLease(op, visibility)
	if err != nil {
		return mailbox.Delivery{}, err
	}
	if err := mailbox.CheckName(op, name); err != nil {
		return mailbox.Delivery{}, err
	}
	deadline := time.Now().Add(wait)
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return mailbox.Delivery{}, err
	}
	defer cancel()
	for try := 0; ; try++ {
		l, err := m.claimOrWait(ctx, op, name, deadline, try > 0)
		if err != nil {
			return mailbox.Delivery{}, err
		}
		got, err := m.lease(ctx, op, l, visibility)
		if !errors.Is(err, errWrongSequence) {
			return got, err
		}
	}
}

// claimOrWait claims the next message of a box, and waits for one if there is
// none. A receiver whose message another node leased first goes to the front.
func (m *Mailbox) claimOrWait(ctx context.Context, op, name string, deadline time.Time, first bool) (*indexedMessage, error) {
	if l := m.claim(name); l != nil {
		return l, nil
	}
	if err := m.syncIndex(ctx, op); err != nil {
		return nil, err
	}
	if l := m.claim(name); l != nil {
		return l, nil
	}
	if time.Until(deadline) <= 0 {
		return nil, mailbox.NoMessage(op)
	}
	if err := m.lane.Enter(ctx); err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer m.lane.Leave()
	return m.waitForMessage(ctx, op, name, deadline, first)
}

// claim claims the next message of a box, if there is one. Waiting receivers
// were served before, so none is overtaken.
func (m *Mailbox) claim(name string) *indexedMessage {
	m.lock()
	defer m.unlock()
	b := m.index.boxes[name]
	if b == nil {
		return nil
	}
	return m.index.claim(b)
}

// serveWaiters gives what is ready to the receivers that wait at a box. The
// caller holds mu.
func (m *Mailbox) serveWaiters(b *box) {
	for len(m.waiters[b.name]) > 0 {
		l := m.index.claim(b)
		if l == nil {
			return
		}
		w := m.waiters[b.name][0]
		m.removeWaiter(b.name, w)
		w.message = l
		close(w.done)
	}
}

// removeWaiter removes a waiter from its list. The caller holds mu.
func (m *Mailbox) removeWaiter(name string, w *waiter) {
	list := slices.DeleteFunc(m.waiters[name], func(other *waiter) bool { return other == w })
	if len(list) == 0 {
		delete(m.waiters, name)
		return
	}
	m.waiters[name] = list
}

// waitForMessage waits for a message.
func (m *Mailbox) waitForMessage(ctx context.Context, op, name string, deadline time.Time, first bool) (*indexedMessage, error) {
	w := &waiter{done: make(chan struct{})}
	m.lock()
	i := len(m.waiters[name])
	if first {
		i = 0
	}
	m.waiters[name] = slices.Insert(m.waiters[name], i, w)
	if b := m.index.boxes[name]; b != nil {
		m.serveWaiters(b)
	}
	m.unlock()

	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	var waitErr error
	select {
	case <-w.done:
	case <-timer.C:
		waitErr = m.emptyErr(ctx, op)
	case <-ctx.Done():
		waitErr = flow.Ended(ctx, op)
	}
	now := m.lock()
	defer m.unlock()
	m.removeWaiter(name, w)
	if waitErr != nil && w.message != nil {
		m.index.release(now, w.message)
	}
	return w.message, waitErr
}

// emptyErr is the error after a wait: there is no message, or that cannot be
// known without a connection.
func (m *Mailbox) emptyErr(ctx context.Context, op string) error {
	if !m.client.connected.Load() {
		return m.client.refusal(ctx, op, errDisconnected)
	}
	return mailbox.NoMessage(op)
}

// lease leases a claimed message. With errWrongSequence, another node leased it
// first.
func (m *Mailbox) lease(ctx context.Context, op string, l *indexedMessage, visibility time.Duration) (mailbox.Delivery, error) {
	defer m.release(l)
	e, found, err := m.getAndApply(ctx, op, l.token)
	if err != nil {
		return mailbox.Delivery{}, err
	}
	now := time.Now()
	if !found || !e.canLease(now) {
		return mailbox.Delivery{}, errWrongSequence
	}
	expect := e.seq
	e.metadata = e.withOrder(e.seq)
	e.State, e.Lease, e.ChangeID = stateLeased, rand.Text(), rand.Text()
	e.Deliveries, e.Due = e.Deliveries+1, now.Add(visibility).UnixNano()
	e.leasedHere = true
	if err := m.putAndApply(ctx, op, e, expect, 0); err != nil {
		return mailbox.Delivery{}, err
	}
	return mailbox.Delivery{ID: e.ID, Receipt: makeReceipt(e.token, e.Lease), Body: e.body, Deliveries: e.Deliveries, SentAt: fromNanos(e.SentAt)}, nil
}

// release ends the claim on a message.
func (m *Mailbox) release(l *indexedMessage) {
	now := m.lock()
	defer m.unlock()
	m.index.release(now, l)
}

// canLease reports whether a message can be leased.
func (s storedMessage) canLease(now time.Time) bool {
	due := s.Due <= now.UnixNano()
	return due && (s.State == stateWaiting || s.State == stateLeased && s.Deliveries < s.MaxDeliveries)
}

// withOrder returns a record with the sequence with which its message came.
func (m metadata) withOrder(seq uint64) metadata {
	if m.Order == 0 {
		m.Order = seq
	}
	return m
}
