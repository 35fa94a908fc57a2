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
)

// A new peer is told what is here, the newest first, in messages of 1024 ids and
// no more than 4096.
func TestANewPeerIsToldWhatIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(1)
		var ids []b3.Address
		for i := range 5000 {
			g, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			settle()
		}
		pass(3 * time.Second)
		late := newFake(2)
		n.open(late)
		settle()
		late.mu.Lock()
		equal(t, "messages", len(late.haves), 4)
		for _, one := range late.haves {
			equal(t, "ids in a message", len(one), 1024)
		}
		late.mu.Unlock()
		slices.Reverse(ids)
		if !slices.Equal(late.takeHaves(), ids[:4096]) {
			t.Error("it was told of others than the newest")
		}
		pass(5 * time.Second)
		equal(t, "told again", len(late.takeHaves()), 0)
		equal(t, "the sender was told", len(peers[0].takeHaves()), 0)
	})
}

// Every second each peer hears of what it is not known to have.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(6)
		settle()
		g, id := letterNow(t, 1)
		n.arrive(peers[0], g)
		settle()
		n.Have(peers[5], []b3.Address{id})
		who, _ := holders(peers)
		pass(2 * time.Second)
		for _, p := range peers {
			want := 1
			if p == peers[0] || p == peers[5] || slices.Contains(who, p) {
				want = 0
			}
			equal(t, "told", len(p.takeHaves()), want)
		}
		pass(10 * time.Second)
		for _, p := range peers {
			equal(t, "told again", len(p.takeHaves()), 0)
		}
	})
}

// A round tells no more than 4096 ids; the next goes on from there.
func TestARoundHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { unsignedOn(s); s.Config.HistoryBytes = 64 * config.MiB })
		peers := n.company(2)
		pass(2 * time.Second)
		peers[1].set(func() { peers[1].accept = func(*oap.Gossip) bool { return false } })
		n.Refused(peers[1], &oap.Error{Code: oap.Busy}) // left out for now
		var ids []b3.Address
		for i := range 9000 {
			g, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			settle()
		}
		equal(t, "told while busy", len(peers[1].takeHaves()), 0)
		peers[1].set(func() { peers[1].accept = nil })
		told := 0
		for range 12 {
			pass(time.Second)
			now := peers[1].takeHaves()
			if len(now) > roundIDs {
				t.Errorf("%d ids in one round", len(now))
			}
			told += len(now)
		}
		if told < len(ids)-1 { // one was the probe
			t.Errorf("told of %d letters, want %d", told, len(ids)-1)
		}
	})
}

// A peer that cannot be told is told later.
func TestADeafPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.RelayFanout = 1 })
		peers := n.company(3)
		settle()
		for _, p := range peers {
			p.set(func() { p.deaf = true })
		}
		g, id := letterNow(t, 1)
		n.arrive(peers[0], g)
		pass(5 * time.Second)
		who, _ := holders(peers)
		for _, p := range peers {
			p.set(func() { p.deaf = false })
		}
		pass(time.Second)
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

// A peer is told what is here even if the task that should have done it died.
func TestAGreetingThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := still(t, nil)
		id := n.mustPublish("news/eu", nil).ID()
		p := newFake(1)
		n.open(p)
		<-n.nudged
		n.takeNeedy()
		n.run()
		pass(time.Second)
		if haves := p.takeHaves(); len(haves) != 1 || haves[0] != id {
			t.Errorf("told %v", haves)
		}
	})
}

// A node that drains announces nothing more.
func TestADrainingNodeAnnouncesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.RelayFanout = 1 })
		peers := n.company(3)
		settle()
		g, _ := letterNow(t, 1)
		n.arrive(peers[0], g)
		settle()
		n.Drain()
		pass(5 * time.Second)
		equal(t, "told", len(peers[1].takeHaves())+len(peers[2].takeHaves()), 0)
	})
}

// A peer that cannot be asked now is asked later.
func TestAWantThatCouldNotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		peers[0].set(func() { peers[0].deaf = true })
		n.Have(peers[0], idsOf(3))
		settle()
		equal(t, "counted", n.tally.read(&n.tally.wanted), 0)
		peers[0].set(func() { peers[0].deaf = false })
		pass(2500 * time.Millisecond)
		equal(t, "asked", len(peers[0].takeWants()), 3)
	})
}

func TestExpiredLettersAreNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		old, oldID := letterAt(t, time.Now().Add(-119*time.Second), 1, "news/eu", "old")
		ahead, _ := letterAt(t, time.Now().Add(60*time.Second), 2, "news/eu", "ahead")
		n.arrive(peers[0], ahead, old)
		pass(3 * time.Second)
		late := newFake(2)
		n.open(late)
		settle()
		equal(t, "told", len(late.takeHaves()), 1)
		n.Want(late, []b3.Address{oldID})
		settle()
		equal(t, "given", len(late.took()), 0)
		pass(200 * time.Second)
		letters, bytes := n.kept()
		equal(t, "kept", letters, 0)
		equal(t, "bytes", bytes, 0)
	})
}

func TestAWantForWhatIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		n.Want(peers[0], idsOf(1024))
		pass(time.Second)
		equal(t, "given", len(peers[0].took()), 0)
		equal(t, "posts", peers[0].posts, 0)
		equal(t, "told", len(peers[0].takeRefused()), 0)
		equal(t, "remembered", n.owed(peers[0]), 0)
	})
}

// A receiver asks one peer at a time, another after two seconds, and gives up in
// the end.
func TestWhoIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(3)
		id := idsOf(1)
		for _, p := range peers {
			n.Have(p, id)
			n.Have(p, id)
		}
		settle()
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
		pass(1900 * time.Millisecond)
		if who := asked(); who != nil {
			t.Fatalf("asked %v too early", who)
		}
		seen := map[int]bool{0: true}
		pass(400 * time.Millisecond)
		for range 2 {
			who := asked()
			if len(who) != 1 || seen[who[0]] {
				t.Fatalf("asked %v after %v", who, seen)
			}
			seen[who[0]] = true
			pass(2 * time.Second)
		}
		pass(time.Minute)
		asked()
		letters, from := n.missing()
		equal(t, "given up", letters, 0)
		equal(t, "per peer", from, 0)
		n.Have(peers[1], id) // announced anew
		settle()
		if who := asked(); !slices.Equal(who, []int{1}) {
			t.Fatalf("asked %v", who)
		}
	})
}

// If the only holder leaves, there is nobody to ask; if another has it, it is
// asked at once.
func TestAHolderThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(3)
		ids := idsOf(2)
		n.Have(peers[0], ids)
		n.Have(peers[1], ids[:1])
		settle()
		peers[0].takeWants()
		n.close(peers[0])
		pass(300 * time.Millisecond)
		if wants := peers[1].takeWants(); !slices.Equal(wants, ids[:1]) {
			t.Errorf("asked for %v", wants)
		}
		equal(t, "left", first(n.missing()), 1)
		n.close(peers[1])
		pass(300 * time.Millisecond)
		equal(t, "left", first(n.missing()), 0)
	})
}

// The letter comes: nobody is asked any more.
func TestAWantedLetterComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		s := n.subscribe("news/eu")
		defer s.Close()
		g, id := letterNow(t, 1)
		n.Have(peers[0], []b3.Address{id})
		n.Have(peers[1], []b3.Address{id})
		settle()
		equal(t, "asked", len(peers[0].takeWants()), 1)
		bad := g
		bad.Sig = make([]byte, 64)
		n.arrive(peers[0], bad) // it lies
		pass(2500 * time.Millisecond)
		equal(t, "asked the other", len(peers[1].takeWants()), 1)
		n.arrive(peers[1], g)
		pass(time.Minute)
		equal(t, "asked again", len(peers[0].takeWants())+len(peers[1].takeWants()), 0)
		equal(t, "delivered", len(s.drain(t)), 1)
		equal(t, "waiting", first(n.missing()), 0)
		n.Have(peers[0], []b3.Address{id})
		settle()
		equal(t, "asked for what is here", len(peers[0].takeWants()), 0)
	})
}

// A peer that sends what it was asked for, slowly, is not given up; but nor is
// it waited for without end.
func TestASlowGiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		var ids []b3.Address
		var all []oap.Gossip
		for i := range 20 {
			g, id := letterNow(t, i)
			ids, all = append(ids, id), append(all, g)
		}
		n.Have(peers[0], ids)
		n.Have(peers[1], ids)
		settle()
		peers[0].takeWants()
		for i := range 6 {
			pass(1500 * time.Millisecond)
			n.arrive(peers[0], all[i])
			settle()
			equal(t, "asked another", len(peers[1].takeWants()), 0)
		}
		pass(1500 * time.Millisecond)
		equal(t, "asked another for the rest", len(peers[1].takeWants()), len(ids)-6)
	})
}

// Announcements by the million cost a bounded table, and one peer cannot fill
// it for the others.
func TestAFloodOfHaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(6)
		all := idsOf(200 * 1024)
		for at := 0; at < len(all); at += 1024 {
			n.Have(peers[0], all[at:at+1024])
		}
		settle()
		equal(t, "of one peer", first(n.missing()), linkWants)
		equal(t, "asked", len(peers[0].takeWants()), linkWants)
		equal(t, "dropped", n.tally.drops(DropQuota), len(all)-linkWants)
		for i, p := range peers[1:] {
			at := (i + 1) * 10 * 1024
			for range 8 {
				n.Have(p, all[at:at+1024])
				at += 1024
			}
		}
		settle()
		equal(t, "of all", first(n.missing()), maxWants)
		pass(2 * time.Minute)
		equal(t, "in the end", first(n.missing()), 0)
	})
}

// A peer with little room gets all that it asked for, as it writes.
func TestGivingAsFastAsItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, unsignedOn)
		peers := n.company(1)
		var ids []b3.Address
		for i := range 2000 {
			g, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			settle()
		}
		late := newFake(2)
		room := 64
		late.accept = func(*oap.Gossip) bool { room--; return room >= 0 }
		n.open(late)
		n.Want(late, ids[:1024])
		n.Want(late, ids[64:]) // most of them while they are due already
		for rounds := 0; ; rounds++ {
			if rounds > 100 {
				t.Fatal("it never ends")
			}
			settle()
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
		got := late.took()
		equal(t, "letters", len(got), len(ids))
		once := map[string]bool{}
		for _, g := range got {
			once[string(g.Msg)] = true
		}
		equal(t, "different ones", len(once), len(ids))
		equal(t, "repaired", n.tally.read(&n.tally.repaired), len(ids))
		equal(t, "missed", len(n.find(late).missed), 0) // what it has asked for it need not be told of
		equal(t, "dropped", n.tally.drops(DropEgress), 0)
	})
}

// Without news from the writer it goes on all the same, a little later; what is
// asked for beyond the bound is dropped.
func TestGivingHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { unsignedOn(s); s.Config.HistoryBytes = 64 * config.MiB })
		peers := n.company(1)
		var ids []b3.Address
		for i := range maxDue + 500 {
			g, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli())})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			settle()
		}
		late := newFake(2)
		late.closed = true
		n.open(late)
		for at := 0; at < len(ids); at += 512 {
			n.Want(late, ids[at:min(at+512, len(ids))])
		}
		settle()
		equal(t, "due", n.owed(late), maxDue)
		equal(t, "dropped", n.tally.drops(DropQuota), 500)
		late.set(func() { late.closed = false })
		pass(time.Second)
		equal(t, "given", len(late.took()), maxDue)
		equal(t, "due in the end", n.owed(late), 0)
	})
}

// What is being given still counts as asked for: it may come back.
func TestWhatIsBeingGivenCounts(t *testing.T) {
	from, ids := historyOf(maxDue+64, 1<<30)
	l := &link{}
	equal(t, "refused", l.promise(ids[:maxDue], from), 0)
	equal(t, "begun", l.beginGiving(), true)
	equal(t, "begun twice", l.beginGiving(), false)
	some := l.nextDue(64)
	equal(t, "refused meanwhile", l.promise(ids, from), 64)
	l.given(some, some)
	equal(t, "due", len(l.due), maxDue)
	equal(t, "the first", l.due[0], ids[0])
}

func TestHistoryBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { unsignedOn(s); s.Config.HistoryBytes = 100 * config.KiB })
		peers := n.company(1)
		var ids []b3.Address
		for i := range 1000 {
			g, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), Seq: uint64(i), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, i%2000)})
			ids = append(ids, id)
			n.arrive(peers[0], g)
			settle()
			if _, bytes := n.kept(); bytes > 100<<10 {
				t.Fatalf("%d bytes are kept", bytes)
			}
		}
		n.Want(peers[0], ids[:1])
		settle()
		equal(t, "the oldest", len(peers[0].took()), 0)
		n.Want(peers[0], ids[999:])
		settle()
		equal(t, "the newest", len(peers[0].took()), 1)
		// One that is larger than all of it is passed on and not kept.
		huge, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, 200<<10)})
		n.arrive(peers[0], huge)
		settle()
		if n.history.find(id) != nil {
			t.Error("a letter is kept that is larger than the history")
		}
		equal(t, "taken", n.tally.read(&n.tally.taken), 1001)
	})
}

// With more peers than a letter remembers, some are told twice, and nothing
// worse.
func TestManyHolders(t *testing.T) {
	l := &letter{}
	for serial := uint64(1); serial <= 100; serial++ {
		l.mark(serial)
		l.mark(serial)
		if !l.marked(serial) {
			t.Fatalf("%d was not marked", serial)
		}
	}
	equal(t, "the first", l.marked(1), false)
	equal(t, "the last ones", l.marked(85), true)
	l.unmark(100)
	equal(t, "taken back", l.marked(100), false)
}

// A peer that turned letters away hears of them as soon as it has written
// something, a moment later and once; not if it is left out meanwhile.
func TestAPeerThatHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.RelayFanout = 1 })
		peers := n.company(2)
		pass(4 * time.Second)
		to := peers[1]
		good, _ := letterNow(t, 1)
		n.arrive(peers[0], good)
		settle()
		sent := to.outs[0]
		to.set(func() { to.closed = true })
		var ids []b3.Address
		for i := range 3 {
			g, id := letterNow(t, 2+i)
			n.arrive(peers[0], g)
			settle() // so that they are in order, whichever worker takes them
			ids = append(ids, id)
		}
		pass(100 * time.Millisecond)
		equal(t, "told while it is full", len(to.takeHaves()), 0)
		sent.Written(nil)
		sent.Written(nil)
		pass(breath - time.Millisecond)
		equal(t, "told at once", len(to.takeHaves()), 0)
		pass(time.Millisecond)
		if haves := to.takeHaves(); !slices.Equal(haves, ids) {
			t.Errorf("told of %d letters, want %d", len(haves), len(ids))
		}
		equal(t, "still missed", len(n.find(to).missed), 0)
		sent.Written(nil)
		pass(5 * time.Second)
		equal(t, "told again", len(to.takeHaves()), 0)

		g, id := letterNow(t, 9)
		n.arrive(peers[0], g)
		settle()
		n.Refused(to, &oap.Error{Code: oap.Busy})
		sent.Written(nil)
		pass(2 * breath)
		equal(t, "told while it is left out", len(to.takeHaves()), 0)
		to.set(func() { to.closed = false })
		pass(10 * time.Second)
		if got := to.took(); len(got) != 2 || b3.Of(got[1].Msg) != id { // the first one, and the probe
			t.Errorf("got %d letters", len(got))
		}
	})
}

// More was turned away than is told at once: the rest waits for the round.
func TestMissedLettersHaveABound(t *testing.T) {
	l := &link{}
	prints := make([]fingerprint, maxMissed-1)
	l.miss(nil)
	equal(t, "short of nothing", l.short.Load(), false)
	l.miss(prints)
	l.miss(prints)
	equal(t, "missed", len(l.takeMissed()), maxMissed)
	equal(t, "left", len(l.takeMissed()), 0)
}

// A letter that has left the history is asked for again only if nobody ever
// needed its id, and then it comes as a duplicate and is not asked for any more.
func TestAHaveOfWhatLeftTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { unsignedOn(s); s.Config.HistoryBytes = 4 * config.KiB })
		peers := n.company(1)
		from := peers[0]
		seq := 0
		some := func(count int) (all []oap.Gossip, ids []b3.Address) {
			for range count {
				seq++
				g, id := sealed(t, nil, &oap.Letter{Topic: "open", Key: publicOf(origin), Seq: uint64(seq), TS: uint64(time.Now().UnixMilli())})
				all, ids = append(all, g), append(ids, id)
			}
			n.arrive(from, all...)
			settle()
			return all, ids
		}
		_, named := some(3)
		n.Have(from, named)
		unnamed, others := some(3)
		some(20)
		equal(t, "asked for what is here", len(from.takeWants()), 0)
		n.Have(from, named)
		equal(t, "asked for what was named", len(from.takeWants()), 0)
		n.Have(from, others)
		equal(t, "asked for what was not", len(from.takeWants()), 3)
		n.arrive(from, unnamed...)
		settle()
		equal(t, "taken again", n.tally.read(&n.tally.taken), 26)
		equal(t, "missing", first(n.missing()), 0)
		pass(time.Minute)
		equal(t, "asked again", len(from.takeWants()), 0)
	})
}

// A letter that is too large to be kept, and whose id is known, is not asked for
// again.
func TestAHaveOfWhatWasNeverKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { s.Config.HistoryBytes = 1 * config.KiB })
		peers := n.company(2)
		g, id := letterAt(t, time.Now(), 1, "news/eu", string(make([]byte, 2000)))
		n.arrive(peers[0], g)
		settle()
		n.Have(peers[1], []b3.Address{id})
		equal(t, "asked", len(peers[1].takeWants()), 0)
	})
}

// historyOf is a history of so many letters, with their ids.
func historyOf(count int, most int64) (h *history, ids []b3.Address) {
	h = newHistory(most, nil)
	for i := range count {
		l := &letter{print: printOf(i), out: oap.Gossip{Msg: binary.BigEndian.AppendUint64(nil, uint64(i))}}
		ids = append(ids, b3.Of(l.out.Msg))
		h.add([]*letter{l})
	}
	return h, ids
}

func first(a, _ int) int { return a }
