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

// ackEvery is how many chunks are used before the giver hears of it: half of
// the window, so that it never stands still for want of an ack under way.
const ackEvery = oap.Window / 2

// ackShare is which part of the giver's patience passes before it hears of less.
// A consumer that is slow but goes on is then not mistaken for one that left.
const ackShare = 8

// corrSpace sets the numbers of our requests apart from those that the writer
// of a session counts out. All frames of a stream have the number of its start,
// so it cannot be left to the writer.
const corrSpace = 1 << 63

// taking is a stream on which we asked, as long as it is read.
type taking struct {
	// set at construction
	table    *table
	address  b3.Address
	number   uint64 // set when it is entered into the table
	arrivals *flow.Queue[arrival]

	// guarded by table.mu
	next    uint64    // the number of the chunk that is due
	granted uint64    // the first chunk that we have given no credit for
	short   bool      // a chunk was not full, so it was the last
	heard   time.Time // when something came, or new credit was given

	// owned by the one who reads
	used  uint64 // chunks
	acked uint64 // chunks that the giver knows to be used
	told  time.Time
}

// arrival is a chunk, or the end of the stream.
type arrival struct {
	chunk chunk
	end   bool
	err   error // of an end: nil after ok
}

func newTaking(t *table, address b3.Address) *taking {
	return &taking{table: t, address: address, told: time.Now(), arrivals: flow.NewQueue[arrival](t.streams.inv, flow.QueueSpec{
		Service: service, Name: "arrivals", Cap: oap.Window + 1, // and the end
		From: "reader", To: "download", Each: "stream",
	})}
}

func (k *taking) corr() uint64 { return corrSpace | k.number }

// take judges a chunk. Guarded by table.mu.
func (k *taking) take(m *oap.Data) error {
	n := len(m.Bytes)
	switch {
	case m.Seq != k.next:
		return broken("chunk %d of stream %d came, and %d was due", m.Seq, m.Stream, k.next)
	case m.Seq >= k.granted:
		return broken("chunk %d of stream %d is beyond the credit", m.Seq, m.Stream)
	case n == 0 || n > k.table.chunk:
		return broken("chunk %d of stream %d has %d bytes, not 1 to %d", m.Seq, m.Stream, n, k.table.chunk)
	case k.short:
		return broken("chunk %d of stream %d comes after one that was not full", m.Seq, m.Stream)
	}
	k.next++
	k.short = n < k.table.chunk
	k.heard = time.Now()
	return nil
}

// land keeps a copy of a chunk for the one who reads.
func (k *taking) land(bytes []byte) {
	c := newChunk(len(bytes))
	copy(c.bytes, bytes)
	k.table.streams.spec.Counters.Bytes(Rx, len(bytes))
	if k.arrivals.TryPush(arrival{chunk: c}) != nil {
		c.free() // whoever read has left meanwhile
	}
}

// verdict is what the giver's end means. No chunk comes after it, so what it
// is compared with does not change any more.
func (k *taking) verdict(m *oap.End) error {
	if m.Status == oap.StatusOK && m.Seq != k.next {
		return fault.New(opFetch, fault.Transient, "peer %s says that it sent %d chunks, and %d came", k.table.peer.Peer(), m.Seq, k.next)
	}
	return refusalOf(m.Status, k.table.peer.Peer(), k.address)
}

// finish tells the one who reads that nothing more comes. It is called once, by
// whoever took the stream out of the table.
func (k *taking) finish(label string, err error) {
	k.table.streams.ended(Rx, label)
	k.table.streams.left()
	_ = k.arrivals.TryPush(arrival{end: true, err: err}) // fails if whoever read has left
}

// await waits for the next arrival, and for no longer than the giver may take.
func (k *taking) await(ctx context.Context) (arrival, error) {
	if err := flow.Ended(ctx, opFetch); err != nil {
		return arrival{}, err
	}
	if a, ok := k.arrivals.TryPop(); ok {
		return a, nil
	}
	patience, cancel := context.WithDeadline(ctx, k.due())
	defer cancel()
	a, err := k.arrivals.Pop(patience)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return arrival{}, flow.Ended(ctx, opFetch)
	default:
		return arrival{}, fault.New(opFetch, fault.Timeout, "peer %s sent nothing for %s", k.table.peer.Peer(), k.table.streams.spec.Patience)
	}
}

// due is when the giver has been silent for too long. It has credit whenever
// somebody waits: everything that came was used.
func (k *taking) due() time.Time {
	k.table.mu.Lock()
	defer k.table.mu.Unlock()
	return k.heard.Add(k.table.streams.spec.Patience)
}

// use counts a chunk that the consumer has read to its end, and lets the giver
// know by and by. An ack that the session has no room for is made good by the
// next one.
func (k *taking) use() {
	k.used++
	now := time.Now()
	if k.used-k.acked < ackEvery && now.Sub(k.told) < k.table.streams.spec.Patience/ackShare {
		return
	}
	if !k.grant(now) {
		return // the stream has ended: nothing more is sent for it
	}
	err := k.table.peer.Tell(session.Out{Message: &oap.Ack{Stream: k.number, UpTo: k.used - 1}, Flags: oap.Event, Corr: k.corr()})
	if err == nil {
		k.acked, k.told = k.used, now
	}
}

// grant gives credit for what was used, before the giver hears of it.
func (k *taking) grant(now time.Time) bool {
	k.table.mu.Lock()
	defer k.table.mu.Unlock()
	if k.table.takings[k.number] != k {
		return false
	}
	k.granted, k.heard = k.used+oap.Window, now
	return true
}

// leave ends the stream, tells the giver if it has not ended it itself, and
// forgets what came and was not read.
func (k *taking) leave(status string) {
	if k.table.dropTaking(k) {
		k.table.streams.ended(Rx, labelOf(status))
		k.table.streams.left()
		_ = k.table.peer.Tell(session.Out{ // a giver that does not hear it gets no more acks
			Message: &oap.End{Stream: k.number, Seq: k.next, Status: status}, Flags: oap.Event, Corr: k.corr(),
		})
	}
	k.arrivals.Retire()
	for a, ok := k.arrivals.TryPop(); ok; a, ok = k.arrivals.TryPop() {
		a.chunk.free()
	}
}
