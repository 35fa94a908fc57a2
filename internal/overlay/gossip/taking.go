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
	now      time.Time
	clock    int64         // the same, in ms
	lent     bool          // its letters are the reader's: what is kept is copied
	patience time.Duration // how long it may still wait for peers
	last     naming
	heard    heard
	taken    []*letter
	loads    map[*link]*load
	spare    []*load // empty ones, for the next batch

	// room
	roster  *roster
	order   []*link // the roster's links in some order, shuffled as they are picked
	turned  []session.Out
	missed  []fingerprint // of the letters that were turned away
	room    [fingerprintSize]byte
	topic   string     // of the last letter that came
	own     oap.Letter // that is being published
	origins [originSlots]knownOrigin
}

// naming is a peer that named a topic, as it may. Most letters of a batch do
// what the one before did.
type naming struct {
	link  *link
	topic string
	lax   bool // the topic needs no signature
}

// heard is what the subscribers of one topic get of a batch. Most letters of a
// batch are on the topic of the one before.
type heard struct {
	topic *topic // nil if nobody listens
	name  string // empty if nobody was looked for
	slots []*slot
}

// load is what one peer gets of a batch.
type load struct {
	parcels []flow.Parcel[session.Out]
	letters []*letter    // the same, one for one
	ids     []b3.Address // of letters that are announced
	large   []*letter    // the same
	due     bool         // the peer asked for the letters; what it turns away stays due
}

// originSlots is how many origins a worker knows by heart. Most letters come
// from few origins, and to find a peer ID means to hash.
const originSlots = 64

// knownOrigin is an origin with its peer ID, of which letters share one, and
// its key made ready to check signatures, once it has signed something. Letters
// must not keep the latter in memory: it is larger than most of them.
type knownOrigin struct {
	key   [ed25519.PublicKeySize]byte
	id    *oap.PeerID // nil if there is none
	ready *oap.Origin // nil if nobody needed it
}

func newHand(e *Engine) *hand {
	return &hand{engine: e, loads: map[*link]*load{}}
}

// begin starts a batch.
func (h *hand) begin() {
	h.now = time.Now()
	h.clock = h.now.UnixMilli()
	h.last = naming{}
	if r := h.engine.active(); r != h.roster {
		h.roster = r
		clear(h.order)
		h.order = append(h.order[:0], r.links...)
	}
}

// handleOpen takes the letters of a reader that are not signed through all steps
// and passes on what is new. It reports how many are left.
func (h *hand) handleOpen(from *link, batch []session.Arrival) (signed int) {
	h.begin()
	h.lent, h.patience = true, awaitRoom
	duplicates := 0
	for i := range batch {
		if len(batch[i].Gossip.Sig) > 0 {
			signed++
			continue
		}
		a := arrival{batch[i], from}
		if !h.take(&a) {
			duplicates++
		}
	}
	h.finish()
	h.lent, h.patience = false, 0
	if duplicates > 0 {
		h.engine.count.Duplicate(duplicates)
	}
	return signed
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
// first, and the signature before the letter is remembered. It reports false for
// a letter that is known already.
//
// If nothing is left to be checked between them, steps 3 and 5 are one.
func (h *hand) take(a *arrival) (isNew bool) {
	e := h.engine
	l, err := a.Gossip.ReadLike(h.topic) // 1: it is a letter, and its topic is good
	if err == nil {
		h.topic = l.Topic
		err = l.CheckTime(h.now, e.config.TTL, e.skew) // 2: its time is good
	}
	if err != nil {
		e.count.Rejected(oap.ReasonOf(err))
		return true
	}
	print := h.fingerprint(a.Gossip.Msg)
	named := h.named(a.link, l.Topic)
	if named && h.last.lax && len(a.Gossip.Sig) == 0 {
		return h.remember(a, &l, print, nil) // 3 and 5: it is not known, and now it is
	}
	if e.seen.has(print, l.TS) { // 3: it is not known
		h.again(a, print)
		return false
	}
	if !named && !a.link.admits(l.Topic, h.clock, e.config.TTL) {
		e.count.Dropped(DropTopics, 1)
		h.settle(a)
		a.link.peer.Refuse(a.Corr, errTopics)
		return true
	}
	id, err := h.verify(a, &l) // 4: it is signed
	if err != nil {
		e.count.Rejected(oap.ReasonOf(err))
		return true
	}
	return h.remember(a, &l, print, id) // 5: it is remembered
}

func (h *hand) fingerprint(msg []byte) fingerprint { return h.engine.prints.of(msg, &h.room) }

// named tells whether a peer has named a topic before, and makes it the last
// one that was named.
func (h *hand) named(from *link, topic string) bool {
	if h.last.link == from && h.last.topic == topic {
		return true
	}
	if !from.named(topic, h.clock) {
		return false
	}
	h.last = naming{from, topic, h.engine.policy.mayLack(topic)}
	return true
}

// remember takes the last steps. The id is nil if nobody needed it so far.
func (h *hand) remember(a *arrival, l *oap.Letter, print fingerprint, id *b3.Address) (isNew bool) {
	e := h.engine
	switch e.seen.insert(print, l.TS) {
	case fresh:
		h.keep(a, l, print, id) // 6
	case known:
		h.again(a, print)
		return false
	case full:
		e.count.Dropped(DropSeen, 1)
		a.link.peer.Refuse(a.Corr, errSeen)
	case elapsed:
		e.count.Rejected(oap.Stale)
	}
	return true
}

// again notes that a peer sent what we know. We may have asked for it all the
// same, because we did not know its id.
func (h *hand) again(a *arrival, print fingerprint) {
	if l := h.engine.history.like(print); l != nil {
		l.mark(a.link.serial)
	}
	h.settle(a)
}

// settle strikes a letter that came off the list of those that are missing.
// While nothing is missing it need not be hashed for that.
func (h *hand) settle(a *arrival) {
	if h.engine.wants.any() {
		h.engine.wants.settle(b3.Of(a.Gossip.Msg))
	}
}

// verify checks a signature that must be there. One that need not be there must
// still be right: a subscriber is told whether a letter was signed. It returns
// the id of the letter if it had to find it.
func (h *hand) verify(a *arrival, l *oap.Letter) (*b3.Address, error) {
	if len(a.Gossip.Sig) == 0 {
		if h.engine.policy.mayLack(l.Topic) {
			return nil, nil
		}
		return nil, a.Gossip.VerifyBy(nil, l, b3.Address{}) // which says that it is not signed
	}
	known := h.originOf(l.Key)
	if known.ready == nil {
		known.ready = oap.NewOrigin(l.Key)
	}
	id := b3.Of(a.Gossip.Msg)
	return &id, a.Gossip.VerifyBy(known.ready, l, id)
}

// keep gives a new letter to the subscribers of this node and to some peers.
func (h *hand) keep(a *arrival, l *oap.Letter, print fingerprint, id *b3.Address) {
	e := h.engine
	out := a.Gossip
	if h.lent {
		out = a.Gossip.Clone()
		l.Data = dataIn(out.Msg, l)
	}
	hops := min(out.Hops, uint64(e.config.Hops))
	out.Hops = max(hops, 1) - 1
	out.Fanout = min(out.Fanout, uint64(e.config.RelayFanout))
	one := newLetter(l, print, h.originOf(l.Key).id, out, e.config.TTL)
	if id != nil {
		one.id.Store(id)
	}
	h.deliver(l, one)
	one.mark(a.link.serial)
	h.taken = append(h.taken, one)
	if e.wants.any() && e.wants.settle(one.address()) {
		a.link.fulfilled.Store(h.clock)
	}
	if hops == 0 {
		e.count.Dropped(DropHops, 1)
		return
	}
	h.pick(one)
}

// deliver puts a letter among those that subscribers of this node get.
func (h *hand) deliver(l *oap.Letter, one *letter) {
	if l.Topic != h.heard.name {
		h.tell()
		h.heard.topic, h.heard.name = h.engine.audience.find(l.Topic), l.Topic
	}
	if h.heard.topic != nil {
		h.heard.slots = append(h.heard.slots, newSlot(l, one))
	}
}

// tell gives subscribers what they get.
func (h *hand) tell() {
	if n := len(h.heard.slots); n > 0 && h.engine.audience.deliver(h.heard.topic, h.heard.slots) {
		h.engine.count.Delivered(n)
	}
	clear(h.heard.slots)
	h.heard = heard{slots: h.heard.slots[:0]}
}

// originOf is what is known of the origin with a key.
func (h *hand) originOf(key [ed25519.PublicKeySize]byte) *knownOrigin {
	slot := &h.origins[key[0]%originSlots]
	if slot.key != key || slot.id == nil {
		id := oap.PeerIDOf(key[:])
		*slot = knownOrigin{key: key, id: &id}
	}
	return slot
}
