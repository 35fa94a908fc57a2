package gossip

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/testkit"
)

// The seen-set against a map that never forgets anything but what has expired.
func TestSeenSetAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.IntRange(1, 500).Draw(t, "ttl")) * time.Millisecond
		skew := ttl / 2
		most := rapid.IntRange(1, 60).Draw(t, "most")
		set, model := newSeenSet(most, ttl), map[string]uint64{}
		var peers [3]*link
		for i := range peers {
			peers[i] = &link{share: &share{}}
		}
		clock := time.UnixMilli(1_700_000_000_000)
		prints, room := newFingerprinter(), new([fingerprintSize]byte)
		bodies := make([]string, 80)
		for i := range bodies {
			bodies[i] = strings.Repeat("x", i/2) + string(rune('a'+i%2))
		}
		times := map[string]uint64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				clock = clock.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "passes")) * time.Millisecond)
			case 1:
				set.expire(clock)
			default:
				var batch []arrival
				var names []string
				for range rapid.IntRange(1, 8).Draw(t, "batch") {
					body := rapid.SampledFrom(bodies).Draw(t, "message")
					if _, written := times[body]; !written { // a message's time is part of it
						times[body] = uint64(clock.UnixMilli() + int64(rapid.IntRange(-int(ttl.Milliseconds()), int(skew.Milliseconds())).Draw(t, "ts")))
					}
					l, print := oap.GossipMessage{TS: times[body]}, prints.of([]byte(body), room)
					if l.CheckTime(clock, ttl, skew) != nil {
						continue
					}
					if _, taken := model[body]; !taken && rapid.Bool().Draw(t, "ask") && set.has(print, l.TS) {
						t.Fatal("a new message is known")
					}
					batch, names = append(batch, arrival{link: rapid.SampledFrom(peers[:]).Draw(t, "from"), message: l, fingerprint: print}), append(names, body)
				}
				if rapid.Bool().Draw(t, "at once") {
					set.insertBatch(batch)
				} else {
					for i := range batch {
						batch[i].result = set.insert(batch[i].fingerprint, batch[i].message.TS, batch[i].link.share)
					}
				}
				for i, one := range batch {
					_, taken := model[names[i]]
					switch verdict := one.result; {
					case taken && verdict != duplicate:
						t.Fatalf("a known message is %d", verdict)
					case !taken && verdict == inserted:
						model[names[i]] = one.message.TS
					case verdict == shareFull: // since then more was accepted, and nothing has expired
						if free := int64(most) - set.count.Load(); one.link.share.seenEntries.Load()+1 <= shareOfFree*free {
							t.Fatalf("a peer that holds %d is refused while %d are free", one.link.share.seenEntries.Load(), free)
						}
					case !taken && verdict != setFull:
						t.Fatalf("a new message is %d", verdict)
					case verdict == setFull && set.count.Load() != int64(most):
						t.Fatalf("full with %d of %d", set.count.Load(), most)
					}
				}
				for i, one := range batch {
					if _, taken := model[names[i]]; set.has(one.fingerprint, one.message.TS) != taken {
						t.Fatalf("has %v of a message that was taken: %v", !taken, taken)
					}
				}
			}
			held := 0
			for i := range set.shards {
				if n := len(set.shards[i].buckets); n > 2*seenBuckets+16 {
					t.Fatalf("%d buckets", n)
				}
				for _, b := range set.shards[i].buckets {
					held += b.prints.count
				}
			}
			if int64(held) != set.count.Load() || held > most {
				t.Fatalf("%d messages are held, %d counted, %d allowed", held, set.count.Load(), most)
			}
			for _, p := range peers {
				held -= int(p.share.seenEntries.Load())
			}
			if held != 0 {
				t.Fatalf("the shares of peers are off by %d", held)
			}
		}
	})
}

// Whatever arrives, in whatever order, from however many peers: a subscriber
// gets a message at most once, and every valid one exactly once.
func TestAtMostOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		messages := rapid.IntRange(1, 20).Draw(rt, "messages")
		peers := rapid.IntRange(1, 6).Draw(rt, "peers")
		type event struct{ from, message, how, pause int }
		var events []event
		for range rapid.IntRange(1, 120).Draw(rt, "events") {
			events = append(events, event{
				rapid.IntRange(0, peers-1).Draw(rt, "from"), rapid.IntRange(0, messages-1).Draw(rt, "message"),
				rapid.IntRange(0, 9).Draw(rt, "how"), rapid.SampledFrom([]int{0, 0, 0, 1, 1000, 20_000}).Draw(rt, "pause"),
			})
		}
		synctest.Test(t, func(t *testing.T) {
			n := start(t, func(s *Spec) { s.Config.Burst = 4 })
			fakes := n.addPeers(peers)
			s := n.subscribe("news/eu")
			defer s.Close()
			first := time.Now()
			due := map[b3.Address]bool{}
			for _, e := range events {
				g, id := messageAt(t, first, e.message, "news/eu", "storm")
				switch e.how {
				case 0:
					g.Sig = make([]byte, 64)
				case 1:
					g.Sig = nil
				case 2:
					n.HandleHave(fakes[e.from], []b3.Address{id})
					continue
				case 3:
					n.HandleWant(fakes[e.from], []b3.Address{id})
					continue
				default:
					if time.Since(first) <= 120*time.Second {
						due[id] = true
					}
				}
				n.arrive(fakes[e.from], g)
				if e.pause > 0 {
					advanceTime(time.Duration(e.pause) * time.Millisecond)
				}
			}
			waitIdle()
			got := map[b3.Address]int{}
			for _, d := range s.receiveAll(t) {
				got[d.ID()]++
				if got[d.ID()] > 1 {
					t.Fatal("a message was delivered twice")
				}
			}
			for id := range due {
				if got[id] == 0 {
					t.Fatal("a good message was not delivered")
				}
			}
			if len(got) != len(due) {
				t.Fatalf("%d messages were delivered, %d were good", len(got), len(due))
			}
		})
	})
}

// However a peer floods: one that sends less is not refused anything, and while
// both have queued messages they are served alike.
func TestIngressIsFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(t, nil)
		peers := n.addPeers(2)
		flood, quiet := peers[0], peers[1]
		size := rapid.IntRange(1, 30_000).Draw(rt, "size")
		g, _ := sealed(t, origin, &oap.GossipMessage{Topic: "news", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, size)})
		into := make([]*queued, 64)
		waiting, served := map[uint64]int{}, map[uint64]int{}
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			for range rapid.IntRange(0, 300).Draw(rt, "flood") {
				n.arrive(flood, g)
			}
			for range rapid.IntRange(0, 3).Draw(rt, "quiet") {
				n.arrive(quiet, g)
				waiting[quiet.serial]++
			}
			waiting[flood.serial] = n.ingress.Len(1) - waiting[quiet.serial]
			if n.ingressUsage.bytes.Load() > int64(n.config.IngressBytes) || n.ingress.Len(1) > ingressItems {
				rt.Fatalf("%d bytes, %d messages wait", n.ingressUsage.bytes.Load(), n.ingress.Len(1))
			}
			if n.ingress.Len(1) == 0 || rapid.Bool().Draw(rt, "stalled") && waiting[quiet.serial] < 100 {
				continue
			}
			clear(served)
			both := waiting[quiet.serial] > 0 && waiting[flood.serial] > 0
			got, err := n.ingress.Take(context.Background(), into, 1<<30)
			testkit.Must(rt, err)
			for _, a := range into[:got] {
				n.ingressUsage.add(-1, -a.size)
				a.releaseShare()
				waiting[a.link.serial]--
				served[a.link.serial]++
			}
			cost := into[0].size // all messages are alike
			if both && waiting[quiet.serial] > 0 && (served[flood.serial]-served[quiet.serial])*cost > 2*(16<<10+2*cost) {
				rt.Fatalf("served %d of the flood and %d of the quiet peer, %d bytes each", served[flood.serial], served[quiet.serial], cost)
			}
		}
		if refusals := quiet.takeRefused(); len(refusals) > 0 {
			rt.Fatalf("the quiet peer was refused %d messages", len(refusals))
		}
	})
}

// meshLink is a session between two engines of a mesh. It delivers after a
// moment, and rejects at random.
type meshLink struct {
	id     oap.PeerID
	serial uint64
	to     *Engine
	back   *meshLink // as the other side sees it
	chance func() bool
	queue  chan func()
	room   int // for messages; zero is all that the queue has
	pace   atomic.Int64
}

func (l *meshLink) Peer() oap.PeerID          { return l.id }
func (l *meshLink) Serial() uint64            { return l.serial }
func (l *meshLink) MaxFrame() int             { return oap.MaxPayload }
func (l *meshLink) SetBusy(bool)              {}
func (l *meshLink) Expel(_ uint64, err error) { panic(err) } // no node here forges anything

func (l *meshLink) OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	return l.OfferGossip(batch, rejected, patience)
}

func (l *meshLink) OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, _ *time.Duration) []session.Outgoing {
	for _, p := range batch {
		g := *p.Item.Message.(*oap.Gossip)
		written := p.Item.Written
		if l.chance() || l.room > 0 && len(l.queue) >= l.room || !l.put(func() {
			if written != nil {
				written(nil)
			}
			l.to.HandleGossip(l.back, []session.IncomingGossip{{Gossip: g, Corr: 1}})
		}) {
			rejected = append(rejected, p.Item)
		}
	}
	return rejected
}

func (l *meshLink) put(f func()) bool {
	select {
	case l.queue <- f:
		return true
	default:
		return false
	}
}

func (l *meshLink) SendControl(out session.Outgoing) error {
	deliver := func() {
		switch m := out.Message.(type) {
		case *oap.Have:
			l.to.HandleHave(l.back, m.IDs)
		case *oap.Want:
			l.to.HandleWant(l.back, m.IDs)
		}
	}
	if !l.put(deliver) {
		return fault.Busy
	}
	return nil
}

// Refuse sends the refusal to the other side, as a session would.
func (l *meshLink) Refuse(_ uint64, err error) {
	l.put(func() { l.to.HandleRefusal(l.back, &oap.Error{Code: oap.CodeOf(err)}) })
}

// mesh is some engines and the links between them.
type mesh struct {
	nodes   []*node
	subs    []*Subscription
	refused map[b3.Address]int // messages that were refused, and their publishers
	stop    func()
}

// newMesh connects engines along edges and runs everything.
func newMesh(t testing.TB, size int, edges [][2]int, loss float64, change func(*Spec)) *mesh {
	m := idleMesh(t, size, edges, loss, change)
	for _, n := range m.nodes {
		n.run()
	}
	return m
}

// idleMesh runs only the links, not the engines.
func idleMesh(t testing.TB, size int, edges [][2]int, loss float64, change func(*Spec)) *mesh {
	m := &mesh{refused: map[b3.Address]int{}}
	for i := range size {
		m.nodes = append(m.nodes, newNode(t, func(s *Spec) {
			s.Key = keyOf(i + 1)
			if change != nil {
				change(s)
			}
		}))
	}
	var wires []*meshLink
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(1, uint64(size)))
	// A link rejects at random, but a few times in a row at most. A peer that
	// rejects each probe is pruned for longer and longer, at last for longer
	// than messages live.
	newChance := func() func() bool {
		inRow := 0
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			if inRow++; inRow > 3 || dice.Float64() >= loss {
				inRow = 0
				return false
			}
			return true
		}
	}
	for _, e := range edges {
		a, b := m.nodes[e[0]], m.nodes[e[1]]
		there := &meshLink{id: b.self, to: b.Engine, serial: uint64(len(wires) + 1), chance: newChance(), queue: make(chan func(), 512)}
		back := &meshLink{id: a.self, to: a.Engine, serial: uint64(len(wires) + 2), chance: newChance(), queue: make(chan func(), 512), back: there}
		there.back = back
		wires = append(wires, there, back)
		there.pace.Store(int64(100 * time.Microsecond))
		back.pace.Store(int64(100 * time.Microsecond))
		a.addPeer(there)
		b.addPeer(back)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var carriers sync.WaitGroup
	for _, w := range wires {
		carriers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case f := <-w.queue:
					time.Sleep(time.Duration(w.pace.Load()))
					f()
				}
			}
		})
	}
	m.stop = func() { cancel(); carriers.Wait() }
	for _, n := range m.nodes {
		m.subs = append(m.subs, n.subscribe("news/eu"))
	}
	return m
}

func (n *node) addPeer(w *meshLink) {
	n.mu.Lock()
	n.peers = append(append([]Peer(nil), n.peers...), w)
	n.mu.Unlock()
	n.Opened(w)
}

// waitDelivered checks that each subscriber got each message, once, before some
// rounds have passed.
func (m *mesh) waitDelivered(t testing.TB, published map[b3.Address]bool, rounds int) {
	t.Helper()
	got := make([]map[b3.Address]int, len(m.nodes))
	for i := range got {
		got[i] = map[b3.Address]int{}
	}
	for round := 0; ; round++ {
		advanceTime(time.Second)
		missing := 0
		for i, s := range m.subs {
			for _, d := range s.receiveAll(t) {
				if author, refused := m.refused[d.ID()]; refused && author == i {
					continue
				}
				if got[i][d.ID()]++; got[i][d.ID()] > 1 {
					t.Fatalf("node %d got a message twice", i)
				}
				if !published[d.ID()] {
					t.Fatalf("node %d got a message that was refused, or that nobody wrote", i)
				}
			}
			missing += len(published) - len(got[i])
		}
		if missing == 0 {
			return
		}
		if round == rounds {
			t.Fatalf("after %d rounds %d deliveries are missing", round, missing)
		}
	}
}

// A connected mesh of any shape, whose queues reject messages at random: every
// subscriber gets every message.
func TestAMeshLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(2, 9).Draw(rt, "nodes")
		var edges [][2]int
		linked := map[[2]int]bool{}
		add := func(a, b int) {
			if a != b && !linked[[2]int{min(a, b), max(a, b)}] {
				linked[[2]int{min(a, b), max(a, b)}] = true
				edges = append(edges, [2]int{a, b})
			}
		}
		for i := 1; i < size; i++ {
			add(rapid.IntRange(0, i-1).Draw(rt, "parent"), i)
		}
		for range rapid.IntRange(0, size).Draw(rt, "more") {
			add(rapid.IntRange(0, size-1).Draw(rt, "a"), rapid.IntRange(0, size-1).Draw(rt, "b"))
		}
		loss := rapid.Float64Range(0, 0.5).Draw(rt, "loss")
		messages := rapid.IntRange(1, 60).Draw(rt, "messages")
		hops := rapid.IntRange(1, 8).Draw(rt, "hops")
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 10, 1000, 20_000}), messages, messages).Draw(rt, "sizes")
		from := rapid.SliceOfN(rapid.IntRange(0, size-1), messages, messages).Draw(rt, "from")
		synctest.Test(t, func(t *testing.T) {
			m := newMesh(t, size, edges, loss, func(s *Spec) {
				s.Config.Hops = hops
				s.Config.Unsigned = []string{"news"}
			})
			defer m.stop()
			published := map[b3.Address]bool{}
			for i := range messages {
				for {
					outcome, err := m.nodes[from[i]].Publish(t.Context(), "news/eu", make([]byte, sizes[i]))
					if err == nil {
						published[outcome.ID()] = true
						break
					}
					if fault.KindOf(err) != fault.Busy {
						t.Fatal(err)
					}
					m.refused[outcome.ID()] = from[i]
					time.Sleep(50 * time.Millisecond)
				}
			}
			m.waitDelivered(t, published, 8+4*size)
		})
	})
}

// The longest path: a chain of nodes that is longer than messages may hop. What
// relays do not carry, repair does.
func TestALineThatIsLongerThanHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var edges [][2]int
		for i := range 11 {
			edges = append(edges, [2]int{i, i + 1})
		}
		m := newMesh(t, 12, edges, 0, func(s *Spec) { s.Config.Hops = 3 })
		defer m.stop()
		waitIdle()
		outcome := m.nodes[0].mustPublish("news/eu", []byte("far"))
		m.waitDelivered(t, map[b3.Address]bool{outcome.ID(): true}, 12)
	})
}

// A node whose queue overflows says Busy, and what it lost is announced to it
// again.
func TestWhatAFullQueueDroppedIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := idleMesh(t, 2, [][2]int{{0, 1}}, 0, func(*Spec) {})
		defer m.stop()
		sender, receiver := m.nodes[0], m.nodes[1]
		sender.run()
		advanceTime(5 * time.Second)
		published := map[b3.Address]bool{}
		for i := range 600 {
			time.Sleep(20 * time.Microsecond) // faster than the link
			outcome, err := sender.Publish(t.Context(), "news/eu", []byte{byte(i), byte(i >> 8)})
			if err == nil {
				published[outcome.ID()] = true
			} else {
				m.refused[outcome.ID()] = 0
			}
		}
		advanceTime(500 * time.Millisecond)
		lost := receiver.tally.drops(DropIngress) + receiver.tally.drops(DropShare)
		if lost == 0 || len(m.refused) == 600 {
			t.Fatalf("%d messages were lost, %d refused", lost, len(m.refused))
		}
		receiver.run()
		m.waitDelivered(t, published, 10)
	})
}

// A relay whose queue to a peer is short, and whose history holds what comes in
// a fraction of a second: what the peer rejected is announced as soon as it has
// room, not a second later, and nothing is lost.
func TestAShortQueueAndAShortHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bursts, each = 10, 100
		m := newMesh(t, 3, [][2]int{{0, 1}, {1, 2}}, 0, func(s *Spec) {
			s.Config.Unsigned = []string{"news"}
			s.Config.HistoryBytes = 3 * each * 800 // three bursts
		})
		defer m.stop()
		relay := m.nodes[1]
		narrow := relay.peers[1].(*meshLink)
		narrow.room = 16
		narrow.pace.Store(int64(300 * time.Microsecond))
		advanceTime(5 * time.Second)
		published := map[b3.Address]bool{}
		for range bursts {
			for range each {
				published[m.nodes[0].mustPublish("news/eu", make([]byte, 100)).ID()] = true
			}
			advanceTime(60 * time.Millisecond)
		}
		if lost := relay.tally.drops(DropEgress); lost < bursts*each/3 {
			t.Errorf("only %d messages were rejected", lost)
		}
		m.waitDelivered(t, published, 0)
		if again := m.nodes[2].tally.read(&m.nodes[2].tally.duplicate); again > 0 {
			t.Errorf("%d messages came twice", again)
		}
	})
}
