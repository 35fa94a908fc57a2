package stream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// ahead is how many chunks of one stream may wait for the writer of the
// session. One is being written while the next is read; more would only fill
// the queue that all streams of the session share.
const ahead = 2

// frameCost is what a data message and its frame add to a chunk, roughly.
const frameCost = 96

// giving is a stream on which we give an object.
//
// Each chunk goes through the same three steps: wait for credit, wait for a
// place in the session's queue, then read and hand over. Nothing is read before
// there is room for it, so a peer that dawdles pins no memory.
type giving struct {
	// set at construction
	table   *table
	number  uint64
	corr    uint64 // of the start; everything that we send for the stream has it
	from    uint64
	life    context.Context // ends with the stream, if somebody else ends it
	kill    context.CancelCauseFunc
	over    func()     // counts the stream out, once
	address b3.Address // set before the task begins

	// set by the task before the first chunk is sent
	credit *flow.Permits // one for each chunk under way, given back by acks
	places *flow.Permits // one for each chunk in the session's queue

	given uint64 // chunks that the session took; owned by the task

	// guarded by table.mu
	sent  uint64 // chunks; the next one has this number
	acked uint64 // chunks; the first that was not acknowledged has this number
}

func newGiving(t *table, m *oap.Start, corr uint64) *giving {
	g := &giving{table: t, number: m.Stream, corr: corr, from: m.From, over: sync.OnceFunc(t.streams.left)}
	g.life, g.kill = context.WithCancelCause(context.Background())
	return g
}

// run is the task that gives.
func (g *giving) run(task context.Context) error {
	defer g.table.stopped()
	ctx, cancel := flow.Join(task, g.life)
	defer cancel()

	err := error(fault.New(opGive, fault.Internal, "the giver died"))
	defer func() { // also when reading the object panics
		if g.table.dropGiving(g) {
			g.table.streams.ended(Tx, labelOf(statusOf(err)))
			g.farewell(ctx, err)
		}
	}()
	err = g.give(ctx)
	return task.Err() // how the stream ended is counted by its status
}

// give opens the object and sends it.
func (g *giving) give(ctx context.Context) error {
	source, err := g.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // nothing was written
	g.credit = flow.NewPermits(g.table.streams.inv, flow.PermitsSpec{
		Service: service, Name: "credit", Cap: oap.Window, Waiting: 1, From: "acks of the asker", To: "giver", Each: "stream",
	})
	defer g.credit.Retire()
	g.places = flow.NewPermits(g.table.streams.inv, flow.PermitsSpec{
		Service: service, Name: "ahead", Cap: ahead, Waiting: 1, From: "writer", To: "giver", Each: "stream",
	})
	defer g.places.Retire()

	size := source.Size()
	if g.from > uint64(size) {
		return fault.New(opGive, fault.InvalidRange, "offset %d of an object of %d bytes", g.from, size)
	}
	for at := int64(g.from); at < size; g.given++ {
		n := min(int64(g.table.chunk), size-at)
		if err := g.send(ctx, source, at, int(n)); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// open finds the object. Its context lasts as long as the stream: where reading
// can wait, it bounds the reads too.
func (g *giving) open(ctx context.Context) (source Source, err error) {
	err = g.within(ctx, func() (err error) {
		source, err = g.table.streams.spec.Open(ctx, g.address)
		return err
	})
	return source, err
}

// within lets our own store take no longer than we would let a peer: it ends
// the stream then. A context with a time-out would not do, because what was
// opened with it would end with it.
func (g *giving) within(ctx context.Context, step func() error) error {
	patience := g.table.streams.spec.Patience
	timer := time.AfterFunc(patience, func() { //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and it is stopped when the step returns
		g.kill(fault.New(opGive, fault.Timeout, "the store gave nothing for %s", patience))
	})
	defer timer.Stop()
	err := step()
	if err != nil && ctx.Err() != nil {
		return flow.Ended(ctx, opGive)
	}
	return err
}

// send sends one chunk when the asker and the session have room for it.
func (g *giving) send(ctx context.Context, source Source, at int64, n int) error {
	if err := g.wait(ctx, g.credit, "the peer acknowledges nothing"); err != nil {
		return err
	}
	g.table.mu.Lock()
	g.sent = g.given + 1 // before it is: its ack may come at once
	g.table.mu.Unlock()
	err := g.offer(ctx, func() error {
		if err := g.wait(ctx, g.places, "the connection takes nothing"); err != nil {
			return err
		}
		p, err := g.read(ctx, source, at, n)
		if err != nil {
			return err
		}
		err = g.table.peer.Give(g.number, n+frameCost, session.Out{Message: &p.data, Flags: oap.Resp, Corr: g.corr, Written: p.written})
		if err != nil {
			p.written(err)
		}
		return err
	})
	if err == nil {
		g.table.streams.spec.Counters.Bytes(Tx, n)
	}
	return err
}

// wait takes a permit, and calls it a time-out if none comes.
func (g *giving) wait(ctx context.Context, of *flow.Permits, late string) error {
	patience, cancel := context.WithTimeout(ctx, g.table.streams.spec.Patience)
	defer cancel()
	err := of.Acquire(patience)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return flow.Ended(ctx, opGive)
	default:
		return fault.New(opGive, fault.Timeout, "%s for %s", late, g.table.streams.spec.Patience)
	}
}

// offer tries until the session's queue takes something, or patience ends.
// Other streams and letters share the queue, so that it is full may pass soon.
func (g *giving) offer(ctx context.Context, try func() error) error {
	const first, longest = 5 * time.Millisecond, 160 * time.Millisecond
	began := time.Now()
	for pause := first; ; pause = min(2*pause, longest) {
		err := try()
		if fault.KindOf(err) != fault.Busy || time.Since(began) >= g.table.streams.spec.Patience {
			return err
		}
		if flow.Sleep(ctx, pause) != nil {
			return flow.Ended(ctx, opGive)
		}
	}
}

// read makes a parcel of the next chunk. It takes over the place that was
// waited for, and gives it back if there is nothing to send.
func (g *giving) read(ctx context.Context, source Source, at int64, n int) (*parcel, error) {
	p := &parcel{places: g.places, chunk: newChunk(n)}
	p.data = oap.Data{Stream: g.number, Seq: g.given, Bytes: p.chunk.bytes}
	err := g.within(ctx, func() error {
		got, err := source.ReadAt(p.chunk.bytes, at)
		switch {
		case got == n:
			return nil // at the end of the object it may come with an io.EOF
		case err == nil || err == io.EOF:
			return fault.New(opGive, fault.IntegrityFail, "the object ends at %d, and has %d bytes", at+int64(got), source.Size())
		}
		return err
	})
	if err != nil {
		p.written(err)
		return nil, err
	}
	return p, nil
}

// parcel is a chunk on its way through the session's queue.
type parcel struct {
	data   oap.Data
	chunk  chunk
	places *flow.Permits
	over   atomic.Bool
}

// written gives back what the parcel holds, when its bytes were written or
// never will be. Only the first call counts: after a refusal both sides may
// make one.
func (p *parcel) written(error) {
	if p.over.CompareAndSwap(false, true) {
		p.chunk.free()
		p.places.Release()
	}
}

// farewell sends the end of the stream. It goes the way of the chunks, because
// the urgent way would overtake those that still wait.
func (g *giving) farewell(ctx context.Context, err error) {
	end := g.end(err)
	err = g.offer(ctx, func() error { return g.table.peer.Give(g.number, frameCost, end) })
	g.part(err)
}

// refuse ends a stream that never began. It is called by the reader of the
// session, and so it tries only once.
func (g *giving) refuse(refusal error) {
	g.table.streams.ended(Tx, labelOf(statusOf(refusal)))
	g.part(g.table.peer.Tell(g.end(refusal)))
}

// end says how the stream ended. It counts as open until that was written.
func (g *giving) end(err error) session.Out {
	return session.Out{
		Message: &oap.End{Stream: g.number, Seq: g.given, Status: statusOf(err)}, Flags: oap.Resp, Corr: g.corr,
		Written: func(error) { g.over() },
	}
}

// part lets go of a stream whose end was said. If the peer could not be told,
// it has a clock of its own.
func (g *giving) part(untold error) {
	if untold != nil {
		g.over()
	}
	g.kill(nil)
}

// abandon stops a stream that somebody else has ended.
func (g *giving) abandon(label string, why error) {
	g.table.streams.ended(Tx, label)
	g.over()
	g.kill(why)
}
