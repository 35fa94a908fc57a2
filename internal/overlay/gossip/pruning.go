package gossip

import (
	"time"

	"micronode/internal/flow"
)

const (
	publishWait = 2 * time.Millisecond // how long a published message waits for room at the last peer it could go to
	readerWait  = 5 * time.Millisecond // how long a reader waits for room at the peers that get what it read
	pruneAfter  = time.Second          // a peer that rejects everything for so long is pruned
	probeWindow = time.Second          // how long a peer has to refuse the probe
)

// pruneBackoff is how long a peer stays pruned.
var pruneBackoff = flow.Backoff{First: time.Second, Max: 30 * time.Second}

// noteAccepted updates the state of a peer after an offer, and prunes it if it
// has rejected everything for pruneAfter.
func (e *Engine) noteAccepted(to *link, accepted int, now time.Time) {
	if accepted > 0 {
		to.refusingSince.Store(0)
		return
	}
	nowMs := now.UnixMilli()
	if to.refusingSince.CompareAndSwap(0, nowMs) {
		return
	}
	if nowMs-to.refusingSince.Load() >= pruneAfter.Milliseconds() {
		e.prune(to, now)
	}
}

// prune leaves a peer out of the fan-out for a while, and for twice as long if
// it was being probed.
func (e *Engine) prune(l *link, now time.Time) {
	l.mu.Lock()
	if l.pruned.Load() && !l.probing {
		l.mu.Unlock()
		return // it is pruned already
	}
	l.backoffUntil = now.UnixMilli() + pruneBackoff.Limit(l.backoffs).Milliseconds()
	l.backoffs++
	l.probing = false
	l.pruned.Store(true)
	l.mu.Unlock()
	l.syncBusy()
	e.counters.Pruned()
}

// syncBusy makes the session show whether the peer is pruned. It repeats if
// that has changed meanwhile, so the last value is right.
func (l *link) syncBusy() {
	for {
		out := l.pruned.Load()
		l.peer.SetBusy(out)
		if l.pruned.Load() == out {
			return
		}
	}
}

// tryReadmit checks whether a pruned peer may be readmitted. When its back-off
// is over it gets one message, and if it has not refused that after a second it
// is readmitted.
func (b *batchState) tryReadmit(l *link) {
	l.mu.Lock()
	over, probing := b.nowMs >= l.backoffUntil, l.probing
	l.mu.Unlock()
	switch {
	case over && probing:
		l.readmit(true)
	case over:
		b.probe(l)
	}
}

// readmit ends the back-off. A peer that accepted the probe starts with the
// shortest one again; a peer that could not be probed keeps its last one.
func (l *link) readmit(passed bool) {
	l.mu.Lock()
	if passed {
		l.backoffs = 0
	}
	l.probing = false
	l.pruned.Store(false)
	l.mu.Unlock()
	l.refusingSince.Store(0)
	l.syncBusy()
}

// probe sends a peer the newest message that it lacks.
func (b *batchState) probe(to *link) {
	e := b.engine
	messages, _ := e.history.since(0, nil)
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if m.expired(b.nowMs) || !m.fits(to) || *m.publisher == to.id || m.hasHolder(to.serial) {
			continue
		}
		to.mu.Lock() // before the message goes out: the refusal may be quick
		to.probing, to.backoffUntil = true, b.nowMs+probeWindow.Milliseconds()
		to.mu.Unlock()
		if !b.sendOne(to, m) {
			e.prune(to, b.now)
		}
		return
	}
	to.readmit(false)
}
