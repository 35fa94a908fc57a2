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
)

// unsignedOn is an engine that takes unsigned letters below "open".
func unsignedOn(s *Spec) { s.Config.Unsigned = []string{"open"} }

// Each row of "Taking a letter" in the protocol: what is refused, how it is
// counted, and whether the peer is told.
func TestWhatIsRefusedAndHow(t *testing.T) {
	now := func() time.Time { return time.Now() }
	for name, row := range map[string]struct {
		letter func(t *testing.T) oap.Gossip
		reason oap.Reason // zero: it is delivered
	}{
		"a good one": {func(t *testing.T) oap.Gossip { g, _ := letterNow(t, 1); return g }, 0},
		"no letter at all": {func(t *testing.T) oap.Gossip {
			return oap.Gossip{Msg: []byte("hello"), Hops: 8, Fanout: 3}
		}, oap.BadLetter},
		"a byte behind the letter": {func(t *testing.T) oap.Gossip {
			g, _ := letterNow(t, 1)
			g.Msg = append(g.Msg, 0)
			return g
		}, oap.BadLetter},
		"a bad topic": {func(t *testing.T) oap.Gossip {
			g, _ := letterAt(t, now(), 1, "news/eu", "storm")
			g.Msg = []byte(strings.Replace(string(g.Msg), "news/eu", "news//u", 1))
			return g
		}, oap.BadTopic},
		"as old as may be": {func(t *testing.T) oap.Gossip {
			g, _ := letterAt(t, now().Add(-120*time.Second), 1, "news/eu", "storm")
			return g
		}, 0},
		"a millisecond older": {func(t *testing.T) oap.Gossip {
			g, _ := letterAt(t, now().Add(-120*time.Second-time.Millisecond), 1, "news/eu", "storm")
			return g
		}, oap.Stale},
		"as far ahead as may be": {func(t *testing.T) oap.Gossip {
			g, _ := letterAt(t, now().Add(2*time.Minute), 1, "news/eu", "storm")
			return g
		}, 0},
		"a millisecond further": {func(t *testing.T) oap.Gossip {
			g, _ := letterAt(t, now().Add(2*time.Minute+time.Millisecond), 1, "news/eu", "storm")
			return g
		}, oap.Future},
		"no signature": {func(t *testing.T) oap.Gossip {
			g, _ := letterNow(t, 1)
			g.Sig = nil
			return g
		}, oap.Unsigned},
		"another's signature": {func(t *testing.T) oap.Gossip {
			g, _ := letterNow(t, 1)
			other, _ := letterNow(t, 2)
			g.Sig = other.Sig
			return g
		}, oap.BadSig},
		"a forged origin": {func(t *testing.T) oap.Gossip {
			victim := &oap.Letter{Topic: "news/eu", Key: publicOf(keyOf(5)), Seq: 1, TS: uint64(now().UnixMilli()), Data: []byte("lies")}
			g, id := sealed(t, nil, victim)
			mine, _ := sealed(t, origin, &oap.Letter{Topic: "news/eu", Key: publicOf(origin), Seq: 1, TS: victim.TS, Data: id[:]})
			g.Sig = mine.Sig
			return g
		}, oap.BadSig},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				peers := n.company(3)
				s := n.subscribe("news/eu")
				defer s.Close()
				n.arrive(peers[0], row.letter(t))
				settle()
				got := s.drain(t)
				_, passed := holders(peers)
				if row.reason == 0 {
					equal(t, "delivered", len(got), 1)
					equal(t, "passed on", passed, 2)
					return
				}
				equal(t, "delivered", len(got), 0)
				equal(t, "passed on", passed, 0)
				equal(t, "counted", n.tally.rejects(row.reason), 1)
				equal(t, "told", len(peers[0].takeRefused()), 0)
				equal(t, "remembered", n.seen.count.Load(), 0)
				blamed := 0
				if row.reason == oap.BadSig {
					blamed = 1
				}
				equal(t, "parted from", len(peers[0].takeExpelled()), blamed)
			})
		})
	}
}

func TestWhatASubscriberGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		s, other := n.subscribe("news/eu"), n.subscribe("news")
		defer s.Close()
		defer other.Close()
		written := time.Now().Add(-time.Second).Truncate(time.Millisecond)
		g, id := letterAt(t, written, 42, "news/eu", "storm")
		n.arrive(peers[0], g)
		settle()
		got := s.drain(t)
		if len(got) != 1 {
			t.Fatalf("got %d letters", len(got))
		}
		d := got[0]
		equal(t, "id", d.ID(), id)
		equal(t, "origin", d.Origin, originID)
		equal(t, "topic", d.Topic, "news/eu")
		equal(t, "seq", d.Seq, 42)
		equal(t, "signed", d.Signed, true)
		equal(t, "data", string(d.Data), "storm")
		if !d.Time.Equal(written) {
			t.Errorf("time %v, want %v", d.Time, written)
		}
		equal(t, "on another topic", len(other.drain(t)), 0)
		equal(t, "counted", n.tally.read(&n.tally.delivered), 1)
	})
}

// The id does not cover the signature. A stranger who sends a letter first with
// a wrong one must not silence it.
func TestAWrongSignatureFirstDoesNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		good, _ := letterNow(t, 1)
		bad := good
		bad.Sig = append([]byte(nil), good.Sig...)
		bad.Sig[0] ^= 1
		none := good
		none.Sig = nil
		n.arrive(peers[0], bad, none)
		settle()
		n.arrive(peers[1], good)
		settle()
		got := s.drain(t)
		equal(t, "delivered", len(got), 1)
		equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 1)
		equal(t, "unsigned", n.tally.rejects(oap.Unsigned), 1)
	})
}

// Whoever hands over a forged letter is parted from, and nobody else. What is too
// old, or known, or not signed at all, or on a topic where signatures count for
// nothing may come from an honest peer.
func TestOnlyAForgerIsPartedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(3)
		spoilt := func(g oap.Gossip) oap.Gossip {
			g.Sig = slices.Clone(g.Sig)
			g.Sig[0] ^= 1
			return g
		}
		good, _ := letterNow(t, 1)
		late, _ := letterAt(t, time.Now().Add(-time.Hour), 2, "news/eu", "old")
		early, _ := letterAt(t, time.Now().Add(time.Hour), 3, "news/eu", "from ahead")
		open, _ := letterAt(t, time.Now(), 4, "open/to/all", "where nobody signs")
		none, _ := letterNow(t, 5)
		none.Sig = nil
		n.arrive(peers[0], good)
		settle()
		n.arrive(peers[1], spoilt(good), spoilt(late), spoilt(early), spoilt(open), none, good)
		settle()
		for i, p := range peers {
			equal(t, fmt.Sprintf("peer %d", i), len(p.takeExpelled()), 0)
		}
		fresh, _ := letterNow(t, 6)
		n.arrive(peers[2], good, spoilt(fresh), fresh)
		settle()
		if got := peers[2].takeExpelled(); !slices.Equal(got, []refusedBy{{2, oap.Malformed}}) {
			t.Errorf("the forger was told %v", got)
		}
		equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 2)
		equal(t, "taken", n.tally.read(&n.tally.taken), 2) // the true letter, too
		equal(t, "others", len(peers[0].takeExpelled())+len(peers[1].takeExpelled()), 0)
	})
}

// What is known is not looked at any further: that would be work for nothing.
func TestAKnownLetterIsNotVerifiedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Topics = 1 })
		peers := n.company(2)
		g, _ := letterNow(t, 1)
		n.arrive(peers[0], g)
		settle()
		other, _ := letterAt(t, time.Now(), 2, "another/topic", "")
		bad := g
		bad.Sig = other.Sig
		n.arrive(peers[1], other)
		settle()
		n.arrive(peers[1], bad)
		settle()
		equal(t, "duplicates", n.tally.read(&n.tally.duplicate), 1)
		equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 0)
		equal(t, "over its topics", n.tally.drops(DropTopics), 0)
	})
}

func TestReplaysAreDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(3)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := letterNow(t, 1)
		n.arrive(peers[0], g, g, g)
		n.arrive(peers[1], g)
		settle()
		equal(t, "delivered", len(s.drain(t)), 1)
		for elapsed := time.Duration(0); elapsed <= 150*time.Second; elapsed += 3 * time.Second {
			pass(3 * time.Second)
			n.arrive(peers[2], g)
		}
		settle()
		equal(t, "delivered again", len(s.drain(t)), 0)
		if n.tally.rejects(oap.Stale) == 0 {
			t.Error("the letter was never refused for its age")
		}
		equal(t, "taken", n.tally.read(&n.tally.taken), 1)
	})
}

// A letter from ahead is remembered until its own time is over, not ours.
func TestALetterFromAheadIsRememberedLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := letterAt(t, time.Now().Add(2*time.Minute), 1, "news/eu", "early")
		for range 100 {
			n.arrive(peers[0], g)
			pass(3 * time.Second)
		}
		equal(t, "delivered", len(s.drain(t)), 1)
	})
}

func TestUnsignedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(1)
		unsigned := func(topic string) oap.Gossip {
			g, _ := sealed(t, nil, &oap.Letter{Topic: topic, Key: publicOf(origin), Seq: 1, TS: uint64(time.Now().UnixMilli())})
			return g
		}
		for topic, want := range map[string]int{"open": 1, "open/to/all": 1, "opened": 0, "news/open": 0} {
			s := n.subscribe(topic)
			n.arrive(peers[0], unsigned(topic))
			settle()
			got := s.drain(t)
			equal(t, topic, len(got), want)
			if len(got) == 1 && got[0].Signed {
				t.Errorf("%s: an unsigned letter is said to be signed", topic)
			}
			s.Close()
		}
		s := n.subscribe("open/signed")
		defer s.Close()
		good, _ := letterAt(t, time.Now(), 1, "open/signed", "signed all the same")
		bad, _ := letterAt(t, time.Now(), 2, "open/signed", "with another's signature")
		bad.Sig = good.Sig
		n.arrive(peers[0], bad, good)
		settle()
		got := s.drain(t)
		if len(got) != 1 || !got[0].Signed || got[0].Seq != 1 {
			t.Errorf("got %v", got)
		}
		equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 1)
		n.arrive(peers[0], bad) // on a topic that is known by now
		settle()
		equal(t, "delivered later", len(s.drain(t)), 0)
		equal(t, "bad signatures", n.tally.rejects(oap.BadSig), 2)
	})
}

// In one batch: what holds for a peer and a topic does not hold for the peer on
// another topic, nor for another peer on the topic.
func TestNeighboursInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, func(s *Spec) { unsignedOn(s); s.Topics = 2; s.Config.Burst = 100 })
		peers := n.company(2)
		h := newHand(n.Engine)
		seq := 0
		from := func(p *fake, topic string, signed bool) arrival {
			seq++
			var key ed25519.PrivateKey
			if signed {
				key = origin
			}
			g, _ := sealed(t, key, &oap.Letter{Topic: topic, Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
			return arrival{session.Arrival{Gossip: g}, n.find(p)}
		}
		a, b := peers[0], peers[1]
		h.handle([]arrival{from(a, "open", false), from(a, "news", true), from(b, "x", true), from(b, "y", true)})
		equal(t, "taken", n.tally.taken, 4)
		h.handle([]arrival{
			from(a, "open", false), from(a, "news", false), // which must be signed
			from(a, "open", false), from(b, "open", false), // which is one topic too many
		})
		equal(t, "taken", n.tally.taken, 6)
		equal(t, "unsigned", n.tally.rejects(oap.Unsigned), 1)
		equal(t, "over its topics", n.tally.drops(DropTopics), 1)
	})
}

// Two workers have the same letter at the same time.
func TestALetterThatIsKnownByTheTimeItIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, nil)
		peers := n.company(2)
		g, _ := letterNow(t, 1)
		l, err := g.Read()
		if err != nil {
			t.Fatal(err)
		}
		for i := range peers {
			h := newHand(n.Engine)
			h.begin()
			h.remember(&arrival{session.Arrival{Gossip: g}, n.find(peers[i])}, &l, h.fingerprint(g.Msg), nil)
			h.finish()
			equal(t, "taken", n.tally.taken, 1)
			equal(t, "known", n.tally.duplicate, i)
		}
		// One whose bucket has gone meanwhile is too old.
		for i := range n.seen.shards {
			n.seen.shards[i].horizon = l.TS + 1
		}
		h := newHand(n.Engine)
		h.remember(&arrival{session.Arrival{Gossip: g}, n.find(peers[0])}, &l, h.fingerprint(g.Msg), nil)
		equal(t, "too old", n.tally.rejects(oap.Stale), 1)
	})
}

func TestSignNoneTakesUnsignedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Sign = "none" })
		peers := n.company(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := letterNow(t, 1)
		g.Sig = nil
		n.arrive(peers[0], g)
		if _, err := n.Publish(t.Context(), "news/eu", []byte("ours")); err != nil {
			t.Fatal(err)
		}
		settle()
		equal(t, "delivered", len(s.drain(t)), 2)
		for _, g := range peers[1].took() {
			equal(t, "signature", len(g.Sig), 0)
		}
	})
}

func TestTenThousandTopicsFromOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Unsigned = []string{"t"} })
		peers := n.company(2)
		flood, quiet := peers[0], peers[1]
		send := func(from *fake, topic string, seq int) {
			g, _ := sealed(t, nil, &oap.Letter{Topic: topic, Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
			n.arrive(from, g)
			settle()
		}
		for i := range 10_000 {
			send(flood, "t/"+strings.Repeat("x", i%50+1)+"/"+string(rune('a'+i%26))+strings.Repeat("y", i/1300+1)+"/"+time.Duration(i).String(), i)
		}
		equal(t, "taken", n.tally.read(&n.tally.taken), 128)
		equal(t, "dropped", n.tally.drops(DropTopics), 10_000-128)
		if told := flood.takeRefused(); len(told) == 0 || told[0].code != oap.QuotaExceeded || told[0].corr != 1 {
			t.Errorf("told %v", told)
		}
		l := n.find(flood)
		l.mu.Lock()
		if len(l.topics.last) > 128 {
			t.Errorf("%d topics are remembered of one peer", len(l.topics.last))
		}
		l.mu.Unlock()
		// Another peer has its own quota, and topics that fell silent make room.
		send(quiet, "t/quiet", 1)
		equal(t, "taken from another", n.tally.read(&n.tally.taken), 129)
		pass(121 * time.Second)
		send(flood, "t/later", 1)
		equal(t, "taken later", n.tally.read(&n.tally.taken), 130)
	})
}

// A letter that is refused for its topic is not asked for again.
func TestAWantedLetterOverTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Topics = 1 })
		peers := n.company(1)
		first, _ := letterNow(t, 1)
		second, id := letterAt(t, time.Now(), 2, "another/topic", "")
		n.Have(peers[0], []b3.Address{id})
		n.arrive(peers[0], first, second)
		settle()
		letters, _ := n.missing()
		equal(t, "missing", letters, 0)
		equal(t, "dropped", n.tally.drops(DropTopics), 1)
	})
}

// Origins are known by their keys, however many there are.
func TestManyOrigins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		s := n.subscribe("news/eu")
		defer s.Close()
		for round := range 2 {
			for i := range 2 * originSlots {
				key := keyOf(i)
				g, _ := sealed(t, key, &oap.Letter{Topic: "news/eu", Key: publicOf(key), Seq: uint64(round), TS: uint64(time.Now().UnixMilli()), Data: key.Seed()})
				n.arrive(peers[0], g)
				settle()
			}
		}
		got := s.drain(t)
		equal(t, "delivered", len(got), 4*originSlots)
		for _, d := range got {
			if key := ed25519.NewKeyFromSeed(d.Data); d.Origin != oap.PeerIDOf(key.Public().(ed25519.PublicKey)) {
				t.Fatal("a letter has another's origin")
			}
		}
	})
}

// A session is among the active ones a moment before it is opened here.
func TestAPeerThatIsActiveBeforeItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFake(1)
		peers := []Peer{p}
		n := start(t, func(s *Spec) { s.Peers = func() []Peer { return peers } })
		equal(t, "peers before", n.mustPublish("news/eu", nil).Peers, 0)
		n.Opened(p)
		equal(t, "peers", n.mustPublish("news/eu", nil).Peers, 1)
		n.Closed(p)
		equal(t, "peers after", n.mustPublish("news/eu", nil).Peers, 0)
	})
}

// When the set is full nothing is forgotten early. The peer and the publisher
// hear Busy, and it ends when the oldest have expired.
func TestAFullSeenSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.Seen = 10 })
		peers := n.company(1)
		for i := range 12 {
			g, _ := letterNow(t, i)
			n.arrive(peers[0], g)
		}
		settle()
		equal(t, "taken", n.tally.read(&n.tally.taken), 10)
		equal(t, "dropped", n.tally.drops(DropSeen), 2)
		told := peers[0].takeRefused()
		if len(told) != 2 || told[0].code != oap.Busy {
			t.Errorf("told %v", told)
		}
		equal(t, "pressure", n.Pressure(), 1)
		if _, err := n.Publish(t.Context(), "news/eu", nil); fault.KindOf(err) != fault.Busy {
			t.Errorf("publish: %v", err)
		}
		equal(t, "remembered", n.seen.count.Load(), 10)
		// A known one is known, full or not.
		again, _ := letterNow(t, 3)
		n.arrive(peers[0], again)
		settle()
		equal(t, "duplicates", n.tally.read(&n.tally.duplicate), 1)

		pass(100 * time.Second)
		equal(t, "remembered until ttl", n.seen.count.Load(), 10)
		pass(30 * time.Second)
		equal(t, "remembered after", n.seen.count.Load(), 0)
		g, _ := letterNow(t, 99)
		n.arrive(peers[0], g)
		settle()
		equal(t, "taken after", n.tally.read(&n.tally.taken), 11)
		if _, err := n.Publish(t.Context(), "news/eu", nil); err != nil {
			t.Errorf("publish: %v", err)
		}
	})
}

// openLetter is a letter without a signature, on a topic that needs none.
func openLetter(t *testing.T, seq int, data string) oap.Gossip {
	t.Helper()
	g, _ := sealed(t, nil, &oap.Letter{Topic: "open/a", Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli()), Data: []byte(data)})
	return g
}

// What is not signed goes all its way on the reader's task, in memory of its own;
// what is signed waits for a worker.
func TestOpenLettersNeedNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, unsignedOn)
		peers := n.company(2)
		s := n.subscribe("open/a")
		defer s.Close()
		signed, _ := letterNow(t, 1)
		first, second := openLetter(t, 2, "storm"), openLetter(t, 3, "calm")
		n.arrive(peers[0], first, signed, second, first)
		clear(first.Msg) // the reader reads over it
		clear(second.Msg)
		got := s.drain(t)
		if len(got) != 2 || string(got[0].Data) != "storm" || string(got[1].Data) != "calm" || got[0].ID() != b3.Of(got[0].letter.out.Msg) {
			t.Errorf("delivered %+v", got)
		}
		equal(t, "sent back", len(peers[0].took()), 0)
		passed := peers[1].took()
		equal(t, "passed on", len(passed), 2)
		for i, g := range passed {
			if l, err := g.Read(); err != nil || string(l.Data) != []string{"storm", "calm"}[i] {
				t.Errorf("passed on: %q, %v", l.Data, err)
			}
		}
		equal(t, "duplicates", n.tally.read(&n.tally.duplicate), 1)
		equal(t, "waiting", n.ingress.Len(1), 1)
		clear(signed.Msg)
		n.Drain()
		if err := n.Work(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "taken", n.tally.read(&n.tally.taken), 3)
	})
}

// Who may wait for a peer: the reader of the peer whose letters it gets, and who
// publishes, for the last peer that is left. A peer that was waited for in vain
// is not waited for again until it has written something. Workers never wait.
func TestWhoWaitsForAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(3)
		from, to, third := peers[0], peers[1], peers[2]
		waited := func(what string, p *fake, want ...time.Duration) {
			t.Helper()
			if got := p.takeWaits(); !slices.Equal(got, want) {
				t.Errorf("%s: waits %v, want %v", what, got, want)
			}
		}
		n.arrive(from, openLetter(t, 1, "a"))
		waited("a reader", to, awaitRoom)
		waited("a reader", third, awaitRoom)
		signed, _ := letterNow(t, 2)
		n.arrive(from, signed)
		settle()
		waited("a worker", to, -1)
		waited("a worker", third, -1)

		to.set(func() { to.idles, to.closed = true, true })
		n.arrive(from, openLetter(t, 3, "b"))
		n.arrive(from, openLetter(t, 4, "c"))
		if waits := to.takeWaits(); len(waits) != 2 || waits[0] <= 0 || waits[1] != -1 {
			t.Errorf("in vain: %v", waits)
		}
		to.set(func() { to.closed, to.idles = false, false })
		n.arrive(from, openLetter(t, 5, "d"))
		waited("still in vain", to, -1)
		to.outs[0].Written(nil)
		third.takeWaits()
		n.arrive(from, openLetter(t, 6, "e"))
		waited("it wrote one", to, awaitRoom)

		for _, p := range peers {
			p.takeWaits()
			p.set(func() { p.closed = true })
		}
		if _, err := n.Publish(t.Context(), "open/a", nil); fault.KindOf(err) != fault.Busy {
			t.Errorf("everybody is busy: %v", err)
		}
		patient := 0
		for _, p := range peers {
			for _, wait := range p.takeWaits() {
				if wait == awaitPermit {
					patient++
				} else if wait != -1 {
					t.Errorf("a publisher waits %v", wait)
				}
			}
		}
		equal(t, "peers that a publisher waits for", patient, 1)
	})
}

// A full queue refuses the flood and not the quiet peer, and says so.
func TestAFloodFillsItsOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, unsignedOn)
		peers := n.company(2)
		flood, quiet := peers[0], peers[1]
		g, _ := sealed(t, origin, &oap.Letter{Topic: "open", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, 1024)})
		for range 20 {
			var batch []oap.Gossip
			for range 100 {
				batch = append(batch, g)
			}
			n.arrive(flood, batch...)
		}
		equal(t, "waiting", n.ingress.Len(1), ingressItems)
		equal(t, "dropped", n.tally.drops(DropIngress), 2000-ingressItems)
		equal(t, "pressure", n.Pressure(), 1)
		for _, told := range flood.takeRefused() {
			equal(t, "told", told.code, oap.Busy)
		}
		for i := range 100 {
			small, _ := letterAt(t, time.Now(), i, "quiet", "q")
			n.arrive(quiet, small)
		}
		equal(t, "refused to the quiet one", len(quiet.takeRefused()), 0)
		if len(flood.takeRefused()) == 0 {
			t.Error("nobody told the flooding peer whose letters made room")
		}
		into := make([]arrival, 200)
		got, err := n.ingress.Take(t.Context(), into, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		fair := 0
		for _, a := range into[:got] {
			if a.link.serial == quiet.serial {
				fair++
			}
		}
		if fair < 90 {
			t.Errorf("the quiet peer has %d of the first 200 turns", fair)
		}
	})
}

// A worker that panics is started again. What it had in hand does not count as
// waiting for ever, or publishing would be refused one day for a queue that is
// empty.
func TestAWorkerThatPanicsLeavesNoPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, func(s *Spec) { s.Counters.Rejected = func(oap.Reason) { panic("boom") } })
		peers := n.company(1)
		g, _ := letterNow(t, 1)
		g.Sig = make([]byte, ed25519.SignatureSize)
		n.arrive(peers[0], g, g)
		func() {
			defer func() { equal(t, "panic", recover(), any("boom")) }()
			_ = n.Work(t.Context())
		}()
		equal(t, "letters that wait", n.ingress.Len(1), 0)
		equal(t, "bytes that wait", n.waiting.Load(), 0)
		equal(t, "pressure", n.Pressure(), 0)
	})
}

func TestIngressIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, nil)
		peers := n.company(1)
		big := oap.Gossip{Msg: make([]byte, 1<<20-600), Sig: make([]byte, ed25519.SignatureSize)}
		for range 100 {
			n.arrive(peers[0], big)
		}
		if bytes := n.waiting.Load(); bytes > ingressBytes {
			t.Errorf("%d bytes wait", bytes)
		}
		equal(t, "waiting", n.ingress.Len(1), 16)
		if p := n.Pressure(); p < 0.9 || p > 1 {
			t.Errorf("pressure %v", p)
		}
		ctx := t.Context()
		n.Drain()
		if err := n.Work(ctx); err != nil {
			t.Errorf("work: %v", err)
		}
		equal(t, "bytes after", n.waiting.Load(), 0)
		equal(t, "pressure after", n.Pressure(), 0)
	})
}

func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, nil)
		peers := n.company(1)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, _ := letterNow(t, 1)
		n.arrive(peers[0], g)
		n.Drain()
		late, _ := letterNow(t, 2)
		n.arrive(peers[0], late)
		equal(t, "dropped", n.tally.drops(DropDrain), 1)
		if _, err := n.Publish(t.Context(), "news/eu", nil); fault.KindOf(err) != fault.NotReady || fault.NextOf(err) == "" {
			t.Errorf("publish: %v", err)
		}
		if err := n.Work(t.Context()); err != nil {
			t.Errorf("work: %v", err)
		}
		equal(t, "delivered", len(s.drain(t)), 1)
		n.Have(peers[0], idsOf(3))
		n.Want(peers[0], idsOf(3))
		equal(t, "wants", len(peers[0].takeWants()), 0)
		equal(t, "given", len(peers[0].took()), 0)
	})
}

func TestWorkEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		settle()
		n.stop()
		if err := n.Work(canceled(t)); fault.KindOf(err) != fault.Canceled {
			t.Errorf("work: %v", err)
		}
		if err := n.Tend(canceled(t)); fault.KindOf(err) != fault.Canceled {
			t.Errorf("tend: %v", err)
		}
		if _, err := n.Publish(canceled(t), "news/eu", nil); fault.KindOf(err) != fault.Canceled {
			t.Errorf("publish: %v", err)
		}
	})
}

// What comes of a peer that was never opened, or is closed, is nobody's.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		p := newFake(1)
		g, id := letterNow(t, 1)
		n.arrive(p, g)
		n.Have(p, idsOf(1))
		n.Want(p, []b3.Address{id})
		n.Refused(p, &oap.Error{Code: oap.Busy})
		n.Closed(p)
		settle()
		equal(t, "taken", n.tally.read(&n.tally.taken), 0)
		equal(t, "asked", len(p.takeWants()), 0)
		equal(t, "busy", p.isBusy(), false)
	})
}

// The clock of the node is set back after letters were forgotten. They are not
// delivered again.
func TestAClockThatGoesBack(t *testing.T) {
	set := newSeenSet(100, 120*time.Second)
	at := time.UnixMilli(1_700_000_000_000)
	id := printOf(1)
	equal(t, "first", set.insert(id, uint64(at.UnixMilli())), fresh)
	set.expire(at.Add(10 * time.Minute)) // a leap
	equal(t, "count", set.count.Load(), 0)
	equal(t, "again", set.insert(id, uint64(at.UnixMilli())), elapsed)
	equal(t, "known", set.has(id, uint64(at.UnixMilli())), true)
	later := uint64(at.Add(8 * time.Second).UnixMilli())
	equal(t, "later ones are taken", set.insert(printOf(2), later), fresh)
}

// Nor does the node write letters of a time that it has forgotten.
func TestPublishAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		n.seen.forgotten.Store(uint64(time.Now().Add(5 * time.Second).UnixMilli()))
		if _, err := n.Publish(t.Context(), "news/eu", nil); fault.KindOf(err) != fault.NotReady || fault.NextOf(err) == "" {
			t.Errorf("publish: %v", err)
		}
		pass(5 * time.Second)
		n.mustPublish("news/eu", nil)
	})
}
