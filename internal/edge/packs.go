package edge

import (
	"net/http"
	"strings"
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
		p.TileJSON = tileJSONPath(one.Name)
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
			paths = append(paths, tileJSONPath(one.Name))
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

// updateReadiness reports the state of the packs to readiness. A pack that is
// not served makes the edge not ready, because requests for its tiles fail and
// a balancer should know. A pack whose older version is served while the new
// one is bad degrades it. Other packs are served in both cases.
func (e *Edge) updateReadiness(now pack.State) {
	e.tiles.clear() // tiles of old versions would only take space
	var down, degraded []string
	var next string
	for _, one := range now.Packs {
		switch one.Condition {
		case pack.Serving:
			continue
		case pack.Degraded:
			degraded = append(degraded, fault.DetailOf(one.Err))
		default:
			down = append(down, fault.DetailOf(one.Err))
		}
		if next == "" {
			next = fault.NextOf(one.Err)
		}
	}
	switch {
	case len(down) > 0:
		e.packsReady.Down(strings.Join(append(down, degraded...), "; "), next)
	case len(degraded) > 0:
		e.packsReady.Degraded(strings.Join(degraded, "; "), next)
	case now.Watch != nil:
		e.packsReady.UpWithRemark(fault.DetailOf(now.Watch), fault.NextOf(now.Watch))
	default:
		e.packsReady.Up()
	}
}
