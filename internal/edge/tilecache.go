package edge

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/maypok86/otter/v2"

	"micronode/internal/edge/pack"
	"micronode/internal/ingress"
)

// tileKey names a tile of one version of a pack, so that a new version never
// finds the tiles of an old one.
type tileKey struct {
	version string
	z       uint8
	x, y    uint32
}

// preparedTile is a tile with everything that is needed to answer with it.
type preparedTile struct {
	pack.Tile
	etag string

	// for the warm lane
	template  *ingress.Template // the header that tiles of one kind share; nil if the lane cannot serve them
	etagBytes []byte
}

// tileOverhead is about what a tile in memory costs beside its bytes.
const tileOverhead = 256

// maxCachedTile is the largest tile that is cached.
const maxCachedTile = 256 << 10

// tileCache keeps requested tiles, within a number of bytes. The library
// decides what is evicted, on the goroutine that adds a tile.
type tileCache struct {
	// set at construction
	tiles        *otter.Cache[tileKey, *preparedTile] // nil if nothing is to be kept
	cacheControl string

	mu        sync.Mutex                      //lockblock:leaf one map operation
	templates map[[2]string]*ingress.Template // guarded by mu: by media type and coding
}

func newTileCache(maxBytes int64, cacheControl string) *tileCache {
	c := &tileCache{cacheControl: cacheControl, templates: map[[2]string]*ingress.Template{}}
	if maxBytes > 0 {
		c.tiles = otter.Must(&otter.Options[tileKey, *preparedTile]{
			MaximumWeight: uint64(maxBytes),
			Weigher:       func(_ tileKey, t *preparedTile) uint32 { return uint32(len(t.Data) + tileOverhead) },
			Executor:      func(task func()) { task() },
		})
	}
	return c
}

// get finds a tile, or reads it from its pack.
func (c *tileCache) get(ctx context.Context, p *pack.Pack, coord tileCoord) (*preparedTile, error) {
	key := tileKey{p.Version(), coord.z, coord.x, coord.y}
	if c.tiles != nil {
		if known, ok := c.tiles.GetIfPresent(key); ok {
			return known, nil
		}
	}
	read, err := p.Tile(ctx, coord.z, coord.x, coord.y)
	if err != nil {
		return nil, err
	}
	etag := contentETag(read.Data)
	tile := &preparedTile{Tile: read, etag: etag, template: c.template(read), etagBytes: []byte(etag)}
	if c.tiles != nil && len(read.Data) <= maxCachedTile {
		c.tiles.Set(key, tile)
	}
	return tile, nil
}

// template is the header that tiles of this kind share. There are as many kinds
// as there are media types and codings: a handful.
func (c *tileCache) template(t pack.Tile) *ingress.Template {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := [2]string{t.Type, t.Encoding}
	known, ok := c.templates[kind]
	if !ok {
		known, _ = ingress.NewTemplate(ingress.TemplateSpec{Pattern: tilePattern, Header: tileHeader(t, c.cacheControl)}) // nil: the lane cannot serve it
		c.templates[kind] = known
	}
	return known
}

// tileHeader is the header of every tile of a kind.
func tileHeader(t pack.Tile, cacheControl string) http.Header {
	header := http.Header{}
	ingress.MarkUntrusted(header)
	if t.Encoding != "" {
		header.Set("Vary", "Accept-Encoding")
	}
	ingress.Content{Type: t.Type, Encoding: t.Encoding, CacheControl: cacheControl}.Header(header)
	return header
}

// clear drops all tiles.
func (c *tileCache) clear() {
	if c.tiles != nil {
		c.tiles.InvalidateAll()
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
