package facet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/graph"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// Graph is what the facet serves: the follow graph. An graph.Graph implements
// it.
type Graph interface {
	Follow(ctx context.Context, a, b string) (created bool, err error)
	Unfollow(ctx context.Context, a, b string) (removed bool, err error)
	Neighbours(ctx context.Context, node string, hops, most int, way graph.Direction) (found []graph.NearNode, truncated bool, err error)
	Size() (nodes, edges int)
}

// graphFacet is the state of the graph facet.
type graphFacet struct {
	facetBase

	// set at construction
	storage *observe.Dependency // nil if the facet is off
}

// openGraph makes the dependency and the metrics of the facet.
func (f *Facets) openGraph() error {
	if err := f.graph.requireOwner("graph", f.spec.Graph != nil); err != nil || !f.graph.on {
		return err
	}
	f.graph.storage = f.spec.Readiness.Dependency(graphName, "edges", observe.ForWrites)
	f.graph.storage.Up()
	show := func(name, help string, value func(nodes, edges int) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(f.spec.Graph.Size())) })
	}
	f.graph.instruments.Register(
		show("graph_nodes", "Nodes that follow others or are followed.", func(nodes, _ int) int { return nodes }),
		show("graph_edges", "Edges of the graph of followers.", func(_, edges int) int { return edges }))
	return nil
}

// graphRoutes lists the routes of the facet as if it were on.
func (f *Facets) graphRoutes() []ingress.Route {
	const edge = "/graph/{a}/follows/{b}"
	params := []ingress.Param{pathParam("a", "The follower: 1 to 128 bytes of UTF-8 in NFC, without slashes and control characters."), pathParam("b", "The node to follow.")}
	kinds := []fault.Kind{fault.Malformed, fault.Busy, fault.StorageBusy, fault.StoreFull}
	return []ingress.Route{
		{
			Methods: []string{http.MethodPut}, Pattern: edge, Handler: f.handleFollow, Class: ingress.Control, Scope: "graph:write", BodyCap: 1,
			Docs: ingress.Docs{Summary: "Follow a node", Params: params,
				Description: "When the response arrives, the edge is stored. A node cannot follow itself.",
				Responses:   []ingress.Response{{Status: http.StatusCreated, Doc: "Created."}, {Status: http.StatusNoContent, Doc: "Already followed."}},
				Kinds:       append(kinds, fault.QuotaExceeded)},
		},
		{
			Methods: []string{http.MethodDelete}, Pattern: edge, Handler: f.handleUnfollow, Class: ingress.Control, Scope: "graph:write",
			Docs: ingress.Docs{Summary: "Unfollow a node", Params: params,
				Responses: []ingress.Response{{Status: http.StatusNoContent, Doc: "Removed, or never followed."}}, Kinds: kinds},
		},
		{
			Methods: []string{http.MethodGet}, Pattern: "/graph/{node}", Handler: f.handleNeighbours, Public: ingress.OnThisMachine, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "The neighbours of a node, nearest first",
				Description: "An unknown node has no neighbours. The answer is truncated if there may be more: beyond max_neighbors, or beyond facets.graph.walk_edges.",
				Params: []ingress.Param{pathParam("node", "The node to start from."),
					queryParam("hops", "The maximum distance, from 1 to 3; default 1."),
					queryParam("max_neighbors", "The maximum number, up to facets.graph.max_neighbors; default 100."),
					{Name: "direction", In: "query", Type: "string", Doc: "follows lists the nodes that it follows, followers lists its followers; default follows."}},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Neighbourhood{}}},
				Kinds:     []fault.Kind{fault.Malformed, fault.Busy, fault.Backpressure, fault.Timeout}},
		},
	}
}

func (f *Facets) handleFollow(w http.ResponseWriter, r *http.Request) error {
	a, b := r.PathValue("a"), r.PathValue("b")
	created, err := f.spec.Graph.Follow(r.Context(), a, b)
	f.graph.reportWrite(err)
	if err != nil {
		return err
	}
	status := http.StatusNoContent
	if created {
		status = http.StatusCreated
		f.audit(Event{Type: Followed, Facet: graphName, Key: b})
	}
	w.WriteHeader(status)
	return nil
}

func (f *Facets) handleUnfollow(w http.ResponseWriter, r *http.Request) error {
	a, b := r.PathValue("a"), r.PathValue("b")
	removed, err := f.spec.Graph.Unfollow(r.Context(), a, b)
	f.graph.reportWrite(err)
	if err != nil {
		return err
	}
	if removed {
		f.audit(Event{Type: Unfollowed, Facet: graphName, Key: b})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reportWrite updates readiness with the result of a write. Only errors of the
// disk count.
func (g *graphFacet) reportWrite(err error) {
	switch fault.KindOf(err) {
	case fault.StorageBusy:
		g.storage.Down(fault.DetailOf(err), fault.NextOf(err))
	case fault.StoreFull:
		g.storage.Degraded(fault.DetailOf(err), fault.NextOf(err))
	default:
		if err == nil {
			g.storage.Up()
		}
	}
}

// defaultNeighbours is how many neighbours are returned if the request has no
// limit.
const defaultNeighbours = 100

// neighboursResponse is the nodes around a node.
type neighboursResponse struct {
	Node      string           `json:"node"`
	Neighbors []graph.NearNode `json:"neighbors"` // the nearest first
	Truncated bool             `json:"truncated"` // there may be more
}

func (f *Facets) handleNeighbours(w http.ResponseWriter, r *http.Request) error {
	most := f.spec.Config.Graph.MaxNeighbors
	hops, err := queryInt(r, "hops", 1, 1, graph.MaxHops)
	if err != nil {
		return err
	}
	wanted, err := queryInt(r, "max_neighbors", min(defaultNeighbours, most), 1, most)
	if err != nil {
		return err
	}
	direction := graph.Direction(r.URL.Query().Get("direction"))
	if direction == "" {
		direction = graph.Follows
	}
	response := neighboursResponse{Node: r.PathValue("node")}
	err = f.withTurn(&f.graph.facetBase, r, func() error {
		found, truncated, err := f.spec.Graph.Neighbours(r.Context(), response.Node, hops, wanted, direction)
		response.Neighbors, response.Truncated = append([]graph.NearNode{}, found...), truncated // a list in JSON, even without any
		return err
	})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, response)
}

// queryInt parses an integer parameter of the query.
func queryInt(r *http.Request, name string, fallback, least, most int) (int, error) {
	values := r.URL.Query()
	if !values.Has(name) {
		return fallback, nil
	}
	text := values.Get(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		const shown = 40
		return 0, fault.New("facet.http", fault.Malformed, "%q is not a valid value for %s", text[:min(shown, len(text))], name).
			Advise(fmt.Sprintf("Write a number from %d to %d.", least, most))
	}
	return n, nil
}

func pathParam(name, doc string) ingress.Param {
	return ingress.Param{Name: name, In: "path", Type: "string", Required: true, Doc: doc}
}

func queryParam(name, doc string) ingress.Param {
	return ingress.Param{Name: name, In: "query", Type: "integer", Doc: doc}
}
