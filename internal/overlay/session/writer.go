package session

import (
	"context"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

// inlineFrames is how many frames a waiting writer has room for on its stack. For
// more it takes a list from frameLists. A stack that is to shrink to 4 KiB between
// two frames has no room to spare.
const inlineFrames = 1

// maxBatchBytes is how many bytes are put into one batch. One frame may be larger. It
// is a little more than one read delivers, so that a relay writes at once what it
// read at once.
const maxBatchBytes = 80 << 10

// frameLists are lists for the frames of a batch.
var frameLists = sync.Pool{New: func() any { return new([]Outgoing) }}

// write is the only task that writes, and it does nothing else. It takes what is
// queued, encodes all of it into one buffer and writes that once. When the session
// is idle it sleeps, until there is something to write.
func (s *Session) write(ctx context.Context) (next supervise.TurnResult) {
	defer func() {
		if next == supervise.Done { // also after a panic
			s.finishWriter()
		}
	}()
	for s.closedBy() == nil && s.writeKeepalive() && s.flushRest() {
		if ctx.Err() == nil && s.canSleep() {
			return supervise.Sleep
		}
		if !s.writeBatch(ctx) {
			break
		}
		s.closeIfDrained()
	}
	s.writeCloseCause()
	return supervise.Done
}

// maxInlineBatches is how many batches an inline writer writes: about as much as the
// queue holds, and no more, because others may keep filling it.
const maxInlineBatches = 8

// writeInline is the writer's turn on the goroutine of a caller that offers gossip.
// It never waits, so what takes time is left to the writer. All that it writes goes
// out in one system call, or the peer would be woken once more for the few messages
// that are left when a batch is full.
func (s *Session) writeInline(ctx context.Context) (next supervise.TurnResult) {
	if s.raw.hasUnwritten() {
		return supervise.Respawn
	}
	s.inline = true
	defer func() {
		s.inline = false
		if next == supervise.Done { // after a panic
			s.finishWriter()
		}
	}()
	s.raw.beginBatch(true)
	next = s.collectInline(ctx)
	s.flushInline()
	if s.raw.hasUnwritten() {
		return supervise.Respawn
	}
	return next
}

// flushInline writes what was collected.
func (s *Session) flushInline() {
	if err := s.raw.flushBatch(); err != nil {
		s.writeFailed(err)
	}
	if !s.raw.hasUnwritten() {
		s.releasePermits()
	}
}

// releasePermits releases the permits of the frames that the connection has taken.
func (s *Session) releasePermits() {
	s.permits.ReleaseMany(s.inFlight)
	s.inFlight = 0
}

// freePermits returns how many more frames may leave the queue.
func (s *Session) freePermits() int { return s.owner.spec.Peer.InflightFrames - s.inFlight }

// collectInline collects what is queued, as long as it need not wait. It returns
// Respawn when the writer has to continue.
func (s *Session) collectInline(ctx context.Context) supervise.TurnResult {
	for range maxInlineBatches {
		if ctx.Err() != nil || s.closedBy() != nil || s.keepaliveDue.Load() {
			return supervise.Respawn
		}
		if s.queueLen() == 0 {
			return supervise.Sleep
		}
		if s.freePermits() == 0 { // all of them are held by collected frames
			if s.flushInline(); s.raw.hasUnwritten() || s.closedBy() != nil {
				return supervise.Respawn
			}
			s.raw.beginBatch(true)
		}
		if !s.writeQueued(ctx, nil) {
			return supervise.Respawn // to write the close cause
		}
		s.closeIfDrained()
	}
	return supervise.Respawn
}

// flushRest writes what an inline write has left.
func (s *Session) flushRest() bool {
	if !s.raw.hasUnwritten() {
		return true
	}
	err := s.raw.flushBatch()
	s.releasePermits()
	if err != nil {
		s.writeFailed(err)
	}
	return err == nil
}

// queueLen returns how many frames are queued.
func (s *Session) queueLen() int {
	return s.egress.Len(flow.Urgent) + s.egress.Len(Gossip) + s.egress.Len(Bulk)
}

// finishWriter completes what is left when nothing more is written.
func (s *Session) finishWriter() {
	defer close(s.writerDone)
	defer s.completeQueued()
	s.close(&closeCause{reason: ClosedError, err: errTaskDied, abrupt: true}) // unless it was closed before
}

// writeBatch writes one batch. It reports false when there will be no more.
func (s *Session) writeBatch(ctx context.Context) bool {
	var room [inlineFrames]Outgoing
	s.writerWaits.Store(true)
	if s.keepaliveDue.Load() {
		s.writerWaits.Store(false)
		return true // it became due since the last check
	}
	n, err := s.egress.Take(ctx, room[:], maxBatchBytes)
	s.writerWaits.Store(false)
	if err != nil {
		if ctx.Err() != nil {
			s.close(abortCause())
			_ = s.raw.Close()
		}
		return false
	}
	s.inFlight += s.permits.TryAcquire(n) // there is a permit: nothing was in flight
	if s.queueLen() == 0 || s.freePermits() == 0 {
		return s.writeFrames(room[:n])
	}
	return s.writeQueued(ctx, room[:n])
}

// writeQueued writes some frames and what is queued after them, as far as there are
// permits. It does not wait: the queue is not empty, and no other task takes from it.
func (s *Session) writeQueued(ctx context.Context, first []Outgoing) bool {
	list := frameLists.Get().(*[]Outgoing)
	if len(*list) < s.owner.spec.Burst+inlineFrames {
		*list = make([]Outgoing, s.owner.spec.Burst+inlineFrames)
	}
	n := copy(*list, first)
	clear(first)
	granted := s.permits.TryAcquire(min(s.owner.spec.Burst+inlineFrames-n, s.freePermits()))
	more, _ := s.egress.Take(ctx, (*list)[n:n+granted], maxBatchBytes)
	s.permits.ReleaseMany(granted - more)
	s.inFlight += more
	ok := s.writeFrames((*list)[:n+more])
	clear((*list)[:n+more])
	frameLists.Put(list)
	return ok
}

// writeFrames encodes and writes a batch, and completes its frames.
func (s *Session) writeFrames(batch []Outgoing) bool {
	now := time.Now().UnixMilli()
	buffer := getWriteBuffer()
	defer putWriteBuffer(buffer)
	s.expectsMore = false // unless the batch has more than items that wake the writer
	if s.keepaliveDue.Load() && s.keepaliveDue.Swap(false) {
		s.appendKeepalive(buffer)
	}
	gossipFrames, size, stale, chunkBytes := 0, 0, 0, 0
	for i := range batch {
		out := &batch[i]
		s.expectsMore = s.expectsMore || out.Message != nil
		before := len(*buffer)
		err := s.encode(buffer, out, now)
		if s.pace != nil && isChunk(out.Message) {
			chunkBytes += len(*buffer) - before
		}
		if err == errExpired {
			stale++
		}
		if err != nil {
			if start, ok := out.Message.(*oap.Start); ok { // it was not sent
				s.untrack(start.Stream)
			}
			out.complete(err)
			continue
		}
		if _, ok := out.Message.(*oap.Gossip); ok {
			gossipFrames++
			size += len(*buffer) - before - oap.HeaderSize
		}
	}
	bye := s.appendBye(buffer)
	s.pace.sent(len(*buffer) - chunkBytes)
	err := s.flush(*buffer)
	if !s.inline {
		s.releasePermits()
	}
	if stale > 0 {
		s.owner.counters.Expired(stale)
	}
	if err != nil {
		s.writeFailed(err)
	} else if gossipFrames > 0 {
		s.owner.counters.Gossip(dirSent, gossipFrames, size)
	}
	for i := range batch {
		if end, ok := batch[i].Message.(*oap.End); ok {
			s.untrack(end.Stream)
		}
		batch[i].complete(err)
	}
	if bye {
		s.byeWritten()
	}
	return err == nil
}

// encode appends a frame, unless it has expired or a bye came first. An item
// without a message only wakes the writer.
func (s *Session) encode(buffer *[]byte, out *Outgoing, now int64) (err error) {
	switch {
	case out.Message == nil:
		return nil
	case s.byeSeen.Load() && startsExchange(out.Message):
		return errRefusesNew
	case out.Expires != 0 && out.Expires < now:
		return errExpired
	}
	corr := out.Corr
	if _, refusal := out.Message.(*oap.Error); corr == 0 && !refusal {
		corr = s.Corr()
	}
	*buffer, err = s.codec.AppendMessage(*buffer, out.Flags, corr, out.Message)
	return err
}

// complete calls Release and Written, once.
func (o *Outgoing) complete(err error) {
	o.Message = nil
	if release := o.Release; release != nil {
		o.Release = nil
		release()
	}
	if written := o.Written; written != nil {
		o.Written = nil
		written(err)
	}
}

// appendBye appends our bye when it is due, after the gossip that was queued
// before: what was accepted is sent.
func (s *Session) appendBye(buffer *[]byte) bool {
	s.mu.Lock()
	due, why := s.byeDue, s.pendingCause
	s.mu.Unlock()
	if !due || s.egress.Len(Gossip) > 0 {
		return false
	}
	s.byeSeen.Store(true)
	*buffer, _ = s.codec.AppendMessage(*buffer, oap.Event, s.Corr(), why.byeMessage()) // a bye is never too large
	return true
}

// byeWritten records that our bye is written.
func (s *Session) byeWritten() {
	s.mu.Lock()
	s.byeDue = false
	s.mu.Unlock()
}

// byeMessage makes the bye of a drain.
func (c *closeCause) byeMessage() *oap.Bye {
	switch c.reason {
	case ClosedDuplicate:
		return &oap.Bye{Reason: "duplicate"}
	case ClosedRemoved:
		return &oap.Bye{Reason: "removed"}
	}
	return &oap.Bye{Reason: "draining"}
}

// flush writes a buffer as one batch of records in one system call; one that
// fits into a record need not be collected for that. That there is a single
// writer follows from how the tasks are started. The panic is there because two
// writers would interleave their frames, and the cause would be hard to find.
func (s *Session) flush(buffer []byte) error {
	if len(buffer) == 0 {
		return nil
	}
	if !s.writing.CompareAndSwap(false, true) {
		panic("session: two writers on one connection")
	}
	defer s.writing.Store(false)
	if len(buffer) <= tlsRecordBytes || s.inline { // inline it is being collected already
		_, err := s.conn.Write(buffer)
		return err
	}
	s.raw.beginBatch(false)
	_, err := s.conn.Write(buffer)
	if flushed := s.raw.flushBatch(); err == nil {
		err = flushed
	}
	return err
}

// writeFailed closes the session after a write that failed. The frame under way is
// incomplete, so nothing more can be sent.
func (s *Session) writeFailed(err error) {
	why := &closeCause{reason: ClosedBroken, err: fault.Wrap("overlay.write", err), abrupt: true}
	switch {
	case s.closedBy() != nil: // it was closed before, and the connection with it
	case timedOut(err):
		s.owner.counters.Timeout("write")
		why.reason, why.err = ClosedWrite, timeoutError("overlay.write", "the peer did not read for "+s.owner.spec.Config.Write.String())
	default:
		s.owner.counters.IOFailed("write")
	}
	s.close(why)
	_ = s.raw.Close()
}

// writeCloseCause sends why the session closes, if there is a message and the connection
// can still carry it, and closes our direction.
func (s *Session) writeCloseCause() {
	why := s.closedBy()
	if why.abrupt {
		return
	}
	s.raw.boundWrites(s.closeDeadline())
	if why.message != nil {
		frame, err := s.codec.AppendMessage(nil, why.flags, why.corr, why.message)
		if err == nil && why.byeReason != "" {
			frame, err = s.codec.AppendMessage(frame, oap.Event, s.Corr(), &oap.Bye{Reason: why.byeReason})
		}
		if err == nil {
			err = s.flush(frame)
		}
		if err != nil {
			return
		}
	}
	_ = s.conn.CloseWrite() // fails only if the peer is gone, which needs no close_notify
}

// completeQueued completes what was never sent.
func (s *Session) completeQueued() {
	s.releasePermits()
	s.egress.Close()
	var room [inlineFrames]Outgoing
	for {
		n, err := s.egress.Take(context.Background(), room[:], maxBatchBytes) // does not wait: the queue is closed
		if err != nil {
			return
		}
		for i := range room[:n] {
			room[i].complete(errClosed)
		}
		clear(room[:])
	}
}
