package index

import (
	"net/http"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

// The routes by which another process of the same node uses the index. It
// resolves, fetches and reads what arrives by the public routes.
const (
	answerPath  = "/part/index/answer"
	objectsPath = "/part/index/has"
	beginPath   = "/part/index/begin"
)

// answerRequest is a question of a peer to the overlay in another process.
type answerRequest struct {
	ID string `json:"id"`
}

// answerResponse is what this node knows.
type answerResponse struct {
	Providers []record.Provider `json:"providers"`
	Record    []byte            `json:"record,omitempty"` // of the name, as its owner signed it
}

func newAnswerResponse(answer record.Answer) answerResponse {
	out := answerResponse{Providers: append([]record.Provider{}, answer.Providers...)} // a list, even if it is empty
	if answer.Name != nil {
		out.Record = answer.Name.Encode()
	}
	return out
}

// decode converts it back. The record is verified like one from an untrusted
// peer.
func (a answerResponse) decode() (record.Answer, error) {
	answer := record.Answer{Providers: a.Providers}
	if len(a.Record) > 0 {
		name, err := record.DecodeName(a.Record)
		if err != nil {
			return record.Answer{}, err
		}
		answer.Name = &name
	}
	return answer, nil
}

// objectsRequest is the objects that were added and removed in another process.
type objectsRequest struct {
	Objects []b3.Address `json:"objects"`
	Removed []b3.Address `json:"gone,omitempty"`
	Missed  bool         `json:"missed,omitempty"` // events were dropped
}

// beginRequest is an object that another process wants to read. The answer, which
// is sent when something of it can be read, has its size.
type beginRequest struct {
	Address b3.Address `json:"address"`
}

type beginResponse struct {
	Size int64 `json:"size"`
}

// maxObjectsPerRequest is how many objects one request may carry.
const maxObjectsPerRequest = 256

// PartRoutes lists the routes for the other parts of the node.
func (x *Index) PartRoutes() []ingress.Route {
	route := func(pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: 64 << 10, Docs: ingress.Docs{Summary: summary, Kinds: []fault.Kind{fault.Malformed}}}
	}
	begin := route(beginPath, "Fetch an object until it can be read, for another part of the node", x.handleBegin)
	begin.Deadline, begin.Concurrency = fetchStartTimeout, 2*maxFetches
	return []ingress.Route{
		begin,
		route(answerPath, "Answer a question of a peer, for another part of the node", x.handleAnswer),
		route(objectsPath, "Receive notice of stored and removed objects, from another part of the node", x.handleObjects),
	}
}

func (x *Index) handleAnswer(w http.ResponseWriter, r *http.Request) error {
	var asked answerRequest
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	id, err := record.ParseID(asked.ID)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, newAnswerResponse(x.Answer(id.Question(x.self))))
}

func (x *Index) handleObjects(w http.ResponseWriter, r *http.Request) error {
	var news objectsRequest
	if err := ingress.DecodeJSON(r, &news); err != nil {
		return err
	}
	if n := len(news.Objects) + len(news.Removed); n > maxObjectsPerRequest {
		return fault.New("index.has", fault.Malformed, "%d objects at once are more than %d", n, maxObjectsPerRequest)
	}
	listener := x.spec.Objects
	for _, address := range news.Objects {
		x.ObjectAdded(address)
		if listener != nil {
			listener.ObjectAdded(address)
		}
	}
	if listener != nil {
		for _, address := range news.Removed {
			listener.ObjectRemoved(address)
		}
		if news.Missed {
			listener.Rescan()
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// handleBegin fetches an object, and answers when something of it can be read.
// The fetch goes on for a while, and whoever asked reads it meanwhile.
func (x *Index) handleBegin(w http.ResponseWriter, r *http.Request) error {
	var wanted beginRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	handle, err := x.OpenOrFetch(r.Context(), wanted.Address)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Close() }() // it was not read
	return ingress.WriteJSON(w, http.StatusOK, beginResponse{handle.Size()})
}
