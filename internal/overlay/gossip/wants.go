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
	maxWants   = 16384 // letters that are missing, in all
	linkWants  = 4096  // and that one peer is asked for
	maxOthers  = 4     // peers that are remembered as holders of one
	patience   = 2 * time.Second
	endurance  = 10 * time.Second // with a peer that does send something
	mostAsking = 6                // then it is given up, until somebody announces it again
)

// wantList is the letters that are known to exist and are missing. One peer at a
// time is asked for each.
type wantList struct {
	count atomic.Int64 // so that nobody needs the lock while there are none

	mu     sync.Mutex //lockblock:leaf look-ups in a bounded map
	byID   map[b3.Address]*want
	asking map[*link]int // how many letters each peer is asked for
}

type want struct {
	from   *link // who is asked
	at     int64 // since when, in ms
	tries  int
	others [maxOthers]*link // who else has it; nil where there is nobody
}

func newWantList() *wantList {
	return &wantList{byID: map[b3.Address]*want{}, asking: map[*link]int{}}
}

// note takes in that a peer has letters that we lack. It returns those that it
// is to be asked for, and how many there was no room for.
func (w *wantList) note(from *link, ids []b3.Address, now time.Time) (ask []b3.Address, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if known := w.byID[id]; known != nil {
			known.alternative(from)
			continue
		}
		if len(w.byID) >= maxWants || w.asking[from] >= linkWants {
			refused++
			continue
		}
		w.byID[id] = &want{from: from, at: now.UnixMilli(), tries: 1}
		w.asking[from]++
		ask = append(ask, id)
	}
	w.count.Store(int64(len(w.byID)))
	return ask, refused
}

// alternative remembers one more holder, if there is room. Guarded by mu.
func (w *want) alternative(holder *link) {
	if w.from == holder {
		return
	}
	free := -1
	for i, other := range w.others {
		if other == holder {
			return
		}
		if other == nil || other.gone.Load() {
			free = i
		}
	}
	if free >= 0 {
		w.others[free] = holder
	}
}

// any tells whether there are any, and so whether anybody needs to know the id
// of a letter to strike it off.
func (w *wantList) any() bool { return w.count.Load() > 0 }

// settle strikes a letter off the list, and reports whether it was on it.
func (w *wantList) settle(id b3.Address) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.strike(id)
}

// strike takes a letter off the list. Guarded by mu.
func (w *wantList) strike(id b3.Address) bool {
	one := w.byID[id]
	if one == nil {
		return false
	}
	delete(w.byID, id)
	w.quit(one.from)
	w.count.Store(int64(len(w.byID)))
	return true
}

// quit notes that a peer is asked for one letter less. Guarded by mu.
func (w *wantList) quit(from *link) {
	if w.asking[from]--; w.asking[from] <= 0 {
		delete(w.asking, from)
	}
}

// overdue finds the letters that did not come, and chooses for each whom to ask
// next: another holder, or the same once more if there is none. What was asked
// for often enough is given up.
func (w *wantList) overdue(now time.Time) map[*link][]b3.Address {
	if !w.any() {
		return nil
	}
	clock := now.UnixMilli()
	next := map[*link][]b3.Address{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range w.byID {
		if !one.late(clock) {
			continue
		}
		to := one.turn()
		if to == nil || one.tries >= mostAsking {
			w.strike(id)
			continue
		}
		w.quit(one.from)
		w.asking[to]++
		one.from, one.at = to, clock
		one.tries++
		next[to] = append(next[to], id)
	}
	return next
}

// late tells whether somebody else should be asked. A peer that sends what it
// was asked for, one letter after the other, is given more time. Guarded by the
// list's mutex.
func (w *want) late(clock int64) bool {
	active := max(w.at, w.from.fulfilled.Load())
	return w.from.gone.Load() || clock-active >= patience.Milliseconds() || clock-w.at >= endurance.Milliseconds()
}

// turn is the next holder to ask. The one that was asked goes to the end of the
// line. Guarded by the list's mutex.
func (w *want) turn() *link {
	last := w.from
	for i, other := range w.others {
		if other == nil || other.gone.Load() {
			continue
		}
		copy(w.others[i:], w.others[i+1:])
		w.others[maxOthers-1] = nil
		w.from = other
		if !last.gone.Load() {
			w.alternative(last)
		}
		w.from = last
		return other
	}
	if last.gone.Load() {
		return nil
	}
	return last
}

// ask sends a peer the ids of letters that we lack. If it cannot be told now,
// it is asked again when they are overdue.
func (e *Engine) ask(from *link, ids []b3.Address) {
	for len(ids) > 0 {
		n := min(len(ids), oap.MaxIDs)
		if from.peer.Tell(session.Out{Message: &oap.Want{IDs: ids[:n:n]}, Flags: oap.Event}) != nil {
			return
		}
		e.count.Wanted(n)
		ids = ids[n:]
	}
}
