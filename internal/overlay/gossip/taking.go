package gossip

import (
	"crypto/ed25519"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// hand is what one worker works with: the batch that it is at, and room that it
// uses again and again. It belongs to one task at a time.
type hand struct {
	// set at construction
	engine *Engine

	// the batch
	now   time.Time
	clock int64 // the same, in ms
	taken []*letter
	loads map[*link]*load
	spare []*load // empty ones, for the next batch

	// room
	roster  *roster
	order   []*link // the roster's links in some order, shuffled as they are picked
	turned  []session.Out
	origins [originSlots]knownOrigin
}

// load is what one peer gets of a batch.
type load struct {
	parcels []flow.Parcel[session.Out]
	letters []*letter    // the same, one for one
	ids     []b3.Address // of letters that are announced
	large   []*letter    // the same
}

// originSlots is how many origins a worker knows by heart. Most letters come
// from few origins, and to find a peer ID means to hash.
const originSlots = 64

type knownOrigin struct {
	key [ed25519.PublicKeySize]byte
	id  oap.PeerID
}

func newHand(e *Engine) *hand {
	return &hand{engine: e, loads: map[*link]*load{}}
}

// begin starts a batch.
func (h *hand) begin() {
	h.now = time.Now()
	h.clock = h.now.UnixMilli()
	if r := h.engine.active(); r != h.roster {
		h.roster = r
		clear(h.order)
		h.order = append(h.order[:0], r.links...)
	}
}

// handle takes a batch of letters through all steps and passes on what is new.
func (h *hand) handle(batch []arrival) {
	h.begin()
	duplicates, freed := 0, 0
	for i := range batch {
		freed += batch[i].cost()
		if !h.take(&batch[i]) {
			duplicates++
		}
	}
	h.engine.waiting.Add(int64(-freed))
	h.finish()
	if duplicates > 0 {
		h.engine.count.Duplicate(duplicates)
	}
}

// take goes through the six steps of the protocol, in its order: cheap checks
// first, and the signature before the id is remembered. It reports false for a
// letter that is known already.
func (h *hand) take(a *arrival) (isNew bool) {
	e := h.engine
	l, id, err := a.Gossip.Open() // 1: it is a letter, and its topic is good
	if err == nil {
		err = l.CheckTime(h.now, e.config.TTL, e.skew) // 2: its time is good
	}
	if err != nil {
		e.count.Rejected(oap.ReasonOf(err))
		return true
	}
	if e.seen.has(id, l.TS) { // 3: it is not known
		h.heldBy(a.link, id)
		return false
	}
	if !a.link.admits(l.Topic, h.clock, e.config.TTL) {
		e.count.Dropped(DropTopics, 1)
		e.wants.settle(id)
		a.link.peer.Refuse(a.Corr, errTopics)
		return true
	}
	if err := h.verify(a, &l, id); err != nil { // 4: it is signed
		e.count.Rejected(oap.ReasonOf(err))
		return true
	}
	switch e.seen.insert(id, l.TS) { // 5: it is remembered
	case fresh:
		h.keep(a, &l, id) // 6
	case known:
		h.heldBy(a.link, id)
		return false
	case full:
		e.count.Dropped(DropSeen, 1)
		a.link.peer.Refuse(a.Corr, errSeen)
	case elapsed:
		e.count.Rejected(oap.Stale)
	}
	return true
}

// heldBy notes that a peer sent what we know.
func (h *hand) heldBy(from *link, id b3.Address) {
	if l := h.engine.history.find(id); l != nil {
		l.mark(from.serial)
	}
}

// verify checks a signature that must be there. One that need not be there must
// still be right: a subscriber is told whether a letter was signed.
func (h *hand) verify(a *arrival, l *oap.Letter, id b3.Address) error {
	if len(a.Gossip.Sig) == 0 && h.engine.policy.mayLack(l.Topic) {
		return nil
	}
	return a.Gossip.Verify(l, id)
}

// keep gives a new letter to the subscribers of this node and to some peers.
func (h *hand) keep(a *arrival, l *oap.Letter, id b3.Address) {
	e := h.engine
	origin := h.originOf(l.Key)
	if e.audience.deliver(l, id, origin, len(a.Gossip.Sig) > 0) {
		e.count.Delivered(1)
	}
	out := a.Gossip
	hops := min(out.Hops, uint64(e.config.Hops))
	out.Hops = max(hops, 1) - 1
	out.Fanout = min(out.Fanout, uint64(e.config.RelayFanout))
	one := newLetter(l, id, origin, out, e.config.TTL)
	one.mark(a.link.serial)
	h.taken = append(h.taken, one)
	if e.wants.settle(id) {
		a.link.fulfilled.Store(h.clock)
	}
	if hops == 0 {
		e.count.Dropped(DropHops, 1)
		return
	}
	h.pick(one)
}

// originOf is the peer ID that belongs to a key.
func (h *hand) originOf(key [ed25519.PublicKeySize]byte) oap.PeerID {
	slot := &h.origins[key[0]%originSlots]
	if slot.key != key || slot.id == (oap.PeerID{}) {
		*slot = knownOrigin{key, oap.PeerIDOf(key[:])}
	}
	return slot.id
}
