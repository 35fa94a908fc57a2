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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyOf is a key for a small number.
func keyOf(n int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint64(seed, uint64(n))
	return ed25519.NewKeyFromSeed(seed)
}

func publicOf(key ed25519.PrivateKey) [32]byte { return [32]byte(key.Public().(ed25519.PublicKey)) }

// refusedBy is what a peer was told of what it sent.
type refusedBy struct {
	corr uint64
	code oap.Code
}

// fake is a session that writes nothing. Unless it is told otherwise it takes
// everything.
type fake struct {
	id     oap.PeerID
	serial uint64
	max    int

	mu       sync.Mutex
	closed   bool // takes no gossip
	deaf     bool // takes no control messages
	accept   func(*oap.Gossip) bool
	older    []session.Out // turned away with the next Post
	posts    int
	waits    []time.Duration // what patience each Post came with, -1 for none
	idles    bool            // it uses up all patience before it turns away
	got      []oap.Gossip
	outs     []session.Out
	haves    [][]b3.Address
	wants    [][]b3.Address
	refused  []refusedBy
	expelled []refusedBy
	busy     []bool
	heres    int // posts that are to be written by whoever posts
	told     func(oap.Message)
}

func newFake(n int) *fake {
	return &fake{id: oap.PeerIDOf(keyOf(n).Public().(ed25519.PublicKey)), serial: uint64(n), max: oap.MaxPayload}
}

func (f *fake) Peer() oap.PeerID { return f.id }
func (f *fake) Serial() uint64   { return f.serial }
func (f *fake) MaxFrame() int    { return f.max }

func (f *fake) Post(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.posts++
	f.notePatience(patience)
	turned = append(turned, f.older...)
	f.older = nil
	for _, p := range batch {
		g := p.Item.Message.(*oap.Gossip)
		if f.closed || f.accept != nil && !f.accept(g) {
			turned = append(turned, p.Item)
			continue
		}
		f.got = append(f.got, *g)
		f.outs = append(f.outs, p.Item)
	}
	return turned
}

func (f *fake) PostHere(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out {
	f.mu.Lock()
	f.heres++
	f.mu.Unlock()
	return f.Post(batch, turned, patience)
}

// notePatience remembers what a Post came with. Guarded by mu.
func (f *fake) notePatience(patience *time.Duration) {
	if patience == nil {
		f.waits = append(f.waits, -1)
		return
	}
	f.waits = append(f.waits, *patience)
	if f.idles {
		*patience = 0
	}
}

// takeWaits is what patience it was shown since the last time.
func (f *fake) takeWaits() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	waits := f.waits
	f.waits = nil
	return waits
}

func (f *fake) Tell(out session.Out) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deaf {
		return fault.Busy
	}
	switch m := out.Message.(type) {
	case *oap.Have:
		f.haves = append(f.haves, slices.Clone(m.IDs))
	case *oap.Want:
		f.wants = append(f.wants, slices.Clone(m.IDs))
	}
	if f.told != nil {
		f.told(out.Message)
	}
	return nil
}

func (f *fake) Refuse(corr uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = append(f.refused, refusedBy{corr, oap.CodeOf(err)})
}

func (f *fake) Expel(corr uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expelled = append(f.expelled, refusedBy{corr, oap.CodeOf(err)})
}

func (f *fake) SetBusy(busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = append(f.busy, busy)
}

// set changes how the fake behaves.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// took is what it was sent since the last call.
func (f *fake) took() []oap.Gossip {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got, f.outs = nil, nil
	return got
}

func (f *fake) takeHaves() []b3.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(f.haves...)
	f.haves = nil
	return all
}

func (f *fake) takeWants() []b3.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(f.wants...)
	f.wants = nil
	return all
}

func (f *fake) takeRefused() []refusedBy {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.refused
	f.refused = nil
	return all
}

func (f *fake) takeExpelled() []refusedBy {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.expelled
	f.expelled = nil
	return all
}

func (f *fake) isBusy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.busy) > 0 && f.busy[len(f.busy)-1]
}

// tally is what an engine counted.
type tally struct {
	mu                                     sync.Mutex
	taken, duplicate, relayed, repaired    int
	announced, wanted, delivered, prunings int
	rejected                               map[oap.Reason]int
	dropped                                map[string]int
}

func (c *tally) counters() Counters {
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

func (c *tally) drops(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped[reason]
}

func (c *tally) rejects(reason oap.Reason) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejected[reason]
}

func (c *tally) read(of *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *of
}

// node is an engine with fake peers around it, and its tasks.
type node struct {
	*Engine
	t     testing.TB
	tally *tally
	stop  func()

	mu    sync.Mutex
	peers []Peer
}

// start makes an engine and runs its tasks until the test ends. It must be
// called inside a bubble of synctest.
func start(t testing.TB, change func(*Spec)) *node {
	n := still(t, change)
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
	tasks.Go(func() { _ = n.Tend(ctx) })
	n.stop = sync.OnceFunc(func() { cancel(); tasks.Wait() })
	n.t.Cleanup(n.stop)
}

// still makes an engine without tasks.
func still(t testing.TB, change func(*Spec)) *node {
	n := &node{t: t, tally: &tally{rejected: map[oap.Reason]int{}, dropped: map[string]int{}}}
	spec := Spec{Key: keyOf(1000), Config: DefaultConfig(), Topics: 128, Skew: 2 * time.Minute, Peers: n.active, Counters: n.tally.counters()}
	if change != nil {
		change(&spec)
	}
	n.Engine = New(flow.NewInventory(), spec)
	return n
}

func (n *node) active() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peers
}

// open adds peers, as a switchboard does.
func (n *node) open(peers ...*fake) {
	for _, p := range peers {
		n.mu.Lock()
		n.peers = append(slices.Clone(n.peers), p)
		n.mu.Unlock()
		n.Opened(p)
	}
}

func (n *node) close(p *fake) {
	n.mu.Lock()
	n.peers = slices.DeleteFunc(slices.Clone(n.peers), func(other Peer) bool { return other == Peer(p) })
	n.mu.Unlock()
	n.Closed(p)
}

// company is a number of peers, opened.
func (n *node) company(count int) []*fake {
	all := make([]*fake, count)
	for i := range all {
		all[i] = newFake(i + 1)
	}
	n.open(all...)
	return all
}

// origin is the author of most letters in the tests: no peer of anybody.
var (
	origin   = keyOf(77)
	originID = oap.PeerIDOf(origin.Public().(ed25519.PublicKey))
)

// idsOf is some ids of letters that nobody has.
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

// letterAt is a signed letter by origin, in its envelope as the origin sends it.
func letterAt(t testing.TB, written time.Time, seq int, topic, data string) (oap.Gossip, b3.Address) {
	t.Helper()
	return sealed(t, origin, &oap.Letter{Topic: topic, Key: publicOf(origin), Seq: uint64(seq), TS: uint64(written.UnixMilli()), Data: []byte(data)})
}

func sealed(t testing.TB, key ed25519.PrivateKey, l *oap.Letter) (oap.Gossip, b3.Address) {
	t.Helper()
	g, id, err := l.Seal(key)
	if err != nil {
		t.Fatal(err)
	}
	g.Hops, g.Fanout = 8, 3
	return g, id
}

// letterNow is a good letter of this moment.
func letterNow(t testing.TB, seq int) (oap.Gossip, b3.Address) {
	t.Helper()
	return letterAt(t, time.Now(), seq, "news/eu", "storm")
}

// arrive brings envelopes from a peer; the corr of each is its place, from 1 on.
func (n *node) arrive(from *fake, letters ...oap.Gossip) {
	batch := make([]session.Arrival, len(letters))
	for i, g := range letters {
		batch[i] = session.Arrival{Gossip: g, Corr: uint64(i + 1)}
	}
	n.Arrived(from, batch)
}

// settle lets the tasks do what they can do without waiting for the clock.
func settle() { synctest.Wait() }

// pass lets time pass, and what happens meanwhile happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (n *node) subscribe(topic string) *Subscription {
	n.t.Helper()
	s, err := n.Subscribe(topic)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// drain is everything that waits for a subscriber.
func (s *Subscription) drain(t testing.TB) []*Delivery {
	t.Helper()
	var all []*Delivery
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

// holders is which of the fakes got a letter, and how often in all.
func holders(peers []*fake) (who []*fake, frames int) {
	for _, p := range peers {
		if got := p.took(); len(got) > 0 {
			who = append(who, p)
			frames += len(got)
		}
	}
	return who, frames
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func equalBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes differ from the %d that were sent", what, len(got), len(want))
	}
}

// missing is how many letters are on the list of wants, and how many peers are
// asked for them.
func (n *node) missing() (letters, peers int) {
	n.wants.mu.Lock()
	defer n.wants.mu.Unlock()
	return len(n.wants.byID), len(n.wants.asking)
}

// owed is how many letters a peer asked for and has not got.
func (n *node) owed(p *fake) int {
	l := n.find(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) != len(l.asked) {
		n.t.Errorf("%d letters are due, %d are looked up", len(l.due), len(l.asked))
	}
	return len(l.due)
}

// kept is how many letters the history holds, and what they weigh.
func (n *node) kept() (letters int, bytes int64) {
	h := n.history
	h.mu.Lock()
	defer h.mu.Unlock()
	held := int(h.next - h.first)
	if placed := max(h.placed, h.first) - h.first; placed != uint64(h.places.count) || int64(len(h.ring)) > max(smallestTable, 2*h.most/letterOverhead) || len(h.byID) > held {
		n.t.Errorf("%d letters in the ring, %d have places, %d ids; room for %d", held, h.places.count, len(h.byID), len(h.ring))
	}
	return held, h.bytes
}
