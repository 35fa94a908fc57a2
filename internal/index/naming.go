package index

import (
	"context"
	"errors"
	"fmt"
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
	"micronode/internal/supervise"
)

// openNames reads the names that were kept. Names that cannot be read are no
// reason to fail: readiness tells of them.
func (x *Index) openNames(inv *flow.Inventory) {
	x.names = newNames(inv, x.spec.Key, x.spec.Keeper)
	kept := x.spec.Readiness.Dependency(service, "names", observe.ForWrites)
	if err := x.names.load(); err != nil {
		kept.Degraded(fault.DetailOf(err), fault.NextOf(err))
		return
	}
	kept.Up()
}

// openSeen reads what was seen of the names of others.
func (x *Index) openSeen() {
	var err error
	x.seen, err = openSeen(x.spec.Seen)
	x.witnessed = x.spec.Readiness.Dependency(service, "seen names", observe.ForWrites)
	x.keptSeen(err)
}

// keptSeen tells readiness whether what was seen of names is on disk. If it is
// not, names are answered all the same; they may go back after a restart.
func (x *Index) keptSeen(err error) {
	if err == nil {
		x.witnessed.Up()
		return
	}
	x.witnessed.Degraded(fault.DetailOf(err), fault.NextOf(err))
}

// witness makes a record of another's name known, before anybody is answered by
// it.
func (x *Index) witness(ctx context.Context, one *record.Name) {
	if err := x.seen.take(ctx, one); err != nil {
		x.keptSeen(err)
		x.audit(Event{Type: Failed, Key: "name:" + one.Name, Detail: err.Error()})
	}
}

// keepSeen looks after the file of what was seen.
func (x *Index) keepSeen(ctx context.Context) {
	if done, err := x.seen.tidy(ctx); done && ctx.Err() == nil {
		x.keptSeen(err)
	}
}

// addNames adds the task that looks after the names.
func (x *Index) addNames(to *supervise.Supervisor, in Stages) error {
	return to.Add(supervise.Service{Service: service, Name: "index publisher", Stage: in.State, Serve: x.keepNames,
		Drain: supervise.Closing(x.names.close)})
}

// SetName says what this node means by a name from now on. When it returns,
// that is safe; the DHT hears of it in a moment.
func (x *Index) SetName(ctx context.Context, name string, manifest b3.Address) (record.Name, error) {
	if err := record.CheckName(name); err != nil {
		return record.Name{}, err
	}
	if err := x.unheard(); err != nil {
		return record.Name{}, err
	}
	if version, held := x.governed(name); held {
		return record.Name{}, &fault.Error{Op: opName, Kind: fault.Conflict, Detail: fmt.Sprintf("the registry says what %q means, as of version %d", name, version),
			Next: "Choose another name, or propose a change with `micronode registry propose`."}
	}
	set, err := x.names.set(ctx, name, manifest)
	if err != nil {
		return record.Name{}, err
	}
	x.audit(Event{Type: NameSet, Key: "name:" + name, Detail: manifest.String()})
	return set, nil
}

// DeleteName forgets what this node means by a name. Who has its record may
// believe it until it expires.
func (x *Index) DeleteName(ctx context.Context, name string) error {
	if err := record.CheckName(name); err != nil {
		return err
	}
	if err := x.names.remove(ctx, name); err != nil {
		return err
	}
	x.audit(Event{Type: NameDeleted, Key: "name:" + name})
	return nil
}

// Governed hears that the registry has another version. Where it decides on a
// name that this node uses too, the node's own meaning does not count any more.
func (x *Index) Governed() { _ = x.names.changed.TryPush(struct{}{}) } // a closed queue: the node drains

// shadow tells of names that the registry has begun to decide on.
func (x *Index) shadow() {
	for _, one := range x.names.list(func(*named) bool { return true }) {
		version, held := x.governed(one.Name)
		if x.names.shade(one.Name, held) {
			x.audit(Event{Type: NameShadowed, Key: "name:" + one.Name, Detail: fmt.Sprintf("by version %d of the registry", version)})
		}
	}
}

// governed reports whether the registry says what a name means.
func (x *Index) governed(name string) (version uint64, held bool) {
	if x.spec.Registry == nil {
		return 0, false
	}
	_, version, held = x.spec.Registry.Name(name)
	return version, held
}

// The pauses of the publisher: between two looks whether records have to be
// renewed, after a failure, and how long one record may take.
const (
	publishPause = 10 * time.Minute
	publishRetry = 30 * time.Second
	publishTime  = 10 * time.Second
)

// keepNames renews the records of this node's names and puts them where others
// look for them.
func (x *Index) keepNames(ctx context.Context) error {
	for {
		pause := publishPause
		x.shadow()
		if err := errors.Join(x.renew(ctx), x.publish(ctx)); err != nil {
			pause = publishRetry
		}
		if !x.names.await(ctx, pause) {
			return nil
		}
	}
}

// renew signs records anew. If they cannot be kept, they are told of: a name
// whose record expires is forgotten by others.
func (x *Index) renew(ctx context.Context) error {
	err := x.names.renew(ctx)
	if err != nil && fault.KindOf(err) != fault.Canceled {
		x.audit(Event{Type: Failed, Detail: err.Error()})
	}
	return err
}

// publish tells the DHT of all records that it does not have.
func (x *Index) publish(ctx context.Context) error {
	if x.spec.Engine == nil {
		return nil
	}
	for _, one := range x.names.unpublished() {
		if err := x.publishOne(ctx, one); err != nil {
			x.audit(Event{Type: Failed, Key: "name:" + one.Name, Detail: err.Error()})
			return err
		}
		x.names.published(one)
		x.audit(Event{Type: NamePublished, Key: "name:" + one.Name})
	}
	return nil
}

func (x *Index) publishOne(ctx context.Context, one record.Name) error {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	return x.spec.Engine.Publish(ctx, one)
}

// await waits until a name has changed or some time has passed, and reports
// whether there is a reason to go on.
func (n *names) await(ctx context.Context, pause time.Duration) bool {
	short, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	_, err := n.changed.Pop(short)
	return ctx.Err() == nil && !errors.Is(err, flow.ErrClosed)
}

// nameRoutes lists the routes of names.
func (x *Index) nameRoutes() []ingress.Route {
	name := ingress.Param{Name: "name", In: "path", Type: "string", Required: true, Doc: "The name, without name: in front."}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/names", Handler: x.listNames, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "List the names of this node",
				Params: []ingress.Param{
					{Name: "after", In: "query", Type: "string", Doc: "The last name of the page before."},
					{Name: "limit", In: "query", Type: "integer", Doc: "How many, 1000 at most."},
				},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.NameList{}}}, Kinds: []fault.Kind{fault.Malformed}},
		},
		{
			Service: service, Methods: []string{http.MethodPut}, Pattern: "/names/{name}", Handler: x.putName, Class: ingress.Control,
			Scope: "name:set", BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: "Say what this node means by a name", Request: client.NameRequest{}, Params: []ingress.Param{name},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.NameRecord{}}},
				Kinds:     []fault.Kind{fault.Malformed, fault.Conflict, fault.QuotaExceeded, fault.Busy}},
		},
		{
			Service: service, Methods: []string{http.MethodDelete}, Pattern: "/names/{name}", Handler: x.deleteName, Class: ingress.Control, Scope: "name:set",
			Docs: ingress.Docs{Summary: "Forget a name of this node", Params: []ingress.Param{name},
				Description: "Others may remember what it meant until its record expires, for a day at most.",
				Responses:   []ingress.Response{{Status: http.StatusNoContent}}, Kinds: []fault.Kind{fault.Malformed, fault.NotFound}},
		},
	}
}

// namesPage is how many names are listed at a time.
const namesPage = 1000

func (x *Index) listNames(w http.ResponseWriter, r *http.Request) error {
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

func (x *Index) putName(w http.ResponseWriter, r *http.Request) error {
	var wanted client.NameRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	if wanted.Manifest.IsZero() {
		return &fault.Error{Op: opName, Kind: fault.Malformed, Detail: "the request names no manifest", Next: `Send {"manifest":"b3:…"}.`}
	}
	set, err := x.SetName(r.Context(), r.PathValue("name"), wanted.Manifest)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, x.describeName(set))
}

func (x *Index) deleteName(w http.ResponseWriter, r *http.Request) error {
	if err := x.DeleteName(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x *Index) describeName(one record.Name) client.NameRecord {
	_, shadowed := x.governed(one.Name)
	return client.NameRecord{Name: one.Name, Manifest: one.Manifest, Seq: one.Seq, Issued: one.Issued, Expires: one.Expires, Shadowed: shadowed}
}
