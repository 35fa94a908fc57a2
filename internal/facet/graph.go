package facet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// Graph is what its facet shows: who follows whom. An index.Graph knows.
type Graph interface {
	Follow(ctx context.Context, a, b string) (created bool, err error)
	Unfollow(ctx context.Context, a, b string) (removed bool, err error)
	Neighbours(ctx context.Context, node string, hops, most int, way index.Direction) (found []index.Near, truncated bool, err error)
	Size() (nodes, edges int)
}

// graph is the facet's own.
type graph struct {
	part

	// set at construction
	storage *observe.Dependency // nil if the facet is off
}

// openGraph makes what the facet needs.
func (f *Facets) openGraph() error {
	if err := f.graph.need("graph", f.spec.Graph != nil); err != nil || !f.graph.on {
		return err
	}
	f.graph.storage = f.spec.Readiness.Dependency(graphName, "edges", observe.ForWrites)
	f.graph.storage.Up()
	show := func(name, help string, value func(nodes, edges int) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(f.spec.Graph.Size())) })
	}
	f.graph.instruments.Register(
		show("graph_nodes", "Nodes that follow others or are followed.", func(nodes, _ int) int { return nodes }),
		show("graph_edges", "Who follows whom, counted.", func(_, edges int) int { return edges }))
	return nil
}

// graphRoutes lists the routes of the facet as if it were on.
func (f *Facets) graphRoutes() []ingress.Route {
	const edge = "/graph/{a}/follows/{b}"
	params := []ingress.Param{path("a", "Who follows: 1 to 128 bytes of UTF-8 in NFC, without slashes and control characters."), path("b", "Who is followed.")}
	kinds := []fault.Kind{fault.Malformed, fault.Busy, fault.StorageBusy, fault.StoreFull}
	return []ingress.Route{
		{
			Methods: []string{http.MethodPut}, Pattern: edge, Handler: f.putEdge, Class: ingress.Control, Scope: "graph:write", BodyCap: 1,
			Docs: ingress.Docs{Summary: "Make one follow another", Params: params,
				Description: "When it is answered, it is kept. Nobody follows itself.",
				Responses:   []ingress.Response{{Status: http.StatusCreated, Doc: "That is new."}, {Status: http.StatusNoContent, Doc: "It was so before."}},
				Kinds:       append(kinds, fault.QuotaExceeded)},
		},
		{
			Methods: []string{http.MethodDelete}, Pattern: edge, Handler: f.deleteEdge, Class: ingress.Control, Scope: "graph:write",
			Docs: ingress.Docs{Summary: "Make one not follow another", Params: params,
				Responses: []ingress.Response{{Status: http.StatusNoContent, Doc: "It does not follow, or never did."}}, Kinds: kinds},
		},
		{
			Methods: []string{http.MethodGet}, Pattern: "/graph/{node}", Handler: f.serveNeighbours, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "Those around a node, the nearest first",
				Description: "A node that nobody knows has nobody around it. The answer is truncated if there may be more: beyond max_neighbors, or beyond the edges that one question may walk.",
				Params: []ingress.Param{path("node", "The node in the middle."),
					query("hops", "How many steps away at most, from 1 to 3; 1 if not said."),
					query("max_neighbors", "At most so many; facets.graph.max_neighbors bounds it. 100 if not said."),
					{Name: "direction", In: "query", Type: "string", Doc: "follows, to those whom it follows, or followers, to those who follow it; follows if not said."}},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Neighbourhood{}}},
				Kinds:     []fault.Kind{fault.Malformed, fault.Backpressure, fault.Timeout}},
		},
	}
}

func (f *Facets) putEdge(w http.ResponseWriter, r *http.Request) error {
	a, b := r.PathValue("a"), r.PathValue("b")
	created, err := f.spec.Graph.Follow(r.Context(), a, b)
	f.graph.wrote(err)
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

func (f *Facets) deleteEdge(w http.ResponseWriter, r *http.Request) error {
	a, b := r.PathValue("a"), r.PathValue("b")
	removed, err := f.spec.Graph.Unfollow(r.Context(), a, b)
	f.graph.wrote(err)
	if err != nil {
		return err
	}
	if removed {
		f.audit(Event{Type: Unfollowed, Facet: graphName, Key: b})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// wrote tells readiness how writing goes. Only what is the disk's fault counts.
func (g *graph) wrote(err error) {
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

// usualNeighbours is how many neighbours are told if nobody says how many.
const usualNeighbours = 100

func (f *Facets) serveNeighbours(w http.ResponseWriter, r *http.Request) error {
	most := f.spec.Config.Graph.MaxNeighbors
	hops, err := number(r, "hops", 1, 1, index.MaxHops)
	if err != nil {
		return err
	}
	wanted, err := number(r, "max_neighbors", min(usualNeighbours, most), 1, most)
	if err != nil {
		return err
	}
	way := index.Direction(r.URL.Query().Get("direction"))
	if way == "" {
		way = index.Follows
	}
	told := client.Neighbourhood{Node: r.PathValue("node")}
	err = f.graph.under(r.Context(), func() error {
		found, truncated, err := f.spec.Graph.Neighbours(r.Context(), told.Node, hops, wanted, way)
		told.Truncated = truncated
		told.Neighbors = make([]client.Near, len(found))
		for i, one := range found {
			told.Neighbors[i] = client.Near(one)
		}
		return err
	})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, told)
}

// number reads a parameter of the query that is a number.
func number(r *http.Request, name string, usual, least, most int) (int, error) {
	values := r.URL.Query()
	if !values.Has(name) {
		return usual, nil
	}
	text := values.Get(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		const shown = 40
		err := fault.New("facet.http", fault.Malformed, "%q is no value for %s", text[:min(shown, len(text))], name)
		err.Next = fmt.Sprintf("Write a number from %d to %d.", least, most)
		return 0, err
	}
	return n, nil
}

func path(name, doc string) ingress.Param {
	return ingress.Param{Name: name, In: "path", Type: "string", Required: true, Doc: doc}
}

func query(name, doc string) ingress.Param {
	return ingress.Param{Name: name, In: "query", Type: "integer", Doc: doc}
}
