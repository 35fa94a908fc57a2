package nats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"micronode/fault"
	"micronode/internal/mailbox"
)

var errAway = errors.New("nats: not connected")

// How often the keeper looks, and how long the sweeper waits when it could not
// write down what it had to.
const (
	lookEvery  = 10 * time.Second
	sweepAgain = time.Second
)

// Tasks implements mailbox.Tasked.
func (m *Mailbox) Tasks() []mailbox.Task {
	return []mailbox.Task{{Name: "mailbox sweeper", Serve: m.sweep}, {Name: "mailbox keeper", Serve: m.keep}}
}

// sweep lets time pass when something is due: for those who wait, and for
// letters whose last lease has ended. Servers that did not let it write that
// down are left alone for a moment, whatever else is due meanwhile.
func (m *Mailbox) sweep(ctx context.Context) error {
	var again time.Time // when it may be tried again; zero for at once
	for {
		if !time.Now().Before(again) {
			again = time.Time{}
			if m.buryDoomed(ctx, "mailbox.sweep", "") != nil {
				again = time.Now().Add(sweepAgain)
			}
		}
		wait, any := m.schedule(again)
		turn, cancel := ctx, func() {}
		if any {
			turn, cancel = context.WithTimeout(ctx, wait)
		}
		_, err := m.wakes.Pop(turn)
		cancel()
		if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
			return nil
		}
	}
}

// schedule says how long it is until there is something to do. What has to be
// written down has to wait until again, if that is not zero.
func (m *Mailbox) schedule(again time.Time) (time.Duration, bool) {
	now := m.enter()
	defer m.mu.Unlock()
	m.resting = !again.IsZero() && len(m.index.doomed) > 0
	next, any := m.index.next()
	if len(m.index.doomed) > 0 {
		if !m.resting {
			again = now
		}
		if !any || again.Before(next) {
			next, any = again, true
		}
	}
	m.armed = next // zero if there is none
	return next.Sub(now), any
}

// keep looks after the boards, and reads everything anew when the connection was
// lost, or something was left out: what happened meanwhile may have been
// forgotten by NATS already. It does so, too, as long as there is a record that
// cannot be read.
func (m *Mailbox) keep(ctx context.Context) error {
	const op = "mailbox.keep"
	for {
		m.observe(ctx, op)
		wait := lookEvery
		if m.line.stale.Load() {
			wait = sweepAgain
		}
		turn, cancel := context.WithTimeout(ctx, wait)
		_, err := m.looks.Pop(turn)
		cancel()
		if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
			return nil
		}
	}
}

// observe does what the keeper is for, as far as the servers let it. What fails
// shows in the next operation, and is tried again.
func (m *Mailbox) observe(ctx context.Context, op string) {
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return
	}
	defer cancel()
	if m.sawOdd() {
		m.line.stale.Store(true) // nobody tells us when somebody has removed it
	}
	if m.refresh(ctx, op) != nil {
		return
	}
	_ = m.line.call(ctx, op, func(ctx context.Context) error {
		seen, err := m.line.survey(ctx)
		if err == nil {
			m.state.Store(&seen)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			m.line.stale.Store(true) // somebody removed it; it is made anew
		}
		return err
	})
}
