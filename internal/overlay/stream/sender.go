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

// maxQueuedChunks is how many chunks of one stream may be in the session's
// queue. One is being written while the next is read; more would only fill the
// queue that all streams of the session share.
const maxQueuedChunks = 2

// frameOverhead is what a data message and its frame add to a chunk, roughly.
const frameOverhead = 96

// sender is a stream on which this node sends an object.
//
// Each chunk goes through the same steps: wait for credit, for the limit of this
// node and for room in the session's queue, then read and enqueue. Nothing is read before there
// is room for it, so a slow peer holds no memory.
type sender struct {
	// set at construction
	table    *streamTable
	number   uint64
	corr     uint64 // of the start; everything that is sent for the stream has it
	from     uint64
	length   uint64          // 0 is all
	ctx      context.Context // ends with the stream, also if it ends outside the task
	cancel   context.CancelCauseFunc
	countOut func()     // counts the stream out, once
	address  b3.Address // set before the task begins
	view     oap.View   // set before the task begins

	// set by the task before the first chunk is sent
	credit       *flow.Permits // one for each chunk under way, released by acks
	queuePermits *flow.Permits // one for each chunk in the session's queue

	sentChunks uint64 // chunks that the session accepted; owned by the task

	// guarded by table.mu
	announced uint64 // chunks; the next one has this number
	acked     uint64 // chunks; the first that was not acknowledged has this number
}

func newSender(t *streamTable, m *oap.Start, corr uint64) *sender {
	g := &sender{table: t, number: m.Stream, corr: corr, from: m.From, length: m.Length, countOut: sync.OnceFunc(t.streams.countOut)}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// run is the task that sends.
func (s *sender) run(task context.Context) error {
	defer s.table.taskDone()
	ctx, cancel := flow.Join(task, s.ctx)
	defer cancel()

	err := error(fault.New(opGive, fault.Internal, "the sender ended unexpectedly"))
	defer func() { // also when reading the object panics
		if s.table.removeSender(s) {
			s.table.streams.countEnd(Tx, labelOf(statusOf(err)))
			s.sendEnd(ctx, err)
		}
	}()
	err = s.sendObject(ctx)
	return task.Err() // how the stream ended is counted by its status
}

// sendObject opens the object and sends it.
func (s *sender) sendObject(ctx context.Context) error {
	source, err := s.openObject(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // nothing was written
	s.credit = flow.NewPermits(s.table.streams.inv, flow.PermitsSpec{
		Service: service, Name: "credit", Cap: oap.Window, Waiting: 1, From: "acks of the asker", To: "giver", Each: "stream",
	})
	defer s.credit.Retire()
	s.queuePermits = flow.NewPermits(s.table.streams.inv, flow.PermitsSpec{
		Service: service, Name: "ahead", Cap: maxQueuedChunks, Waiting: 1, From: "writer", To: "giver", Each: "stream",
	})
	defer s.queuePermits.Retire()

	size := source.Size()
	if s.from > uint64(size) {
		return fault.New(opGive, fault.InvalidRange, "offset %d of an object of %d bytes", s.from, size)
	}
	end := size
	if s.length > 0 && s.length < uint64(size)-s.from {
		end = int64(s.from + s.length)
	}
	for at := int64(s.from); at < end; s.sentChunks++ {
		n := min(int64(s.table.chunk), end-at)
		if err := s.sendChunk(ctx, source, at, int(n)); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// openObject opens the object. Its context lasts as long as the stream: where
// reading can block, it bounds the reads too.
func (s *sender) openObject(ctx context.Context) (source Source, err error) {
	err = s.withTimeout(ctx, func() (err error) {
		open := s.table.streams.spec.Open
		switch s.view {
		case oap.Tree:
			open = s.table.streams.spec.OpenTree
		case oap.Files:
			open = s.table.streams.spec.OpenFiles
		case oap.Here:
			open = s.table.streams.spec.OpenParts
		case oap.Chunks:
			open = s.table.streams.spec.OpenChunks
		}
		source, err = open(ctx, s.address)
		return err
	})
	return source, err
}

// withTimeout gives the store of this node as much time as a peer: after
// Patience it ends the stream. A context with a time-out would not do, because
// what was opened with it would end with it.
func (s *sender) withTimeout(ctx context.Context, step func() error) error {
	patience := s.table.streams.spec.Patience
	timer := time.AfterFunc(patience, func() { //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and it is stopped when the step returns
		s.cancel(fault.New(opGive, fault.Timeout, "the store read nothing for %s", patience))
	})
	defer timer.Stop()
	err := step()
	if err != nil && ctx.Err() != nil {
		return flow.Ended(ctx, opGive)
	}
	return err
}

// sendChunk sends one chunk when the receiver and the session have room for it.
func (s *sender) sendChunk(ctx context.Context, source Source, at int64, n int) error {
	if err := s.acquire(ctx, s.credit, "the peer acknowledges nothing"); err != nil {
		return err
	}
	if err := s.table.peer.Pace().AwaitSend(ctx, s.table.streams.paceTime(), n+frameOverhead); err != nil {
		return flow.Ended(ctx, opGive)
	}
	s.table.mu.Lock()
	s.announced = s.sentChunks + 1 // before it is sent: its ack may come at once
	s.table.mu.Unlock()
	err := s.retryBusy(ctx, func() error {
		if err := s.acquire(ctx, s.queuePermits, "the connection makes no progress"); err != nil {
			return err
		}
		p, err := s.readChunk(ctx, source, at, n)
		if err != nil {
			return err
		}
		err = s.table.peer.SendBulk(s.number, n+frameOverhead, session.Outgoing{Message: &p.data, Flags: oap.Resp, Corr: s.corr, Written: p.written})
		if err != nil {
			p.written(err)
		}
		return err
	})
	if err == nil {
		s.table.streams.spec.Counters.Bytes(Tx, n)
	}
	return err
}

// acquire acquires a permit, and returns Timeout if none comes.
func (s *sender) acquire(ctx context.Context, of *flow.Permits, late string) error {
	patience, cancel := context.WithTimeout(ctx, s.table.streams.spec.Patience)
	defer cancel()
	err := of.Acquire(patience)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return flow.Ended(ctx, opGive)
	default:
		return fault.New(opGive, fault.Timeout, "%s for %s", late, s.table.streams.spec.Patience)
	}
}

// busyBackoff is how long to wait for room in the session's queue.
var busyBackoff = flow.Backoff{Min: 5 * time.Millisecond, First: 10 * time.Millisecond, Max: 160 * time.Millisecond}

// retryBusy retries until the session's queue accepts something, or Patience
// ends. Other streams and messages share the queue, so a full queue may be
// transient.
func (s *sender) retryBusy(ctx context.Context, try func() error) error {
	began := time.Now()
	for n := 0; ; n++ {
		err := try()
		if fault.KindOf(err) != fault.Busy || time.Since(began) >= s.table.streams.spec.Patience {
			return err
		}
		if flow.Sleep(ctx, busyBackoff.Delay(n)) != nil {
			return flow.Ended(ctx, opGive)
		}
	}
}

// readChunk reads the next chunk. It takes over the permit that was acquired,
// and releases it if there is nothing to send.
func (s *sender) readChunk(ctx context.Context, source Source, at int64, n int) (*queuedChunk, error) {
	p := &queuedChunk{queuePermits: s.queuePermits, chunk: newChunk(n)}
	p.data = oap.Data{Stream: s.number, Seq: s.sentChunks, Bytes: p.chunk.bytes}
	err := s.withTimeout(ctx, func() error {
		got, err := source.ReadAt(p.chunk.bytes, at)
		switch {
		case got == n:
			return nil // at the end of the object it may come with an io.EOF
		case err == nil || err == io.EOF:
			return fault.New(opGive, fault.IntegrityFail, "the object ends at %d, but has %d bytes", at+int64(got), source.Size())
		}
		return err
	})
	if err != nil {
		p.written(err)
		return nil, err
	}
	return p, nil
}

// queuedChunk is a chunk on its way through the session's queue.
type queuedChunk struct {
	data         oap.Data
	chunk        chunk
	queuePermits *flow.Permits
	released     atomic.Bool
}

// written releases what the chunk holds, when its bytes were written or never
// will be. Only the first call counts: after a rejection both sides may make
// one.
func (q *queuedChunk) written(error) {
	if q.released.CompareAndSwap(false, true) {
		q.chunk.release()
		q.queuePermits.Release()
	}
}

// sendEnd sends the end of the stream. It goes through the queue of chunks,
// because a control frame would overtake those in the queue.
func (s *sender) sendEnd(ctx context.Context, err error) {
	end := s.endFrame(err)
	err = s.retryBusy(ctx, func() error { return s.table.peer.SendBulk(s.number, frameOverhead, end) })
	s.finish(err)
}

// refuse ends a stream that never began. It is called by the reader of the
// session, and so it tries only once.
func (s *sender) refuse(refusal error) {
	s.table.streams.countEnd(Tx, labelOf(statusOf(refusal)))
	s.finish(s.table.peer.SendControl(s.endFrame(refusal)))
}

// endFrame returns the end of the stream. The stream counts as open until that
// was written.
func (s *sender) endFrame(err error) session.Outgoing {
	return session.Outgoing{
		Message: &oap.End{Stream: s.number, Seq: s.sentChunks, Status: statusOf(err)}, Flags: oap.Resp, Corr: s.corr,
		Written: func(error) { s.countOut() },
	}
}

// finish ends a stream whose end was sent. If that failed, the peer has a timer
// of its own.
func (s *sender) finish(sendErr error) {
	if sendErr != nil {
		s.countOut()
	}
	s.cancel(nil)
}

// abort stops a stream that ended elsewhere.
func (s *sender) abort(label string, why error) {
	s.table.streams.countEnd(Tx, label)
	s.countOut()
	s.cancel(why)
}

// chunk is a part of an object in memory. It has one owner at a time, and the
// owner calls release once.
type chunk struct {
	bytes  []byte
	pooled *[oap.Chunk]byte // what to return to the pool, if it came from there
}

var chunks = sync.Pool{New: func() any { return new([oap.Chunk]byte) }}

// minPooledBytes is from which size on a chunk gets a pooled buffer. Small
// objects are many, and each would hold sixty times the memory it needs.
const minPooledBytes = oap.Chunk / 8

// newChunk returns memory for n bytes, which are at most oap.Chunk.
func newChunk(n int) chunk {
	if n < minPooledBytes {
		return chunk{bytes: make([]byte, n)}
	}
	whole := chunks.Get().(*[oap.Chunk]byte)
	return chunk{bytes: whole[:n], pooled: whole}
}

// release returns the memory to the pool. The bytes must not be used after
// that.
func (c chunk) release() {
	if c.pooled != nil {
		chunks.Put(c.pooled)
	}
}
