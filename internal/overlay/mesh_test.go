package overlay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/internal/flow"
	"micronode/internal/overlay/gossip"
	"micronode/internal/testkit"
)

// collector subscribes to a topic and counts each message.
type collector struct {
	mu     sync.Mutex
	counts map[string]int
	lagged uint64
}

// collect receives until the test ends.
func (n *testNode) collect(topic string) *collector {
	n.t.Helper()
	c := &collector{counts: map[string]int{}}
	s := n.subscribe(topic)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx, s)
	}()
	n.t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

func (c *collector) run(ctx context.Context, s *gossip.Subscription) {
	for {
		d, err := s.Recv(ctx)
		c.mu.Lock()
		lag, behind := errors.AsType[*flow.LagError](err)
		switch {
		case err == nil:
			c.counts[string(d.Data)]++
		case behind:
			c.lagged += lag.Missed
		default:
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// heard returns how many different messages came, and which came twice.
func (c *collector) heard() (distinct int, twice []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, n := range c.counts {
		if n > 1 {
			twice = append(twice, text)
		}
	}
	return len(c.counts), twice
}

// connectMesh connects nodes in a ring, so that all can reach all, and adds
// random chords.
func connectMesh(t *testing.T, members []*testNode, chords int) {
	t.Helper()
	for i, m := range members {
		connectNodes(t, m, members[(i+1)%len(members)])
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for range chords {
		a, b := members[draw.IntN(len(members))], members[draw.IntN(len(members))]
		if a != b && a.sessions.Find(b.ID()) == nil {
			connectNodes(t, a, b)
		}
	}
}

// Twenty nodes in a random mesh, all publish: on a healthy mesh below its
// budgets every node gets every message, once.
func TestAMeshOfTwenty(t *testing.T) {
	const nodes, each = 20, 10
	var members []*testNode
	var collectors []*collector
	for range nodes {
		m := startNode(t, func(*Spec) {})
		members = append(members, m)
		collectors = append(collectors, m.collect("all"))
	}
	connectMesh(t, members, 20)
	for i := range each {
		for j, m := range members {
			m.mustPublish("all", fmt.Sprintf("%d from %d", i, j))
		}
	}
	for j, collected := range collectors {
		testkit.WaitFor(t, fmt.Sprintf("member %d heard all", j), func() bool {
			n, _ := collected.heard()
			return n == nodes*each
		})
	}
	for j, collected := range collectors {
		if n, twice := collected.heard(); n != nodes*each || len(twice) > 0 || collected.lagged > 0 {
			t.Errorf("member %d heard %d of %d, these more than once: %v, lagged %d", j, n, nodes*each, twice, collected.lagged)
		}
	}
}

// The same with nodes that come and go while others publish. Those that stay
// get everything of each other; the share of what the replaced ones got is
// logged.
func TestAMeshWithChurn(t *testing.T) {
	const nodes, rounds = 20, 6
	var members []*testNode
	var collectors []*collector
	for range nodes {
		m := startNode(t, func(*Spec) {})
		members = append(members, m)
		collectors = append(collectors, m.collect("all"))
	}
	connectMesh(t, members, 20)
	steady, sent := nodes-3, 0
	for round := range rounds {
		leaver := steady + round%3
		members[leaver].stopNode()
		for i := range 10 {
			members[i%steady].mustPublish("all", fmt.Sprintf("round %d, %d", round, i))
			sent++
		}
		fresh := startNode(t, func(*Spec) {})
		members[leaver], collectors[leaver] = fresh, fresh.collect("all")
		connectNodes(t, fresh, members[round%steady])
		connectNodes(t, fresh, members[(round+4)%steady])
	}
	for j := range steady {
		testkit.WaitFor(t, fmt.Sprintf("member %d heard all of %d", j, sent), func() bool {
			n, _ := collectors[j].heard()
			return n == sent
		})
		if _, twice := collectors[j].heard(); len(twice) > 0 {
			t.Errorf("member %d heard these more than once: %v", j, twice)
		}
	}
	total := 0
	for _, collected := range collectors[steady:] {
		n, twice := collected.heard()
		total += n
		if len(twice) > 0 {
			t.Errorf("a newcomer heard these more than once: %v", twice)
		}
	}
	t.Logf("delivered to those who stayed: 100 %% of %d; to the last three newcomers: %.0f %%, messages from before they came included",
		sent, 100*float64(total)/float64(3*sent))
}

// A peer that stops reading costs the others nothing: they get everything, and
// the publisher never blocks.
func TestAStalledPeerBesideAHealthyOne(t *testing.T) {
	publisher := startNode(t, func(s *Spec) { s.Config.Write = 3 * time.Second })
	healthy := startNode(t, func(*Spec) {})
	connectNodes(t, publisher, healthy)
	stalled := newRawPeer(t)
	if _, err := publisher.AddPeer(Contact{ID: stalled.id, Addrs: []string{unusedAddr}}); err != nil {
		t.Fatal(err)
	}
	stalled.dial(publisher.Addr().String()) // and never reads
	testkit.WaitFor(t, "the stalled peer has a session", func() bool { return publisher.sessions.Find(stalled.id) != nil })
	collected := healthy.collect("big")
	body := make([]byte, 32<<10)
	const n = 600
	busy := 0
	for i := range n {
		copy(body, fmt.Sprintf("%08d", i))
		outcome := publisher.mustPublish("big", string(body))
		busy += outcome.Busy
	}
	testkit.WaitFor(t, "the healthy peer heard all", func() bool {
		heard, _ := collected.heard()
		return heard == n
	})
	if busy == 0 {
		t.Error("the stalled peer took 19 MiB without reading a byte")
	}
	testkit.WaitFor(t, "the stalled peer is given up", func() bool { return publisher.sessions.Find(stalled.id) == nil })
}

// panickingCounter is a counter of what readers read. When it is armed, the
// next reader that counts something panics, in the middle of what it has read.
type panickingCounter struct {
	prometheus.Counter
	armed atomic.Bool
	kills atomic.Int64
}

func (p *panickingCounter) Add(n float64) {
	if p.armed.Swap(false) {
		p.kills.Add(1)
		panic("a reader is killed")
	}
	p.Counter.Add(n)
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A reader that panics ends its session cleanly: the writer ends, the others do
// not notice, and the peer is back a moment later and gets what it missed. The
// end of every test checks that nothing is left running.
func TestReadersAreKilledMidStream(t *testing.T) {
	a, b, c := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	killer := &panickingCounter{Counter: b.Overlay.metrics.rx}
	b.Overlay.metrics.rx = killer // no reader runs yet
	connectNodes(t, a, b)
	connectNodes(t, a, c)
	third, back := c.collect("all"), b.collect("all")
	for i := range 200 {
		if i%80 == 25 {
			first := b.waitSession(a)
			killer.armed.Store(true)
			a.mustPublish("all", fmt.Sprint(i))
			testkit.WaitFor(t, "the session of the dead reader ends", func() bool { return isDone(first.Done()) })
			b.waitSession(a)
			a.waitSession(b)
			continue
		}
		a.mustPublish("all", fmt.Sprint(i))
	}
	for who, third := range map[string]*collector{"the one whose readers died": back, "the third one": third} {
		testkit.WaitFor(t, who+" heard all", func() bool {
			n, _ := third.heard()
			return n == 200
		})
	}
	if killer.kills.Load() != 3 || counterSum(t, b, "session_close_total", "error") != 3 {
		t.Errorf("%d readers were killed, %v sessions ended of it", killer.kills.Load(), counterSum(t, b, "session_close_total", "error"))
	}
}
