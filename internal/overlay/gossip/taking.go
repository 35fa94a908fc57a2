package gossip

import (
	"bytes"
	"crypto/ed25519"
	"slices"
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
	here     bool          // what it hands to a peer it writes itself
	lent     bool          // its letters are the reader's: what is kept is copied
	patience time.Duration // how long it may still wait for peers
	last     naming
	open     []newcomer // that were not admitted yet
	known    int        // how many were duplicates
	heard    heard
	taken    []*letter
	pieces   []*piece // that hold some of them
	loads    map[*link]*load
	spare    []*load // empty ones, for the next batch

	// room
	roster  *roster
	order   []*link  // the roster's links in some order, shuffled as they are picked
	parts   [][]byte // of what is put into one piece of memory
	turned  []session.Out
	missed  []fingerprint // of the letters that were turned away
	room    [fingerprintSize]byte
	topic   string     // of the last letter that came
	own     oap.Letter // that is being published
	sheet   sheet      // for the next ones
	origins [originSlots]knownOrigin
}

// newcomer is a letter that needs no signature. Nothing is wrong with it, and if
// it is new it is taken.
type newcomer struct {
	arrival
	letter  oap.Letter
	print   fingerprint
	verdict verdict
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
	topic   *topic // nil if nobody listens
	name    string // empty if nobody was looked for
	letters []Delivery
	slots   []*slot // of them, while they are handed over
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
	for i := range batch {
		if len(batch[i].Gossip.Sig) > 0 {
			signed++
			continue
		}
		h.take(&arrival{batch[i], from})
	}
	h.finish()
	h.lent, h.patience = false, 0
	return signed
}

// handle takes a batch of letters through all steps and passes on what is new.
func (h *hand) handle(batch []arrival) {
	h.begin()
	freed := 0
	for i := range batch {
		freed += batch[i].cost()
	}
	h.engine.waiting.Add(int64(-freed)) // first: after a panic nobody would
	for i := range batch {
		h.take(&batch[i])
	}
	h.finish()
}

// take goes through the six steps of the protocol, in its order: cheap checks
// first, and the signature before the letter is remembered.
//
// If nothing is left to be checked between them, steps 3 and 5 are one, and wait
// for the others of the batch.
func (h *hand) take(a *arrival) {
	e := h.engine
	var l oap.Letter
	err := a.Gossip.ReadLike(&l, h.topic) // 1: it is a letter, and its topic is good
	if err == nil {
		h.topic = l.Topic
		err = l.CheckTime(h.now, e.config.TTL, e.skew) // 2: its time is good
	}
	if err != nil {
		e.count.Rejected(oap.ReasonOf(err))
		return
	}
	print := h.fingerprint(a.Gossip.Msg)
	if e.wrote(&l) { // 3: it is known
		h.again(a, print)
		return
	}
	named := h.named(a.link, l.Topic)
	if named && h.last.lax && len(a.Gossip.Sig) == 0 {
		h.open = append(h.open, newcomer{*a, l, print, full})
		return
	}
	h.admit()                    // those that came before it
	if e.seen.has(print, l.TS) { // 3: it is not known
		h.again(a, print)
		return
	}
	if !named && !a.link.admits(l.Topic, h.clock, e.config.TTL) {
		e.count.Dropped(DropTopics, 1)
		h.settle(a)
		a.link.peer.Refuse(a.Corr, errTopics)
		return
	}
	id, err := h.verify(a, &l) // 4: it is signed
	if err != nil {
		e.count.Rejected(oap.ReasonOf(err))
		h.blame(a, &l, err)
		return
	}
	h.remember(a, &l, print, id)
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

// remember takes the last steps with a letter whose signature was checked.
func (h *hand) remember(a *arrival, l *oap.Letter, print fingerprint, id *b3.Address) {
	verdict := h.engine.seen.insert(print, l.TS) // 5: it is remembered
	if verdict != fresh {
		h.refuse(a, print, verdict)
		return
	}
	if h.lent {
		a.Gossip = a.Gossip.Clone()
		l.Data = dataIn(a.Gossip.Msg, l)
	}
	one := newLetter(l, print, h.originOf(l.Key).id, h.envelope(a), h.engine.config.TTL)
	if id != nil {
		one.id.Store(id)
	}
	h.keep(a, l, one) // 6
}

// refuse does what there is to do with a letter that is not new.
func (h *hand) refuse(a *arrival, print fingerprint, why verdict) {
	switch why {
	case known:
		h.again(a, print)
	case full:
		h.engine.count.Dropped(DropSeen, 1)
		a.link.peer.Refuse(a.Corr, errSeen)
	case elapsed:
		h.engine.count.Rejected(oap.Stale)
	}
}

// admit takes the last steps with the letters that needed no signature. Those on
// one topic that follow each other share their memory: they came together, and
// they go the same way.
func (h *hand) admit() {
	h.engine.seen.insertAll(h.open) // 3 and 5: they are not known, and now they are
	for at := 0; at < len(h.open); {
		n := together(h.open[at:])
		if n == 0 {
			one := &h.open[at]
			h.refuse(&one.arrival, one.print, one.verdict)
			n = 1
		} else {
			h.keepAll(h.open[at : at+n]) // 6
		}
		at += n
	}
	clear(h.open)
	h.open = h.open[:0]
}

// together is how many of the first letters are new and share their memory.
func together(batch []newcomer) (n int) {
	bytes := 0
	for n < len(batch) && batch[n].verdict == fresh && batch[n].letter.Topic == batch[0].letter.Topic {
		if bytes += len(batch[n].Gossip.Msg); n > 0 && bytes > pieceBytes {
			break
		}
		n++
	}
	return n
}

// keepAll keeps new letters that share their memory.
func (h *hand) keepAll(batch []newcomer) {
	letters := h.memoryFor(batch)
	for i := range batch {
		one := &batch[i]
		letters[i].write(&one.letter, one.print, h.originOf(one.letter.Key).id, h.envelope(&one.arrival), h.engine.config.TTL)
		h.keep(&one.arrival, &one.letter, &letters[i])
	}
}

// memoryFor finds memory for letters and what we know of them, and moves them
// there if they are the reader's. If they fill most of a piece they get one that
// is used again, unless somebody listens who would never give it back.
func (h *hand) memoryFor(batch []newcomer) []letter {
	h.parts = h.parts[:0]
	size := 0
	for i := range batch {
		h.parts = append(h.parts, batch[i].Gossip.Msg)
		size += len(batch[i].Gossip.Msg)
	}
	defer clear(h.parts)
	if !h.lent || size <= pieceBytes/2 || size > pieceBytes || len(batch) > pieceLetters || h.listens(batch[0].letter.Topic) {
		if h.lent {
			moveAll(batch, bytes.Join(h.parts, nil))
		}
		return make([]letter, len(batch))
	}
	p := takePiece(h.engine.pieces)
	h.pieces = append(h.pieces, p)
	all := p.bytes[:0]
	for _, part := range h.parts {
		all = append(all, part...)
	}
	moveAll(batch, all)
	for i := range batch {
		p.letters[i].piece = p
	}
	return p.letters[:len(batch)]
}

// moveAll moves letters to where they were copied, one behind the other.
func moveAll(batch []newcomer, all []byte) {
	for i := range batch {
		one := &batch[i]
		n := len(one.Gossip.Msg)
		one.Gossip.Msg, all = all[:n:n], all[n:]
		one.letter.Data = dataIn(one.Gossip.Msg, &one.letter)
	}
}

// again notes that a peer sent what we know. We may have asked for it all the
// same, because we did not know its id.
func (h *hand) again(a *arrival, print fingerprint) {
	h.known++
	h.engine.history.markLike(print, a.link.serial)
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

// blame parts from a peer that handed over a letter with a wrong signature. It
// wrote the letter itself, or passed it on unchecked, which nobody may: a relay
// checks first. One without a signature is no proof of either, because its sender
// may have other topics without; nor is anything on a topic where none is needed,
// where signatures count for nothing.
func (h *hand) blame(a *arrival, l *oap.Letter, err error) {
	if oap.ReasonOf(err) == oap.BadSig && !h.engine.policy.mayLack(l.Topic) {
		a.link.peer.Expel(a.Corr, forged(err))
	}
}

// envelope is that in which a letter is passed on.
func (h *hand) envelope(a *arrival) oap.Gossip {
	config := &h.engine.config
	out := a.Gossip
	out.Hops = max(min(out.Hops, uint64(config.Hops)), 1) - 1
	out.Fanout = min(out.Fanout, uint64(config.RelayFanout))
	return out
}

// keep gives a new letter to the subscribers of this node and to some peers.
func (h *hand) keep(a *arrival, l *oap.Letter, one *letter) {
	e := h.engine
	h.deliver(l, one)
	one.mark(a.link.serial)
	h.taken = append(h.taken, one)
	if e.wants.any() && e.wants.settle(one.address()) {
		a.link.fulfilled.Store(h.clock)
	}
	if a.Gossip.Hops == 0 {
		e.count.Dropped(DropHops, 1)
		return
	}
	h.pick(one)
}

// deliver puts a letter among those that subscribers of this node get.
func (h *hand) deliver(l *oap.Letter, one *letter) {
	if h.listens(l.Topic) {
		one.pin()
		h.heard.letters = append(h.heard.letters, newDelivery(l, one))
	}
}

// listens tells whether anybody hears of a topic, and makes it the one that is
// heard of next.
func (h *hand) listens(topic string) bool {
	if topic != h.heard.name {
		h.tell()
		h.heard.topic, h.heard.name = h.engine.audience.find(topic), topic
	}
	return h.heard.topic != nil
}

// tell gives subscribers what they get.
func (h *hand) tell() {
	heard := &h.heard
	for batch := range slices.Chunk(heard.letters, slotsTogether) {
		heard.slots = appendSlots(heard.slots, batch)
	}
	if n := len(heard.slots); n > 0 && h.engine.audience.deliver(heard.topic, heard.slots) {
		h.engine.count.Delivered(n)
	}
	clear(heard.letters)
	clear(heard.slots)
	heard.topic, heard.name, heard.letters, heard.slots = nil, "", heard.letters[:0], heard.slots[:0]
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
