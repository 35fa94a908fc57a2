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
)

// The seen-set against a map that never forgets anything but what has expired.
func TestSeenSetAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.IntRange(1, 500).Draw(t, "ttl")) * time.Millisecond
		skew := ttl / 2
		most := rapid.IntRange(1, 60).Draw(t, "most")
		set, model := newSeenSet(most, ttl), map[string]uint64{}
		clock := time.UnixMilli(1_700_000_000_000)
		prints, room := newFingerprinter(), new([fingerprintSize]byte)
		letters := make([]string, 80)
		for i := range letters {
			letters[i] = strings.Repeat("x", i/2) + string(rune('a'+i%2))
		}
		times := map[string]uint64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				clock = clock.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "passes")) * time.Millisecond)
			case 1:
				set.expire(clock)
			default:
				var batch []newcomer
				var names []string
				for range rapid.IntRange(1, 8).Draw(t, "batch") {
					letter := rapid.SampledFrom(letters).Draw(t, "letter")
					if _, written := times[letter]; !written { // a letter's time is part of it
						times[letter] = uint64(clock.UnixMilli() + int64(rapid.IntRange(-int(ttl.Milliseconds()), int(skew.Milliseconds())).Draw(t, "ts")))
					}
					l, print := oap.Letter{TS: times[letter]}, prints.of([]byte(letter), room)
					if l.CheckTime(clock, ttl, skew) != nil {
						continue
					}
					if _, taken := model[letter]; !taken && rapid.Bool().Draw(t, "ask") && set.has(print, l.TS) {
						t.Fatal("a new letter is known")
					}
					batch, names = append(batch, newcomer{letter: l, print: print}), append(names, letter)
				}
				if rapid.Bool().Draw(t, "at once") {
					set.insertAll(batch)
				} else {
					for i := range batch {
						batch[i].verdict = set.insert(batch[i].print, batch[i].letter.TS)
					}
				}
				for i, one := range batch {
					_, taken := model[names[i]]
					switch verdict := one.verdict; {
					case taken && verdict != known:
						t.Fatalf("a known letter is %d", verdict)
					case !taken && verdict == fresh:
						model[names[i]] = one.letter.TS
					case !taken && verdict != full:
						t.Fatalf("a new letter is %d", verdict)
					case verdict == full && set.count.Load() != int64(most):
						t.Fatalf("full with %d of %d", set.count.Load(), most)
					}
				}
				for i, one := range batch {
					if _, taken := model[names[i]]; set.has(one.print, one.letter.TS) != taken {
						t.Fatalf("has %v of a letter that was taken: %v", !taken, taken)
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
				t.Fatalf("%d letters are held, %d counted, %d allowed", held, set.count.Load(), most)
			}
		}
	})
}

// Whatever arrives, in whatever order, from however many peers: a subscriber
// gets a letter at most once, and every good one exactly once.
func TestAtMostOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		letters := rapid.IntRange(1, 20).Draw(rt, "letters")
		peers := rapid.IntRange(1, 6).Draw(rt, "peers")
		type event struct{ from, letter, how, pause int }
		var events []event
		for range rapid.IntRange(1, 120).Draw(rt, "events") {
			events = append(events, event{
				rapid.IntRange(0, peers-1).Draw(rt, "from"), rapid.IntRange(0, letters-1).Draw(rt, "letter"),
				rapid.IntRange(0, 9).Draw(rt, "how"), rapid.SampledFrom([]int{0, 0, 0, 1, 1000, 20_000}).Draw(rt, "pause"),
			})
		}
		synctest.Test(t, func(t *testing.T) {
			n := start(t, func(s *Spec) { s.Config.Burst = 4 })
			fakes := n.company(peers)
			s := n.subscribe("news/eu")
			defer s.Close()
			first := time.Now()
			due := map[b3.Address]bool{}
			for _, e := range events {
				g, id := letterAt(t, first, e.letter, "news/eu", "storm")
				switch e.how {
				case 0:
					g.Sig = make([]byte, 64)
				case 1:
					g.Sig = nil
				case 2:
					n.Have(fakes[e.from], []b3.Address{id})
					continue
				case 3:
					n.Want(fakes[e.from], []b3.Address{id})
					continue
				default:
					if time.Since(first) <= 120*time.Second {
						due[id] = true
					}
				}
				n.arrive(fakes[e.from], g)
				if e.pause > 0 {
					pass(time.Duration(e.pause) * time.Millisecond)
				}
			}
			settle()
			got := map[b3.Address]int{}
			for _, d := range s.drain(t) {
				got[d.ID()]++
				if got[d.ID()] > 1 {
					t.Fatal("a letter was delivered twice")
				}
			}
			for id := range due {
				if got[id] == 0 {
					t.Fatal("a good letter was not delivered")
				}
			}
			if len(got) != len(due) {
				t.Fatalf("%d letters were delivered, %d were good", len(got), len(due))
			}
		})
	})
}

// However a peer floods: one that sends less is not refused anything, and while
// both wait they are served alike.
func TestIngressIsFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := still(t, nil)
		peers := n.company(2)
		flood, quiet := peers[0], peers[1]
		size := rapid.IntRange(1, 30_000).Draw(rt, "size")
		g := oap.Gossip{Msg: make([]byte, size)}
		into := make([]arrival, 64)
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
			if n.waiting.Load() > ingressBytes || n.ingress.Len(1) > ingressItems {
				rt.Fatalf("%d bytes, %d letters wait", n.waiting.Load(), n.ingress.Len(1))
			}
			if n.ingress.Len(1) == 0 || rapid.Bool().Draw(rt, "stalled") && waiting[quiet.serial] < 100 {
				continue
			}
			clear(served)
			both := waiting[quiet.serial] > 0 && waiting[flood.serial] > 0
			got, err := n.ingress.Take(context.Background(), into, 1<<30)
			if err != nil {
				rt.Fatal(err)
			}
			for _, a := range into[:got] {
				n.Engine.waiting.Add(int64(-a.cost()))
				waiting[a.link.serial]--
				served[a.link.serial]++
			}
			cost := (&arrival{Arrival: session.Arrival{Gossip: g}}).cost()
			if both && waiting[quiet.serial] > 0 && (served[flood.serial]-served[quiet.serial])*cost > 2*(16<<10+2*cost) {
				rt.Fatalf("served %d of the flood and %d of the quiet peer, %d bytes each", served[flood.serial], served[quiet.serial], cost)
			}
		}
		if told := quiet.takeRefused(); len(told) > 0 {
			rt.Fatalf("the quiet peer was refused %d letters", len(told))
		}
	})
}

// wire is a session between two engines of a mesh. It delivers after a moment,
// unless its chance says that it has no room.
type wire struct {
	id     oap.PeerID
	serial uint64
	to     *Engine
	back   *wire // as the other side sees it
	chance func() bool
	queue  chan func()
	room   int // for letters; zero is all that the queue has
	pace   atomic.Int64
}

func (w *wire) Peer() oap.PeerID          { return w.id }
func (w *wire) Serial() uint64            { return w.serial }
func (w *wire) MaxFrame() int             { return oap.MaxPayload }
func (w *wire) SetBusy(bool)              {}
func (w *wire) Expel(_ uint64, err error) { panic(err) } // nobody here forges anything

func (w *wire) PostHere(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out {
	return w.Post(batch, turned, patience)
}

func (w *wire) Post(batch []flow.Parcel[session.Out], turned []session.Out, _ *time.Duration) []session.Out {
	for _, p := range batch {
		g := *p.Item.Message.(*oap.Gossip)
		written := p.Item.Written
		if w.chance() || w.room > 0 && len(w.queue) >= w.room || !w.put(func() {
			if written != nil {
				written(nil)
			}
			w.to.Arrived(w.back, []session.Arrival{{Gossip: g, Corr: 1}})
		}) {
			turned = append(turned, p.Item)
		}
	}
	return turned
}

func (w *wire) put(f func()) bool {
	select {
	case w.queue <- f:
		return true
	default:
		return false
	}
}

func (w *wire) Tell(out session.Out) error {
	deliver := func() {
		switch m := out.Message.(type) {
		case *oap.Have:
			w.to.Have(w.back, m.IDs)
		case *oap.Want:
			w.to.Want(w.back, m.IDs)
		}
	}
	if !w.put(deliver) {
		return fault.Busy
	}
	return nil
}

// Refuse tells the other side, as a session would.
func (w *wire) Refuse(_ uint64, err error) {
	w.put(func() { w.to.Refused(w.back, &oap.Error{Code: oap.CodeOf(err)}) })
}

// mesh is some engines and the wires between them.
type mesh struct {
	nodes   []*node
	subs    []*Subscription
	refused map[b3.Address]int // letters that were refused, and who wrote them
	stop    func()
}

// newMesh wires engines along edges and runs everything.
func newMesh(t testing.TB, size int, edges [][2]int, loss float64, change func(*Spec)) *mesh {
	m := sleepingMesh(t, size, edges, loss, change)
	for _, n := range m.nodes {
		n.run()
	}
	return m
}

// sleepingMesh does not run the engines, only the wires.
func sleepingMesh(t testing.TB, size int, edges [][2]int, loss float64, change func(*Spec)) *mesh {
	m := &mesh{refused: map[b3.Address]int{}}
	for i := range size {
		m.nodes = append(m.nodes, still(t, func(s *Spec) {
			s.Key = keyOf(i + 1)
			if change != nil {
				change(s)
			}
		}))
	}
	var wires []*wire
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(1, uint64(size)))
	chance := func() bool { mu.Lock(); defer mu.Unlock(); return dice.Float64() < loss }
	for _, e := range edges {
		a, b := m.nodes[e[0]], m.nodes[e[1]]
		there := &wire{id: b.self, to: b.Engine, serial: uint64(len(wires) + 1), chance: chance, queue: make(chan func(), 512)}
		back := &wire{id: a.self, to: a.Engine, serial: uint64(len(wires) + 2), chance: chance, queue: make(chan func(), 512), back: there}
		there.back = back
		wires = append(wires, there, back)
		there.pace.Store(int64(100 * time.Microsecond))
		back.pace.Store(int64(100 * time.Microsecond))
		a.join(there)
		b.join(back)
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

func (n *node) join(w *wire) {
	n.mu.Lock()
	n.peers = append(append([]Peer(nil), n.peers...), w)
	n.mu.Unlock()
	n.Opened(w)
}

// everywhere checks that each subscriber got each letter, once, before some
// rounds have passed.
func (m *mesh) everywhere(t testing.TB, published map[b3.Address]bool, rounds int) {
	t.Helper()
	got := make([]map[b3.Address]int, len(m.nodes))
	for i := range got {
		got[i] = map[b3.Address]int{}
	}
	for round := 0; ; round++ {
		pass(time.Second)
		missing := 0
		for i, s := range m.subs {
			for _, d := range s.drain(t) {
				if author, refused := m.refused[d.ID()]; refused && author == i {
					continue
				}
				if got[i][d.ID()]++; got[i][d.ID()] > 1 {
					t.Fatalf("node %d got a letter twice", i)
				}
				if !published[d.ID()] {
					t.Fatalf("node %d got a letter that was refused, or that nobody wrote", i)
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

// A connected mesh of any shape, whose queues turn letters away at random:
// every subscriber gets every letter.
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
		letters := rapid.IntRange(1, 60).Draw(rt, "letters")
		hops := rapid.IntRange(1, 8).Draw(rt, "hops")
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 10, 1000, 20_000}), letters, letters).Draw(rt, "sizes")
		from := rapid.SliceOfN(rapid.IntRange(0, size-1), letters, letters).Draw(rt, "from")
		synctest.Test(t, func(t *testing.T) {
			m := newMesh(t, size, edges, loss, func(s *Spec) {
				s.Config.Hops = hops
				s.Config.Unsigned = []string{"news"}
			})
			defer m.stop()
			published := map[b3.Address]bool{}
			for i := range letters {
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
			m.everywhere(t, published, 8+4*size)
		})
	})
}

// The longest way: a line of nodes that is longer than letters may hop. What
// relays do not carry, repair does.
func TestALineThatIsLongerThanHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var edges [][2]int
		for i := range 11 {
			edges = append(edges, [2]int{i, i + 1})
		}
		m := newMesh(t, 12, edges, 0, func(s *Spec) { s.Config.Hops = 3 })
		defer m.stop()
		settle()
		outcome := m.nodes[0].mustPublish("news/eu", []byte("far"))
		m.everywhere(t, map[b3.Address]bool{outcome.ID(): true}, 12)
	})
}

// A node whose queue overflows says Busy, and hears again of what it lost.
func TestWhatAFullQueueDroppedIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sleepingMesh(t, 2, [][2]int{{0, 1}}, 0, func(*Spec) {})
		defer m.stop()
		sender, receiver := m.nodes[0], m.nodes[1]
		sender.run()
		pass(5 * time.Second)
		published := map[b3.Address]bool{}
		for i := range 600 {
			time.Sleep(20 * time.Microsecond) // faster than the wire
			outcome, err := sender.Publish(t.Context(), "news/eu", []byte{byte(i), byte(i >> 8)})
			if err == nil {
				published[outcome.ID()] = true
			} else {
				m.refused[outcome.ID()] = 0
			}
		}
		pass(500 * time.Millisecond)
		lost := receiver.tally.drops(DropIngress)
		if lost == 0 || len(m.refused) == 600 {
			t.Fatalf("%d letters were lost, %d refused", lost, len(m.refused))
		}
		receiver.run()
		m.everywhere(t, published, 10)
	})
}

// A relay whose queue to a peer is short, and whose history holds what comes in
// a fraction of a second: what the peer turned away it hears of as soon as it has
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
		narrow := relay.peers[1].(*wire)
		narrow.room = 16
		narrow.pace.Store(int64(300 * time.Microsecond))
		pass(5 * time.Second)
		published := map[b3.Address]bool{}
		for range bursts {
			for range each {
				published[m.nodes[0].mustPublish("news/eu", make([]byte, 100)).ID()] = true
			}
			pass(60 * time.Millisecond)
		}
		if lost := relay.tally.drops(DropEgress); lost < bursts*each/3 {
			t.Errorf("only %d letters were turned away", lost)
		}
		m.everywhere(t, published, 0)
		if again := m.nodes[2].tally.read(&m.nodes[2].tally.duplicate); again > 0 {
			t.Errorf("%d letters came twice", again)
		}
	})
}
