package store

import (
	"net/http"
	"strconv"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which a store is used from another process of the same node.
// The bytes themselves use the public routes; these are for what only the parts
// of a node request of each other.
const (
	partObjectsPath = "/part/store/objects"
	partUsagePath   = "/part/store/usage"
	partPinsPath    = "/part/store/pins/"
	partClassesPath = "/part/store/classes/"
)

// objectResponse describes an object to another process.
type objectResponse struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Class   string     `json:"class,omitempty"` // pinned if it is empty
}

func (o objectResponse) info() Info {
	class, _ := parseClass(o.Class) // what another version says, and this one does not know, is pinned
	return Info{Address: o.Address, Size: o.Size, Class: class}
}

func newObjectResponse(info Info) objectResponse {
	answer := objectResponse{Address: info.Address, Size: info.Size}
	if info.Class != Pinned {
		answer.Class = info.Class.String()
	}
	return answer
}

// listResponse is a page of the list of objects.
type listResponse struct {
	Objects []objectResponse `json:"objects"`
}

// usageResponse is how much a store holds, and what it has done.
type usageResponse struct {
	Usage  Usage  `json:"usage"`
	Counts Counts `json:"counts"`
}

// PartRoutes lists the routes for the other parts of the node.
func (o *ObjectHandler) PartRoutes() []ingress.Route {
	route := func(method, pattern, summary string, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{method}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			Docs: ingress.Docs{Summary: summary, Kinds: []fault.Kind{fault.NotFound, fault.Malformed}}}
	}
	return []ingress.Route{
		route(http.MethodGet, partObjectsPath, "List objects, for another part of the node", o.handleList),
		route(http.MethodGet, partObjectsPath+"/{b3}", "Describe an object, for another part of the node", o.handleStat),
		route(http.MethodGet, partUsagePath, "The usage of the store, for another part of the node", o.handleUsage),
		route(http.MethodPut, partPinsPath+"{b3}", "Pin an object, for another part of the node", o.handlePin),
		route(http.MethodDelete, partPinsPath+"{b3}", "Unpin an object, for another part of the node", o.handleUnpin),
		route(http.MethodPut, partClassesPath+"{b3}", "Change the class of an object if it has a certain one, for another part of the node", o.handleReclass),
		route(http.MethodDelete, partObjectsPath+"/{b3}", "Remove an object if it is cached, for another part of the node", o.handleEvict),
	}
}

func (o *ObjectHandler) handleList(w http.ResponseWriter, r *http.Request) error {
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
	answer := listResponse{Objects: make([]objectResponse, len(list))}
	for i, info := range list {
		answer.Objects[i] = newObjectResponse(info)
	}
	return ingress.WriteJSON(w, http.StatusOK, answer)
}

func (o *ObjectHandler) handleStat(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("store.stat", err)
	}
	info, err := o.store.Stat(r.Context(), address)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, newObjectResponse(info))
}

func (o *ObjectHandler) handleUsage(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, usageResponse{o.store.Usage(), o.store.Counts()})
}

func (o *ObjectHandler) handlePin(w http.ResponseWriter, r *http.Request) error {
	return o.setClass(w, r, Pinned)
}

func (o *ObjectHandler) handleUnpin(w http.ResponseWriter, r *http.Request) error {
	return o.setClass(w, r, Cached)
}

// setClass changes the class of an object.
func (o *ObjectHandler) setClass(w http.ResponseWriter, r *http.Request, class Class) error {
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

// changedResponse reports whether an object was of the class that it had to be.
type changedResponse struct {
	Changed bool `json:"changed"`
}

func (o *ObjectHandler) handleReclass(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("store.reclass", err)
	}
	from, err := parseClass(r.URL.Query().Get("from"))
	if err != nil {
		return err
	}
	to, err := parseClass(r.URL.Query().Get("to"))
	if err != nil {
		return err
	}
	changed, err := o.store.Reclass(r.Context(), address, from, to)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, changedResponse{changed})
}

func (o *ObjectHandler) handleEvict(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("store.evict", err)
	}
	evicted, err := o.store.Evict(r.Context(), address)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, changedResponse{evicted})
}
