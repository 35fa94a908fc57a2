package edge

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// ObjectSource is the part of the node that serves paths that begin with an
// address or a name.
type ObjectSource interface {
	// Open opens an object that this node has; NotFound otherwise.
	Open(ctx context.Context, a b3.Address) (store.Handle, error)

	// Fetch fetches an object from its providers, so that Open finds it. The
	// fetch continues when ctx ends, for later requests. It fails with Busy if
	// the node cannot fetch now or the client has used up its share; an invalid
	// client address has no share to keep to.
	Fetch(ctx context.Context, from netip.Addr, a b3.Address) error

	// ResolveManifest returns the address that a name stands for.
	ResolveManifest(ctx context.Context, name string) (b3.Address, error)
}

// Prefixes of the first path element when it names an object by address or name
// instead of a source.
const (
	addressPrefix = b3.Prefix
	namePrefix    = "name:"
)

// serveContent answers with the object that a path begins with, or with a file
// of the folder that its manifest describes.
func (e *Edge) serveContent(w http.ResponseWriter, r *http.Request, path string) (err error) {
	first, rest, _ := strings.Cut(path, "/")
	named := strings.HasPrefix(first, namePrefix)
	var root b3.Address
	if named {
		root, err = e.objects.ResolveManifest(r.Context(), first)
	} else {
		root, err = b3.Parse(first)
	}
	if err != nil {
		return e.countRefusal(err)
	}
	fetch := e.fetcherFor(r)
	found, err := e.resolvePath(r.Context(), fetch, root, rest)
	if err != nil {
		return e.countRefusal(err)
	}
	handle, err := e.openObject(r.Context(), fetch, found.address)
	if err != nil {
		return e.countRefusal(err)
	}
	defer handle.Close()
	ingress.MarkUntrusted(w.Header())
	content := store.Content(handle)
	content.Type = found.mediaType
	if named {
		content.CacheControl = e.cacheControl // what a name stands for may change
	}
	return e.serve(w, r, content)
}

// contentFile is a file in a tree of content.
type contentFile struct {
	address   b3.Address
	mediaType string // its media type
}

// resolvePath finds the object that a path below an address means. A path that
// ends with a slash means the index.html there; an empty path means the address
// itself.
func (e *Edge) resolvePath(ctx context.Context, fetch fetcher, root b3.Address, path string) (contentFile, error) {
	if path == "" {
		return contentFile{root, octets}, nil
	}
	manifest, err := e.manifest(ctx, fetch, root)
	if err != nil {
		return contentFile{}, err
	}
	if strings.HasSuffix(path, "/") {
		path += "index.html"
	}
	i, ok := slices.BinarySearchFunc(manifest.Entries, path, func(entry client.Entry, path string) int { return strings.Compare(entry.Path, path) })
	if !ok {
		return contentFile{}, &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: "the folder has no such file", Next: "List its files: GET " + assetsPrefix + root.String() + "."}
	}
	entry := manifest.Entries[i]
	contentType := mediaType(entry.Path)
	if contentType == octets && entry.Type != "" {
		contentType = entry.Type
	}
	return contentFile{entry.B3, contentType}, nil
}

// manifest reads the manifest of a folder.
func (e *Edge) manifest(ctx context.Context, fetch fetcher, address b3.Address) (client.Manifest, error) {
	handle, err := e.openObject(ctx, fetch, address)
	if err != nil {
		return client.Manifest{}, err
	}
	defer handle.Close()
	if handle.Size() > client.MaxManifest {
		return client.Manifest{}, &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: address.String() + " is not a folder", Next: "Request it without a path after it."}
	}
	raw, err := io.ReadAll(io.NewSectionReader(handle, 0, handle.Size()))
	if err != nil {
		return client.Manifest{}, err
	}
	manifest, err := client.DecodeManifest(raw)
	if err != nil {
		return client.Manifest{}, &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: address.String() + " is not a folder", Next: "Request it without a path after it.", Err: err}
	}
	return manifest, nil
}

// openObject opens an object of this node, or fetches it first.
func (e *Edge) openObject(ctx context.Context, fetch fetcher, address b3.Address) (store.Handle, error) {
	handle, err := e.objects.Open(ctx, address)
	if fault.KindOf(err) != fault.NotFound {
		if err == nil {
			e.metrics.hits.Inc()
		}
		return handle, err
	}
	if err := fetch(ctx, address); err != nil {
		return nil, err
	}
	return e.objects.Open(ctx, address)
}

// fetcher makes this node fetch an object on behalf of a client.
type fetcher func(ctx context.Context, address b3.Address) error

// fetcherFor fetches for the client of a request, if it may and from its share.
// Such fetches are rate-limited like every other fill.
func (e *Edge) fetcherFor(r *http.Request) fetcher {
	return func(ctx context.Context, address b3.Address) error {
		if err := e.authoriseFetch(r); err != nil {
			return err
		}
		if err := ingress.Spend(r.Context()); err != nil {
			return err
		}
		if err := e.admit(addressPrefix, fill.ClientOf(ingress.ShareKey(r))); err != nil {
			return err
		}
		e.metrics.misses.Inc()
		return e.objects.Fetch(ctx, ingress.ShareKey(r), address)
	}
}

// authoriseFetch checks whether a caller may make this node fetch an object
// that it does not hold.
func (e *Edge) authoriseFetch(r *http.Request) error {
	if e.config.AnonymousFetch {
		return nil
	}
	err := ingress.RequireCredentials(r)
	if err == nil {
		return nil
	}
	return &fault.Error{Op: assetOp, Kind: fault.Unauthorized, Err: err,
		Detail: "this node does not have it, and a fetch needs a capability (edge.anonymous_fetch is false)",
		Next:   "Mint one on the node's machine with `micronode token mint --scope object:put --ttl 1h`, or with any other scope, and send it as `Authorization: Bearer …`."}
}

// countRefusal counts why an object could not be served.
func (e *Edge) countRefusal(err error) error {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Malformed, fault.Canceled, fault.BrokenPipe:
	case fault.RateLimited:
		e.metrics.reject(reasonRate)
	case fault.Busy, fault.Backpressure:
		e.metrics.reject(reasonBusy)
	case fault.Timeout:
		e.metrics.reject(reasonTimeout)
	case fault.Unauthorized:
		e.metrics.reject(reasonNotAllowed)
	default:
		e.metrics.reject(reasonUpstream)
	}
	return fault.Wrap(assetOp, err)
}
