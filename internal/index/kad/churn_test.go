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
)

// crowd is a network of many nodes, of which some leave and others come.
type crowd struct {
	t     *testing.T
	nodes []*Network
	next  int // number of the next key
	has   map[*Network][]record.Question
}

// join adds a node that begins with two others.
func (c *crowd) join() *Network {
	var begin []*Network
	for _, i := range rand.Perm(len(c.nodes))[:min(2, len(c.nodes))] {
		begin = append(begin, c.nodes[i])
	}
	c.next++
	n := open(c.t, c.next, from(begin...))
	c.nodes = append(c.nodes, n)
	return n
}

// leave closes a node without a word to the others.
func (c *crowd) leave(i int) {
	if err := c.nodes[i].Close(); err != nil {
		c.t.Error(err)
	}
	c.nodes = slices.Delete(c.nodes, i, i+1)
}

// mingle waits until every node knows at least so many others. The library tries
// a peer that it hears of once, and on a busy machine that may fail; then it
// hears of it again only when it looks around for the next time, in ten minutes.
// So who knows too few looks around now.
func (c *crowd) mingle(least int) {
	c.t.Helper()
	ctx := budget(c.t)
	for _, n := range c.nodes {
		for n.Size() < least {
			select {
			case <-n.dht.ForceRefresh():
			case <-ctx.Done():
				c.t.Fatalf("one knows %d of %d others", n.Size(), len(c.nodes)-1)
			}
			_ = flow.Sleep(ctx, 5*time.Millisecond)
		}
	}
}

// outcome is how look-ups went.
type outcome struct {
	mu    sync.Mutex
	took  []time.Duration
	found int
	kinds map[fault.Kind]int
	hops  [mostHops]uint64
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

// ofTheIndex is the budget of a look-up on a machine that has time for it.
const ofTheIndex = 1200 * time.Millisecond

// lookUp lets every node look for things within a budget, four at a time.
func (c *crowd) lookUp(budget time.Duration, questions []record.Question, ask func(context.Context, *Network, record.Question) (record.Answer, error)) *outcome {
	o := &outcome{kinds: map[fault.Kind]int{}}
	before := map[*Network]Stats{}
	for _, n := range c.nodes {
		before[n] = n.Stats()
	}
	room, all := make(chan struct{}, 4), sync.WaitGroup{}
	for _, n := range c.nodes {
		for _, q := range questions {
			if slices.Contains(c.has[n], q) {
				continue // nobody asks for what it has
			}
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				ctx, cancel := context.WithTimeout(c.t.Context(), budget)
				defer cancel()
				began := time.Now()
				answer, err := ask(ctx, n, q)
				o.add(time.Since(began), answer, err)
			})
		}
	}
	all.Wait()
	for _, n := range c.nodes {
		for i, hops := range n.Stats().Hops {
			o.hops[i] += hops - before[n].Hops[i]
		}
	}
	return o
}

// finds demands that so much is found by walks. How long they take is for the
// gates to judge: on a busy machine the budget of the index is over before they
// are.
func (c *crowd) finds(questions []record.Question, least float64, when string) {
	c.t.Helper()
	if ratio := c.lookUp(20*time.Second, questions, walking).report(c.t, when); ratio < least {
		c.t.Errorf("%s: only %.2f was found", when, ratio)
	}
}

func walking(ctx context.Context, n *Network, q record.Question) (record.Answer, error) {
	return n.Walk(ctx, q)
}

// oneByOne asks the five nearest, as the waves of the index would.
func oneByOne(ctx context.Context, n *Network, q record.Question) (answer record.Answer, err error) {
	for _, target := range n.Near(q, 5) {
		answer, err = target.Ask(ctx, q)
		if err == nil && (len(answer.Providers) > 0 || answer.Name != nil) {
			return answer, nil
		}
	}
	return answer, err
}

func TestTwelveNodesAndChurn(t *testing.T) {
	c := &crowd{t: t, has: map[*Network][]record.Question{}}
	for range 12 {
		c.join()
	}
	c.mingle(8)
	// The last four stay, and have what the others look for.
	keepers := slices.Clone(c.nodes[8:])
	var questions []record.Question
	for i := range 8 {
		if err := keepers[i%4].Provide(budget(t), objectNo(i)); err != nil {
			t.Fatal(err)
		}
		questions = append(questions, asks(objectNo(i)))
		c.has[keepers[i%4]] = append(c.has[keepers[i%4]], asks(objectNo(i)))
	}
	for i := range 4 {
		if err := keepers[i].Publish(budget(t), signed(9+i, "docs", 1, i)); err != nil {
			t.Fatal(err)
		}
		questions = append(questions, asksName(9+i, "docs"))
	}

	c.finds(questions, .95, "twelve nodes, walks")
	c.lookUp(ofTheIndex, questions, oneByOne).report(t, "twelve nodes, the five nearest")

	// A third leaves without a word while the others look, and as many come.
	for range 4 {
		c.leave(rand.IntN(len(c.nodes) - 4))
	}
	c.lookUp(ofTheIndex, questions, walking).report(t, "four have just left, walks")
	c.lookUp(ofTheIndex, questions, oneByOne).report(t, "four have left, the five nearest")
	for range 4 {
		n := c.join()
		c.nodes = append([]*Network{n}, c.nodes[:len(c.nodes)-1]...) // the keepers stay last
	}
	c.mingle(4)
	c.finds(questions, .9, "four new ones have come, walks")
	c.lookUp(ofTheIndex, []record.Question{asks(objectNo(404))}, walking).report(t, "what nobody has, walks")
}
