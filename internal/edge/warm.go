package edge

import (
	"bytes"
	"context"

	"micronode/internal/ingress"
)

// Shelves is what the warm lane may ask the edge for: plain GETs of tiles and
// of small answers that the cache holds fresh.
func (e *Edge) Shelves() ingress.Shelves {
	return ingress.Shelves{
		{Prefix: tilesPrefix, Warm: warmTiles{e}},
		{Prefix: assetsPrefix, Warm: warmAssets{e}},
	}
}

// warmTiles makes the answers for tiles.
type warmTiles struct{ edge *Edge }

// Lookup finds a tile, or reads it from its pack. Whatever is not simply there
// is for the handler to explain.
func (w warmTiles) Lookup(target []byte) (*ingress.Prepared, bool) {
	name, at, ok := parseTarget(target[len(tilesPrefix):])
	if !ok {
		return nil, false
	}
	p, err := w.edge.packs.Open(name)
	if err != nil {
		return nil, false
	}
	defer p.Close()
	if !at.fits(extension(p)) {
		return nil, false
	}
	tile, err := w.edge.tiles.get(context.Background(), p, at)
	if err != nil || tile.template == nil {
		return nil, false
	}
	return tile.template.Answer(ingress.Particular{}, tile.tag, tile.Data)
}

// parseTarget reads {pack}/{z}/{x}/{y}[.ext], written plainly: anything that is
// escaped, or has a query, is not for the lane.
func parseTarget(rest []byte) (name string, at place, ok bool) {
	if bytes.ContainsAny(rest, "%?") {
		return "", place{}, false
	}
	var parts [4][]byte
	for i := range parts {
		var found bool
		parts[i], rest, found = bytes.Cut(rest, []byte{'/'})
		if found != (i < len(parts)-1) {
			return "", place{}, false
		}
	}
	at, err := parsePlace(parts[1], parts[2], parts[3])
	return string(parts[0]), at, err == nil
}
