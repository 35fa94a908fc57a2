package gossip

import "time"

const (
	awaitPermit = 2 * time.Millisecond // so long a letter that is published waits for room at the last peer it could go to
	awaitRoom   = 5 * time.Millisecond // so long a reader waits for room at the peers that get what it read
	refusalSpan = time.Second          // a peer that takes nothing for so long is left out
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	probeSpan   = time.Second // so long after the probe it had time to refuse it
)

// judge draws the conclusions from what a peer took of a load.
func (e *Engine) judge(to *link, accepted int, now time.Time) {
	if accepted > 0 {
		to.refusing.Store(0)
		return
	}
	clock := now.UnixMilli()
	if to.refusing.CompareAndSwap(0, clock) {
		return
	}
	if clock-to.refusing.Load() >= refusalSpan.Milliseconds() {
		e.prune(to, now)
	}
}

// prune leaves a peer out of the fan-out for a while, and for twice as long if
// it was on probation.
func (e *Engine) prune(l *link, now time.Time) {
	if l.suspend(now.UnixMilli()) {
		l.show()
		e.count.Pruned()
	}
}

func (l *link) suspend(clock int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out.Load() && !l.probing {
		return false // it is left out as it is
	}
	l.pause = min(max(firstPause, 2*l.pause), lastPause)
	l.until = clock + l.pause.Milliseconds()
	l.probing = false
	l.out.Store(true)
	return true
}

// show makes the session show whether it is left out. Whoever finds that it has
// changed meanwhile shows it again, so the last word is right.
func (l *link) show() {
	for {
		out := l.out.Load()
		l.peer.SetBusy(out)
		if l.out.Load() == out {
			return
		}
	}
}

// reconsider looks whether a peer that is left out may come back. When its pause
// is over it gets one letter, and if it has not refused that after a second it
// is as good as any other.
func (h *hand) reconsider(l *link) {
	due, passed := l.probation(h.clock)
	switch {
	case passed:
		l.readmit(true)
	case due:
		h.probe(l)
	}
}

func (l *link) probation(clock int64) (due, passed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	over := clock >= l.until
	return over && !l.probing, over && l.probing
}

// readmit ends the pause. One that took its letter starts anew; one for which
// there was none is not trusted more than before.
func (l *link) readmit(passed bool) {
	l.mu.Lock()
	if passed {
		l.pause = 0
	}
	l.probing = false
	l.out.Store(false)
	l.mu.Unlock()
	l.refusing.Store(0)
	l.show()
}

// probe sends a peer the newest letter that it lacks.
func (h *hand) probe(to *link) {
	e := h.engine
	letters, _ := e.history.since(0, nil)
	for i := len(letters) - 1; i >= 0; i-- {
		l := letters[i]
		if l.expired(h.clock) || !l.fits(to) || *l.origin == to.id || l.marked(to.serial) {
			continue
		}
		to.try(h.clock)
		if !h.push(to, l) {
			e.prune(to, h.now)
		}
		return
	}
	to.readmit(false)
}

// try puts a peer on probation. It is so before the letter goes out: the refusal
// may be quick.
func (l *link) try(clock int64) {
	l.mu.Lock()
	l.probing = true
	l.until = clock + probeSpan.Milliseconds()
	l.mu.Unlock()
}
