package stream

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// ackEvery is how many chunks are used before they are acknowledged: half of
// the window, so that the sender never stalls for want of an ack under way.
const ackEvery = oap.Window / 2

// ackDivisor is which part of Patience passes before fewer chunks are
// acknowledged. A slow consumer is then not mistaken for one that has left.
const ackDivisor = 8

// corrBit separates the corrs of stream requests from those that the writer of
// a session assigns. All frames of a stream have the number of its start, so it
// cannot be left to the writer.
const corrBit = 1 << 63

// receiver is a stream that this node requested, as long as it is read.
type receiver struct {
	// set at construction
	table    *streamTable
	address  b3.Address
	view     oap.View
	number   uint64 // set when it is entered into the table
	arrivals *flow.Queue[arrival]

	// guarded by table.mu
	next         uint64    // the number of the chunk that is due
	creditLimit  uint64    // the first chunk without credit
	sawShort     bool      // a chunk was not full, so it was the last
	lastProgress time.Time // when something came, or new credit was given

	// owned by the reading task
	used    uint64 // chunks
	acked   uint64 // chunks that were acknowledged
	lastAck time.Time
}

// arrival is a chunk, or the end of the stream.
type arrival struct {
	chunk chunk
	end   bool
	err   error // of an end: nil after ok
}

func newReceiver(t *streamTable, address b3.Address, view oap.View) *receiver {
	return &receiver{table: t, address: address, view: view, lastAck: time.Now(), arrivals: flow.NewQueue[arrival](t.streams.inv, flow.QueueSpec{
		Service: service, Name: "arrivals", Cap: oap.Window + 1, // and the end
		From: "reader", To: "download", Each: "stream",
	})}
}

// object is what the start of the stream asks for.
func (r *receiver) object() string { return r.address.String() + string(r.view) }

func (r *receiver) corr() uint64 { return corrBit | r.number }

// checkChunk checks a chunk. Guarded by table.mu.
func (r *receiver) checkChunk(m *oap.Data) error {
	n := len(m.Bytes)
	switch {
	case m.Seq != r.next:
		return protocolError("chunk %d of stream %d arrived, but %d was expected", m.Seq, m.Stream, r.next)
	case m.Seq >= r.creditLimit:
		return protocolError("chunk %d of stream %d is beyond the credit", m.Seq, m.Stream)
	case n == 0 || n > r.table.chunk:
		return protocolError("chunk %d of stream %d has %d bytes, not 1 to %d", m.Seq, m.Stream, n, r.table.chunk)
	case r.sawShort:
		return protocolError("chunk %d of stream %d comes after one that was not full", m.Seq, m.Stream)
	}
	r.next++
	r.sawShort = n < r.table.chunk
	r.lastProgress = time.Now()
	return nil
}

// deliver queues a copy of a chunk for the reading task.
func (r *receiver) deliver(bytes []byte) {
	c := newChunk(len(bytes))
	copy(c.bytes, bytes)
	r.table.streams.spec.Counters.Bytes(Rx, len(bytes))
	if r.arrivals.TryPush(arrival{chunk: c}) != nil {
		c.release() // the queue is retired: the reading task has left
	}
}

// endError returns the error for the sender's end. No chunk comes after it, so
// what it is compared with does not change any more.
func (r *receiver) endError(m *oap.End) error {
	if m.Status == oap.StatusOK && m.Seq != r.next {
		return fault.New(opFetch, fault.Transient, "peer %s reports %d chunks, but %d arrived", r.table.peer.Peer(), m.Seq, r.next)
	}
	return refusalOf(m.Status, r.table.peer.Peer(), r.address)
}

// finish queues the end of the stream for the reading task. It is called once,
// by the task that removed the stream from the table.
func (r *receiver) finish(label string, err error) {
	r.table.streams.countEnd(Rx, label)
	r.table.streams.countOut()
	_ = r.arrivals.TryPush(arrival{end: true, err: err}) // fails if the reading task has left
}

// nextArrival waits for the next arrival, and then for the limit of this node: a
// chunk that is not used is not acknowledged.
func (r *receiver) nextArrival(ctx context.Context) (arrival, error) {
	a, err := r.awaitArrival(ctx)
	if err != nil || a.end {
		return a, err
	}
	if r.table.peer.Pace().AwaitReceive(ctx, r.table.streams.paceTime(), len(a.chunk.bytes)) != nil {
		a.chunk.release()
		return arrival{}, flow.Ended(ctx, opFetch)
	}
	return a, nil
}

// awaitArrival waits for the next arrival, until the sender has been silent for
// too long.
func (r *receiver) awaitArrival(ctx context.Context) (arrival, error) {
	if err := flow.Ended(ctx, opFetch); err != nil {
		return arrival{}, err
	}
	if a, ok := r.arrivals.TryPop(); ok {
		return a, nil
	}
	// While the reading task waits the sender has credit: everything that came
	// was used.
	r.table.mu.Lock()
	deadline := r.lastProgress.Add(r.table.streams.spec.Patience)
	r.table.mu.Unlock()
	patience, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	a, err := r.arrivals.Pop(patience)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return arrival{}, flow.Ended(ctx, opFetch)
	default:
		return arrival{}, fault.New(opFetch, fault.Timeout, "peer %s sent nothing for %s", r.table.peer.Peer(), r.table.streams.spec.Patience)
	}
}

// chunkRead counts a chunk that the consumer has read to its end, and
// acknowledges when enough were. If the session has no room for an ack, the
// next one covers it.
func (r *receiver) chunkRead() {
	r.used++
	now := time.Now()
	if r.used-r.acked < ackEvery && now.Sub(r.lastAck) < r.table.streams.spec.Patience/ackDivisor {
		return
	}
	r.table.mu.Lock()
	ended := r.table.receivers[r.number] != r
	if !ended {
		r.creditLimit, r.lastProgress = r.used+oap.Window, now // before the ack is sent
	}
	r.table.mu.Unlock()
	if ended {
		return // nothing more is sent for it
	}
	err := r.table.peer.SendControl(session.Outgoing{Message: &oap.Ack{Stream: r.number, UpTo: r.used - 1}, Flags: oap.Event, Corr: r.corr()})
	if err == nil {
		r.acked, r.lastAck = r.used, now
	}
}

// close ends the stream, sends an end if the sender has not ended it, and drops
// what came and was not read.
func (r *receiver) close(status string) {
	if r.table.removeReceiver(r) {
		r.table.streams.countEnd(Rx, labelOf(status))
		r.table.streams.countOut()
		_ = r.table.peer.SendControl(session.Outgoing{ // a sender that misses it gets no more acks
			Message: &oap.End{Stream: r.number, Seq: r.next, Status: status}, Flags: oap.Event, Corr: r.corr(),
		})
	}
	r.arrivals.Retire()
	for a, ok := r.arrivals.TryPop(); ok; a, ok = r.arrivals.TryPop() {
		a.chunk.release()
	}
}
