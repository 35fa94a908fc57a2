package gossip

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/internal/config"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// What is in the history is announced to a new peer, the newest first, in
// messages of 1024 ids and no more than 4096.
func TestANewPeerGetsAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(1)
		var ids []b3.Address
		for i := range 5000 {
			g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			waitIdle()
		}
		advanceTime(3 * time.Second)
		late := newFakePeer(2)
		n.open(late)
		waitIdle()
		late.mu.Lock()
		testkit.Equal(t, "messages", len(late.haves), 4)
		for _, one := range late.haves {
			testkit.Equal(t, "ids in a message", len(one), 1024)
		}
		late.mu.Unlock()
		slices.Reverse(ids)
		if !slices.Equal(late.takeHaves(), ids[:4096]) {
			t.Error("it was told of others than the newest")
		}
		advanceTime(5 * time.Second)
		testkit.Equal(t, "told again", len(late.takeHaves()), 0)
		testkit.Equal(t, "the sender was told", len(peers[0].takeHaves()), 0)
	})
}

// Every second each peer gets announcements of what it is not known to have.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(6)
		waitIdle()
		g, id := messageNow(t, 1)
		n.arrive(peers[0], g)
		waitIdle()
		n.HandleHave(peers[5], []b3.Address{id})
		who, _ := receivers(peers)
		advanceTime(2 * time.Second)
		for _, p := range peers {
			want := 1
			if p == peers[0] || p == peers[5] || slices.Contains(who, p) {
				want = 0
			}
			testkit.Equal(t, "told", len(p.takeHaves()), want)
		}
		advanceTime(10 * time.Second)
		for _, p := range peers {
			testkit.Equal(t, "told again", len(p.takeHaves()), 0)
		}
	})
}

// A round announces no more than 4096 ids; the next continues from there.
func TestARoundHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { allowUnsigned(s); s.Config.HistoryBytes = 64 * config.MiB })
		peers := n.addPeers(2)
		advanceTime(2 * time.Second)
		peers[1].set(func() { peers[1].accept = func(*oap.Gossip) bool { return false } })
		n.HandleRefusal(peers[1], &oap.Error{Code: oap.Busy}) // prunes the peer
		var ids []b3.Address
		for i := range 9000 {
			g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			waitIdle()
		}
		testkit.Equal(t, "told while busy", len(peers[1].takeHaves()), 0)
		peers[1].set(func() { peers[1].accept = nil })
		announced := 0
		for range 12 {
			advanceTime(time.Second)
			now := peers[1].takeHaves()
			if len(now) > maxRoundIDs {
				t.Errorf("%d ids in one round", len(now))
			}
			announced += len(now)
		}
		if announced < len(ids)-1 { // one was the probe
			t.Errorf("told of %d messages, want %d", announced, len(ids)-1)
		}
	})
}

// A peer that rejects announcements gets them later.
func TestAPeerThatRejectsControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.RelayFanout = 1 })
		peers := n.addPeers(3)
		waitIdle()
		for _, p := range peers {
			p.set(func() { p.rejectsControl = true })
		}
		g, id := messageNow(t, 1)
		n.arrive(peers[0], g)
		advanceTime(5 * time.Second)
		who, _ := receivers(peers)
		for _, p := range peers {
			p.set(func() { p.rejectsControl = false })
		}
		advanceTime(time.Second)
		for _, p := range peers[1:] {
			if slices.Contains(who, p) {
				continue
			}
			if haves := p.takeHaves(); len(haves) != 1 || haves[0] != id {
				t.Errorf("told %v", haves)
			}
		}
	})
}

// The history is announced to a new peer even if the task that should have done
// it died.
func TestAGreetingThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		id := n.mustPublish("news/eu", nil).ID()
		p := newFakePeer(1)
		n.open(p)
		<-n.repairSignal
		n.takePendingRepairs()
		n.run()
		advanceTime(time.Second)
		if haves := p.takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("told %v", haves)
		}
	})
}

// A node that drains announces nothing more.
func TestADrainingNodeAnnouncesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.RelayFanout = 1 })
		peers := n.addPeers(3)
		waitIdle()
		g, _ := messageNow(t, 1)
		n.arrive(peers[0], g)
		waitIdle()
		n.Drain()
		advanceTime(5 * time.Second)
		testkit.Equal(t, "told", len(peers[1].takeHaves())+len(peers[2].takeHaves()), 0)
	})
}

// A want that cannot be sent now is sent later.
func TestAWantThatCouldNotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		peers[0].set(func() { peers[0].rejectsControl = true })
		n.HandleHave(peers[0], idsOf(3))
		waitIdle()
		testkit.Equal(t, "counted", n.tally.read(&n.tally.wanted), 0)
		peers[0].set(func() { peers[0].rejectsControl = false })
		advanceTime(2500 * time.Millisecond)
		testkit.Equal(t, "asked", len(peers[0].takeWants()), 3)
	})
}

func TestExpiredMessagesAreNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		old, oldID := messageAt(t, time.Now().Add(-119*time.Second), 1, "news/eu", "old")
		ahead, _ := messageAt(t, time.Now().Add(60*time.Second), 2, "news/eu", "ahead")
		n.arrive(peers[0], ahead, old)
		advanceTime(3 * time.Second)
		late := newFakePeer(2)
		n.open(late)
		waitIdle()
		testkit.Equal(t, "told", len(late.takeHaves()), 1)
		n.HandleWant(late, []b3.Address{oldID})
		waitIdle()
		testkit.Equal(t, "given", len(late.takeGossip()), 0)
		advanceTime(200 * time.Second)
		messages, bytes := n.historyUsage()
		testkit.Equal(t, "kept", messages, 0)
		testkit.Equal(t, "bytes", bytes, 0)
	})
}

func TestAWantForWhatIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		n.HandleWant(peers[0], idsOf(1024))
		advanceTime(time.Second)
		testkit.Equal(t, "given", len(peers[0].takeGossip()), 0)
		testkit.Equal(t, "posts", peers[0].posts, 0)
		testkit.Equal(t, "told", len(peers[0].takeRefused()), 0)
		testkit.Equal(t, "remembered", n.wantedBy(peers[0]), 0)
	})
}

// A receiver asks one peer at a time, another after two seconds, and drops the
// want in the end.
func TestWhoIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(3)
		id := idsOf(1)
		for _, p := range peers {
			n.HandleHave(p, id)
			n.HandleHave(p, id)
		}
		waitIdle()
		asked := func() (who []int) {
			for i, p := range peers {
				if wants := p.takeWants(); len(wants) > 0 {
					who = append(who, i)
				}
			}
			return who
		}
		if who := asked(); !slices.Equal(who, []int{0}) {
			t.Fatalf("asked %v", who)
		}
		advanceTime(1900 * time.Millisecond)
		if who := asked(); who != nil {
			t.Fatalf("asked %v too early", who)
		}
		seen := map[int]bool{0: true}
		advanceTime(400 * time.Millisecond)
		for range 2 {
			who := asked()
			if len(who) != 1 || seen[who[0]] {
				t.Fatalf("asked %v after %v", who, seen)
			}
			seen[who[0]] = true
			advanceTime(2 * time.Second)
		}
		advanceTime(time.Minute)
		asked()
		messages, from := n.wantCounts()
		testkit.Equal(t, "given up", messages, 0)
		testkit.Equal(t, "per peer", from, 0)
		n.HandleHave(peers[1], id) // announced again
		waitIdle()
		if who := asked(); !slices.Equal(who, []int{1}) {
			t.Fatalf("asked %v", who)
		}
	})
}

// If the only holder disconnects, no peer is left to ask; if another has it,
// that one is asked at once.
func TestAHolderThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(3)
		ids := idsOf(2)
		n.HandleHave(peers[0], ids)
		n.HandleHave(peers[1], ids[:1])
		waitIdle()
		peers[0].takeWants()
		n.close(peers[0])
		advanceTime(300 * time.Millisecond)
		if wants := peers[1].takeWants(); !slices.Equal(wants, ids[:1]) {
			t.Errorf("asked for %v", wants)
		}
		testkit.Equal(t, "left", first(n.wantCounts()), 1)
		n.close(peers[1])
		advanceTime(300 * time.Millisecond)
		testkit.Equal(t, "left", first(n.wantCounts()), 0)
	})
}

// The message comes: no peer is asked any more.
func TestAWantedMessageComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, id := messageNow(t, 1)
		n.HandleHave(peers[0], []b3.Address{id})
		n.HandleHave(peers[1], []b3.Address{id})
		waitIdle()
		testkit.Equal(t, "asked", len(peers[0].takeWants()), 1)
		bad := g
		bad.Sig = make([]byte, 64)
		n.arrive(peers[0], bad) // it is forged
		advanceTime(2500 * time.Millisecond)
		testkit.Equal(t, "asked the other", len(peers[1].takeWants()), 1)
		n.arrive(peers[1], g)
		advanceTime(time.Minute)
		testkit.Equal(t, "asked again", len(peers[0].takeWants())+len(peers[1].takeWants()), 0)
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 1)
		testkit.Equal(t, "waiting", first(n.wantCounts()), 0)
		n.HandleHave(peers[0], []b3.Address{id})
		waitIdle()
		testkit.Equal(t, "asked for what is here", len(peers[0].takeWants()), 0)
	})
}

// A peer that sends slowly what it was asked for gets more time, but not
// without end.
func TestASlowSenderOfWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		var ids []b3.Address
		var all []oap.Gossip
		for i := range 20 {
			g, id := messageNow(t, i)
			ids, all = append(ids, id), append(all, g)
		}
		n.HandleHave(peers[0], ids)
		n.HandleHave(peers[1], ids)
		waitIdle()
		peers[0].takeWants()
		for i := range 6 {
			advanceTime(1500 * time.Millisecond)
			n.arrive(peers[0], all[i])
			waitIdle()
			testkit.Equal(t, "asked another", len(peers[1].takeWants()), 0)
		}
		advanceTime(1500 * time.Millisecond)
		testkit.Equal(t, "asked another for the rest", len(peers[1].takeWants()), len(ids)-6)
	})
}

// Announcements by the million cost a bounded table, and one peer cannot fill
// it for the others.
func TestAFloodOfHaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(6)
		all := idsOf(200 * 1024)
		for at := 0; at < len(all); at += 1024 {
			n.HandleHave(peers[0], all[at:at+1024])
		}
		waitIdle()
		testkit.Equal(t, "of one peer", first(n.wantCounts()), maxWantsPerPeer)
		testkit.Equal(t, "asked", len(peers[0].takeWants()), maxWantsPerPeer)
		testkit.Equal(t, "dropped", n.tally.drops(DropQuota), len(all)-maxWantsPerPeer)
		for i, p := range peers[1:] {
			at := (i + 1) * 10 * 1024
			for range 8 {
				n.HandleHave(p, all[at:at+1024])
				at += 1024
			}
		}
		waitIdle()
		testkit.Equal(t, "of all", first(n.wantCounts()), maxWants)
		advanceTime(2 * time.Minute)
		testkit.Equal(t, "in the end", first(n.wantCounts()), 0)
	})
}

// A peer with little room gets all that it asked for, as it writes.
func TestGivingAsFastAsItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(1)
		var ids []b3.Address
		for i := range 2000 {
			g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			waitIdle()
		}
		late := newFakePeer(2)
		room := 64
		late.accept = func(*oap.Gossip) bool { room--; return room >= 0 }
		n.open(late)
		n.HandleWant(late, ids[:1024])
		n.HandleWant(late, ids[64:]) // most of them while they are wanted already
		for rounds := 0; ; rounds++ {
			if rounds > 100 {
				t.Fatal("it never ends")
			}
			waitIdle()
			late.mu.Lock()
			outs := late.outs
			late.outs, room = nil, 64
			late.mu.Unlock()
			if len(outs) == 0 {
				break
			}
			for _, out := range outs {
				out.Written(nil)
			}
		}
		got := late.takeGossip()
		testkit.Equal(t, "messages", len(got), len(ids))
		once := map[string]bool{}
		for _, g := range got {
			once[string(g.Msg)] = true
		}
		testkit.Equal(t, "different ones", len(once), len(ids))
		testkit.Equal(t, "repaired", n.tally.read(&n.tally.repaired), len(ids))
		testkit.Equal(t, "missed", len(n.linkOf(late).missed), 0) // what it has asked for need not be announced
		testkit.Equal(t, "dropped", n.tally.drops(DropEgress), 0)
	})
}

// Without a signal from the writer the sending continues all the same, a little
// later; what is asked for beyond the bound is dropped.
func TestGivingHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { allowUnsigned(s); s.Config.HistoryBytes = 64 * config.MiB })
		peers := n.addPeers(1)
		var ids []b3.Address
		for i := range maxWanted + 500 {
			g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			waitIdle()
		}
		late := newFakePeer(2)
		late.rejectsGossip = true
		n.open(late)
		for at := 0; at < len(ids); at += 512 {
			n.HandleWant(late, ids[at:min(at+512, len(ids))])
		}
		waitIdle()
		testkit.Equal(t, "due", n.wantedBy(late), maxWanted)
		testkit.Equal(t, "dropped", n.tally.drops(DropQuota), 500)
		late.set(func() { late.rejectsGossip = false })
		advanceTime(time.Second)
		testkit.Equal(t, "given", len(late.takeGossip()), maxWanted)
		testkit.Equal(t, "due in the end", n.wantedBy(late), 0)
	})
}

// What is being sent still counts as asked for: it may come back.
func TestWhatIsBeingGivenCounts(t *testing.T) {
	from, ids := historyOf(maxWanted+64, 1<<30)
	l := &link{}
	testkit.Equal(t, "refused", l.addWanted(ids[:maxWanted], from), 0)
	testkit.Equal(t, "begun", l.beginWanted(), true)
	testkit.Equal(t, "begun twice", l.beginWanted(), false)
	some := l.takeWanted(64)
	testkit.Equal(t, "refused meanwhile", l.addWanted(ids, from), 64)
	l.finishWanted(some, some)
	testkit.Equal(t, "due", len(l.wanted), maxWanted)
	testkit.Equal(t, "the first", l.wanted[0], ids[0])
}

func TestHistoryBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { allowUnsigned(s); s.Config.HistoryBytes = 100 * config.KiB })
		peers := n.addPeers(1)
		var ids []b3.Address
		for i := range 1000 {
			g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, i%2000)})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			waitIdle()
			if _, bytes := n.historyUsage(); bytes > 100<<10 {
				t.Fatalf("%d bytes are kept", bytes)
			}
		}
		n.HandleWant(peers[0], ids[:1])
		waitIdle()
		testkit.Equal(t, "the oldest", len(peers[0].takeGossip()), 0)
		n.HandleWant(peers[0], ids[999:])
		waitIdle()
		testkit.Equal(t, "the newest", len(peers[0].takeGossip()), 1)
		// One that is larger than the whole history is relayed and not stored.
		huge, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, 200<<10)})
		n.arrive(peers[0], huge)
		waitIdle()
		if n.history.findByID(id) != nil {
			t.Error("a message is kept that is larger than the history")
		}
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), 1001)
	})
}

// With more peers than a message remembers as holders, it is announced to some
// twice, and nothing worse.
func TestManyHolders(t *testing.T) {
	l := &storedMessage{}
	for serial := uint64(1); serial <= 100; serial++ {
		l.addHolder(serial)
		l.addHolder(serial)
		if !l.hasHolder(serial) {
			t.Fatalf("%d was not marked", serial)
		}
	}
	testkit.Equal(t, "the first", l.hasHolder(1), false)
	testkit.Equal(t, "the last ones", l.hasHolder(85), true)
	l.removeHolder(100)
	testkit.Equal(t, "taken back", l.hasHolder(100), false)
}

// What a peer rejected is announced as soon as it has written something, a
// moment later and once; not if it is pruned meanwhile.
func TestAPeerThatHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.RelayFanout = 1 })
		peers := n.addPeers(2)
		advanceTime(4 * time.Second)
		to := peers[1]
		good, _ := messageNow(t, 1)
		n.arrive(peers[0], good)
		waitIdle()
		sent := to.outs[0]
		to.set(func() { to.rejectsGossip = true })
		var ids []b3.Address
		for i := range 3 {
			g, id := messageNow(t, 2+i)
			n.arrive(peers[0], g)
			waitIdle() // so that they are in order, whichever worker takes them
			ids = append(ids, id)
		}
		advanceTime(100 * time.Millisecond)
		testkit.Equal(t, "told while it is full", len(to.takeHaves()), 0)
		sent.Written(nil)
		sent.Written(nil)
		advanceTime(reminderDelay - time.Millisecond)
		testkit.Equal(t, "told at once", len(to.takeHaves()), 0)
		advanceTime(time.Millisecond)
		if haves := to.takeHaves(); !slices.Equal(haves, ids) {
			t.Errorf("told of %d messages, want %d", len(haves), len(ids))
		}
		testkit.Equal(t, "still missed", len(n.linkOf(to).missed), 0)
		sent.Written(nil)
		advanceTime(5 * time.Second)
		testkit.Equal(t, "told again", len(to.takeHaves()), 0)

		g, id := messageNow(t, 9)
		n.arrive(peers[0], g)
		waitIdle()
		n.HandleRefusal(to, &oap.Error{Code: oap.Busy})
		sent.Written(nil)
		advanceTime(2 * reminderDelay)
		testkit.Equal(t, "told while it is left out", len(to.takeHaves()), 0)
		to.set(func() { to.rejectsGossip = false })
		advanceTime(10 * time.Second)
		if got := to.takeGossip(); len(got) != 2 || b3.Of(got[1].Msg) != id { // the first one, and the probe
			t.Errorf("got %d messages", len(got))
		}
	})
}

// More was rejected than is announced at once: the rest waits for the round.
func TestMissedMessagesHaveABound(t *testing.T) {
	l := &link{}
	prints := make([]fingerprint, maxMissed-1)
	l.addMissed(nil)
	testkit.Equal(t, "short of nothing", l.hasMissed.Load(), false)
	l.addMissed(prints)
	l.addMissed(prints)
	testkit.Equal(t, "missed", len(l.takeMissed()), maxMissed)
	testkit.Equal(t, "left", len(l.takeMissed()), 0)
}

// A message that has left the history is asked for again only if its id was
// never needed, and then it comes as a duplicate and is not asked for any more.
func TestAHaveOfWhatLeftTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { allowUnsigned(s); s.Config.HistoryBytes = 4 * config.KiB })
		peers := n.addPeers(1)
		from := peers[0]
		seq := 0
		some := func(count int) (all []oap.Gossip, ids []b3.Address) {
			for range count {
				seq++
				g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
				all, ids = append(all, g), append(ids, id)
			}
			n.arrive(from, all...)
			waitIdle()
			return all, ids
		}
		_, named := some(3)
		n.HandleHave(from, named)
		unnamed, others := some(3)
		some(20)
		testkit.Equal(t, "asked for what is here", len(from.takeWants()), 0)
		n.HandleHave(from, named)
		testkit.Equal(t, "asked for what was named", len(from.takeWants()), 0)
		n.HandleHave(from, others)
		testkit.Equal(t, "asked for what was not", len(from.takeWants()), 3)
		n.arrive(from, unnamed...)
		waitIdle()
		testkit.Equal(t, "taken again", n.tally.read(&n.tally.taken), 26)
		testkit.Equal(t, "missing", first(n.wantCounts()), 0)
		advanceTime(time.Minute)
		testkit.Equal(t, "asked again", len(from.takeWants()), 0)
	})
}

// A message that is too large to be stored, and whose id is known, is not asked
// for again.
func TestAHaveOfWhatWasNeverKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.HistoryBytes = 1 * config.KiB })
		peers := n.addPeers(2)
		g, id := messageAt(t, time.Now(), 1, "news/eu", string(make([]byte, 2000)))
		n.arrive(peers[0], g)
		waitIdle()
		n.HandleHave(peers[1], []b3.Address{id})
		testkit.Equal(t, "asked", len(peers[1].takeWants()), 0)
	})
}

// historyOf is a history of so many messages, with their ids.
func historyOf(count int, most int64) (h *history, ids []b3.Address) {
	h = newHistory(most, nil)
	for i := range count {
		l := &storedMessage{fingerprint: testFingerprint(i), envelope: oap.Gossip{Msg: binary.BigEndian.AppendUint64(nil, uint64(i))}}
		ids = append(ids, b3.Of(l.envelope.Msg))
		h.add([]*storedMessage{l})
	}
	return h, ids
}

func first(a, _ int) int { return a }
