package edge

import (
	"context"
	"net/http"
	"sync"

	"github.com/maypok86/otter/v2"

	"micronode/internal/edge/pack"
	"micronode/internal/ingress"
)

// tileKey names a tile of one version of a pack, so that a new version never
// meets the tiles of an old one.
type tileKey struct {
	version string
	z       uint8
	x, y    uint32
}

// readyTile is a tile with all that is needed to answer with it.
type readyTile struct {
	pack.Tile
	etag string

	// for the warm lane
	template *ingress.Template // what the tiles of one kind have in common; nil if they are not for the lane
	tag      []byte
}

// tileOverhead is about what a tile in memory costs beside its bytes.
const tileOverhead = 256

// largestReady is the largest tile that is kept.
const largestReady = 256 << 10

// tileCache keeps tiles that were asked for, within a number of bytes. Which of
// them go when there is no room is decided by the library, on the goroutine of
// whoever adds one.
type tileCache struct {
	// set at construction
	tiles        *otter.Cache[tileKey, *readyTile] // nil if nothing is to be kept
	cacheControl string

	mu        sync.Mutex                      //lockblock:leaf one map operation
	templates map[[2]string]*ingress.Template // guarded by mu: by media type and coding
}

func newTileCache(bytes int64, cacheControl string) *tileCache {
	c := &tileCache{cacheControl: cacheControl, templates: map[[2]string]*ingress.Template{}}
	if bytes > 0 {
		c.tiles = otter.Must(&otter.Options[tileKey, *readyTile]{
			MaximumWeight: uint64(bytes),
			Weigher:       func(_ tileKey, t *readyTile) uint32 { return uint32(len(t.Data) + tileOverhead) },
			Executor:      func(task func()) { task() },
		})
	}
	return c
}

// get finds a tile, or reads it from its pack.
func (c *tileCache) get(ctx context.Context, p *pack.Pack, at place) (*readyTile, error) {
	key := tileKey{p.Version(), at.z, at.x, at.y}
	if c.tiles != nil {
		if known, ok := c.tiles.GetIfPresent(key); ok {
			return known, nil
		}
	}
	read, err := p.Tile(ctx, at.z, at.x, at.y)
	if err != nil {
		return nil, err
	}
	etag := tag(read.Data)
	ready := &readyTile{Tile: read, etag: etag, template: c.template(read), tag: []byte(etag)}
	if c.tiles != nil && len(read.Data) <= largestReady {
		c.tiles.Set(key, ready)
	}
	return ready, nil
}

// template is what tiles of this kind have in common. There are as many kinds
// as there are media types and codings: a handful.
func (c *tileCache) template(t pack.Tile) *ingress.Template {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := [2]string{t.Type, t.Encoding}
	known, ok := c.templates[kind]
	if !ok {
		known, _ = ingress.NewTemplate(ingress.TemplateSpec{Pattern: tilePattern, Header: tileHeader(t, c.cacheControl)}) // nil: not for the lane
		c.templates[kind] = known
	}
	return known
}

// tileHeader is what every tile of a kind says of itself.
func tileHeader(t pack.Tile, cacheControl string) http.Header {
	header := http.Header{}
	ingress.Untrusted(header)
	if t.Encoding != "" {
		header.Set("Vary", "Accept-Encoding")
	}
	ingress.Content{Type: t.Type, Encoding: t.Encoding, CacheControl: cacheControl}.Header(header)
	return header
}

// clear forgets all tiles.
func (c *tileCache) clear() {
	if c.tiles != nil {
		c.tiles.InvalidateAll()
	}
}
