package index

import (
	"cmp"
	"net/http"
	"slices"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// fetchesRoute lists what is being fetched.
func (x *Index) fetchesRoute() ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/fetches", Handler: x.handleFetches, Class: ingress.Control, Scope: "admin",
		Docs: ingress.Docs{Summary: "What the node is fetching in parts, and how far it is",
			Description: "Objects of more than 1 MiB, from their trees on. Those of which most is missing come first.",
			Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.FetchList{}}}, Kinds: []fault.Kind{fault.Malformed}},
	}
}

func (x *Index) handleFetches(w http.ResponseWriter, _ *http.Request) error {
	answer := client.FetchList{Fetches: []client.Fetch{}}
	for address, p := range x.arrivals.list() {
		one := client.Fetch{Address: address, Size: p.Size, Arrived: p.Arrived, Sources: p.Sources, Rate: p.Rate, Left: -1}
		if p.Rate > 0 {
			one.Left = (p.Size - p.Arrived + p.Rate - 1) / p.Rate
		}
		answer.Fetches = append(answer.Fetches, one)
	}
	slices.SortFunc(answer.Fetches, func(a, b client.Fetch) int {
		return cmp.Or(cmp.Compare(b.Size-b.Arrived, a.Size-a.Arrived), slices.Compare(a.Address[:], b.Address[:]))
	})
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, answer)
}
