package session

import (
	"context"
	"io"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

// readState is what the task that reads a session owns.
type readState struct {
	frames        *oap.Reader
	clock         readTimers
	deadline      time.Time // the deadline that is set; zero if it passed
	opened        bool      // Handler.Opened was called
	keepaliveOnly bool      // the last frames were pings and pongs only
	waits         bool      // the reader waits for the next byte on a fresh stack
	readable      bool      // a byte arrived, and the rest of the frame is close behind

	gossip      *[]IncomingGossip // collected from this read; nil if there is none
	gossipBytes int               // of gossip

	data oap.Data // passed to the Handler: one of each is enough, because the Handler does not keep them
	ack  oap.Ack

	rate     meter // of frames that start something
	pingRate meter

	ping oap.Ping
	pong oap.Pong

	pingCorr   uint64 // corr of our last ping
	pingSentAt time.Time
}

// How often a peer may ping: once a second, and a few times more after a pause.
const (
	pingEvery = time.Second
	pingBurst = 5
)

// gossipLists are for gossip on its way to the Handler.
var gossipLists = sync.Pool{New: func() any { return new([]IncomingGossip) }}

func newReadState(frames *oap.Reader, c Config, rps int, now time.Time) readState {
	r := readState{frames: frames, keepaliveOnly: true, clock: readTimers{progress: c.Progress, idle: c.Idle, lastFrame: now, lastByte: now}, pingRate: newMeter(pingEvery, pingBurst)}
	if rps > 0 {
		r.rate = newMeter(time.Second/time.Duration(rps), rps)
	}
	return r
}

// read is the task that reads. It also opens and closes the session, so that all
// calls of the Handler come from one task.
//
// In an idle session it waits for the next byte, or for the deadline, on a fresh
// stack. The reader spends nearly all its time there, close to the bottom of a
// stack of the minimum size: 2 KiB.
func (s *Session) read(ctx context.Context) (next supervise.TurnResult) {
	var why *closeCause
	defer func() {
		if next == supervise.Done { // also after a panic of the Handler
			s.finish(why)
		}
	}()
	r := &s.readState
	if r.waits {
		r.waits, r.readable = false, true
		if s.raw.waitReadable() != nil {
			r.deadline, r.readable = time.Time{}, false
		}
	}
	if !r.opened {
		r.opened = true
		s.owner.spec.Handler.Opened(s)
		s.owner.register(s)
	} else if r.deadline.IsZero() && ctx.Err() != nil {
		why = abortCause()
	}
	for why == nil {
		if why = s.awaitFrame(ctx); why != nil {
			break
		}
		if r.waits {
			return supervise.Respawn
		}
		broken := s.readFrames()
		s.deliverGossip()
		why = broken // only now: if the Handler panics, that is the cause
	}
	return supervise.Done
}

// awaitFrame waits for a whole frame and handles timers meanwhile. A deadline is
// set only if it is earlier than the one that is set, or that one has passed:
// while frames arrive fast, a deadline is set every few seconds and not for each.
// In an idle session it sets waits and returns instead.
func (s *Session) awaitFrame(ctx context.Context) *closeCause {
	r := &s.readState
	for !r.frames.Ready() {
		seen := s.interrupts.Load()
		if why := s.closedBy(); why != nil {
			return why
		}
		_, r.clock.drainBy = s.drainState()
		inside := r.frames.Buffered() > 0
		at, what := r.clock.next(inside)
		now := time.Now()
		if !now.Before(at) {
			if why := s.handleTimer(what, now); why != nil {
				return why
			}
			continue
		}
		if r.deadline.IsZero() || at.Before(r.deadline) {
			r.deadline = at
			_ = s.raw.SetReadDeadline(at) // fails on a closed connection only, and then so does the read
		}
		if s.interrupts.Load() != seen {
			continue // the reader was interrupted, and we may just have overwritten that deadline
		}
		if r.keepaliveOnly && !inside && !r.readable && s.source.isEmpty() {
			r.frames.ReleaseBuffer()
			r.waits = true
			return nil
		}
		r.readable = false
		switch err := r.frames.Fill(); {
		case err == nil:
			r.clock.lastByte = time.Now()
			if !inside {
				r.clock.frameStart = r.clock.lastByte
			}
		case !timedOut(err):
			return s.readFailed(err)
		default:
			r.deadline = time.Time{}
			if ctx.Err() != nil {
				return abortCause()
			}
		}
	}
	return nil
}

// handleTimer handles a timer that has fired.
func (s *Session) handleTimer(what timerKind, now time.Time) *closeCause {
	r, count := &s.readState, s.owner.counters
	switch what {
	case pingTimer:
		r.clock.pingsSent++
		r.pingCorr, r.pingSentAt = s.Corr(), now
		r.keepaliveOnly = true
		s.ping(r.pingCorr, uint64(now.UnixMilli()))
		return nil
	case drainTimer:
		why, _ := s.drainState()
		return why
	case idleTimer:
		count.Timeout("idle")
		return errorCause(ClosedIdle, timeoutError("overlay.read", "no frame came for "+r.clock.idle.String()))
	case slowFrameTimer:
		count.Timeout("read")
		return errorCause(ClosedProgress, timeoutError("overlay.read", "one frame took longer than "+r.clock.idle.String()))
	}
	count.Timeout("read")
	return errorCause(ClosedProgress, timeoutError("overlay.read", "a frame stopped for "+r.clock.progress.String()))
}

// readFailed makes the cause for a read that failed.
func (s *Session) readFailed(err error) *closeCause {
	if err == io.EOF && !s.raw.eof {
		if why, _ := s.drainState(); why != nil {
			return why // the session was draining, and the peer closed first
		}
		return &closeCause{reason: ClosedEOF}
	}
	if s.closedBy() == nil {
		s.owner.counters.IOFailed("read")
	}
	if err == io.EOF {
		err = &fault.Error{Op: "overlay.read", Kind: fault.BrokenPipe, Detail: "the peer closed the connection without a bye", Err: io.ErrUnexpectedEOF}
	}
	return &closeCause{reason: ClosedBroken, err: fault.Wrap("overlay.read", err), abrupt: true}
}

// readFrames handles every frame that is buffered. The frequent kinds are decoded
// without an allocation.
func (s *Session) readFrames() *closeCause {
	r := &s.readState
	n := 0 // bytes of frames that are no chunks
	defer func() { s.pace.received(n) }()
	for {
		frame, ready, err := r.frames.NextReady()
		if err != nil {
			return s.rejectFrame(frame, err)
		}
		if !ready {
			return nil
		}
		r.clock.lastFrame, r.clock.frameStart, r.clock.pingsSent = r.clock.lastByte, r.clock.lastByte, 0
		r.keepaliveOnly = false
		n += oap.HeaderSize + len(frame.Payload)
		var gossip oap.Gossip
		var why *closeCause
		switch {
		case gossip.DecodeFast(frame.Payload):
			s.collectGossip(frame, &gossip)
		case r.data.DecodeFast(frame.Payload):
			n -= oap.HeaderSize + len(frame.Payload)
			why = s.passToHandler(frame, &r.data)
		case r.ack.DecodeFast(frame.Payload):
			why = s.passToHandler(frame, &r.ack)
		case r.ping.DecodeFast(frame.Payload):
			why = s.handleMessage(frame, &r.ping)
		case r.pong.DecodeFast(frame.Payload):
			why = s.handleMessage(frame, &r.pong)
		default:
			message, err := oap.Decode(frame.Payload)
			if err != nil {
				return s.rejectFrame(frame, err)
			}
			why = s.handleMessage(frame, message)
		}
		if why != nil {
			return why
		}
	}
}

// rejectFrame counts a frame that broke a rule and makes the cause to close.
func (s *Session) rejectFrame(frame oap.Frame, err error) *closeCause {
	if reason := oap.ReasonOf(err); reason != 0 {
		s.owner.counters.Rejected(reason)
	}
	return frameCause(frame, err)
}

// handleMessage handles a message, or passes it to the Handler.
func (s *Session) handleMessage(frame oap.Frame, message oap.Message) *closeCause {
	switch m := message.(type) {
	case *oap.Gossip:
		s.collectGossip(frame, m)
	case *oap.Ping:
		s.answerPing(frame, m)
	case *oap.Pong:
		s.recordRTT(frame)
	case *oap.Bye:
		s.handleBye()
	case *oap.Error:
		if frame.Flags&oap.Resp != 0 || isTransient(m.Code) { // about a request of ours, or it may pass
			return s.passToHandler(frame, m)
		}
		return &closeCause{reason: ClosedRefused, err: peerError{m.Err()}} // the peer closes the connection
	case *oap.Unknown:
		if frame.Flags&oap.Req != 0 {
			s.refuseRequest(frame, fault.New("overlay.read", fault.Malformed, "unknown kind %s", m.Kind))
		}
	case *oap.Hello, *oap.HelloAck:
		return frameCause(frame, protocolError("overlay.read", "a %s after the handshake", oap.KindOf(message)))
	default:
		return s.passToHandler(frame, message)
	}
	return nil
}

// collectGossip collects gossip. The read buffer is not overwritten before all of
// this read is delivered, unless the frame was decompressed: then it is copied.
func (s *Session) collectGossip(frame oap.Frame, g *oap.Gossip) {
	if !s.acceptsNew(frame) {
		return
	}
	r := &s.readState
	if r.gossip == nil {
		r.gossip = gossipLists.Get().(*[]IncomingGossip)
	}
	found := *g
	if r.frames.Decompressed() {
		found = g.Clone()
	}
	*r.gossip = append(*r.gossip, IncomingGossip{Gossip: found, Corr: frame.Corr})
	r.gossipBytes += len(frame.Payload)
}

// deliverGossip passes the collected gossip to the Handler.
func (s *Session) deliverGossip() {
	r := &s.readState
	if r.gossip == nil {
		return
	}
	list := r.gossip
	s.owner.counters.Gossip(dirReceived, len(*list), r.gossipBytes)
	r.gossip, r.gossipBytes = nil, 0
	s.owner.spec.Handler.Gossip(s, *list)
	clear(*list)
	*list = (*list)[:0]
	gossipLists.Put(list)
}

// acceptsNew reports whether a frame that starts something is accepted. A peer
// that sends too many gets an error, but not for each frame. What crossed our own
// bye is ignored, unless the peer has another connection to us: then it may assume
// that the message has arrived.
func (s *Session) acceptsNew(frame oap.Frame) bool {
	if err := s.overRate(); err != nil {
		s.Refuse(frame.Corr, err)
		return false
	}
	return !s.ignoresNew()
}

// overRate returns an error if the peer has sent more frames than it may, and
// counts the one that just came.
func (s *Session) overRate() error {
	if s.readState.rate.allow(s.readState.clock.lastByte) {
		return nil
	}
	s.owner.counters.RateLimited(s, s.owner.spec.Peer.MaxRPS)
	return fault.New("overlay.read", fault.QuotaExceeded, "more than %d frames a second", s.owner.spec.Peer.MaxRPS)
}

// ignoresNew reports whether this side drains the session and accepts nothing new.
func (s *Session) ignoresNew() bool {
	if !s.refusesNew.Load() {
		return false
	}
	why, _ := s.drainState()
	return why != nil && (why.reason == ClosedDrain || why.reason == ClosedRemoved)
}

// passToHandler passes a message to the Handler, after the gossip that came before it.
func (s *Session) passToHandler(frame oap.Frame, message oap.Message) *closeCause {
	s.deliverGossip()
	switch m := message.(type) {
	case *oap.Have, *oap.Want:
		if !s.acceptsNew(frame) {
			return nil
		}
	case *oap.Start:
		if !s.admitStream(frame, m) {
			return nil
		}
	case *oap.Find:
		var refusal error = errDraining
		if !s.ignoresNew() {
			refusal = s.overRate()
		}
		if refusal != nil {
			s.refuseRequest(frame, refusal)
			return nil
		}
	}
	err := s.owner.spec.Handler.Message(s, Incoming{Flags: frame.Flags, Corr: frame.Corr, Message: message})
	if err != nil {
		return s.rejectFrame(frame, err)
	}
	if end, ok := message.(*oap.End); ok {
		s.untrack(end.Stream)
		s.closeIfDrained()
	}
	return nil
}

// admitStream decides whether a stream may begin. A start that crossed our bye is
// refused.
func (s *Session) admitStream(frame oap.Frame, start *oap.Start) bool {
	status := fault.Canceled
	if leaving, _ := s.drainState(); leaving == nil {
		if s.overRate() == nil {
			s.track(start.Stream)
			return true
		}
		status = fault.QuotaExceeded
	}
	_ = s.SendControl(Outgoing{Message: &oap.End{Stream: start.Stream, Status: status.Code()}, Flags: oap.Resp, Corr: frame.Corr}) // no room: the peer's timeout ends the stream
	return false
}

// answerPing answers a ping. The answer goes before everything in the queue.
func (s *Session) answerPing(frame oap.Frame, ping *oap.Ping) {
	if !s.readState.pingRate.allow(s.readState.clock.lastByte) {
		s.refuseRequest(frame, fault.New("overlay.read", fault.QuotaExceeded, "more than one ping a second"))
		return
	}
	s.readState.keepaliveOnly = true
	if !s.pong(frame.Corr, ping.TS) {
		_ = s.SendControl(Outgoing{Message: &oap.Pong{TS: ping.TS}, Flags: oap.Resp, Corr: frame.Corr}) // no room: enough other frames are on their way to the peer
	}
}

// refuseRequest refuses a request; the session goes on.
func (s *Session) refuseRequest(frame oap.Frame, err error) {
	_ = s.SendControl(Outgoing{Message: oap.ErrorFor(err), Flags: oap.Resp, Corr: frame.Corr}) // no room: enough other frames are on their way to the peer
}

// recordRTT measures the round trip if a pong answers our last ping.
func (s *Session) recordRTT(frame oap.Frame) {
	s.readState.keepaliveOnly = true
	if r := &s.readState; r.pingCorr != 0 && frame.Corr == r.pingCorr {
		s.rtt.Store(int64(r.clock.lastByte.Sub(r.pingSentAt)))
		r.pingCorr = 0
	}
}

// handleBye handles the peer's bye: the peer drains. We start nothing new either,
// and close when our own streams have ended.
func (s *Session) handleBye() {
	s.deliverGossip()
	s.byeSeen.Store(true)
	s.drain(&closeCause{reason: ClosedBye}, false, time.Now().Add(maxDrainTimeout))
	s.closeIfDrained()
}

// finish ends the session, in order: the table, the Handler and Done are updated
// once, and last.
func (s *Session) finish(why *closeCause) {
	if why == nil { // the Handler has panicked
		why = errorCause(ClosedError, errTaskDied)
	}
	s.close(why)
	why = s.closedBy() // the first cause
	defer s.owner.removeLive(s)
	defer s.releaseConn()
	defer close(s.done)
	defer s.egress.Retire()
	defer s.permits.Retire()
	if why.abrupt {
		_ = s.raw.Close()
	} else {
		end := s.closeDeadline()
		s.raw.boundWrites(end)
		discard(s.raw, s.source, end)
	}
	<-s.writerDone
	_ = s.raw.Close()
	s.owner.unregister(s)
	s.owner.counters.Closed(why.reason)
	s.owner.spec.Handler.Closed(s, why.err)
}

// timerKind says which timer fires.
type timerKind uint8

const (
	pingTimer      timerKind = iota // no frame for a third of the idle time: send a ping
	idleTimer                       // no frame for all of the idle time
	progressTimer                   // the peer stopped inside a frame
	slowFrameTimer                  // one frame takes longer than the idle time
	drainTimer                      // the drain has lasted long enough
)

// idleParts is into how many parts the idle time is divided: a quiet peer gets two
// pings before its session is closed.
const idleParts = 3

// readTimers computes when a peer has been silent for too long: the reader
// records what arrived, and next returns what is due next. It has no timer of its
// own.
type readTimers struct {
	progress, idle time.Duration // set at construction

	lastFrame  time.Time // when the last whole frame arrived
	lastByte   time.Time // when the last byte arrived
	frameStart time.Time // when the frame under way began
	pingsSent  int       // pings sent since the last frame
	drainBy    time.Time // when the drain ends; zero if there is none
}

// next returns which timer fires next if nothing arrives, and when. Inside says
// whether a frame is under way: then the peer is slow at worst, and not idle.
func (r *readTimers) next(inside bool) (time.Time, timerKind) {
	at, what := r.lastFrame.Add(r.idle), idleTimer
	sooner := func(then time.Time, alarm timerKind) {
		if then.Before(at) {
			at, what = then, alarm
		}
	}
	if inside {
		at, what = r.frameStart.Add(r.idle), slowFrameTimer
		sooner(r.lastByte.Add(r.progress), progressTimer)
	}
	if r.pingsSent < idleParts-1 {
		sooner(r.lastFrame.Add(time.Duration(r.pingsSent+1)*r.idle/idleParts), pingTimer)
	}
	if !r.drainBy.IsZero() {
		sooner(r.drainBy, drainTimer)
	}
	return at, what
}
