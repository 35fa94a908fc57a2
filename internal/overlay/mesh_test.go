package overlay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/overlay/gossip"
)

// collector hears a topic and remembers how often it heard what.
type collector struct {
	mu     sync.Mutex
	counts map[string]int
	lagged uint64
}

// collect listens until the test ends.
func (m *member) collect(topic string) *collector {
	m.t.Helper()
	c := &collector{counts: map[string]int{}}
	s := m.hear(topic)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.listen(ctx, s)
	}()
	m.t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

func (c *collector) listen(ctx context.Context, s *gossip.Subscription) {
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

// heard is how many different messages came, and which came twice.
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

// connected links members in a ring, so that all can reach all, and adds random
// chords.
func connected(t *testing.T, members []*member, chords int) {
	t.Helper()
	for i, m := range members {
		meet(t, m, members[(i+1)%len(members)])
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for range chords {
		a, b := members[draw.IntN(len(members))], members[draw.IntN(len(members))]
		if a != b && a.sessions.Find(b.ID()) == nil {
			meet(t, a, b)
		}
	}
}

// Twenty nodes in a random mesh, everybody speaks: on a healthy mesh below its
// budgets everybody hears everything, once.
func TestAMeshOfTwenty(t *testing.T) {
	const nodes, each = 20, 10
	var members []*member
	var ears []*collector
	for range nodes {
		m := join(t, func(*Spec) {})
		members = append(members, m)
		ears = append(ears, m.collect("all"))
	}
	connected(t, members, 20)
	for i := range each {
		for j, m := range members {
			m.say("all", fmt.Sprintf("%d from %d", i, j))
		}
	}
	for j, ear := range ears {
		members[j].until(fmt.Sprintf("member %d heard all", j), func() bool {
			n, _ := ear.heard()
			return n == nodes*each
		})
	}
	for j, ear := range ears {
		if n, twice := ear.heard(); n != nodes*each || len(twice) > 0 || ear.lagged > 0 {
			t.Errorf("member %d heard %d of %d, these more than once: %v, lagged %d", j, n, nodes*each, twice, ear.lagged)
		}
	}
}

// The same with members that come and go while others speak. Those that stay
// hear everything of each other; the ratio of what those heard that were
// replaced is told.
func TestAMeshWithChurn(t *testing.T) {
	const nodes, rounds = 20, 6
	var members []*member
	var ears []*collector
	for range nodes {
		m := join(t, func(*Spec) {})
		members = append(members, m)
		ears = append(ears, m.collect("all"))
	}
	connected(t, members, 20)
	steady, sent := nodes-3, 0
	for round := range rounds {
		leaver := steady + round%3
		members[leaver].leave()
		for i := range 10 {
			members[i%steady].say("all", fmt.Sprintf("round %d, %d", round, i))
			sent++
		}
		fresh := join(t, func(*Spec) {})
		members[leaver], ears[leaver] = fresh, fresh.collect("all")
		meet(t, fresh, members[round%steady])
		meet(t, fresh, members[(round+4)%steady])
	}
	for j := range steady {
		members[j].until(fmt.Sprintf("member %d heard all of %d", j, sent), func() bool {
			n, _ := ears[j].heard()
			return n == sent
		})
		if _, twice := ears[j].heard(); len(twice) > 0 {
			t.Errorf("member %d heard these more than once: %v", j, twice)
		}
	}
	total := 0
	for _, ear := range ears[steady:] {
		n, twice := ear.heard()
		total += n
		if len(twice) > 0 {
			t.Errorf("a newcomer heard these more than once: %v", twice)
		}
	}
	t.Logf("delivered to those who stayed: 100 %% of %d; to the last three newcomers: %.0f %%, letters from before they came included",
		sent, 100*float64(total)/float64(3*sent))
}

// A peer that stops reading costs the others nothing: they hear everything, and
// the publisher is never held up.
func TestAStalledPeerBesideAHealthyOne(t *testing.T) {
	publisher := join(t, func(s *Spec) { s.Config.Write = 3 * time.Second })
	healthy := join(t, func(*Spec) {})
	meet(t, publisher, healthy)
	stalled := newStranger(t)
	if _, err := publisher.AddPeer(Contact{ID: stalled.id, Addrs: []string{nobody}}); err != nil {
		t.Fatal(err)
	}
	stalled.dial(publisher.Addr().String()) // and never reads
	publisher.until("the stalled peer has a session", func() bool { return publisher.sessions.Find(stalled.id) != nil })
	ear := healthy.collect("big")
	body := make([]byte, 32<<10)
	const n = 600
	busy := 0
	for i := range n {
		copy(body, fmt.Sprintf("%08d", i))
		outcome := publisher.say("big", string(body))
		busy += outcome.Busy
	}
	healthy.until("the healthy peer heard all", func() bool {
		heard, _ := ear.heard()
		return heard == n
	})
	if busy == 0 {
		t.Error("the stalled peer took 19 MiB without reading a byte")
	}
	publisher.until("the stalled peer is given up", func() bool { return publisher.sessions.Find(stalled.id) == nil })
}

// A reader that dies takes its session with it, cleanly: the writer ends, the
// others do not notice, and the peer is back a moment later.
func TestReadersAreKilledMidStream(t *testing.T) {
	a, b, c := join(t, func(*Spec) {}), join(t, func(*Spec) {}), join(t, func(*Spec) {})
	meet(t, a, b)
	meet(t, a, c)
	ear := c.collect("all")
	for i := range 200 {
		a.say("all", fmt.Sprint(i))
		if i%50 == 25 {
			first := b.sessions.Find(a.ID())
			if first == nil {
				continue
			}
			first.End(fault.New("test", fault.Internal, "killed"))
			<-first.Done()
		}
	}
	c.until("the third one heard all", func() bool {
		n, _ := ear.heard()
		return n == 200
	})
	a.sees(b)
	b.sees(a)
}
