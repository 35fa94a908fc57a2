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
	"micronode/internal/graph"
	"micronode/internal/testkit"
)

func TestWhoFollowsWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, enable("graph"))
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
			if answer := r.request(c.method, c.path, ""); answer.Code != c.status {
				t.Errorf("%s %s: %d %s", c.method, c.path, answer.Code, answer.Body)
			}
		}
		synctest.Wait()
		if follows, unfollows := r.eventsOf(Followed), r.eventsOf(Unfollowed); len(follows) != 3 || len(unfollows) != 1 || unfollows[0].Key != "dot" || unfollows[0].Facet != graphName || unfollows[0].Time.IsZero() {
			t.Errorf("for the record: %+v and %+v", follows, unfollows)
		}
		if nodes, edges := r.metric(graphName, "graph_nodes"), r.metric(graphName, "graph_edges"); nodes != 3 || edges != 2 {
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
			got := expectJSON[client.Neighbourhood](t, r.request(http.MethodGet, path, ""), http.StatusOK)
			if got.Node != want.Node || got.Truncated != want.Truncated || got.Neighbors == nil || !slices.Equal(got.Neighbors, want.Neighbors) {
				t.Errorf("%s: %+v, want %+v", path, got, want)
			}
		}
	})
}

func TestWhatIsNoEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, enable("graph"), func(s *Spec) { s.Config.Graph.MaxNeighbors = 10 })
		for _, path := range []string{"/graph/ann/follows/ann", "/graph/a%2Fb/follows/c", "/graph/ann/follows/" + strings.Repeat("a", 129), "/graph/e%CC%81/follows/ann"} {
			expectRefusal(t, r.request(http.MethodPut, path, ""), fault.Malformed)
			expectRefusal(t, r.request(http.MethodDelete, path, ""), fault.Malformed)
		}
		for _, path := range []string{"/graph/ann?hops=0", "/graph/ann?hops=4", "/graph/ann?hops=", "/graph/ann?max_neighbors=11", "/graph/ann?max_neighbors=0", "/graph/ann?direction=up", "/graph/a%2Fb"} {
			expectRefusal(t, r.request(http.MethodGet, path, ""), fault.Malformed)
		}
		if next := expectRefusal(t, r.request(http.MethodGet, "/graph/ann?max_neighbors="+strings.Repeat("9", 99), ""), fault.Malformed); !strings.Contains(next, "1 to 10") {
			t.Errorf("the next step is %q", next)
		}
	})
}

// TestTooManyWalks: no more walks run than may; a request that waits too long
// for its turn gets Backpressure.
func TestTooManyWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, enable("graph"), func(s *Spec) { s.Config.Graph.Expand.Auto, s.Config.Graph.Expand.Value = false, 1 })
		testkit.Must(t, r.graph.turns.Enter(t.Context(), 0))
		expectRefusal(t, r.request(http.MethodGet, "/graph/ann", ""), fault.Backpressure)
		if got := r.metric(graphName, "queue_expired_total", "queue=graph_expand"); got != 1 {
			t.Errorf("%v are counted that waited for nothing", got)
		}
		r.graph.turns.Leave(0)
		if answer := r.request(http.MethodGet, "/graph/ann", ""); answer.Code != http.StatusOK {
			t.Errorf("when nobody else walks: %d", answer.Code)
		}
	})
}

// failingGraph is a graph that cannot be written to.
type failingGraph struct {
	Graph
	err error
}

func (f *failingGraph) Follow(ctx context.Context, x, y string) (bool, error) {
	if f.err != nil {
		return false, f.err
	}
	return f.Graph.Follow(ctx, x, y)
}

func (f *failingGraph) Unfollow(ctx context.Context, x, y string) (bool, error) {
	if f.err != nil {
		return false, f.err
	}
	return f.Graph.Unfollow(ctx, x, y)
}

// TestReadinessKnowsOfTheDisk looks at readiness while the disk fails, is full,
// and works again.
func TestReadinessKnowsOfTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &failingGraph{}
		r := open(t, enable("graph"), func(s *Spec) { b.Graph, s.Graph = s.Graph, b })
		synctest.Wait()
		expect := func(ready, write, degraded bool) {
			t.Helper()
			if v := r.readiness.Evaluate(); v.Ready != ready || v.WriteReady != write || v.Degraded != degraded {
				t.Errorf("readiness is %+v", v)
			}
		}
		expect(true, true, false)
		b.err = fault.New("test", fault.StorageBusy, "the disk failed")
		expectRefusal(t, r.request(http.MethodPut, "/graph/ann/follows/bob", ""), fault.StorageBusy)
		expect(true, false, false)
		b.err = fault.New("test", fault.Malformed, "nothing of the disk's")
		expectRefusal(t, r.request(http.MethodPut, "/graph/ann/follows/bob", ""), fault.Malformed)
		expect(true, false, false)
		b.err = fault.New("test", fault.StoreFull, "the disk is full")
		expectRefusal(t, r.request(http.MethodDelete, "/graph/ann/follows/bob", ""), fault.StoreFull)
		expect(true, true, true)
		b.err = nil
		r.request(http.MethodPut, "/graph/ann/follows/bob", "")
		expect(true, true, false)
	})
}

// TestALimitOfTheGraph: a request over a limit gets the limit's error.
func TestALimitOfTheGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, enable("graph"))
		for i := range DefaultConfig().Graph.MaxFollows {
			r.follow("ann", fmt.Sprint("n", i))
		}
		if next := expectRefusal(t, r.request(http.MethodPut, "/graph/ann/follows/one-more", ""), fault.QuotaExceeded); !strings.Contains(next, "max_follows") {
			t.Errorf("the next step is %q", next)
		}
	})
}

var _ Graph = (*graph.Graph)(nil)
