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
	tick       = 250 * time.Millisecond
	breath     = 20 * time.Millisecond // from when a peer has room again until it is told what it missed
	roundEach  = 4                     // ticks
	roundIDs   = 4096                  // that one peer is told of in one round
	giveFirst  = 4                     // letters that are sent in one go to a peer that asked; twice as many each time that it takes all
	giveAtOnce = 64                    // but no more
)

// Tend is the one task that looks after what nobody else does: letters that
// expire, peers that must be told what they missed, letters that were asked for
// and did not come, peers that may come back.
func (e *Engine) Tend(ctx context.Context) error {
	h := newHand(e)
	clock := time.NewTicker(tick)
	defer clock.Stop()
	var soon <-chan time.Time
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return flow.Ended(ctx, "gossip.tend")
		case <-e.nudged:
			if h.errands() && soon == nil {
				soon = time.After(breath)
			}
		case <-soon:
			soon = nil
			h.remind()
		case <-clock.C:
			h.tend()
			if n%roundEach == 0 {
				h.round()
			}
			n++
		}
	}
}

// errands looks after those who asked for it: peers that are new, and peers to
// which more can be sent of what they asked for. It reports whether some have
// room again for what they turned away. They are not told at once: in a moment
// there is more room, and more to tell.
func (h *hand) errands() (roomy bool) {
	h.begin()
	for _, l := range h.engine.takeNeedy() {
		if l.gone.Load() {
			continue
		}
		if l.isFresh() {
			h.greet(l)
		}
		h.engine.give(l)
		roomy = roomy || l.roomy.Load()
	}
	return roomy
}

// remind tells peers that have room again of what they turned away. A round
// would be too late for that: many letters make the history a short one.
func (h *hand) remind() {
	h.begin()
	for _, l := range h.roster.links {
		if !l.roomy.Swap(false) {
			continue
		}
		missed := l.takeMissed()
		if l.out.Load() || h.engine.drained.Load() {
			continue
		}
		letters := slices.DeleteFunc(h.engine.history.those(missed), func(one *letter) bool { return !h.lacks(l, one, false) })
		h.tellOf(l, letters)
	}
}

func (e *Engine) takeNeedy() []*link {
	e.mu.Lock()
	defer e.mu.Unlock()
	needy := make([]*link, 0, len(e.needy))
	for l := range e.needy {
		l.nudged.Store(false)
		needy = append(needy, l)
	}
	clear(e.needy)
	return needy
}

func (l *link) isFresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fresh
}

// tend does what is due several times a second.
func (h *hand) tend() {
	h.begin()
	e := h.engine
	for _, l := range h.roster.links {
		if l.out.Load() {
			h.reconsider(l)
		}
		if l.owing.Load() > 0 {
			e.give(l)
		}
	}
	for from, ids := range e.wants.overdue(h.now) {
		e.ask(from, ids)
	}
}

// round does what is due once a second.
func (h *hand) round() {
	e := h.engine
	e.seen.expire(h.now)
	e.history.expire(h.clock)
	e.audience.tidy()
	if e.drained.Load() {
		return
	}
	for _, l := range h.roster.links {
		if l.isFresh() { // its errand was lost: this task died and was started again
			h.greet(l)
		} else {
			h.inform(l)
		}
	}
}

// greet tells a new peer what is here, the newest first.
func (h *hand) greet(to *link) {
	from := h.engine.history.position()
	from -= min(from, roundIDs)
	letters, next := h.engine.history.since(from, nil)
	var lacks []*letter
	for _, l := range slices.Backward(letters) {
		if len(lacks) < roundIDs && h.lacks(to, l, false) {
			lacks = append(lacks, l)
		}
	}
	to.mu.Lock()
	to.fresh = false
	to.rounds = [3]uint64{from, from, next}
	to.cursor = min(to.cursor, next)
	to.mu.Unlock()
	h.tellOf(to, lacks)
}

// inform tells a peer of the letters that it is not known to have, from where
// the last round ended. One that is left out is told later.
func (h *hand) inform(to *link) {
	if to.out.Load() {
		return
	}
	from, doubts := to.turnPage(h.engine.history.position())
	letters, next := h.engine.history.since(from, nil)
	var lacks []*letter
	cut := false
	for _, l := range letters {
		if len(lacks) == roundIDs {
			next, cut = l.number, true
			break
		}
		if h.lacks(to, l, l.number >= doubts) {
			lacks = append(lacks, l)
		}
	}
	to.resume(next, doubts, cut)
	h.tellOf(to, lacks)
}

// resume says where the next round begins. Doubts that this one did not get to
// are left to it.
func (l *link) resume(next, doubts uint64, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cursor = min(l.cursor, next)
	if cut && doubts != math.MaxUint64 {
		l.doubts = min(l.doubts, max(next, doubts))
	}
}

// turnPage begins a round: it says from where on the peer must be told of
// letters, and from where on even of those that were sent to it. What comes up
// while the round runs is for the next one.
func (l *link) turnPage(position uint64) (from, doubts uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, doubts = min(l.cursor, l.doubts), l.doubts
	l.cursor, l.doubts = math.MaxUint64, math.MaxUint64
	l.rounds = [3]uint64{l.rounds[1], l.rounds[2], position}
	return from, doubts
}

// lacks tells whether a peer should be told of a letter. In doubt it is told of
// one that was sent to it, too.
func (h *hand) lacks(to *link, l *letter, doubtful bool) bool {
	return !l.expired(h.clock) && l.fits(to) && *l.origin != to.id && (doubtful || !l.marked(to.serial))
}

// tellOf announces letters, as many messages as it takes. What cannot be told
// now is told with the next round.
func (h *hand) tellOf(to *link, letters []*letter) {
	ids := make([]b3.Address, 0, min(len(letters), oap.MaxIDs))
	for len(letters) > 0 {
		some := letters[:min(len(letters), oap.MaxIDs)]
		ids = ids[:0]
		for _, l := range some {
			l.mark(to.serial)
			ids = append(ids, l.address())
		}
		if !h.engine.tell(to, ids) {
			for _, l := range letters {
				l.unmark(to.serial)
				to.owe(l.number)
			}
			return
		}
		letters = letters[len(some):]
	}
}

// promise notes what a peer asks for, each letter once, as far as it is here. It
// says for how many there was no room.
func (l *link) promise(ids []b3.Address, from *history) (refused int) {
	held := from.holding(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range held {
		if _, again := l.asked[id]; again {
			continue
		}
		if len(l.asked) >= maxDue {
			refused++
			continue
		}
		if l.asked == nil {
			l.asked = map[b3.Address]struct{}{}
		}
		l.asked[id] = struct{}{}
		l.due = append(l.due, id)
	}
	l.owing.Store(int64(len(l.due)))
	return refused
}

// give sends a peer what it asked for, until it takes no more. Then the writer
// of the session tells when there is room, and Tend goes on. One task at a time
// gives to a peer.
func (e *Engine) give(to *link) {
	if !to.beginGiving() {
		return
	}
	h := e.hands.Get().(*hand)
	defer e.hands.Put(h)
	h.begin()
	of := h.empty()
	for some, given := giveFirst, true; given; some = min(2*some, giveAtOnce) {
		ids := to.nextDue(some)
		if ids == nil {
			break
		}
		of.due = true
		given = h.giveSome(to, of, ids)
		of.reset()
	}
	h.spare = append(h.spare, of)
}

// giveSome sends some letters, and reports whether the peer took all of them.
// What it did not take stays due.
func (h *hand) giveSome(to *link, of *load, ids []b3.Address) bool {
	for _, id := range ids {
		l := h.engine.history.find(id)
		if l == nil || l.expired(h.clock) || !l.fits(to) {
			continue
		}
		l.mark(to.serial)
		of.parcels = append(of.parcels, l.parcel(to))
		of.letters = append(of.letters, l)
	}
	if len(of.letters) == 0 {
		to.given(ids, nil)
		return true
	}
	accepted, displaced := h.offer(to, of)
	if displaced > 0 {
		h.engine.count.Dropped(DropEgress, displaced)
	}
	if accepted > 0 {
		h.engine.count.Repaired(accepted)
	}
	var left []b3.Address
	for _, l := range of.letters {
		if !l.marked(to.serial) {
			left = append(left, l.address())
		}
	}
	to.given(ids, left)
	return len(left) == 0
}

// beginGiving reports whether there is something to give and nobody gives it.
func (l *link) beginGiving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giving || len(l.due) == 0 {
		return false
	}
	l.giving = true
	return true
}

// nextDue takes some letters off what is due. Until they are given they count
// as asked for. Whoever gets nil has given everything, and somebody else may
// begin.
func (l *link) nextDue(most int) []b3.Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) == 0 {
		l.due, l.asked, l.giving = nil, nil, false
		return nil
	}
	n := min(most, len(l.due))
	ids := append([]b3.Address(nil), l.due[:n]...)
	l.due = append(l.due[:0], l.due[n:]...)
	l.owing.Store(int64(len(l.due)))
	return ids
}

// given strikes off what was given, or cannot be. If some are left they go back
// to the front, and the giving ends for now.
func (l *link) given(ids, left []b3.Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.asked, id)
	}
	for _, id := range left {
		l.asked[id] = struct{}{}
	}
	if len(left) > 0 {
		l.giving = false
		l.due = append(left, l.due...)
		l.owing.Store(int64(len(l.due)))
	}
}
