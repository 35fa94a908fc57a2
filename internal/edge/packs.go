package edge

import (
	"net/http"
	"net/url"
	"time"

	"micronode/fault"
	"micronode/internal/edge/pack"
	"micronode/internal/ingress"
)

// Packs is the list of packs.
type Packs struct {
	Packs []Pack `json:"packs"`
}

// Pack is the state of one pack.
type Pack struct {
	Name     string     `json:"name"`
	File     string     `json:"file"`
	Kind     string     `json:"kind"`
	State    string     `json:"state"` // serving, degraded (an older version is served), waiting or bad
	Size     int64      `json:"size"`
	Modified time.Time  `json:"modified"`
	Version  string     `json:"version,omitempty"`
	ETag     string     `json:"etag,omitempty"`
	Verified bool       `json:"verified"` // its bytes are those that edge.expect asks for
	Format   string     `json:"format,omitempty"`
	MinZoom  int        `json:"minzoom"`
	MaxZoom  int        `json:"maxzoom"`
	Bounds   [4]float64 `json:"bounds"`
	TileJSON string     `json:"tilejson,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Next     string     `json:"next,omitempty"`
}

func (e *Edge) handlePacks(w http.ResponseWriter, _ *http.Request) error {
	list := Packs{Packs: []Pack{}}
	for _, one := range e.packs.State().Packs {
		list.Packs = append(list.Packs, newPack(one))
	}
	return ingress.WriteJSON(w, http.StatusOK, list)
}

func newPack(one pack.Status) Pack {
	p := Pack{
		Name: one.Name, File: one.File, Kind: one.Kind, State: string(one.Condition), Size: one.Size, Modified: one.Modified.UTC(),
		Version: one.Version, ETag: one.ETag, Verified: one.Verified,
		Format: one.Tiles.Format, MinZoom: int(one.Tiles.MinZoom), MaxZoom: int(one.Tiles.MaxZoom), Bounds: one.Tiles.Bounds,
	}
	if isServed(one) {
		p.TileJSON = tilesPrefix + url.PathEscape(one.Name) + ".json"
	}
	if one.Err != nil {
		p.Reason, p.Next = fault.DetailOf(one.Err), fault.NextOf(one.Err)
	}
	return p
}

// isServed reports whether some version of a pack is being served.
func isServed(one pack.Status) bool {
	return one.Condition == pack.Serving || one.Condition == pack.Degraded
}

// TileJSONPaths lists the TileJSON paths of the packs that are served.
func (e *Edge) TileJSONPaths() []string {
	var paths []string
	for _, one := range e.packs.State().Packs {
		if isServed(one) {
			paths = append(paths, tilesPrefix+url.PathEscape(one.Name)+".json")
		}
	}
	return paths
}

// OriginPaths lists the paths of the allow-listed hosts.
func (e *Edge) OriginPaths() []string {
	var paths []string
	for _, host := range e.config.Allow {
		paths = append(paths, assetsPrefix+host+"/…")
	}
	return paths
}
