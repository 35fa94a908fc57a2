package facet

import (
	"bytes"
	"context"
	"net/http"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/facet/thumb"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Objects reads objects. Every store.Store implements it.
type Objects interface {
	Open(ctx context.Context, address b3.Address) (store.Handle, error)
}

// mediaFacet is the state of the media facet.
type mediaFacet struct {
	facetBase
	thumbs *thumbnailer // nil if it is off
}

func (f *Facets) openMedia(_ *flow.Inventory, to *supervise.Supervisor, in Stages) (err error) {
	if !f.media.on {
		return nil
	}
	if err := f.media.requireOwner("store", f.spec.Objects != nil); err != nil {
		return err
	}
	f.media.thumbs, err = newThumbnailer(f, to, in)
	return err
}

func (f *Facets) mediaRoutes() []ingress.Route {
	return []ingress.Route{{
		Methods: []string{http.MethodGet}, Pattern: "/media/{b3}", Handler: f.handleMedia, Public: ingress.OnThisMachine, Class: ingress.Transfer,
		Docs: ingress.Docs{Summary: "An object with its media type, or a thumbnail of it",
			Description: "The media type is detected from the bytes. With thumb, a JPEG, PNG, GIF or WebP is scaled down to fit into a box, with its proportions; it is never enlarged.",
			Params: []ingress.Param{
				pathParam("b3", "The address: b3: and 64 hex digits."),
				{Name: "thumb", In: "query", Type: "string", Doc: "WxH, such as 320x200, each from 1 to 1024."},
			},
			Responses: []ingress.Response{
				{Status: http.StatusOK, Type: "*/*", Doc: "The bytes, verified, with their detected type."},
			}, Content: true,
			Kinds: []fault.Kind{fault.Malformed, fault.InvalidRange, fault.IntegrityFail, fault.BodyTooLarge, fault.RatioCap, fault.Backpressure, fault.Timeout, fault.Canceled}},
	}}
}

// sniffBytes is how much of an object is read to detect its type.
const sniffBytes = 512

func (f *Facets) handleMedia(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap(mediaName, err)
	}
	handle, err := f.spec.Objects.Open(r.Context(), address)
	if err != nil {
		return err
	}
	defer handle.Close()
	ingress.MarkUntrusted(w.Header())
	if asked := r.URL.Query(); asked.Has("thumb") {
		return f.serveThumb(w, r, handle, asked.Get("thumb"))
	}
	content := store.Content(handle)
	if content.Type, err = sniff(handle); err != nil {
		return err
	}
	_, err = ingress.ServeContent(w, r, content)
	return err
}

// sniff detects the type of an object from its first bytes.
func sniff(handle store.Handle) (string, error) {
	head := make([]byte, min(sniffBytes, handle.Size()))
	if len(head) > 0 {
		if n, err := handle.ReadAt(head, 0); n < len(head) {
			return "", fault.Wrap(mediaName, err)
		}
	}
	return http.DetectContentType(head), nil
}

// serveThumb answers with a thumbnail. The object never changes, so the
// thumbnail never changes, either.
func (f *Facets) serveThumb(w http.ResponseWriter, r *http.Request, handle store.Handle, size string) error {
	bounds, err := thumb.ParseBoundingBox(size)
	if err != nil {
		return err
	}
	content := store.Content(handle)
	made, err := f.media.thumbs.get(r.Context(), thumbKey{handle.Address(), bounds})
	if err != nil {
		return err
	}
	content.Size, content.Type, content.Ready = int64(len(made.Data)), made.Type, true
	content.ETag = `"` + handle.Address().String() + ";" + bounds.String() + `"`
	content.Write = ingress.FromReaderAt(bytes.NewReader(made.Data))
	_, err = ingress.ServeContent(w, r, content)
	return err
}

func (f *Facets) addMedia(*supervise.Supervisor, Stages) error { return nil }

func (f *Facets) closeMedia() error {
	if f.media.thumbs != nil {
		f.media.thumbs.close()
	}
	return nil
}
