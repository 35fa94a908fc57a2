package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"micronode/internal/mailbox"
)

// Ack implements mailbox.Engine. Any node can, also one that was started after
// the lease was given.
func (m *Mailbox) Ack(ctx context.Context, box, receipt string) error {
	const op = "mailbox.ack"
	return m.settle(ctx, op, box, receipt, false, func(ctx context.Context, e entry, now time.Time) error {
		return m.remove(ctx, op, e, now)
	})
}

// Nack implements mailbox.Engine.
func (m *Mailbox) Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	const op = "mailbox.nack"
	if err := mailbox.CheckNack(op, delay); err != nil {
		return err
	}
	return m.settle(ctx, op, box, receipt, true, func(ctx context.Context, e entry, now time.Time) error {
		if e.Deliveries >= e.Most {
			return m.bury(ctx, op, e, now, mailbox.Reason(reason))
		}
		expect := e.seq
		e.Stage, e.Lease, e.Due, e.Mark = waiting, "", now.Add(delay).UnixNano(), rand.Text()
		return m.write(ctx, op, e, expect, 0)
	})
}

// Extend implements mailbox.Engine.
func (m *Mailbox) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	const op = "mailbox.extend"
	visibility, err := m.spec.Limits.CheckLease(op, visibility)
	if err != nil {
		return err
	}
	return m.settle(ctx, op, box, receipt, true, func(ctx context.Context, e entry, now time.Time) error {
		expect := e.seq
		e.Due, e.Mark = now.Add(visibility).UnixNano(), rand.Text()
		return m.write(ctx, op, e, expect, 0)
	})
}

// settle does something to a letter whose lease still holds. If the letter
// changes meanwhile, it is looked at again. Where the body is not needed, what is
// known of the letter is enough to begin with.
func (m *Mailbox) settle(ctx context.Context, op, box, receipt string, body bool, do func(ctx context.Context, e entry, now time.Time) error) error {
	token, lease, ok := readReceipt(receipt)
	if !ok {
		return m.refuseReceipt(ctx, op)
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	e, found := m.known(token)
	for fresh := false; ; fresh = true {
		if fresh || body || !found || e.Lease != lease {
			if e, found, err = m.look(ctx, op, token); err != nil {
				return err
			}
		}
		now := time.Now()
		if !found || e.Stage != leased || e.Lease != lease || e.Box != box || e.Due <= now.UnixNano() {
			return mailbox.NoLease(op)
		}
		if err := do(ctx, e, now); !errors.Is(err, errStale) {
			return err
		}
	}
}

// known is what is known of a letter, without its body.
func (m *Mailbox) known(token string) (entry, bool) {
	m.enter()
	defer m.leave()
	l := m.index.letters[token]
	if l == nil || l.seq == 0 {
		return entry{}, false
	}
	return l.entry, true
}

// refuseReceipt refuses what no engine gave out. After Close, even that is not
// told.
func (m *Mailbox) refuseReceipt(ctx context.Context, op string) error {
	_, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	cancel()
	return mailbox.NoLease(op)
}

// remove does away with a letter. What is left says that it is gone, to every
// node, and remembers the key for as long as it has to be.
func (m *Mailbox) remove(ctx context.Context, op string, e entry, now time.Time) error {
	life := goneLife
	if e.Print != "" {
		life = max(life, at(e.SentAt).Add(m.spec.Limits.KeyLife).Sub(now))
	}
	return m.write(ctx, op, entry{token: e.token, record: record{
		ID: e.ID, Stage: gone, Due: now.Add(life).UnixNano(), SentAt: e.SentAt, Print: e.Print, Mark: rand.Text(),
	}}, e.seq, life)
}

// bury makes a letter a dead one. When its box has too many, the oldest goes.
func (m *Mailbox) bury(ctx context.Context, op string, e entry, diedAt time.Time, reason string) error {
	life := m.spec.Limits.DeadLife
	expect := e.seq
	e.Stage, e.Lease, e.Reason, e.Mark = dead, "", reason, rand.Text()
	e.DiedAt, e.Due = diedAt.UnixNano(), diedAt.Add(life).UnixNano()
	if err := m.write(ctx, op, e, expect, time.Until(at(e.Due))); err != nil {
		return err
	}
	m.enter()
	m.index.usage.Died++
	m.leave()
	m.dropDead(ctx, e.Box)
	return nil
}
