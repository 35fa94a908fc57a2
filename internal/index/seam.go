package index

import (
	"net/http"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

// The routes by which the index is used from another process of the same node.
// Resolving and fetching go by the routes that everybody has.
const (
	seamAnswer  = "/part/index/answer"
	seamHas     = "/part/index/has"
	seamSearch  = "/part/index/search"
	seamLibrary = "/part/index/library"
)

// toldQuestion is what a peer asked the overlay in another process.
type toldQuestion struct {
	ID string `json:"id"`
}

// toldAnswer is what this node knows of it.
type toldAnswer struct {
	Providers []toldProvider `json:"providers"`
	Record    []byte         `json:"record,omitempty"` // of the name, as its owner signed it
}

type toldProvider struct {
	ID      string        `json:"id"`
	Overlay []string      `json:"overlay,omitempty"`
	HTTP    []string      `json:"http,omitempty"`
	Other   []string      `json:"other,omitempty"`
	Region  string        `json:"region,omitempty"`
	Seen    time.Time     `json:"seen,omitzero"`
	Source  record.Source `json:"source,omitempty"`
}

func tellAnswer(answer record.Answer) toldAnswer {
	told := toldAnswer{Providers: make([]toldProvider, len(answer.Providers))}
	for i, p := range answer.Providers {
		told.Providers[i] = toldProvider(p)
	}
	if answer.Name != nil {
		told.Record = answer.Name.Encode()
	}
	return told
}

// answer reads it again. A record is checked as if a stranger had sent it.
func (t toldAnswer) answer() (answer record.Answer, err error) {
	for _, p := range t.Providers {
		answer.Providers = append(answer.Providers, record.Provider(p))
	}
	if len(t.Record) > 0 {
		name, err := record.DecodeName(t.Record)
		if err != nil {
			return record.Answer{}, err
		}
		answer.Name = &name
	}
	return answer, nil
}

// toldObjects is what came into the store in another process, and what went.
type toldObjects struct {
	Objects []b3.Address `json:"objects"`
	Gone    []b3.Address `json:"gone,omitempty"`
	Missed  bool         `json:"missed,omitempty"` // there was more than could be told
}

// toldQuery is what somebody looks for.
type toldQuery struct {
	Query  string `json:"query"`
	Limit  int    `json:"limit"`
	Offset int    `json:"offset,omitempty"`
}

// toldLibrary is how much can be found.
type toldLibrary struct {
	Documents int64 `json:"documents"`
	Bytes     int64 `json:"bytes"`
}

// mostToldObjects is how many objects are told of at once.
const mostToldObjects = 256

// Seams lists the routes for the other parts of the node.
func (x *Index) Seams() []ingress.Route {
	route := func(pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: 64 << 10, Docs: ingress.Docs{Summary: summary, Kinds: []fault.Kind{fault.Malformed}}}
	}
	search := route(seamSearch, "Find something by words, for another part of the node", x.seamSearch)
	search.Docs.Kinds = append(search.Docs.Kinds, fault.NotReady, fault.Backpressure, fault.Timeout)
	library := route(seamLibrary, "How much can be found by words, for another part of the node", x.seamLibrary)
	library.Docs.Kinds = append(library.Docs.Kinds, fault.NotReady)
	return []ingress.Route{
		route(seamAnswer, "What this node knows when a peer asks, for another part of the node", x.seamAnswer),
		route(seamHas, "Hear of objects that were put or removed, from another part of the node", x.seamHas),
		search, library,
	}
}

func (x *Index) seamAnswer(w http.ResponseWriter, r *http.Request) error {
	var asked toldQuestion
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	id, err := record.ParseID(asked.ID)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, tellAnswer(x.Answer(id.Question(x.self))))
}

func (x *Index) seamHas(w http.ResponseWriter, r *http.Request) error {
	var news toldObjects
	if err := ingress.DecodeJSON(r, &news); err != nil {
		return err
	}
	if n := len(news.Objects) + len(news.Gone); n > mostToldObjects {
		return fault.New("index.has", fault.Malformed, "%d objects at once are more than %d", n, mostToldObjects)
	}
	for _, address := range news.Objects {
		x.Has(address)
	}
	if library := x.spec.Library; library != nil {
		library.hear(news)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// library is the one that this process has, or why it has none.
func (x *Index) library() (*Library, error) {
	if x.spec.Library == nil {
		return nil, &fault.Error{Op: "index.search", Kind: fault.NotReady, Detail: "the index catalogues nothing: the facet search is off in its process", RetryAfter: time.Second,
			Next: "Set facets.search.enabled = true in the configuration of the process of the index, and start that again."}
	}
	return x.spec.Library, nil
}

func (x *Index) seamSearch(w http.ResponseWriter, r *http.Request) error {
	var asked toldQuery
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	library, err := x.library()
	if err != nil {
		return err
	}
	found, err := library.Search(r.Context(), asked.Query, asked.Limit, asked.Offset)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, found)
}

func (x *Index) seamLibrary(w http.ResponseWriter, _ *http.Request) error {
	library, err := x.library()
	if err != nil {
		return err
	}
	documents, bytes := library.spec.Searcher.Size()
	return ingress.WriteJSON(w, http.StatusOK, toldLibrary{documents, bytes})
}
