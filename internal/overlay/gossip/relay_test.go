package gossip

import (
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// One letter comes from a peer; how it goes on.
func TestHopsAndFanout(t *testing.T) {
	for name, row := range map[string]struct {
		hops, fanout       uint64 // as they come
		peers              int    // besides the sender
		sent               int
		outHops, outFanout uint64
	}{
		"from the origin":             {8, 3, 10, 3, 7, 3},
		"the last hop":                {1, 3, 10, 3, 0, 3},
		"no further":                  {0, 3, 10, 0, 0, 0},
		"more hops than we allow":     {200, 3, 10, 3, 7, 3},
		"hops beyond counting":        {^uint64(0), 3, 10, 3, 7, 3},
		"a smaller fan-out than ours": {8, 2, 10, 2, 7, 2},
		"a larger one":                {8, 50, 10, 3, 7, 3},
		"one beyond counting":         {8, ^uint64(0), 10, 3, 7, 3},
		"none":                        {8, 0, 10, 0, 0, 0},
		"fewer peers than that":       {8, 3, 2, 2, 7, 3},
		"nobody else":                 {8, 3, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				peers := n.company(row.peers + 1)
				g, _ := letterNow(t, 1)
				g.Hops, g.Fanout = row.hops, row.fanout
				n.arrive(peers[0], g)
				settle()
				sent := 0
				for _, p := range peers {
					for _, out := range p.took() {
						sent++
						equal(t, "hops", out.Hops, row.outHops)
						equal(t, "fanout", out.Fanout, row.outFanout)
						equalBytes(t, "msg", out.Msg, g.Msg)
						equalBytes(t, "sig", out.Sig, g.Sig)
					}
				}
				equal(t, "sent", sent, row.sent)
				equal(t, "counted", n.tally.read(&n.tally.relayed), row.sent)
				if row.hops == 0 {
					equal(t, "ended", n.tally.drops(DropHops), 1)
				}
			})
		})
	}
}

// Never back to the sender, to the origin, to one that has it, to one that it
// does not fit; otherwise to anybody, and to all alike.
func TestToWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Seen = 1 << 20 })
		peers := make([]*fake, 10)
		for i := range peers {
			peers[i] = newFake(i + 1)
		}
		peers[2].max = 150
		n.open(peers...)
		author := newFake(50)
		author.id = originID
		n.open(author)
		sender, holder, small := peers[0], peers[1], peers[2]
		hits := map[*fake]int{}
		const letters = 400
		for i := range letters {
			g, _ := letterNow(t, i)
			n.arrive(sender, g)
			settle()
			who, frames := holders(append(peers, author))
			equal(t, "peers", len(who), 3)
			equal(t, "frames", frames, 3)
			for _, p := range who {
				hits[p]++
			}
		}
		for what, p := range map[string]*fake{"its sender": sender, "its origin": author, "one that it does not fit": small} {
			equal(t, "a letter went to "+what, hits[p], 0)
		}
		// 400 letters to 3 of 8 peers: 150 each, give or take 10.
		for _, p := range peers[3:] {
			if hits[p] < 90 || hits[p] > 210 {
				t.Errorf("peer %d got %d of %d letters", p.serial, hits[p], letters)
			}
		}
		// Two who sent the same letter have it, and so does whoever announced it.
		for i := range 50 {
			g, id := letterNow(t, 1000+i)
			n.Have(holder, []b3.Address{id})
			g.Hops = 0 // taken, not passed on
			n.arrive(sender, g)
			settle()
			n.Have(holder, []b3.Address{id})
			l := n.history.find(id)
			if !l.marked(holder.serial) || !l.marked(sender.serial) {
				t.Fatal("a holder is not known as one")
			}
			n.arrive(peers[4], g)
			settle()
			if !l.marked(peers[4].serial) {
				t.Fatal("one that sent it too is not known as a holder")
			}
		}
		if n.tally.drops(DropOversize) == 0 {
			t.Error("nobody counted that a letter did not fit")
		}
	})
}

// MaxFrame is about the whole payload, to the byte.
func TestPayloadSize(t *testing.T) {
	for _, data := range []int{0, 1, 22, 23, 24, 200, 255, 256, 300, 65000, 65535, 65536, 70000, oap.MaxData} {
		for _, signed := range []bool{true, false} {
			for _, number := range []uint64{0, 23, 24, 255, 256, 65535, 65536, 1 << 32} {
				var key ed25519.PrivateKey
				if signed {
					key = origin
				}
				g, _ := sealed(t, key, &oap.Letter{Topic: "a", Key: publicOf(origin), Data: make([]byte, data)})
				g.Hops, g.Fanout = number, number
				payload, err := oap.Encode(nil, &g)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "size", payloadSize(&g), len(payload))
			}
		}
	}
}

func TestMaxFrameToTheByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		from, fits, not := newFake(1), newFake(2), newFake(3)
		g, _ := letterNow(t, 1)
		out := g
		out.Hops = 7
		fits.max = payloadSize(&out)
		not.max = fits.max - 1
		n.open(from, fits, not)
		n.arrive(from, g)
		settle()
		equal(t, "to the one that it fits", len(fits.took()), 1)
		equal(t, "to the other", len(not.took()), 0)
		pass(3 * time.Second)
		equal(t, "told", len(not.takeHaves()), 0)
		n.Want(not, []b3.Address{b3.Of(g.Msg)})
		settle()
		equal(t, "given", len(not.took()), 0)
	})
}

// A batch goes to a peer in one Post, with the topic as its class, its frame as
// its cost and the end of its time.
func TestOnePostForABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, nil)
		peers := n.company(2)
		var batch []oap.Gossip
		for i := range 50 {
			g, _ := letterNow(t, i)
			batch = append(batch, g)
		}
		n.arrive(peers[0], batch...)
		n.Drain()
		if err := n.Work(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "posts", peers[1].posts, 1)
		for i, out := range peers[1].outs {
			equalBytes(t, "in order", out.Message.(*oap.Gossip).Msg, batch[i].Msg)
			equal(t, "flags", out.Flags, oap.Event)
			equal(t, "expires", out.Expires, time.Now().UnixMilli()+120_000)
		}
		equal(t, "letters", len(peers[1].outs), 50)
	})
}

// Relays announce what is large, and send it to whoever asks.
func TestLargeLettersAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(3)
		g, id := letterAt(t, time.Now(), 1, "news/eu", string(make([]byte, 17<<10)))
		n.arrive(peers[0], g)
		settle()
		_, frames := holders(peers)
		equal(t, "pushed", frames, 0)
		for _, p := range peers[1:] {
			haves := p.takeHaves()
			if len(haves) != 1 || haves[0] != id {
				t.Errorf("announced %v", haves)
			}
		}
		n.Want(peers[1], []b3.Address{id, id, {1}})
		settle()
		got := peers[1].took()
		equal(t, "given", len(got), 1)
		equalBytes(t, "msg", got[0].Msg, g.Msg)
		equal(t, "hops", got[0].Hops, 7)
		equal(t, "fanout", got[0].Fanout, 3)
		equal(t, "repaired", n.tally.read(&n.tally.repaired), 1)
		pass(3 * time.Second)
		equal(t, "announced again", len(peers[1].takeHaves())+len(peers[2].takeHaves()), 0)
	})
}

// One that cannot be told of a large letter is told with a later round.
func TestALargeLetterThatCouldNotBeAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		settle()
		peers[1].set(func() { peers[1].deaf = true })
		g, id := letterAt(t, time.Now(), 1, "news/eu", string(make([]byte, 17<<10)))
		n.arrive(peers[0], g)
		pass(5 * time.Second)
		peers[1].set(func() { peers[1].deaf = false })
		pass(time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
	})
}

// What a peer turns away is dropped, counted, and announced to it later.
func TestWhatAPeerTurnsAwayIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		settle()
		peers[1].set(func() { peers[1].closed = true })
		g, id := letterNow(t, 1)
		n.arrive(peers[0], g)
		settle()
		equal(t, "dropped", n.tally.drops(DropEgress), 1)
		peers[1].set(func() { peers[1].closed = false })
		pass(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
	})
}

// A letter that had its place in a queue and lost it to another is announced,
// too, although it was sent long ago.
func TestWhatIsDisplacedIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		g, id := letterNow(t, 1)
		n.arrive(peers[0], g)
		pass(5 * time.Second)
		equal(t, "announced what was sent", len(peers[1].takeHaves()), 0)
		peers[1].set(func() {
			peers[1].older = []session.Out{peers[1].outs[0], {Message: &oap.Gossip{Msg: []byte("nobody knows it")}}, {Message: &oap.Ping{}}}
		})
		more, _ := letterNow(t, 2)
		n.arrive(peers[0], more)
		pass(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
		equal(t, "sent all the same", n.tally.read(&n.tally.relayed), 2)
	})
}

// A peer that hears again of an old letter does not hear again of those that it
// was told of since.
func TestWhatWasAnnouncedIsNotAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		settle()
		g, id := letterNow(t, 1)
		n.arrive(peers[0], g)
		settle()
		sent := peers[1].outs[0]
		peers[1].set(func() { peers[1].closed = true })
		more, moreID := letterNow(t, 2)
		n.arrive(peers[0], more)
		settle()
		peers[1].set(func() { peers[1].closed = false })
		pass(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != moreID {
			t.Errorf("announced %v", haves)
		}
		peers[1].set(func() { peers[1].older = []session.Out{sent} })
		last, _ := letterNow(t, 3)
		n.arrive(peers[0], last)
		pass(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
	})
}

// TestUnsignedIDs publishes on a topic that needs no signature: the id, which
// nobody needs to send the letter, is found when somebody asks.
func TestUnsignedIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		s := n.subscribe("open/a")
		defer s.Close()
		outcome, err := n.Publish(t.Context(), "open/a", []byte("storm"))
		if err != nil || outcome.letter.id.Load() != nil {
			t.Fatalf("%v; the id was found before anybody asked: %v", err, outcome.letter.id.Load())
		}
		got := s.drain(t)
		if len(got) != 1 || got[0].Signed || got[0].ID() != outcome.ID() || outcome.ID() != b3.Of(outcome.letter.out.Msg) {
			t.Errorf("delivered %+v, published as %s", got, outcome.ID())
		}
		refused, err := n.Publish(t.Context(), "", nil)
		if err == nil || refused.ID() != (b3.Address{}) {
			t.Errorf("a letter that is none has the id %s, %v", refused.ID(), err)
		}
	})
}

func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().UnixMilli()
		n := start(t, unsignedOn)
		s := n.subscribe("news/eu")
		defer s.Close()
		data := []byte("storm")
		outcome, err := n.Publish(t.Context(), "news/eu", data)
		if err != nil || outcome.Peers != 0 || outcome.Busy != 0 {
			t.Fatalf("with no peers: %+v, %v", outcome, err)
		}
		data[0] = 'X'
		got := s.drain(t)
		if len(got) != 1 || len(got[0].Data) != cap(got[0].Data) || string(got[0].Data) != "storm" || got[0].Origin != n.self || !got[0].Signed || got[0].ID() != outcome.ID() {
			t.Fatalf("delivered %+v", got)
		}
		equal(t, "the first seq", got[0].Seq, uint64(began)<<20)

		// Whoever comes later is told of it.
		peers := n.company(5)
		settle()
		for _, p := range peers {
			if haves := p.takeHaves(); len(haves) != 1 || haves[0] != outcome.ID() {
				t.Errorf("announced %v", haves)
			}
		}
		big := make([]byte, oap.MaxData)
		outcome, err = n.Publish(t.Context(), "news/eu", big)
		if err != nil || outcome.Peers != 3 || outcome.Busy != 0 {
			t.Fatalf("with peers: %+v, %v", outcome, err)
		}
		who, frames := holders(peers)
		equal(t, "peers", len(who), 3)
		equal(t, "frames", frames, 3)
		got = s.drain(t)
		equal(t, "the next seq", got[0].Seq, uint64(began)<<20+1)

		if _, err := n.Publish(t.Context(), "open/all", nil); err != nil {
			t.Fatal(err)
		}
		for _, p := range peers {
			for _, g := range p.took() {
				equal(t, "signature on an unsigned topic", len(g.Sig), 0)
				equal(t, "hops", g.Hops, 8)
				equal(t, "fanout", g.Fanout, 3)
				if _, _, err := g.Open(); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := n.Publish(t.Context(), "news//eu", nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("a bad topic: %v", err)
		}
		if _, err := n.Publish(t.Context(), "news/eu", append(big, 0)); fault.KindOf(err) != fault.FrameTooLarge {
			t.Errorf("too much data: %v", err)
		}
	})
}

// Our own letters come back to us and are known.
func TestOurOwnLettersComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		s := n.subscribe("news/eu")
		defer s.Close()
		if _, err := n.Publish(t.Context(), "news/eu", []byte("a")); err != nil {
			t.Fatal(err)
		}
		n.arrive(peers[0], peers[0].took()...)
		settle()
		equal(t, "delivered", len(s.drain(t)), 1)
	})
}

// What a number was given to here is known by it, in every disguise. A letter of
// an earlier life of this node is not.
func TestNumbersOfOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(1)
		s := n.subscribe("open/x")
		defer s.Close()
		if _, err := n.Publish(t.Context(), "open/x", []byte("a")); err != nil {
			t.Fatal(err)
		}
		settle()
		ours, err := peers[0].took()[0].Read()
		if err != nil {
			t.Fatal(err)
		}
		bearing := func(seq uint64, data string) oap.Gossip {
			g, _ := sealed(t, nil, &oap.Letter{Topic: "open/x", Key: ours.Key, Seq: seq, TS: ours.TS, Data: []byte(data)})
			return g
		}
		n.arrive(peers[0], bearing(ours.Seq, "a"), bearing(ours.Seq, "forged"), bearing(ours.Seq-1, "earlier"), bearing(ours.Seq+1, "not given yet"))
		settle()
		var got []string
		for _, d := range s.drain(t) {
			got = append(got, string(d.Data))
		}
		if want := []string{"a", "earlier", "not given yet"}; !slices.Equal(got, want) {
			t.Errorf("delivered %q, want %q", got, want)
		}
		equal(t, "known", n.tally.read(&n.tally.duplicate), 2)
		equal(t, "remembered", n.seen.count.Load(), 2)
	})
}

// The letters of a batch are moved out of the reader's memory, each of them, also
// those that share a piece of it.
func TestLettersOutliveTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(2)
		topics := []string{"open/a", "open/b"}
		var subscriptions []*Subscription
		for _, topic := range topics {
			s := n.subscribe(topic)
			defer s.Close()
			subscriptions = append(subscriptions, s)
		}
		var batch []oap.Gossip
		want := map[string][]string{}
		for i := range 100 {
			topic, data := topics[i/7%2], strings.Repeat(string(rune('a'+i%26)), 1+i*i)
			g, _ := sealed(t, nil, &oap.Letter{Topic: topic, Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli()), Data: []byte(data)})
			batch = append(batch, g)
			want[topic] = append(want[topic], data)
		}
		n.arrive(peers[0], batch...)
		for _, g := range batch {
			clear(g.Msg)
		}
		settle()
		for i, s := range subscriptions {
			var got []string
			for _, d := range s.drain(t) {
				got = append(got, string(d.Data))
				_ = append(d.Data, "overwritten"...)
			}
			if !slices.Equal(got, want[topics[i]]) {
				t.Errorf("%s: other letters were delivered", topics[i])
			}
		}
		for _, g := range peers[1].took() {
			if l, err := g.Read(); err != nil || !slices.Contains(want[l.Topic], string(l.Data)) {
				t.Errorf("another letter was passed on: %v", err)
			}
		}
	})
}

// A reader writes to one of the peers itself. Nobody else does.
func TestWhoWritesHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(4)
		heres := func() (all int) {
			for _, p := range peers {
				p.mu.Lock()
				all += p.heres
				p.mu.Unlock()
			}
			return all
		}
		open, _ := sealed(t, nil, &oap.Letter{Topic: "open/x", Key: publicOf(origin), Seq: 1, TS: uint64(time.Now().UnixMilli())})
		n.arrive(peers[0], open)
		settle()
		equal(t, "posts of a reader", heres(), 1)
		signed, _ := letterNow(t, 2)
		n.arrive(peers[0], signed)
		n.mustPublish("open/x", nil)
		settle()
		equal(t, "posts of a worker and a publisher", heres(), 1)
	})
}

// A publish replaces peers that turn it away by others, and is Busy only when
// all are.
func TestPublishBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		s := n.subscribe("news/eu")
		defer s.Close()
		peers := n.company(6)
		settle()
		for _, p := range peers[:5] {
			p.set(func() { p.closed = true })
		}
		outcome, err := n.Publish(t.Context(), "news/eu", nil)
		if err != nil || outcome.Peers != 1 || outcome.Busy != 5 {
			t.Errorf("with one left: %+v, %v", outcome, err)
		}
		peers[5].set(func() { peers[5].closed = true })
		refused, err := n.Publish(t.Context(), "news/eu", nil)
		if fault.KindOf(err) != fault.Busy || refused.Busy != 6 || fault.NextOf(err) == "" {
			t.Errorf("with none left: %+v, %v", refused, err)
		}
		equal(t, "delivered here", len(s.drain(t)), 2)
		// A refused letter stays refused: the caller publishes it again.
		for _, p := range peers {
			p.set(func() { p.closed = false })
		}
		pass(10 * time.Second)
		for _, p := range peers {
			for _, id := range p.takeHaves() {
				equal(t, "announced", id, outcome.ID())
			}
		}
	})
}

func TestPublishTooLargeForAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		p := newFake(1)
		p.max = 4096
		n.open(p)
		outcome, err := n.Publish(t.Context(), "news/eu", make([]byte, 5000))
		if err != nil || outcome.Peers != 0 || outcome.Busy != 0 {
			t.Errorf("%+v, %v", outcome, err)
		}
		equal(t, "counted", n.tally.drops(DropOversize), 1)
		equal(t, "sent", len(p.took()), 0)
	})
}
