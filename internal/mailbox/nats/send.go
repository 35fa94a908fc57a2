package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"micronode/internal/mailbox"
)

// Send implements mailbox.Engine. A message is one message of JetStream, and
// its key is the name of its subject: it is stored with its key or not at all,
// and a second sender finds the first one's message.
func (m *Mailbox) Send(ctx context.Context, message mailbox.Message) (mailbox.Sent, error) {
	const op = "mailbox.send"
	fingerprint, sender := "", ""
	if message.Key != "" {
		fingerprint, sender = mailbox.Fingerprint(message).String(), message.Sender
	}
	if err := m.spec.Limits.CheckMessage(op, &message); err != nil {
		return mailbox.Sent{}, err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return mailbox.Sent{}, err
	}
	defer cancel()
	now := time.Now()
	e := storedMessage{size: int64(len(message.Body)), body: message.Body, metadata: metadata{
		ID: rand.Text(), Box: message.Box, State: stateWaiting, MaxDeliveries: message.MaxDeliveries, Due: now.Add(message.Delay).UnixNano(),
		SentAt: now.UnixNano(), Fingerprint: fingerprint, Sender: sender, ChangeID: rand.Text(),
	}}
	for try := 0; ; try++ {
		target, earlier, err := m.resolveTarget(ctx, op, message, try > 0)
		if err != nil {
			return mailbox.Sent{}, err
		}
		if earlier != nil {
			return repeatedSent(op, *earlier, e)
		}
		e.token = target.token
		if err := m.sendNew(ctx, op, message, e, target.seq); !errors.Is(err, errWrongSequence) {
			return newSent(e, err)
		}
	}
}

// newSent is the result for a new message.
func newSent(e storedMessage, err error) (mailbox.Sent, error) {
	if err != nil {
		return mailbox.Sent{}, err
	}
	return mailbox.Sent{ID: e.ID}, nil
}

// writeTarget is where a message is written: under a token, over the record
// with that sequence.
type writeTarget struct {
	token string
	seq   uint64
}

// resolveTarget finds where a message belongs, or the one that was sent before
// with its key. With mustAsk, JetStream is asked even if the index has none.
//
// A message that still exists when its key is forgotten keeps the subject of
// the key. Then the next one with this key gets another, and so on.
func (m *Mailbox) resolveTarget(ctx context.Context, op string, message mailbox.Message, mustAsk bool) (writeTarget, *storedMessage, error) {
	for n := 0; ; n++ {
		token := newToken(message, n)
		existing, found, err := m.lookup(ctx, op, token, mustAsk)
		if err != nil {
			return writeTarget{}, nil, err
		}
		if found && m.isKeyRemembered(existing) {
			return writeTarget{}, &existing, nil
		}
		if found && existing.State != stateGone {
			mustAsk = true
			continue
		}
		following, found, err := m.lookup(ctx, op, newToken(message, n+1), false)
		if err != nil {
			return writeTarget{}, nil, err
		}
		if found && m.isKeyRemembered(following) {
			return writeTarget{}, &following, nil
		}
		return writeTarget{token: token, seq: existing.seq}, nil, nil
	}
}

// lookup reads a message; one that is not in the index only with mustAsk.
func (m *Mailbox) lookup(ctx context.Context, op, token string, mustAsk bool) (storedMessage, bool, error) {
	if !mustAsk && !m.isIndexed(token) {
		return storedMessage{}, false, nil
	}
	return m.getAndApply(ctx, op, token)
}

// isKeyRemembered reports whether the key of a message is still remembered.
func (m *Mailbox) isKeyRemembered(e storedMessage) bool {
	return fromNanos(e.SentAt).Add(m.spec.Limits.KeyLife).After(time.Now())
}

// repeatedSent is the result for a message that was sent before. It may have
// been sent by this very call, whose answer was lost.
func repeatedSent(op string, existing, e storedMessage) (mailbox.Sent, error) {
	if existing.Fingerprint != e.Fingerprint {
		return mailbox.Sent{}, mailbox.KeyReused(op)
	}
	return mailbox.Sent{ID: existing.ID, Repeated: existing.ID != e.ID}, nil
}

// isIndexed reports whether the index has a message with a token.
func (m *Mailbox) isIndexed(token string) bool {
	m.lock()
	defer m.unlock()
	l := m.index.messages[token]
	return l != nil && l.countedAs != countReserved
}

// sendNew writes a new message, if there is room. The room is reserved before,
// so that concurrent senders do not all find the same.
func (m *Mailbox) sendNew(ctx context.Context, op string, message mailbox.Message, e storedMessage, expect uint64) error {
	var reserved *indexedMessage
	now := m.lock()
	err := m.index.checkRoom(op, now, message)
	if err == nil && m.index.messages[e.token] == nil {
		reserved = m.index.reserve(e)
	}
	m.unlock()
	if err != nil {
		return err
	}
	err = m.putAndApply(ctx, op, e, expect, 0)
	if err != nil && reserved != nil {
		m.lock()
		m.index.cancelReservation(reserved)
		m.unlock()
	}
	return err
}

// putAndApply puts a record and applies it to the index.
func (m *Mailbox) putAndApply(ctx context.Context, op string, e storedMessage, expect uint64, life time.Duration) error {
	seq, err := m.client.put(ctx, op, e, expect, life)
	if err != nil {
		return err
	}
	e.seq, e.size = seq, int64(len(e.body))
	now := m.lock()
	defer m.unlock()
	m.index.apply(now, e)
	return nil
}

// getAndApply reads a message and applies what it finds to the index, also that
// there is none.
func (m *Mailbox) getAndApply(ctx context.Context, op, token string) (storedMessage, bool, error) {
	m.mu.Lock()
	before := uint64(0)
	if l := m.index.messages[token]; l != nil {
		before = l.seq
	}
	m.mu.Unlock()
	e, found, err := m.client.getLast(ctx, op, token)
	if err != nil {
		return e, found, err
	}
	now := m.lock()
	defer m.unlock()
	if found {
		m.index.apply(now, e)
	} else if l := m.index.messages[token]; l != nil && l.seq > 0 && l.seq == before {
		m.index.remove(l)
	}
	return e, found, nil
}
