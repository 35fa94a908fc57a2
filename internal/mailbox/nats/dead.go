package nats

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

// Dead implements mailbox.Engine. Letters whose last lease has ended are made
// dead ones first, if nobody has done that yet.
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
	if err := m.reach(ctx, op); err != nil {
		return nil, err
	}
	if err := m.buryDoomed(ctx, op, name); err != nil {
		return nil, err
	}
	var list []mailbox.DeadLetter
	for _, token := range m.deadAfter(name, after, limit) {
		e, found, err := m.look(ctx, op, token)
		if err != nil {
			return nil, err
		}
		if found && e.Stage == dead {
			list = append(list, mailbox.DeadLetter{ID: e.ID, Body: e.body, Deliveries: e.Deliveries, Reason: e.Reason, SentAt: at(e.SentAt), DiedAt: at(e.DiedAt)})
		}
	}
	return list, nil
}

// deadAfter lists dead letters of a box after one. If that one is not there any
// more, it was the oldest, so the list begins at the start.
func (m *Mailbox) deadAfter(name, after string, limit int) (tokens []string) {
	m.enter()
	defer m.leave()
	b := m.index.boxes[name]
	if b == nil {
		return nil
	}
	from := 1 + slices.IndexFunc(b.dead, func(l *letter) bool { return l.ID == after })
	for _, l := range b.dead[from:min(len(b.dead), from+max(0, limit))] {
		tokens = append(tokens, l.token)
	}
	return tokens
}

// buryDoomed makes dead letters of those whose last lease has ended: of one box,
// or of all with "". When one cannot be made one, the others wait, unless it is
// the letter that is to blame.
func (m *Mailbox) buryDoomed(ctx context.Context, op, of string) error {
	m.enter()
	doomed := m.index.takeDoomed(of)
	m.leave()
	var failed error
	for _, l := range doomed {
		if failed == nil || itsOwn(failed) {
			failed = cmp.Or(m.buryLapsed(ctx, op, l.token), failed)
		}
		m.release(l)
	}
	return failed
}

// itsOwn tells whether a failure is about one letter, and not about the servers.
func itsOwn(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.IntegrityFail || kind == fault.BodyTooLarge
}

// buryLapsed makes a dead letter of one whose last lease has ended, if that is
// still so. Who is told that it has changed has nothing left to do.
func (m *Mailbox) buryLapsed(ctx context.Context, op, token string) error {
	e, found, err := m.look(ctx, op, token)
	if err != nil || !found || e.Stage != leased || e.Due > time.Now().UnixNano() || e.Deliveries < e.Most {
		return err
	}
	if err := m.bury(ctx, op, e, at(e.Due), mailbox.TimedOut); !errors.Is(err, errStale) {
		return err
	}
	return nil
}

// dropDead removes the oldest dead letters of a box that has too many. If that
// fails, the next one that dies makes up for it.
func (m *Mailbox) dropDead(ctx context.Context, name string) {
	const op = "mailbox.drop"
	for {
		m.enter()
		var oldest *letter
		if b := m.index.boxes[name]; b != nil && len(b.dead) > m.spec.Limits.Dead {
			oldest = b.dead[0]
		}
		var e entry
		if oldest != nil {
			e = oldest.entry
		}
		m.leave()
		if oldest == nil {
			return
		}
		if err := m.remove(ctx, op, e, time.Now()); err != nil {
			return
		}
		m.enter()
		m.index.usage.Dropped++
		m.leave()
	}
}
