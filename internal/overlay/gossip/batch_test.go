package gossip

import (
	"crypto/ed25519"
	"fmt"
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

// allowUnsigned makes an engine accept unsigned messages below "open".
func allowUnsigned(s *Spec) { s.Config.Unsigned = []string{"open"} }

// Each row of "Taking a letter" in the protocol: what is refused, how it is
// counted, and whether the peer gets a refusal.
func TestWhatIsRefusedAndHow(t *testing.T) {
	now := func() time.Time { return time.Now() }
	for name, row := range map[string]struct {
		message func(t *testing.T) oap.Gossip
		reason  oap.Reason // zero: it is delivered
	}{
		"a good one": {func(t *testing.T) oap.Gossip { g, _ := messageNow(t, 1); return g }, 0},
		"no message at all": {func(t *testing.T) oap.Gossip {
			return oap.Gossip{Msg: []byte("hello"), Hops: 8, Fanout: 3}
		}, oap.BadGossip},
		"a byte behind the message": {func(t *testing.T) oap.Gossip {
			g, _ := messageNow(t, 1)
			g.Msg = append(g.Msg, 0)
			return g
		}, oap.BadGossip},
		"a bad topic": {func(t *testing.T) oap.Gossip {
			g, _ := messageAt(t, now(), 1, "news/eu", "storm")
			g.Msg = []byte(strings.Replace(string(g.Msg), "news/eu", "news//u", 1))
			return g
		}, oap.BadTopic},
		"as old as may be": {func(t *testing.T) oap.Gossip {
			g, _ := messageAt(t, now().Add(-120*time.Second), 1, "news/eu", "storm")
			return g
		}, 0},
		"a millisecond older": {func(t *testing.T) oap.Gossip {
			g, _ := messageAt(t, now().Add(-120*time.Second-time.Millisecond), 1, "news/eu", "storm")
			return g
		}, oap.Expired},
		"as far ahead as may be": {func(t *testing.T) oap.Gossip {
			g, _ := messageAt(t, now().Add(2*time.Minute), 1, "news/eu", "storm")
			return g
		}, 0},
		"a millisecond further": {func(t *testing.T) oap.Gossip {
			g, _ := messageAt(t, now().Add(2*time.Minute+time.Millisecond), 1, "news/eu", "storm")
			return g
		}, oap.Future},
		"no signature": {func(t *testing.T) oap.Gossip {
			g, _ := messageNow(t, 1)
			g.Sig = nil
			return g
		}, oap.Unsigned},
		"another's signature": {func(t *testing.T) oap.Gossip {
			g, _ := messageNow(t, 1)
			other, _ := messageNow(t, 2)
			g.Sig = other.Sig
			return g
		}, oap.BadSig},
		"a forged origin": {func(t *testing.T) oap.Gossip {
			victim := &oap.GossipMessage{Topic: "news/eu", Key: publicOf(keyOf(5)), Seq: 1, TS: uint64(now().UnixMilli()), Data: []byte("lies")}
			g, id := sealed(t, nil, victim)
			mine, _ := sealed(t, origin, &oap.GossipMessage{Topic: "news/eu", Key: publicOf(origin), Seq: 1, TS: victim.TS, Data: id[:]})
			g.Sig = mine.Sig
			return g
		}, oap.BadSig},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				peers := n.addPeers(3)
				s := n.subscribe("news/eu")
				defer s.Close()
				n.arrive(peers[0], row.message(t))
				waitIdle()
				got := s.receiveAll(t)
				_, passed := receivers(peers)
				if row.reason == 0 {
					testkit.Equal(t, "delivered", len(got), 1)
					testkit.Equal(t, "passed on", passed, 2)
					return
				}
				testkit.Equal(t, "delivered", len(got), 0)
				testkit.Equal(t, "passed on", passed, 0)
				testkit.Equal(t, "counted", n.tally.rejects(row.reason), 1)
				testkit.Equal(t, "told", len(peers[0].takeRefused()), 0)
				testkit.Equal(t, "remembered", n.seen.count.Load(), 0)
				blamed := 0
				if row.reason == oap.BadSig {
					blamed = 1
				}
				testkit.Equal(t, "parted from", len(peers[0].takeExpelled()), blamed)
			})
		})
	}
}

func TestWhatASubscriberGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		s, other := n.subscribe("news/eu"), n.subscribe("news")
		defer s.Close()
		defer other.Close()
		written := time.Now().Add(-time.Second).Truncate(time.Millisecond)
		g, id := messageAt(t, written, 42, "news/eu", "storm")
		n.arrive(peers[0], g)
		waitIdle()
		got := s.receiveAll(t)
		if len(got) != 1 {
			t.Fatalf("got %d messages", len(got))
		}
		d := got[0]
		testkit.Equal(t, "id", d.ID(), id)
		testkit.Equal(t, "origin", d.Publisher, originID)
		testkit.Equal(t, "topic", d.Topic, "news/eu")
		testkit.Equal(t, "seq", d.Seq, 42)
		testkit.Equal(t, "signed", d.Signed, true)
		testkit.Equal(t, "data", string(d.Data), "storm")
		if !d.Time.Equal(written) {
			t.Errorf("time %v, want %v", d.Time, written)
		}
		testkit.Equal(t, "on another topic", len(other.receiveAll(t)), 0)
		testkit.Equal(t, "counted", n.tally.read(&n.tally.delivered), 1)
	})
}

// The id does not cover the signature. A stranger that sends a message first
// with a wrong one must not suppress it.
func TestAWrongSignatureFirstDoesNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		good, _ := messageNow(t, 1)
		bad := good
		bad.Sig = append([]byte(nil), good.Sig...)
		bad.Sig[0] ^= 1
		none := good
		none.Sig = nil
		n.arrive(peers[0], bad, none)
		waitIdle()
		n.arrive(peers[1], good)
		waitIdle()
		got := s.receiveAll(t)
		testkit.Equal(t, "delivered", len(got), 1)
		testkit.Equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 1)
		testkit.Equal(t, "unsigned", n.tally.rejects(oap.Unsigned), 1)
	})
}

// A peer that sends a forged message is expelled, and no other. What is too
// old, or known, or not signed at all, or on a topic where signatures count for
// nothing may come from an honest peer.
func TestOnlyAForgerIsExpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(3)
		spoilt := func(g oap.Gossip) oap.Gossip {
			g.Sig = slices.Clone(g.Sig)
			g.Sig[0] ^= 1
			return g
		}
		good, _ := messageNow(t, 1)
		late, _ := messageAt(t, time.Now().Add(-time.Hour), 2, "news/eu", "old")
		early, _ := messageAt(t, time.Now().Add(time.Hour), 3, "news/eu", "from ahead")
		open, _ := messageAt(t, time.Now(), 4, "open/to/all", "where nobody signs")
		none, _ := messageNow(t, 5)
		none.Sig = nil
		n.arrive(peers[0], good)
		waitIdle()
		n.arrive(peers[1], spoilt(good), spoilt(late), spoilt(early), spoilt(open), none, good)
		waitIdle()
		for i, p := range peers {
			testkit.Equal(t, fmt.Sprintf("peer %d", i), len(p.takeExpelled()), 0)
		}
		fresh, _ := messageNow(t, 6)
		n.arrive(peers[2], good, spoilt(fresh), fresh)
		waitIdle()
		if got := peers[2].takeExpelled(); !slices.Equal(got, []refusalCall{{2, oap.Malformed}}) {
			t.Errorf("the forger was told %v", got)
		}
		testkit.Equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 2)
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 2) // the genuine message, too
		testkit.Equal(t, "others", len(peers[0].takeExpelled())+len(peers[1].takeExpelled()), 0)
	})
}

// A known message is not verified again: that would be wasted work.
func TestAKnownMessageIsNotVerifiedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Topics = 1 })
		peers := n.addPeers(2)
		g, _ := messageNow(t, 1)
		n.arrive(peers[0], g)
		waitIdle()
		other, _ := messageAt(t, time.Now(), 2, "another/topic", "")
		bad := g
		bad.Sig = other.Sig
		n.arrive(peers[1], other)
		waitIdle()
		n.arrive(peers[1], bad)
		waitIdle()
		testkit.Equal(t, "duplicates", n.tally.read(&n.tally.duplicate), 1)
		testkit.Equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 0)
		testkit.Equal(t, "over its topics", n.tally.drops(DropTopics), 0)
	})
}

func TestReplaysAreDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(3)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := messageNow(t, 1)
		n.arrive(peers[0], g, g, g)
		n.arrive(peers[1], g)
		waitIdle()
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 1)
		for elapsed := time.Duration(0); elapsed <= 150*time.Second; elapsed += 3 * time.Second {
			advanceTime(3 * time.Second)
			n.arrive(peers[2], g)
		}
		waitIdle()
		testkit.Equal(t, "delivered again", len(s.receiveAll(t)), 0)
		if n.tally.rejects(oap.Expired) == 0 {
			t.Error("the message was never refused for its age")
		}
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 1)
	})
}

// A message from a clock that is ahead is remembered until its own time is
// over, not ours.
func TestAMessageFromAheadIsRememberedLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := messageAt(t, time.Now().Add(2*time.Minute), 1, "news/eu", "early")
		for range 100 {
			n.arrive(peers[0], g)
			advanceTime(3 * time.Second)
		}
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 1)
	})
}

func TestUnsignedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(1)
		unsigned := func(topic string) oap.Gossip {
			g, _ := sealed(t, nil, &oap.GossipMessage{Topic: topic, Key: publicOf(origin), Seq: 1, TS: uint64(time.Now().UnixMilli())})
			return g
		}
		for topic, want := range map[string]int{"open": 1, "open/to/all": 1, "opened": 0, "news/open": 0} {
			s := n.subscribe(topic)
			n.arrive(peers[0], unsigned(topic))
			waitIdle()
			got := s.receiveAll(t)
			testkit.Equal(t, topic, len(got), want)
			if len(got) == 1 && got[0].Signed {
				t.Errorf("%s: an unsigned message is said to be signed", topic)
			}
			s.Close()
		}
		s := n.subscribe("open/signed")
		defer s.Close()
		good, _ := messageAt(t, time.Now(), 1, "open/signed", "signed all the same")
		bad, _ := messageAt(t, time.Now(), 2, "open/signed", "with another's signature")
		bad.Sig = good.Sig
		n.arrive(peers[0], bad, good)
		waitIdle()
		got := s.receiveAll(t)
		if len(got) != 1 || !got[0].Signed || got[0].Seq != 1 {
			t.Errorf("got %v", got)
		}
		testkit.Equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 1)
		n.arrive(peers[0], bad) // on a topic that is known by now
		waitIdle()
		testkit.Equal(t, "delivered later", len(s.receiveAll(t)), 0)
		testkit.Equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 2)
	})
}

// In one batch: what holds for a peer and a topic does not hold for the peer on
// another topic, nor for another peer on the topic.
func TestMixedTopicsInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(s *Spec) { allowUnsigned(s); s.Topics = 2; s.Config.Burst = 100 })
		peers := n.addPeers(2)
		h := newBatchState(n.Engine)
		seq := 0
		from := func(p *fakePeer, topic string, signed bool) *queued {
			seq++
			var key ed25519.PrivateKey
			if signed {
				key = origin
			}
			g, _ := sealed(t, key, &oap.GossipMessage{Topic: topic, Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
			return n.queueMessage(n.linkOf(p), g)
		}
		a, b := peers[0], peers[1]
		h.handleQueued([]*queued{from(a, "open", false), from(a, "news", true), from(b, "x", true), from(b, "y", true)})
		testkit.Equal(t, "taken", n.tally.taken, 4)
		h.handleQueued([]*queued{
			from(a, "open", false), from(a, "news", false), // which must be signed
			from(a, "open", false), from(b, "open", false), // which is one topic too many
		})
		testkit.Equal(t, "taken", n.tally.taken, 6)
		testkit.Equal(t, "unsigned", n.tally.rejects(oap.Unsigned), 1)
		testkit.Equal(t, "over its topics", n.tally.drops(DropTopics), 1)
	})
}

// Two workers have the same message at the same time.
func TestAMessageThatIsKnownByTheTimeItIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		peers := n.addPeers(2)
		g, _ := messageNow(t, 1)
		var verified []*queued
		h := newBatchState(n.Engine)
		h.startBatch()
		for _, p := range []*fakePeer{peers[0], peers[1], peers[0]} {
			q := n.queueMessage(n.linkOf(p), g)
			testkit.Equal(t, "verified", h.check(&q.arrival), true)
			verified = append(verified, q)
		}
		accept := func(q *queued) {
			units := 0
			if claimed, _ := q.finish(stateGood, &units); !claimed {
				t.Fatal("it waits for another")
			}
			h.claims = append(h.claims, q.sequence)
			h.advance()
		}
		for i, q := range verified[:2] {
			accept(q)
			testkit.Equal(t, "taken", n.tally.taken, 1)
			testkit.Equal(t, "known", n.tally.duplicate, i)
		}
		// A message whose bucket was dropped meanwhile is too old.
		for i := range n.seen.shards {
			n.seen.shards[i].horizon = verified[2].message.TS + 1
		}
		accept(verified[2])
		testkit.Equal(t, "too old", n.tally.rejects(oap.Expired), 1)
	})
}

func TestSignNoneTakesUnsignedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Sign = "none" })
		peers := n.addPeers(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := messageNow(t, 1)
		g.Sig = nil
		n.arrive(peers[0], g)
		if _, err := n.Publish(t.Context(), "news/eu", []byte("ours")); err != nil {
			t.Fatal(err)
		}
		waitIdle()
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 2)
		for _, g := range peers[1].takeGossip() {
			testkit.Equal(t, "signature", len(g.Sig), 0)
		}
	})
}

func TestTenThousandTopicsFromOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Unsigned = []string{"t"} })
		peers := n.addPeers(2)
		flood, quiet := peers[0], peers[1]
		send := func(from *fakePeer, topic string, seq int) {
			g, _ := sealed(t, nil, &oap.GossipMessage{Topic: topic, Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
			n.arrive(from, g)
			waitIdle()
		}
		for i := range 10_000 {
			send(flood, "t/"+strings.Repeat("x", i%50+1)+"/"+string(rune('a'+i%26))+strings.Repeat("y", i/1300+1)+"/"+time.Duration(i).String(), i)
		}
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 128)
		testkit.Equal(t, "dropped", n.tally.drops(DropTopics), 10_000-128)
		if refusals := flood.takeRefused(); len(refusals) == 0 || refusals[0].code != oap.QuotaExceeded || refusals[0].corr != 1 {
			t.Errorf("told %v", refusals)
		}
		l := n.linkOf(flood)
		l.mu.Lock()
		if len(l.topics.lastUsed) > 128 {
			t.Errorf("%d topics are remembered of one peer", len(l.topics.lastUsed))
		}
		l.mu.Unlock()
		// Another peer has its own quota, and topics without recent messages
		// make room.
		send(quiet, "t/quiet", 1)
		testkit.Equal(t, "taken from another", n.tally.read(&n.tally.taken), 129)
		advanceTime(121 * time.Second)
		send(flood, "t/later", 1)
		testkit.Equal(t, "taken later", n.tally.read(&n.tally.taken), 130)
	})
}

// A message that is refused for its topic is not asked for again.
func TestAWantedMessageOverTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Topics = 1 })
		peers := n.addPeers(1)
		first, _ := messageNow(t, 1)
		second, id := messageAt(t, time.Now(), 2, "another/topic", "")
		n.HandleHave(peers[0], []b3.Address{id})
		n.arrive(peers[0], first, second)
		waitIdle()
		messages, _ := n.wantCounts()
		testkit.Equal(t, "missing", messages, 0)
		testkit.Equal(t, "dropped", n.tally.drops(DropTopics), 1)
	})
}

// Publishers are told apart by their keys, however many there are.
func TestManyOrigins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		s := n.subscribe("news/eu")
		defer s.Close()
		for round := range 2 {
			for i := range 2 * publisherSlots {
				key := keyOf(i)
				g, _ := sealed(t, key, &oap.GossipMessage{Topic: "news/eu", Key: publicOf(key), Seq: uint64(round), TS: uint64(time.Now().UnixMilli()), Data: key.Seed()})
				n.arrive(peers[0], g)
				waitIdle()
			}
		}
		got := s.receiveAll(t)
		testkit.Equal(t, "delivered", len(got), 4*publisherSlots)
		for _, d := range got {
			if key := ed25519.NewKeyFromSeed(d.Data); d.Publisher != oap.PeerIDOf(key.Public().(ed25519.PublicKey)) {
				t.Fatal("a message has another's origin")
			}
		}
	})
}

// A session is among the active ones a moment before it is opened here.
func TestAPeerThatIsActiveBeforeItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePeer(1)
		peers := []Peer{p}
		n := start(t, func(s *Spec) { s.Peers = func() []Peer { return peers } })
		testkit.Equal(t, "peers before", n.mustPublish("news/eu", nil).Peers, 0)
		n.Opened(p)
		testkit.Equal(t, "peers", n.mustPublish("news/eu", nil).Peers, 1)
		n.Closed(p)
		testkit.Equal(t, "peers after", n.mustPublish("news/eu", nil).Peers, 0)
	})
}

// When the set is full nothing is forgotten early. Peers get Busy until the
// oldest have expired. What is published here needs no entry in it.
func TestAFullSeenSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Seen = 10 })
		peers := n.addPeers(12) // a single peer could not fill it
		for i, p := range peers {
			g, _ := messageNow(t, i)
			n.arrive(p, g)
			waitIdle()
		}
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 10)
		testkit.Equal(t, "dropped", n.tally.drops(DropSeen), 2)
		for _, p := range peers[10:] {
			if refusals := p.takeRefused(); len(refusals) != 1 || refusals[0].code != oap.Busy {
				t.Errorf("told %v", refusals)
			}
		}
		testkit.Equal(t, "fullness", n.SeenFullness(), 1)
		testkit.Equal(t, "pressure", n.Pressure(), 0)
		n.mustPublish("news/eu", nil)
		testkit.Equal(t, "remembered", n.seen.count.Load(), 10)
		// A duplicate is recognised, full or not.
		again, _ := messageNow(t, 3)
		n.arrive(peers[0], again)
		waitIdle()
		testkit.Equal(t, "duplicates", n.tally.read(&n.tally.duplicate), 1)

		advanceTime(100 * time.Second)
		testkit.Equal(t, "remembered until ttl", n.seen.count.Load(), 10)
		advanceTime(30 * time.Second)
		testkit.Equal(t, "remembered after", n.seen.count.Load(), 0)
		g, _ := messageNow(t, 99)
		n.arrive(peers[0], g)
		waitIdle()
		testkit.Equal(t, "taken after", n.tally.read(&n.tally.taken), 11)
		if _, err := n.Publish(t.Context(), "news/eu", nil); err != nil {
			t.Errorf("publish: %v", err)
		}
	})
}

// unsignedMessage is a message without a signature, on a topic that needs none.
func unsignedMessage(t *testing.T, seq int, data string) oap.Gossip {
	t.Helper()
	g, _ := sealed(t, nil, &oap.GossipMessage{Topic: "open/a", Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli()), Data: []byte(data)})
	return g
}

// Unsigned messages are handled by the reader's task, in memory of their own;
// signed ones wait for a worker.
func TestUnsignedMessagesNeedNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, allowUnsigned)
		peers := n.addPeers(2)
		s := n.subscribe("open/a")
		defer s.Close()
		signed, _ := messageNow(t, 1)
		first, second := unsignedMessage(t, 2, "storm"), unsignedMessage(t, 3, "calm")
		n.arrive(peers[0], first, signed, second, first)
		clear(first.Msg) // the reader reuses its buffer
		clear(second.Msg)
		got := s.receiveAll(t)
		if len(got) != 2 || string(got[0].Data) != "storm" || string(got[1].Data) != "calm" || got[0].ID() != b3.Of(got[0].stored.envelope.Msg) {
			t.Errorf("delivered %+v", got)
		}
		testkit.Equal(t, "sent back", len(peers[0].takeGossip()), 0)
		passed := peers[1].takeGossip()
		testkit.Equal(t, "passed on", len(passed), 2)
		for i, g := range passed {
			if l, err := g.DecodeMessage(); err != nil || string(l.Data) != []string{"storm", "calm"}[i] {
				t.Errorf("passed on: %q, %v", l.Data, err)
			}
		}
		testkit.Equal(t, "duplicates", n.tally.read(&n.tally.duplicate), 1)
		testkit.Equal(t, "waiting", n.ingress.Len(1), 1)
		clear(signed.Msg)
		n.Drain()
		testkit.Must(t, n.Work(t.Context()))
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 3)
	})
}

// Two tasks may wait for a peer: the reader whose messages it gets, and a
// publisher, for the last peer that is left. After a wait in vain no task waits
// for that peer until it has written something. Workers never wait.
func TestWhoWaitsForAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(3)
		from, to, third := peers[0], peers[1], peers[2]
		waited := func(what string, p *fakePeer, want ...time.Duration) {
			t.Helper()
			if got := p.takeWaits(); !slices.Equal(got, want) {
				t.Errorf("%s: waits %v, want %v", what, got, want)
			}
		}
		n.arrive(from, unsignedMessage(t, 1, "a"))
		waited("a reader", to, readerWait)
		waited("a reader", third, readerWait)
		signed, _ := messageNow(t, 2)
		n.arrive(from, signed)
		waitIdle()
		waited("a worker", to, -1)
		waited("a worker", third, -1)

		to.set(func() { to.idles, to.rejectsGossip = true, true })
		n.arrive(from, unsignedMessage(t, 3, "b"))
		n.arrive(from, unsignedMessage(t, 4, "c"))
		if waits := to.takeWaits(); len(waits) != 2 || waits[0] <= 0 || waits[1] != -1 {
			t.Errorf("in vain: %v", waits)
		}
		to.set(func() { to.rejectsGossip, to.idles = false, false })
		n.arrive(from, unsignedMessage(t, 5, "d"))
		waited("still in vain", to, -1)
		to.outs[0].Written(nil)
		third.takeWaits()
		n.arrive(from, unsignedMessage(t, 6, "e"))
		waited("it wrote one", to, readerWait)

		for _, p := range peers {
			p.takeWaits()
			p.set(func() { p.rejectsGossip = true })
		}
		if _, err := n.Publish(t.Context(), "open/a", nil); fault.KindOf(err) != fault.Busy {
			t.Errorf("everybody is busy: %v", err)
		}
		patient := 0
		for _, p := range peers {
			for _, wait := range p.takeWaits() {
				if wait == publishWait {
					patient++
				} else if wait != -1 {
					t.Errorf("a publisher waits %v", wait)
				}
			}
		}
		testkit.Equal(t, "peers that a publisher waits for", patient, 1)
	})
}

// A queue that two peers fill refuses them and not the quiet one, and reports
// it.
func TestAFloodFillsItsOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, allowUnsigned)
		peers := n.addPeers(3)
		floods, quiet := peers[:2], peers[2]
		g, _ := sealed(t, origin, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, 1024)})
		for range 20 {
			var batch []oap.Gossip
			for range 100 {
				batch = append(batch, g)
			}
			for _, flood := range floods {
				n.arrive(flood, batch...)
			}
		}
		testkit.Equal(t, "waiting", n.ingress.Len(1), ingressItems)
		testkit.Equal(t, "dropped", n.tally.drops(DropIngress)+n.tally.drops(DropShare), 4000-ingressItems)
		testkit.Equal(t, "shed", n.Shed(), uint64(n.tally.drops(DropIngress)))
		testkit.Equal(t, "pressure", n.Pressure(), 1)
		for _, refusal := range slices.Concat(floods[0].takeRefused(), floods[1].takeRefused()) {
			testkit.Equal(t, "told", refusal.code, oap.Busy)
		}
		for i := range 100 {
			small, _ := messageAt(t, time.Now(), i, "quiet", "q")
			n.arrive(quiet, small)
		}
		testkit.Equal(t, "refused to the quiet one", len(quiet.takeRefused()), 0)
		if len(floods[0].takeRefused()) == 0 || len(floods[1].takeRefused()) == 0 {
			t.Error("nobody told the flooding peers whose messages made room")
		}
		into := make([]*queued, 200)
		got, err := n.ingress.Take(t.Context(), into, 1<<30)
		testkit.Must(t, err)
		fair := 0
		for _, a := range into[:got] {
			if a.link.serial == quiet.serial {
				fair++
			}
		}
		if fair < 60 {
			t.Errorf("the quiet peer has %d of the first 200 turns", fair)
		}
	})
}

// A worker that panics is restarted. Its batch does not count as queued for
// ever, or publishing would be refused one day for a queue that is empty.
func TestAWorkerThatPanicsLeavesNoPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(s *Spec) { s.Counters.Rejected = func(oap.Reason) { panic("boom") } })
		peers := n.addPeers(1)
		g, _ := messageNow(t, 1)
		g.Sig = make([]byte, ed25519.SignatureSize)
		n.arrive(peers[0], g, g)
		func() {
			defer func() { testkit.Equal(t, "panic", recover(), any("boom")) }()
			_ = n.Work(t.Context())
		}()
		testkit.Equal(t, "messages that wait", n.ingress.Len(1), 0)
		testkit.Equal(t, "bytes that wait", n.ingressUsage.bytes.Load(), 0)
		testkit.Equal(t, "pressure", n.Pressure(), 0)
	})
}

func TestIngressIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		peers := n.addPeers(2)
		big, _ := sealed(t, origin, &oap.GossipMessage{Topic: "news", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, 1<<20-600)})
		for range 16 {
			n.arrive(peers[0], big)
			n.arrive(peers[1], big)
		}
		if bytes := n.ingressUsage.bytes.Load(); bytes > int64(n.config.IngressBytes) {
			t.Errorf("%d bytes wait", bytes)
		}
		testkit.Equal(t, "waiting", n.ingress.Len(1), 16)
		if p := n.Pressure(); p < 0.9 || p > 1 {
			t.Errorf("pressure %v", p)
		}
		ctx := t.Context()
		n.Drain()
		if err := n.Work(ctx); err != nil {
			t.Errorf("work: %v", err)
		}
		testkit.Equal(t, "bytes after", n.ingressUsage.bytes.Load(), 0)
		if p := n.Pressure(); p > 0.01 { // one message is remembered
			t.Errorf("pressure after: %v", p)
		}
	})
}

func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		peers := n.addPeers(1)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := messageNow(t, 1)
		n.arrive(peers[0], g)
		n.Drain()
		late, _ := messageNow(t, 2)
		n.arrive(peers[0], late)
		testkit.Equal(t, "dropped", n.tally.drops(DropDrain), 1)
		if _, err := n.Publish(t.Context(), "news/eu", nil); fault.KindOf(err) != fault.NotReady || fault.NextOf(err) == "" {
			t.Errorf("publish: %v", err)
		}
		if err := n.Work(t.Context()); err != nil {
			t.Errorf("work: %v", err)
		}
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 1)
		n.HandleHave(peers[0], idsOf(3))
		n.HandleWant(peers[0], idsOf(3))
		testkit.Equal(t, "wants", len(peers[0].takeWants()), 0)
		testkit.Equal(t, "given", len(peers[0].takeGossip()), 0)
	})
}

func TestWorkEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		waitIdle()
		n.stop()
		if err := n.Work(canceled(t)); fault.KindOf(err) != fault.Canceled {
			t.Errorf("work: %v", err)
		}
		if err := n.Maintain(canceled(t)); fault.KindOf(err) != fault.Canceled {
			t.Errorf("tend: %v", err)
		}
		if _, err := n.Publish(canceled(t), "news/eu", nil); fault.KindOf(err) != fault.Canceled {
			t.Errorf("publish: %v", err)
		}
	})
}

// Messages of a peer that was never opened, or is closed, are dropped.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		p := newFakePeer(1)
		g, id := messageNow(t, 1)
		n.arrive(p, g)
		n.HandleHave(p, idsOf(1))
		n.HandleWant(p, []b3.Address{id})
		n.HandleRefusal(p, &oap.Error{Code: oap.Busy})
		n.Closed(p)
		waitIdle()
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 0)
		testkit.Equal(t, "asked", len(p.takeWants()), 0)
		testkit.Equal(t, "busy", p.isBusy(), false)
	})
}

// The clock of the node is set back after messages were forgotten. They are not
// delivered again.
func TestAClockThatGoesBack(t *testing.T) {
	set, by := newSeenSet(100, 120*time.Second), &share{}
	at := time.UnixMilli(1_700_000_000_000)
	id := testFingerprint(1)
	testkit.Equal(t, "first", set.insert(id, uint64(at.UnixMilli()), by), inserted)
	set.expire(at.Add(10 * time.Minute)) // a leap
	testkit.Equal(t, "count", set.count.Load(), 0)
	testkit.Equal(t, "again", set.insert(id, uint64(at.UnixMilli()), by), tooOld)
	testkit.Equal(t, "known", set.has(id, uint64(at.UnixMilli())), true)
	later := uint64(at.Add(8 * time.Second).UnixMilli())
	testkit.Equal(t, "later ones are taken", set.insert(testFingerprint(2), later, by), inserted)
}

// Nor does the node publish messages of a time that it has forgotten.
func TestPublishAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		n.seen.horizon.Store(uint64(time.Now().Add(5 * time.Second).UnixMilli()))
		if _, err := n.Publish(t.Context(), "news/eu", nil); fault.KindOf(err) != fault.NotReady || fault.NextOf(err) == "" {
			t.Errorf("publish: %v", err)
		}
		advanceTime(5 * time.Second)
		n.mustPublish("news/eu", nil)
	})
}

// FuzzArrived brings arbitrary envelopes. Nothing panics, what is accepted is a
// message that verifies, and it is relayed unchanged.
func FuzzArrived(f *testing.F) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // where synctest begins
	good, _, _ := (&oap.GossipMessage{Topic: "news/eu", Key: publicOf(origin), Seq: 1, TS: uint64(start.UnixMilli()), Data: []byte("storm")}).Seal(origin)
	f.Add(good.Msg, good.Sig, uint64(8), uint64(3), uint64(1))
	f.Add(good.Msg, []byte(nil), uint64(8), uint64(3), uint64(1))
	open, _, _ := (&oap.GossipMessage{Topic: "open/a", Key: publicOf(origin), TS: uint64(start.UnixMilli())}).Seal(nil)
	f.Add(open.Msg, []byte(nil), ^uint64(0), ^uint64(0), uint64(0))
	f.Add([]byte{0xa5}, []byte{1}, uint64(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, msg, sig []byte, hops, fanout, corr uint64) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, allowUnsigned)
			peers := n.addPeers(5)
			g := oap.Gossip{Msg: msg, Sig: sig, Hops: hops, Fanout: fanout}
			n.HandleGossip(peers[0], []session.IncomingGossip{{Gossip: g, Corr: corr}, {Gossip: g, Corr: corr}})
			n.Drain()
			testkit.Must(t, n.Work(t.Context()))
			if n.tally.taken > 1 || n.ingressUsage.bytes.Load() != 0 {
				t.Fatalf("taken %d times, %d bytes wait", n.tally.taken, n.ingressUsage.bytes.Load())
			}
			if n.tally.taken == 1 {
				l, id, err := g.Open()
				if err != nil || l.CheckTime(time.Now(), n.config.TTL, n.skew) != nil || g.Verify(&l, id) != nil && (len(sig) > 0 || !n.policy.allowsUnsigned(l.Topic)) {
					t.Fatal("a message was taken that breaks a rule")
				}
			}
			for i, p := range peers {
				for _, out := range p.takeGossip() {
					if i == 0 || n.tally.taken == 0 || out.Hops != min(hops, 8)-1 || out.Fanout != min(fanout, 3) {
						t.Fatalf("peer %d got hops %d, fan-out %d of %d, %d", i, out.Hops, out.Fanout, hops, fanout)
					}
					equalBytes(t, "msg", out.Msg, msg)
					equalBytes(t, "sig", out.Sig, sig)
				}
			}
			var id b3.Address
			copy(id[:], msg)
			n.HandleHave(peers[1], []b3.Address{id, b3.Of(msg)})
			n.HandleWant(peers[1], []b3.Address{id, b3.Of(msg)})
		})
	})
}
