package edge

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/edge/pack"
	"micronode/internal/ingress"
)

// tilesPrefix is what the targets of tiles and of TileJSON begin with.
const tilesPrefix = "/edge/tiles/"

// tilePattern is the route of tiles.
const tilePattern = tilesPrefix + "{pack}/{z}/{x}/{y}"

// maxInflatedTile is how large a tile may become when it is inflated for a
// client that does not accept its stored coding.
const maxInflatedTile = 16 << 20

// handleTileJSON describes a pack to a map client.
func (e *Edge) handleTileJSON(w http.ResponseWriter, r *http.Request) error {
	const op = "edge.tilejson"
	name, isJSON := strings.CutSuffix(r.PathValue("pack"), ".json")
	if !isJSON {
		return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "nothing exists at this path", Next: "Ask for " + tileJSONPath(r.PathValue("pack")) + "."}
	}
	p, err := e.packs.Open(name)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer p.Close()
	document, err := p.TileJSON(ingress.BaseURL(r) + tilesPrefix + url.PathEscape(name) + "/{z}/{x}/{y}" + extension(p))
	if err != nil {
		return fault.Wrap(op, err)
	}
	_, err = ingress.ServeContent(w, r, ingress.Content{
		Size: int64(len(document)), ETag: contentETag(document), Type: "application/json", CacheControl: e.cacheControl, Write: bytesWriter(document), Ready: true,
	})
	return err
}

// tileJSONPath is where a pack is described.
func tileJSONPath(pack string) string { return tilesPrefix + url.PathEscape(pack) + ".json" }

// extension is the file extension of a pack's tiles, with its dot.
func extension(p *pack.Pack) string {
	if format := p.Tiles().Format; format != "" {
		return "." + format
	}
	return ""
}

// handleTile answers with one tile, as it is stored if the client accepts that.
func (e *Edge) handleTile(w http.ResponseWriter, r *http.Request) error {
	const op = "edge.tile"
	coord, err := parseTileCoord([]byte(r.PathValue("z")), []byte(r.PathValue("x")), []byte(r.PathValue("y")))
	if err != nil {
		return err
	}
	p, err := e.packs.Open(r.PathValue("pack"))
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer p.Close()
	if !coord.matchesExtension(extension(p)) {
		return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "the tiles of this pack end in " + extension(p), Next: "Request that, or leave out the extension."}
	}
	found, err := e.tiles.get(r.Context(), p, coord)
	if err != nil {
		return fault.Wrap(op, err)
	}
	one, etag := found.Tile, found.etag
	if one.Encoding != "" {
		w.Header().Set("Vary", "Accept-Encoding")
		if !accepts(r.Header.Values("Accept-Encoding"), one.Encoding) {
			if one, err = pack.Inflate(one, maxInflatedTile); err != nil {
				return fault.Wrap(op, err)
			}
			etag = contentETag(one.Data)
		}
	}
	ingress.MarkUntrusted(w.Header())
	return e.serve(w, r, ingress.Content{
		Size: int64(len(one.Data)), ETag: etag, Type: one.Type, Encoding: one.Encoding,
		CacheControl: e.cacheControl, Write: bytesWriter(one.Data), Ready: true,
	})
}

// serve answers with a content and counts unsatisfiable ranges.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, c ingress.Content) error {
	c.MultiRange = e.config.MultiRange
	status, err := ingress.ServeContent(w, r, c)
	if status == http.StatusRequestedRangeNotSatisfiable {
		e.metrics.reject(reasonRange)
	}
	return err
}

// contentETag is the strong validator of some bytes: their address.
func contentETag(data []byte) string { return `"` + b3.Of(data).String() + `"` }

// bytesWriter is a Content's Write for bytes in memory.
func bytesWriter(data []byte) func(io.Writer, int64, int64) error {
	return func(w io.Writer, off, n int64) error {
		_, err := w.Write(data[off : off+n])
		return err
	}
}

// tileCoord is the position of a tile on the map, and the extension of the
// request.
type tileCoord struct {
	z         uint8
	x, y      uint32
	extension string // with the dot; empty if none was given
}

// parseTileCoord parses the coordinates of a tile. Coordinates that no map has
// are Malformed; the pack decides whether it has the tile.
func parseTileCoord(z, x, y []byte) (tileCoord, error) {
	row, extension := y, []byte(nil)
	if dot := bytes.IndexByte(y, '.'); dot >= 0 {
		row, extension = y[:dot], y[dot:]
	}
	zoom, okZ := parseDecimal(z, 31)
	column, okX := parseDecimal(x, math.MaxUint32)
	rowNumber, okY := parseDecimal(row, math.MaxUint32)
	known, okE := knownExtension(extension)
	if !okZ || !okX || !okY || !okE || column>>zoom != 0 || rowNumber>>zoom != 0 {
		return tileCoord{}, &fault.Error{Op: "edge.tile", Kind: fault.Malformed, Detail: fmt.Sprintf("no map has this tile: %q", truncate(z)+"/"+truncate(x)+"/"+truncate(y)),
			Next: "Ask for /{z}/{x}/{y} with z from 0 to 31, and x and y below 2 to the power of z."}
	}
	return tileCoord{z: uint8(zoom), x: uint32(column), y: uint32(rowNumber), extension: known}, nil
}

// parseDecimal parses decimal digits and nothing else: one tile has one path.
func parseDecimal(text []byte, limit uint64) (uint64, bool) {
	if len(text) == 0 || len(text) > 10 || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	var n uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n <= limit
}

// extensions are those that a request for a tile may have; the first is none.
var extensions = []string{"", ".mvt", ".pbf", ".png", ".jpg", ".jpeg", ".webp", ".avif", ".mlt"}

func knownExtension(text []byte) (string, bool) {
	for _, one := range extensions {
		if string(text) == one { // no copy: the compiler recognises this form
			return one, true
		}
	}
	return "", false
}

// truncate keeps text quoted in errors short.
func truncate(text []byte) string { return string(text[:min(len(text), 32)]) }

// matchesExtension reports whether a request may ask for a tile of this
// extension. Vector tiles and JPEG have two names.
func (t tileCoord) matchesExtension(extension string) bool {
	switch t.extension {
	case "", extension:
		return true
	case ".pbf", ".mvt":
		return extension == ".mvt" || extension == ".pbf"
	case ".jpeg", ".jpg":
		return extension == ".jpg" || extension == ".jpeg"
	}
	return false
}

// accepts reports whether a client accepts a content coding (RFC 9110 §12.5.3):
// by name or by an asterisk, and with a weight above zero.
func accepts(lines []string, coding string) bool {
	accepted := false
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(element, ";")
			name = strings.TrimSpace(name)
			if strings.EqualFold(name, coding) {
				return !zeroWeight(parameters)
			}
			if name == "*" {
				accepted = !zeroWeight(parameters)
			}
		}
	}
	return accepted
}

// zeroWeight reports whether the parameters of an element exclude it.
func zeroWeight(parameters string) bool {
	name, value, _ := strings.Cut(parameters, "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return false
	}
	weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return err != nil || weight <= 0
}
