package edge

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// Content is what the edge asks of the rest of the node for paths that begin with
// an address or a name.
type Content interface {
	// Open finds an object that this node has; NotFound otherwise.
	Open(ctx context.Context, a b3.Address) (store.Handle, error)

	// Bring fetches one from whoever has it, so that Open finds it. It goes on
	// when ctx ends, for whoever asks next.
	Bring(ctx context.Context, a b3.Address) error

	// Manifest says what a name stands for.
	Manifest(ctx context.Context, name string) (b3.Address, error)
}

// What the first element of a path begins with, if it says what is wanted and
// not where it is.
const (
	byAddress = b3.Prefix
	byName    = "name:"
)

// foreverControl is the Cache-Control of what an address names: it never
// changes. What a name stands for may.
const foreverControl = "public, max-age=31536000, immutable"

// serveContent answers with an object, or with a file of the folder that a
// manifest describes.
func (e *Edge) serveContent(w http.ResponseWriter, r *http.Request) (served bool, err error) {
	first, rest, _ := strings.Cut(r.PathValue("path"), "/")
	named := strings.HasPrefix(first, byName)
	if e.content == nil || !named && !strings.HasPrefix(first, byAddress) {
		return false, nil
	}
	control := foreverControl
	var root b3.Address
	if named {
		control = e.cacheControl
		root, err = e.content.Manifest(r.Context(), first)
	} else {
		root, err = b3.Parse(first)
	}
	if err != nil {
		return true, e.refused(err)
	}
	found, err := e.locate(r.Context(), root, rest)
	if err != nil {
		return true, e.refused(err)
	}
	return true, e.serveObject(w, r, found, control)
}

// located is a file in a tree of content.
type located struct {
	address b3.Address
	kind    string // its media type
}

// locate finds the object that a path below an address means. A path that ends
// with a slash stands for the index.html there, and an address with nothing below
// it for itself.
func (e *Edge) locate(ctx context.Context, root b3.Address, path string) (located, error) {
	if path == "" {
		return located{root, octets}, nil
	}
	manifest, err := e.manifest(ctx, root)
	if err != nil {
		return located{}, err
	}
	if strings.HasSuffix(path, "/") {
		path += "index.html"
	}
	i, ok := slices.BinarySearchFunc(manifest.Entries, path, func(one client.Entry, path string) int { return strings.Compare(one.Path, path) })
	if !ok {
		return located{}, &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: "the folder has no such file", Next: "Look at what is in it: GET " + assetsPrefix + root.String() + "."}
	}
	one := manifest.Entries[i]
	kind := mediaType(one.Path)
	if kind == octets && one.Type != "" {
		kind = one.Type
	}
	return located{one.B3, kind}, nil
}

// manifest reads the description of a folder.
func (e *Edge) manifest(ctx context.Context, address b3.Address) (client.Manifest, error) {
	handle, err := e.open(ctx, address)
	if err != nil {
		return client.Manifest{}, err
	}
	defer handle.Close()
	if handle.Size() > client.MaxManifest {
		return client.Manifest{}, &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: address.String() + " is no folder", Next: "Ask for it without anything behind it."}
	}
	raw, err := io.ReadAll(io.NewSectionReader(handle, 0, handle.Size()))
	if err != nil {
		return client.Manifest{}, err
	}
	manifest, err := client.DecodeManifest(raw)
	if err != nil {
		return client.Manifest{}, &fault.Error{Op: assetOp, Kind: fault.NotFound, Detail: address.String() + " is no folder", Next: "Ask for it without anything behind it.", Err: err}
	}
	return manifest, nil
}

// open finds an object here, or has it brought here. What strangers make this
// node fetch is bounded like every other fill.
func (e *Edge) open(ctx context.Context, address b3.Address) (store.Handle, error) {
	handle, err := e.content.Open(ctx, address)
	if fault.KindOf(err) != fault.NotFound {
		if err == nil {
			e.metrics.hits.Inc()
		}
		return handle, err
	}
	if err := e.admit(); err != nil {
		return nil, err
	}
	e.metrics.misses.Inc()
	if err := e.content.Bring(ctx, address); err != nil {
		return nil, err
	}
	return e.content.Open(ctx, address)
}

func (e *Edge) serveObject(w http.ResponseWriter, r *http.Request, found located, control string) error {
	handle, err := e.open(r.Context(), found.address)
	if err != nil {
		return e.refused(err)
	}
	defer handle.Close()
	ingress.Untrusted(w.Header())
	return e.serve(w, r, ingress.Content{
		Size: handle.Size(), ETag: `"` + found.address.String() + `"`, Type: found.kind, CacheControl: control,
		Write: func(w io.Writer, off, n int64) error {
			_, err := handle.WriteRange(w, off, n)
			return err
		},
	})
}

// refused counts why something could not be had.
func (e *Edge) refused(err error) error {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Malformed, fault.Canceled, fault.BrokenPipe:
	case fault.RateLimited:
		e.metrics.reject(reasonRate)
	case fault.Busy, fault.Backpressure:
		e.metrics.reject(reasonBusy)
	case fault.Timeout:
		e.metrics.reject(reasonTimeout)
	default:
		e.metrics.reject(reasonUpstream)
	}
	return fault.Wrap(assetOp, err)
}
