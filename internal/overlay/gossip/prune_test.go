package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
)

// trickle brings a letter from a peer every so often.
func (n *node) trickle(from *fake, first int, each, span time.Duration) (next int) {
	for elapsed := time.Duration(0); elapsed < span; elapsed += each {
		g, _ := letterNow(n.t, first)
		first++
		n.arrive(from, g)
		pass(each)
	}
	return first
}

// A peer that turns everything away for a second is left out, for longer and
// longer, and comes back when it takes a letter.
func TestAPeerThatTurnsEverythingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		from, stuck := peers[0], peers[1]
		stuck.set(func() { stuck.closed = true })
		seq := n.trickle(from, 0, 100*time.Millisecond, 900*time.Millisecond)
		equal(t, "busy before a second is over", stuck.isBusy(), false)
		seq = n.trickle(from, seq, 100*time.Millisecond, 300*time.Millisecond)
		equal(t, "busy", stuck.isBusy(), true)

		// While it is left out it is asked rarely: with pauses of 1, 2, 4, 8, 16 and
		// 30 seconds, seven times in a minute and a half.
		before := stuck.posts
		seq = n.trickle(from, seq, 100*time.Millisecond, 90*time.Second)
		if probes := stuck.posts - before; probes < 5 || probes > 8 {
			t.Errorf("it was probed %d times", probes)
		}
		equal(t, "busy all the while", stuck.isBusy(), true)
		if _, err := n.Publish(t.Context(), "news/eu", nil); err != nil {
			t.Errorf("publish with one good peer: %v", err)
		}

		stuck.set(func() { stuck.closed = false })
		seq = n.trickle(from, seq, 500*time.Millisecond, 33*time.Second)
		equal(t, "busy after it took a letter", stuck.isBusy(), false)
		stuck.took()
		n.trickle(from, seq, 100*time.Millisecond, time.Second)
		equal(t, "letters in the next second", len(stuck.took()), 10)
	})
}

// Now and then turning something away is no reason.
func TestAPeerThatTakesSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		turn := 0
		peers[1].set(func() { peers[1].accept = func(*oap.Gossip) bool { turn++; return turn%5 == 0 } })
		n.trickle(peers[0], 0, 100*time.Millisecond, 10*time.Second)
		equal(t, "busy", peers[1].isBusy(), false)
	})
}

// A peer that says that it is busy is believed.
func TestAPeerThatSaysBusy(t *testing.T) {
	for code, again := range map[oap.Code]bool{oap.Busy: true, oap.NotReady: true, oap.QuotaExceeded: false} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				peers := n.company(3)
				pass(5 * time.Second)
				g, id := letterNow(t, 1)
				n.arrive(peers[0], g)
				settle()
				equal(t, "sent", len(peers[1].took()), 1)
				pass(1500 * time.Millisecond) // it tells once a second at most
				n.Refused(peers[1], &oap.Error{Code: code})
				n.Refused(peers[1], &oap.Error{Code: code})
				equal(t, "busy", peers[1].isBusy(), true)
				equal(t, "prunings", n.tally.read(&n.tally.prunings), 1)
				later, laterID := letterNow(t, 2)
				n.arrive(peers[0], later)
				settle()
				equal(t, "sent while busy", len(peers[1].took()), 0)
				pass(5 * time.Second)
				equal(t, "busy later", peers[1].isBusy(), false)
				// The letter that it was sent may have been lost on it. It is told of it,
				// unless it does not want it.
				told := map[bool]int{}
				for _, one := range peers[1].takeHaves() {
					told[one == id]++
					if one != id && one != laterID {
						t.Error("told of something else")
					}
				}
				equal(t, "told of what it refused", told[true] > 0, again)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		n.Refused(peers[0], &oap.Error{Code: oap.Timeout})
		equal(t, "busy", peers[0].isBusy(), false)
	})
}

// A peer that refuses its probe stays out for twice as long.
func TestAProbeThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(2)
		settle()
		n.Refused(peers[1], &oap.Error{Code: oap.Busy})
		g, _ := letterNow(t, 1)
		n.arrive(peers[0], g)
		pass(1100 * time.Millisecond)
		equal(t, "the probe", len(peers[1].took()), 1)
		n.Refused(peers[1], &oap.Error{Code: oap.Busy})
		g, _ = letterNow(t, 2)
		n.arrive(peers[0], g)
		pass(1500 * time.Millisecond)
		equal(t, "still out", len(peers[1].took()), 0)
		pass(time.Second)
		equal(t, "the second probe", len(peers[1].took()), 1)
		equal(t, "prunings", n.tally.read(&n.tally.prunings), 2)
		pass(2 * time.Second)
		equal(t, "busy in the end", peers[1].isBusy(), false)
	})
}

// Who has passed its probe is as good as new: the next pause is a short one. And
// a publish counts those who are left out as busy.
func TestAfterTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		p := peers[0]
		n.mustPublish("news/eu", []byte("first"))
		for range 3 {
			settle()
			p.took()
			n.Refused(p, &oap.Error{Code: oap.Busy})
			outcome, err := n.Publish(t.Context(), "news/eu", nil)
			if fault.KindOf(err) != fault.Busy || outcome.Busy != 1 {
				t.Fatalf("publish: %+v, %v", outcome, err)
			}
			n.open(newFake(50)) // somebody through whom there is a letter for the probe
			n.mustPublish("news/eu", []byte("probe"))
			pass(1250 * time.Millisecond)
			equal(t, "probes", len(p.took()), 1)
			pass(1250 * time.Millisecond)
			equal(t, "busy", p.isBusy(), false)
			n.close(n.active()[1].(*fake))
		}
	})
}

// Without a letter to try it with, a peer comes back when its pause is over.
func TestNothingToProbeWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.company(1)
		n.Refused(peers[0], &oap.Error{Code: oap.Busy})
		equal(t, "busy", peers[0].isBusy(), true)
		pass(1250 * time.Millisecond)
		equal(t, "busy", peers[0].isBusy(), false)
		n.Refused(peers[0], &oap.Error{Code: oap.Busy})
		pass(1750 * time.Millisecond)
		equal(t, "busy for longer", peers[0].isBusy(), true)
		pass(500 * time.Millisecond)
		equal(t, "busy", peers[0].isBusy(), false)
	})
}
