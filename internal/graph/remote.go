package graph

import (
	"context"
	"net/http"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which another process of the same node uses the graph.
const (
	followersPath = "/part/graph/followers"
	relationsPath = "/part/graph/ties"
)

// Limits of one request. Both fit into an answer, or a request, of 1 MiB,
// whatever escaping JSON needs.
const (
	maxFollowersPerPage    = 1024
	maxRelationsPerRequest = 1024
)

// followersRequest asks for a page of the followers of a node.
type followersRequest struct {
	Of    string `json:"of"`
	After string `json:"after,omitempty"`
	Limit int    `json:"limit"`
}

// followersResponse is that page.
type followersResponse struct {
	Followers []string `json:"followers"`
}

// relationsRequest asks for the relations between a node and others.
type relationsRequest struct {
	Node   string   `json:"node"`
	Others []string `json:"others"`
}

// relationsResponse is the answer, in the order of the others.
type relationsResponse struct {
	Ties []Relation `json:"ties"`
}

// PartRoutes lists the routes for the other parts of the node.
func (g *Graph) PartRoutes() []ingress.Route {
	route := func(pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: 1 << 20, Docs: ingress.Docs{Summary: summary + ", for another part of the node", Kinds: []fault.Kind{fault.Malformed}}}
	}
	return []ingress.Route{
		route(followersPath, "The followers of a node, sorted by name", g.handleFollowers),
		route(relationsPath, "The ties between a node and others", g.handleRelations),
	}
}

func (g *Graph) handleFollowers(w http.ResponseWriter, r *http.Request) error {
	var asked followersRequest
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if asked.Limit < 1 || asked.Limit > maxFollowersPerPage {
		return malformed("Ask for 1 to 1024 at a time.", "%d followers at once", asked.Limit)
	}
	followers, err := g.Followers(r.Context(), asked.Of, asked.After, asked.Limit)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, followersResponse{followers})
}

func (g *Graph) handleRelations(w http.ResponseWriter, r *http.Request) error {
	var asked relationsRequest
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if len(asked.Others) > maxRelationsPerRequest {
		return malformed("Ask for 1024 or fewer at a time.", "%d ties at once", len(asked.Others))
	}
	ties, err := g.Relations(r.Context(), asked.Node, asked.Others)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, relationsResponse{ties})
}

// Remote is the graph in another process of the same node, as far as
// others need it: the receivers of a post, and the relation of a reader to an
// author. It caches nothing, so that an unfollow takes effect at once.
type Remote struct {
	client *client.Client // set at construction
}

// NewRemote makes a Remote over a client.
func NewRemote(to *client.Client) *Remote { return &Remote{to} }

// Followers lists the followers of a node, at most limit of them after a name.
func (r *Remote) Followers(ctx context.Context, b, after string, limit int) ([]string, error) {
	var response followersResponse
	err := r.client.CallPart(ctx, "index.followers", service, followersPath, followersRequest{b, after, limit}, &response)
	return response.Followers, err
}

// Relations returns the relations between a node and others, in their order.
func (r *Remote) Relations(ctx context.Context, a string, others []string) ([]Relation, error) {
	const op = "index.ties"
	if len(others) == 0 {
		return nil, nil
	}
	var response relationsResponse
	if err := r.client.CallPart(ctx, op, service, relationsPath, relationsRequest{a, others}, &response); err != nil {
		return nil, err
	}
	if len(response.Ties) != len(others) {
		return nil, fault.New(op, fault.UpstreamFailed, "%d answers to %d questions", len(response.Ties), len(others))
	}
	return response.Ties, nil
}
