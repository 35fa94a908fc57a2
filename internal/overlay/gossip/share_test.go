package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// One peer sends as much as it can. It fills its share of the seen-set and no
// more: messages of others are accepted, this node publishes, and another
// session of the same peer gets no second share.
func TestOnePeerCannotTakeTheSeenSet(t *testing.T) {
	for name, write := range map[string]func(*testing.T, int) oap.Gossip{
		"signed":   func(t *testing.T, seq int) oap.Gossip { g, _ := messageNow(t, seq); return g },
		"unsigned": func(t *testing.T, seq int) oap.Gossip { return unsignedMessage(t, seq, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, func(s *Spec) { allowUnsigned(s); s.Config.Seen = 100 })
				peers := n.addPeers(2)
				flood, other := peers[0], peers[1]
				seq := 0
				send := func(from *fakePeer, count int) {
					for range count {
						seq++
						n.arrive(from, write(t, seq))
						waitIdle()
					}
				}
				send(flood, 200)
				testkit.Equal(t, "taken of the flood", n.tally.read(&n.tally.taken), 80)
				testkit.Equal(t, "dropped", n.tally.drops(DropShare), 120)
				refusals := flood.takeRefused()
				if len(refusals) != 120 || refusals[0].code != oap.Busy {
					t.Errorf("the flooding peer was told %d times, %v", len(refusals), refusals[:min(1, len(refusals))])
				}

				n.mustPublish("news/eu", nil)
				n.mustPublish("open/a", nil)
				send(other, 10)
				testkit.Equal(t, "taken of another peer", n.tally.read(&n.tally.taken), 90)
				testkit.Equal(t, "told to another peer", len(other.takeRefused()), 0)

				n.close(flood)
				again := newFakePeer(1)
				again.serial = 99
				n.open(again)
				send(again, 10)
				testkit.Equal(t, "taken over another session", n.tally.read(&n.tally.taken), 90)

				advanceTime(125 * time.Second)
				send(again, 10)
				testkit.Equal(t, "taken after the ttl", n.tally.read(&n.tally.taken), 100)
			})
		})
	}
}

// With many peers that send as much as they can there is still an entry for the
// next one.
func TestThereIsAPlaceForTheNextPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(s *Spec) { allowUnsigned(s); s.Config.Seen = 1000 })
		peers := n.addPeers(20)
		for i := range 400 {
			for j, p := range peers[:19] {
				n.arrive(p, unsignedMessage(t, 1000*i+j, "x"))
			}
		}
		testkit.Equal(t, "full", n.tally.drops(DropSeen), 0)
		before := n.tally.read(&n.tally.taken)
		n.arrive(peers[19], unsignedMessage(t, 1_000_000, "x"))
		testkit.Equal(t, "taken", n.tally.read(&n.tally.taken), before+1)
	})
}

// Signed messages of one peer, more than workers can check: it does not fill
// the queue, so the node stays ready, and messages of a peer that connects then
// are accepted.
func TestOnePeerCannotFillTheQueue(t *testing.T) {
	for name, row := range map[string]struct{ size, sent, fit int }{"items": {64, 600, shareItems}, "bytes": {1<<20 - 600, 16, 12}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, nil)
				peers := n.addPeers(2)
				g, _ := sealed(t, origin, &oap.GossipMessage{Topic: "news", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli()), Data: make([]byte, row.size)})
				for range row.sent {
					n.arrive(peers[0], g)
				}
				testkit.Equal(t, "waiting", n.ingress.Len(1), row.fit)
				testkit.Equal(t, "dropped", n.tally.drops(DropShare), row.sent-row.fit)
				testkit.Equal(t, "shed", n.Shed(), 0)
				if p := n.Pressure(); p >= 0.9 {
					t.Errorf("pressure %v", p)
				}
				for _, refusal := range peers[0].takeRefused() {
					testkit.Equal(t, "told", refusal.code, oap.Busy)
				}
				n.mustPublish("news", nil)
				n.arrive(peers[1], g)
				testkit.Equal(t, "told to the other", len(peers[1].takeRefused()), 0)
				testkit.Equal(t, "waiting of both", n.ingress.Len(1), row.fit+1)

				n.Drain()
				if err := n.Work(t.Context()); err != nil {
					t.Error(err)
				}
				testkit.Equal(t, "waiting after", n.ingressUsage.items.Load()+n.ingressUsage.bytes.Load(), 0)
				for _, l := range n.links {
					testkit.Equal(t, "held after", l.share.queued.items.Load()+l.share.queued.bytes.Load(), 0)
				}
			})
		})
	}
}

// Nor does it fill the room for what was checked and waits for a message before
// it, if the first one takes its time.
func TestOnePeerCannotFillTheRoomBehindTheQueue(t *testing.T) {
	n := newNode(t, nil)
	peers := n.addPeers(1)
	send := func(count int) {
		for i := range count {
			g, _ := messageNow(t, 10_000+i+n.tally.drops(DropShare))
			n.arrive(peers[0], g)
		}
	}
	send(shareItems)
	all := make([]*queued, shareItems)
	if got, err := n.ingress.Take(t.Context(), all, 1<<30); got != shareItems || err != nil {
		t.Fatal(got, err)
	}
	n.handleQueued(all[1:])
	send(100)
	testkit.Equal(t, "units in use", n.orderUnitsInUse(), shareItems-1)
	testkit.Equal(t, "waiting", n.ingress.Len(1), 0)
	testkit.Equal(t, "beyond the share", n.tally.drops(DropShare), 100)
	testkit.Equal(t, "shed", n.Shed(), 0)

	n.handleQueued(all[:1])
	testkit.Equal(t, "units in use after", n.orderUnitsInUse(), 0)
	testkit.Equal(t, "held after", n.links[1].share.queued.items.Load(), 0)
	send(1)
	testkit.Equal(t, "waiting after", n.ingress.Len(1), 1)
}

// The share of a disconnected peer is kept for as long as it holds something.
func TestSharesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		peers := n.addPeers(2)
		g, _ := messageNow(t, 1)
		n.arrive(peers[0], g)
		waitIdle()
		n.close(peers[0])
		n.close(peers[1])
		known := func() int {
			n.Engine.mu.Lock()
			defer n.Engine.mu.Unlock()
			return len(n.shares)
		}
		advanceTime(2 * time.Second)
		testkit.Equal(t, "shares", known(), 1)
		advanceTime(125 * time.Second)
		testkit.Equal(t, "shares after the ttl", known(), 0)
	})
}
