package store

import (
	"net/http"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// dater is a store that knows when its objects were put.
type dater interface {
	StoredAt(a b3.Address) time.Time
}

// listRoute lists what is stored. Who knows an address may fetch its object, so
// the list of addresses is for those who run the node.
func (o *ObjectHandler) listRoute() ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/o", Handler: o.handleObjects, Scope: "admin", Class: ingress.Control,
		Docs: ingress.Docs{Summary: "List the stored objects, by address",
			Params: []ingress.Param{{Name: "after", In: "query", Type: "string", Doc: "The last address of the page before."},
				{Name: "limit", In: "query", Type: "integer", Doc: "The maximum number, from 1 to 1024; default 100."}},
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.ObjectList{}}}, Kinds: []fault.Kind{fault.Malformed}},
	}
}

func (o *ObjectHandler) handleObjects(w http.ResponseWriter, r *http.Request) (err error) {
	const op = "objects.list"
	query, limit, after := r.URL.Query(), 100, b3.Address{}
	if query.Has("limit") {
		if limit, err = strconv.Atoi(query.Get("limit")); err != nil || limit < 1 || limit > MaxPage {
			return fault.New(op, fault.Malformed, "%.40q is not a valid value for limit", query.Get("limit")).Advise("Write a number from 1 to 1024.")
		}
	}
	if query.Has("after") {
		if after, err = b3.Parse(query.Get("after")); err != nil {
			return fault.WrapKind(op, fault.Malformed, err)
		}
	}
	list, err := o.store.List(r.Context(), after, limit)
	if err != nil {
		return fault.Wrap(op, err)
	}
	page := client.ObjectList{Objects: make([]client.ListedObject, 0, len(list))}
	dates, dated := bare(o.store).(dater)
	for _, one := range list {
		listed := client.ListedObject{Address: one.Address, Size: one.Size, Class: one.Class.String()}
		if dated {
			if at := dates.StoredAt(one.Address); !at.IsZero() {
				listed.Stored = at.UTC().Format(time.RFC3339)
			}
		}
		page.Objects = append(page.Objects, listed)
	}
	if len(list) == limit {
		page.Next = page.Objects[limit-1].Address.String()
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, page)
}
