package stream

import (
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// streamTable is the open streams of one session. A number is in it from the
// start of its stream until the first end, from either side. The one that
// removes it ends the stream; later ends do nothing. Maps are made with the
// first stream: most sessions never have one.
type streamTable struct {
	// set at construction
	streams *Streams
	peer    Peer
	chunk   int    // how many bytes all chunks but the last have
	parity  uint64 // 1 if the numbers of this node are odd, 0 if they are even

	mu          sync.Mutex // a few assignments, never a callback
	closed      bool
	next        uint64 // the number of the next stream that this node requests
	senderTasks int    // tasks that send, including those whose stream has ended
	receivers   map[uint64]*receiver
	senders     map[uint64]*sender
}

func newStreamTable(s *Streams, peer Peer) *streamTable {
	t := &streamTable{streams: s, peer: peer, chunk: min(max(peer.Chunk(), 1), oap.Chunk), next: 2}
	if peer.Dialed() {
		t.parity, t.next = 1, 1
	}
	return t
}

// handleStart opens a stream on which this node sends, or refuses it.
func (t *streamTable) handleStart(m *oap.Start, corr uint64) error {
	if m.Stream&1 == t.parity {
		return protocolError("start of stream %d, a number that is not the asker's to choose", m.Stream)
	}
	g := newSender(t, m, corr)
	refusal, err := t.admit(g, m.Obj)
	if err != nil {
		return err
	}
	t.streams.countStart(Tx)
	if refusal == nil {
		if refusal = t.streams.spec.Senders.Go(g.run); refusal != nil {
			t.taskDone()
			t.removeSender(g)
		}
	}
	if refusal != nil {
		g.refuse(refusal)
	}
	return nil
}

// admit enters a stream that a peer requests. A refusal is sent to the peer; an
// error says that it broke a rule.
func (t *streamTable) admit(g *sender, object string) (refusal, err error) {
	text, view := oap.CutView(object)
	address, malformed := b3.Parse(text)
	g.address, g.view = address, view
	t.mu.Lock()
	defer t.mu.Unlock()
	most := t.streams.spec.PerPeer
	switch {
	case t.senders[g.number] != nil:
		return nil, protocolError("start of stream %d, which is open", g.number)
	case t.streams.draining.Load() || t.closed:
		return fault.New(opGive, fault.Canceled, "this node is draining"), nil
	case len(t.senders) >= most, t.senderTasks >= 2*most:
		return fault.New(opGive, fault.QuotaExceeded, "%d streams are open", most), nil
	case malformed != nil:
		return malformed, nil
	case !t.streams.hasRoom(t.peer.Pace().SendLimit(), t.chunk):
		return fault.New(opGive, fault.Busy, "this node's limit of bandwidth has no room for one more stream"), nil
	}
	if t.senders == nil {
		t.senders = map[uint64]*sender{}
	}
	t.senders[g.number] = g
	t.senderTasks++
	return nil, nil
}

// taskDone counts out a task that sent, or that never began to.
func (t *streamTable) taskDone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.senderTasks--
}

// removeSender ends a stream on which this node sends. It reports false if it
// had ended before.
func (t *streamTable) removeSender(g *sender) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.senders[g.number] != g {
		return false
	}
	delete(t.senders, g.number)
	return true
}

// handleData handles a chunk of a stream that this node requested.
func (t *streamTable) handleData(m *oap.Data) error {
	t.mu.Lock()
	k := t.receivers[m.Stream]
	if k == nil {
		theirs := t.senders[m.Stream] != nil
		t.mu.Unlock()
		if theirs {
			return protocolError("data for stream %d from the side that asked", m.Stream)
		}
		return nil // it crossed an end
	}
	err := k.checkChunk(m)
	if err != nil {
		delete(t.receivers, m.Stream)
	}
	t.mu.Unlock()
	if err != nil {
		k.finish(fault.Malformed.Code(), fault.WrapKind(opFetch, fault.UpstreamFailed, err))
		return err
	}
	k.deliver(m.Bytes)
	return nil
}

// handleAck adds credit to a stream on which this node sends.
func (t *streamTable) handleAck(m *oap.Ack) error {
	t.mu.Lock()
	g := t.senders[m.Stream]
	if g == nil {
		ours := t.receivers[m.Stream] != nil
		t.mu.Unlock()
		if ours {
			return protocolError("ack for stream %d from the side that gives", m.Stream)
		}
		return nil // it crossed an end
	}
	if sent := g.announced; m.UpTo >= sent {
		t.mu.Unlock()
		return protocolError("ack of chunk %d of stream %d, of which %d were sent", m.UpTo, m.Stream, sent)
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

// handleEnd handles the end of a stream from either side.
func (t *streamTable) handleEnd(m *oap.End) error {
	t.mu.Lock()
	k, g := t.receivers[m.Stream], t.senders[m.Stream]
	delete(t.receivers, m.Stream)
	delete(t.senders, m.Stream)
	t.mu.Unlock()
	if k != nil {
		k.finish(labelOf(m.Status), k.endError(m))
	}
	if g != nil {
		g.abort(labelOf(m.Status), fault.New(opGive, fault.Canceled, "the peer disconnected"))
	}
	return nil
}

// handleError handles an error with which a peer answers a start in place of an
// end. The stream is over here, and the end that is sent tells that to the
// session and to a peer that thinks otherwise.
func (t *streamTable) handleError(m *oap.Error, corr uint64) {
	t.mu.Lock()
	k := t.receivers[corr&^corrBit]
	if k == nil || k.corr() != corr {
		t.mu.Unlock()
		return // it crossed an end, or is about something else
	}
	delete(t.receivers, k.number)
	next := k.next
	t.mu.Unlock()
	status := statusOf(m.Err())
	k.finish(labelOf(status), refusalOf(status, t.peer.Peer(), k.address))
	_ = t.peer.SendControl(session.Outgoing{Message: &oap.End{Stream: k.number, Seq: next, Status: fault.Canceled.Code()}, Flags: oap.Event, Corr: corr})
}

// request opens a stream on which this node receives, and sends its start.
// After a nil error the session may still drop the start, if it drains before
// its turn comes; then the stream ends as if the peer had refused.
func (t *streamTable) request(k *receiver, from, length int64) error {
	if err := t.register(k); err != nil {
		return err
	}
	t.streams.countStart(Rx)
	err := t.peer.SendControl(session.Outgoing{
		Message: &oap.Start{Stream: k.number, Obj: k.object(), From: uint64(from), Length: uint64(length)}, Flags: oap.Req, Corr: k.corr(),
		Written: func(err error) {
			if err != nil && t.removeReceiver(k) {
				k.finish(labelOf(statusOf(err)), sendError(err))
			}
		},
	})
	if err == nil {
		return nil
	}
	if t.removeReceiver(k) {
		k.finish(labelOf(statusOf(err)), nil) // the stream was never read
	}
	return sendError(err)
}

// register gives a stream its number and enters it into the table.
func (t *streamTable) register(k *receiver) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errSessionLost
	}
	if most := t.streams.spec.PerPeer; len(t.receivers) >= most {
		return fault.New(opFetch, fault.Busy, "%d streams are open at this peer", most)
	}
	if t.receivers == nil {
		t.receivers = map[uint64]*receiver{}
	}
	k.number, k.creditLimit, k.lastProgress = t.next, oap.Window, time.Now()
	t.next += 2
	t.receivers[k.number] = k
	return nil
}

// removeReceiver ends a stream on which this node receives. It reports false if
// it had ended before.
func (t *streamTable) removeReceiver(k *receiver) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.receivers[k.number] != k {
		return false
	}
	delete(t.receivers, k.number)
	return true
}

// close ends all streams: their connection was lost.
func (t *streamTable) close() {
	t.mu.Lock()
	t.closed = true
	takings, givings := t.receivers, t.senders
	t.receivers, t.senders = nil, nil
	t.mu.Unlock()
	for _, k := range takings {
		k.finish(labelLost, errSessionLost)
	}
	for _, g := range givings {
		g.abort(labelLost, errSessionLost)
	}
}
