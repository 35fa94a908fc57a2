package stream

import (
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// table is the open streams of one session. A number is in it from the start of
// its stream until the first end, whoever sends that. Whoever takes it out is
// the one who ends the stream; all others come too late and do nothing. Maps
// are made with the first stream: most sessions never have one.
type table struct {
	// set at construction
	streams *Streams
	peer    Peer
	chunk   int    // how many bytes all chunks but the last have
	odd     uint64 // 1 if the numbers that we choose are odd, 0 if they are even

	mu      sync.Mutex // a few assignments, never a call that tells somebody
	closed  bool
	next    uint64 // the number of the next stream that we ask for
	running int    // tasks that give, those whose stream has ended included
	takings map[uint64]*taking
	givings map[uint64]*giving
}

func newTable(s *Streams, peer Peer) *table {
	t := &table{streams: s, peer: peer, chunk: min(max(peer.Chunk(), 1), oap.Chunk), next: 2}
	if peer.Dialed() {
		t.odd, t.next = 1, 1
	}
	return t
}

// start opens a stream on which we give, or refuses it.
func (t *table) start(m *oap.Start, corr uint64) error {
	if m.Stream&1 == t.odd {
		return broken("start of stream %d, a number that is not the asker's to choose", m.Stream)
	}
	g := newGiving(t, m, corr)
	refusal, err := t.admit(g, m.Obj)
	if err != nil {
		return err
	}
	t.streams.began(Tx)
	if refusal == nil {
		if refusal = t.streams.spec.Givers.Go(g.run); refusal != nil {
			t.stopped()
			t.dropGiving(g)
		}
	}
	if refusal != nil {
		g.refuse(refusal)
	}
	return nil
}

// admit enters a stream that a peer wants. A refusal is for the peer to hear;
// an error says that it broke a rule.
func (t *table) admit(g *giving, object string) (refusal, err error) {
	address, malformed := b3.Parse(object)
	g.address = address
	t.mu.Lock()
	defer t.mu.Unlock()
	most := t.streams.spec.PerPeer
	switch {
	case t.givings[g.number] != nil:
		return nil, broken("start of stream %d, which is open", g.number)
	case t.streams.draining.Load() || t.closed:
		return fault.New(opGive, fault.Canceled, "this node is draining"), nil
	case len(t.givings) >= most, t.running >= 2*most:
		return fault.New(opGive, fault.QuotaExceeded, "%d streams are open", most), nil
	case malformed != nil:
		return malformed, nil
	}
	if t.givings == nil {
		t.givings = map[uint64]*giving{}
	}
	t.givings[g.number] = g
	t.running++
	return nil, nil
}

// stopped counts out a task that gave, or that never began to.
func (t *table) stopped() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}

// dropGiving ends a stream on which we give. It reports false if somebody was
// first.
func (t *table) dropGiving(g *giving) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.givings[g.number] != g {
		return false
	}
	delete(t.givings, g.number)
	return true
}

// data takes a chunk for a stream on which we asked.
func (t *table) data(m *oap.Data) error {
	t.mu.Lock()
	k := t.takings[m.Stream]
	if k == nil {
		theirs := t.givings[m.Stream] != nil
		t.mu.Unlock()
		if theirs {
			return broken("data for stream %d from the side that asked", m.Stream)
		}
		return nil // it crossed an end
	}
	err := k.take(m)
	if err != nil {
		delete(t.takings, m.Stream)
	}
	t.mu.Unlock()
	if err != nil {
		k.finish(fault.Malformed.Code(), fault.WrapKind(opFetch, fault.UpstreamFailed, err))
		return err
	}
	k.land(m.Bytes)
	return nil
}

// ack takes credit for a stream on which we give.
func (t *table) ack(m *oap.Ack) error {
	t.mu.Lock()
	g := t.givings[m.Stream]
	if g == nil {
		ours := t.takings[m.Stream] != nil
		t.mu.Unlock()
		if ours {
			return broken("ack for stream %d from the side that gives", m.Stream)
		}
		return nil // it crossed an end
	}
	if sent := g.sent; m.UpTo >= sent {
		t.mu.Unlock()
		return broken("ack of chunk %d of stream %d, of which %d were sent", m.UpTo, m.Stream, sent)
	}
	fresh := 0
	if m.UpTo >= g.acked {
		fresh = int(m.UpTo + 1 - g.acked) // at most the window: no more were sent
		g.acked = m.UpTo + 1
	}
	t.mu.Unlock()
	if fresh > 0 {
		g.credit.ReleaseMany(fresh)
	}
	return nil
}

// end takes the end of a stream from either side.
func (t *table) end(m *oap.End) error {
	t.mu.Lock()
	k, g := t.takings[m.Stream], t.givings[m.Stream]
	delete(t.takings, m.Stream)
	delete(t.givings, m.Stream)
	t.mu.Unlock()
	if k != nil {
		k.finish(labelOf(m.Status), k.verdict(m))
	}
	if g != nil {
		g.abandon(labelOf(m.Status), fault.New(opGive, fault.Canceled, "the peer left"))
	}
	return nil
}

// refused takes the error with which a peer answers our start in place of an
// end. It is over for us, and the end that we send says so to the session and to
// a peer that thinks otherwise.
func (t *table) refused(m *oap.Error, corr uint64) {
	t.mu.Lock()
	k := t.takings[corr&^corrSpace]
	if k == nil || k.corr() != corr {
		t.mu.Unlock()
		return // it crossed an end, or is about something else
	}
	delete(t.takings, k.number)
	next := k.next
	t.mu.Unlock()
	status := statusOf(m.Err())
	k.finish(labelOf(status), refusalOf(status, t.peer.Peer(), k.address))
	_ = t.peer.Tell(session.Out{Message: &oap.End{Stream: k.number, Seq: next, Status: fault.Canceled.Code()}, Flags: oap.Event, Corr: corr})
}

// ask opens a stream on which we take, and tells the peer. After a nil error the
// session may still drop the start, if it drains before its turn comes; then
// the stream ends as if the peer had refused.
func (t *table) ask(k *taking, from int64) error {
	if err := t.enter(k); err != nil {
		return err
	}
	t.streams.began(Rx)
	err := t.peer.Tell(session.Out{
		Message: &oap.Start{Stream: k.number, Obj: k.address.String(), From: uint64(from)}, Flags: oap.Req, Corr: k.corr(),
		Written: func(err error) {
			if err != nil && t.dropTaking(k) {
				k.finish(labelOf(statusOf(err)), unasked(err))
			}
		},
	})
	if err == nil {
		return nil
	}
	if t.dropTaking(k) {
		k.finish(labelOf(statusOf(err)), nil) // nobody reads it
	}
	return unasked(err)
}

// enter gives a stream its number.
func (t *table) enter(k *taking) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return gone
	}
	if most := t.streams.spec.PerPeer; len(t.takings) >= most {
		return fault.New(opFetch, fault.Busy, "%d streams are open at this peer", most)
	}
	if t.takings == nil {
		t.takings = map[uint64]*taking{}
	}
	k.number, k.granted, k.heard = t.next, oap.Window, time.Now()
	t.next += 2
	t.takings[k.number] = k
	return nil
}

// dropTaking ends a stream on which we take. It reports false if somebody was
// first.
func (t *table) dropTaking(k *taking) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.takings[k.number] != k {
		return false
	}
	delete(t.takings, k.number)
	return true
}

// close ends all streams: their connection is gone.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	takings, givings := t.takings, t.givings
	t.takings, t.givings = nil, nil
	t.mu.Unlock()
	for _, k := range takings {
		k.finish(lost, gone)
	}
	for _, g := range givings {
		g.abandon(lost, gone)
	}
}
