package gossip

import (
	"crypto/ed25519"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

const service = "overlay"

// Peer is a session, as far as gossip needs one. Only OfferGossip and
// OfferGossipInline wait, and at most as long as the caller allows.
type Peer interface {
	Peer() oap.PeerID
	Serial() uint64
	MaxFrame() int
	OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, waitLeft *time.Duration) []session.Outgoing
	OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, waitLeft *time.Duration) []session.Outgoing
	SendControl(session.Outgoing) error
	Refuse(corr uint64, err error)
	Expel(corr uint64, err error)
	SetBusy(busy bool)
}

// Spec is what an engine is made of.
type Spec struct {
	Key      ed25519.PrivateKey
	Config   Config
	Topics   int           // distinct topics that are accepted from one peer
	Skew     time.Duration // how far clocks may be ahead
	Peers    func() []Peer // the active sessions; a returned slice is never changed
	Counters Counters
}

// Engine accepts messages, delivers them to the subscribers of this node and
// relays them. It starts no goroutine: the owner runs Work several times, and
// Maintain once.
type Engine struct {
	// set at construction
	config        Config
	topics        int
	skew          time.Duration
	activePeers   func() []Peer
	counters      Counters
	key           ed25519.PrivateKey
	public        [ed25519.PublicKeySize]byte
	self          oap.PeerID
	policy        signPolicy
	fingerprinter *fingerprinter
	firstSeq      uint64 // the number of the first message that is published here

	ingress      *flow.Fair[*queued]
	orderPermits *flow.Permits // for what was checked and waits for earlier messages
	seen         *seenSet
	history      *history
	evicted      *evictedIDs
	wants        *wantList
	subscribers  *subscriberSet
	repairSignal chan struct{} // holds one: a link has a pending repair

	// pools and atomics
	batchStates  sync.Pool     // *batchState, for readers, publishers and tasks that send what was asked for
	buffers      *sync.Pool    // *sharedBuffer without references
	ingressUsage queueUsage    // of the queue
	shed         atomic.Uint64 // messages that the full queue rejected
	nextSeq      atomic.Uint64 // of the next message that is published here
	draining     atomic.Bool
	roster       atomic.Pointer[roster] // the last one; nil if it must be rebuilt

	mu             sync.Mutex //lockblock:leaf maps, and a list made of them
	links          map[uint64]*link
	shares         map[oap.PeerID]*share
	pendingRepairs map[*link]struct{} // links that Maintain looks at next

	hasOrphans atomic.Bool // there are orphans
	orphans    []*sequence // guarded by mu: sequences whose worker panicked
}

// roster is the active sessions with their links. It is read-only.
type roster struct {
	peers []Peer
	links []*link
}

// New makes an engine and enters its queue into the inventory.
func New(inv *flow.Inventory, spec Spec) *Engine {
	public, prints := spec.Key.Public().(ed25519.PublicKey), newFingerprinter()
	e := &Engine{
		config: spec.Config, topics: spec.Topics, skew: spec.Skew, activePeers: spec.Peers, counters: spec.Counters.withDefaults(),
		key: spec.Key, public: [ed25519.PublicKeySize]byte(public), self: oap.PeerIDOf(public), policy: newPolicy(spec.Config), fingerprinter: prints,
		ingress: flow.NewFair[*queued](inv, flow.FairSpec{
			Service: service, Quantum: 16 << 10, From: "reader", To: "gossip workers", Effect: flow.StopsWrites,
			Next:  "Raise overlay.gossip.workers, or limit each peer with overlay.peer.max_rps.",
			Bands: []flow.BandSpec{{Name: "gossip_ingress", Cap: ingressItems, Bytes: int(spec.Config.IngressBytes)}},
		}),
		orderPermits: flow.NewPermits(inv, flow.PermitsSpec{
			Service: service, Name: "gossip_order", Cap: orderUnits, From: "gossip workers", To: "gossip workers",
		}),
		seen:         newSeenSet(spec.Config.Seen, spec.Config.TTL),
		history:      newHistory(int64(spec.Config.HistoryBytes), prints),
		evicted:      &evictedIDs{fingerprinter: prints},
		wants:        &wantList{byID: map[b3.Address]*want{}, perPeer: map[*link]int{}},
		subscribers:  &subscriberSet{inv: inv, topics: map[string]*topicState{}},
		repairSignal: make(chan struct{}, 1),
		buffers:      newSharedBuffers(),
		links:        map[uint64]*link{}, shares: map[oap.PeerID]*share{}, pendingRepairs: map[*link]struct{}{},
	}
	e.batchStates.New = func() any { return newBatchState(e) }
	e.firstSeq = uint64(max(0, time.Now().UnixMilli())) << 20
	e.nextSeq.Store(e.firstSeq)
	return e
}

// Opened registers a peer, before any of its messages arrive.
func (e *Engine) Opened(p Peer) {
	l := newLink(e, p, e.shareOf(p.Peer()))
	e.mu.Lock()
	e.links[l.serial] = l
	e.roster.Store(nil)
	e.mu.Unlock()
	e.scheduleRepair(l)
}

// Closed removes a peer, after its last message arrived.
func (e *Engine) Closed(p Peer) {
	e.mu.Lock()
	l := e.links[p.Serial()]
	delete(e.links, p.Serial())
	e.roster.Store(nil)
	e.mu.Unlock()
	if l != nil {
		l.closed.Store(true)
	}
}

// linkOf returns the link of a peer; nil if it was never opened or is closed.
func (e *Engine) linkOf(p Peer) *link {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.links[p.Serial()]
}

// newRoster makes the roster of the active sessions.
func (e *Engine) newRoster(peers []Peer) *roster {
	r := &roster{peers: peers}
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

// scheduleRepair makes Maintain look at a link at once.
func (e *Engine) scheduleRepair(l *link) {
	if l.repairPending.Swap(true) {
		return // already scheduled
	}
	e.mu.Lock()
	e.pendingRepairs[l] = struct{}{}
	e.mu.Unlock()
	select {
	case e.repairSignal <- struct{}{}:
	default: // a signal is pending already
	}
}

// Drain refuses new messages, from peers and from this node. Workers finish
// what is queued, and end.
func (e *Engine) Drain() {
	e.draining.Store(true)
	e.ingress.Close()
}

// Pressure returns how full the queue to the workers is, from 0 to 1.
func (e *Engine) Pressure() float64 {
	return min(1, max(float64(e.ingressUsage.items.Load())/ingressItems, float64(e.ingressUsage.bytes.Load())/float64(e.config.IngressBytes)))
}

// SeenFullness returns how full the seen-set is, from 0 to 1. When it is full,
// messages of peers are rejected; what is published here needs no entry in it.
func (e *Engine) SeenFullness() float64 {
	return float64(e.seen.count.Load()) / float64(e.seen.capacity)
}

// Shed returns how many messages found no room in the queue since the start. A
// queue that is emptied as fast as it is filled is never found full, and sheds
// all the same.
func (e *Engine) Shed() uint64 { return e.shed.Load() }

// HandleRefusal handles an error with which a peer refuses what was sent to it.
func (e *Engine) HandleRefusal(p Peer, why *oap.Error) {
	l := e.linkOf(p)
	if l == nil {
		return
	}
	switch why.Code {
	case oap.Busy, oap.NotReady:
		l.recheckRecent()
		e.prune(l, time.Now())
	case oap.QuotaExceeded:
		// The peer does not want these messages, so they are not announced
		// again.
		e.prune(l, time.Now())
	}
}

// addToHistory keeps messages for peers that miss them.
func (e *Engine) addToHistory(messages []*storedMessage) {
	if gone := e.history.add(messages); len(gone) > 0 {
		e.evicted.add(gone)
	}
}

// HandleHave records which messages a peer holds, and asks for those that are
// missing. A message that was accepted and has left the history may be asked
// for once more if its id was never needed; it is dropped by its fingerprint
// when it comes.
func (e *Engine) HandleHave(p Peer, ids []b3.Address) {
	l := e.linkOf(p)
	if l == nil || e.draining.Load() {
		return
	}
	missing := e.evicted.exclude(e.history.addHolders(ids, l.serial))
	ask, refused := e.wants.add(l, missing, time.Now())
	if refused > 0 {
		e.counters.Dropped(DropQuota, refused)
	}
	e.sendWant(l, ask)
}

// HandleWant sends a peer the messages that it asks for and that are still in
// the history.
func (e *Engine) HandleWant(p Peer, ids []b3.Address) {
	l := e.linkOf(p)
	if l == nil || e.draining.Load() {
		return
	}
	if refused := l.addWanted(ids, e.history); refused > 0 {
		e.counters.Dropped(DropQuota, refused)
	}
	e.sendWanted(l)
}
