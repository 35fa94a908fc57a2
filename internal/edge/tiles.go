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

// largestTile is how large a tile may become when it is inflated for a client
// that does not take it as it is stored.
const largestTile = 16 << 20

// tileJSON describes a pack to a map client.
func (e *Edge) tileJSON(w http.ResponseWriter, r *http.Request) error {
	const op = "edge.tilejson"
	name, isJSON := strings.CutSuffix(r.PathValue("pack"), ".json")
	if !isJSON {
		return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "there is nothing at this path", Next: "Ask for " + tilesPrefix + r.PathValue("pack") + ".json."}
	}
	p, err := e.packs.Open(name)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer p.Close()
	document, err := p.TileJSON(base(r) + tilesPrefix + url.PathEscape(name) + "/{z}/{x}/{y}" + extension(p))
	if err != nil {
		return fault.Wrap(op, err)
	}
	_, err = ingress.ServeContent(w, r, ingress.Content{
		Size: int64(len(document)), ETag: tag(document), Type: "application/json", CacheControl: e.cacheControl, Write: from(document), Ready: true,
	})
	return err
}

// extension is what the tiles of a pack end in, with its dot.
func extension(p *pack.Pack) string {
	if format := p.Tiles().Format; format != "" {
		return "." + format
	}
	return ""
}

// base is the URL of this node as the client wrote it. The Host was checked
// against the listener's before. On the local socket it may be the gateway that
// asks, and only it knows whether the client came by TLS.
func base(r *http.Request) string {
	if r.TLS != nil || ingress.Local(r) && r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// tile answers with one tile, as it is stored if the client takes that.
func (e *Edge) tile(w http.ResponseWriter, r *http.Request) error {
	const op = "edge.tile"
	place, err := parsePlace([]byte(r.PathValue("z")), []byte(r.PathValue("x")), []byte(r.PathValue("y")))
	if err != nil {
		return err
	}
	p, err := e.packs.Open(r.PathValue("pack"))
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer p.Close()
	if !place.fits(extension(p)) {
		return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "the tiles of this pack end in " + extension(p), Next: "Ask for that, or leave the extension out."}
	}
	found, err := e.tiles.get(r.Context(), p, place)
	if err != nil {
		return fault.Wrap(op, err)
	}
	one, etag := found.Tile, found.etag
	if one.Encoding != "" {
		w.Header().Set("Vary", "Accept-Encoding")
		if !accepts(r.Header.Values("Accept-Encoding"), one.Encoding) {
			if one, err = pack.Inflate(one, largestTile); err != nil {
				return fault.Wrap(op, err)
			}
			etag = tag(one.Data)
		}
	}
	ingress.Untrusted(w.Header())
	return e.serve(w, r, ingress.Content{
		Size: int64(len(one.Data)), ETag: etag, Type: one.Type, Encoding: one.Encoding,
		CacheControl: e.cacheControl, Write: from(one.Data), Ready: true,
	})
}

// serve answers with a content and counts what it refuses.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, c ingress.Content) error {
	c.MultiRange = e.config.MultiRange
	status, err := ingress.ServeContent(w, r, c)
	if status == http.StatusRequestedRangeNotSatisfiable {
		e.metrics.reject(reasonRange)
	}
	return err
}

// tag is the strong validator of some bytes: their address.
func tag(data []byte) string { return `"` + b3.Of(data).String() + `"` }

// from is a Content's Write for bytes in memory.
func from(data []byte) func(io.Writer, int64, int64) error {
	return func(w io.Writer, off, n int64) error {
		_, err := w.Write(data[off : off+n])
		return err
	}
}

// place is where a tile is on the map, and what it is asked for as.
type place struct {
	z         uint8
	x, y      uint32
	extension string // with the dot; empty if none was given
}

// parsePlace reads the place of a tile. A place that no map has is Malformed;
// one that this pack does not have is for the pack to say.
func parsePlace(z, x, y []byte) (place, error) {
	row, extension := y, []byte(nil)
	if dot := bytes.IndexByte(y, '.'); dot >= 0 {
		row, extension = y[:dot], y[dot:]
	}
	zoom, okZ := plainNumber(z, 31)
	column, okX := plainNumber(x, math.MaxUint32)
	line, okY := plainNumber(row, math.MaxUint32)
	known, okE := knownExtension(extension)
	if !okZ || !okX || !okY || !okE || column>>zoom != 0 || line>>zoom != 0 {
		return place{}, &fault.Error{Op: "edge.tile", Kind: fault.Malformed, Detail: fmt.Sprintf("no map has this tile: %q", cut(z)+"/"+cut(x)+"/"+cut(y)),
			Next: "Ask for /{z}/{x}/{y} with z from 0 to 31, and x and y below 2 to the power of z."}
	}
	return place{z: uint8(zoom), x: uint32(column), y: uint32(line), extension: known}, nil
}

// plainNumber reads decimal digits and nothing else: one tile has one path.
func plainNumber(text []byte, most uint64) (uint64, bool) {
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
	return n, n <= most
}

// extensions are those that a tile can be asked for with; the first is none.
var extensions = []string{"", ".mvt", ".pbf", ".png", ".jpg", ".jpeg", ".webp", ".avif", ".mlt"}

func knownExtension(text []byte) (string, bool) {
	for _, one := range extensions {
		if string(text) == one { // no copy: the compiler knows this form
			return one, true
		}
	}
	return "", false
}

// cut keeps what is quoted in an error short.
func cut(text []byte) string { return string(text[:min(len(text), 32)]) }

// fits reports whether a tile of this extension can be asked for so. Vector
// tiles go by two names.
func (p place) fits(extension string) bool {
	switch p.extension {
	case "", extension:
		return true
	case ".pbf", ".mvt":
		return extension == ".mvt" || extension == ".pbf"
	case ".jpeg", ".jpg":
		return extension == ".jpg" || extension == ".jpeg"
	}
	return false
}

// accepts reports whether a client takes a content coding, as RFC 9110 §12.5.3
// says: named, or meant by an asterisk, and not with a weight of zero.
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

// zeroWeight reports whether the parameters of an element say "not this one".
func zeroWeight(parameters string) bool {
	name, value, _ := strings.Cut(parameters, "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return false
	}
	weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return err != nil || weight <= 0
}
