package gossip

import (
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

const (
	maxWants        = 16384 // messages that are missing, in all
	maxWantsPerPeer = 4096  // and that one peer is asked for
	maxAlternatives = 4     // peers that are remembered as holders of one
	wantTimeout     = 2 * time.Second
	wantDeadline    = 10 * time.Second // with a peer that does send something
	maxWantTries    = 6                // then the want is dropped, until a peer announces it again
)

// wantList is the messages that are known to exist and are missing. One peer at
// a time is asked for each.
type wantList struct {
	count atomic.Int64 // so that no lock is taken while there are none

	mu      sync.Mutex //lockblock:leaf look-ups in a bounded map
	byID    map[b3.Address]*want
	perPeer map[*link]int // how many messages each peer is asked for
}

type want struct {
	asked        *link // the peer that is asked
	askedAt      int64 // since when, in ms
	tries        int
	alternatives [maxAlternatives]*link // other holders; nil where there is none
}

// add records that a peer has messages that this node lacks. It returns those
// that the peer is to be asked for, and how many there was no room for.
func (w *wantList) add(from *link, ids []b3.Address, now time.Time) (ask []b3.Address, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if known := w.byID[id]; known != nil {
			known.addAlternative(from)
			continue
		}
		if len(w.byID) >= maxWants || w.perPeer[from] >= maxWantsPerPeer {
			refused++
			continue
		}
		w.byID[id] = &want{asked: from, askedAt: now.UnixMilli(), tries: 1}
		w.perPeer[from]++
		ask = append(ask, id)
	}
	w.count.Store(int64(len(w.byID)))
	return ask, refused
}

// addAlternative remembers one more holder, if there is room. Guarded by mu.
func (w *want) addAlternative(holder *link) {
	if w.asked == holder {
		return
	}
	free := -1
	for i, other := range w.alternatives {
		if other == holder {
			return
		}
		if other == nil || other.closed.Load() {
			free = i
		}
	}
	if free >= 0 {
		w.alternatives[free] = holder
	}
}

// any reports whether anything is missing. If not, the id of a message is not
// needed to remove it.
func (w *wantList) any() bool { return w.count.Load() > 0 }

// remove removes a message from the list, and reports whether it was on it.
func (w *wantList) remove(id b3.Address) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(id)
}

// removeLocked removes a message from the list. Guarded by mu.
func (w *wantList) removeLocked(id b3.Address) bool {
	one := w.byID[id]
	if one == nil {
		return false
	}
	delete(w.byID, id)
	w.decrement(one.asked)
	w.count.Store(int64(len(w.byID)))
	return true
}

// decrement notes that a peer is asked for one message less. Guarded by mu.
func (w *wantList) decrement(from *link) {
	if w.perPeer[from]--; w.perPeer[from] <= 0 {
		delete(w.perPeer, from)
	}
}

// takeOverdue finds the messages that did not come, and chooses for each the
// peer to ask next: another holder, or the same once more if there is none. A
// want with too many tries is dropped.
func (w *wantList) takeOverdue(now time.Time) map[*link][]b3.Address {
	if !w.any() {
		return nil
	}
	nowMs := now.UnixMilli()
	next := map[*link][]b3.Address{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range w.byID {
		if !one.isOverdue(nowMs) {
			continue
		}
		to := one.nextPeer()
		if to == nil || one.tries >= maxWantTries {
			w.removeLocked(id)
			continue
		}
		w.decrement(one.asked)
		w.perPeer[to]++
		one.asked, one.askedAt = to, nowMs
		one.tries++
		next[to] = append(next[to], id)
	}
	return next
}

// isOverdue reports whether another peer should be asked. A peer that sends
// what it was asked for, one message after the other, gets more time. Guarded
// by the list's mutex.
func (w *want) isOverdue(nowMs int64) bool {
	active := max(w.askedAt, w.asked.lastFulfilled.Load())
	return w.asked.closed.Load() || nowMs-active >= wantTimeout.Milliseconds() || nowMs-w.askedAt >= wantDeadline.Milliseconds()
}

// nextPeer returns the next holder to ask. The one that was asked goes to the
// end of the alternatives. Guarded by the list's mutex.
func (w *want) nextPeer() *link {
	last := w.asked
	for i, other := range w.alternatives {
		if other == nil || other.closed.Load() {
			continue
		}
		copy(w.alternatives[i:], w.alternatives[i+1:])
		w.alternatives[maxAlternatives-1] = nil
		w.asked = other
		if !last.closed.Load() {
			w.addAlternative(last)
		}
		w.asked = last
		return other
	}
	if last.closed.Load() {
		return nil
	}
	return last
}

// sendWant sends a peer the ids of messages that this node lacks. If that
// fails, they are asked for again when they are overdue.
func (e *Engine) sendWant(from *link, ids []b3.Address) {
	for len(ids) > 0 {
		n := min(len(ids), oap.MaxIDs)
		if from.peer.SendControl(session.Outgoing{Message: &oap.Want{IDs: ids[:n:n]}, Flags: oap.Event}) != nil {
			return
		}
		e.counters.Wanted(n)
		ids = ids[n:]
	}
}
