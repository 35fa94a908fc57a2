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

// Handler receives what sessions read. Its methods are called by the task that
// reads a session, one after the other. While one of them runs nothing is read
// from that peer, so none may take longer than a few milliseconds.
type Handler interface {
	// Opened is the first call for a session.
	Opened(*Session)

	// Gossip delivers all gossip that arrived in one read. The list and the
	// messages in it are valid during the call.
	Gossip(*Session, []IncomingGossip)

	// Message delivers have, want, start, data, ack, end, find and found, and those
	// errors of the peer after which the session goes on: Busy, QuotaExceeded,
	// NotReady, and any that answers a request of ours. The message is valid during
	// the call. An error closes the session and is sent to the peer.
	Message(*Session, Incoming) error

	// Closed is the last call for a session. The error is nil after a normal end.
	Closed(*Session, error)
}

// IncomingGossip is a gossip message that has arrived, with the corr of its frame.
type IncomingGossip struct {
	Gossip oap.Gossip
	Corr   uint64
}

// Incoming is a message that has arrived.
type Incoming struct {
	Flags   oap.Flags
	Corr    uint64
	Message oap.Message
}

// Outgoing is a frame to be sent to the peer. One that OfferGossip, SendControl or
// SendBulk rejects belongs to the caller again, and neither Written nor Release
// is called for it.
type Outgoing struct {
	Message      oap.Message
	Corr         uint64      // 0: the next number is assigned, except to an error, which keeps 0
	Expires      int64       // in milliseconds since 1970; it is not sent later. 0: never expires
	Written      func(error) // called once, when it is written or never will be; may be nil, must not block
	Release      func()      // called once, when the message is no longer read; may be nil, must not block
	Flags        oap.Flags
	RejectIfFull bool // of gossip: without room it is rejected, even where the policy would drop older frames of its class for it
}

// The bands of the queue to a peer. The control band of SendControl goes before
// both.
const (
	Gossip = 1
	Bulk   = 2
)

// Session is a connection to a peer, from the end of its handshake on. Two
// tasks work on it: one reads, and calls the Handler; the other is the only one
// that writes. While the session is idle, the writer sleeps without a goroutine.
type Session struct {
	// set at construction
	owner       *Sessions
	peer        oap.PeerID
	serial      uint64
	dialed      bool
	addr        string
	pq          bool
	since       time.Time
	terms       parameters
	codec       oap.Codec // for what we send
	source      *source   // for what we read
	conn        *tls.Conn // for what we send
	raw         *batchConn
	egress      *flow.Fair[Outgoing]
	permits     *flow.Permits
	releaseConn func()
	pace        *Pace         // nil if the peer is on this machine
	writerDone  chan struct{} // closed when the writer has ended
	done        chan struct{} // closed when both tasks have ended

	reader, writer supervise.Sleeper // the two tasks

	readState    readState   // owned by the task that reads
	expectsMore  bool        // owned by the task that writes: it waits at the queue for more, and does not sleep
	inline       bool        // owned by the task that writes: it runs on the goroutine of a caller, and does not wait
	inFlight     int         // owned by the task that writes: frames that left the queue and are not written yet; each has a permit
	writing      atomic.Bool // a write is in progress
	keepaliveDue atomic.Bool // a ping, a pong or our bye is due
	writerWaits  atomic.Bool // the writer waits at the queue, or is about to
	inlineWriter atomic.Bool // the last offer of gossip was inline: the writer need not wait for more

	corr        atomic.Uint64 // the last number that we used
	rtt         atomic.Int64
	busy        atomic.Bool
	refusesNew  atomic.Bool   // nothing that would start an exchange is enqueued
	byeSeen     atomic.Bool   // nothing that would start an exchange is written: a bye was sent or received
	lastRefusal atomic.Int64  // when the last refusal was sent to the peer
	interrupts  atomic.Uint64 // how often the reader was interrupted

	mu           sync.Mutex  //lockblock:leaf guards the fields below
	cause        *closeCause // not nil: nothing is sent any more but its message
	pendingCause *closeCause // not nil: the session closes when open streams have ended
	byeDue       bool        // our bye is due
	drainBy      time.Time   // when the session closes at the latest
	keepalive    keepalive
	streams      map[uint64]struct{}
}

// Peer returns the ID of the peer.
func (s *Session) Peer() oap.PeerID { return s.peer }

// Serial returns a number that no other session of this process has. It is never 0.
func (s *Session) Serial() uint64 { return s.serial }

// Dialed reports whether we dialled the peer, and not the peer us.
func (s *Session) Dialed() bool { return s.dialed }

// Addr returns the address of the peer.
func (s *Session) Addr() string { return s.addr }

// PQ reports whether the key exchange of this connection was post-quantum.
func (s *Session) PQ() bool { return s.pq }

// RTT returns the last round-trip time that was measured; 0 if there is none.
func (s *Session) RTT() time.Duration { return time.Duration(s.rtt.Load()) }

// MaxFrame returns the largest payload that the peer accepts.
func (s *Session) MaxFrame() int { return s.terms.maxFrame }

// Chunk returns the size of the chunks of object streams.
func (s *Session) Chunk() int { return s.terms.chunk }

// Done is closed when the session has closed and its tasks have ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Busy reports whether the peer was marked as one that cannot take more.
func (s *Session) Busy() bool { return s.busy.Load() }

// SetBusy marks the peer as busy or not.
func (s *Session) SetBusy(busy bool) { s.busy.Store(busy) }

// Corr returns the next number for a frame that we start, for callers that need
// it before the frame is written.
func (s *Session) Corr() uint64 { return s.corr.Add(1) }

// OfferGossip enqueues gossip. All frames of a batch have the same RejectIfFull.
// Frames that find no room are appended to rejected, and so are older ones that
// were dropped to make room. It never waits, unless waitLeft is given: then it
// waits that long for room, and subtracts the time that it waited.
func (s *Session) OfferGossip(batch []flow.FairItem[Outgoing], rejected []Outgoing, waitLeft *time.Duration) []Outgoing {
	return s.offer(batch, rejected, waitLeft, false)
}

// OfferGossipInline is OfferGossip that writes on the caller's goroutine: if the
// writer sleeps, the batch is written before OfferGossipInline returns, as far as
// the connection takes it without waiting.
func (s *Session) OfferGossipInline(batch []flow.FairItem[Outgoing], rejected []Outgoing, waitLeft *time.Duration) []Outgoing {
	return s.offer(batch, rejected, waitLeft, true)
}

func (s *Session) offer(batch []flow.FairItem[Outgoing], rejected []Outgoing, waitLeft *time.Duration, inline bool) []Outgoing {
	if len(batch) == 0 {
		return rejected
	}
	taken, before := 0, len(rejected)
	if !s.refusesNew.Load() {
		taken, rejected = s.offerSome(batch, rejected, inline)
	}
	if taken < len(batch) && waitLeft != nil && *waitLeft > 0 {
		taken, rejected = s.offerWaiting(batch, taken, rejected, waitLeft, inline)
	}
	if rest := batch[taken:]; len(rest) > 0 && !s.refusesNew.Load() && !rest[0].Item.RejectIfFull {
		inline = s.setInlineWriter(inline)
		rejected = s.egress.Offer(Gossip, rest, rejected) // its policy decides
		s.startWriter(inline)
	} else {
		for i := range rest {
			rejected = append(rejected, rest[i].Item)
		}
	}
	if len(rejected) > before && !s.refusesNew.Load() {
		s.owner.counters.Backpressure(backpressureSize(s.egress.Len(Gossip)))
	}
	return rejected
}

// offerWaiting offers the rest of a batch as room becomes free. It waits in two
// halves: if this process had no processor during the first one, the writer had
// none either, and the peer is not to blame.
func (s *Session) offerWaiting(batch []flow.FairItem[Outgoing], taken int, rejected []Outgoing, waitLeft *time.Duration, inline bool) (int, []Outgoing) {
	began, half, more := time.Now(), *waitLeft/2, 0
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), half)
		for taken < len(batch) && !s.refusesNew.Load() && s.egress.AwaitRoom(ctx, Gossip, batch[taken].Cost) == nil {
			more, rejected = s.offerSome(batch[taken:], rejected, inline)
			taken += more
		}
		cancel()
	}
	*waitLeft -= time.Since(began)
	return taken, rejected
}

// offerSome enqueues frames up to the first that finds no room, and returns how
// many.
func (s *Session) offerSome(batch []flow.FairItem[Outgoing], rejected []Outgoing, inline bool) (int, []Outgoing) {
	inline = s.setInlineWriter(inline)
	taken, rejected := s.egress.OfferSome(Gossip, batch, rejected)
	if taken > 0 {
		s.startWriter(inline)
	}
	return taken, rejected
}

// setInlineWriter records whether the caller writes what is enqueued next, before the
// writer wakes up and checks.
func (s *Session) setInlineWriter(inline bool) bool {
	inline = inline && s.raw.sys != nil // without a socket it is unknown whether a write would wait
	if s.inlineWriter.Load() != inline {
		s.inlineWriter.Store(inline)
	}
	return inline
}

// startWriter runs the writer inline, or wakes it.
func (s *Session) startWriter(inline bool) {
	if inline {
		s.writer.RunInline(s.writeInline)
	} else {
		s.writer.Wake()
	}
}

// SendControl enqueues a message in the control band, before everything else. It
// returns Busy when that band is full, and NotReady when the message would start
// an exchange and one of the two peers drains.
func (s *Session) SendControl(out Outgoing) error {
	return s.enqueue(flow.Urgent, 0, controlCost(out.Message), out)
}

// SendBulk enqueues a chunk, or the end of a stream after its chunks. Class is the
// stream, cost its size.
func (s *Session) SendBulk(class uint64, cost int, out Outgoing) error {
	return s.enqueue(Bulk, class, cost, out)
}

func (s *Session) enqueue(band int, class uint64, cost int, out Outgoing) error {
	if s.refusesNew.Load() && startsExchange(out.Message) {
		return errRefusesNew
	}
	start, opens := out.Message.(*oap.Start)
	if opens {
		s.track(start.Stream)
	}
	err := s.egress.TryPush(band, flow.FairItem[Outgoing]{Class: class, Cost: cost, Item: out})
	if err == nil {
		s.writer.Wake()
	} else if opens {
		s.untrack(start.Stream)
	}
	if fault.KindOf(err) == fault.Canceled {
		return errClosed
	}
	return err
}

// Refuse sends the peer an error for something that was not accepted. At most one
// is sent a second; more would be noise.
func (s *Session) Refuse(corr uint64, err error) {
	now, last := time.Now().UnixNano(), s.lastRefusal.Load()
	if now-last < int64(time.Second) || !s.lastRefusal.CompareAndSwap(last, now) {
		return
	}
	_ = s.SendControl(Outgoing{Message: oap.ErrorFor(err), Flags: oap.Event, Corr: corr}) // no room even for that: the next one may get through
}

// CloseWithError closes the session and sends the reason to the peer; nil is a bye.
func (s *Session) CloseWithError(err error) {
	if err == nil {
		s.close(&closeCause{reason: ClosedBye, message: &oap.Bye{Reason: "closing"}, flags: oap.Event, corr: s.Corr()})
		return
	}
	s.close(errorCause(closeReason(err), err))
}

// Expel closes the session because of a message that no honest peer sends. The peer
// gets an error with the corr of that message, and a bye after it, for people.
func (s *Session) Expel(corr uint64, err error) {
	why := frameCause(oap.Frame{Flags: oap.Event, Corr: corr}, err)
	why.byeReason = "forged letter"
	s.close(why)
}

// close makes the session end. The first cause is the one that counts. The queue is
// closed, and writer and reader are woken.
func (s *Session) close(why *closeCause) {
	s.mu.Lock()
	first := s.cause == nil
	if first {
		s.cause = why
	}
	s.mu.Unlock()
	if first {
		s.refusesNew.Store(true)
		s.owner.deactivate(s)
		s.egress.Close()
		s.writer.Wake()
		s.interruptReader()
	}
}

// drain makes the session close as soon as no stream is open, at the latest at the
// given time. With bye, a bye is sent first.
func (s *Session) drain(why *closeCause, bye bool, latest time.Time) {
	s.mu.Lock()
	if s.pendingCause == nil {
		s.pendingCause, s.byeDue, s.drainBy = why, bye, latest
	} else if latest.Before(s.drainBy) {
		s.drainBy = latest
	}
	s.mu.Unlock()
	s.refusesNew.Store(true)
	s.owner.deactivate(s)
	s.wakeWriter()
	s.interruptReader()
}

// drainAlone drains this session, and no other, with a bye.
func (s *Session) drainAlone(reason CloseReason) {
	s.drain(&closeCause{reason: reason}, true, time.Now().Add(drainTimeout))
}

// interruptReader makes the reader check the state of the session again.
func (s *Session) interruptReader() {
	s.interrupts.Add(1)
	_ = s.raw.SetReadDeadline(longAgo) // fails on a closed connection only
}

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)

// closedBy returns why the session closes, or nil.
func (s *Session) closedBy() *closeCause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// drainState returns why the session drains, or nil, and until when it may.
func (s *Session) drainState() (*closeCause, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pendingCause, s.drainBy
}

// closeDeadline returns until when the peer may read why the session closes. A peer
// that hangs must not use up the time of a drain, so it gets a quarter of that at
// most, and a tenth of closeGrace in any case.
func (s *Session) closeDeadline() time.Time {
	patience := closeGrace
	if why, latest := s.drainState(); why != nil {
		patience = min(closeGrace, max(time.Until(latest)/4, closeGrace/10))
	}
	return time.Now().Add(patience)
}

// track records that a stream is open.
func (s *Session) track(stream uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[uint64]struct{}{}
	}
	if len(s.streams) < maxTrackedStreams {
		s.streams[stream] = struct{}{}
	}
}

// maxTrackedStreams is far above the limit of package stream. It bounds the cost
// of a Handler that fails to refuse streams.
const maxTrackedStreams = 4096

func (s *Session) untrack(stream uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
}

// closeIfDrained closes a session that drains, if its bye was sent and no stream is open.
func (s *Session) closeIfDrained() {
	s.mu.Lock()
	why := s.pendingCause
	if s.byeDue || len(s.streams) > 0 {
		why = nil
	}
	s.mu.Unlock()
	if why != nil {
		s.close(why)
	}
}

// startsExchange reports whether a message starts an exchange, which is not allowed
// after a bye.
func startsExchange(m oap.Message) bool {
	switch m.(type) {
	case *oap.Gossip, *oap.Have, *oap.Want, *oap.Start, *oap.Find, *oap.Introduce, *oap.Ping:
		return true
	}
	return false
}

// controlCost returns about how many bytes a message of the control band takes.
func controlCost(m oap.Message) int {
	const small, id = 128, 34
	switch m := m.(type) {
	case *oap.Have:
		return small + id*len(m.IDs)
	case *oap.Want:
		return small + id*len(m.IDs)
	case *oap.Find:
		return small + len(m.Obj)
	case *oap.Introduce:
		cost := small
		for _, one := range m.Nodes {
			cost += len(one)
		}
		return cost
	case *oap.Error:
		return small + len(m.Msg)
	}
	return small
}
