package index

import (
	"context"
	"net/http"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which the graph is used from another process of the same node.
const (
	seamFollowers = "/part/graph/followers"
	seamTies      = "/part/graph/ties"
)

// How much of a graph is told at once. Both fit into an answer, or a request, of
// 1 MiB, whatever JSON makes of the names.
const (
	mostToldFollowers = 1024
	mostToldTies      = 1024
)

// toldCrowd asks for those who follow a node, a page of them.
type toldCrowd struct {
	Of    string `json:"of"`
	After string `json:"after,omitempty"`
	Limit int    `json:"limit"`
}

// toldFollowers is that page.
type toldFollowers struct {
	Followers []string `json:"followers"`
}

// toldPair asks what is between a node and others.
type toldPair struct {
	Node   string   `json:"node"`
	Others []string `json:"others"`
}

// toldTies is the answer, in the order of the others.
type toldTies struct {
	Ties []Tie `json:"ties"`
}

// Seams lists the routes for the other parts of the node.
func (g *Graph) Seams() []ingress.Route {
	route := func(pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: "graph", Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: 1 << 20, Docs: ingress.Docs{Summary: summary + ", for another part of the node", Kinds: []fault.Kind{fault.Malformed}}}
	}
	return []ingress.Route{
		route(seamFollowers, "Who follows a node, in the order of their names", g.seamFollowers),
		route(seamTies, "What is between a node and others", g.seamTies),
	}
}

func (g *Graph) seamFollowers(w http.ResponseWriter, r *http.Request) error {
	var asked toldCrowd
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if asked.Limit < 1 || asked.Limit > mostToldFollowers {
		return badGraph("Ask for 1 to 1024 at a time.", "%d followers at once", asked.Limit)
	}
	followers, err := g.Followers(r.Context(), asked.Of, asked.After, asked.Limit)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, toldFollowers{followers})
}

func (g *Graph) seamTies(w http.ResponseWriter, r *http.Request) error {
	var asked toldPair
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if len(asked.Others) > mostToldTies {
		return badGraph("Ask for 1024 or fewer at a time.", "%d ties at once", len(asked.Others))
	}
	ties, err := g.Ties(r.Context(), asked.Node, asked.Others)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, toldTies{ties})
}

// RemoteGraph is the graph in another process of the same node, as far as others
// need it: who gets a post, and what a reader is to an author. It remembers
// nothing, so that who has just been unfollowed is.
type RemoteGraph struct {
	client *client.Client // set at construction
}

// NewRemoteGraph makes a graph of the one that a client reaches.
func NewRemoteGraph(to *client.Client) *RemoteGraph { return &RemoteGraph{to} }

// Followers lists those who follow a node, at most limit of them after a name.
func (g *RemoteGraph) Followers(ctx context.Context, b, after string, limit int) ([]string, error) {
	var told toldFollowers
	err := callPart(ctx, g.client, "index.followers", "graph", seamFollowers, toldCrowd{b, after, limit}, &told)
	return told.Followers, err
}

// Ties tells what is between a node and others, in their order.
func (g *RemoteGraph) Ties(ctx context.Context, a string, others []string) ([]Tie, error) {
	const op = "index.ties"
	if len(others) == 0 {
		return nil, nil
	}
	var told toldTies
	if err := callPart(ctx, g.client, op, "graph", seamTies, toldPair{a, others}, &told); err != nil {
		return nil, err
	}
	if len(told.Ties) != len(others) {
		return nil, fault.New(op, fault.UpstreamFailed, "%d answers to %d questions", len(told.Ties), len(others))
	}
	return told.Ties, nil
}

// callPart asks a part of the node in another process. That it drains is not our
// end: for us, it is away.
func callPart(ctx context.Context, to *client.Client, op, part, path string, in, out any) error {
	err := to.Call(ctx, http.MethodPost, path, in, out)
	if fault.KindOf(err) == fault.Canceled && ctx.Err() == nil {
		return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the part " + part + " is going away", RetryAfter: time.Second, Err: err,
			Next: "Start it again with `micronode run --only " + part + "`; it is asked again by itself."}
	}
	return fault.Wrap(op, err)
}
