package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"micronode/fault"
)

// The two directions in which a graph is walked.
const (
	DirectionFollows   = "follows"   // to the nodes that a node follows
	DirectionFollowers = "followers" // to the nodes that follow it
)

// Near is a node that was found near another.
type Near struct {
	ID   string `json:"id"`
	Hops int    `json:"hops"` // how many steps away it is
}

// Neighbourhood is the answer of GET /graph/{node}.
type Neighbourhood struct {
	Node      string `json:"node"`
	Neighbors []Near `json:"neighbors"` // the nearest first
	Truncated bool   `json:"truncated"` // there may be more
}

// graphCall is a call about nodes of the graph, whose names are the odd parts
// of a path.
func (c *Client) graphCall(ctx context.Context, op, method string, parts ...string) (*call, error) {
	path := ""
	for i, part := range parts {
		if i%2 == 1 && isUnroutable(part) {
			return nil, fault.New(op, fault.Malformed, "%q is not the name of a user or node", part).
				Advise("Give a name of 1 to 128 bytes, without slashes.")
		}
		path += "/" + url.PathEscape(part)
	}
	return c.newCall(ctx, op, method, path), nil
}

// Follow makes one node of the graph follow another, and reports whether that
// is new; if an answer was lost and the call repeated, it may report false. It
// requires the scope graph:write.
func (c *Client) Follow(ctx context.Context, a, b string) (created bool, err error) {
	k, err := c.graphCall(ctx, "client.follow", http.MethodPut, "graph", a, "follows", b)
	if err != nil {
		return false, err
	}
	k.accepts = func(answer *http.Response) bool {
		created = answer.StatusCode == http.StatusCreated
		return isSuccess(answer)
	}
	err = k.doJSON(ctx, nil, nil)
	return created && err == nil, err
}

// Unfollow makes one node not follow another. If it did not follow it, that is
// no error. It requires the scope graph:write.
func (c *Client) Unfollow(ctx context.Context, a, b string) error {
	k, err := c.graphCall(ctx, "client.unfollow", http.MethodDelete, "graph", a, "follows", b)
	if err != nil {
		return err
	}
	return k.doJSON(ctx, nil, nil)
}

// NeighboursOptions are the options of Neighbours. All are optional.
type NeighboursOptions struct {
	Hops      int    // steps, from 1 to 3; 0 uses the node's default
	Max       int    // maximum number of neighbours; 0 uses the node's default
	Direction string // DirectionFollows or DirectionFollowers; empty is the first
}

func (o NeighboursOptions) query() string {
	values := url.Values{}
	if o.Hops != 0 {
		values.Set("hops", strconv.Itoa(o.Hops))
	}
	if o.Max != 0 {
		values.Set("max_neighbors", strconv.Itoa(o.Max))
	}
	if o.Direction != "" {
		values.Set("direction", o.Direction)
	}
	return queryOf(values)
}

// queryOf is the query of a URL with its question mark, or "" without
// parameters.
func queryOf(values url.Values) string {
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// Neighbours returns the nodes around a node of the graph. An unknown node has
// no neighbours, which is an answer and no error.
func (c *Client) Neighbours(ctx context.Context, node string, o NeighboursOptions) (Neighbourhood, error) {
	k, err := c.graphCall(ctx, "client.neighbours", http.MethodGet, "graph", node)
	if err != nil {
		return Neighbourhood{}, err
	}
	k.path += o.query()
	var answer Neighbourhood
	if err := k.doJSON(ctx, nil, &answer); err != nil {
		return Neighbourhood{}, err
	}
	if answer.Node != node {
		return Neighbourhood{}, k.unexpected(nil, "it is about %q, not %q", answer.Node, node)
	}
	return answer, nil
}
