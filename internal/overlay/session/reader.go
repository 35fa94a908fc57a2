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

// ear is what the task that reads a session owns.
type ear struct {
	frames *oap.Reader
	clock  clock
	armed  time.Time // the deadline that is set; zero if it passed
	opened bool      // the Handler knows of the session
	idle   bool      // nothing but small talk came of late
	dozes  bool      // it goes on, on a fresh stack, when something comes
	roused bool      // something came, and the rest of it is not far

	letters *[]Arrival // collected in this go; nil if there are none
	bytes   int        // of them

	data oap.Data // what the Handler is shown: one of each is enough, because nobody keeps them
	ack  oap.Ack

	rate  meter // of frames that start something
	pings meter

	ping oap.Ping
	pong oap.Pong

	asked   uint64 // corr of our last ping
	askedAt time.Time
}

// How often a peer may ping: once a second, and a few times more after a pause.
const (
	pingEvery = time.Second
	pingBurst = 5
)

// lists are for letters on their way to the Handler.
var lists = sync.Pool{New: func() any { return new([]Arrival) }}

func newEar(frames *oap.Reader, c Config, rps int, now time.Time) ear {
	e := ear{frames: frames, idle: true, clock: newClock(c.Progress, c.Idle, now), pings: newMeter(pingEvery, pingBurst)}
	if rps > 0 {
		e.rate = newMeter(time.Second/time.Duration(rps), rps)
	}
	return e
}

// read is the task that reads. It is also the one that opens and closes the
// session, so that the Handler hears everything from one task. It waits for the
// next frame of a quiet session on a fresh stack.
func (s *Session) read(ctx context.Context) (next supervise.Next) {
	var why *parting
	defer func() {
		if next == supervise.Done { // also after a panic of the Handler
			s.conclude(why)
		}
	}()
	if s.ear.dozes {
		s.doze()
	}
	if why = s.attend(ctx); why == nil {
		return supervise.Fresh
	}
	return supervise.Done
}

// doze waits for something to come, or for the deadline. It is all that the
// reader of a quiet session ever does for long, and it is done close to the
// bottom of a stack that is as small as they come: 2 KiB.
func (s *Session) doze() {
	s.ear.dozes, s.ear.roused = false, true
	if s.wire.touch() != nil {
		s.ear.armed, s.ear.roused = time.Time{}, false
	}
}

// attend goes on with the conversation. It returns nil when that may pause.
func (s *Session) attend(ctx context.Context) *parting {
	if !s.ear.opened {
		s.ear.opened = true
		s.owner.spec.Handler.Opened(s)
		s.owner.enter(s)
	} else if s.ear.armed.IsZero() && ctx.Err() != nil {
		return &parting{reason: ClosedAborted, err: errCut, cut: true}
	}
	return s.converse(ctx)
}

// converse takes in frames until there is a reason to part, or none to stay
// awake.
func (s *Session) converse(ctx context.Context) *parting {
	for {
		if why := s.await(ctx); why != nil || s.ear.dozes {
			return why
		}
		why := s.takeIn()
		s.deliver()
		if why != nil {
			return why
		}
	}
}

// await waits for a whole frame, and minds the clocks meanwhile. A deadline is
// set only if it is earlier than the one that is set, or that one has passed:
// while frames come fast, a deadline is set every few seconds and not for each.
// In a quiet session it does not wait, but dozes.
func (s *Session) await(ctx context.Context) *parting {
	e := &s.ear
	for !e.frames.Ready() {
		seen := s.kicks.Load()
		if why := s.ended(); why != nil {
			return why
		}
		_, e.clock.leave = s.parting()
		inside := e.frames.Buffered() > 0
		at, what := e.clock.due(inside)
		now := time.Now()
		if !now.Before(at) {
			if why := s.ring(what, now); why != nil {
				return why
			}
			continue
		}
		s.arm(at)
		if s.kicks.Load() != seen {
			continue // somebody wants us to look up, and we may just have overwritten it
		}
		if e.idle && !inside && !e.roused && s.plain.dry() {
			e.frames.Rest()
			e.dozes = true
			return nil
		}
		e.roused = false
		switch err := e.frames.Fill(); {
		case err == nil:
			e.clock.bytes(time.Now(), !inside)
		case !timedOut(err):
			return s.lost(err)
		default:
			e.armed = time.Time{}
			if ctx.Err() != nil {
				return &parting{reason: ClosedAborted, err: errCut, cut: true}
			}
		}
	}
	return nil
}

// arm sets the deadline of the next read.
func (s *Session) arm(at time.Time) {
	if e := &s.ear; e.armed.IsZero() || at.Before(e.armed) {
		e.armed = at
		_ = s.wire.SetReadDeadline(at) // fails on a closed connection only, and then so does the read
	}
}

// ring does what a clock rang for.
func (s *Session) ring(what alarm, now time.Time) *parting {
	count := s.owner.count
	switch what {
	case askAlarm:
		s.ask(now)
		return nil
	case leaveAlarm:
		why, _ := s.parting()
		return why
	case idleAlarm:
		count.Timeout("idle")
		return with(ClosedIdle, tooSlow("overlay.read", "no frame came for "+s.ear.clock.idle.String()))
	case slowAlarm:
		count.Timeout("read")
		return with(ClosedProgress, tooSlow("overlay.read", "one frame took longer than "+s.ear.clock.idle.String()))
	}
	count.Timeout("read")
	return with(ClosedProgress, tooSlow("overlay.read", "a frame stopped for "+s.ear.clock.progress.String()))
}

// ask sends a ping.
func (s *Session) ask(now time.Time) {
	e := &s.ear
	e.clock.asked++
	e.asked, e.askedAt = s.Corr(), now
	e.idle = true
	s.ping(e.asked, uint64(now.UnixMilli()))
}

// lost is the end of the connection.
func (s *Session) lost(err error) *parting {
	if err == io.EOF && !s.wire.over {
		if why, _ := s.parting(); why != nil {
			return why // it was over, and the peer was quicker
		}
		return &parting{reason: ClosedEOF}
	}
	if err == io.EOF {
		err = &fault.Error{Op: "overlay.read", Kind: fault.BrokenPipe, Detail: "the connection ended without a word", Err: io.ErrUnexpectedEOF}
	}
	return &parting{reason: ClosedBroken, err: fault.Wrap("overlay.read", err), cut: true}
}

// takeIn takes every frame that is there.
func (s *Session) takeIn() *parting {
	for {
		frame, ready, err := s.ear.frames.NextReady()
		if err != nil {
			return s.refuse(frame, err)
		}
		if !ready {
			return nil
		}
		s.ear.clock.whole()
		if why := s.hear(frame); why != nil {
			return why
		}
	}
}

// refuse parts over a frame that broke a rule.
func (s *Session) refuse(frame oap.Frame, err error) *parting {
	if reason := oap.ReasonOf(err); reason != 0 {
		s.owner.count.Rejected(reason)
	}
	return about(frame, err)
}

// hear finds out what a frame is. What comes by the thousand is recognised
// without an allocation.
func (s *Session) hear(frame oap.Frame) *parting {
	var letter oap.Gossip
	e := &s.ear
	e.idle = false
	switch {
	case letter.Recognise(frame.Payload):
		s.letter(frame, &letter)
		return nil
	case e.data.Recognise(frame.Payload):
		return s.pass(frame, &e.data)
	case e.ack.Recognise(frame.Payload):
		return s.pass(frame, &e.ack)
	case e.ping.Recognise(frame.Payload):
		return s.understand(frame, &e.ping)
	case e.pong.Recognise(frame.Payload):
		return s.understand(frame, &e.pong)
	}
	message, err := oap.Decode(frame.Payload)
	if err != nil {
		return s.refuse(frame, err)
	}
	return s.understand(frame, message)
}

// understand does what a message asks for, or passes it on.
func (s *Session) understand(frame oap.Frame, message oap.Message) *parting {
	switch m := message.(type) {
	case *oap.Gossip:
		s.letter(frame, m)
	case *oap.Ping:
		s.echo(frame, m)
	case *oap.Pong:
		s.measure(frame)
	case *oap.Bye:
		s.farewell()
	case *oap.Error:
		return s.complaint(frame, m)
	case *oap.Unknown:
		if frame.Flags&oap.Req != 0 {
			s.reply(frame, fault.New("overlay.read", fault.Malformed, "unknown kind %s", m.Kind))
		}
	case *oap.Hello, *oap.HelloAck:
		return about(frame, brokenRule("overlay.read", "a %s after the handshake", oap.KindOf(message)))
	default:
		return s.pass(frame, message)
	}
	return nil
}

// letter collects gossip. What it lies in is not read over before all of this go
// is delivered, unless it was inflated: then it is copied. What crossed our own
// bye is ignored, unless the peer has another connection to us: then it may
// believe that the letter has come.
func (s *Session) letter(frame oap.Frame, g *oap.Gossip) {
	if !s.granted(frame) || s.deaf() {
		return
	}
	e := &s.ear
	if e.letters == nil {
		e.letters = lists.Get().(*[]Arrival)
	}
	found := *g
	if e.frames.Inflated() {
		found = g.Clone()
	}
	*e.letters = append(*e.letters, Arrival{Gossip: found, Corr: frame.Corr})
	e.bytes += len(frame.Payload)
}

// deliver hands over the letters that were collected.
func (s *Session) deliver() {
	e := &s.ear
	if e.letters == nil {
		return
	}
	list := e.letters
	s.owner.count.Gossip(received, len(*list), e.bytes)
	e.letters, e.bytes = nil, 0
	s.owner.spec.Handler.Arrived(s, *list)
	clear(*list)
	*list = (*list)[:0]
	lists.Put(list)
}

// granted tells whether the peer may send one more frame of those that start
// something. It is told when not, but not each time.
func (s *Session) granted(frame oap.Frame) bool {
	if s.ear.rate.allow(s.ear.clock.heard) {
		return true
	}
	s.owner.count.Over(1)
	s.Refuse(frame.Corr, fault.New("overlay.read", fault.QuotaExceeded, "more than %d frames a second", s.owner.spec.Peer.MaxRPS))
	return false
}

// deaf tells whether this node drains and takes nothing new.
func (s *Session) deaf() bool {
	if !s.quiet.Load() {
		return false
	}
	why, _ := s.parting()
	return why != nil && (why.reason == ClosedDrain || why.reason == ClosedRemoved)
}

// pass shows a message to the Handler, behind the letters that came before it.
func (s *Session) pass(frame oap.Frame, message oap.Message) *parting {
	s.deliver()
	switch m := message.(type) {
	case *oap.Have, *oap.Want:
		if !s.granted(frame) || s.deaf() {
			return nil
		}
	case *oap.Start:
		if !s.begin(frame, m) {
			return nil
		}
	case *oap.Find:
		if refusal := s.unfit(); refusal != nil {
			s.reply(frame, refusal)
			return nil
		}
	}
	err := s.owner.spec.Handler.Message(s, Incoming{Flags: frame.Flags, Corr: frame.Corr, Message: message})
	if err != nil {
		return s.refuse(frame, err)
	}
	if end, ok := message.(*oap.End); ok {
		s.untrack(end.Stream)
		s.parted()
	}
	return nil
}

// begin decides whether a stream may begin. One that crossed our bye may not.
func (s *Session) begin(frame oap.Frame, start *oap.Start) bool {
	status := fault.Canceled
	if leaving, _ := s.parting(); leaving == nil {
		if status = fault.QuotaExceeded; s.ear.rate.allow(s.ear.clock.heard) {
			s.track(start.Stream)
			return true
		}
		s.owner.count.Over(1)
	}
	_ = s.Tell(Out{Message: &oap.End{Stream: start.Stream, Status: status.Code()}, Flags: oap.Resp, Corr: frame.Corr}) // no room: the peer's patience ends the stream
	return false
}

// unfit says why a question is not passed on: this node drains, or the peer
// sends too much. Nil if it is.
func (s *Session) unfit() error {
	switch {
	case s.deaf():
		return errDraining
	case !s.ear.rate.allow(s.ear.clock.heard):
		s.owner.count.Over(1)
		return fault.New("overlay.read", fault.QuotaExceeded, "more than %d frames a second", s.owner.spec.Peer.MaxRPS)
	}
	return nil
}

// echo answers a ping. The answer goes before everything that waits.
func (s *Session) echo(frame oap.Frame, ping *oap.Ping) {
	if !s.ear.pings.allow(s.ear.clock.heard) {
		s.reply(frame, fault.New("overlay.read", fault.QuotaExceeded, "more than one ping a second"))
		return
	}
	s.ear.idle = true
	if !s.pong(frame.Corr, ping.TS) {
		_ = s.Tell(Out{Message: &oap.Pong{TS: ping.TS}, Flags: oap.Resp, Corr: frame.Corr}) // no room: the peer gets more than it asked for
	}
}

// reply refuses a request; the session goes on.
func (s *Session) reply(frame oap.Frame, err error) {
	_ = s.Tell(Out{Message: oap.ErrorFor(err), Flags: oap.Resp, Corr: frame.Corr}) // no room: the peer gets more than it asked for
}

// measure takes the time of an answer to our last ping.
func (s *Session) measure(frame oap.Frame) {
	s.ear.idle = true
	if e := &s.ear; e.asked != 0 && frame.Corr == e.asked {
		s.rtt.Store(int64(e.clock.heard.Sub(e.askedAt)))
		e.asked = 0
	}
}

// farewell is the peer's bye: it drains. We start nothing with it either, and
// leave when our own streams have ended.
func (s *Session) farewell() {
	s.deliver()
	s.mute.Store(true)
	s.part(&parting{reason: ClosedBye}, false, time.Now().Add(drainMost))
	s.parted()
}

// complaint is an error that the peer sent. One that closes the connection
// will do so; we can as well leave.
func (s *Session) complaint(frame oap.Frame, e *oap.Error) *parting {
	switch {
	case frame.Flags&oap.Resp != 0 || passing(e.Code): // about a request of ours, or it may pass
		return s.pass(frame, e)
	}
	return &parting{reason: ClosedRefused, err: said{e.Err()}}
}

// conclude ends everything, in order: what the Handler, the table and those
// who wait for Done are told is told once, and last.
func (s *Session) conclude(why *parting) {
	if why == nil { // the Handler has panicked
		why = with(ClosedError, errDied)
	}
	s.end(why)
	why = s.ended() // whoever was first
	defer s.owner.gone(s)
	defer s.free()
	defer close(s.done)
	defer s.egress.Retire()
	defer s.permits.Retire()
	if why.cut {
		_ = s.wire.Close()
	} else {
		s.wire.within(time.Now().Add(lastWords))
		discard(s.wire, s.plain)
	}
	<-s.wrote
	_ = s.wire.Close()
	s.owner.left(s)
	s.owner.count.Closed(why.reason)
	s.owner.spec.Handler.Closed(s, why.err)
}
