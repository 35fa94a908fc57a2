package nats

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

const service = "mailbox"

// Mailbox keeps messages and notes in NATS JetStream. Several of them, on
// several nodes, may be open under one name.
type Mailbox struct {
	// set at construction
	spec           Spec
	address        string // of the servers, for operators
	client         *jsClient
	lifetime       context.Context // ends with Close
	cancelLifetime context.CancelCauseFunc
	resyncLock     chan struct{} // holds one while everything is read again
	lane           *flow.Lane
	wakes          *flow.Signal // to the sweeper: something is due earlier than it expects
	maintainSignal *flow.Signal // to the task that maintains the streams

	synced       atomic.Bool // the index was complete once
	boardStats   atomic.Pointer[boardStats]
	boardTracker boardTracker

	mu sync.Mutex

	// guarded by mu
	index       *messageIndex
	consumer    *consumerState
	waiters     map[string][]*waiter // by box, in the order in which they came
	nextSweep   time.Time            // when the sweeper runs next; zero if it waits for a wake
	sweepPaused bool                 // the sweeper could not write a change, and does not retry before it runs next
	damage      error                // a record that cannot be decoded
}

// consumerState is how far the stream was consumed.
type consumerState struct {
	lastSeq uint64
	stop    func()
	waiters []seqWaiter
	damage  error // a record of it that cannot be decoded
}

// seqWaiter waits until a sequence was consumed.
type seqWaiter struct {
	seq     uint64
	reached chan struct{}
}

// boardStats is what was last read of the boards.
type boardStats struct {
	boards, notes, bytes int64
	midSequence          uint64    // what has a lower sequence is in the older half
	readAt               time.Time // when
}

var (
	_ mailbox.Engine        = (*Mailbox)(nil)
	_ mailbox.Tasker        = (*Mailbox)(nil)
	_ mailbox.HealthChecker = (*Mailbox)(nil)
)

// Open prepares a mailbox. It does not wait for the servers, so that a node can
// start before its NATS.
func Open(ctx context.Context, inv *flow.Inventory, spec Spec) (*Mailbox, error) {
	if err := flow.Ended(ctx, opOpen); err != nil {
		return nil, err
	}
	servers, secure, err := spec.normalize()
	if err != nil {
		return nil, err
	}
	m := &Mailbox{spec: spec, address: addressOf(servers), resyncLock: make(chan struct{}, 1), waiters: map[string][]*waiter{}}
	m.lifetime, m.cancelLifetime = context.WithCancelCause(context.WithoutCancel(ctx))
	m.index = newMessageIndex(spec.Limits, m.serveWaiters)
	m.boardStats.Store(&boardStats{})
	m.boardTracker.byHash = map[string]trackedBoard{}
	m.lane = flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "receivers", Running: max(1, spec.Limits.Receivers), From: "handlers, facets", To: "boxes"})
	m.wakes = flow.NewSignal(inv, flow.SignalSpec{Service: service, Name: "wakes",
		From: "senders, receivers", To: "mailbox sweeper"})
	m.maintainSignal = flow.NewSignal(inv, flow.SignalSpec{Service: service, Name: "looks",
		From: "handlers, facets", To: "mailbox keeper"})
	if m.client, err = dial(spec, servers, secure, m.signalMaintain); err != nil {
		m.lane.Retire()
		m.wakes.Retire()
		m.maintainSignal.Retire()
		return nil, err
	}
	return m, nil
}

// signalMaintain makes the keeper run at once.
func (m *Mailbox) signalMaintain() { m.maintainSignal.Set() }

// Close implements mailbox.Engine. What is kept stays in NATS, leases included.
func (m *Mailbox) Close() error {
	if m.lifetime.Err() != nil {
		return nil
	}
	m.cancelLifetime(flow.ErrClosed)
	m.lane.Close()
	m.wakes.Close()
	m.maintainSignal.Close()
	m.resyncLock <- struct{}{} // for good: no resync starts any more
	m.mu.Lock()
	f := m.consumer
	m.mu.Unlock()
	if f != nil {
		f.stop()
	}
	m.client.close()
	return nil
}

// begin starts an operation: its context ends with the mailbox too, and the
// index is complete.
func (m *Mailbox) begin(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	if m.lifetime.Err() != nil {
		return nil, nil, fault.Wrap(op, flow.ErrClosed)
	}
	if err := flow.Ended(ctx, op); err != nil {
		return nil, nil, err
	}
	joined, cancel := flow.Join(ctx, m.lifetime)
	if m.synced.Load() {
		return joined, cancel, nil
	}
	limited, stop := context.WithTimeout(joined, m.spec.Timeout)
	defer stop()
	if err := m.ensureSynced(limited, op); err != nil {
		cancel()
		return nil, nil, err
	}
	return joined, cancel, nil
}

// ensureSynced builds the index if there is none yet.
func (m *Mailbox) ensureSynced(ctx context.Context, op string) error {
	return m.withResyncLock(ctx, op, func() error {
		if m.synced.Load() {
			return nil
		}
		return m.resync(ctx, op)
	})
}

// withResyncLock runs do, one call at a time.
func (m *Mailbox) withResyncLock(ctx context.Context, op string, do func() error) error {
	select {
	case m.resyncLock <- struct{}{}:
		defer func() { <-m.resyncLock }()
		return do()
	case <-ctx.Done():
		return m.client.refusal(ctx, op, ctx.Err())
	}
}

// resync reads all records again, and forgets what is not there any more. What
// is known stays known meanwhile: JetStream decides about everything anyway.
func (m *Mailbox) resync(ctx context.Context, op string) error {
	if err := m.client.ensureStreams(ctx, op); err != nil {
		return err
	}
	f := &consumerState{}
	m.mu.Lock()
	m.index.generation++ // before anything can be consumed
	m.mu.Unlock()
	stop, err := m.client.consume(ctx, op, func(e storedMessage) { m.applyConsumed(f, e) }, func(err error) { m.setDamage(f, err) }, m.requestResync)
	if err != nil {
		return err
	}
	f.stop = stop
	m.mu.Lock()
	old := m.consumer
	m.consumer = f
	m.mu.Unlock()
	if old != nil {
		old.stop()
	}
	if err := m.catchUp(ctx, op); err != nil {
		return err
	}
	m.lock()
	m.index.pruneUnseen()
	m.damage = f.damage // an earlier damaged record may be gone
	m.unlock()
	m.synced.Store(true)
	return nil
}

// applyConsumed applies a record that was consumed.
func (m *Mailbox) applyConsumed(f *consumerState, e storedMessage) {
	m.mu.Lock()
	defer m.unlock()
	if e.token != "" {
		m.index.apply(time.Now(), e)
	}
	f.advanceTo(e.seq)
}

// advanceTo records how far the stream was consumed. The caller holds mu.
func (c *consumerState) advanceTo(seq uint64) {
	c.lastSeq = max(c.lastSeq, seq)
	kept := c.waiters[:0]
	for _, one := range c.waiters {
		if one.seq <= c.lastSeq {
			close(one.reached)
		} else {
			kept = append(kept, one)
		}
	}
	c.waiters = kept
}

// setDamage keeps the error of a damaged record, for Health.
func (m *Mailbox) setDamage(f *consumerState, err error) {
	m.mu.Lock()
	m.damage, f.damage = err, err
	m.mu.Unlock()
}

// hasDamage reports whether there was a damaged record.
func (m *Mailbox) hasDamage() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.damage != nil
}

// requestResync requests a resync, because the consumer missed something.
func (m *Mailbox) requestResync() {
	m.client.needsResync.Store(true)
	m.signalMaintain()
}

// resyncIfNeeded reads everything again if something may have been missed.
func (m *Mailbox) resyncIfNeeded(ctx context.Context, op string) error {
	if !m.client.needsResync.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.spec.Timeout)
	defer cancel()
	return m.withResyncLock(ctx, op, func() error {
		if !m.client.needsResync.Swap(false) {
			return nil
		}
		err := m.resync(ctx, op)
		if err != nil {
			m.client.needsResync.Store(true)
		}
		return err
	})
}

// catchUpPoll is after how long catchUp checks whether the record that it waits
// for still exists.
const catchUpPoll = 200 * time.Millisecond

// syncIndex waits until the index knows all that had happened when it was
// called.
func (m *Mailbox) syncIndex(ctx context.Context, op string) error {
	if err := m.resyncIfNeeded(ctx, op); err != nil {
		return err
	}
	return m.catchUp(ctx, op)
}

// catchUp is syncIndex with the current consumer.
func (m *Mailbox) catchUp(ctx context.Context, op string) error {
	end, err := m.client.lastSequence(ctx, op)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.spec.Timeout)
	defer cancel()
	for began := time.Now(); ; {
		m.mu.Lock()
		f := m.consumer
		reached := f.lastSeq >= end
		waiter := seqWaiter{seq: end, reached: make(chan struct{})}
		if !reached {
			f.waiters = append(f.waiters, waiter)
		}
		m.mu.Unlock()
		if reached || waitFor(ctx, waiter.reached, catchUpPoll) {
			return nil
		}
		if err := flow.Ended(ctx, op); err != nil {
			return m.client.refusal(ctx, op, err)
		}
		// The last record may have expired, and then it is never delivered.
		// What counts is the last one that is there.
		tail, err := m.client.lastLiveSequence(ctx, op)
		if err != nil {
			return err
		}
		m.mu.Lock()
		missed := f.lastSeq < tail
		if !missed {
			f.advanceTo(end)
		}
		m.mu.Unlock()
		if missed && time.Since(began) > consumeHeartbeat {
			m.requestResync()
		}
	}
}

// waitFor waits for a channel, for a while, and reports whether it was closed.
func waitFor(ctx context.Context, what <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-what:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// lock locks the index and advances it to now.
func (m *Mailbox) lock() time.Time {
	m.mu.Lock()
	now := time.Now()
	m.index.advance(now)
	return now
}

// unlock unlocks the index. It wakes the sweeper if something is due earlier
// than it expects.
func (m *Mailbox) unlock() {
	next, scheduled := m.index.nextDue()
	wake := scheduled && (m.nextSweep.IsZero() || next.Before(m.nextSweep)) || len(m.index.expired) > 0 && !m.sweepPaused
	m.mu.Unlock()
	if wake {
		m.wakes.Set()
	}
}

// Usage implements mailbox.Engine.
func (m *Mailbox) Usage() mailbox.Usage {
	if m.lifetime.Err() != nil {
		return mailbox.Usage{}
	}
	m.lock()
	defer m.unlock()
	u, s := m.index.usage, m.boardStats.Load()
	u.Boxes, u.Boards, u.Notes = int64(len(m.index.boxes)), s.boards, s.notes
	u.Bytes = m.index.bytes + s.bytes
	return u
}

// Health implements mailbox.HealthChecker.
func (m *Mailbox) Health() error {
	const op = "mailbox.nats.health"
	if !m.client.connected.Load() {
		return m.client.refusal(context.Background(), op, errDisconnected)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return fault.Wrap(op, m.damage)
}
