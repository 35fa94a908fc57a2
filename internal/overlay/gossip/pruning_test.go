package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// trickle brings a message from a peer every so often.
func (n *node) trickle(from *fakePeer, first int, each, span time.Duration) (next int) {
	for elapsed := time.Duration(0); elapsed < span; elapsed += each {
		g, _ := messageNow(n.t, first)
		first++
		n.arrive(from, g)
		advanceTime(each)
	}
	return first
}

// A peer that rejects everything for a second is pruned, for longer and longer,
// and is readmitted when it accepts a message.
func TestAPeerThatTurnsEverythingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		from, stuck := peers[0], peers[1]
		stuck.set(func() { stuck.rejectsGossip = true })
		seq := n.trickle(from, 0, 100*time.Millisecond, 900*time.Millisecond)
		testkit.Equal(t, "busy before a second is over", stuck.isBusy(), false)
		seq = n.trickle(from, seq, 100*time.Millisecond, 300*time.Millisecond)
		testkit.Equal(t, "busy", stuck.isBusy(), true)

		// While it is pruned it is offered little: with pauses of 1, 2, 4, 8,
		// 16 and 30 seconds, seven times in a minute and a half.
		before := stuck.posts
		seq = n.trickle(from, seq, 100*time.Millisecond, 90*time.Second)
		if probes := stuck.posts - before; probes < 5 || probes > 8 {
			t.Errorf("it was probed %d times", probes)
		}
		testkit.Equal(t, "busy all the while", stuck.isBusy(), true)
		if _, err := n.Publish(t.Context(), "news/eu", nil); err != nil {
			t.Errorf("publish with one good peer: %v", err)
		}

		stuck.set(func() { stuck.rejectsGossip = false })
		seq = n.trickle(from, seq, 500*time.Millisecond, 33*time.Second)
		testkit.Equal(t, "busy after it took a message", stuck.isBusy(), false)
		stuck.takeGossip()
		n.trickle(from, seq, 100*time.Millisecond, time.Second)
		testkit.Equal(t, "messages in the next second", len(stuck.takeGossip()), 10)
	})
}

// Rejecting something now and then is no reason to prune.
func TestAPeerThatTakesSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		turn := 0
		peers[1].set(func() { peers[1].accept = func(*oap.Gossip) bool { turn++; return turn%5 == 0 } })
		n.trickle(peers[0], 0, 100*time.Millisecond, 10*time.Second)
		testkit.Equal(t, "busy", peers[1].isBusy(), false)
	})
}

// A peer that says that it is busy is pruned at once.
func TestAPeerThatSaysBusy(t *testing.T) {
	for code, again := range map[oap.Code]bool{oap.Busy: true, oap.NotReady: true, oap.QuotaExceeded: false} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				peers := n.addPeers(3)
				advanceTime(5 * time.Second)
				g, id := messageNow(t, 1)
				n.arrive(peers[0], g)
				waitIdle()
				testkit.Equal(t, "sent", len(peers[1].takeGossip()), 1)
				advanceTime(1500 * time.Millisecond) // it says so once a second at most
				n.HandleRefusal(peers[1], &oap.Error{Code: code})
				n.HandleRefusal(peers[1], &oap.Error{Code: code})
				testkit.Equal(t, "busy", peers[1].isBusy(), true)
				testkit.Equal(t, "prunings", n.tally.read(&n.tally.prunings), 1)
				later, laterID := messageNow(t, 2)
				n.arrive(peers[0], later)
				waitIdle()
				testkit.Equal(t, "sent while busy", len(peers[1].takeGossip()), 0)
				advanceTime(5 * time.Second)
				testkit.Equal(t, "busy later", peers[1].isBusy(), false)
				// The peer may have lost the message that it was sent. It is
				// announced again, unless the peer does not want it.
				announced := map[bool]int{}
				for _, one := range peers[1].takeHaves() {
					announced[one == id]++
					if one != id && one != laterID {
						t.Error("told of something else")
					}
				}
				testkit.Equal(t, "told of what it refused", announced[true] > 0, again)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		n.HandleRefusal(peers[0], &oap.Error{Code: oap.Timeout})
		testkit.Equal(t, "busy", peers[0].isBusy(), false)
	})
}

// A peer that refuses its probe stays pruned for twice as long.
func TestAProbeThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		waitIdle()
		n.HandleRefusal(peers[1], &oap.Error{Code: oap.Busy})
		g, _ := messageNow(t, 1)
		n.arrive(peers[0], g)
		advanceTime(1100 * time.Millisecond)
		testkit.Equal(t, "the probe", len(peers[1].takeGossip()), 1)
		n.HandleRefusal(peers[1], &oap.Error{Code: oap.Busy})
		g, _ = messageNow(t, 2)
		n.arrive(peers[0], g)
		advanceTime(1500 * time.Millisecond)
		testkit.Equal(t, "still out", len(peers[1].takeGossip()), 0)
		advanceTime(time.Second)
		testkit.Equal(t, "the second probe", len(peers[1].takeGossip()), 1)
		testkit.Equal(t, "prunings", n.tally.read(&n.tally.prunings), 2)
		advanceTime(2 * time.Second)
		testkit.Equal(t, "busy in the end", peers[1].isBusy(), false)
	})
}

// A peer that has passed its probe starts again with the shortest pause. And a
// publish counts pruned peers as busy.
func TestAfterTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		p := peers[0]
		n.mustPublish("news/eu", []byte("first"))
		for range 3 {
			waitIdle()
			p.takeGossip()
			n.HandleRefusal(p, &oap.Error{Code: oap.Busy})
			outcome, err := n.Publish(t.Context(), "news/eu", nil)
			if fault.KindOf(err) != fault.Busy || outcome.Busy != 1 {
				t.Fatalf("publish: %+v, %v", outcome, err)
			}
			n.open(newFakePeer(50)) // a peer through which there is a message for the probe
			n.mustPublish("news/eu", []byte("probe"))
			advanceTime(1250 * time.Millisecond)
			testkit.Equal(t, "probes", len(p.takeGossip()), 1)
			advanceTime(1250 * time.Millisecond)
			testkit.Equal(t, "busy", p.isBusy(), false)
			n.close(n.active()[1].(*fakePeer))
		}
	})
}

// Without a message for the probe, a peer is readmitted when its pause is over.
func TestNothingToProbeWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(1)
		n.HandleRefusal(peers[0], &oap.Error{Code: oap.Busy})
		testkit.Equal(t, "busy", peers[0].isBusy(), true)
		advanceTime(1250 * time.Millisecond)
		testkit.Equal(t, "busy", peers[0].isBusy(), false)
		n.HandleRefusal(peers[0], &oap.Error{Code: oap.Busy})
		advanceTime(1750 * time.Millisecond)
		testkit.Equal(t, "busy for longer", peers[0].isBusy(), true)
		advanceTime(500 * time.Millisecond)
		testkit.Equal(t, "busy", peers[0].isBusy(), false)
	})
}
