package edge

import (
	"net/http"

	"micronode/fault"
	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
)

// Routes lists the routes of the edge. The zero Edge has the same list, for a
// gateway whose edge runs in another process.
func (e *Edge) Routes() []ingress.Route {
	get := []string{http.MethodGet}
	bytes := []ingress.Response{{Status: http.StatusOK, Type: anyMediaType, Doc: "The bytes."}}
	relayed := append(bytes, ingress.Response{Type: anyMediaType, Doc: "The answer of the origin, with its status."})
	text := func(name, doc string) ingress.Param {
		return ingress.Param{Name: name, In: "path", Type: "string", Required: true, Doc: doc}
	}
	number := func(name, doc string) ingress.Param {
		return ingress.Param{Name: name, In: "path", Type: "integer", Required: true, Doc: doc}
	}
	return []ingress.Route{
		{
			Service: service, Methods: get, Pattern: assetPattern, Handler: e.handleAsset, Cheap: true, Public: ingress.PublicAssets, Class: ingress.Transfer,
			Docs: ingress.Docs{Summary: "Fetch a pack, a file, an object by its address, or one of an allow-listed origin", Responses: relayed, Content: true,
				Description: "The first element of the path is the file name of a mounted pack, a name in the folder edge.assets, an address (b3:…) or a name (name:docs), with a path below it if that is a folder, or an allow-listed host; then https://host/path is fetched and cached.",
				Params:      []ingress.Param{text("path", "Where it is.")},
				Kinds: []fault.Kind{fault.NotFound,
					fault.UpstreamFailed, fault.IntegrityFail, fault.RatioCap, fault.StoreFull, fault.NotReady, fault.BreakerOpen}},
		},
		e.siteRoute(),
		{
			Service: service, Methods: get, Pattern: "/edge/tiles/{pack}", Handler: e.handleTileJSON, Cheap: true, Public: ingress.PublicTiles, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "Describe a pack as TileJSON 3", Params: []ingress.Param{text("pack", "The name of the pack and .json.")},
				Content: true, Responses: []ingress.Response{{Status: http.StatusOK, Type: "application/json", Doc: "TileJSON 3.0.0."}}, Kinds: []fault.Kind{fault.NotFound, fault.NotReady}},
		},
		{
			Service: service, Methods: get, Pattern: tilePattern, Handler: e.handleTile, Cheap: true, Public: ingress.PublicTiles, Class: ingress.Transfer,
			Docs: ingress.Docs{Summary: "Fetch a tile", Responses: bytes, Content: true,
				Params: []ingress.Param{text("pack", "The name of the pack: its file name without the extension."),
					number("z", "Zoom."), number("x", "Column, from the west."), text("y", "Row, from the north, with the extension or without.")},
				Kinds: []fault.Kind{fault.NotFound, fault.NotReady}},
		},
		{
			Service: service, Methods: get, Pattern: "/edge/packs", Handler: e.handlePacks, Public: ingress.OnThisMachine, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "List the packs, with the errors of those that are not served",
				Responses: []ingress.Response{{Status: http.StatusOK, Body: Packs{}}}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/admin/edge/purge", Handler: e.handlePurge, Class: ingress.Control,
			Scope: "edge:purge", BodyCap: 64 << 10,
			Docs: ingress.Docs{Summary: "Purge cached answers of origins", Request: PurgeRequest{},
				Description: "By url, exactly, or by prefix: every URL that begins with it. Answers that are being fetched meanwhile are not cached.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: Purged{}}}, Kinds: []fault.Kind{fault.Malformed}},
		},
	}
}

// WarmRoutes is what the warm lane may serve: plain GETs of tiles and of small
// answers that are fresh in the cache.
func (e *Edge) WarmRoutes() ingress.WarmRoutes {
	return ingress.WarmRoutes{
		{Prefix: tilesPrefix, Source: warmTiles{e}},
		{Prefix: assetsPrefix, Source: warmAssets{e}},
	}
}

// anyMediaType is the type of content that comes from elsewhere.
const anyMediaType = "*/*"

const octets = "application/octet-stream"

// PurgeRequest says what to purge: one of the two.
type PurgeRequest struct {
	URL    string `json:"url,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// Purged is how many stored answers were purged.
type Purged struct {
	Purged int `json:"purged"`
}

func (e *Edge) handlePurge(w http.ResponseWriter, r *http.Request) error {
	var wanted PurgeRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	n, err := e.cache.Purge(r.Context(), fill.PurgeRequest{URL: wanted.URL, Prefix: wanted.Prefix})
	if err != nil {
		return err
	}
	e.answers.clear()
	return ingress.WriteJSON(w, http.StatusOK, Purged{Purged: n})
}
