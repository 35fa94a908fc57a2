package pack

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/pmtiles"
)

// packInfo is the metadata of a pack, reduced to what is known and has the
// right type and size. Metadata are untrusted.
type packInfo struct {
	media, format    string
	minZoom, maxZoom uint8
	bounds           *[4]float64 // nil if there are no valid ones
	center           *[3]float64

	name, description, attribution, version, legend string

	vector bool
	layers []layer
}

// layer is one entry of vector_layers.
type layer struct {
	ID          string            `json:"id"`
	Description string            `json:"description,omitempty"`
	MinZoom     *int              `json:"minzoom,omitempty"`
	MaxZoom     *int              `json:"maxzoom,omitempty"`
	Fields      map[string]string `json:"fields"`
}

// How much of a pack's metadata is kept in memory.
const (
	maxText       = 4096
	maxLayers     = 512
	maxFields     = 1024 // of one layer
	maxLayerBytes = 256 << 10
)

const octets = "application/octet-stream"

// formats maps the format names of MBTiles to media type and extension.
var formats = map[string]struct{ media, extension string }{
	"pbf":  {"application/vnd.mapbox-vector-tile", "mvt"},
	"mvt":  {"application/vnd.mapbox-vector-tile", "mvt"},
	"png":  {"image/png", "png"},
	"jpg":  {"image/jpeg", "jpg"},
	"jpeg": {"image/jpeg", "jpg"},
	"webp": {"image/webp", "webp"},
	"avif": {"image/avif", "avif"},
}

func pmtilesInfo(file string, header pmtiles.Header, metadata []byte) packInfo {
	a := packInfo{
		media: header.TileType.MediaType(), format: header.TileType.Extension(),
		minZoom: header.MinZoom, maxZoom: header.MaxZoom,
		vector: header.TileType == pmtiles.MVT || header.TileType == pmtiles.MLT,
	}
	a.setArea(header.Bounds(), [3]float64{header.Center()[0], header.Center()[1], float64(header.CenterZoom)})
	var given map[string]json.RawMessage
	_ = json.Unmarshal(metadata, &given) // anything but an object is ignored
	a.describe(file, func(key string) string {
		var text string
		_ = json.Unmarshal(given[key], &text) // anything but a string is ignored
		return text
	}, given["vector_layers"])
	return a
}

func mbtilesInfo(file string, info mbtiles.Info) packInfo {
	known := formats[strings.ToLower(info.Format)]
	a := packInfo{
		media: known.media, format: known.extension,
		minZoom: info.MinZoom, maxZoom: info.MaxZoom, vector: known.extension == "mvt",
	}
	a.setArea(info.Bounds, info.Center)
	a.describe(file, func(key string) string { return info.Metadata[key] }, info.VectorLayers)
	return a
}

// setArea sets the bounds and the centre, if they are on this planet. TileJSON
// does not allow bounds that wrap around the antimeridian, and a centre has to
// lie within the bounds and at a whole zoom that the pack has.
func (p *packInfo) setArea(bounds [4]float64, center [3]float64) {
	p.maxZoom = min(p.maxZoom, 30) // the maximum of TileJSON
	p.minZoom = min(p.minZoom, p.maxZoom)
	west, south, east, north := bounds[0], bounds[1], bounds[2], bounds[3]
	onEarth := -180 <= west && west <= east && east <= 180 && -90 <= south && south <= north && north <= 90
	if onEarth && bounds != [4]float64{} {
		p.bounds = &bounds
	}
	longitude, latitude, zoom := center[0], center[1], center[2]
	inside := p.bounds != nil && west <= longitude && longitude <= east && south <= latitude && latitude <= north
	if inside && float64(p.minZoom) <= zoom && zoom <= float64(p.maxZoom) && zoom == math.Trunc(zoom) {
		p.center = &center
	}
}

// describe sets the texts and the layers.
func (p *packInfo) describe(file string, text func(key string) string, layers json.RawMessage) {
	if p.media == "" {
		p.media = octets
	}
	short := func(key string) string {
		if value := text(key); len(value) <= maxText {
			return strings.ToValidUTF8(value, "\uFFFD")
		}
		return ""
	}
	p.name, p.description, p.attribution, p.legend = short("name"), short("description"), short("attribution"), short("legend")
	if p.name == "" {
		p.name = stemOf(file)
	}
	if version := short("version"); semver.MatchString(version) {
		p.version = version
	}
	if p.vector {
		p.layers = p.layersOf(layers)
	}
}

// layersOf parses vector_layers, one layer at a time: an invalid one does not
// affect the others.
func (p *packInfo) layersOf(raw json.RawMessage) []layer {
	var given []json.RawMessage
	_ = json.Unmarshal(raw, &given) // anything but a list has no layers
	layers, left := []layer{}, maxLayerBytes
	for _, one := range given {
		l, size, ok := p.layerOf(one)
		if left -= size; left < 0 || len(layers) == maxLayers {
			break
		}
		if ok {
			layers = append(layers, l)
		}
	}
	return layers
}

// layerOf parses one layer. It needs an id; everything else may be missing.
func (p *packInfo) layerOf(raw json.RawMessage) (l layer, size int, ok bool) {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil || json.Unmarshal(given["id"], &l.ID) != nil || l.ID == "" || len(l.ID) > maxText {
		return layer{}, 0, false
	}
	_ = json.Unmarshal(given["description"], &l.Description) // another type is ignored
	if len(l.Description) > maxText {
		l.Description = ""
	}
	l.MinZoom, l.MaxZoom = p.zoomOf(given["minzoom"]), p.zoomOf(given["maxzoom"])
	size = len(l.ID) + len(l.Description) + 64
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(given["fields"], &fields) // anything but an object has no fields
	l.Fields = make(map[string]string, min(len(fields), maxFields))
	for name, raw := range fields {
		var kind string
		if json.Unmarshal(raw, &kind) == nil && len(name) <= maxText && len(kind) <= maxText && len(fields) <= maxFields {
			l.Fields[name] = kind
			size += len(name) + len(kind) + 8
		}
	}
	return l, size, true
}

// zoomOf parses a zoom of a layer; nil if the pack has no such zoom.
func (p *packInfo) zoomOf(raw json.RawMessage) *int {
	var zoom *int
	if json.Unmarshal(raw, &zoom) != nil || zoom == nil || *zoom < int(p.minZoom) || *zoom > int(p.maxZoom) {
		return nil
	}
	return zoom
}

func (p packInfo) tiles() Tiles {
	t := Tiles{Type: p.media, Format: p.format, MinZoom: p.minZoom, MaxZoom: p.maxZoom}
	if p.bounds != nil {
		t.Bounds = *p.bounds
	}
	return t
}

// semver matches a version in the form that TileJSON requires.
var semver = regexp.MustCompile(`^\d{1,9}\.\d{1,9}\.\d{1,9}$`)

// document is TileJSON 3.0.0, with its fields in order.
type document struct {
	TileJSON     string      `json:"tilejson"`
	Tiles        []string    `json:"tiles"`
	Name         string      `json:"name"`
	Description  string      `json:"description,omitempty"`
	Version      string      `json:"version,omitempty"`
	Attribution  string      `json:"attribution,omitempty"`
	Legend       string      `json:"legend,omitempty"`
	Scheme       string      `json:"scheme"`
	MinZoom      uint8       `json:"minzoom"`
	MaxZoom      uint8       `json:"maxzoom"`
	Bounds       *[4]float64 `json:"bounds,omitempty"`
	Center       *[3]float64 `json:"center,omitempty"`
	VectorLayers []layer     `json:"vector_layers,omitzero"`
}

// tileJSON encodes the description of a pack. The same pack and the same URL
// give the same bytes.
func (p packInfo) tileJSON(tileURL string) ([]byte, error) {
	text, err := json.Marshal(document{
		TileJSON: "3.0.0", Tiles: []string{tileURL}, Scheme: "xyz",
		Name: p.name, Description: p.description, Version: p.version, Attribution: p.attribution, Legend: p.legend,
		MinZoom: p.minZoom, MaxZoom: p.maxZoom, Bounds: p.bounds, Center: p.center, VectorLayers: p.layers,
	})
	if err != nil {
		return nil, fault.Wrap("pack.tilejson", err)
	}
	return text, nil
}
