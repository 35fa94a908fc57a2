package nats

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

// Dead implements mailbox.Engine. Messages whose last lease has ended are made
// dead letters first, if no node has done that yet.
func (m *Mailbox) Dead(ctx context.Context, name, after string, limit int) ([]mailbox.DeadLetter, error) {
	const op = "mailbox.dead"
	if err := mailbox.CheckName(op, name); err != nil {
		return nil, err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err := m.syncIndex(ctx, op); err != nil {
		return nil, err
	}
	if err := m.markExpiredDead(ctx, op, name); err != nil {
		return nil, err
	}
	var list []mailbox.DeadLetter
	for _, token := range m.listDead(name, after, limit) {
		e, found, err := m.getAndApply(ctx, op, token)
		if err != nil {
			return nil, err
		}
		if found && e.State == stateDead {
			list = append(list, mailbox.DeadLetter{ID: e.ID, Body: e.body, Deliveries: e.Deliveries, Reason: e.Reason, SentAt: fromNanos(e.SentAt), DiedAt: fromNanos(e.DiedAt)})
		}
	}
	return list, nil
}

// listDead lists dead letters of a box after one. If that one is gone, it was
// the oldest, so the list begins at the start.
func (m *Mailbox) listDead(name, after string, limit int) (tokens []string) {
	m.lock()
	defer m.unlock()
	b := m.index.boxes[name]
	if b == nil {
		return nil
	}
	from := 1 + slices.IndexFunc(b.dead, func(l *indexedMessage) bool { return l.ID == after })
	for _, l := range b.dead[from:min(len(b.dead), from+max(0, limit))] {
		tokens = append(tokens, l.token)
	}
	return tokens
}

// Resend implements mailbox.Engine.
func (m *Mailbox) Resend(ctx context.Context, name, id string) error {
	const op = "mailbox.resend"
	return m.updateDead(ctx, op, name, id, func(ctx context.Context, e storedMessage, now time.Time) error {
		if err := m.checkResendRoom(op, e); err != nil {
			return err
		}
		expect := e.seq
		e.State, e.Deliveries, e.Due, e.Lease, e.Reason, e.DiedAt, e.ChangeID = stateWaiting, 0, now.UnixNano(), "", "", 0, rand.Text()
		return m.putAndApply(ctx, op, e, expect, 0)
	})
}

// Drop implements mailbox.Engine.
func (m *Mailbox) Drop(ctx context.Context, name, id string) error {
	const op = "mailbox.drop"
	return m.updateDead(ctx, op, name, id, func(ctx context.Context, e storedMessage, now time.Time) error {
		return m.remove(ctx, op, e, now)
	})
}

// updateDead changes a dead letter. If it changes meanwhile, another node was
// first, and it is read again.
func (m *Mailbox) updateDead(ctx context.Context, op, name, id string, do func(ctx context.Context, e storedMessage, now time.Time) error) error {
	if err := mailbox.CheckName(op, name); err != nil {
		return err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	if err := m.syncIndex(ctx, op); err != nil {
		return err
	}
	if err := m.markExpiredDead(ctx, op, name); err != nil {
		return err
	}
	token, found := m.findDead(name, id)
	if !found {
		return mailbox.NoDeadLetter(op)
	}
	for {
		e, found, err := m.getAndApply(ctx, op, token)
		switch {
		case err != nil:
			return err
		case !found || e.State != stateDead || e.ID != id:
			return mailbox.NoDeadLetter(op)
		}
		if err := do(ctx, e, time.Now()); !errors.Is(err, errWrongSequence) {
			return err
		}
	}
}

// findDead returns the token of a dead letter.
func (m *Mailbox) findDead(name, id string) (token string, found bool) {
	m.lock()
	defer m.unlock()
	b := m.index.boxes[name]
	if b == nil {
		return "", false
	}
	at := slices.IndexFunc(b.dead, func(l *indexedMessage) bool { return l.ID == id })
	if at < 0 {
		return "", false
	}
	return b.dead[at].token, true
}

// checkResendRoom refuses a dead letter for which its box has no room.
func (m *Mailbox) checkResendRoom(op string, e storedMessage) error {
	m.lock()
	defer m.unlock()
	b := m.index.boxes[e.Box]
	switch limits := m.spec.Limits; {
	case b != nil && b.messages >= limits.BoxMessages:
		return mailbox.NoRoom(op, "box_messages", "the box has reached its maximum of %d messages", b.messages)
	case b != nil && b.bytes+e.size+messageOverhead > limits.BoxBytes:
		return mailbox.NoRoom(op, "box_bytes", "the box has no space for %d bytes", e.size)
	}
	return nil
}

// markExpiredDead makes dead letters of messages whose last lease has ended: of
// one box, or of all with "". After a failure the others wait, unless it is
// about that message alone.
func (m *Mailbox) markExpiredDead(ctx context.Context, op, name string) error {
	m.lock()
	expired := m.index.claimExpired(name)
	m.unlock()
	var failed error
	for _, l := range expired {
		if failed == nil || isMessageError(failed) {
			failed = cmp.Or(m.markDeadIfExpired(ctx, op, l.token), failed)
		}
		m.release(l)
	}
	return failed
}

// isMessageError reports whether a failure is about one message, and not about
// the servers.
func isMessageError(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.IntegrityFail || kind == fault.BodyTooLarge
}

// markDeadIfExpired makes a dead letter of a message whose last lease has
// ended, if that is still so. If the message has changed, another node handled
// it.
func (m *Mailbox) markDeadIfExpired(ctx context.Context, op, token string) error {
	e, found, err := m.getAndApply(ctx, op, token)
	if err != nil || !found || e.State != stateLeased || e.Due > time.Now().UnixNano() || e.Deliveries < e.MaxDeliveries {
		return err
	}
	if err := m.markDead(ctx, op, e, fromNanos(e.Due), mailbox.ReasonTimedOut); !errors.Is(err, errWrongSequence) {
		return err
	}
	return nil
}

// evictDead removes the oldest dead letters of a box that has too many. If that
// fails, the next call makes up for it.
func (m *Mailbox) evictDead(ctx context.Context, name string) {
	const op = "mailbox.drop"
	for {
		m.lock()
		var oldest *indexedMessage
		if b := m.index.boxes[name]; b != nil && len(b.dead) > m.spec.Limits.DeadLetters {
			oldest = b.dead[0]
		}
		var e storedMessage
		if oldest != nil {
			e = oldest.storedMessage
		}
		m.unlock()
		if oldest == nil {
			return
		}
		if err := m.remove(ctx, op, e, time.Now()); err != nil {
			return
		}
		m.lock()
		m.index.usage.Dropped++
		m.unlock()
	}
}
