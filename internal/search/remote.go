package search

import (
	"context"
	"net/http"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which another process of the same node searches. They belong to
// the part index, in whose process the search runs.
const (
	hostPart   = "index"
	searchPath = "/part/index/search"
	sizePath   = "/part/index/library"
)

// searchRequest is a query.
type searchRequest struct {
	Query  string `json:"query"`
	Limit  int    `json:"limit"`
	Offset int    `json:"offset,omitempty"`
}

// sizeResponse is the size of the search index.
type sizeResponse struct {
	Documents int64 `json:"documents"`
	Bytes     int64 `json:"bytes"`
}

// PartRoutes lists the routes for the other parts of the node. A nil Search has
// them, too: they answer that search is off.
func (s *Search) PartRoutes() []ingress.Route {
	route := func(pattern, summary string, handler ingress.Handler, kinds ...fault.Kind) ingress.Route {
		return ingress.Route{Service: hostPart, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: 64 << 10, Docs: ingress.Docs{Summary: summary + ", for another part of the node", Kinds: append(kinds, fault.Malformed, fault.NotReady)}}
	}
	return []ingress.Route{
		route(searchPath, "Find something by words", s.handleSearch, fault.Backpressure, fault.Timeout),
		route(sizePath, "How much can be found by words", s.handleSize),
	}
}

// errOff is the answer of an index without search.
var errOff = &fault.Error{Op: "index.search", Kind: fault.NotReady, Detail: "search is disabled in the process of the index", RetryAfter: time.Second,
	Next: "Set facets.search.enabled = true in the configuration of the index process, and restart it."}

func (s *Search) handleSearch(w http.ResponseWriter, r *http.Request) error {
	var asked searchRequest
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if s == nil {
		return errOff
	}
	found, err := s.Search(r.Context(), asked.Query, asked.Limit, asked.Offset)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, found)
}

func (s *Search) handleSize(w http.ResponseWriter, _ *http.Request) error {
	if s == nil {
		return errOff
	}
	documents, bytes := s.spec.Engine.Size()
	return ingress.WriteJSON(w, http.StatusOK, sizeResponse{documents, bytes})
}

// Remote is the search in another process of the same node.
type Remote struct {
	client *client.Client // set at construction
}

// NewRemote makes a Remote over a client.
func NewRemote(to *client.Client) *Remote { return &Remote{to} }

// Search runs a query in the other process. A malformed query is rejected here.
func (r *Remote) Search(ctx context.Context, text string, limit, offset int) (found Results, err error) {
	if _, err := ParseQuery(text); err != nil {
		return Results{}, err
	}
	err = r.client.CallPart(ctx, "library.search", hostPart, searchPath, searchRequest{text, limit, offset}, &found)
	return found, err
}

// Ready returns why the other process cannot search, or nil.
func (r *Remote) Ready(ctx context.Context) error {
	return r.client.CallPart(ctx, "library.search", hostPart, sizePath, nil, nil)
}
