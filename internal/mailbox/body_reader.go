package mailbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/wal"
)

// Bodies are read without the lock, so much may happen meanwhile: the log is
// compacted, and the body has moved; the lease expires, and another receiver
// has the message, or it is gone; the disk does not answer. None of that loses
// a message: a lease whose body cannot be read is undone.

const (
	readTimeout    = 5 * time.Second // for one body
	readRetryDelay = time.Second     // until a message that could not be read is tried again
	readerTasks    = 4
)

// errGone says that a message was removed while its body was read.
var errGone = errors.New("the message no longer exists")

// readBody reads the body of a leased message. If it cannot be read, the lease
// is undone, or, if it is damaged, the message is dead.
func (q *queueServer) readBody(ctx context.Context, op string, got *lease) error {
	body, err := q.loadBody(ctx, op, got.message)
	q.mu.Lock()
	defer q.unlock()
	owned := got.message.state == stateLeased && got.message.receipt == got.Receipt
	if err == nil {
		got.Body = body
		if owned {
			got.message.bodyPending = false
		}
		return nil
	}
	now := time.Now()
	switch {
	case err == errGone:
		return NoMessage(op) // its lease has ended
	case fault.KindOf(err) == fault.IntegrityFail:
		q.state.markDamaged(now, got.message)
		return damagedBody(op)
	case owned && ctx.Err() != nil:
		q.state.undoLease(now, got.message, now)
	case owned:
		q.state.undoLease(now, got.message, now.Add(readRetryDelay)) // others are served meanwhile
	}
	q.state.usage.ReadFailures++
	q.serveWaiters(now, got.message.box)
	return fault.Wrap(op, err)
}

// readDeadBodies reads the missing bodies of a page of dead letters.
func (q *queueServer) readDeadBodies(ctx context.Context, op string, page []deadPageEntry) (list []DeadLetter, err error) {
	for _, one := range page {
		if one.needsRead {
			one.Body, err = q.loadBody(ctx, op, one.message)
		}
		switch {
		case fault.KindOf(err) == fault.IntegrityFail:
			q.mu.Lock()
			q.state.markDamaged(time.Now(), one.message)
			one.Reason = one.message.reason
			q.unlock()
			err = nil
		case err != nil:
			return nil, err
		}
		list = append(list, one.DeadLetter)
	}
	return list, nil
}

// loadBody reads the body of a message, wherever it is by now.
func (q *queueServer) loadBody(ctx context.Context, op string, msg *storedMessage) ([]byte, error) {
	for {
		q.mu.Lock()
		state, body, where, closed := msg.state, msg.body, msg.position, q.closed
		q.mu.Unlock()
		switch {
		case closed:
			return nil, fault.Wrap(op, flow.ErrClosed)
		case state == stateGone:
			return nil, errGone
		case body != nil:
			return body, nil
		}
		b, err := q.readRecord(ctx, where)
		if errors.Is(err, wal.ErrMoved) {
			continue // msg.position was updated before
		}
		if err != nil {
			return nil, err
		}
		return decodeBody(b, msg)
	}
}

// decodeBody returns the body in a record, which must be one of this message.
func decodeBody(b []byte, msg *storedMessage) ([]byte, error) {
	r, err := decodeRecord(b)
	if err != nil {
		return nil, err
	}
	if r.ID != msg.id || len(r.Body) != msg.size {
		return nil, fault.New("mailbox.read", fault.IntegrityFail, "the log has another record where message %s should be", msg.id)
	}
	return r.Body, nil
}

// readerPool is the tasks that wait for the disk, so that callers do not block:
// a disk that does not answer holds its reader in the kernel, where nothing can
// be cancelled.
type readerPool struct {
	// set at construction
	log   *wal.Log
	queue *flow.Queue[*pendingRead]

	running atomic.Int32
}

// pendingRead is a read in the queue.
type pendingRead struct {
	// set at construction
	at   wal.Position
	done chan struct{} // closed when the rest is set

	abandoned atomic.Bool // the caller has stopped waiting

	record []byte
	err    error
}

func newReaderPool(inv *flow.Inventory, log *wal.Log, waiting int) *readerPool {
	return &readerPool{log: log, queue: flow.NewQueue[*pendingRead](inv, flow.QueueSpec{Service: service, Name: "reads", Cap: max(1, waiting), Policy: flow.RejectNew,
		From: "receivers", To: "mailbox readers", Effect: flow.Degrades, Next: "Check the disk of the --persist folder: reads of message bodies wait for it."})}
}

// read reads a record, and waits for it no longer than ctx and readTimeout
// allow. If no task runs, the caller reads for itself.
func (r *readerPool) read(ctx context.Context, at wal.Position) ([]byte, error) {
	const op = "mailbox.read"
	if r.running.Load() == 0 {
		return r.log.Read(at)
	}
	one := &pendingRead{at: at, done: make(chan struct{})}
	if err := r.queue.TryPush(one); err != nil {
		return nil, fault.Wrap(op, err)
	}
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	select {
	case <-one.done:
		return one.record, one.err
	case <-ctx.Done():
		one.abandoned.Store(true)
		return nil, flow.Ended(ctx, op)
	case <-timer.C:
		one.abandoned.Store(true)
		return nil, diskNotResponding(op)
	}
}

// serve reads for callers until ctx ends.
func (r *readerPool) serve(ctx context.Context) error {
	r.running.Add(1)
	defer r.taskEnded()
	for {
		one, err := r.queue.Pop(ctx)
		if err != nil {
			return nil
		}
		if !one.abandoned.Load() {
			one.record, one.err = r.log.Read(one.at)
		}
		close(one.done)
	}
}

// taskEnded is called by a task that ends. The last one fails the reads that
// are left.
func (r *readerPool) taskEnded() {
	if r.running.Add(-1) > 0 {
		return
	}
	for one, ok := r.queue.TryPop(); ok; one, ok = r.queue.TryPop() {
		one.err = fault.Wrap("mailbox.read", flow.ErrClosed)
		close(one.done)
	}
}
