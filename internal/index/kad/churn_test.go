package kad

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// testNetwork is a network of many nodes, some of which leave while others
// join.
type testNetwork struct {
	t     *testing.T
	nodes []*Network
	next  int // number of the next key
	has   map[*Network][]record.Question
}

// join adds a node with two bootstrap peers.
func (tn *testNetwork) join() *Network {
	var begin []*Network
	for _, i := range rand.Perm(len(tn.nodes))[:min(2, len(tn.nodes))] {
		begin = append(begin, tn.nodes[i])
	}
	tn.next++
	n := open(tn.t, tn.next, withBootstrap(begin...))
	tn.nodes = append(tn.nodes, n)
	return n
}

// leave closes a node without notice to the others.
func (tn *testNetwork) leave(i int) {
	if err := tn.nodes[i].Close(); err != nil {
		tn.t.Error(err)
	}
	tn.nodes = slices.Delete(tn.nodes, i, i+1)
}

// waitConnected waits until every node knows at least so many others. The
// library checks a new peer once, and on a busy machine that may fail; then it
// learns of it again only at its next refresh, in ten minutes. So nodes with
// too few peers refresh now.
func (tn *testNetwork) waitConnected(least int) {
	tn.t.Helper()
	ctx := budget(tn.t)
	for _, n := range tn.nodes {
		for n.Size() < least {
			select {
			case <-n.dht.ForceRefresh():
			case <-ctx.Done():
				tn.t.Fatalf("one knows %d of %d others", n.Size(), len(tn.nodes)-1)
			}
			_ = flow.Sleep(ctx, 5*time.Millisecond)
		}
	}
}

// outcome is the results of look-ups.
type outcome struct {
	mu    sync.Mutex
	took  []time.Duration
	found int
	kinds map[fault.Kind]int
	hops  [maxHops]uint64
}

func (o *outcome) add(took time.Duration, answer record.Answer, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took = append(o.took, took)
	if err != nil {
		o.kinds[fault.KindOf(err)]++
	} else if len(answer.Providers) > 0 || answer.Name != nil {
		o.found++
	}
}

func (o *outcome) report(t *testing.T, what string) float64 {
	slices.Sort(o.took)
	at := func(p float64) time.Duration {
		return o.took[int(p*float64(len(o.took)-1))].Round(100 * time.Microsecond)
	}
	ratio := float64(o.found) / float64(len(o.took))
	t.Logf("%s: %d look-ups, %.1f %% found, p50 %s, p99 %s, errors %v, walks by hops %v", what, len(o.took), 100*ratio, at(.5), at(.99), o.kinds, o.hops)
	return ratio
}

// indexBudget is the budget of a look-up on an idle machine.
const indexBudget = 1200 * time.Millisecond

// lookUp makes every node look up the questions within a budget, four at a
// time.
func (tn *testNetwork) lookUp(budget time.Duration, questions []record.Question, ask func(context.Context, *Network, record.Question) (record.Answer, error)) *outcome {
	o := &outcome{kinds: map[fault.Kind]int{}}
	before := map[*Network]Stats{}
	for _, n := range tn.nodes {
		before[n] = n.Stats()
	}
	room, all := make(chan struct{}, 4), sync.WaitGroup{}
	for _, n := range tn.nodes {
		for _, q := range questions {
			if slices.Contains(tn.has[n], q) {
				continue // a node does not ask for what it has
			}
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				ctx, cancel := context.WithTimeout(tn.t.Context(), budget)
				defer cancel()
				began := time.Now()
				answer, err := ask(ctx, n, q)
				o.add(time.Since(began), answer, err)
			})
		}
	}
	all.Wait()
	for _, n := range tn.nodes {
		for i, hops := range n.Stats().Hops {
			o.hops[i] += hops - before[n].Hops[i]
		}
	}
	return o
}

// finds requires that walks find so much. Their duration is tested by the
// gates: on a busy machine they take longer than the budget of the index.
func (tn *testNetwork) finds(questions []record.Question, least float64, when string) {
	tn.t.Helper()
	if ratio := tn.lookUp(20*time.Second, questions, walking).report(tn.t, when); ratio < least {
		tn.t.Errorf("%s: only %.2f was found", when, ratio)
	}
}

func walking(ctx context.Context, n *Network, q record.Question) (record.Answer, error) {
	return n.Walk(ctx, q)
}

// oneByOne asks the five closest, as the waves of the index would.
func oneByOne(ctx context.Context, n *Network, q record.Question) (answer record.Answer, err error) {
	for _, target := range n.Closest(q, 5) {
		answer, err = target.Ask(ctx, q)
		if err == nil && (len(answer.Providers) > 0 || answer.Name != nil) {
			return answer, nil
		}
	}
	return answer, err
}

func TestTwelveNodesAndChurn(t *testing.T) {
	c := &testNetwork{t: t, has: map[*Network][]record.Question{}}
	for range 12 {
		c.join()
	}
	c.waitConnected(8)
	// The last four stay, and have what the others look up.
	keepers := slices.Clone(c.nodes[8:])
	var questions []record.Question
	for i := range 8 {
		testkit.Must(t, keepers[i%4].Provide(budget(t), objectNo(i)))
		questions = append(questions, asks(objectNo(i)))
		c.has[keepers[i%4]] = append(c.has[keepers[i%4]], asks(objectNo(i)))
	}
	for i := range 4 {
		testkit.Must(t, keepers[i].Publish(budget(t), signed(9+i, "docs", 1, i)))
		questions = append(questions, asksName(9+i, "docs"))
	}

	c.finds(questions, .95, "twelve nodes, walks")
	c.lookUp(indexBudget, questions, oneByOne).report(t, "twelve nodes, the five nearest")

	// A third leaves without notice during the look-ups, and as many join.
	for range 4 {
		c.leave(rand.IntN(len(c.nodes) - 4))
	}
	c.lookUp(indexBudget, questions, walking).report(t, "four have just left, walks")
	c.lookUp(indexBudget, questions, oneByOne).report(t, "four have left, the five nearest")
	for range 4 {
		n := c.join()
		c.nodes = append([]*Network{n}, c.nodes[:len(c.nodes)-1]...) // the keepers stay last
	}
	c.waitConnected(4)
	c.finds(questions, .9, "four new ones have come, walks")
	c.lookUp(indexBudget, []record.Question{asks(objectNo(404))}, walking).report(t, "what nobody has, walks")
}
