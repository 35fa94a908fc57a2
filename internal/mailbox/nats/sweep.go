package nats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"micronode/fault"
	"micronode/internal/mailbox"
)

var errDisconnected = errors.New("nats: not connected")

// How often the keeper runs, and how long the sweeper waits when it could not
// write a change.
const (
	maintainInterval = 10 * time.Second
	sweepRetryDelay  = time.Second
)

// Tasks implements mailbox.Tasker.
func (m *Mailbox) Tasks() []mailbox.Task {
	return []mailbox.Task{{Name: "mailbox sweeper", Serve: m.sweep}, {Name: "mailbox keeper", Serve: m.serveMaintain}}
}

// sweep advances the index when something is due, for waiting receivers and for
// messages whose last lease has ended. After a write that failed it pauses
// writes for a moment, whatever else is due meanwhile.
func (m *Mailbox) sweep(ctx context.Context) error {
	var retryAt time.Time // when to retry; zero for at once
	for {
		if !time.Now().Before(retryAt) {
			retryAt = time.Time{}
			if m.markExpiredDead(ctx, "mailbox.sweep", "") != nil {
				retryAt = time.Now().Add(sweepRetryDelay)
			}
		}
		wait, scheduled := m.nextWake(retryAt)
		waitCtx, cancel := ctx, func() {}
		if scheduled {
			waitCtx, cancel = context.WithTimeout(ctx, wait)
		}
		err := m.wakes.Wait(waitCtx)
		cancel()
		if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
			return nil
		}
	}
}

// nextWake returns how long it is until something is due. Expired messages are
// due at retryAt, or now if it is zero.
func (m *Mailbox) nextWake(retryAt time.Time) (time.Duration, bool) {
	now := m.lock()
	defer m.mu.Unlock()
	m.sweepPaused = !retryAt.IsZero() && len(m.index.expired) > 0
	next, scheduled := m.index.nextDue()
	if len(m.index.expired) > 0 {
		if !m.sweepPaused {
			retryAt = now
		}
		if !scheduled || retryAt.Before(next) {
			next, scheduled = retryAt, true
		}
	}
	m.nextSweep = next // zero if there is none
	return next.Sub(now), scheduled
}

// serveMaintain maintains the boards, and reads everything again when the
// connection was lost, or something was missed: NATS may have forgotten already
// what happened meanwhile. It also does so as long as there is a damaged
// record.
func (m *Mailbox) serveMaintain(ctx context.Context) error {
	const op = "mailbox.keep"
	for {
		m.maintain(ctx, op)
		wait := maintainInterval
		if m.client.needsResync.Load() {
			wait = sweepRetryDelay
		}
		waitCtx, cancel := context.WithTimeout(ctx, wait)
		err := m.maintainSignal.Wait(waitCtx)
		cancel()
		if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
			return nil
		}
	}
}

// maintain does the work of the keeper, as far as the servers allow. A failure
// shows in the next operation, and is retried.
func (m *Mailbox) maintain(ctx context.Context, op string) {
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return
	}
	defer cancel()
	if m.hasDamage() {
		m.client.needsResync.Store(true) // there is no event when it is removed
	}
	if m.resyncIfNeeded(ctx, op) != nil {
		return
	}
	_ = m.client.retry(ctx, op, func(ctx context.Context) error {
		seen, err := m.client.readBoardStats(ctx)
		if err == nil {
			m.boardStats.Store(&seen)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			m.client.needsResync.Store(true) // the stream was removed; it is created again
		}
		return err
	})
}
