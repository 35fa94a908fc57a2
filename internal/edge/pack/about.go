package pack

import (
	"encoding/json"
	"math"
	"strings"

	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/pmtiles"
)

// about is what a pack says of itself, reduced to what is known and has the
// right type and size. Metadata are written by strangers.
type about struct {
	media, format    string
	minZoom, maxZoom uint8
	bounds           *[4]float64 // nil if there are none that make sense
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

// How much of what a pack says of itself is kept in memory.
const (
	longestText = 4096
	mostLayers  = 512
	mostFields  = 1024 // of one layer
	aboutBytes  = 256 << 10
)

const octets = "application/octet-stream"

// formats maps what MBTiles call their tiles to media type and extension.
var formats = map[string]struct{ media, extension string }{
	"pbf":  {"application/vnd.mapbox-vector-tile", "mvt"},
	"mvt":  {"application/vnd.mapbox-vector-tile", "mvt"},
	"png":  {"image/png", "png"},
	"jpg":  {"image/jpeg", "jpg"},
	"jpeg": {"image/jpeg", "jpg"},
	"webp": {"image/webp", "webp"},
	"avif": {"image/avif", "avif"},
}

func aboutPMTiles(file string, header pmtiles.Header, metadata []byte) about {
	a := about{
		media: header.TileType.MediaType(), format: header.TileType.Extension(),
		minZoom: header.MinZoom, maxZoom: header.MaxZoom,
		vector: header.TileType == pmtiles.MVT || header.TileType == pmtiles.MLT,
	}
	a.place(header.Bounds(), [3]float64{header.Center()[0], header.Center()[1], float64(header.CenterZoom)})
	var given map[string]json.RawMessage
	_ = json.Unmarshal(metadata, &given) // what is not an object says nothing
	a.describe(file, func(key string) string {
		var text string
		_ = json.Unmarshal(given[key], &text) // what is not a string says nothing
		return text
	}, given["vector_layers"])
	return a
}

func aboutMBTiles(file string, info mbtiles.Info) about {
	known := formats[strings.ToLower(info.Format)]
	a := about{
		media: known.media, format: known.extension,
		minZoom: info.MinZoom, maxZoom: info.MaxZoom, vector: known.extension == "mvt",
	}
	a.place(info.Bounds, info.Center)
	a.describe(file, func(key string) string { return info.Metadata[key] }, info.VectorLayers)
	return a
}

// place takes over where the tiles are, if that is on this planet. Bounds that
// wrap around the antimeridian are not allowed in TileJSON, and a centre has to
// lie within the bounds and at a whole zoom that the pack has.
func (a *about) place(bounds [4]float64, center [3]float64) {
	a.maxZoom = min(a.maxZoom, 30) // TileJSON knows no more
	a.minZoom = min(a.minZoom, a.maxZoom)
	west, south, east, north := bounds[0], bounds[1], bounds[2], bounds[3]
	onEarth := -180 <= west && west <= east && east <= 180 && -90 <= south && south <= north && north <= 90
	if onEarth && bounds != [4]float64{} {
		a.bounds = &bounds
	}
	longitude, latitude, zoom := center[0], center[1], center[2]
	inside := a.bounds != nil && west <= longitude && longitude <= east && south <= latitude && latitude <= north
	if inside && float64(a.minZoom) <= zoom && zoom <= float64(a.maxZoom) && zoom == math.Trunc(zoom) {
		a.center = &center
	}
}

// describe takes over the texts and the layers.
func (a *about) describe(file string, text func(key string) string, layers json.RawMessage) {
	if a.media == "" {
		a.media = octets
	}
	short := func(key string) string {
		if value := text(key); len(value) <= longestText {
			return strings.ToValidUTF8(value, "\uFFFD")
		}
		return ""
	}
	a.name, a.description, a.attribution, a.legend = short("name"), short("description"), short("attribution"), short("legend")
	if a.name == "" {
		a.name = stemOf(file)
	}
	if version := short("version"); semantic.MatchString(version) {
		a.version = version
	}
	if a.vector {
		a.layers = a.layersOf(layers)
	}
}

// layersOf reads vector_layers, one layer at a time: one that makes no sense
// does not take the others with it.
func (a *about) layersOf(raw json.RawMessage) []layer {
	var given []json.RawMessage
	_ = json.Unmarshal(raw, &given) // what is not a list has no layers
	layers, room := []layer{}, aboutBytes
	for _, one := range given {
		l, size, ok := a.layerOf(one)
		if room -= size; room < 0 || len(layers) == mostLayers {
			break
		}
		if ok {
			layers = append(layers, l)
		}
	}
	return layers
}

// layerOf reads one layer. It needs an id; everything else may be missing.
func (a *about) layerOf(raw json.RawMessage) (l layer, size int, ok bool) {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil || json.Unmarshal(given["id"], &l.ID) != nil || l.ID == "" || len(l.ID) > longestText {
		return layer{}, 0, false
	}
	_ = json.Unmarshal(given["description"], &l.Description) // what has another type is left out
	if len(l.Description) > longestText {
		l.Description = ""
	}
	l.MinZoom, l.MaxZoom = a.zoomOf(given["minzoom"]), a.zoomOf(given["maxzoom"])
	size = len(l.ID) + len(l.Description) + 64
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(given["fields"], &fields) // what is not an object has no fields
	l.Fields = make(map[string]string, min(len(fields), mostFields))
	for name, raw := range fields {
		var kind string
		if json.Unmarshal(raw, &kind) == nil && len(name) <= longestText && len(kind) <= longestText && len(fields) <= mostFields {
			l.Fields[name] = kind
			size += len(name) + len(kind) + 8
		}
	}
	return l, size, true
}

// zoomOf reads a zoom of a layer, nil if the pack has no such zoom.
func (a *about) zoomOf(raw json.RawMessage) *int {
	var zoom *int
	if json.Unmarshal(raw, &zoom) != nil || zoom == nil || *zoom < int(a.minZoom) || *zoom > int(a.maxZoom) {
		return nil
	}
	return zoom
}

func (a about) tiles() Tiles {
	t := Tiles{Type: a.media, Format: a.format, MinZoom: a.minZoom, MaxZoom: a.maxZoom}
	if a.bounds != nil {
		t.Bounds = *a.bounds
	}
	return t
}
