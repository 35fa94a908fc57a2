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
	"micronode/internal/testkit"
)

// One message comes from a peer; where it is relayed.
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
				peers := n.addPeers(row.peers + 1)
				g, _ := messageNow(t, 1)
				g.Hops, g.Fanout = row.hops, row.fanout
				n.arrive(peers[0], g)
				waitIdle()
				sent := 0
				for _, p := range peers {
					for _, out := range p.takeGossip() {
						sent++
						testkit.Equal(t, "hops", out.Hops, row.outHops)
						testkit.Equal(t, "fanout", out.Fanout, row.outFanout)
						equalBytes(t, "msg", out.Msg, g.Msg)
						equalBytes(t, "sig", out.Sig, g.Sig)
					}
				}
				testkit.Equal(t, "sent", sent, row.sent)
				testkit.Equal(t, "counted", n.tally.read(&n.tally.relayed), row.sent)
				if row.hops == 0 {
					testkit.Equal(t, "ended", n.tally.drops(DropHops), 1)
				}
			})
		})
	}
}

// Never back to the sender, to the publisher, to a peer that has it, to a peer
// that it does not fit; otherwise to any peer, and to all with the same chance.
func TestToWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Seen = 1 << 20 })
		peers := make([]*fakePeer, 10)
		for i := range peers {
			peers[i] = newFakePeer(i + 1)
		}
		peers[2].max = 150
		n.open(peers...)
		author := newFakePeer(50)
		author.id = originID
		n.open(author)
		sender, holder, small := peers[0], peers[1], peers[2]
		hits := map[*fakePeer]int{}
		const messages = 400
		for i := range messages {
			g, _ := messageNow(t, i)
			n.arrive(sender, g)
			waitIdle()
			who, frames := receivers(append(peers, author))
			testkit.Equal(t, "peers", len(who), 3)
			testkit.Equal(t, "frames", frames, 3)
			for _, p := range who {
				hits[p]++
			}
		}
		for what, p := range map[string]*fakePeer{"its sender": sender, "its origin": author, "one that it does not fit": small} {
			testkit.Equal(t, "a message went to "+what, hits[p], 0)
		}
		// 400 messages to 3 of 8 peers: 150 each, give or take 10.
		for _, p := range peers[3:] {
			if hits[p] < 90 || hits[p] > 210 {
				t.Errorf("peer %d got %d of %d messages", p.serial, hits[p], messages)
			}
		}
		// Two peers that sent the same message have it, and so does a peer that
		// announced it.
		for i := range 50 {
			g, id := messageNow(t, 1000+i)
			n.HandleHave(holder, []b3.Address{id})
			g.Hops = 0 // accepted, not relayed
			n.arrive(sender, g)
			waitIdle()
			n.HandleHave(holder, []b3.Address{id})
			l := n.history.findByID(id)
			if !l.hasHolder(holder.serial) || !l.hasHolder(sender.serial) {
				t.Fatal("a holder is not known as one")
			}
			n.arrive(peers[4], g)
			waitIdle()
			if !l.hasHolder(peers[4].serial) {
				t.Fatal("one that sent it too is not known as a holder")
			}
		}
		if n.tally.drops(DropOversize) == 0 {
			t.Error("nobody counted that a message did not fit")
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
				g, _ := sealed(t, key, &oap.GossipMessage{Topic: "a", Key: publicOf(origin), Data: make([]byte, data)})
				g.Hops, g.Fanout = number, number
				payload, err := oap.Encode(nil, &g)
				testkit.Must(t, err)
				testkit.Equal(t, "size", payloadSize(&g), len(payload))
			}
		}
	}
}

func TestMaxFrameToTheByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		from, fits, not := newFakePeer(1), newFakePeer(2), newFakePeer(3)
		g, _ := messageNow(t, 1)
		out := g
		out.Hops = 7
		fits.max = payloadSize(&out)
		not.max = fits.max - 1
		n.open(from, fits, not)
		n.arrive(from, g)
		waitIdle()
		testkit.Equal(t, "to the one that it fits", len(fits.takeGossip()), 1)
		testkit.Equal(t, "to the other", len(not.takeGossip()), 0)
		advanceTime(3 * time.Second)
		testkit.Equal(t, "told", len(not.takeHaves()), 0)
		n.HandleWant(not, []b3.Address{b3.Of(g.Msg)})
		waitIdle()
		testkit.Equal(t, "given", len(not.takeGossip()), 0)
	})
}

// A batch goes to a peer in one offer, with the topic as its class, its frame
// as its cost and its expiry.
func TestOnePostForABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		peers := n.addPeers(2)
		var batch []oap.Gossip
		for i := range 50 {
			g, _ := messageNow(t, i)
			batch = append(batch, g)
		}
		n.arrive(peers[0], batch...)
		n.Drain()
		testkit.Must(t, n.Work(t.Context()))
		testkit.Equal(t, "posts", peers[1].posts, 1)
		for i, out := range peers[1].outs {
			equalBytes(t, "in order", out.Message.(*oap.Gossip).Msg, batch[i].Msg)
			testkit.Equal(t, "flags", out.Flags, oap.Event)
			testkit.Equal(t, "expires", out.Expires, time.Now().UnixMilli()+120_000)
		}
		testkit.Equal(t, "messages", len(peers[1].outs), 50)
	})
}

// Relays announce large messages, and send them to peers that ask.
func TestLargeMessagesAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(3)
		g, id := messageAt(t, time.Now(), 1, "news/eu", string(make([]byte, 17<<10)))
		n.arrive(peers[0], g)
		waitIdle()
		_, frames := receivers(peers)
		testkit.Equal(t, "pushed", frames, 0)
		for _, p := range peers[1:] {
			haves := p.takeHaves()
			if len(haves) != 1 || haves[0] != id {
				t.Errorf("announced %v", haves)
			}
		}
		n.HandleWant(peers[1], []b3.Address{id, id, {1}})
		waitIdle()
		got := peers[1].takeGossip()
		testkit.Equal(t, "given", len(got), 1)
		equalBytes(t, "msg", got[0].Msg, g.Msg)
		testkit.Equal(t, "hops", got[0].Hops, 7)
		testkit.Equal(t, "fanout", got[0].Fanout, 3)
		testkit.Equal(t, "repaired", n.tally.read(&n.tally.repaired), 1)
		advanceTime(3 * time.Second)
		testkit.Equal(t, "announced again", len(peers[1].takeHaves())+len(peers[2].takeHaves()), 0)
	})
}

// A large message that cannot be announced now is announced with a later round.
func TestALargeMessageThatCouldNotBeAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		waitIdle()
		peers[1].set(func() { peers[1].rejectsControl = true })
		g, id := messageAt(t, time.Now(), 1, "news/eu", string(make([]byte, 17<<10)))
		n.arrive(peers[0], g)
		advanceTime(5 * time.Second)
		peers[1].set(func() { peers[1].rejectsControl = false })
		advanceTime(time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
	})
}

// What a peer rejects is dropped, counted, and announced to it later.
func TestWhatAPeerTurnsAwayIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		waitIdle()
		peers[1].set(func() { peers[1].rejectsGossip = true })
		g, id := messageNow(t, 1)
		n.arrive(peers[0], g)
		waitIdle()
		testkit.Equal(t, "dropped", n.tally.drops(DropEgress), 1)
		peers[1].set(func() { peers[1].rejectsGossip = false })
		advanceTime(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
	})
}

// A message that was displaced from a queue is announced, too, although it was
// sent long ago.
func TestWhatIsDisplacedIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		g, id := messageNow(t, 1)
		n.arrive(peers[0], g)
		advanceTime(5 * time.Second)
		testkit.Equal(t, "announced what was sent", len(peers[1].takeHaves()), 0)
		peers[1].set(func() {
			peers[1].evicts = []session.Outgoing{peers[1].outs[0], {Message: &oap.Gossip{Msg: []byte("nobody knows it")}}, {Message: &oap.Ping{}}}
		})
		more, _ := messageNow(t, 2)
		n.arrive(peers[0], more)
		advanceTime(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
		testkit.Equal(t, "sent all the same", n.tally.read(&n.tally.relayed), 2)
	})
}

// A peer to which an old message is announced again gets no second announcement
// of those since.
func TestWhatWasAnnouncedIsNotAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		waitIdle()
		g, id := messageNow(t, 1)
		n.arrive(peers[0], g)
		waitIdle()
		sent := peers[1].outs[0]
		peers[1].set(func() { peers[1].rejectsGossip = true })
		more, moreID := messageNow(t, 2)
		n.arrive(peers[0], more)
		waitIdle()
		peers[1].set(func() { peers[1].rejectsGossip = false })
		advanceTime(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != moreID {
			t.Errorf("announced %v", haves)
		}
		peers[1].set(func() { peers[1].evicts = []session.Outgoing{sent} })
		last, _ := messageNow(t, 3)
		n.arrive(peers[0], last)
		advanceTime(2 * time.Second)
		if haves := peers[1].takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("announced %v", haves)
		}
	})
}

// TestUnsignedIDs publishes on a topic that needs no signature: the id, which
// is not needed to send the message, is computed on request.
func TestUnsignedIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		s := n.subscribe("open/a")
		defer s.Close()
		outcome, err := n.Publish(t.Context(), "open/a", []byte("storm"))
		if err != nil || outcome.message.id.Load() != nil {
			t.Fatalf("%v; the id was found before anybody asked: %v", err, outcome.message.id.Load())
		}
		got := s.receiveAll(t)
		if len(got) != 1 || got[0].Signed || got[0].ID() != outcome.ID() || outcome.ID() != b3.Of(outcome.message.envelope.Msg) {
			t.Errorf("delivered %+v, published as %s", got, outcome.ID())
		}
		refused, err := n.Publish(t.Context(), "", nil)
		if err == nil || refused.ID() != (b3.Address{}) {
			t.Errorf("a message that is none has the id %s, %v", refused.ID(), err)
		}
	})
}

func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().UnixMilli()
		n := start(t, allowUnsigned)
		s := n.subscribe("news/eu")
		defer s.Close()
		data := []byte("storm")
		outcome, err := n.Publish(t.Context(), "news/eu", data)
		if err != nil || outcome.Peers != 0 || outcome.Busy != 0 {
			t.Fatalf("with no peers: %+v, %v", outcome, err)
		}
		data[0] = 'X'
		got := s.receiveAll(t)
		if len(got) != 1 || len(got[0].Data) != cap(got[0].Data) || string(got[0].Data) != "storm" || got[0].Publisher != n.self || !got[0].Signed || got[0].ID() != outcome.ID() {
			t.Fatalf("delivered %+v", got)
		}
		testkit.Equal(t, "the first seq", got[0].Seq, uint64(began)<<20)

		// It is announced to peers that connect later.
		peers := n.addPeers(5)
		waitIdle()
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
		who, frames := receivers(peers)
		testkit.Equal(t, "peers", len(who), 3)
		testkit.Equal(t, "frames", frames, 3)
		got = s.receiveAll(t)
		testkit.Equal(t, "the next seq", got[0].Seq, uint64(began)<<20+1)

		if _, err := n.Publish(t.Context(), "open/all", nil); err != nil {
			t.Fatal(err)
		}
		for _, p := range peers {
			for _, g := range p.takeGossip() {
				testkit.Equal(t, "signature on an unsigned topic", len(g.Sig), 0)
				testkit.Equal(t, "hops", g.Hops, 8)
				testkit.Equal(t, "fanout", g.Fanout, 3)
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

// Our own messages come back and are recognised.
func TestOurOwnMessagesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		s := n.subscribe("news/eu")
		defer s.Close()
		if _, err := n.Publish(t.Context(), "news/eu", []byte("a")); err != nil {
			t.Fatal(err)
		}
		n.arrive(peers[0], peers[0].takeGossip()...)
		waitIdle()
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 1)
	})
}

// A message is recognised by a number that was given here, however it is
// altered. A message of an earlier run of this node is not.
func TestNumbersOfOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(1)
		s := n.subscribe("open/x")
		defer s.Close()
		if _, err := n.Publish(t.Context(), "open/x", []byte("a")); err != nil {
			t.Fatal(err)
		}
		waitIdle()
		ours, err := peers[0].takeGossip()[0].DecodeMessage()
		testkit.Must(t, err)
		bearing := func(seq uint64, data string) oap.Gossip {
			g, _ := sealed(t, nil, &oap.GossipMessage{Topic: "open/x", Key: ours.Key, Seq: seq, TS: ours.TS, Data: []byte(data)})
			return g
		}
		n.arrive(peers[0], bearing(ours.Seq, "a"), bearing(ours.Seq, "forged"), bearing(ours.Seq-1, "earlier"), bearing(ours.Seq+1, "not given yet"))
		waitIdle()
		var got []string
		for _, d := range s.receiveAll(t) {
			got = append(got, string(d.Data))
		}
		if want := []string{"a", "earlier", "not given yet"}; !slices.Equal(got, want) {
			t.Errorf("delivered %q, want %q", got, want)
		}
		testkit.Equal(t, "known", n.tally.read(&n.tally.duplicate), 2)
		testkit.Equal(t, "remembered", n.seen.count.Load(), 2)
	})
}

// The messages of a batch are copied out of the reader's memory, each of them,
// also those that share a buffer.
func TestMessagesOutliveTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(2)
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
			g, _ := sealed(t, nil, &oap.GossipMessage{Topic: topic, Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli()), Data: []byte(data)})
			batch = append(batch, g)
			want[topic] = append(want[topic], data)
		}
		n.arrive(peers[0], batch...)
		for _, g := range batch {
			clear(g.Msg)
		}
		waitIdle()
		for i, s := range subscriptions {
			var got []string
			for _, d := range s.receiveAll(t) {
				got = append(got, string(d.Data))
				_ = append(d.Data, "overwritten"...)
			}
			if !slices.Equal(got, want[topics[i]]) {
				t.Errorf("%s: other messages were delivered", topics[i])
			}
		}
		for _, g := range peers[1].takeGossip() {
			if l, err := g.DecodeMessage(); err != nil || !slices.Contains(want[l.Topic], string(l.Data)) {
				t.Errorf("another message was passed on: %v", err)
			}
		}
	})
}

// A reader writes to one of the peers itself. No other task does.
func TestWhoWritesInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(4)
		heres := func() (all int) {
			for _, p := range peers {
				p.mu.Lock()
				all += p.inlineOffers
				p.mu.Unlock()
			}
			return all
		}
		open, _ := sealed(t, nil, &oap.GossipMessage{Topic: "open/x", Key: publicOf(origin), Seq: 1, TS: uint64(time.Now().UnixMilli())})
		n.arrive(peers[0], open)
		waitIdle()
		testkit.Equal(t, "posts of a reader", heres(), 1)
		signed, _ := messageNow(t, 2)
		n.arrive(peers[0], signed)
		n.mustPublish("open/x", nil)
		waitIdle()
		testkit.Equal(t, "posts of a worker and a publisher", heres(), 1)
	})
}

// A publish replaces peers that reject it by others, and is Busy only when all
// are.
func TestPublishBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		s := n.subscribe("news/eu")
		defer s.Close()
		peers := n.addPeers(6)
		waitIdle()
		for _, p := range peers[:5] {
			p.set(func() { p.rejectsGossip = true })
		}
		outcome, err := n.Publish(t.Context(), "news/eu", nil)
		if err != nil || outcome.Peers != 1 || outcome.Busy != 5 {
			t.Errorf("with one left: %+v, %v", outcome, err)
		}
		peers[5].set(func() { peers[5].rejectsGossip = true })
		refused, err := n.Publish(t.Context(), "news/eu", nil)
		if fault.KindOf(err) != fault.Busy || refused.Busy != 6 || fault.NextOf(err) == "" {
			t.Errorf("with none left: %+v, %v", refused, err)
		}
		testkit.Equal(t, "delivered here", len(s.receiveAll(t)), 2)
		// A refused message stays refused: the caller publishes it again.
		for _, p := range peers {
			p.set(func() { p.rejectsGossip = false })
		}
		advanceTime(10 * time.Second)
		for _, p := range peers {
			for _, id := range p.takeHaves() {
				testkit.Equal(t, "announced", id, outcome.ID())
			}
		}
	})
}

func TestPublishTooLargeForAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		p := newFakePeer(1)
		p.max = 4096
		n.open(p)
		outcome, err := n.Publish(t.Context(), "news/eu", make([]byte, 5000))
		if err != nil || outcome.Peers != 0 || outcome.Busy != 0 {
			t.Errorf("%+v, %v", outcome, err)
		}
		testkit.Equal(t, "counted", n.tally.drops(DropOversize), 1)
		testkit.Equal(t, "sent", len(p.takeGossip()), 0)
	})
}
