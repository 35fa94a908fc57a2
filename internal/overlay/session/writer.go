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

// few is how many frames a writer that waits has room for. When more are there
// it borrows a list for a whole burst. The room is on its stack, and a stack
// that is to shrink to 4 KiB between two frames has none to spare.
const few = 1

// most is how many bytes are put into one batch. One frame may be larger. It is a
// little more than what a reader takes in one go, so that a relay writes at once
// what it read at once.
const most = 80 << 10

// bursts are lists for the frames of a batch.
var bursts = sync.Pool{New: func() any { return new([]Out) }}

// write is the task that writes: the only one, and it does nothing else. It
// takes what waits, encodes all of it into one buffer and writes that once. When
// the session is quiet it sleeps, until somebody has something to write.
func (s *Session) write(ctx context.Context) (next supervise.Next) {
	defer func() {
		if next == supervise.Done { // also after a panic
			s.wroteAll()
		}
	}()
	for s.ended() == nil && s.chat() && s.catchUp() {
		if ctx.Err() == nil && s.tired() {
			return supervise.Sleep
		}
		if !s.burst(ctx) {
			break
		}
		s.parted()
	}
	s.sayLast()
	return supervise.Done
}

// turns is how many batches somebody writes who is not the writer. There may be
// more in the queue than what it had to write itself.
const turns = 4

// writeHere is the writer's turn on the goroutine of somebody who had something
// to write. It never waits, so what takes time is left to the writer. All that it
// writes goes out in one system call, or the peer would be woken up for the few
// letters that are over when a batch is full.
func (s *Session) writeHere(ctx context.Context) (next supervise.Next) {
	if s.wire.behind() {
		return supervise.Fresh
	}
	s.here = true
	defer func() {
		s.here = false
		if next == supervise.Done { // after a panic
			s.wroteAll()
		}
	}()
	s.wire.hold(true)
	next = s.takeTurns(ctx)
	if err := s.wire.release(); err != nil {
		s.stuck(err)
	}
	if s.wire.behind() {
		return supervise.Fresh
	}
	return next
}

// takeTurns collects what waits, as long as nobody else is needed for it.
func (s *Session) takeTurns(ctx context.Context) supervise.Next {
	for range turns {
		if ctx.Err() != nil || s.ended() != nil || s.owes.Load() {
			return supervise.Fresh
		}
		if s.waiting() == 0 {
			return supervise.Sleep
		}
		if !s.take(ctx, nil) {
			return supervise.Fresh // to say its last words
		}
		s.parted()
	}
	return supervise.Fresh
}

// catchUp writes what somebody else left behind.
func (s *Session) catchUp() bool {
	if !s.wire.behind() {
		return true
	}
	err := s.wire.release()
	if err != nil {
		s.stuck(err)
	}
	return err == nil
}

// waiting is how many frames wait to be written.
func (s *Session) waiting() int {
	return s.egress.Len(flow.Urgent) + s.egress.Len(Gossip) + s.egress.Len(Chunks)
}

// wroteAll settles what is left when nothing more is written.
func (s *Session) wroteAll() {
	defer close(s.wrote)
	defer s.sweep()
	s.end(&parting{reason: ClosedError, err: errDied, cut: true}) // unless it came to a better end before
}

// burst writes one batch. It reports false when there will be no more.
func (s *Session) burst(ctx context.Context) bool {
	var room [few]Out
	s.lingers.Store(true)
	if s.owes.Load() {
		s.lingers.Store(false)
		return true // it came since we looked
	}
	n, err := s.egress.Take(ctx, room[:], most)
	s.lingers.Store(false)
	if err != nil {
		if ctx.Err() != nil {
			s.end(&parting{reason: ClosedAborted, err: errCut, cut: true})
			_ = s.wire.Close()
		}
		return false
	}
	if s.waiting() == 0 {
		return s.send(room[:n])
	}
	return s.take(ctx, room[:n])
}

// take writes some frames and what waits behind them. It does not wait: something
// is there, and nobody else takes it.
func (s *Session) take(ctx context.Context, first []Out) bool {
	list := bursts.Get().(*[]Out)
	if len(*list) < s.owner.spec.Burst+few {
		*list = make([]Out, s.owner.spec.Burst+few)
	}
	n := copy(*list, first)
	clear(first)
	more, _ := s.egress.Take(ctx, (*list)[n:s.owner.spec.Burst+few], most)
	ok := s.send((*list)[:n+more])
	clear((*list)[:n+more])
	bursts.Put(list)
	return ok
}

// send encodes and writes a batch, and tells everybody.
func (s *Session) send(batch []Out) bool {
	now := time.Now().UnixMilli()
	buffer := borrow()
	defer giveBack(buffer)
	s.lively = false // unless there is more in it than a parcel that wakes the writer up
	if s.owes.Load() && s.owes.Swap(false) {
		s.sayTalk(buffer)
	}
	letters, size, stale, permits := 0, 0, 0, 0
	for i := range batch {
		out := &batch[i]
		if out.permit {
			permits++
		}
		s.lively = s.lively || out.Message != nil
		before := len(*buffer)
		err := s.encode(buffer, out, now)
		if err == errStale {
			stale++
		}
		if err != nil {
			s.forget(out)
			out.settle(err)
			continue
		}
		if _, ok := out.Message.(*oap.Gossip); ok {
			letters++
			size += len(*buffer) - before - oap.HeaderSize
		}
	}
	bye := s.sayBye(buffer)
	err := s.flush(*buffer)
	if permits > 0 {
		s.permits.ReleaseMany(permits)
	}
	if stale > 0 {
		s.owner.count.Expired(stale)
	}
	if err != nil {
		s.stuck(err)
	} else if letters > 0 {
		s.owner.count.Gossip(sent, letters, size)
	}
	for i := range batch {
		if end, ok := batch[i].Message.(*oap.End); ok {
			s.untrack(end.Stream)
		}
		batch[i].settle(err)
	}
	if bye {
		s.saidBye()
	}
	return err == nil
}

// encode appends a frame, unless its time has passed or a bye came first. A
// parcel without a message only wakes the writer up.
func (s *Session) encode(buffer *[]byte, out *Out, now int64) (err error) {
	switch {
	case out.Message == nil:
		return nil
	case s.mute.Load() && starts(out.Message):
		return errQuiet
	case out.Expires != 0 && out.Expires < now:
		return errStale
	}
	corr := out.Corr
	if _, refusal := out.Message.(*oap.Error); corr == 0 && !refusal {
		corr = s.Corr()
	}
	*buffer, err = s.codec.AppendMessage(*buffer, out.Flags, corr, out.Message)
	return err
}

// forget takes back that a stream is open whose start was not sent.
func (s *Session) forget(out *Out) {
	if start, ok := out.Message.(*oap.Start); ok {
		s.untrack(start.Stream)
	}
}

// settle tells whoever wants to know, once.
func (o *Out) settle(err error) {
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

// sayBye appends our bye when it is due, behind the gossip that was queued
// before: what was taken is sent.
func (s *Session) sayBye(buffer *[]byte) bool {
	s.mu.Lock()
	due, why := s.bye, s.leaving
	s.mu.Unlock()
	if !due || s.egress.Len(Gossip) > 0 {
		return false
	}
	s.mute.Store(true)
	*buffer, _ = s.codec.AppendMessage(*buffer, oap.Event, s.Corr(), why.farewell()) // a bye is never too large
	return true
}

// saidBye notes that our bye is written.
func (s *Session) saidBye() {
	s.mu.Lock()
	s.bye = false
	s.mu.Unlock()
}

// farewell is the bye of a drain.
func (p *parting) farewell() *oap.Bye {
	switch p.reason {
	case ClosedDuplicate:
		return &oap.Bye{Reason: "duplicate"}
	case ClosedRemoved:
		return &oap.Bye{Reason: "removed"}
	}
	return &oap.Bye{Reason: "draining"}
}

// flush writes a buffer as one batch of records in one system call; one that
// fits into a record need not be collected for that. That there
// is a single writer follows from how the tasks are started; should that ever
// change, two of them would mix their frames, and nobody would find out why.
func (s *Session) flush(buffer []byte) error {
	if len(buffer) == 0 {
		return nil
	}
	if !s.inUse.CompareAndSwap(false, true) {
		panic("session: two writers on one connection")
	}
	defer s.inUse.Store(false)
	if len(buffer) <= record || s.here { // here it is being collected already
		_, err := s.conn.Write(buffer)
		return err
	}
	s.wire.hold(false)
	_, err := s.conn.Write(buffer)
	if flushed := s.wire.release(); err == nil {
		err = flushed
	}
	return err
}

// stuck ends the session after a write that failed. The frame under way is
// cut, so nothing more can be said.
func (s *Session) stuck(err error) {
	why := &parting{reason: ClosedBroken, err: fault.Wrap("overlay.write", err), cut: true}
	if timedOut(err) && s.ended() == nil {
		s.owner.count.Timeout("write")
		why.reason, why.err = ClosedWrite, tooSlow("overlay.write", "the peer did not read for "+s.owner.spec.Config.Write.String())
	}
	s.end(why)
	_ = s.wire.Close()
}

// sayLast says why it is over, if there is something to say and the connection
// can still carry it, and ends our direction.
func (s *Session) sayLast() {
	why := s.ended()
	if why.cut {
		return
	}
	s.wire.within(time.Now().Add(lastWords))
	if why.words != nil {
		frame, err := s.codec.AppendMessage(nil, why.flags, why.corr, why.words)
		if err == nil && why.bye != "" {
			frame, err = s.codec.AppendMessage(frame, oap.Event, s.Corr(), &oap.Bye{Reason: why.bye})
		}
		if err == nil {
			err = s.flush(frame)
		}
		if err != nil {
			return
		}
	}
	_ = s.conn.CloseWrite() // whoever is gone already needs no close_notify
}

// sweep settles what was never sent. Its permits end with the session.
func (s *Session) sweep() {
	s.egress.Close()
	var room [few]Out
	for {
		n, err := s.egress.Take(context.Background(), room[:], most) // does not wait: the queue is closed
		if err != nil {
			return
		}
		for i := range room[:n] {
			room[i].settle(errEnded)
		}
		clear(room[:])
	}
}
