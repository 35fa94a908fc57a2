package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"micronode/internal/mailbox"
)

// Ack implements mailbox.Engine. It works at any node, also at one that was
// started after the lease was given.
func (m *Mailbox) Ack(ctx context.Context, box, receipt string) error {
	const op = "mailbox.ack"
	return m.updateLease(ctx, op, box, receipt, false, func(ctx context.Context, e storedMessage, now time.Time) error {
		return m.remove(ctx, op, e, now)
	})
}

// Nack implements mailbox.Engine.
func (m *Mailbox) Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	const op = "mailbox.nack"
	if err := mailbox.CheckDelay(op, delay); err != nil {
		return err
	}
	return m.updateLease(ctx, op, box, receipt, true, func(ctx context.Context, e storedMessage, now time.Time) error {
		if e.Deliveries >= e.MaxDeliveries {
			return m.markDead(ctx, op, e, now, mailbox.TruncateReason(reason))
		}
		expect := e.seq
		e.State, e.Lease, e.Due, e.ChangeID = stateWaiting, "", now.Add(delay).UnixNano(), rand.Text()
		return m.putAndApply(ctx, op, e, expect, 0)
	})
}

// Extend implements mailbox.Engine.
func (m *Mailbox) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	const op = "mailbox.extend"
	visibility, err := m.spec.Limits.CheckLease(op, visibility)
	if err != nil {
		return err
	}
	return m.updateLease(ctx, op, box, receipt, true, func(ctx context.Context, e storedMessage, now time.Time) error {
		expect := e.seq
		e.Due, e.ChangeID = now.Add(visibility).UnixNano(), rand.Text()
		return m.putAndApply(ctx, op, e, expect, 0)
	})
}

// updateLease changes a message whose lease still holds. If the message changes
// meanwhile, it is read again. Where the body is not needed, the index is
// enough to begin with.
func (m *Mailbox) updateLease(ctx context.Context, op, box, receipt string, needsBody bool, do func(ctx context.Context, e storedMessage, now time.Time) error) error {
	token, lease, ok := parseReceipt(receipt)
	if !ok {
		return m.refuseReceipt(ctx, op)
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	e, found := m.indexed(token)
	for reload := false; ; reload = true {
		if reload || needsBody || !found || e.Lease != lease {
			if e, found, err = m.getAndApply(ctx, op, token); err != nil {
				return err
			}
		}
		now := time.Now()
		if !found || e.State != stateLeased || e.Lease != lease || e.Box != box || e.Due <= now.UnixNano() {
			return mailbox.NoLease(op)
		}
		if err := do(ctx, e, now); !errors.Is(err, errWrongSequence) {
			return err
		}
	}
}

// indexed returns the indexed state of a message, without its body.
func (m *Mailbox) indexed(token string) (storedMessage, bool) {
	m.lock()
	defer m.unlock()
	l := m.index.messages[token]
	if l == nil || l.seq == 0 {
		return storedMessage{}, false
	}
	return l.storedMessage, true
}

// refuseReceipt refuses an invalid receipt. After Close, it returns ErrClosed
// instead.
func (m *Mailbox) refuseReceipt(ctx context.Context, op string) error {
	_, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	cancel()
	return mailbox.NoLease(op)
}

// remove removes a message. The tombstone tells every node that it is gone, and
// remembers the key for as long as needed.
func (m *Mailbox) remove(ctx context.Context, op string, e storedMessage, now time.Time) error {
	life, box := tombstoneTTL, ""
	if e.Fingerprint != "" {
		box = e.Box // the key is one of this box
		life = max(life, fromNanos(e.SentAt).Add(m.spec.Limits.KeyLife).Sub(now))
	}
	return m.putAndApply(ctx, op, storedMessage{token: e.token, metadata: metadata{
		ID: e.ID, Box: box, State: stateGone, Due: now.Add(life).UnixNano(), SentAt: e.SentAt, Fingerprint: e.Fingerprint, Sender: e.Sender, ChangeID: rand.Text(),
	}}, e.seq, life)
}

// markDead makes a message a dead letter. When its box has too many, the oldest
// is evicted.
func (m *Mailbox) markDead(ctx context.Context, op string, e storedMessage, diedAt time.Time, reason string) error {
	life := m.spec.Limits.DeadLife
	expect := e.seq
	e.State, e.Lease, e.Reason, e.ChangeID = stateDead, "", reason, rand.Text()
	e.DiedAt, e.Due = diedAt.UnixNano(), diedAt.Add(life).UnixNano()
	if err := m.putAndApply(ctx, op, e, expect, time.Until(fromNanos(e.Due))); err != nil {
		return err
	}
	m.lock()
	m.index.usage.Died++
	m.unlock()
	m.evictDead(ctx, e.Box)
	return nil
}
