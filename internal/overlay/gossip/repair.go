package gossip

import (
	"context"
	"math"
	"slices"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

const (
	tick             = 250 * time.Millisecond
	reminderDelay    = 20 * time.Millisecond // from when a peer has room again until its missed messages are announced to it
	ticksPerRound    = 4                     // ticks
	maxRoundIDs      = 4096                  // that are announced to one peer in one round
	firstWantedBatch = 4                     // messages that are first sent to a peer that asked; twice as many each time that it accepts all
	maxWantedBatch   = 64                    // but no more
)

// Maintain is the one task for periodic work: it expires messages, announces to
// peers what they missed, asks again for messages that did not come, and
// readmits pruned peers.
func (e *Engine) Maintain(ctx context.Context) error {
	b := newBatchState(e)
	clock := time.NewTicker(tick)
	defer clock.Stop()
	var soon <-chan time.Time
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return flow.Ended(ctx, "gossip.tend")
		case <-e.repairSignal:
			if b.runPendingRepairs() && soon == nil {
				soon = time.After(reminderDelay)
			}
		case <-soon:
			soon = nil
			b.announceMissed()
		case <-clock.C:
			b.tick()
			if n%ticksPerRound == 0 {
				b.runRound()
			}
			n++
		}
	}
}

// runPendingRepairs handles the links that were scheduled: new peers, and peers
// to which more can be sent of what they asked for. It reports whether some
// have room again for what they rejected. Announcing waits a moment: then there
// is more room, and more to announce.
func (b *batchState) runPendingRepairs() (roomy bool) {
	b.startBatch()
	for _, l := range b.engine.takePendingRepairs() {
		if l.closed.Load() {
			continue
		}
		if l.isNewPeer() {
			b.announceAll(l)
		}
		b.engine.sendWanted(l)
		roomy = roomy || l.hasRoom.Load()
	}
	return roomy
}

// announceMissed announces to peers that have room again what they rejected. A
// round would be too late for that: with many messages the history is short.
func (b *batchState) announceMissed() {
	b.startBatch()
	for _, l := range b.roster.links {
		if !l.hasRoom.Swap(false) {
			continue
		}
		missed := l.takeMissed()
		if l.pruned.Load() || b.engine.draining.Load() {
			continue
		}
		messages := slices.DeleteFunc(b.engine.history.findAllByFingerprint(missed), func(one *storedMessage) bool { return !b.shouldAnnounce(l, one, false) })
		b.announceMessages(l, messages)
	}
}

func (e *Engine) takePendingRepairs() []*link {
	e.mu.Lock()
	defer e.mu.Unlock()
	needy := make([]*link, 0, len(e.pendingRepairs))
	for l := range e.pendingRepairs {
		l.repairPending.Store(false)
		needy = append(needy, l)
	}
	clear(e.pendingRepairs)
	return needy
}

func (l *link) isNewPeer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isNew
}

// tick does what is due several times a second.
func (b *batchState) tick() {
	b.startBatch()
	e := b.engine
	for _, l := range b.roster.links {
		if l.pruned.Load() {
			b.tryReadmit(l)
		}
		if l.wantedCount.Load() > 0 {
			e.sendWanted(l)
		}
	}
	for from, ids := range e.wants.takeOverdue(b.now) {
		e.sendWant(from, ids)
	}
}

// runRound does what is due once a second.
func (b *batchState) runRound() {
	e := b.engine
	e.seen.expire(b.now)
	e.history.expire(b.nowMs)
	e.subscribers.trimAll()
	e.pruneShares()
	if e.draining.Load() {
		return
	}
	for _, l := range b.roster.links {
		if l.isNewPeer() { // its scheduled repair was lost: this task panicked and was restarted
			b.announceAll(l)
		} else {
			b.announceNew(l)
		}
	}
}

// announceAll announces to a new peer what is in the history, the newest first.
func (b *batchState) announceAll(to *link) {
	from := b.engine.history.position()
	from -= min(from, maxRoundIDs)
	messages, next := b.engine.history.since(from, nil)
	var lacks []*storedMessage
	for _, m := range slices.Backward(messages) {
		if len(lacks) < maxRoundIDs && b.shouldAnnounce(to, m, false) {
			lacks = append(lacks, m)
		}
	}
	to.mu.Lock()
	to.isNew = false
	to.roundSeqs = [3]uint64{from, from, next}
	to.cursor = min(to.cursor, next)
	to.mu.Unlock()
	b.announceMessages(to, lacks)
}

// announceNew announces to a peer the messages that it is not known to have,
// from where the last round ended, and from the first doubtful one on even those
// that were sent to it. What comes up meanwhile is for the next round. A pruned
// peer is left for later.
func (b *batchState) announceNew(to *link) {
	if to.pruned.Load() {
		return
	}
	position := b.engine.history.position()
	to.mu.Lock()
	from, doubts := min(to.cursor, to.recheckFrom), to.recheckFrom
	to.cursor, to.recheckFrom = math.MaxUint64, math.MaxUint64
	to.roundSeqs = [3]uint64{to.roundSeqs[1], to.roundSeqs[2], position}
	to.mu.Unlock()
	messages, next := b.engine.history.since(from, nil)
	var lacks []*storedMessage
	cut := false
	for _, m := range messages {
		if len(lacks) == maxRoundIDs {
			next, cut = m.historySeq, true
			break
		}
		if b.shouldAnnounce(to, m, m.historySeq >= doubts) {
			lacks = append(lacks, m)
		}
	}
	to.mu.Lock()
	to.cursor = min(to.cursor, next)
	if cut && doubts != math.MaxUint64 { // doubts that this round did not reach are left to the next
		to.recheckFrom = min(to.recheckFrom, max(next, doubts))
	}
	to.mu.Unlock()
	b.announceMessages(to, lacks)
}

// shouldAnnounce reports whether a message is announced to a peer. In doubt
// that includes one that was sent to it.
func (b *batchState) shouldAnnounce(to *link, m *storedMessage, doubtful bool) bool {
	return !m.expired(b.nowMs) && m.fits(to) && *m.publisher != to.id && (doubtful || !m.hasHolder(to.serial))
}

// announceMessages announces messages, in as many frames as it takes. What
// cannot be announced now is announced with the next round.
func (b *batchState) announceMessages(to *link, messages []*storedMessage) {
	ids := make([]b3.Address, 0, min(len(messages), oap.MaxIDs))
	for len(messages) > 0 {
		some := messages[:min(len(messages), oap.MaxIDs)]
		ids = ids[:0]
		for _, m := range some {
			m.addHolder(to.serial)
			ids = append(ids, m.messageID())
		}
		if !b.engine.sendHave(to, ids) {
			for _, m := range messages {
				m.removeHolder(to.serial)
				to.announceFrom(m.historySeq)
			}
			return
		}
		messages = messages[len(some):]
	}
}

// addWanted records what a peer asks for, each message once, if it is in the
// history. It returns for how many there was no room.
func (l *link) addWanted(ids []b3.Address, from *history) (refused int) {
	held := from.filterHeld(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range held {
		if _, again := l.wantedSet[id]; again {
			continue
		}
		if len(l.wantedSet) >= maxWanted {
			refused++
			continue
		}
		if l.wantedSet == nil {
			l.wantedSet = map[b3.Address]struct{}{}
		}
		l.wantedSet[id] = struct{}{}
		l.wanted = append(l.wanted, id)
	}
	l.wantedCount.Store(int64(len(l.wanted)))
	return refused
}

// sendWanted sends a peer what it asked for, until it accepts no more. Then the
// writer of the session signals when there is room, and Maintain continues. One
// task at a time sends to a peer.
func (e *Engine) sendWanted(to *link) {
	if !to.beginWanted() {
		return
	}
	b := e.batchStates.Get().(*batchState)
	defer e.batchStates.Put(b)
	b.startBatch()
	of := b.newOutbox()
	for some, given := firstWantedBatch, true; given; some = min(2*some, maxWantedBatch) {
		ids := to.takeWanted(some)
		if ids == nil {
			break
		}
		of.requested = true
		given = b.sendWantedBatch(to, of, ids)
		of.reset()
	}
	b.freeOutboxes = append(b.freeOutboxes, of)
}

// sendWantedBatch sends some messages, and reports whether the peer accepted
// all of them. What it did not accept stays wanted.
func (b *batchState) sendWantedBatch(to *link, of *outbox, ids []b3.Address) bool {
	for _, id := range ids {
		m := b.engine.history.findByID(id)
		if m == nil || m.expired(b.nowMs) || !m.fits(to) {
			continue
		}
		m.addHolder(to.serial)
		of.frames = append(of.frames, m.outgoing(to, true))
		of.messages = append(of.messages, m)
	}
	if len(of.messages) == 0 {
		to.finishWanted(ids, nil)
		return true
	}
	accepted, displaced := b.offerOutbox(to, of, false)
	if displaced > 0 {
		b.engine.counters.Dropped(DropEgress, displaced)
	}
	if accepted > 0 {
		b.engine.counters.Repaired(accepted)
	}
	var left []b3.Address
	for _, m := range of.messages {
		if !m.hasHolder(to.serial) {
			left = append(left, m.messageID())
		}
	}
	to.finishWanted(ids, left)
	return len(left) == 0
}

// beginWanted reports whether there is something to send and no other task
// sends it. The caller then does.
func (l *link) beginWanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sendingWanted || len(l.wanted) == 0 {
		return false
	}
	l.sendingWanted = true
	return true
}

// takeWanted takes some messages off the wanted list. They stay in the wanted
// set until they are sent. With nil everything is sent, and another task may
// begin.
func (l *link) takeWanted(most int) []b3.Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wanted) == 0 {
		l.wanted, l.wantedSet, l.sendingWanted = nil, nil, false
		return nil
	}
	n := min(most, len(l.wanted))
	ids := append([]b3.Address(nil), l.wanted[:n]...)
	l.wanted = append(l.wanted[:0], l.wanted[n:]...)
	l.wantedCount.Store(int64(len(l.wanted)))
	return ids
}

// finishWanted removes what was sent, or cannot be. If some are left they go
// back to the front, and sending stops.
func (l *link) finishWanted(ids, left []b3.Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.wantedSet, id)
	}
	for _, id := range left {
		l.wantedSet[id] = struct{}{}
	}
	if len(left) > 0 {
		l.sendingWanted = false
		l.wanted = append(left, l.wanted...)
		l.wantedCount.Store(int64(len(l.wanted)))
	}
}
