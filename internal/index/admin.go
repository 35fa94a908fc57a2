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

// adminRoutes lists the administrative routes.
func (x *Index) adminRoutes() []ingress.Route {
	key := ingress.Param{Name: "Idempotency-Key", In: "header", Type: "string", Doc: "A key that the client chooses. A repeated request with the same key within 24 hours gets the first response, and is not carried out again. Keys of other senders and other routes are other keys."}
	route := func(pattern, scope, summary string, handler ingress.Handler, request any, answers ...ingress.Response) ingress.Route {
		return ingress.Route{
			Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: scope, BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: summary, Params: []ingress.Param{key}, Request: request, Responses: answers,
				Kinds: []fault.Kind{fault.Malformed, fault.NotFound, fault.Conflict, fault.QuotaExceeded}},
		}
	}
	pinned := ingress.Response{Status: http.StatusOK, Body: client.Pinned{}}
	return []ingress.Route{
		route("/admin/reindex", "index:admin", "Scan all objects and announce them again", x.handleReindex, nil, ingress.Response{Status: http.StatusAccepted, Body: client.Reindexed{}}),
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/admin/gc", Handler: x.handleCollect, Class: ingress.Control, Scope: "object:rm", BodyCap: 4 << 10, Deadline: collectDeadline,
			Docs: ingress.Docs{Summary: "Remove all objects that are neither pinned nor named",
				Description: "They are what was fetched from other nodes, and what was unpinned. Nothing is removed for which a name of this node or the registry stands.",
				Params:      []ingress.Param{{Name: "dry_run", In: "query", Type: "boolean", Doc: "With true, nothing is removed, and the answer says what would be."}},
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.Collected{}}}, Kinds: []fault.Kind{fault.Malformed, fault.Conflict}},
		},
		route("/admin/pin", "index:pin", "Pin an object", x.handlePin, client.PinRequest{}, pinned),
		route("/admin/unpin", "index:pin", "Unpin an object: it may be evicted when space is needed", x.handleUnpin, client.PinRequest{}, pinned),
	}
}

// openIdempotency opens the log of idempotent requests. If it cannot be read or
// written, requests are carried out all the same, and readiness reports it: one
// that is repeated after a restart is then carried out again.
func (x *Index) openIdempotency() {
	var err error
	x.idempotency, err = openIdempotency(x.spec.IdempotencyPath)
	x.idempotencyDep = x.spec.Readiness.Dependency(service, "request keys", observe.ForWrites)
	x.reportIdempotencyLog(err)
	x.idempotency.onPersist = func(err error) {
		if err != nil {
			x.reportIdempotencyLog(err)
		}
	}
}

func (x *Index) reportIdempotencyLog(err error) {
	if err == nil {
		x.idempotencyDep.Up()
		return
	}
	x.idempotencyDep.Degraded(fault.DetailOf(err), fault.NextOf(err))
}

// compactIdempotencyLog compacts the log of idempotent requests.
func (x *Index) compactIdempotencyLog(ctx context.Context) {
	if done, err := x.idempotency.compact(ctx); done && ctx.Err() == nil {
		x.reportIdempotencyLog(err)
	}
}

// requestKeyOf is the idempotency key of a request, if it has one.
func requestKeyOf(r *http.Request, route string) requestKey {
	return requestKey{ingress.Sender(r), route, r.Header.Get("Idempotency-Key")}
}

func (x *Index) handleReindex(w http.ResponseWriter, r *http.Request) error {
	answer, err := x.idempotency.do(r.Context(), requestKeyOf(r, "reindex"), b3.Of([]byte("reindex")), func(context.Context) (any, error) {
		x.forgetAll()
		objects := x.Reindex()
		x.audit(Event{Type: Reindexed})
		return client.Reindexed{Objects: int(objects)}, nil
	})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusAccepted, answer)
}

func (x *Index) handlePin(w http.ResponseWriter, r *http.Request) error {
	return x.changePin(w, r, "pin", Pinned, x.spec.Store.Pin)
}

func (x *Index) handleUnpin(w http.ResponseWriter, r *http.Request) error {
	return x.changePin(w, r, "unpin", Unpinned, x.spec.Store.Unpin)
}

// changePin pins or unpins an object.
func (x *Index) changePin(w http.ResponseWriter, r *http.Request, what string, event EventType, change func(context.Context, b3.Address) error) error {
	var wanted client.PinRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	if wanted.B3.IsZero() {
		return &fault.Error{Op: opAdmin, Kind: fault.Malformed, Detail: "the request names no object", Next: `Send {"b3":"b3:…"}.`}
	}
	asked := b3.Of([]byte(what + " " + wanted.B3.String()))
	answer, err := x.idempotency.do(r.Context(), requestKeyOf(r, what), asked, func(ctx context.Context) (any, error) {
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
