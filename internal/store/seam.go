package store

import (
	"net/http"
	"strconv"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which a store is used from another process of the same node. The
// bytes themselves go by the routes that everybody has; these are for what only
// the parts of a node ask of each other.
const (
	seamObjects = "/part/store/objects"
	seamUsage   = "/part/store/usage"
	seamPins    = "/part/store/pins/"
)

// told is an object, as a store tells of it to another process.
type told struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Cached  bool       `json:"cached,omitempty"`
}

func (t told) info() Info {
	info := Info{Address: t.Address, Size: t.Size}
	if t.Cached {
		info.Class = Cached
	}
	return info
}

func tell(info Info) told { return told{info.Address, info.Size, info.Class == Cached} }

// page is a part of the list of objects.
type page struct {
	Objects []told `json:"objects"`
}

// state is how much a store holds, and what it has done.
type state struct {
	Usage  Usage  `json:"usage"`
	Counts Counts `json:"counts"`
}

// Seams lists the routes for the other parts of the node.
func (o *Objects) Seams() []ingress.Route {
	route := func(method, pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{method}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			Docs: ingress.Docs{Summary: summary, Kinds: []fault.Kind{fault.NotFound, fault.Malformed}}}
	}
	return []ingress.Route{
		route(http.MethodGet, seamObjects, "List objects, for another part of the node", o.seamList),
		route(http.MethodGet, seamObjects+"/{b3}", "Describe an object, for another part of the node", o.seamStat),
		route(http.MethodGet, seamUsage, "Tell how much there is, for another part of the node", o.seamUsage),
		route(http.MethodPut, seamPins+"{b3}", "Keep an object, for another part of the node", o.seamPin),
		route(http.MethodDelete, seamPins+"{b3}", "Let an object go when room is needed, for another part of the node", o.seamUnpin),
	}
}

func (o *Objects) seamList(w http.ResponseWriter, r *http.Request) error {
	const op = "store.list"
	var after b3.Address
	var err error
	query := r.URL.Query()
	if text := query.Get("after"); text != "" {
		if after, err = b3.Parse(text); err != nil {
			return fault.Wrap(op, err)
		}
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil || limit < 1 || limit > MaxPage {
		return fault.New(op, fault.Malformed, "a page has from 1 to %d objects", MaxPage)
	}
	list, err := o.store.List(r.Context(), after, limit)
	if err != nil {
		return err
	}
	answer := page{Objects: make([]told, len(list))}
	for i, info := range list {
		answer.Objects[i] = tell(info)
	}
	return ingress.WriteJSON(w, http.StatusOK, answer)
}

func (o *Objects) seamStat(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("store.stat", err)
	}
	info, err := o.store.Stat(r.Context(), address)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, tell(info))
}

func (o *Objects) seamUsage(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, state{o.store.Usage(), o.store.Counts()})
}

func (o *Objects) seamPin(w http.ResponseWriter, r *http.Request) error {
	return o.repin(w, r, Pinned)
}

func (o *Objects) seamUnpin(w http.ResponseWriter, r *http.Request) error {
	return o.repin(w, r, Cached)
}

// repin changes the class of an object.
func (o *Objects) repin(w http.ResponseWriter, r *http.Request, class Class) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("store.pin", err)
	}
	change := o.store.Pin
	if class == Cached {
		change = o.store.Unpin
	}
	if err := change(r.Context(), address); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
