package gossip

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyOf is a key for a small number.
func keyOf(n int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint64(seed, uint64(n))
	return ed25519.NewKeyFromSeed(seed)
}

func publicOf(key ed25519.PrivateKey) [32]byte { return [32]byte(key.Public().(ed25519.PublicKey)) }

// refusalCall is a refusal that a peer got.
type refusalCall struct {
	corr uint64
	code oap.Code
}

// fakePeer is a session that writes nothing. By default it accepts everything.
type fakePeer struct {
	id     oap.PeerID
	serial uint64
	max    int

	mu             sync.Mutex
	rejectsGossip  bool // rejects gossip
	rejectsControl bool // rejects control messages
	accept         func(*oap.Gossip) bool
	evicts         []session.Outgoing // rejected with the next offer
	posts          int
	waits          []time.Duration // the patience of each offer, -1 for none
	idles          bool            // it uses up all patience before it rejects
	got            []oap.Gossip
	outs           []session.Outgoing
	haves          [][]b3.Address
	wants          [][]b3.Address
	refused        []refusalCall
	expelled       []refusalCall
	busy           []bool
	inlineOffers   int // offers that the caller writes itself
	onControl      func(oap.Message)
}

func newFakePeer(n int) *fakePeer {
	return &fakePeer{id: oap.PeerIDOf(keyOf(n).Public().(ed25519.PublicKey)), serial: uint64(n), max: oap.MaxPayload}
}

func (f *fakePeer) Peer() oap.PeerID { return f.id }
func (f *fakePeer) Serial() uint64   { return f.serial }
func (f *fakePeer) MaxFrame() int    { return f.max }

func (f *fakePeer) OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.posts++
	f.notePatience(patience)
	rejected = append(rejected, f.evicts...)
	f.evicts = nil
	for _, p := range batch {
		g := p.Item.Message.(*oap.Gossip)
		if f.rejectsGossip || f.accept != nil && !f.accept(g) {
			rejected = append(rejected, p.Item)
			continue
		}
		f.got = append(f.got, *g)
		f.outs = append(f.outs, p.Item)
	}
	return rejected
}

func (f *fakePeer) OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	f.mu.Lock()
	f.inlineOffers++
	f.mu.Unlock()
	return f.OfferGossip(batch, rejected, patience)
}

// notePatience records the patience of an offer. Guarded by mu.
func (f *fakePeer) notePatience(patience *time.Duration) {
	if patience == nil {
		f.waits = append(f.waits, -1)
		return
	}
	f.waits = append(f.waits, *patience)
	if f.idles {
		*patience = 0
	}
}

// takeWaits returns the patience of all offers since the last call.
func (f *fakePeer) takeWaits() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	waits := f.waits
	f.waits = nil
	return waits
}

func (f *fakePeer) SendControl(out session.Outgoing) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rejectsControl {
		return fault.Busy
	}
	switch m := out.Message.(type) {
	case *oap.Have:
		f.haves = append(f.haves, slices.Clone(m.IDs))
	case *oap.Want:
		f.wants = append(f.wants, slices.Clone(m.IDs))
	}
	if f.onControl != nil {
		f.onControl(out.Message)
	}
	return nil
}

func (f *fakePeer) Refuse(corr uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = append(f.refused, refusalCall{corr, oap.CodeOf(err)})
}

func (f *fakePeer) Expel(corr uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expelled = append(f.expelled, refusalCall{corr, oap.CodeOf(err)})
}

func (f *fakePeer) SetBusy(busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = append(f.busy, busy)
}

// set changes how the fake behaves.
func (f *fakePeer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// takeGossip returns what it was sent since the last call.
func (f *fakePeer) takeGossip() []oap.Gossip {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got, f.outs = nil, nil
	return got
}

func (f *fakePeer) takeHaves() []b3.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(f.haves...)
	f.haves = nil
	return all
}

func (f *fakePeer) takeWants() []b3.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(f.wants...)
	f.wants = nil
	return all
}

func (f *fakePeer) takeRefused() []refusalCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.refused
	f.refused = nil
	return all
}

func (f *fakePeer) takeExpelled() []refusalCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.expelled
	f.expelled = nil
	return all
}

func (f *fakePeer) isBusy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.busy) > 0 && f.busy[len(f.busy)-1]
}

// counts is what an engine counted.
type counts struct {
	mu                                     sync.Mutex
	taken, duplicate, relayed, repaired    int
	announced, wanted, delivered, prunings int
	rejected                               map[oap.Reason]int
	dropped                                map[string]int
}

func (c *counts) counters() Counters {
	add := func(to *int) func(int) {
		return func(n int) { c.mu.Lock(); *to += n; c.mu.Unlock() }
	}
	return Counters{
		Taken: add(&c.taken), Duplicate: add(&c.duplicate), Relayed: add(&c.relayed), Repaired: add(&c.repaired),
		Announced: add(&c.announced), Wanted: add(&c.wanted), Delivered: add(&c.delivered),
		Pruned:   func() { add(&c.prunings)(1) },
		Rejected: func(r oap.Reason) { c.mu.Lock(); c.rejected[r]++; c.mu.Unlock() },
		Dropped:  func(reason string, n int) { c.mu.Lock(); c.dropped[reason] += n; c.mu.Unlock() },
	}
}

func (c *counts) drops(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped[reason]
}

func (c *counts) rejects(reason oap.Reason) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejected[reason]
}

func (c *counts) read(of *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *of
}

// node is an engine with fake peers around it, and its tasks.
type node struct {
	*Engine
	t     testing.TB
	tally *counts
	stop  func()

	inventory *flow.Inventory

	mu    sync.Mutex
	peers []Peer
}

// start makes an engine and runs its tasks until the test ends. It must be
// called inside a bubble of synctest.
func start(t testing.TB, change func(*Spec)) *node {
	n := newNode(t, change)
	n.run()
	return n
}

// run starts the tasks of an engine.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for range n.config.WorkerCount() {
		tasks.Go(func() { _ = n.Work(ctx) })
	}
	tasks.Go(func() { _ = n.Maintain(ctx) })
	n.stop = sync.OnceFunc(func() { cancel(); tasks.Wait() })
	n.t.Cleanup(n.stop)
}

// newNode makes an engine without tasks.
func newNode(t testing.TB, change func(*Spec)) *node {
	n := &node{t: t, tally: &counts{rejected: map[oap.Reason]int{}, dropped: map[string]int{}}}
	spec := Spec{Key: keyOf(1000), Config: DefaultConfig(), Topics: 128, Skew: 2 * time.Minute, Peers: n.active, Counters: n.tally.counters()}
	if change != nil {
		change(&spec)
	}
	n.inventory = flow.NewInventory()
	n.Engine = New(n.inventory, spec)
	return n
}

func (n *node) active() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peers
}

// open adds peers, as the overlay does.
func (n *node) open(peers ...*fakePeer) {
	for _, p := range peers {
		n.mu.Lock()
		n.peers = append(slices.Clone(n.peers), p)
		n.mu.Unlock()
		n.Opened(p)
	}
}

func (n *node) close(p *fakePeer) {
	n.mu.Lock()
	n.peers = slices.DeleteFunc(slices.Clone(n.peers), func(other Peer) bool { return other == Peer(p) })
	n.mu.Unlock()
	n.Closed(p)
}

// addPeers adds a number of peers, opened.
func (n *node) addPeers(count int) []*fakePeer {
	all := make([]*fakePeer, count)
	for i := range all {
		all[i] = newFakePeer(i + 1)
	}
	n.open(all...)
	return all
}

// origin is the publisher of most messages in the tests. It is no peer of any
// node.
var (
	origin   = keyOf(77)
	originID = oap.PeerIDOf(origin.Public().(ed25519.PublicKey))
)

// idsOf returns ids of messages that do not exist.
func idsOf(count int) []b3.Address {
	ids := make([]b3.Address, count)
	for i := range ids {
		ids[i] = b3.Of(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	return ids
}

func canceled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// messageAt is a signed message by origin, in its envelope as the origin sends
// it.
func messageAt(t testing.TB, written time.Time, seq int, topic, data string) (oap.Gossip, b3.Address) {
	t.Helper()
	return sealed(t, origin, &oap.GossipMessage{Topic: topic, Key: publicOf(origin), Seq: uint64(seq), TS: uint64(written.UnixMilli()), Data: []byte(data)})
}

func sealed(t testing.TB, key ed25519.PrivateKey, l *oap.GossipMessage) (oap.Gossip, b3.Address) {
	t.Helper()
	g, id, err := l.Seal(key)
	testkit.Must(t, err)
	g.Hops, g.Fanout = 8, 3
	return g, id
}

// messageNow is a valid message of this moment.
func messageNow(t testing.TB, seq int) (oap.Gossip, b3.Address) {
	t.Helper()
	return messageAt(t, time.Now(), seq, "news/eu", "storm")
}

// arrive brings envelopes from a peer; the corr of each is its position, from 1
// on.
func (n *node) arrive(from *fakePeer, envelopes ...oap.Gossip) {
	batch := make([]session.IncomingGossip, len(envelopes))
	for i, g := range envelopes {
		batch[i] = session.IncomingGossip{Gossip: g, Corr: uint64(i + 1)}
	}
	n.HandleGossip(from, batch)
}

// queueMessage is a message in the queue to the workers.
func (e *Engine) queueMessage(from *link, g oap.Gossip) *queued {
	message, _ := g.DecodeMessage()
	q := newQueued(&arrival{IncomingGossip: session.IncomingGossip{Gossip: g}, link: from, message: message}, 16<<20)
	if !from.sequencer.append(q, false) {
		panic("a message found no place")
	}
	return q
}

// waitIdle lets the tasks run until all of them block.
func waitIdle() { synctest.Wait() }

// advanceTime advances the fake clock, and runs what is due meanwhile.
func advanceTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (n *node) subscribe(topic string) *Subscription {
	n.t.Helper()
	s, err := n.Subscribe(topic)
	testkit.Must(n.t, err)
	return s
}

// receiveAll returns everything that is queued for a subscriber.
func (s *Subscription) receiveAll(t testing.TB) []*Message {
	t.Helper()
	var all []*Message
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		d, err := s.Recv(ctx)
		cancel()
		if err != nil {
			if fault.KindOf(err) != fault.Timeout {
				t.Errorf("recv: %v", err)
			}
			return all
		}
		all = append(all, d)
	}
}

// receivers returns which of the fakes got a message, and how many frames in
// all.
func receivers(peers []*fakePeer) (who []*fakePeer, frames int) {
	for _, p := range peers {
		if got := p.takeGossip(); len(got) > 0 {
			who = append(who, p)
			frames += len(got)
		}
	}
	return who, frames
}

func equalBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes differ from the %d that were sent", what, len(got), len(want))
	}
}

// wantCounts returns how many messages are on the list of wants, and how many
// peers are asked for them.
func (n *node) wantCounts() (messages, peers int) {
	n.wants.mu.Lock()
	defer n.wants.mu.Unlock()
	return len(n.wants.byID), len(n.wants.perPeer)
}

// wantedBy returns how many messages a peer asked for and has not been sent.
func (n *node) wantedBy(p *fakePeer) int {
	l := n.linkOf(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wanted) != len(l.wantedSet) {
		n.t.Errorf("%d messages are due, %d are looked up", len(l.wanted), len(l.wantedSet))
	}
	return len(l.wanted)
}

// historyUsage returns how many messages the history holds, and their size.
func (n *node) historyUsage() (messages int, bytes int64) {
	h := n.history
	h.mu.Lock()
	defer h.mu.Unlock()
	held := int(h.nextSeq - h.firstSeq)
	if placed := max(h.fingerprinted, h.firstSeq) - h.firstSeq; placed != uint64(h.byFingerprint.count) || int64(len(h.ring)) > max(minTableSize, 2*h.budget/messageOverhead) || len(h.byID) > held {
		n.t.Errorf("%d messages in the ring, %d have places, %d ids; room for %d", held, h.byFingerprint.count, len(h.byID), len(h.ring))
	}
	return held, h.bytes
}
