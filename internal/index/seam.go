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
	seamAnswer = "/part/index/answer"
	seamHas    = "/part/index/has"
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

// toldObjects is what came into the store in another process.
type toldObjects struct {
	Objects []b3.Address `json:"objects"`
}

// mostToldObjects is how many objects are told of at once.
const mostToldObjects = 256

// Seams lists the routes for the other parts of the node.
func (x *Index) Seams() []ingress.Route {
	route := func(pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: 64 << 10, Docs: ingress.Docs{Summary: summary, Kinds: []fault.Kind{fault.Malformed}}}
	}
	return []ingress.Route{
		route(seamAnswer, "What this node knows when a peer asks, for another part of the node", x.seamAnswer),
		route(seamHas, "Hear of objects that were put, from another part of the node", x.seamHas),
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
	if len(news.Objects) > mostToldObjects {
		return fault.New("index.has", fault.Malformed, "%d objects at once are more than %d", len(news.Objects), mostToldObjects)
	}
	for _, address := range news.Objects {
		x.Has(address)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
