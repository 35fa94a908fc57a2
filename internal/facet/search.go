package facet

import (
	"context"
	"net/http"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/supervise"
)

// Library is who knows what can be searched. An index.Library does, and so does
// the index.Remote of one in another process.
type Library interface {
	Search(ctx context.Context, query string, limit, offset int) (client.SearchResults, error)
}

// search is the facet's own.
type search struct{ part }

// fewHits is how many are given to who does not say how many.
const fewHits = 20

func (f *Facets) openSearch(*flow.Inventory, *supervise.Supervisor, Stages) error {
	return f.search.need("library", f.spec.Library != nil)
}

func (f *Facets) searchRoutes() []ingress.Route {
	return []ingress.Route{{
		Methods: []string{http.MethodGet}, Pattern: "/search", Handler: f.serveSearch, Class: ingress.Control,
		Docs: ingress.Docs{Summary: "Find names, files and texts by words",
			Description: `All words must be there. "Two words" follow each other, -one must not be there, begin* is how words begin (two letters or more), and name:, path: and text: say where to look. Whatever else is written is taken as words.`,
			Params: []ingress.Param{
				{Name: "q", In: "query", Type: "string", Required: true, Doc: "What to look for, 1 KiB and 32 parts at most."},
				query("limit", "How many hits, from 1 to 100; 20 if not said."),
				query("offset", "How many to pass over. None beyond the first 10000 can be had."),
			},
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.SearchResults{}}},
			Kinds:     []fault.Kind{fault.Malformed, fault.Backpressure, fault.Timeout, fault.Canceled, fault.NotReady, fault.UpstreamFailed}},
	}}
}

func (f *Facets) serveSearch(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", fewHits, 1, index.MaxHits)
	if err != nil {
		return err
	}
	offset, err := number(r, "offset", 0, 0, index.MaxDepth-1)
	if err != nil {
		return err
	}
	var found client.SearchResults
	err = f.search.under(r.Context(), func() (err error) {
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
