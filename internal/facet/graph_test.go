package facet

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/index"
)

func TestWhoFollowsWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, on("graph"))
		for _, c := range []struct {
			method, path string
			status       int
		}{
			{http.MethodPut, "/graph/ann/follows/bob", http.StatusCreated},
			{http.MethodPut, "/graph/ann/follows/bob", http.StatusNoContent},
			{http.MethodPut, "/graph/bob/follows/c%C3%A9m", http.StatusCreated},
			{http.MethodPut, "/graph/ann/follows/dot", http.StatusCreated},
			{http.MethodDelete, "/graph/ann/follows/dot", http.StatusNoContent},
			{http.MethodDelete, "/graph/ann/follows/dot", http.StatusNoContent},
		} {
			if answer := r.ask(c.method, c.path, ""); answer.Code != c.status {
				t.Errorf("%s %s: %d %s", c.method, c.path, answer.Code, answer.Body)
			}
		}
		synctest.Wait()
		if follows, unfollows := r.told(Followed), r.told(Unfollowed); len(follows) != 3 || len(unfollows) != 1 || unfollows[0].Key != "dot" || unfollows[0].Facet != graphName || unfollows[0].Time.IsZero() {
			t.Errorf("for the record: %+v and %+v", follows, unfollows)
		}
		if nodes, edges := r.count(graphName, "graph_nodes"), r.count(graphName, "graph_edges"); nodes != 3 || edges != 2 {
			t.Errorf("%v nodes and %v edges are counted", nodes, edges)
		}
		for path, want := range map[string]client.Neighbourhood{
			"/graph/ann":                                   {Node: "ann", Neighbors: []client.Near{{ID: "bob", Hops: 1}}},
			"/graph/ann?hops=2":                            {Node: "ann", Neighbors: []client.Near{{ID: "bob", Hops: 1}, {ID: "cém", Hops: 2}}},
			"/graph/ann?hops=3&max_neighbors=1":            {Node: "ann", Neighbors: []client.Near{{ID: "bob", Hops: 1}}, Truncated: true},
			"/graph/c%C3%A9m?hops=2&direction=followers":   {Node: "cém", Neighbors: []client.Near{{ID: "bob", Hops: 1}, {ID: "ann", Hops: 2}}},
			"/graph/nobody?hops=3":                         {Node: "nobody", Neighbors: []client.Near{}},
			"/graph/bob?direction=follows&max_neighbors=9": {Node: "bob", Neighbors: []client.Near{{ID: "cém", Hops: 1}}},
		} {
			got := answered[client.Neighbourhood](t, r.ask(http.MethodGet, path, ""), http.StatusOK)
			if got.Node != want.Node || got.Truncated != want.Truncated || got.Neighbors == nil || !slices.Equal(got.Neighbors, want.Neighbors) {
				t.Errorf("%s: %+v, want %+v", path, got, want)
			}
		}
	})
}

func TestWhatIsNoEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, on("graph"), func(s *Spec) { s.Config.Graph.MaxNeighbors = 10 })
		for _, path := range []string{"/graph/ann/follows/ann", "/graph/a%2Fb/follows/c", "/graph/ann/follows/" + strings.Repeat("a", 129), "/graph/e%CC%81/follows/ann"} {
			refused(t, r.ask(http.MethodPut, path, ""), fault.Malformed)
			refused(t, r.ask(http.MethodDelete, path, ""), fault.Malformed)
		}
		for _, path := range []string{"/graph/ann?hops=0", "/graph/ann?hops=4", "/graph/ann?hops=", "/graph/ann?max_neighbors=11", "/graph/ann?max_neighbors=0", "/graph/ann?direction=up", "/graph/a%2Fb"} {
			refused(t, r.ask(http.MethodGet, path, ""), fault.Malformed)
		}
		if next := refused(t, r.ask(http.MethodGet, "/graph/ann?max_neighbors="+strings.Repeat("9", 99), ""), fault.Malformed); !strings.Contains(next, "1 to 10") {
			t.Errorf("the next step is %q", next)
		}
	})
}

// TestTooManyWalks lets no more run than there are permits for; who waits too
// long is told that the graph is saturated.
func TestTooManyWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, on("graph"), func(s *Spec) { s.Config.Graph.Expand.Auto, s.Config.Graph.Expand.Value = false, 1 })
		must(t, r.graph.permits.Acquire(t.Context()))
		refused(t, r.ask(http.MethodGet, "/graph/ann", ""), fault.Backpressure)
		if got := r.count(graphName, "queue_expired_total", "queue=graph_expand"); got != 1 {
			t.Errorf("%v are counted that waited for nothing", got)
		}
		r.graph.permits.Release()
		if answer := r.ask(http.MethodGet, "/graph/ann", ""); answer.Code != http.StatusOK {
			t.Errorf("with a permit: %d", answer.Code)
		}
	})
}

// broken is a graph that cannot be written to.
type broken struct {
	Graph
	err error
}

func (b *broken) Follow(ctx context.Context, x, y string) (bool, error) {
	if b.err != nil {
		return false, b.err
	}
	return b.Graph.Follow(ctx, x, y)
}

func (b *broken) Unfollow(ctx context.Context, x, y string) (bool, error) {
	if b.err != nil {
		return false, b.err
	}
	return b.Graph.Unfollow(ctx, x, y)
}

// TestReadinessKnowsOfTheDisk looks at readiness while the disk fails, is full,
// and works again.
func TestReadinessKnowsOfTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{}
		r := open(t, on("graph"), func(s *Spec) { b.Graph, s.Graph = s.Graph, b })
		synctest.Wait()
		expect := func(ready, write, degraded bool) {
			t.Helper()
			if v := r.readiness.Evaluate(); v.Ready != ready || v.WriteReady != write || v.Degraded != degraded {
				t.Errorf("readiness is %+v", v)
			}
		}
		expect(true, true, false)
		b.err = fault.New("test", fault.StorageBusy, "the disk failed")
		refused(t, r.ask(http.MethodPut, "/graph/ann/follows/bob", ""), fault.StorageBusy)
		expect(true, false, false)
		b.err = fault.New("test", fault.Malformed, "nothing of the disk's")
		refused(t, r.ask(http.MethodPut, "/graph/ann/follows/bob", ""), fault.Malformed)
		expect(true, false, false)
		b.err = fault.New("test", fault.StoreFull, "the disk is full")
		refused(t, r.ask(http.MethodDelete, "/graph/ann/follows/bob", ""), fault.StoreFull)
		expect(true, true, true)
		b.err = nil
		r.ask(http.MethodPut, "/graph/ann/follows/bob", "")
		expect(true, true, false)
	})
}

// TestALimitOfTheGraph is told to whoever meets it.
func TestALimitOfTheGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, on("graph"))
		for i := range DefaultConfig().Graph.MaxFollows {
			r.follow("ann", fmt.Sprint("n", i))
		}
		if next := refused(t, r.ask(http.MethodPut, "/graph/ann/follows/one-more", ""), fault.QuotaExceeded); !strings.Contains(next, "max_follows") {
			t.Errorf("the next step is %q", next)
		}
	})
}

var _ Graph = (*index.Graph)(nil)
