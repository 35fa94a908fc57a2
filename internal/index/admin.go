package index

import (
	"context"
	"net/http"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

const opAdmin = "index.admin"

// adminRoutes lists what changes the index itself.
func (x *Index) adminRoutes() []ingress.Route {
	key := ingress.Param{Name: "Idempotency-Key", In: "header", Type: "string", Doc: "A text of the client's choice. A request that is repeated with it within 24 hours gets the first answer again, and nothing is done twice."}
	route := func(pattern, scope, summary string, handler ingress.Handler, request any, answers ...ingress.Response) ingress.Route {
		return ingress.Route{
			Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: scope, BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: summary, Params: []ingress.Param{key}, Request: request, Responses: answers,
				Kinds: []fault.Kind{fault.Malformed, fault.NotFound, fault.Conflict, fault.QuotaExceeded}},
		}
	}
	pinned := ingress.Response{Status: http.StatusOK, Body: client.Pinned{}}
	return []ingress.Route{
		route("/admin/reindex", "index:admin", "Look through all objects and announce them again", x.reindex, nil, ingress.Response{Status: http.StatusAccepted, Body: client.Reindexed{}}),
		route("/admin/pin", "index:pin", "Keep an object until it is removed", x.pin, client.PinRequest{}, pinned),
		route("/admin/unpin", "index:pin", "Let an object go when room is needed", x.unpin, client.PinRequest{}, pinned),
	}
}

// openDeeds reads which requests were carried out. If that cannot be read or
// written, requests are carried out all the same, and readiness tells of it: one
// that is repeated after a restart is then carried out again.
func (x *Index) openDeeds() {
	var err error
	x.deeds, err = openOnce(x.spec.Deeds)
	x.recalled = x.spec.Readiness.Dependency(service, "request keys", observe.ForWrites)
	x.keptDeeds(err)
	x.deeds.told = func(err error) {
		if err != nil {
			x.keptDeeds(err)
		}
	}
}

func (x *Index) keptDeeds(err error) {
	if err == nil {
		x.recalled.Up()
		return
	}
	x.recalled.Degraded(fault.DetailOf(err), fault.NextOf(err))
}

// keepDeeds looks after the file of what was done.
func (x *Index) keepDeeds(ctx context.Context) {
	if done, err := x.deeds.tidy(ctx); done && ctx.Err() == nil {
		x.keptDeeds(err)
	}
}

func (x *Index) reindex(w http.ResponseWriter, r *http.Request) error {
	answer, err := x.deeds.do(r.Context(), r.Header.Get("Idempotency-Key"), b3.Of([]byte("reindex")), func(context.Context) (any, error) {
		x.cache.Clear()
		objects := x.Reindex()
		x.audit(Event{Type: Reindexed})
		return client.Reindexed{Objects: int(objects)}, nil
	})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusAccepted, answer)
}

func (x *Index) pin(w http.ResponseWriter, r *http.Request) error {
	return x.repin(w, r, "pin", Pinned, x.spec.Store.Pin)
}

func (x *Index) unpin(w http.ResponseWriter, r *http.Request) error {
	return x.repin(w, r, "unpin", Unpinned, x.spec.Store.Unpin)
}

// repin changes whether an object stays.
func (x *Index) repin(w http.ResponseWriter, r *http.Request, what string, event EventType, change func(context.Context, b3.Address) error) error {
	var wanted client.PinRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	if wanted.B3.IsZero() {
		return &fault.Error{Op: opAdmin, Kind: fault.Malformed, Detail: "the request names no object", Next: `Send {"b3":"b3:…"}.`}
	}
	asked := b3.Of([]byte(what + " " + wanted.B3.String()))
	answer, err := x.deeds.do(r.Context(), r.Header.Get("Idempotency-Key"), asked, func(ctx context.Context) (any, error) {
		if err := change(ctx, wanted.B3); err != nil {
			return nil, err
		}
		x.audit(Event{Type: event, Key: wanted.B3.String()})
		return client.Pinned{B3: wanted.B3, Pinned: event == Pinned}, nil
	})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, answer)
}
