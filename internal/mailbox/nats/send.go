package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"micronode/internal/mailbox"
)

// Send implements mailbox.Engine. A letter is one message of JetStream, and its
// key is the name of its subject: it is there with its key or not at all, and
// who comes second finds that there is one.
func (m *Mailbox) Send(ctx context.Context, message mailbox.Message) (mailbox.Sent, error) {
	const op = "mailbox.send"
	print := ""
	if message.Key != "" {
		print = mailbox.Fingerprint(message).String()
	}
	if err := m.spec.Limits.Check(op, &message); err != nil {
		return mailbox.Sent{}, err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return mailbox.Sent{}, err
	}
	defer cancel()
	now := time.Now()
	e := entry{size: int64(len(message.Body)), body: message.Body, record: record{
		ID: rand.Text(), Box: message.Box, Stage: waiting, Most: message.MaxDeliveries, Due: now.Add(message.Delay).UnixNano(),
		SentAt: now.UnixNano(), Print: print, Mark: rand.Text(),
	}}
	for try := 0; ; try++ {
		spot, before, err := m.place(ctx, op, message.Key, try > 0)
		if err != nil {
			return mailbox.Sent{}, err
		}
		if before != nil {
			return repeated(op, *before, e)
		}
		e.token = spot.token
		if err := m.take(ctx, op, message, e, spot.seq); !errors.Is(err, errStale) {
			return sent(e, err)
		}
	}
}

// sent is the answer for a letter that is new.
func sent(e entry, err error) (mailbox.Sent, error) {
	if err != nil {
		return mailbox.Sent{}, err
	}
	return mailbox.Sent{ID: e.ID}, nil
}

// spot is where a letter is written: under a token, over what is there.
type spot struct {
	token string
	seq   uint64
}

// place finds where a letter belongs, or the one that was sent before with its
// key. With sure, JetStream is asked also if we do not know of one.
//
// A letter that is still there when its key is forgotten keeps the subject of
// the key. Then the next one with this key gets another, and so on.
func (m *Mailbox) place(ctx context.Context, op, key string, sure bool) (spot, *entry, error) {
	for n := 0; ; n++ {
		token := newToken(key, n)
		is, found, err := m.find(ctx, op, token, sure)
		if err != nil {
			return spot{}, nil, err
		}
		if found && m.remembers(is) {
			return spot{}, &is, nil
		}
		if found && is.Stage != gone {
			sure = true
			continue
		}
		after, found, err := m.find(ctx, op, newToken(key, n+1), false)
		if err != nil {
			return spot{}, nil, err
		}
		if found && m.remembers(after) {
			return spot{}, &after, nil
		}
		return spot{token: token, seq: is.seq}, nil, nil
	}
}

// find looks at a letter; if it is not known, only when that has to be sure.
func (m *Mailbox) find(ctx context.Context, op, token string, sure bool) (entry, bool, error) {
	if !sure && !m.knows(token) {
		return entry{}, false, nil
	}
	return m.look(ctx, op, token)
}

// remembers tells whether the key of a letter is still remembered.
func (m *Mailbox) remembers(e entry) bool {
	return at(e.SentAt).Add(m.spec.Limits.KeyLife).After(time.Now())
}

// repeated answers for a letter that was sent before. It may have been sent by
// the very call that asks, whose answer was lost.
func repeated(op string, is, e entry) (mailbox.Sent, error) {
	if is.Print != e.Print {
		return mailbox.Sent{}, mailbox.SameKey(op)
	}
	return mailbox.Sent{ID: is.ID, Repeated: is.ID != e.ID}, nil
}

// knows tells whether there is a letter with a token, as far as we know.
func (m *Mailbox) knows(token string) bool {
	m.enter()
	defer m.leave()
	l := m.index.letters[token]
	return l != nil && l.books != asEntering
}

// take writes a new letter, if there is room. The room is taken before, so that
// many who send at a time do not all find the same.
func (m *Mailbox) take(ctx context.Context, op string, message mailbox.Message, e entry, over uint64) error {
	var entering *letter
	now := m.enter()
	err := m.index.room(op, now, message)
	if err == nil && m.index.letters[e.token] == nil {
		entering = m.index.enter(e)
	}
	m.leave()
	if err != nil {
		return err
	}
	err = m.write(ctx, op, e, over, 0)
	if err != nil && entering != nil {
		m.enter()
		m.index.withdraw(entering)
		m.leave()
	}
	return err
}

// write puts a record and takes note of it.
func (m *Mailbox) write(ctx context.Context, op string, e entry, expect uint64, life time.Duration) error {
	seq, err := m.line.put(ctx, op, e, expect, life)
	if err != nil {
		return err
	}
	e.seq, e.size = seq, int64(len(e.body))
	now := m.enter()
	defer m.leave()
	m.index.apply(now, e)
	return nil
}

// look reads a letter and takes note of what it finds, also that there is none.
func (m *Mailbox) look(ctx context.Context, op, token string) (entry, bool, error) {
	m.mu.Lock()
	before := uint64(0)
	if l := m.index.letters[token]; l != nil {
		before = l.seq
	}
	m.mu.Unlock()
	e, found, err := m.line.last(ctx, op, token)
	if err != nil {
		return e, found, err
	}
	now := m.enter()
	defer m.leave()
	if found {
		m.index.apply(now, e)
	} else if l := m.index.letters[token]; l != nil && l.seq > 0 && l.seq == before {
		m.index.forget(l)
	}
	return e, found, nil
}
