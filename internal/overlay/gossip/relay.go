package gossip

import (
	"math"
	"math/rand/v2"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// pick chooses the peers that a letter is passed on to, at random among those
// that may get it, and puts it on their loads.
//
// It shuffles only as far as it must. The order that is left behind is as good
// a start for the next letter as any.
func (h *hand) pick(l *letter) {
	left, oversize := l.out.Fanout, 0
	for i := 0; i < len(h.order) && left > 0; i++ {
		to := h.draw(i)
		switch {
		case !to.eligible(l):
		case !l.fits(to):
			oversize++
		default:
			left--
			l.mark(to.serial)
			h.load(to, l)
		}
	}
	if oversize > 0 {
		h.engine.count.Dropped(DropOversize, oversize)
	}
}

// draw puts one of the links that were not drawn yet into place i.
func (h *hand) draw(i int) *link {
	if left := len(h.order) - i; left > 1 {
		j := i + rand.IntN(left)
		h.order[i], h.order[j] = h.order[j], h.order[i]
	}
	return h.order[i]
}

// eligible tells whether a peer may be among those whom a letter is passed on
// to: it is not its origin, does not have it, and is not left out.
func (to *link) eligible(l *letter) bool {
	return !to.out.Load() && to.id != *l.origin && !l.marked(to.serial)
}

// load puts a letter among those that a peer gets. A large one is announced.
func (h *hand) load(to *link, l *letter) {
	of := h.loads[to]
	if of == nil {
		of = h.empty()
		h.loads[to] = of
	}
	if len(l.out.Msg) > int(h.engine.config.HaveBytes) {
		of.ids = append(of.ids, l.address())
		of.large = append(of.large, l)
		return
	}
	of.parcels = append(of.parcels, l.parcel(to))
	of.letters = append(of.letters, l)
}

func (h *hand) empty() *load {
	if n := len(h.spare); n > 0 {
		of := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return of
	}
	return &load{}
}

// parcel is a letter on its way into the queue of a peer. All peers get the same
// envelope.
func (l *letter) parcel(to *link) flow.Parcel[session.Out] {
	out := session.Out{Message: &l.out, Flags: oap.Event, Expires: l.expires, Written: to.written}
	if l.piece != nil {
		l.piece.hold()
		out.Release = l.piece.release
	}
	return flow.Parcel[session.Out]{Class: l.class, Cost: l.cost(), Item: out}
}

// finish hands every peer its load, once, and keeps what was taken.
//
// Letters go out before they get their number, so one that a peer turned away
// has a number that was not announced to anybody yet. Large ones are announced
// after that, because a peer that asks for one must find it.
//
// A reader writes to the last of the peers itself. To the others their own writers
// do, meanwhile.
func (h *hand) finish() {
	e := h.engine
	h.admit()
	h.tell()
	left := len(h.loads)
	for to, of := range h.loads {
		left--
		h.here = h.lent && left == 0
		h.post(to, of)
	}
	h.here = false
	if len(h.taken) > 0 {
		e.store(h.taken)
		e.count.Taken(len(h.taken))
	}
	for to, of := range h.loads {
		h.announce(to, of)
		of.reset()
		h.spare = append(h.spare, of)
	}
	clear(h.loads)
	clear(h.taken)
	h.taken = h.taken[:0]
	for _, p := range h.pieces {
		p.letGo()
	}
	clear(h.pieces)
	h.pieces = h.pieces[:0]
	if h.known > 0 {
		e.count.Duplicate(h.known)
		h.known = 0
	}
}

func (of *load) reset() {
	clear(of.parcels)
	clear(of.letters)
	clear(of.large)
	of.parcels, of.letters, of.large, of.ids, of.due = of.parcels[:0], of.letters[:0], of.large[:0], of.ids[:0], false
}

// post sends a peer its letters and reports how many of them it took.
func (h *hand) post(to *link, of *load) int {
	if len(of.parcels) == 0 {
		return 0
	}
	accepted, displaced := h.offer(to, of)
	if dropped := len(of.letters) - accepted + displaced; dropped > 0 {
		h.engine.count.Dropped(DropEgress, dropped)
	}
	if accepted > 0 {
		h.engine.count.Relayed(accepted)
	}
	return accepted
}

// offer offers a peer its letters. It reports how many of them it took, and how
// many older ones lost their place in its queue to them.
func (h *hand) offer(to *link, of *load) (accepted, displaced int) {
	h.turned = h.hand(to, of)
	mine := h.takeBack(to, of)
	displaced = len(h.turned) - mine
	for i := range h.turned {
		if release := h.turned[i].Release; release != nil {
			release()
		}
	}
	clear(h.turned)
	accepted = len(of.letters) - mine
	h.engine.judge(to, accepted, h.now)
	return accepted, displaced
}

// hand hands a peer its letters, and gives it some time to make room for them if
// there is any left. One that was waited for in vain is not waited for again before
// it has written a letter.
func (h *hand) hand(to *link, of *load) (turned []session.Out) {
	patience := &h.patience
	if h.patience <= 0 || to.stuck.Load() {
		patience = nil
	}
	if h.here {
		turned = to.peer.PostHere(of.parcels, h.turned[:0], patience)
	} else {
		turned = to.peer.Post(of.parcels, h.turned[:0], patience)
	}
	if patience != nil && h.patience <= 0 && len(turned) > 0 {
		to.stuck.Store(true)
	}
	return turned
}

// takeBack makes sure that a peer hears of the letters that it turned away, with
// the next round at the latest, and notes which they are. It says how many of
// them are of this load. Others had been waiting, and lost their place.
func (h *hand) takeBack(to *link, of *load) (mine int) {
	h.missed = h.missed[:0]
	if len(h.turned) == 0 {
		return 0
	}
	at, oldest := 0, uint64(math.MaxUint64)
	for i := range h.turned {
		g, ok := h.turned[i].Message.(*oap.Gossip)
		if !ok {
			continue
		}
		l := matching(of.letters, g, &at)
		ours := l != nil
		if ours {
			mine++
		} else if l = h.engine.history.like(h.fingerprint(g.Msg)); l == nil {
			continue
		}
		l.unmark(to.serial)
		if !ours || !of.due {
			h.missed = append(h.missed, h.engine.history.printOf(l))
		}
		if l.number > 0 {
			oldest = min(oldest, l.number)
		}
	}
	to.owe(oldest)
	to.miss(h.missed)
	return mine
}

// matching finds the letter that an envelope belongs to. What is turned away
// comes back in order, so the search goes on where the last one ended.
func matching(letters []*letter, g *oap.Gossip, at *int) *letter {
	for range letters {
		l := letters[*at%len(letters)]
		*at++
		if &l.out == g {
			return l
		}
	}
	return nil
}

// announce tells a peer of large letters.
func (h *hand) announce(to *link, of *load) {
	for at := 0; at < len(of.ids); at += oap.MaxIDs {
		end := min(at+oap.MaxIDs, len(of.ids))
		if h.engine.tell(to, of.ids[at:end]) {
			continue
		}
		for _, l := range of.large[at:end] {
			l.unmark(to.serial)
			to.owe(l.number)
		}
	}
}

// tell announces up to a message full of ids, and reports whether that worked.
func (e *Engine) tell(to *link, ids []b3.Address) bool {
	have := &oap.Have{IDs: append(make([]b3.Address, 0, len(ids)), ids...)}
	if to.peer.Tell(session.Out{Message: have, Flags: oap.Event}) != nil {
		return false
	}
	e.count.Announced(len(ids))
	return true
}
