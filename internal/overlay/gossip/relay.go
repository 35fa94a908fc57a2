package gossip

import (
	"math"
	"math/rand/v2"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// choosePeers chooses the peers that a message is relayed to, at random among
// those that are not pruned, do not have it and are not its publisher, and adds
// it to their outboxes. A large one is announced.
//
// It shuffles only as far as it must. The order that is left behind is as good
// a start for the next message as any.
func (b *batchState) choosePeers(m *storedMessage) {
	left, oversize := m.envelope.Fanout, 0
	for i := 0; i < len(b.shuffled) && left > 0; i++ {
		to := b.drawPeer(i)
		if to.pruned.Load() || to.id == *m.publisher || m.hasHolder(to.serial) {
			continue
		}
		if !m.fits(to) {
			oversize++
			continue
		}
		left--
		m.addHolder(to.serial)
		of := b.outboxes[to]
		if of == nil {
			of = b.newOutbox()
			b.outboxes[to] = of
		}
		if len(m.envelope.Msg) > int(b.engine.config.HaveBytes) {
			of.largeIDs, of.large = append(of.largeIDs, m.messageID()), append(of.large, m)
		} else {
			of.frames, of.messages = append(of.frames, m.outgoing(to, false)), append(of.messages, m)
		}
	}
	if oversize > 0 {
		b.engine.counters.Dropped(DropOversize, oversize)
	}
}

// drawPeer puts one of the links that were not drawn yet at index i.
func (b *batchState) drawPeer(i int) *link {
	if left := len(b.shuffled) - i; left > 1 {
		j := i + rand.IntN(left)
		b.shuffled[i], b.shuffled[j] = b.shuffled[j], b.shuffled[i]
	}
	return b.shuffled[i]
}

func (b *batchState) newOutbox() *outbox {
	if n := len(b.freeOutboxes); n > 0 {
		of := b.freeOutboxes[n-1]
		b.freeOutboxes = b.freeOutboxes[:n-1]
		return of
	}
	return &outbox{}
}

// outgoing is a message for the queue of a peer. All peers get the same
// envelope. With refuse, a full queue rejects it: it goes to this peer alone,
// or is kept until there is room. For a relayed one the drop policy decides.
func (s *storedMessage) outgoing(to *link, refuse bool) flow.FairItem[session.Outgoing] {
	out := session.Outgoing{Message: &s.envelope, Flags: oap.Event, Expires: s.expires, Written: to.written, RejectIfFull: refuse}
	if s.buffer != nil {
		s.buffer.ref()
		out.Release = s.buffer.release
	}
	return flow.FairItem[session.Outgoing]{Class: s.class, Cost: s.cost(), Item: out}
}

// flush sends every peer its outbox, once, and stores what was accepted.
//
// Messages go out before they get their number, so one that a peer rejected has
// a number that was not announced yet. Large ones are announced after that,
// because a peer that asks for one must find it.
//
// A reader writes to the last of the peers itself. The writers of the other
// peers run meanwhile.
func (b *batchState) flush() {
	e := b.engine
	b.flushDeliveries()
	left := len(b.outboxes)
	for to, of := range b.outboxes {
		left--
		b.flushOutbox(to, of, b.fromReader && left == 0)
	}
	if len(b.accepted) > 0 {
		e.addToHistory(b.accepted)
		e.counters.Taken(len(b.accepted))
	}
	for to, of := range b.outboxes {
		b.announceLarge(to, of)
		of.reset()
		b.freeOutboxes = append(b.freeOutboxes, of)
	}
	clear(b.outboxes)
	clear(b.accepted)
	b.accepted = b.accepted[:0]
	for _, buffer := range b.buffers {
		buffer.unref()
	}
	clear(b.buffers)
	b.buffers = b.buffers[:0]
	if b.duplicates > 0 {
		e.counters.Duplicate(b.duplicates)
		b.duplicates = 0
	}
}

func (o *outbox) reset() {
	clear(o.frames)
	clear(o.messages)
	clear(o.large)
	o.frames, o.messages, o.large, o.largeIDs, o.requested = o.frames[:0], o.messages[:0], o.large[:0], o.largeIDs[:0], false
}

// flushOutbox sends a peer its messages and returns how many of them it
// accepted.
func (b *batchState) flushOutbox(to *link, of *outbox, inline bool) int {
	if len(of.frames) == 0 {
		return 0
	}
	accepted, displaced := b.offerOutbox(to, of, inline)
	if dropped := len(of.messages) - accepted + displaced; dropped > 0 {
		b.engine.counters.Dropped(DropEgress, dropped)
	}
	if accepted > 0 {
		b.engine.counters.Relayed(accepted)
	}
	return accepted
}

// offerOutbox offers a peer its messages. It returns how many of them it
// accepted, and how many older ones they displaced from its queue. With inline
// this task writes them, if the writer of the peer sleeps.
//
// It waits for room if any of waitLeft is left. After a wait in vain, it does
// not wait for that peer again before it has written a message.
func (b *batchState) offerOutbox(to *link, of *outbox, inline bool) (accepted, displaced int) {
	wait := &b.waitLeft
	if b.waitLeft <= 0 || to.stalled.Load() {
		wait = nil
	}
	if inline {
		b.rejectedFrames = to.peer.OfferGossipInline(of.frames, b.rejectedFrames[:0], wait)
	} else {
		b.rejectedFrames = to.peer.OfferGossip(of.frames, b.rejectedFrames[:0], wait)
	}
	if wait != nil && b.waitLeft <= 0 && len(b.rejectedFrames) > 0 {
		to.stalled.Store(true)
	}
	mine := b.recordRejected(to, of)
	displaced = len(b.rejectedFrames) - mine
	for i := range b.rejectedFrames {
		if release := b.rejectedFrames[i].Release; release != nil {
			release()
		}
	}
	clear(b.rejectedFrames)
	accepted = len(of.messages) - mine
	b.engine.noteAccepted(to, accepted, b.now)
	return accepted, displaced
}

// recordRejected makes sure that the messages that a peer rejected are
// announced to it, with the next round at the latest, and notes which they are.
// It returns how many of them are of this outbox. The others were in the queue,
// and were displaced.
func (b *batchState) recordRejected(to *link, of *outbox) (mine int) {
	b.missed = b.missed[:0]
	if len(b.rejectedFrames) == 0 {
		return 0
	}
	at, oldest := 0, uint64(math.MaxUint64)
	for i := range b.rejectedFrames {
		g, ok := b.rejectedFrames[i].Message.(*oap.Gossip)
		if !ok {
			continue
		}
		m := messageOf(of.messages, g, &at)
		ours := m != nil
		if ours {
			mine++
		} else if m = b.engine.history.findByFingerprint(b.engine.fingerprinter.of(g.Msg, &b.scratch)); m == nil {
			continue
		}
		m.removeHolder(to.serial)
		if !ours || !of.requested {
			b.missed = append(b.missed, b.engine.history.fingerprintOf(m))
		}
		if m.historySeq > 0 {
			oldest = min(oldest, m.historySeq)
		}
	}
	to.announceFrom(oldest)
	to.addMissed(b.missed)
	return mine
}

// messageOf finds the message that an envelope belongs to. Rejected frames come
// back in order, so the search continues where the last one ended.
func messageOf(messages []*storedMessage, g *oap.Gossip, at *int) *storedMessage {
	for range messages {
		m := messages[*at%len(messages)]
		*at++
		if &m.envelope == g {
			return m
		}
	}
	return nil
}

// announceLarge announces large messages to a peer.
func (b *batchState) announceLarge(to *link, of *outbox) {
	for at := 0; at < len(of.largeIDs); at += oap.MaxIDs {
		end := min(at+oap.MaxIDs, len(of.largeIDs))
		if b.engine.sendHave(to, of.largeIDs[at:end]) {
			continue
		}
		for _, m := range of.large[at:end] {
			m.removeHolder(to.serial)
			to.announceFrom(m.historySeq)
		}
	}
}

// sendHave announces up to MaxIDs ids, and reports whether that worked.
func (e *Engine) sendHave(to *link, ids []b3.Address) bool {
	have := &oap.Have{IDs: append(make([]b3.Address, 0, len(ids)), ids...)}
	if to.peer.SendControl(session.Outgoing{Message: have, Flags: oap.Event}) != nil {
		return false
	}
	e.counters.Announced(len(ids))
	return true
}
