package gossip

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func (n *node) mustPublish(topic string, data []byte) PublishResult {
	n.t.Helper()
	outcome, err := n.Publish(n.t.Context(), topic, data)
	testkit.Must(n.t, err)
	return outcome
}

// A slow subscriber loses the oldest messages and learns how many; a fast one
// beside it loses nothing.
func TestASlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		slow, fast := n.subscribe("open"), n.subscribe("open")
		defer slow.Close()
		defer fast.Close()
		for i := range 3000 {
			n.mustPublish("open", []byte{byte(i)})
			if _, err := fast.Recv(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_, err := slow.Recv(t.Context())
		lag, ok := errors.AsType[*flow.LagError](err)
		if !ok || fault.KindOf(err) != fault.Lagging {
			t.Fatalf("recv: %v", err)
		}
		testkit.Equal(t, "missed", lag.Missed, 3000-1024)
		testkit.Equal(t, "got", len(slow.receiveAll(t)), 1024)
	})
}

// What is kept for slow subscribers is bounded in bytes, too.
func TestASlowSubscriberOfLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		s := n.subscribe("open")
		defer s.Close()
		big := make([]byte, 1<<20-1024)
		for range 200 {
			n.mustPublish("open", big)
		}
		topic := n.subscribers.topicOf("open")
		if topic.bytes > deliveryBudget {
			t.Errorf("%d bytes are kept", topic.bytes)
		}
		_, err := s.Recv(t.Context())
		lag, ok := errors.AsType[*flow.LagError](err)
		if !ok {
			t.Fatalf("recv: %v", err)
		}
		got := s.receiveAll(t)
		testkit.Equal(t, "missed and got", int(lag.Missed)+len(got), 200)
		if len(got) < 60 {
			t.Errorf("got %d messages", len(got))
		}
		// More topics, smaller shares: the next round applies them.
		for i := range 63 {
			other := n.subscribe(fmt.Sprint("open/", i))
			defer other.Close()
		}
		for range 10 {
			n.mustPublish("open", big)
		}
		n.subscribers.trimAll()
		if topic.bytes > 2<<20 {
			t.Errorf("%d bytes are kept in a 64th of the room", topic.bytes)
		}
		testkit.Equal(t, "the newest is here", topic.slots[len(topic.slots)-1].message.Load() != nil, true)
		if _, err := s.Recv(t.Context()); fault.KindOf(err) != fault.Lagging {
			t.Errorf("recv: %v", err)
		}
		if d, err := s.Recv(t.Context()); err != nil || len(d.Data) != len(big) {
			t.Errorf("recv: %v", err)
		}
	})
}

func TestSubscriptionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		e := New(inv, Spec{Key: keyOf(1), Config: DefaultConfig(), Topics: 1, Peers: func() []Peer { return nil }})
		if _, err := e.Subscribe("bad//topic"); fault.KindOf(err) != fault.Malformed {
			t.Errorf("a bad topic: %v", err)
		}
		var all []*Subscription
		for i := range maxSubscriptions {
			s, err := e.Subscribe(fmt.Sprint("t/", i/2))
			testkit.Must(t, err)
			all = append(all, s)
		}
		if _, err := e.Subscribe("t/1"); fault.KindOf(err) != fault.Busy || fault.NextOf(err) == "" {
			t.Errorf("one too many: %v", err)
		}
		buses := func() int {
			for _, stat := range inv.Read() {
				if stat.Name == "deliveries" {
					return stat.Instances
				}
			}
			return 0
		}
		testkit.Equal(t, "buses", buses(), maxSubscriptions/2)
		for _, s := range all {
			s.Close()
			s.Close()
		}
		testkit.Equal(t, "buses left", buses(), 0)
		testkit.Equal(t, "topics left", len(e.subscribers.topics), 0)
		testkit.Equal(t, "subscriptions left", e.subscribers.count, 0)
		if _, err := all[0].Recv(t.Context()); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("recv after close: %v", err)
		}
		if _, err := e.Publish(t.Context(), "t/1", nil); err != nil {
			t.Error(err)
		}
		s, err := e.Subscribe("t/1")
		testkit.Must(t, err)
		defer s.Close()
		if _, err := s.Recv(canceled(t)); fault.KindOf(err) != fault.Canceled {
			t.Errorf("recv: %v", err)
		}
	})
}

// A topic whose last subscriber leaves while a message is on its way.
func TestTheLastSubscriberLeaves(t *testing.T) {
	n := newNode(t, nil)
	s := n.subscribe("news/eu")
	topic := n.subscribers.topicOf("news/eu")
	topic.bus.Retire()
	late := newBatchState(n.Engine)
	late.deliveries = deliveryBatch{topic: topic, messages: []Message{{Topic: "news/eu", Publisher: originID}}}
	late.flushDeliveries()
	testkit.Equal(t, "delivered", n.tally.read(&n.tally.delivered), 0)
	if _, err := n.Subscribe("news/eu"); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("subscribe: %v", err)
	}
	s.Close()
}

// Several subscribers ask for the id of a message at once, and get it.
func TestSeveralAskForAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, allowUnsigned)
		peers := n.addPeers(1)
		var readers [3]*Subscription
		for i := range readers {
			readers[i] = n.subscribe("open")
			defer readers[i].Close()
		}
		g, id := sealed(t, nil, &oap.GossipMessage{Topic: "open", Key: publicOf(origin), TS: uint64(time.Now().UnixMilli())})
		n.arrive(peers[0], g)
		waitIdle()
		if n.history.findByFingerprint(n.fingerprinter.of(g.Msg, new([fingerprintSize]byte))).id.Load() != nil {
			t.Error("an id was computed that nobody asked for")
		}
		var all sync.WaitGroup
		for _, s := range readers {
			all.Go(func() { testkit.Equal(t, "id", s.receiveAll(t)[0].ID(), id) })
		}
		all.Wait()
	})
}
