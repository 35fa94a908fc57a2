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

// The trustless gateway of IPFS, in its smallest form: a client asks by CID,
// gets the block and can verify it. Kubo uses it to fetch from the providers
// that Delegated Routing names. It serves what this node has and asks no other
// node.

const (
	rawBlock  = "application/vnd.ipld.raw"
	maxBlock  = 2 << 20 // bytes; IPFS carries no larger blocks
	immutable = "public, max-age=31536000, immutable"
)

func (x *Index) gatewayRoute(cid ingress.Param) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/ipfs/{cid}", Handler: x.handleBlock, Cheap: true, Public: ingress.PublicObjects, Class: ingress.Transfer,
		Docs: ingress.Docs{Summary: "A block, as a trustless gateway of IPFS serves it",
			Description: "Raw blocks under BLAKE3 of at most 2 MiB that this node has. GET /o/{b3} serves objects of any size.",
			Params: []ingress.Param{cid,
				{Name: "format", In: "query", Type: "string", Doc: "raw. Without it, the request must accept " + rawBlock + "."},
				{Name: "filename", In: "query", Type: "string", Doc: "The file name for the download."}},
			Content: true, Responses: []ingress.Response{{Status: http.StatusOK, Type: rawBlock, Doc: "The block, verified."}},
			Kinds: []fault.Kind{fault.NotFound, fault.IntegrityFail}},
	}
}

// handleBlock serves a block from this node's store.
func (x *Index) handleBlock(w http.ResponseWriter, r *http.Request) error {
	asked, err := delegated.ParseCID(r.PathValue("cid"))
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if !wantsRaw(r) {
		return formatError()
	}
	switch {
	case asked.Empty:
		return sendBlock(w, r, ingress.Content{Write: func(io.Writer, int64, int64) error { return nil }})
	case !asked.Ours:
		return noBlockError("this node has only raw blocks under BLAKE3", "Request it from a gateway that has it, or `micronode put` it here and use the CID of its address.")
	}
	handle, err := x.spec.Store.Open(r.Context(), asked.Address)
	if err != nil {
		return fault.Wrap("index.gateway", err)
	}
	defer handle.Close()
	if handle.Size() > maxBlock {
		return noBlockError("it is too large for a block", "Fetch it as an object, from /o/"+asked.Address.String()+".")
	}
	return sendBlock(w, r, ingress.Content{Size: handle.Size(), Write: func(w io.Writer, from, length int64) error {
		_, err := handle.WriteRange(w, from, length)
		return err
	}})
}

// sendBlock sends a block with the headers that the gateway specification
// requires.
func sendBlock(w http.ResponseWriter, r *http.Request, c ingress.Content) error {
	cid := r.PathValue("cid")
	header := w.Header()
	ingress.MarkUntrusted(header)
	ingress.Disposition(header, r.URL.Query(), cid+".bin", true) // as gateways do it with raw blocks
	header.Set("X-Ipfs-Path", "/ipfs/"+cid)
	header.Set("X-Ipfs-Roots", cid)
	if !r.URL.Query().Has("format") {
		header.Set("Content-Location", "/ipfs/"+cid+"?format=raw")
	}
	c.ETag, c.Type, c.CacheControl = `"`+cid+`.raw"`, rawBlock, immutable
	_, err := ingress.ServeContent(w, r, c)
	return err
}

// wantsRaw reports whether a request is for the raw bytes of a block. The query
// takes precedence over Accept.
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

func formatError() error {
	return fault.New("index.gateway", fault.Malformed, "this gateway serves raw blocks only").
		Advise("Add ?format=raw, or send Accept: " + rawBlock + ". For a file, ask for /o/" + b3.Prefix + "….")
}

func noBlockError(why, next string) error {
	return fault.New("index.gateway", fault.NotFound, "there is no such block here: %s", why).Advise(next)
}
