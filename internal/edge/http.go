package edge

import (
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
)

// firstByte is how long the edge may take until it answers: the seed's five
// seconds.
const firstByte = 5 * time.Second

// Routes lists the routes of the edge. The zero Edge has the same list: it is
// what a gateway knows of an edge in another process.
func (e *Edge) Routes() []ingress.Route {
	get := []string{http.MethodGet}
	bytes := []ingress.Response{
		{Status: http.StatusOK, Type: octets, Doc: "The bytes."},
		{Status: http.StatusPartialContent, Type: octets, Doc: "A range of them."},
		{Status: http.StatusNotModified, Type: octets, Doc: "The client has it."},
	}
	text := func(name, doc string) ingress.Param {
		return ingress.Param{Name: name, In: "path", Type: "string", Required: true, Doc: doc}
	}
	number := func(name, doc string) ingress.Param {
		return ingress.Param{Name: name, In: "path", Type: "integer", Required: true, Doc: doc}
	}
	return []ingress.Route{
		{
			Service: service, Methods: get, Pattern: assetPattern, Handler: e.asset, Class: ingress.Transfer, Deadline: firstByte,
			Docs: ingress.Docs{Summary: "Fetch a pack, a file, an object by its address, or one of an allow-listed origin", Responses: bytes,
				Description: "The first element of the path is the file name of a mounted pack, a name in the folder edge.assets, an address (b3:…) or a name (name:docs), with a path below it if that is a folder, or an allow-listed host; then https://host/path is fetched and kept.",
				Params:      []ingress.Param{text("path", "Where it is.")},
				Kinds: []fault.Kind{fault.NotFound, fault.RejectPolicy, fault.InvalidRange, fault.Busy, fault.RateLimited, fault.Timeout,
					fault.UpstreamFailed, fault.IntegrityFail, fault.RatioCap, fault.StoreFull, fault.NotReady}},
		},
		{
			Service: service, Methods: get, Pattern: "/edge/tiles/{pack}", Handler: e.tileJSON, Class: ingress.Control, Deadline: firstByte,
			Docs: ingress.Docs{Summary: "Describe a pack as TileJSON 3", Params: []ingress.Param{text("pack", "The name of the pack and .json.")},
				Responses: []ingress.Response{{Status: http.StatusOK, Doc: "TileJSON 3.0.0."}}, Kinds: []fault.Kind{fault.NotFound, fault.NotReady}},
		},
		{
			Service: service, Methods: get, Pattern: tilePattern, Handler: e.tile, Class: ingress.Transfer, Deadline: firstByte,
			Docs: ingress.Docs{Summary: "Fetch a tile", Responses: bytes,
				Params: []ingress.Param{text("pack", "The name of the pack: its file name without the extension."),
					number("z", "Zoom."), number("x", "Column, from the west."), text("y", "Row, from the north, with the extension or without.")},
				Kinds: []fault.Kind{fault.NotFound, fault.NotReady, fault.Malformed, fault.InvalidRange}},
		},
		{
			Service: service, Methods: get, Pattern: "/edge/packs", Handler: e.listPacks, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "List the packs, and what is wrong with those that are not served",
				Responses: []ingress.Response{{Status: http.StatusOK, Body: Packs{}}}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/admin/edge/purge", Handler: e.purge, Class: ingress.Control,
			Scope: "edge:purge", BodyCap: 64 << 10,
			Docs: ingress.Docs{Summary: "Forget what was fetched", Request: PurgeRequest{},
				Description: "By url, exactly, or by prefix: every URL that begins with it. What is being fetched meanwhile does not come back.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: Purged{}}}, Kinds: []fault.Kind{fault.Malformed}},
		},
	}
}

const octets = "application/octet-stream"

// PurgeRequest says what is to be forgotten: one of the two.
type PurgeRequest struct {
	URL    string `json:"url,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// Purged is how many stored answers were forgotten.
type Purged struct {
	Purged int `json:"purged"`
}

func (e *Edge) purge(w http.ResponseWriter, r *http.Request) error {
	var wanted PurgeRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	n, err := e.cache.Purge(r.Context(), fill.Purge{URL: wanted.URL, Prefix: wanted.Prefix})
	if err != nil {
		return err
	}
	e.answers.clear()
	return ingress.WriteJSON(w, http.StatusOK, Purged{Purged: n})
}
