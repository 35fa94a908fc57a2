package gossip

import (
	"context"
	"crypto/ed25519"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/testkit"
)

// pipePeer is a peer of one engine that is a session of another: what is sent
// to it arrives there, in batches, from one task.
type pipePeer struct {
	*fakePeer
	mu     sync.Mutex
	sent   []session.IncomingGossip
	signal chan struct{}
}

func newPipePeer(n int) *pipePeer {
	return &pipePeer{fakePeer: newFakePeer(n), signal: make(chan struct{}, 1)}
}

func (p *pipePeer) OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, _ *time.Duration) []session.Outgoing {
	p.mu.Lock()
	for _, one := range batch {
		p.sent = append(p.sent, session.IncomingGossip{Gossip: one.Item.Message.(*oap.Gossip).Clone()})
		if one.Item.Release != nil {
			one.Item.Release()
		}
	}
	p.mu.Unlock()
	select {
	case p.signal <- struct{}{}:
	default:
	}
	return rejected
}

func (p *pipePeer) OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	return p.OfferGossip(batch, rejected, patience)
}

func (p *pipePeer) take() []session.IncomingGossip {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent = nil
	return sent
}

// run reads what was sent, and delivers it to another engine as coming from
// that peer.
func (p *pipePeer) run(ctx context.Context, to *node, from *fakePeer) {
	for {
		select {
		case <-p.signal:
			for batch := range slices.Chunk(p.take(), 1+rand.IntN(8)) {
				to.HandleGossip(from, batch)
			}
		case <-ctx.Done():
			return
		}
	}
}

// connect adds peers that need not be fakes.
func (n *node) connect(peers ...Peer) {
	n.mu.Lock()
	n.peers = append(slices.Clone(n.peers), peers...)
	n.mu.Unlock()
	for _, p := range peers {
		n.Opened(p)
	}
}

// author is a publisher, on some topics, signed or not.
type author struct {
	key  ed25519.PrivateKey
	next map[string]uint64
}

// write makes its next message on a topic. Sizes differ, and so does how long
// it takes to check one.
func (a *author) write(t testing.TB, topic string, signed bool) oap.Gossip {
	t.Helper()
	size := rand.IntN(200)
	if rand.IntN(8) == 0 {
		size = 12_000 // more would be announced
	}
	seq := a.next[topic]
	a.next[topic]++
	key := a.key
	if !signed {
		key = nil
	}
	g, _ := sealed(t, key, &oap.GossipMessage{Topic: topic, Key: publicOf(a.key), Seq: seq, TS: uint64(time.Now().UnixMilli()), Data: make([]byte, size)})
	return g
}

// mixedMessages returns messages of several authors on several topics as they
// come over one session. On some topics, some of them are not signed.
func mixedMessages(t testing.TB, authors, each int, allSigned bool) (all []oap.Gossip, topics []string) {
	topics = []string{"news", "news/eu", "open/a", "open/b"}
	writers := make([]*author, authors)
	for i := range writers {
		writers[i] = &author{key: keyOf(500 + i), next: map[string]uint64{}}
	}
	for range each * authors {
		topic := topics[rand.IntN(len(topics))]
		signed := allSigned || topic[:4] == "news" || rand.IntN(3) == 0
		all = append(all, writers[rand.IntN(authors)].write(t, topic, signed))
	}
	return all, topics
}

// orderChecker checks that the numbers of each author on each topic grow.
type orderChecker struct {
	last  map[oap.PeerID]map[string]uint64
	count int
}

func (o *orderChecker) check(t *testing.T, who string, origin oap.PeerID, topic string, seq uint64) {
	t.Helper()
	if o.last == nil {
		o.last = map[oap.PeerID]map[string]uint64{}
	}
	if o.last[origin] == nil {
		o.last[origin] = map[string]uint64{}
	}
	if before, known := o.last[origin][topic]; known && seq <= before {
		t.Fatalf("%s got number %d of %s on %s behind number %d", who, seq, origin, topic, before)
	}
	o.last[origin][topic] = seq
	o.count++
}

// What one publisher sends on one topic over one path is delivered in the order
// in which it was sent, by a relay (A to B to C) too, however many workers
// check signatures, however long that takes, and whether or not some of it is
// signed.
func TestOrderOfOnePublisherOnOneTopic(t *testing.T) {
	if testing.Short() {
		t.Skip("checks some thousand signatures")
	}
	t.Run("signed", func(t *testing.T) { checkOrder(t, true) })
	t.Run("some of it signed", func(t *testing.T) { checkOrder(t, false) })
}

func checkOrder(t *testing.T, allSigned bool) {
	all, topics := mixedMessages(t, 5, 80, allSigned)
	var nodes [2]*node
	for i := range nodes {
		nodes[i] = start(t, func(s *Spec) {
			allowUnsigned(s)
			s.Key = keyOf(1000 + i)
			s.Config.Burst, s.Config.Workers.Auto, s.Config.Workers.Value = 2, false, 8
		})
	}
	b, c := nodes[0], nodes[1]
	a, toC, fromB, end := newFakePeer(1), newPipePeer(2), newFakePeer(3), newPipePeer(4)
	b.connect(a, toC)
	c.connect(fromB, end)
	ctx, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer func() { stop(); tasks.Wait() }()
	tasks.Go(func() { toC.run(ctx, c, fromB) })
	var heard [2][]*Subscription
	for i, n := range nodes {
		for _, topic := range topics {
			s := n.subscribe(topic)
			defer s.Close()
			heard[i] = append(heard[i], s)
		}
	}

	for batch := range slices.Chunk(all, 16) {
		testkit.WaitFor(t, "there is room", func() bool { return b.ingress.Len(1)+c.ingress.Len(1) <= 100 }) // or it is shed
		b.arrive(a, batch...)
	}

	var relayed orderChecker
	if !testkit.Poll(func() bool {
		for _, one := range end.take() {
			l, err := one.Gossip.DecodeMessage()
			testkit.Must(t, err)
			relayed.check(t, "a peer of C", oap.PeerIDOf(l.Key[:]), l.Topic, l.Seq)
		}
		return relayed.count == len(all)
	}) {
		t.Fatalf("%d of %d messages came through; %d and %d were shed", relayed.count, len(all), b.tally.drops(DropIngress), c.tally.drops(DropIngress))
	}
	due := map[string]int{}
	for i := range all {
		l, _ := all[i].DecodeMessage()
		due[l.Topic]++
	}
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, subscriptions := range heard {
		var got orderChecker
		for at, s := range subscriptions {
			for range due[topics[at]] {
				d, err := s.Recv(patient)
				if err != nil {
					t.Fatalf("%s: %v", []string{"B", "C"}[i], err)
				}
				got.check(t, "a subscriber", d.Publisher, d.Topic, d.Seq)
			}
		}
	}
}

// seqs returns the numbers of what a fake was sent, in order.
func seqs(t testing.TB, p *fakePeer) (all []uint64) {
	t.Helper()
	for _, g := range p.takeGossip() {
		l, err := g.DecodeMessage()
		testkit.Must(t, err)
		all = append(all, l.Seq)
	}
	return all
}

// orderUnitsInUse returns how many units are used by messages that wait for
// others.
func (n *node) orderUnitsInUse() int {
	for _, one := range n.inventory.Read() {
		if one.Name == "gossip_order" {
			return one.Inside
		}
	}
	n.t.Fatal("the room for what waits for others is not in the inventory")
	return 0
}

// What was checked and has to wait for a message before it is bounded. What
// exceeds the bound is dropped, and the peer gets a refusal; the rest is
// accepted in order.
func TestWhatWaitsForOthersIsBounded(t *testing.T) {
	n := newNode(t, nil)
	peers := n.addPeers(2)
	from := n.linkOf(peers[0])
	const count = orderUnits + 50
	all := make([]*queued, count)
	for i := range all {
		g, _ := messageNow(t, i)
		all[i] = n.queueMessage(from, g)
	}
	n.handleQueued(all[1:])
	testkit.Equal(t, "units in use", n.orderUnitsInUse(), orderUnits)
	testkit.Equal(t, "dropped", n.tally.drops(DropIngress), count-1-orderUnits)
	testkit.Equal(t, "shed", n.Shed(), uint64(count-1-orderUnits))
	if refusals := peers[0].takeRefused(); len(refusals) == 0 || refusals[0].code != oap.Busy {
		t.Errorf("the peer was told %v", refusals)
	}
	testkit.Equal(t, "sent on before its turn", len(peers[1].takeGossip()), 0)

	n.handleQueued(all[:1])
	got := seqs(t, peers[1])
	testkit.Equal(t, "sent on", len(got), orderUnits+1)
	if !slices.IsSorted(got) {
		t.Errorf("sent on in the order %v", got)
	}
	testkit.Equal(t, "units in use after", n.orderUnitsInUse(), 0)
	testkit.Equal(t, "sequences left", from.sequencer.active.Load(), 0)
}

// handleQueued handles a batch like a worker of its own.
func (n *node) handleQueued(batch []*queued) { newBatchState(n.Engine).handleQueued(batch) }

// A large message takes units in proportion to its bytes.
func TestWhatWaitsForOthersIsBoundedInBytes(t *testing.T) {
	n := newNode(t, nil)
	peers := n.addPeers(2)
	from := n.linkOf(peers[0])
	all := make([]*queued, 30)
	for i := range all {
		g, _ := sealed(t, origin, &oap.GossipMessage{Topic: "news", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, 1<<20-600)})
		all[i] = n.queueMessage(from, g)
	}
	n.handleQueued(all[1:])
	held := 0
	for _, q := range from.sequencer.sequences[all[0].sequence.key].pending {
		if q.state == stateGood {
			held += len(q.Gossip.Msg)
		}
	}
	if held == 0 || held > int(DefaultConfig().IngressBytes) {
		t.Errorf("%d bytes wait for others", held)
	}
}

// A flood is rejected while its first message waits for a worker: what was
// rejected takes no room behind it, and its memory is used again.
func TestWhatIsRejectedDoesNotWait(t *testing.T) {
	n := newNode(t, nil)
	peers := n.addPeers(2)
	from := n.linkOf(peers[0])
	first, _ := messageNow(t, 0)
	waits := n.queueMessage(from, first)
	reader := newBatchState(n.Engine)
	for round := range 3 {
		for i := range 100 {
			g, _ := messageNow(t, 1+100*round+i)
			l, _ := g.DecodeMessage()
			reader.queueForWorkers(&arrival{IncomingGossip: session.IncomingGossip{Gossip: g}, link: from, message: l})
		}
		testkit.Equal(t, "spare buffers that were not used", len(reader.spares), 0)
		var rejected []*queued
		for _, one := range reader.toEnqueue {
			rejected = append(rejected, one.Item)
		}
		reader.toEnqueue = reader.toEnqueue[:0]
		reader.rejectQueued(rejected, DropShare, errShare)
		testkit.Equal(t, "messages in the sequence", len(waits.sequence.pending), 1)
		testkit.Equal(t, "spare buffers", len(reader.spares), 100)
	}
	testkit.Equal(t, "dropped", n.tally.drops(DropShare), 300)

	n.handleQueued([]*queued{waits})
	testkit.Equal(t, "sent on", len(seqs(t, peers[1])), 1)
	testkit.Equal(t, "sequences left", from.sequencer.active.Load(), 0)

	alone, _ := messageNow(t, 301)
	newBatchState(n.Engine).rejectQueued([]*queued{n.queueMessage(from, alone)}, DropShare, errShare)
	testkit.Equal(t, "sequences left by one that was rejected alone", from.sequencer.active.Load(), 0)
}

// A publisher whose message is not checked yet does not delay another one, nor
// itself on another topic.
func TestASequenceWaitsForNoOther(t *testing.T) {
	n := newNode(t, nil)
	peers := n.addPeers(2)
	from := n.linkOf(peers[0])
	at := func(key ed25519.PrivateKey, seq int, topic string) *queued {
		g, _ := sealed(t, key, &oap.GossipMessage{Topic: topic, Key: publicOf(key), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
		return n.queueMessage(from, g)
	}
	stuck := at(origin, 1, "news")
	behind := at(origin, 2, "news")
	n.handleQueued([]*queued{behind, at(origin, 3, "sports"), at(keyOf(5), 4, "news")})
	if got := seqs(t, peers[1]); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("sent on while the first waits: %v", got)
	}
	n.handleQueued([]*queued{stuck})
	if got := seqs(t, peers[1]); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("sent on then: %v", got)
	}
}

// What finds no room in the queue does not delay what came behind it.
func TestWhatIsShedHoldsNobodyUp(t *testing.T) {
	n := newNode(t, nil)
	peers := n.addPeers(2)
	from := n.linkOf(peers[0])
	var all []*queued
	for i := range 3 {
		g, _ := messageNow(t, i)
		all = append(all, n.queueMessage(from, g))
	}
	n.handleQueued(all[1:])
	h := newBatchState(n.Engine)
	h.startBatch()
	h.rejectQueued(all[:1], DropIngress, errFull)
	if got := seqs(t, peers[1]); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("sent on: %v", got)
	}
}

// A worker that panics loses what it had not checked, and delays nothing: the
// next worker continues where it was.
func TestAWorkerThatDiesHoldsNothingUp(t *testing.T) {
	for name, next := range map[string]func(n *node){
		"another worker": func(n *node) { n.handleQueued(nil) },
		"itself, started again": func(n *node) {
			n.Drain()
			_ = n.Work(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(s *Spec) { s.Counters.Rejected = func(oap.Reason) { panic("boom") } })
			peers := n.addPeers(2)
			from := n.linkOf(peers[0])
			var all []*queued
			for i := range 4 {
				g, _ := messageNow(t, i)
				if i == 1 {
					g.Sig = make([]byte, ed25519.SignatureSize)
				}
				all = append(all, n.queueMessage(from, g))
			}
			n.handleQueued(all[3:])
			func() {
				defer func() { testkit.Equal(t, "panic", recover(), any("boom")) }()
				n.handleQueued(all[:3])
			}()
			testkit.Equal(t, "sent on by a dead worker", len(peers[1].takeGossip()), 0)
			next(n)
			// The first was checked, the forged one and what came behind it in
			// the batch are lost, the last was checked by another worker.
			if got := seqs(t, peers[1]); !slices.Equal(got, []uint64{0, 3}) {
				t.Errorf("sent on: %v", got)
			}
			testkit.Equal(t, "units in use", n.orderUnitsInUse(), 0)
			testkit.Equal(t, "sequences left", from.sequencer.active.Load(), 0)
		})
	}
}
