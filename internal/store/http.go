package store

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"slices"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// service is the label of the object routes in metrics.
const service = "store"

// maxSmallPut is the largest body of POST /put.
const maxSmallPut = 1 << 20

// Submit runs work on the node's workers and waits for its result. The work may
// be tried twice, but not again once its result was returned.
type Submit func(ctx context.Context, work func(ctx context.Context) error) error

// ObjectHandler serves a store over HTTP.
type ObjectHandler struct {
	// set at construction
	store   Store
	submit  Submit
	cache   *ObjectCache
	uploads *flow.Lane
}

// ObjectHandlerSpec configures an ObjectHandler.
type ObjectHandlerSpec struct {
	Store   Store
	Submit  Submit
	Cache   *ObjectCache // nil for no cache
	Uploads int          // how many bodies may be streamed at a time; as many may wait
}

// NewObjectHandler returns the handler of a store.
func NewObjectHandler(inv *flow.Inventory, spec ObjectHandlerSpec) *ObjectHandler {
	return &ObjectHandler{
		store: spec.Store, submit: spec.Submit, cache: spec.Cache,
		uploads: flow.NewLane(inv, flow.LaneSpec{
			Service: service, Name: "uploads", Running: spec.Uploads, Waiting: spec.Uploads, From: "POST /o", To: "store", Effect: flow.StopsWrites,
		}),
	}
}

// Put is the response to a put.
type Put struct {
	Address string `json:"address"`
	Size    int64  `json:"size"`
}

// Routes lists the routes of objects. The zero ObjectHandler has the same list:
// it is what a gateway knows of a store in another process.
func (o *ObjectHandler) Routes() []ingress.Route {
	stored := []ingress.Response{
		{Status: http.StatusCreated, Body: Put{}, Doc: "The object is new. Location is its path."},
		{Status: http.StatusOK, Body: Put{}, Doc: "The object was already stored."},
	}
	class := []ingress.Param{{Name: "class", In: "query", Type: "string", Doc: "pinned objects stay until they are deleted; named objects while a name of the node stands for them; cached objects may be evicted when space is needed. Default: pinned."},
		{Name: "want", In: "query", Type: "string", Doc: "The address that the body must have. Nothing is evicted for the body before it is verified; with another address, nothing is stored."}}
	address := []ingress.Param{{Name: "b3", In: "path", Type: "string", Required: true, Doc: "The address: b3: and 64 hex digits."}}
	return append([]ingress.Route{
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/put", Handler: o.handlePut,
			Scope: "object:put", Class: ingress.Control, BodyCap: maxSmallPut, Queued: true,
			Docs: ingress.Docs{Summary: "Store a small object", Request: ingress.Octets, Params: class, Responses: stored,
				Description: "The body, at most 1 MiB, becomes an object. Larger ones go to POST /o.",
				Kinds:       []fault.Kind{fault.StoreFull, fault.Malformed, fault.IntegrityFail}},
		},
		{ // no cap on the body: the store knows the limit, and rejects the body before reading it
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/o", Handler: o.handlePutStream,
			Scope: "object:put", Class: ingress.Transfer, BodyCap: math.MaxInt64, Lane: o.uploads,
			Docs: ingress.Docs{Summary: "Store an object of any size", Request: ingress.Octets, Params: slices.Concat(class, resumeParams()), Responses: stored,
				Description: "The body is streamed. A body that cannot fit is refused before it is read. With from, a put that breaks can go on where it broke.",
				Kinds:       []fault.Kind{fault.StoreFull, fault.Malformed, fault.IntegrityFail, fault.Conflict, fault.LengthRequired}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: objectPattern, Handler: o.handleGet, Cheap: true, Public: ingress.PublicObjects, Class: ingress.Transfer,
			Docs: ingress.Docs{Summary: "Fetch an object", Content: true, Params: append(address[:1:1],
				ingress.Param{Name: "filename", In: "query", Type: "string", Doc: "The file name for a download."},
				ingress.Param{Name: "download", In: "query", Type: "boolean", Doc: "With true, a browser downloads it instead of showing it."}),
				Responses: []ingress.Response{{Status: http.StatusOK, Type: octets, Doc: "The bytes, verified."}},
				Kinds:     []fault.Kind{fault.NotFound, fault.IntegrityFail}},
		},
		o.treeRoute(address),
		o.fileRoute(address),
		o.keptRoute(address),
		o.listRoute(),
		{
			Service: service, Methods: []string{http.MethodDelete}, Pattern: objectPattern, Handler: o.handleDelete,
			Scope: "object:rm", Class: ingress.Control,
			Docs: ingress.Docs{Summary: "Remove an object", Params: address, Kinds: []fault.Kind{fault.NotFound},
				Responses: []ingress.Response{{Status: http.StatusNoContent, Doc: "Removed. Open reads continue to their end."}}},
		},
	}, o.batchRoutes(class[:1], address)...)
}

const (
	octets        = "application/octet-stream"
	objectPattern = "/o/{b3}"
)

// handlePut reads the whole body first, so that a slow client holds no worker,
// and then has a worker store it.
func (o *ObjectHandler) handlePut(w http.ResponseWriter, r *http.Request) error {
	class, want, err := parsePutQuery(r)
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
		kept, isNew, err := o.store.Put(ctx, bytes.NewReader(body), PutOptions{Want: want, Unverified: !want.IsZero(), Size: int64(len(body)), Class: class})
		if err == nil {
			info, created = kept, isNew || created // a second try finds what the first one made
		}
		return err
	})
	if err != nil {
		return err
	}
	return writePutResponse(w, r, info, created)
}

// handlePutStream stores the body as it arrives, on the connection's own
// goroutine.
func (o *ObjectHandler) handlePutStream(w http.ResponseWriter, r *http.Request) error {
	size := Unknown
	if r.ContentLength >= 0 && r.Header.Get("Content-Encoding") == "" {
		size = r.ContentLength
	}
	class, want, err := parsePutQuery(r)
	if err != nil {
		return err
	}
	rest, err := newPutRest(r, want)
	if err != nil {
		return err
	}
	var info Info
	var created bool
	if rest != nil {
		info, created, err = rest.put(r.Context(), o.store, want, class)
	} else {
		info, created, err = o.store.Put(r.Context(), r.Body, PutOptions{Want: want, Unverified: !want.IsZero(), Size: size, Class: class})
	}
	if err != nil {
		return err
	}
	return writePutResponse(w, r, info, created)
}

// parsePutQuery reads the class and the expected address of an object. Most
// requests have no query.
func parsePutQuery(r *http.Request) (class Class, want b3.Address, err error) {
	if r.URL.RawQuery == "" {
		return Pinned, want, nil
	}
	query := r.URL.Query()
	if text := query.Get("want"); text != "" {
		if want, err = b3.Parse(text); err != nil {
			return Pinned, want, fault.Wrap("objects.put", err)
		}
	}
	class, err = parseClass(query.Get("class"))
	return class, want, err
}

// parseClass parses the class of an object that is put. It is Pinned by default.
func parseClass(text string) (Class, error) {
	if text == "" {
		return Pinned, nil
	}
	for _, class := range []Class{Pinned, Named, Cached} {
		if text == class.String() {
			return class, nil
		}
	}
	return Pinned, &fault.Error{Op: "objects.put", Kind: fault.Malformed, Detail: "unknown class of objects", Next: "Write class=pinned, class=named or class=cached, or leave it out."}
}

func writePutResponse(w http.ResponseWriter, r *http.Request, info Info, created bool) error {
	address := info.Address.String()
	w.Header().Set("Location", ingress.Location(r, "/o/"+address))
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return ingress.WriteJSON(w, status, Put{Address: address, Size: info.Size})
}

// handleGet answers with the object, or a part of it, straight from the store.
func (o *ObjectHandler) handleGet(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.get", err)
	}
	handle, err := o.store.Open(r.Context(), address)
	if err != nil {
		return err
	}
	defer handle.Close()
	ingress.MarkUntrusted(w.Header())
	if r.URL.RawQuery != "" {
		ingress.Disposition(w.Header(), r.URL.Query(), "", false)
	}
	status, err := ingress.ServeContent(w, r, Content(handle))
	if err == nil && status == http.StatusOK && o.cache != nil && o.cache.source == nil { // from a local store, Lookup makes the copies
		o.cache.offer(r.Context(), o.store, handle)
	}
	return err
}

// Content describes an object for serving. Its media type is not known here:
// the caller may set its Type.
func Content(handle Handle) ingress.Content {
	return ingress.Content{
		Size: handle.Size(), ETag: `"` + handle.Address().String() + `"`, Type: octets, CacheControl: ingress.Immutable,
		Write: func(w io.Writer, from, length int64) error {
			_, err := handle.WriteRange(w, from, length)
			return err
		},
	}
}

// handleDelete deletes an object. It is removed from the store before it is
// removed from the cache, so that it cannot be added to the cache again in
// between. It is removed from the cache even if the store does not have it: it
// may have been unpinned and evicted since.
func (o *ObjectHandler) handleDelete(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.rm", err)
	}
	err = o.store.Delete(r.Context(), address)
	if o.cache != nil {
		o.cache.Drop(address)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
