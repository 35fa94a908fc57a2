package gossip

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

const service = "overlay"

// The bounds of what waits to be looked at.
const (
	ingressItems = 512
	ingressBytes = 16 << 20
	turnBytes    = 1 << 20 // what a worker takes in one go; one letter may be as large
	parcelBytes  = 128     // what an arrival costs beside its bytes
)

// Peer is a session, as far as gossip needs one. None of its methods waits, but
// for Post and PostHere, and these only as long as they are told to.
type Peer interface {
	Peer() oap.PeerID
	Serial() uint64
	MaxFrame() int
	Post(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out
	PostHere(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out
	Tell(session.Out) error
	Refuse(corr uint64, err error)
	Expel(corr uint64, err error)
	SetBusy(busy bool)
}

// Spec is what an engine is made of.
type Spec struct {
	Key      ed25519.PrivateKey
	Config   Config
	Topics   int           // distinct topics that are taken from one peer
	Skew     time.Duration // how far clocks may be ahead
	Peers    func() []Peer // the active sessions; a slice is never changed once it was given out
	Counters Counters
}

// Engine takes letters, gives them to the subscribers of this node and passes
// them on. It starts nothing: somebody runs Work, several times, and Tend, once.
type Engine struct {
	// set at construction
	config   Config
	topics   int
	skew     time.Duration
	sessions func() []Peer
	count    Counters
	key      ed25519.PrivateKey
	public   [ed25519.PublicKeySize]byte
	self     oap.PeerID
	policy   policy
	prints   *fingerprinter
	first    uint64 // the number of the first letter that is published here

	ingress  *flow.Fair[arrival]
	seen     *seenSet
	history  *history
	past     *past
	wants    *wantList
	audience *audience
	nudged   chan struct{} // holds one: somebody is needy

	// pools and atomics
	hands   sync.Pool     // *hand, for those who publish or give what was asked for
	offers  sync.Pool     // *offer, for the readers of sessions
	pieces  *sync.Pool    // *piece, of which no letter is looked at
	waiting atomic.Int64  // bytes in the queue
	shed    atomic.Uint64 // letters that found no room in it
	seq     atomic.Uint64 // of the next letter that is published here
	drained atomic.Bool
	roster  atomic.Pointer[roster] // the last one; nil if it must be made anew

	mu    sync.Mutex //lockblock:leaf maps, and a list made of them
	links map[uint64]*link
	needy map[*link]struct{} // those who want something of Tend at once
}

// roster is the active sessions, with what is known of each. It is read-only.
type roster struct {
	from  []Peer
	links []*link
}

// arrival is a letter that waits to be looked at.
type arrival struct {
	session.Arrival
	link *link
}

func (a *arrival) cost() int { return parcelBytes + len(a.Gossip.Msg) + len(a.Gossip.Sig) }

// New makes an engine. Its queue is entered into the inventory.
func New(inv *flow.Inventory, spec Spec) *Engine {
	public, prints := spec.Key.Public().(ed25519.PublicKey), newFingerprinter()
	e := &Engine{
		config: spec.Config, topics: spec.Topics, skew: spec.Skew, sessions: spec.Peers, count: spec.Counters.orNothing(),
		key: spec.Key, public: [ed25519.PublicKeySize]byte(public), self: oap.PeerIDOf(public), policy: newPolicy(spec.Config), prints: prints,
		ingress: flow.NewFair[arrival](inv, flow.FairSpec{
			Service: service, Quantum: 16 << 10, From: "reader", To: "gossip workers",
			Bands: []flow.BandSpec{{Name: "gossip_ingress", Cap: ingressItems, Bytes: ingressBytes}},
		}),
		seen:     newSeenSet(spec.Config.Seen, spec.Config.TTL),
		history:  newHistory(int64(spec.Config.HistoryBytes), prints),
		past:     &past{prints: prints},
		wants:    newWantList(),
		audience: newAudience(inv),
		nudged:   make(chan struct{}, 1),
		pieces:   newPieces(),
		links:    map[uint64]*link{}, needy: map[*link]struct{}{},
	}
	e.hands.New = func() any { return newHand(e) }
	e.offers.New = func() any { return new(offer) }
	e.first = uint64(max(0, time.Now().UnixMilli())) << 20
	e.seq.Store(e.first)
	return e
}

// Opened makes a peer known, before anything of it arrives.
func (e *Engine) Opened(p Peer) {
	l := newLink(e, p)
	e.mu.Lock()
	e.links[l.serial] = l
	e.roster.Store(nil)
	e.mu.Unlock()
	e.nudge(l)
}

// Closed forgets a peer, after the last of it arrived.
func (e *Engine) Closed(p Peer) {
	e.mu.Lock()
	l := e.links[p.Serial()]
	delete(e.links, p.Serial())
	e.roster.Store(nil)
	e.mu.Unlock()
	if l != nil {
		l.gone.Store(true)
	}
}

// find is what is known of a peer; nil if it was never opened or is closed.
func (e *Engine) find(p Peer) *link {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.links[p.Serial()]
}

// active is the roster of this moment. As long as the sessions stay the same it
// is the same, and then it takes no lock.
func (e *Engine) active() *roster {
	peers := e.sessions()
	if r := e.roster.Load(); r != nil && same(r.from, peers) {
		return r
	}
	r := &roster{from: peers}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range peers {
		if l := e.links[p.Serial()]; l != nil {
			r.links = append(r.links, l)
		}
	}
	e.roster.Store(r)
	return r
}

// same tells whether two slices are one. What they hold needs no look: it is
// never changed.
func same(a, b []Peer) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// nudge asks Tend to look after a peer at once.
func (e *Engine) nudge(l *link) {
	if l.nudged.Swap(true) {
		return // it is among the needy
	}
	e.mu.Lock()
	e.needy[l] = struct{}{}
	e.mu.Unlock()
	select {
	case e.nudged <- struct{}{}:
	default: // it will look anyway
	}
}

// offer is room for a batch on its way into the queue.
type offer struct {
	parcels []flow.Parcel[arrival]
	turned  []arrival
}

// Arrived takes letters from a reader, valid during the call. Those that are not
// signed cost no more than it cost to read them, so the reader takes them through
// all steps itself: it would spend as much on handing them over, and while it is
// at it nothing is read from that peer, which is how a sender learns to slow
// down. Signed ones are copied and wait for the workers.
func (e *Engine) Arrived(p Peer, batch []session.Arrival) {
	l := e.find(p)
	if l == nil || e.drained.Load() {
		e.count.Dropped(DropDrain, len(batch))
		return
	}
	h := e.hands.Get().(*hand)
	if signed := h.handleOpen(l, batch); signed > 0 {
		e.enqueue(l, batch)
	}
	e.hands.Put(h)
}

// enqueue hands what is signed to the workers. A peer whose letters find no room
// is told so.
func (e *Engine) enqueue(l *link, batch []session.Arrival) {
	o := e.offers.Get().(*offer)
	bytes := 0
	for i := range batch {
		if len(batch[i].Gossip.Sig) == 0 {
			continue
		}
		a := arrival{session.Arrival{Gossip: batch[i].Gossip.Clone(), Corr: batch[i].Corr}, l}
		bytes += a.cost()
		o.parcels = append(o.parcels, flow.Parcel[arrival]{Class: l.serial, Cost: a.cost(), Item: a})
	}
	e.waiting.Add(int64(bytes))
	o.turned = e.ingress.Offer(1, o.parcels, o.turned)
	e.turnAway(o.turned)
	clear(o.parcels)
	clear(o.turned)
	o.parcels, o.turned = o.parcels[:0], o.turned[:0]
	e.offers.Put(o)
}

// turnAway tells peers that there is no room for their letters. Those may be
// other peers than the one whose letters just came: the queue takes from the
// rich.
func (e *Engine) turnAway(turned []arrival) {
	if len(turned) == 0 {
		return
	}
	e.count.Dropped(DropIngress, len(turned))
	e.shed.Add(uint64(len(turned)))
	var told *link
	for i := range turned {
		e.waiting.Add(int64(-turned[i].cost()))
		if turned[i].link != told {
			told = turned[i].link
			told.peer.Refuse(turned[i].Corr, errFull)
		}
	}
}

// Work takes what arrived, a burst at a time, until the engine is drained and
// nothing is left. Several tasks run it.
func (e *Engine) Work(ctx context.Context) error {
	h := newHand(e)
	into := make([]arrival, e.config.Burst)
	for {
		n, err := e.ingress.Take(ctx, into, turnBytes)
		if errors.Is(err, flow.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		h.handle(into[:n])
		clear(into[:n])
	}
}

// Drain refuses new letters, from peers and from this node. Workers finish what
// waits, and end.
func (e *Engine) Drain() {
	e.drained.Store(true)
	e.ingress.Close()
}

// Pressure is how full the fullest of the bounded parts is, from 0 to 1.
func (e *Engine) Pressure() float64 {
	bytes := e.waiting.Load()
	if bytes == 0 {
		return e.seen.fullness() // nothing waits, and who publishes need not ask the queue for it
	}
	return min(1, max(
		float64(e.ingress.Len(1))/ingressItems,
		float64(bytes)/ingressBytes,
		e.seen.fullness(),
	))
}

// Shed is how many letters found no room in the queue since the start. A queue
// that is emptied as fast as it is filled is never found full, and sheds all
// the same.
func (e *Engine) Shed() uint64 { return e.shed.Load() }

// Refused hears that a peer refuses what we send it.
func (e *Engine) Refused(p Peer, why *oap.Error) {
	l := e.find(p)
	if l == nil {
		return
	}
	switch why.Code {
	case oap.Busy, oap.NotReady:
		l.doubt()
		e.prune(l, time.Now())
	case oap.QuotaExceeded:
		// What it does not want it need not be told of again.
		e.prune(l, time.Now())
	}
}

// store keeps letters for peers that miss them.
func (e *Engine) store(letters []*letter) {
	if gone := e.history.add(letters); len(gone) > 0 {
		e.past.add(gone)
	}
}

// Have hears which letters a peer holds, and asks for those that are missing. A
// letter that was taken and has left the history may be asked for once more if
// nobody ever needed its id; it is dropped by its fingerprint when it comes.
func (e *Engine) Have(p Peer, ids []b3.Address) {
	l := e.find(p)
	if l == nil || e.drained.Load() {
		return
	}
	missing := e.past.without(e.history.mark(ids, l.serial))
	ask, refused := e.wants.note(l, missing, time.Now())
	if refused > 0 {
		e.count.Dropped(DropQuota, refused)
	}
	e.ask(l, ask)
}

// Want sends a peer the letters that it asks for and that are still here.
func (e *Engine) Want(p Peer, ids []b3.Address) {
	l := e.find(p)
	if l == nil || e.drained.Load() {
		return
	}
	if refused := l.promise(ids, e.history); refused > 0 {
		e.count.Dropped(DropQuota, refused)
	}
	e.give(l)
}
