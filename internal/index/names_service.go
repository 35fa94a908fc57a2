package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// openNames loads the stored names. Names that cannot be read do not stop the
// node: readiness reports them.
func (x *Index) openNames(inv *flow.Inventory) {
	x.names = newNames(inv, x.spec.Key, x.spec.NameStore)
	kept := x.spec.Readiness.Dependency(service, "names", observe.ForWrites)
	if err := x.names.load(); err != nil {
		kept.Degraded(fault.DetailOf(err), fault.NextOf(err))
		return
	}
	kept.Up()
}

// openSeen opens the log of seen records of others' names.
func (x *Index) openSeen() {
	var err error
	x.seen, err = openSeenRecords(x.spec.SeenPath, x.versions.follows)
	x.seenDep = x.spec.Readiness.Dependency(service, "seen names", observe.ForWrites)
	x.reportSeenLog(err)
}

// reportSeenLog reports to readiness whether seen records are on disk. If they
// are not, names are answered all the same; after a restart an older record may
// be accepted.
func (x *Index) reportSeenLog(err error) {
	if err == nil {
		x.seenDep.Up()
		return
	}
	x.seenDep.Degraded(fault.DetailOf(err), fault.NextOf(err))
}

// recordSeen records a record of another's name, before it is used in an
// answer.
func (x *Index) recordSeen(ctx context.Context, one *record.Name) {
	if err := x.seen.add(ctx, one); err != nil {
		x.reportSeenLog(err)
		x.audit(Event{Type: Failed, Key: "name:" + one.Name, Detail: err.Error()})
	}
}

// compactSeenLog compacts the log of seen records.
func (x *Index) compactSeenLog(ctx context.Context) {
	if done, err := x.seen.compact(ctx); done && ctx.Err() == nil {
		x.reportSeenLog(err)
	}
}

// SetName assigns a manifest to a name of this node, which keeps what it stands
// for from then on. When it returns, the record is durable; the publisher puts it
// into the DHT soon after.
func (x *Index) SetName(ctx context.Context, name string, manifest b3.Address) (record.Name, error) {
	set, _, _, err := x.setName(ctx, name, manifest)
	return set, err
}

// setName also returns how many objects that the name stands for are not here,
// and what was released of what it stood for before.
func (x *Index) setName(ctx context.Context, name string, manifest b3.Address) (set record.Name, missing int, released client.Released, err error) {
	if err := x.checkSettable(name); err != nil {
		return set, 0, released, err
	}
	keep := func() error {
		content, _, err := x.contentOf(ctx, manifest)
		if err == nil {
			missing, err = x.keep(ctx, content)
		}
		return err
	}
	set, err = x.names.set(ctx, name, manifest, keep, func(before b3.Address) {
		x.versions.follows(before, manifest)
		released = x.releaseOrKeep(ctx, name, before)
	})
	if err != nil {
		return set, 0, released, err
	}
	x.audit(Event{Type: NameSet, Key: "name:" + name, Detail: manifest.String()})
	return set, missing, released, nil
}

// DeleteName deletes a name of this node, and releases what only it stood for.
// Nodes that have its record may use it until it expires.
func (x *Index) DeleteName(ctx context.Context, name string) error {
	if err := record.CheckName(name); err != nil {
		return err
	}
	if err := x.names.remove(ctx, name, func(before b3.Address) { x.releaseOrKeep(ctx, name, before) }); err != nil {
		return err
	}
	x.audit(Event{Type: NameDeleted, Key: "name:" + name})
	return nil
}

// OwnNames is this node's names and their manifests. It never waits.
func (x *Index) OwnNames() iter.Seq2[string, b3.Address] {
	return func(yield func(string, b3.Address) bool) {
		for _, one := range x.names.list(func(*nameState) bool { return true }) {
			if !yield(one.Name, one.Manifest) {
				return
			}
		}
	}
}

// RegistryChanged notifies the index of a new version of the registry. A name
// that the registry governs takes precedence over this node's own.
func (x *Index) RegistryChanged() { x.names.wake.Set() }

// reportShadowed publishes an event for each name that the registry has begun
// to govern.
func (x *Index) reportShadowed() {
	for _, one := range x.names.list(func(*nameState) bool { return true }) {
		version, held := x.isGoverned(one.Name)
		if x.names.setGoverned(one.Name, held) {
			x.audit(Event{Type: NameShadowed, Key: "name:" + one.Name, Detail: fmt.Sprintf("by version %d of the registry", version)})
		}
	}
}

// isGoverned reports whether the registry governs a name.
func (x *Index) isGoverned(name string) (version uint64, held bool) {
	if x.spec.Registry == nil {
		return 0, false
	}
	_, version, held = x.spec.Registry.Name(name)
	return version, held
}

// Timing of the publisher: between two checks for records to renew, after a
// failure, and the time-out of one record.
const (
	publishInterval      = 10 * time.Minute
	publishRetryInterval = 30 * time.Second
	publishTimeout       = 10 * time.Second
)

// runPublisher renews the records of this node's names and publishes them in
// the DHT.
func (x *Index) runPublisher(ctx context.Context) error {
	released, due := false, time.Now()
	for {
		pause := publishInterval
		x.reportShadowed()
		if !released && !time.Now().Before(due) { // not at each change of a name
			err := x.releaseLeftOver(ctx)
			if released = err == nil; err != nil && ctx.Err() == nil {
				x.audit(Event{Type: KeptAll, Detail: err.Error()}) // and it tries again
			}
			due = time.Now().Add(publishInterval)
		}
		if err := errors.Join(x.renew(ctx), x.publish(ctx)); err != nil {
			pause = publishRetryInterval
		}
		if !x.names.waitChanged(ctx, pause) {
			return nil
		}
	}
}

// renew renews records. A failure to store them is reported: others forget a
// name whose record expires.
func (x *Index) renew(ctx context.Context) error {
	err := x.names.renew(ctx)
	if err != nil && fault.KindOf(err) != fault.Canceled {
		x.audit(Event{Type: Failed, Detail: err.Error()})
	}
	return err
}

// publish puts all records into the DHT that it does not have.
func (x *Index) publish(ctx context.Context) error {
	if x.spec.Engine == nil {
		return nil
	}
	for _, one := range x.names.unpublished() {
		if err := x.publishOne(ctx, one); err != nil {
			x.audit(Event{Type: Failed, Key: "name:" + one.Name, Detail: err.Error()})
			return err
		}
		x.names.markPublished(one)
		x.audit(Event{Type: NamePublished, Key: "name:" + one.Name})
	}
	return nil
}

func (x *Index) publishOne(ctx context.Context, one record.Name) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return x.spec.Engine.Publish(ctx, one)
}

// nameRoutes lists the routes of names.
func (x *Index) nameRoutes() []ingress.Route {
	name := ingress.Param{Name: "name", In: "path", Type: "string", Required: true, Doc: "The name, without name: in front."}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/names", Handler: x.handleListNames, Public: ingress.OnThisMachine, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "List the names of this node",
				Params: []ingress.Param{
					{Name: "after", In: "query", Type: "string", Doc: "The last name of the previous page."},
					{Name: "limit", In: "query", Type: "integer", Doc: "The maximum number, up to 1000."},
				},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.NameList{}}}, Kinds: []fault.Kind{fault.Malformed}},
		},
		{
			Service: service, Methods: []string{http.MethodPut}, Pattern: "/names/{name}", Handler: x.handlePutName, Class: ingress.Control,
			Scope: "name:set", BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: "Set a name of this node", Request: client.NameRequest{}, Params: []ingress.Param{name},
				Description: "The name keeps what it stands for. What it stood for before may be evicted from then on, unless it is pinned, or another name or an open proposal stands for it.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.NameRecord{}}},
				Kinds:       []fault.Kind{fault.Malformed, fault.Conflict, fault.QuotaExceeded, fault.Busy}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/names/{name}/check", Handler: x.handleCheckName, Class: ingress.Control,
			Scope: "name:set", BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: "Check whether a name of this node can be set", Params: []ingress.Param{name},
				Description: "So a client knows before it sends what the name is to stand for.",
				Responses:   []ingress.Response{{Status: http.StatusNoContent, Doc: "It can be set."}},
				Kinds:       []fault.Kind{fault.Malformed, fault.Conflict, fault.QuotaExceeded, fault.NotReady}},
		},
		{
			Service: service, Methods: []string{http.MethodDelete}, Pattern: "/names/{name}", Handler: x.handleDeleteName, Class: ingress.Control, Scope: "name:set",
			Docs: ingress.Docs{Summary: "Remove a name of this node", Params: []ingress.Param{name},
				Description: "Other nodes may cache its record until it expires, for at most a day.",
				Responses:   []ingress.Response{{Status: http.StatusNoContent}}, Kinds: []fault.Kind{fault.Malformed, fault.NotFound}},
		},
	}
}

// namesPage is how many names are listed at a time.
const namesPage = 1000

func (x *Index) handleListNames(w http.ResponseWriter, r *http.Request) error {
	limit := namesPage
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > namesPage {
			return badValue("limit", text, "Write a number from 1 to 1000.")
		}
	}
	list := client.NameList{Names: []client.NameRecord{}}
	for _, one := range x.names.page(r.URL.Query().Get("after"), limit) {
		list.Names = append(list.Names, x.describeName(one))
	}
	if len(list.Names) == limit {
		list.Next = list.Names[limit-1].Name
	}
	return ingress.WriteJSON(w, http.StatusOK, list)
}

func (x *Index) handlePutName(w http.ResponseWriter, r *http.Request) error {
	var wanted client.NameRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	if wanted.Manifest.IsZero() {
		return &fault.Error{Op: opName, Kind: fault.Malformed, Detail: "the request names no manifest", Next: `Send {"manifest":"b3:…"}.`}
	}
	set, missing, released, err := x.setName(r.Context(), r.PathValue("name"), wanted.Manifest)
	if err != nil {
		return err
	}
	answer := x.describeName(set)
	answer.Missing, answer.Released = missing, released
	return ingress.WriteJSON(w, http.StatusOK, answer)
}

func (x *Index) handleDeleteName(w http.ResponseWriter, r *http.Request) error {
	if err := x.DeleteName(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x *Index) describeName(one record.Name) client.NameRecord {
	_, shadowed := x.isGoverned(one.Name)
	return client.NameRecord{Name: one.Name, Shared: record.ID{Kind: record.ByName, Name: one.Name, Owner: x.self, Foreign: true}.String(), Manifest: one.Manifest, Seq: one.Seq, Issued: one.Issued, Expires: one.Expires, Shadowed: shadowed}
}
