package session

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// stalledSession is a session, at the defaults, with a peer that reads nothing; the
// writer has one frame in flight and waits for it.
func stalledSession(t *testing.T, drop flow.Policy) (*node, *rawPeer, *Session) {
	n := newNode(t, 1, func(s *Spec) { s.Peer, s.Drop, s.Burst = DefaultPeerConfig(), drop, 64 })
	r := dialRaw(t, n, rawTLS(keyOf(2)))
	r.send(oap.Req, 1, goodHello())
	if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	s := n.Active()[0]
	s.OfferGossip([]queuedFrame{frameOnTopic(9, 9)}, nil, nil)
	synctest.Wait()
	return n, r, s
}

// frameOnTopic makes a message with a number on a topic.
func frameOnTopic(topic, number uint64) queuedFrame {
	p := numberedFrame(number, 16)
	p.Class = topic
	return p
}

func numberOf(o Outgoing) uint64 {
	msg := o.Message.(*oap.Gossip).Msg
	return binary.BigEndian.Uint64(msg[len(msg)-8:])
}

// At the defaults the queue to a peer fills up, whatever the number of permits,
// and then the policy decides what is dropped.
func TestQueueToAPeerFillsAtTheDefaults(t *testing.T) {
	for _, drop := range []flow.Policy{flow.RejectNew, flow.DropOldest} {
		inBubble(t, drop.String(), func(t *testing.T) {
			n, r, s := stalledSession(t, drop)
			var rejected []Outgoing
			for i := range 600 {
				rejected = s.OfferGossip([]queuedFrame{frameOnTopic(1, uint64(1000+i))}, rejected, nil)
			}
			first := map[flow.Policy]uint64{flow.RejectNew: 1512, flow.DropOldest: 1000}[drop]
			if s.egress.Len(Gossip) != 512 || len(rejected) != 88 || numberOf(rejected[0]) != first {
				t.Fatalf("%d wait, %d rejected, the first is %d", s.egress.Len(Gossip), len(rejected), numberOf(rejected[0]))
			}
			if len(n.backpressure) != 88 {
				t.Errorf("%d times under pressure", len(n.backpressure))
			}
			if inside := permitsInUse(n, "inflight_frames"); inside != 1 {
				t.Errorf("%d permits are out, and one frame is in hand", inside)
			}
			r.reading()
			synctest.Wait()
			if len(r.all()) != 513 || permitsInUse(n, "inflight_frames") != 0 {
				t.Errorf("%d came; %d permits are out", len(r.all()), permitsInUse(n, "inflight_frames"))
			}
		})
	}
}

// Peers that do not read share one budget for what waits for them, and what waited
// for a session that has ended is free again.
func TestPeersShareABudget(t *testing.T) {
	inBubble(t, "total_bytes", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer, s.Burst = DefaultPeerConfig(), 64; s.Peer.TotalBytes = 4 * config.MiB })
		var held []int
		for peer := range 2 {
			r := dialRaw(t, n, rawTLS(keyOf(byte(2+peer))))
			r.send(oap.Req, 1, goodHello())
			if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, s := range n.Active() {
				if s.Peer() == idOf(keyOf(byte(2+peer))) {
					for i := range 200 {
						frame := numberedFrame(uint64(i), 32<<10)
						s.OfferGossip([]queuedFrame{frame}, nil, nil)
					}
					synctest.Wait()
					held = append(held, s.egress.Bytes(Gossip))
				}
			}
		}
		if len(held) != 2 || held[0] < 1800<<10 || held[0] > 2<<20 || held[1] < 900<<10 || held[1] > held[0]*2/3 {
			t.Errorf("what waits for the two: %v", held)
		}
		for _, s := range n.Active() {
			s.CloseWithError(nil)
		}
		time.Sleep(time.Minute) // fake: until both have ended
		synctest.Wait()
		testkit.Equal(t, "what waits for nobody", n.queued.Used(), 0)
	})
}

// At the defaults a busy topic does not starve another: of that one a message finds
// room at the cost of the busy one, and is sent with the next batch.
func TestATopicStarvesNoOtherAtTheDefaults(t *testing.T) {
	inBubble(t, "topics", func(t *testing.T) {
		_, r, s := stalledSession(t, flow.RejectNew)
		for i := range 600 {
			s.OfferGossip([]queuedFrame{frameOnTopic(1, uint64(1000+i))}, nil, nil)
		}
		rejected := s.OfferGossip([]queuedFrame{frameOnTopic(2, 7)}, nil, nil)
		if len(rejected) != 1 || numberOf(rejected[0]) != 1511 {
			t.Fatalf("the newest of the busy topic makes room; rejected were %d", len(rejected))
		}
		r.reading()
		synctest.Wait()
		place := 0
		for i, one := range r.all() {
			if g, ok := one.message.(*oap.Gossip); ok && binary.BigEndian.Uint64(g.Msg[len(g.Msg)-8:]) == 7 {
				place = i
			}
		}
		if quantum := 16 << 10 / testFrame(16).Cost; place == 0 || place > 2*quantum {
			t.Errorf("it came as number %d; the busy topic may send %d in its turn", place, quantum)
		}
	})
}

// A full queue rejects what is published here, whatever the policy is for what is
// relayed: the publisher gets the error.
func TestAPublishIsRefusedByAFullQueue(t *testing.T) {
	inBubble(t, "oldest", func(t *testing.T) {
		_, _, s := stalledSession(t, flow.DropOldest)
		for i := range 512 {
			s.OfferGossip([]queuedFrame{frameOnTopic(1, uint64(1000+i))}, nil, nil)
		}
		own := frameOnTopic(1, 7)
		own.Item.RejectIfFull = true
		if rejected := s.OfferGossip([]queuedFrame{own}, nil, nil); len(rejected) != 1 || numberOf(rejected[0]) != 7 {
			t.Errorf("%d were rejected", len(rejected))
		}
	})
}

// Never more than inflight_frames are in flight: they left the queue, and the
// connection has not taken them.
func TestFramesInFlightAreBounded(t *testing.T) {
	inBubble(t, "in hand", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames, s.Burst = 10, 64 })
		r := dialRaw(t, n, rawTLS(keyOf(2)))
		r.send(oap.Req, 1, goodHello())
		if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Active()[0]
		var batch []queuedFrame
		for i := range 100 {
			batch = append(batch, frameOnTopic(1, uint64(i)))
		}
		s.OfferGossip(batch, nil, nil)
		synctest.Wait()
		if inside := permitsInUse(n, "inflight_frames"); inside != 10 || s.egress.Len(Gossip) != 90 {
			t.Errorf("%d are in hand, %d wait", inside, s.egress.Len(Gossip))
		}
		r.reading()
		synctest.Wait()
		if len(r.all()) != 100 {
			t.Errorf("%d came", len(r.all()))
		}
	})
}

// An inline writer writes no more than inflight_frames at once, either.
func TestFramesInFlightAreBoundedInline(t *testing.T) {
	reads := make(chan struct{})
	a := newNode(t, 1, longTimeouts, func(s *Spec) { s.Peer.InflightFrames = 10 }).serve()
	b := newNode(t, 2, longTimeouts)
	b.onArrived = func(*Session, []IncomingGossip) { <-reads }
	s, _ := connectNodes(t, a, b.serve())
	for range 100 {
		s.OfferGossipInline([]queuedFrame{numberedFrame(1, 16_000), numberedFrame(2, 16_000), numberedFrame(3, 16_000)}, nil, nil)
		if inside := permitsInUse(a, "inflight_frames"); inside > 10 {
			t.Fatalf("%d are in hand", inside)
		}
	}
	close(reads)
	testkit.WaitFor(t, "all permits are back", func() bool { return permitsInUse(a, "inflight_frames") == 0 && s.egress.Len(Gossip) == 0 })
}

// permitsInUse returns how many permits of some name are held.
func permitsInUse(n *node, name string) int {
	for _, one := range n.inv.Read() {
		if one.Name == name {
			return one.Inside
		}
	}
	return -1
}

// OfferGossip waits for room in the queue.
func TestPatienceIsForRoom(t *testing.T) {
	inBubble(t, "room", func(t *testing.T) {
		_, r, s := stalledSession(t, flow.RejectNew)
		for i := range 512 {
			s.OfferGossip([]queuedFrame{frameOnTopic(1, uint64(1000+i))}, nil, nil)
		}
		began, left := time.Now(), 5*time.Millisecond
		if rejected := s.OfferGossip([]queuedFrame{frameOnTopic(1, 1)}, nil, &left); len(rejected) != 1 || time.Since(began) != 5*time.Millisecond || left != 0 {
			t.Errorf("%d were rejected after %s, %s is left", len(rejected), time.Since(began), left)
		}
		time.AfterFunc(3*time.Millisecond, func() { r.reading() })
		left = 5 * time.Millisecond
		if rejected := s.OfferGossip([]queuedFrame{frameOnTopic(1, 2), frameOnTopic(1, 3)}, nil, &left); len(rejected) != 0 || left != 2*time.Millisecond {
			t.Errorf("%d were rejected by a peer that reads; %s is left", len(rejected), left)
		}
	})
}
