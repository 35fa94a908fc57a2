package store

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// service is the label of the object routes in metrics.
const service = "store"

// immutable is the Cache-Control of an object: what an address names never
// changes.
const immutable = "public, max-age=31536000, immutable"

// smallPut is the largest body of POST /put.
const smallPut = 1 << 20

// Submit runs a piece of work on the node's workers and waits for its result.
// The work may be tried twice, but not again once its result was given.
type Submit func(ctx context.Context, work func(ctx context.Context) error) error

// Objects is the HTTP face of a store.
type Objects struct {
	// set at construction
	store   Store
	submit  Submit
	shelf   *Shelf
	uploads *flow.Lane
}

// ObjectsSpec is what the HTTP face of a store is made of.
type ObjectsSpec struct {
	Store   Store
	Submit  Submit
	Shelf   *Shelf // nil if nothing is to be kept ready
	Uploads int    // how many bodies may be streamed in at a time; as many may wait
}

// NewObjects makes the HTTP face of a store.
func NewObjects(inv *flow.Inventory, spec ObjectsSpec) *Objects {
	return &Objects{
		store: spec.Store, submit: spec.Submit, shelf: spec.Shelf,
		uploads: flow.NewLane(inv, flow.LaneSpec{
			Service: service, Name: "uploads", Running: spec.Uploads, Waiting: spec.Uploads, From: "POST /o", To: "store",
		}),
	}
}

// Put is the answer to a put.
type Put struct {
	Address string `json:"address"`
	Size    int64  `json:"size"`
}

// Routes lists the routes of objects. The zero Objects has the same list: it is
// what a gateway knows of a store in another process.
func (o *Objects) Routes() []ingress.Route {
	stored := []ingress.Response{
		{Status: http.StatusCreated, Body: Put{}, Doc: "The object is new. Location is where it can be had."},
		{Status: http.StatusOK, Body: Put{}, Doc: "The object was here already."},
	}
	class := []ingress.Param{{Name: "class", In: "query", Type: "string", Doc: "pinned, which stays until it is deleted, or cached, which may be given up for room; pinned, if not said."}}
	address := []ingress.Param{{Name: "b3", In: "path", Type: "string", Required: true, Doc: "The address: b3: and 64 hex digits."}}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/put", Handler: o.putSmall,
			Scope: "object:put", Class: ingress.Control, BodyCap: smallPut, Queued: true,
			Docs: ingress.Docs{Summary: "Keep a small object", Request: ingress.Octets, Params: class, Responses: stored,
				Description: "The body, at most 1 MiB, becomes an object. Larger ones go to POST /o.",
				Kinds:       []fault.Kind{fault.StoreFull, fault.Malformed}},
		},
		{ // no cap on the body: the store knows best what fits, and says so before it reads
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/o", Handler: o.putStream,
			Scope: "object:put", Class: ingress.Transfer, BodyCap: math.MaxInt64, Lane: o.uploads,
			Docs: ingress.Docs{Summary: "Keep an object of any size", Request: ingress.Octets, Params: class, Responses: stored,
				Description: "The body is streamed. One that cannot fit is refused before it is read.",
				Kinds:       []fault.Kind{fault.StoreFull, fault.Malformed}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: objectPattern, Handler: o.get, Class: ingress.Transfer,
			Docs: ingress.Docs{Summary: "Fetch an object", Params: address, Responses: []ingress.Response{
				{Status: http.StatusOK, Type: octets, Doc: "The bytes, verified."},
				{Status: http.StatusPartialContent, Type: octets, Doc: "A range of them."},
				{Status: http.StatusNotModified, Doc: "The client has it."},
			}, Kinds: []fault.Kind{fault.NotFound, fault.InvalidRange, fault.IntegrityFail}},
		},
		{
			Service: service, Methods: []string{http.MethodDelete}, Pattern: objectPattern, Handler: o.remove,
			Scope: "object:rm", Class: ingress.Control,
			Docs: ingress.Docs{Summary: "Remove an object", Params: address, Kinds: []fault.Kind{fault.NotFound},
				Responses: []ingress.Response{{Status: http.StatusNoContent, Doc: "It is gone. Those who read it can do so to the end."}}},
		},
	}
}

const (
	octets        = "application/octet-stream"
	objectPattern = "/o/{b3}"
)

// putSmall takes the whole body first, so that a slow client holds no worker,
// and then has a worker keep it.
func (o *Objects) putSmall(w http.ResponseWriter, r *http.Request) error {
	class, err := classOf(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fault.Wrap("objects.put", err)
	}
	var info Info
	var created bool
	err = o.submit(r.Context(), func(ctx context.Context) (err error) {
		kept, isNew, err := o.store.Put(ctx, bytes.NewReader(body), PutOptions{Size: int64(len(body)), Class: class})
		if err == nil {
			info, created = kept, isNew || created // a second try finds what the first one made
		}
		return err
	})
	if err != nil {
		return err
	}
	return answerPut(w, info, created)
}

// putStream keeps the body as it comes, on the connection's own goroutine.
func (o *Objects) putStream(w http.ResponseWriter, r *http.Request) error {
	size := Unknown
	if r.ContentLength >= 0 && r.Header.Get("Content-Encoding") == "" {
		size = r.ContentLength
	}
	class, err := classOf(r)
	if err != nil {
		return err
	}
	info, created, err := o.store.Put(r.Context(), r.Body, PutOptions{Size: size, Class: class})
	if err != nil {
		return err
	}
	return answerPut(w, info, created)
}

// classOf is what an object is to become. Most requests say nothing of it, and
// have nothing to take apart.
func classOf(r *http.Request) (Class, error) {
	if r.URL.RawQuery == "" {
		return Pinned, nil
	}
	switch text := r.URL.Query().Get("class"); text {
	case "", Pinned.String():
		return Pinned, nil
	case Cached.String():
		return Cached, nil
	default:
		return Pinned, &fault.Error{Op: "objects.put", Kind: fault.Malformed, Detail: "there is no such class of objects", Next: "Write class=pinned or class=cached, or leave it out."}
	}
}

func answerPut(w http.ResponseWriter, info Info, created bool) error {
	address := info.Address.String()
	w.Header().Set("Location", "/o/"+address)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return ingress.WriteJSON(w, status, Put{Address: address, Size: info.Size})
}

// get answers with the object, or a part of it, straight from the store.
func (o *Objects) get(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.get", err)
	}
	handle, err := o.store.Open(r.Context(), address)
	if err != nil {
		return err
	}
	defer handle.Close()
	ingress.Untrusted(w.Header())
	status, err := ingress.ServeContent(w, r, Content(handle))
	if err == nil && status == http.StatusOK && o.shelf != nil {
		o.shelf.offer(r.Context(), o.store, handle)
	}
	return err
}

// Content describes an object to those who serve it. What it is nobody knows
// here: who does may set its Type.
func Content(handle Handle) ingress.Content {
	return ingress.Content{
		Size: handle.Size(), ETag: `"` + handle.Address().String() + `"`, Type: octets, CacheControl: immutable,
		Write: func(w io.Writer, from, length int64) error {
			_, err := handle.WriteRange(w, from, length)
			return err
		},
	}
}

// remove deletes an object. It is gone from the store before it is gone from
// the shelf, so that nobody can put it back on the shelf in between. It is taken
// off the shelf even if the store does not have it: it may have been unpinned
// and evicted since.
func (o *Objects) remove(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.rm", err)
	}
	err = o.store.Delete(r.Context(), address)
	if o.shelf != nil {
		o.shelf.Drop(address)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
