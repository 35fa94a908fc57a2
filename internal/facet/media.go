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

// Objects is who has the bytes. Every store.Store has them.
type Objects interface {
	Open(ctx context.Context, address b3.Address) (store.Handle, error)
}

// media is the facet's own.
type media struct {
	part
	thumbs *thumbs // nil if it is off
}

func (f *Facets) openMedia(_ *flow.Inventory, to *supervise.Supervisor, in Stages) (err error) {
	if !f.media.on {
		return nil
	}
	if err := f.media.need("store", f.spec.Objects != nil); err != nil {
		return err
	}
	f.media.thumbs, err = newThumbs(f, to, in)
	return err
}

func (f *Facets) mediaRoutes() []ingress.Route {
	return []ingress.Route{{
		Methods: []string{http.MethodGet}, Pattern: "/media/{b3}", Handler: f.serveMedia, Class: ingress.Transfer,
		Docs: ingress.Docs{Summary: "An object as a browser wants it, or a small picture of it",
			Description: "The media type is found out from the bytes. With thumb, a JPEG, PNG, GIF or WebP is made to fit into a box; it keeps its proportions, and becomes no larger than it is.",
			Params: []ingress.Param{
				path("b3", "The address: b3: and 64 hex digits."),
				{Name: "thumb", In: "query", Type: "string", Doc: "WxH, such as 320x200, each from 1 to 1024."},
			},
			Responses: []ingress.Response{
				{Status: http.StatusOK, Type: octets, Doc: "The bytes, verified."},
				{Status: http.StatusPartialContent, Type: octets, Doc: "A range of them."},
				{Status: http.StatusNotModified, Doc: "The client has it."},
			},
			Kinds: []fault.Kind{fault.Malformed, fault.InvalidRange, fault.IntegrityFail, fault.BodyTooLarge, fault.RatioCap, fault.Backpressure, fault.Timeout, fault.Canceled}},
	}}
}

const octets = "application/octet-stream"

// sniffed is how much of an object is looked at to find out what it is.
const sniffed = 512

func (f *Facets) serveMedia(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap(mediaName, err)
	}
	handle, err := f.spec.Objects.Open(r.Context(), address)
	if err != nil {
		return err
	}
	defer handle.Close()
	ingress.Untrusted(w.Header())
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

// sniff finds out what an object is by how it begins.
func sniff(handle store.Handle) (string, error) {
	head := make([]byte, min(sniffed, handle.Size()))
	if len(head) > 0 {
		if n, err := handle.ReadAt(head, 0); n < len(head) {
			return "", fault.Wrap(mediaName, err)
		}
	}
	return http.DetectContentType(head), nil
}

// serveThumb answers with a small picture. It is made of what never changes, so
// it never changes, either.
func (f *Facets) serveThumb(w http.ResponseWriter, r *http.Request, handle store.Handle, size string) error {
	box, err := thumb.ParseBox(size)
	if err != nil {
		return err
	}
	content := store.Content(handle)
	made, err := f.media.thumbs.get(r.Context(), thumbKey{handle.Address(), box})
	if err != nil {
		return err
	}
	content.Size, content.Type, content.Ready = int64(len(made.Data)), made.Type, true
	content.ETag = `"` + handle.Address().String() + ";" + box.String() + `"`
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
