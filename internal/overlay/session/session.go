package session

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

// Handler is what sessions are for. Its methods are called by the task that
// reads a session, one after the other. While one of them runs nothing is read
// from that peer, so none may take longer than a few milliseconds.
type Handler interface {
	// Opened comes before anything else of a session.
	Opened(*Session)

	// Arrived brings gossip, all that was there in one go. The list and the
	// letters in it are valid during the call.
	Arrived(*Session, []Arrival)

	// Message brings have, want, start, data, ack, end, find and found, and those
	// errors of the peer after which the session goes on: Busy, QuotaExceeded,
	// NotReady, and any that answers a request of ours. The message is valid during the call. An error ends the session, and the
	// peer is told.
	Message(*Session, Incoming) error

	// Closed comes after everything else. The error is nil after a normal end.
	Closed(*Session, error)
}

// Arrival is a letter that has come, in its envelope.
type Arrival struct {
	Gossip oap.Gossip
	Corr   uint64
}

// Incoming is a message that has come.
type Incoming struct {
	Flags   oap.Flags
	Corr    uint64
	Message oap.Message
}

// Out is a frame on its way to the peer. One that is turned away at once, by
// Post, Tell or Give, is the caller's again, and neither Written nor Release is
// called for it.
type Out struct {
	Message oap.Message
	Corr    uint64      // 0: it gets the next number. That of an error stays as it is
	Expires int64       // in milliseconds since 1970; later than that it is not sent. 0: never
	Written func(error) // called once, when it is written or never will be; may be nil, must not block
	Release func()      // called once, when the message is not looked at any more; the same
	Flags   oap.Flags

	permit bool // it holds one
}

// The bands of what waits for a peer. What Tell is given goes before both.
const (
	Gossip = 1
	Chunks = 2
)

// Session is a connection to a peer, from the end of its handshake on. Two
// tasks work on it: one reads, and calls the Handler; the other writes, and
// nobody else does. While the session is quiet, the one that writes sleeps
// without a goroutine.
type Session struct {
	// set at construction
	owner   *Sessions
	peer    oap.PeerID
	serial  uint64
	dialed  bool
	addr    string
	pq      bool
	since   time.Time
	terms   terms
	codec   oap.Codec // for what we send
	plain   *source   // what comes
	conn    *tls.Conn // for what we send
	wire    *wire
	egress  *flow.Fair[Out]
	permits *flow.Permits
	free    func()
	wrote   chan struct{} // closed when the writer has ended
	done    chan struct{} // closed when all is over

	reader, writer supervise.Sleeper // the two tasks

	ear     ear         // owned by the task that reads
	lively  bool        // owned by the task that writes: it waits for more, and does not sleep
	here    bool        // owned by the task that writes: it is on somebody else's goroutine, and does not wait
	inUse   atomic.Bool // somebody writes
	owes    atomic.Bool // there is small talk to write, or our bye
	lingers atomic.Bool // the writer waits at the queue, or is about to
	lent    atomic.Bool // who had gossip last wrote it, too: the writer need not wait for more

	corr  atomic.Uint64 // the last number that we used
	rtt   atomic.Int64
	busy  atomic.Bool
	quiet atomic.Bool   // nothing new is taken that would start something
	mute  atomic.Bool   // nothing is written that would start something: a bye went one way or the other
	told  atomic.Int64  // when the peer was last told that it was refused
	kicks atomic.Uint64 // how often the reader was asked to look up

	mu      sync.Mutex //lockblock:leaf guards the fields below
	over    *parting   // not nil: nothing is sent any more but the last words
	leaving *parting   // not nil: open streams may end, and then it is over
	bye     bool       // our bye is due
	leaveBy time.Time  // when it is over at the latest
	talk    talk
	streams map[uint64]struct{}
}

// Peer is who is at the other end.
func (s *Session) Peer() oap.PeerID { return s.peer }

// Serial is a number that no other session of this process has. It is never 0.
func (s *Session) Serial() uint64 { return s.serial }

// Dialed tells whether we called the peer, and not the peer us.
func (s *Session) Dialed() bool { return s.dialed }

// Addr is the address at the other end.
func (s *Session) Addr() string { return s.addr }

// PQ tells whether the keys of this connection are safe from quantum computers.
func (s *Session) PQ() bool { return s.pq }

// RTT is how long the last question took to be answered; 0 if none was asked.
func (s *Session) RTT() time.Duration { return time.Duration(s.rtt.Load()) }

// MaxFrame is the largest payload that the peer takes.
func (s *Session) MaxFrame() int { return s.terms.frame }

// Chunk is the size of the chunks of object streams.
func (s *Session) Chunk() int { return s.terms.chunk }

// Done is closed when the session is over and its tasks have ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Busy tells whether the peer was marked as one that cannot take more.
func (s *Session) Busy() bool { return s.busy.Load() }

// SetBusy marks the peer.
func (s *Session) SetBusy(busy bool) { s.busy.Store(busy) }

// Corr is the next number for a frame that we start, for whoever must know it
// before the frame is written.
func (s *Session) Corr() uint64 { return s.corr.Add(1) }

// Post offers gossip. Each frame takes a permit, which it keeps until it is
// written, and a place in the queue. What gets neither is appended to turned, and
// so are older ones that had to make room. It never waits, unless it is given
// patience: so long it waits for permits, and takes off it what that took.
func (s *Session) Post(batch []flow.Parcel[Out], turned []Out, patience *time.Duration) []Out {
	return s.post(batch, turned, patience, false)
}

// PostHere is Post for who has nothing better to do than to write what it offers:
// if nobody else is at it, it is written before PostHere returns, as far as the
// connection takes it without waiting.
func (s *Session) PostHere(batch []flow.Parcel[Out], turned []Out, patience *time.Duration) []Out {
	return s.post(batch, turned, patience, true)
}

func (s *Session) post(batch []flow.Parcel[Out], turned []Out, patience *time.Duration, here bool) []Out {
	granted := 0
	if !s.quiet.Load() {
		granted = s.permits.TryAcquire(len(batch))
		turned = s.offer(batch[:granted], turned, here)
	}
	if granted < len(batch) && patience != nil && *patience > 0 {
		granted, turned = s.postPatiently(batch, granted, turned, patience, here)
	}
	if granted < len(batch) && !s.quiet.Load() {
		s.owner.count.Backpressure(pressure(s.egress.Len(Gossip)))
	}
	for i := range batch[granted:] {
		turned = append(turned, batch[granted+i].Item)
	}
	return turned
}

// postPatiently offers the rest of a batch as permits come back. It waits in two
// halves: if this process was not given a processor for as long as the first one
// took, the writer was not either, and it is not the peer's fault.
func (s *Session) postPatiently(batch []flow.Parcel[Out], granted int, turned []Out, patience *time.Duration, here bool) (int, []Out) {
	began, half := time.Now(), *patience/2
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), half)
		for granted < len(batch) && !s.quiet.Load() {
			more, err := s.permits.AcquireSome(ctx, len(batch)-granted)
			if err != nil {
				break
			}
			turned = s.offer(batch[granted:granted+more], turned, here)
			granted += more
		}
		cancel()
	}
	*patience -= time.Since(began)
	return granted, turned
}

// offer puts frames that have their permits into the queue. Those that are
// turned away give them back.
func (s *Session) offer(batch []flow.Parcel[Out], turned []Out, here bool) []Out {
	if len(batch) == 0 {
		return turned
	}
	for i := range batch {
		batch[i].Item.permit = true
	}
	before := len(turned)
	here = here && s.wire.raw != nil // without a socket nobody can tell whether a write would wait
	if s.lent.Load() != here {
		s.lent.Store(here) // before the writer wakes up and looks
	}
	turned = s.egress.Offer(Gossip, batch, turned)
	if here {
		s.writer.Here(s.writeHere)
	} else {
		s.writer.Wake()
	}
	if back := len(turned) - before; back > 0 {
		for i := range turned[before:] {
			turned[before+i].permit = false
		}
		s.permits.ReleaseMany(back)
	}
	return turned
}

// Tell sends something that goes before everything else. It is Busy when too
// much of that waits, and NotReady when it would start something and one of the
// two drains.
func (s *Session) Tell(out Out) error { return s.push(flow.Urgent, 0, sizeOf(out.Message), out) }

// Give sends a chunk, or the end of a stream behind its chunks. Class is the
// stream, cost its size.
func (s *Session) Give(class uint64, cost int, out Out) error {
	return s.push(Chunks, class, cost, out)
}

func (s *Session) push(band int, class uint64, cost int, out Out) error {
	if s.quiet.Load() && starts(out.Message) {
		return errQuiet
	}
	start, opens := out.Message.(*oap.Start)
	if opens {
		s.track(start.Stream)
	}
	err := s.egress.TryPush(band, flow.Parcel[Out]{Class: class, Cost: cost, Item: out})
	if err == nil {
		s.writer.Wake()
	} else if opens {
		s.untrack(start.Stream)
	}
	if fault.KindOf(err) == fault.Canceled {
		return errEnded
	}
	return err
}

// Refuse tells the peer that something it sent was not taken. More than one a
// second would be noise, so the others are left out.
func (s *Session) Refuse(corr uint64, err error) {
	now, last := time.Now().UnixNano(), s.told.Load()
	if now-last < int64(time.Second) || !s.told.CompareAndSwap(last, now) {
		return
	}
	_ = s.Tell(Out{Message: oap.ErrorFor(err), Flags: oap.Event, Corr: corr}) // no room even for that: the next one may get through
}

// End ends the session and tells the peer why; nil is a bye.
func (s *Session) End(err error) {
	if err == nil {
		s.end(&parting{reason: ClosedBye, words: &oap.Bye{Reason: "closing"}, flags: oap.Event, corr: s.Corr()})
		return
	}
	s.end(with(closeReason(err), err))
}

// Expel ends the session over a letter that no honest peer hands over. The peer is
// told which one it was, by an error with the letter's number, and people are told
// by the bye behind it.
func (s *Session) Expel(corr uint64, err error) {
	why := about(oap.Frame{Flags: oap.Event, Corr: corr}, err)
	why.bye = "forged letter"
	s.end(why)
}

// end makes the session end. The first cause is the one that counts. The writer
// finds its queue closed, the reader is woken up.
func (s *Session) end(why *parting) {
	s.mu.Lock()
	first := s.over == nil
	if first {
		s.over = why
	}
	s.mu.Unlock()
	if first {
		s.quiet.Store(true)
		s.owner.renew(s)
		s.egress.Close()
		s.writer.Wake()
		s.kick()
	}
}

// part makes the session end as soon as no stream is open, at the latest when
// the time has come. With bye, the peer is told first.
func (s *Session) part(why *parting, bye bool, latest time.Time) {
	s.mu.Lock()
	if s.leaving == nil {
		s.leaving, s.bye, s.leaveBy = why, bye, latest
	} else if latest.Before(s.leaveBy) {
		s.leaveBy = latest
	}
	s.mu.Unlock()
	s.quiet.Store(true)
	s.owner.renew(s)
	s.rouse()
	s.kick()
}

// kick makes the reader look up from what it waits for.
func (s *Session) kick() {
	s.kicks.Add(1)
	_ = s.wire.SetReadDeadline(long) // fails on a closed connection only
}

// long is long ago.
var long = time.Unix(1, 0)

// ended is why the session is over, or nil.
func (s *Session) ended() *parting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// parting is why the session drains, or nil, and until when it may.
func (s *Session) parting() (*parting, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving, s.leaveBy
}

// track remembers that a stream is open.
func (s *Session) track(stream uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[uint64]struct{}{}
	}
	if len(s.streams) < mostStreams {
		s.streams[stream] = struct{}{}
	}
}

// mostStreams is far above what streams allow themselves. It bounds what a
// Handler that forgets to refuse could cost.
const mostStreams = 4096

func (s *Session) untrack(stream uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
}

// parted ends a session that drains, if its bye was sent and no stream is open.
func (s *Session) parted() {
	s.mu.Lock()
	why := s.leaving
	if s.bye || len(s.streams) > 0 {
		why = nil
	}
	s.mu.Unlock()
	if why != nil {
		s.end(why)
	}
}

// starts tells whether a message starts something, which nobody does after a
// bye.
func starts(m oap.Message) bool {
	switch m.(type) {
	case *oap.Gossip, *oap.Have, *oap.Want, *oap.Start, *oap.Find, *oap.Ping:
		return true
	}
	return false
}

// sizeOf is about how many bytes a message of the control band takes.
func sizeOf(m oap.Message) int {
	const small, id = 128, 34
	switch m := m.(type) {
	case *oap.Have:
		return small + id*len(m.IDs)
	case *oap.Want:
		return small + id*len(m.IDs)
	case *oap.Find:
		return small + len(m.Obj)
	case *oap.Error:
		return small + len(m.Msg)
	}
	return small
}
