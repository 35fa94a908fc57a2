package facet

import (
	"context"
	"net/http"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/search"
	"micronode/internal/supervise"
)

// Library searches what this node has. A search.Search implements it, and so
// does the search.Remote of one in another process.
type Library interface {
	Search(ctx context.Context, query string, limit, offset int) (search.Results, error)
}

// searchFacet is the state of the search facet.
type searchFacet struct{ facetBase }

// defaultHits is how many hits are returned if the request has no limit.
const defaultHits = 20

func (f *Facets) openSearch(*flow.Inventory, *supervise.Supervisor, Stages) error {
	return f.search.requireOwner("library", f.spec.Library != nil)
}

func (f *Facets) searchRoutes() []ingress.Route {
	return []ingress.Route{{
		Methods: []string{http.MethodGet}, Pattern: "/search", Handler: f.handleSearch, Public: ingress.OnThisMachine, Class: ingress.Control,
		Docs: ingress.Docs{Summary: "Search names, files and texts",
			Description: `All words must match. "Two words" is a phrase, -one excludes a word, begin* matches a prefix (two letters or more), and name:, path: and text: restrict a word to a field. Everything else is read as words.`,
			Params: []ingress.Param{
				{Name: "q", In: "query", Type: "string", Required: true, Doc: "The query, at most 1 KiB and 32 parts."},
				queryParam("limit", "The maximum number of hits, from 1 to 100; default 20."),
				queryParam("offset", "The number of hits to skip, within the first 10000."),
			},
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.SearchResults{}}},
			Kinds:     []fault.Kind{fault.Malformed, fault.Busy, fault.Backpressure, fault.Timeout, fault.Canceled, fault.NotReady, fault.UpstreamFailed}},
	}}
}

func (f *Facets) handleSearch(w http.ResponseWriter, r *http.Request) error {
	limit, err := queryInt(r, "limit", defaultHits, 1, search.MaxHits)
	if err != nil {
		return err
	}
	offset, err := queryInt(r, "offset", 0, 0, search.MaxDepth-1)
	if err != nil {
		return err
	}
	var found search.Results
	err = f.withTurn(&f.search.facetBase, r, func() (err error) {
		found, err = f.spec.Library.Search(r.Context(), r.URL.Query().Get("q"), limit, offset)
		return err
	})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, found)
}

func (f *Facets) addSearch(*supervise.Supervisor, Stages) error { return nil }

func (f *Facets) closeSearch() error { return nil }
