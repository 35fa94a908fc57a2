package edge

import (
	"bytes"
	"context"

	"micronode/internal/ingress"
)

// WarmRoutes is what the warm lane may serve: plain GETs of tiles and of small
// answers that are fresh in the cache.
func (e *Edge) WarmRoutes() ingress.WarmRoutes {
	return ingress.WarmRoutes{
		{Prefix: tilesPrefix, Source: warmTiles{e}},
		{Prefix: assetsPrefix, Source: warmAssets{e}},
	}
}

// warmTiles prepares the answers for tiles.
type warmTiles struct{ edge *Edge }

// Lookup finds a tile, or reads it from its pack. It leaves every failure to
// the handler.
func (w warmTiles) Lookup(target []byte) (*ingress.PreparedResponse, bool) {
	name, coord, ok := parseTileTarget(target[len(tilesPrefix):])
	if !ok {
		return nil, false
	}
	p, err := w.edge.packs.Open(name)
	if err != nil {
		return nil, false
	}
	defer p.Close()
	if !coord.matchesExtension(extension(p)) {
		return nil, false
	}
	tile, err := w.edge.tiles.get(context.Background(), p, coord)
	if err != nil || tile.template == nil {
		return nil, false
	}
	return tile.template.Render(ingress.TemplateValues{}, tile.etagBytes, tile.Data)
}

// parseTileTarget parses {pack}/{z}/{x}/{y}[.ext] in plain form: a target with
// escapes or a query is not for the lane.
func parseTileTarget(rest []byte) (name string, coord tileCoord, ok bool) {
	if bytes.ContainsAny(rest, "%?") {
		return "", tileCoord{}, false
	}
	var parts [4][]byte
	for i := range parts {
		var found bool
		parts[i], rest, found = bytes.Cut(rest, []byte{'/'})
		if found != (i < len(parts)-1) {
			return "", tileCoord{}, false
		}
	}
	coord, err := parseTileCoord(parts[1], parts[2], parts[3])
	return string(parts[0]), coord, err == nil
}
