package mailbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/wal"
)

// recordAppender is where a queueServer logs its changes; RAM has none. It
// is a wal.Log.
type recordAppender interface {
	CommitAt(ctx context.Context, done func(at []wal.Position, err error), records ...[]byte) error
	AppendAsync(ctx context.Context, records ...[]byte) error
}

// queueServer is a queueState for concurrent use: it has the lock, the clock
// and the waiting receivers. RAM and Disk are queueServers.
type queueServer struct {
	// set at construction
	limits     Limits
	zero       bool
	appender   recordAppender                                             // nil if nothing is logged
	onAppend   func()                                                     // called after a record was logged; with an appender only
	readRecord func(ctx context.Context, at wal.Position) ([]byte, error) // reads a logged record; with an appender only
	lane       *flow.Lane
	posts      *flow.Lane   // for notes, which take a processor: half of the processors are for others; nil if a log takes one note after the other
	wakes      *flow.Signal // to the sweeper: something is due earlier than it expects

	mu sync.Mutex

	// guarded by mu
	state     *queueState
	waiters   map[string][]*waiter // by box, in the order in which they came
	closed    bool
	nextSweep time.Time // when the sweeper runs next; zero if it waits for a wake
}

// waiter is a receiver that waits for a message.
type waiter struct {
	visibility time.Duration
	done       chan struct{} // closed when the rest is set

	// set by the task that removes it from the list
	lease lease
	err   error
}

// lease is a message for a receiver, and the record of that.
type lease struct {
	message *storedMessage
	Delivery
	needsRead bool // its body is still to be read
	record    logRecord
}

func newQueueServer(inv *flow.Inventory, limits Limits, zero bool) *queueServer {
	return &queueServer{
		limits: limits, zero: zero, state: newQueueState(limits, zero), waiters: map[string][]*waiter{},
		lane: flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "receivers", Running: max(1, limits.Receivers), From: "handlers, facets", To: "boxes"}),
		wakes: flow.NewSignal(inv, flow.SignalSpec{Service: service, Name: "wakes",
			From: "senders, receivers", To: "mailbox sweeper"}),
	}
}

// lock locks the state and advances it to the present time, unless the server
// is closed or ctx has ended.
func (q *queueServer) lock(ctx context.Context, op string) (time.Time, error) {
	if err := flow.Ended(ctx, op); err != nil {
		return time.Time{}, err
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return time.Time{}, fault.Wrap(op, flow.ErrClosed)
	}
	now := time.Now()
	q.advance(now)
	return now, nil
}

// unlock unlocks the state. It wakes the sweeper if something is due before it
// runs next.
func (q *queueServer) unlock() {
	next, scheduled := q.state.nextDue()
	early := scheduled && (q.nextSweep.IsZero() || next.Before(q.nextSweep))
	if early {
		q.nextSweep = next
	}
	q.mu.Unlock()
	if early {
		q.wakes.Set()
	}
}

// advance advances the state to now, and serves receivers that wait for what
// became ready. The caller holds mu.
func (q *queueServer) advance(now time.Time) {
	q.state.advance(now, func(b *box) { q.serveWaiters(now, b) })
}

// serveWaiters gives what is ready to the receivers that wait at a box. The
// caller holds mu.
func (q *queueServer) serveWaiters(now time.Time, b *box) {
	for len(q.waiters[b.name]) > 0 {
		w := q.waiters[b.name][0]
		msg := q.state.leaseNext(now, b, w.visibility)
		if msg == nil {
			return
		}
		w.lease = q.newLease(now, msg)
		q.removeWaiter(b.name, w)
		close(w.done)
	}
}

// newLease makes a lease of a message that was leased. The caller holds mu.
func (q *queueServer) newLease(now time.Time, msg *storedMessage) lease {
	return lease{message: msg, Delivery: q.state.makeDelivery(msg), needsRead: msg.bodyPending, record: leasedRecord(now, msg)}
}

// removeWaiter removes a waiter from its list. The caller holds mu.
func (q *queueServer) removeWaiter(name string, w *waiter) {
	list := q.waiters[name]
	list = slices.DeleteFunc(list, func(other *waiter) bool { return other == w })
	if len(list) == 0 {
		delete(q.waiters, name)
		return
	}
	q.waiters[name] = list
}

// commit logs a record and calls done with the state locked. Without a log it
// calls done at once; if the server was closed meanwhile, with ErrClosed.
func (q *queueServer) commit(ctx context.Context, r logRecord, done func(err error)) error {
	return q.commitAt(ctx, r, func(_ wal.Position, err error) { done(err) })
}

// commitAt is commit, and passes the position of the record.
func (q *queueServer) commitAt(ctx context.Context, r logRecord, done func(at wal.Position, err error)) error {
	if q.appender != nil {
		defer q.onAppend()
		return q.appender.CommitAt(ctx, func(at []wal.Position, err error) {
			at = append(at, wal.Position{}) // zero, if nothing was written
			q.mu.Lock()
			done(at[0], err)
			q.unlock()
		}, r.encode())
	}
	var err error
	q.mu.Lock()
	if q.closed {
		err = flow.ErrClosed
	}
	done(wal.Position{}, err)
	q.unlock()
	return err
}

// Send implements Engine.
func (q *queueServer) Send(ctx context.Context, m Message) (Sent, error) {
	const op = "mailbox.send"
	var entry keyEntry
	if m.Key != "" {
		entry = keyEntry{key: hashKey(m), fingerprint: Fingerprint(m)}
	}
	if err := q.limits.CheckMessage(op, &m); err != nil {
		return Sent{}, err
	}
	for {
		msg, k, err := q.beginSend(ctx, op, m, entry)
		switch {
		case err != nil:
			return Sent{}, err
		case msg != nil:
			return Sent{ID: msg.id}, fault.Wrap(op, q.commitSend(ctx, msg, k))
		case k.pending == nil:
			return Sent{ID: k.id, Repeated: true}, nil
		}
		// The same message is being stored by another call. Its result is the
		// result of this one, unless it fails; then this one is tried.
		select {
		case <-k.pending:
		case <-ctx.Done():
			return Sent{}, flow.Ended(ctx, op)
		}
	}
}

// beginSend begins to store a message. For a message that was sent before it
// returns no message, but the entry of its key.
func (q *queueServer) beginSend(ctx context.Context, op string, m Message, k keyEntry) (*storedMessage, *keyEntry, error) {
	now, err := q.lock(ctx, op)
	if err != nil {
		return nil, nil, err
	}
	defer q.unlock()
	if m.Key != "" {
		known, err := q.state.keys.lookup(op, k.key, m, k.fingerprint)
		if err != nil {
			return nil, nil, err
		}
		if known != nil {
			seen := *known
			return nil, &seen, nil
		}
	}
	msg, err := q.state.beginSend(op, now, m)
	if err != nil {
		return nil, nil, err
	}
	if m.Key != "" {
		if err := q.state.makeKeyRoom(op); err != nil {
			q.state.abortSend(msg)
			return nil, nil, err
		}
	}
	if q.zero {
		msg.body = slices.Clone(msg.body)
	}
	if m.Key == "" {
		return msg, nil, nil
	}
	k.id, k.at, k.pending = msg.id, now, make(chan struct{})
	q.state.keys.add(&k, m.Sender, m.Box)
	return msg, &k, nil
}

// commitSend ends a send. The record is made under the lock: Close may be
// releasing the body at this moment.
func (q *queueServer) commitSend(ctx context.Context, msg *storedMessage, k *keyEntry) error {
	q.mu.Lock()
	r := sentRecord(msg, k)
	q.mu.Unlock()
	return q.commitAt(ctx, r, func(at wal.Position, err error) {
		if err != nil {
			q.state.abortSend(msg)
		} else {
			now := time.Now()
			msg.position = at
			q.state.commitSend(now, msg)
			q.serveWaiters(now, msg.box)
		}
		if k != nil {
			if err != nil {
				q.state.keys.remove(k)
			}
			close(k.pending)
			k.pending = nil
		}
	})
}

// Receive implements Engine.
func (q *queueServer) Receive(ctx context.Context, name string, visibility, wait time.Duration) (Delivery, error) {
	const op = "mailbox.receive"
	visibility, err := q.limits.CheckLease(op, visibility)
	if err != nil {
		return Delivery{}, err
	}
	if err := CheckName(op, name); err != nil {
		return Delivery{}, err
	}
	got, err := q.tryReceive(ctx, op, name, visibility)
	if fault.KindOf(err) == fault.NotFound && wait > 0 {
		if err := q.lane.Enter(ctx); err != nil {
			return Delivery{}, fault.Wrap(op, err)
		}
		defer q.lane.Leave()
		got, err = q.waitForMessage(ctx, op, name, visibility, wait)
	}
	if err != nil || q.appender == nil {
		return got.Delivery, err
	}
	if got.needsRead {
		if err := q.readBody(ctx, op, &got); err != nil {
			return Delivery{}, err
		}
	}
	if err := q.appender.AppendAsync(ctx, got.record.encode()); err != nil {
		return Delivery{}, fault.Wrap(op, err) // the lease expires
	}
	return got.Delivery, nil
}

// tryReceive leases the next message of a box if there is one.
func (q *queueServer) tryReceive(ctx context.Context, op, name string, visibility time.Duration) (lease, error) {
	now, err := q.lock(ctx, op)
	if err != nil {
		return lease{}, err
	}
	defer q.unlock()
	b := q.state.boxes[name]
	if b == nil {
		return lease{}, NoMessage(op)
	}
	msg := q.state.leaseNext(now, b, visibility)
	if msg == nil {
		return lease{}, NoMessage(op)
	}
	return q.newLease(now, msg), nil
}

// waitForMessage waits for a message. One that was leased in the moment in
// which the wait ended is returned all the same.
func (q *queueServer) waitForMessage(ctx context.Context, op, name string, visibility, wait time.Duration) (lease, error) {
	w := &waiter{visibility: visibility, done: make(chan struct{})}
	now, err := q.lock(ctx, op)
	if err != nil {
		return lease{}, err
	}
	q.waiters[name] = append(q.waiters[name], w)
	if b := q.state.boxes[name]; b != nil {
		q.serveWaiters(now, b)
	}
	q.unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	var waitErr error
	select {
	case <-w.done:
	case <-timer.C:
		waitErr = NoMessage(op)
	case <-ctx.Done():
		waitErr = flow.Ended(ctx, op)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.lease.message == nil && w.err == nil {
		q.removeWaiter(name, w)
		return lease{}, waitErr
	}
	return w.lease, w.err
}

// lockLease locks a message by its receipt.
func (q *queueServer) lockLease(ctx context.Context, op, name, receipt string) (*storedMessage, time.Time, error) {
	now, err := q.lock(ctx, op)
	if err != nil {
		return nil, now, err
	}
	defer q.unlock()
	msg, err := q.state.lockLease(op, name, receipt)
	return msg, now, err
}

// Ack implements Engine.
func (q *queueServer) Ack(ctx context.Context, name, receipt string) error {
	const op = "mailbox.ack"
	msg, now, err := q.lockLease(ctx, op, name, receipt)
	if err != nil {
		return err
	}
	return fault.Wrap(op, q.commit(ctx, ackedRecord(now, msg), func(err error) {
		if err != nil {
			q.state.unlockLease(msg, msg.due)
			return
		}
		q.state.ack(msg)
	}))
}

// Nack implements Engine.
func (q *queueServer) Nack(ctx context.Context, name, receipt string, delay time.Duration, reason string) error {
	const op = "mailbox.nack"
	if err := CheckDelay(op, delay); err != nil {
		return err
	}
	reason = TruncateReason(reason)
	msg, now, err := q.lockLease(ctx, op, name, receipt)
	if err != nil {
		return err
	}
	from := now.Add(delay)
	return fault.Wrap(op, q.commit(ctx, nackedRecord(now, msg, from, reason), func(err error) {
		if err != nil {
			q.state.unlockLease(msg, msg.due)
			return
		}
		now := time.Now()
		q.state.nack(now, msg, from, reason)
		q.serveWaiters(now, msg.box)
	}))
}

// Extend implements Engine.
func (q *queueServer) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	const op = "mailbox.extend"
	visibility, err := q.limits.CheckLease(op, visibility)
	if err != nil {
		return err
	}
	msg, now, err := q.lockLease(ctx, op, name, receipt)
	if err != nil {
		return err
	}
	until := now.Add(visibility)
	return fault.Wrap(op, q.commit(ctx, extendedRecord(now, msg, until), func(err error) {
		if err != nil {
			until = msg.due
		}
		q.state.unlockLease(msg, until)
	}))
}

// Dead implements Engine.
func (q *queueServer) Dead(ctx context.Context, name, after string, limit int) ([]DeadLetter, error) {
	const op = "mailbox.dead"
	if err := CheckName(op, name); err != nil {
		return nil, err
	}
	for {
		if _, err := q.lock(ctx, op); err != nil {
			return nil, err
		}
		page := q.state.listDead(name, after, limit)
		q.unlock()
		list, err := q.readDeadBodies(ctx, op, page)
		if err != errGone {
			return list, err
		}
	}
}

// Resend implements Engine.
func (q *queueServer) Resend(ctx context.Context, name, id string) error {
	const op = "mailbox.resend"
	msg, now, err := q.lockDead(ctx, op, name, id, true)
	if err != nil {
		return err
	}
	return fault.Wrap(op, q.commit(ctx, resentRecord(now, msg), func(err error) {
		if err != nil {
			q.state.unlockDead(msg)
			return
		}
		q.state.resend(msg)
		q.serveWaiters(time.Now(), msg.box)
	}))
}

// Drop implements Engine.
func (q *queueServer) Drop(ctx context.Context, name, id string) error {
	const op = "mailbox.drop"
	msg, now, err := q.lockDead(ctx, op, name, id, false)
	if err != nil {
		return err
	}
	return fault.Wrap(op, q.commit(ctx, ackedRecord(now, msg), func(err error) {
		if err != nil {
			q.state.unlockDead(msg)
			return
		}
		q.state.usage.Messages--
		q.state.remove(msg)
	}))
}

// lockDead locks a dead letter.
func (q *queueServer) lockDead(ctx context.Context, op, name, id string, forResend bool) (*storedMessage, time.Time, error) {
	if err := CheckName(op, name); err != nil {
		return nil, time.Time{}, err
	}
	now, err := q.lock(ctx, op)
	if err != nil {
		return nil, now, err
	}
	defer q.unlock()
	msg, err := q.state.lockDead(op, name, id, forResend)
	return msg, now, err
}

// Fullness reports which part of the space for messages is taken, and of one on
// disk which part of the memory for their state.
func (q *queueServer) Fullness() (space, memory float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.fullness()
}

// Usage implements Engine.
func (q *queueServer) Usage() Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return Usage{}
	}
	return q.state.currentUsage()
}

// sweep advances the state when something is due, for waiting receivers. It
// sleeps until the next due time, or until a wake makes that earlier.
func (q *queueServer) sweep(ctx context.Context) error {
	for {
		wait, scheduled := q.advanceNow()
		waitCtx, cancel := ctx, func() {}
		if scheduled {
			waitCtx, cancel = context.WithTimeout(ctx, wait)
		}
		err := q.wakes.Wait(waitCtx)
		cancel()
		if ctx.Err() != nil || fault.KindOf(err) == fault.Canceled {
			return nil
		}
	}
}

// advanceNow advances the state, and returns how long it is until something is
// due.
func (q *queueServer) advanceNow() (time.Duration, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.advance(now)
	next, scheduled := q.state.nextDue()
	q.nextSweep = next // zero if there is none
	return next.Sub(now), scheduled
}

// close closes the server: waiting receivers get an error. It reports whether
// this call closed it.
func (q *queueServer) close() bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.closed = true
	for _, list := range q.waiters {
		for _, w := range list {
			w.err = fault.Wrap("mailbox.receive", flow.ErrClosed)
			close(w.done)
		}
	}
	q.waiters = map[string][]*waiter{}
	q.mu.Unlock()
	q.lane.Close()
	if q.posts != nil {
		q.posts.Close()
	}
	q.wakes.Close()
	return true
}

// clear removes everything.
func (q *queueServer) clear() {
	q.mu.Lock()
	q.state.clear()
	q.mu.Unlock()
}
