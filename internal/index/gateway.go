package index

import (
	"io"
	"mime"
	"net/http"
	"strings"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/delegated"
	"micronode/internal/ingress"
)

// The trustless gateway of IPFS, in its smallest form: whoever asks by a CID gets
// the block and can see for himself that it is the right one. Kubo fetches by it
// from those whom Delegated Routing names. It gives what this node has and asks
// nobody else.

const (
	rawBlock  = "application/vnd.ipld.raw"
	mostBlock = 2 << 20 // bytes; IPFS carries no larger blocks
	immutable = "public, max-age=31536000, immutable"
)

func (x *Index) gatewayRoute(cid ingress.Param) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/ipfs/{cid}", Handler: x.serveBlock, Class: ingress.Transfer,
		Docs: ingress.Docs{Summary: "A block, as a trustless gateway of IPFS gives it",
			Description: "Raw blocks under BLAKE3 of at most 2 MiB that this node has. GET /o/{b3} gives objects of any size.",
			Params: []ingress.Param{cid,
				{Name: "format", In: "query", Type: "string", Doc: "raw. Without it, the request must accept " + rawBlock + "."}},
			Responses: []ingress.Response{{Status: http.StatusOK, Type: rawBlock, Doc: "The block, verified."},
				{Status: http.StatusPartialContent, Type: rawBlock, Doc: "A range of it."},
				{Status: http.StatusNotModified, Type: rawBlock, Doc: "The client has it."}},
			Kinds: []fault.Kind{fault.Malformed, fault.NotFound, fault.InvalidRange, fault.IntegrityFail}},
	}
}

// serveBlock answers with a block of this node's store.
func (x *Index) serveBlock(w http.ResponseWriter, r *http.Request) error {
	asked, err := delegated.ParseCID(r.PathValue("cid"))
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if !wantsRaw(r) {
		return fewForms()
	}
	switch {
	case asked.Empty:
		return sendBlock(w, r, ingress.Content{Write: func(io.Writer, int64, int64) error { return nil }})
	case !asked.Ours:
		return noBlock("this node has only raw blocks under BLAKE3", "Ask for it where it is, or `micronode put` it here and use the CID of its address.")
	}
	handle, err := x.spec.Store.Open(r.Context(), asked.Address)
	if err != nil {
		return fault.Wrap("index.gateway", err)
	}
	defer handle.Close()
	if handle.Size() > mostBlock {
		return noBlock("it is too large for a block", "Fetch it as an object, from /o/"+asked.Address.String()+".")
	}
	return sendBlock(w, r, ingress.Content{Size: handle.Size(), Write: func(w io.Writer, from, length int64) error {
		_, err := handle.WriteRange(w, from, length)
		return err
	}})
}

// sendBlock sends a block with the headers that a gateway promises.
func sendBlock(w http.ResponseWriter, r *http.Request, c ingress.Content) error {
	cid := r.PathValue("cid")
	header := w.Header()
	ingress.Untrusted(header)
	header.Set("Content-Disposition", `attachment; filename="`+cid+`.bin"`)
	header.Set("X-Ipfs-Path", "/ipfs/"+cid)
	header.Set("X-Ipfs-Roots", cid)
	if !r.URL.Query().Has("format") {
		header.Set("Content-Location", "/ipfs/"+cid+"?format=raw")
	}
	c.ETag, c.Type, c.CacheControl = `"`+cid+`.raw"`, rawBlock, immutable
	_, err := ingress.ServeContent(w, r, c)
	return err
}

// wantsRaw reports whether a request is for the bytes of a block as they are.
// The query decides, if it says anything.
func wantsRaw(r *http.Request) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "raw"
	}
	for one := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, parameters, err := mime.ParseMediaType(one); err == nil && kind == rawBlock && parameters["q"] != "0" {
			return true
		}
	}
	return false
}

func fewForms() error {
	err := fault.New("index.gateway", fault.Malformed, "blocks can be had here as they are, and in no other form")
	err.Next = "Add ?format=raw, or send Accept: " + rawBlock + ". For a file, ask for /o/" + b3.Prefix + "…."
	return err
}

func noBlock(why, next string) error {
	err := fault.New("index.gateway", fault.NotFound, "there is no such block here: %s", why)
	err.Next = next
	return err
}
