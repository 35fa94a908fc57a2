package mbtiles

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

const (
	maxMetadata     = 8 << 20 // bytes of all names and values together
	maxMetadataRows = 1000
)

func badMetadata(format string, args ...any) error {
	return refuse(opOpen, fault.Malformed, `Correct the row: sqlite3 FILE "UPDATE metadata SET value = … WHERE name = …;"`, format, args...)
}

// readInfo reads and parses the metadata.
func readInfo(r *reader) (Info, error) {
	values, err := readMetadata(r)
	if err != nil {
		return Info{}, err
	}
	info := Info{Metadata: values, Format: strings.ToLower(strings.TrimSpace(values["format"]))}
	if info.Format == "jpeg" {
		info.Format = "jpg"
	}
	if info.VectorLayers, err = vectorLayers(values["json"]); err != nil {
		return Info{}, err
	}
	return info, info.readBounds()
}

func readMetadata(r *reader) (map[string]string, error) {
	values := map[string]string{}
	total := 0
	err := r.walk("SELECT name, value FROM metadata", func(row *sqlite.Stmt) error {
		if total += row.ColumnLen(0) + row.ColumnLen(1); total > maxMetadata || len(values) == maxMetadataRows {
			return badMetadata("the metadata have more than %d bytes or %d rows", maxMetadata, maxMetadataRows)
		}
		name, value := row.ColumnText(0), row.ColumnText(1)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return badMetadata("the metadata are not UTF-8")
		}
		values[name] = value
		return nil
	})
	return values, err
}

// vectorLayers is the array vector_layers in the json row.
func vectorLayers(text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var content struct {
		Layers json.RawMessage `json:"vector_layers"`
	}
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		return nil, badMetadata("the row json of the metadata is not a JSON object")
	}
	if len(content.Layers) == 0 || bytes.Equal(content.Layers, []byte("null")) {
		return nil, nil
	}
	if content.Layers[0] != '[' {
		return nil, badMetadata("vector_layers in the row json of the metadata is not an array")
	}
	return content.Layers, nil
}

// readZooms takes the zooms from the metadata, or from the tiles where the
// metadata lack them, and the center, which needs one of them.
func (i *Info) readZooms(r *reader, known *tileIndex) (err error) {
	if i.MinZoom, err = i.zoom(r, known, "minzoom", "ASC"); err != nil {
		return err
	}
	if i.MaxZoom, err = i.zoom(r, known, "maxzoom", "DESC"); err != nil {
		return err
	}
	if i.MinZoom > i.MaxZoom {
		return badMetadata("minzoom %d is above maxzoom %d", i.MinZoom, i.MaxZoom)
	}
	return i.readCenter()
}

func (i *Info) zoom(r *reader, known *tileIndex, name, order string) (uint8, error) {
	if text := strings.TrimSpace(i.Metadata[name]); text != "" {
		value, err := strconv.ParseFloat(text, 64) // some writers say 14.0
		if err != nil || value != math.Trunc(value) || value < 0 || value > maxZoom {
			return 0, badMetadata("%s of the metadata is %.40q, not a number from 0 to %d", name, text, maxZoom)
		}
		return uint8(value), nil
	}
	if known != nil && len(known.keys) > 0 {
		lowest, highest := known.zooms()
		if name == "minzoom" {
			return lowest, nil
		}
		return highest, nil
	}
	return queryZoom(r, order)
}

func queryZoom(r *reader, order string) (uint8, error) {
	value := int64(-1)
	err := r.walk("SELECT zoom_level FROM tiles ORDER BY zoom_level "+order+" LIMIT 1", func(row *sqlite.Stmt) error {
		var good bool
		if value, good = wholeNumber(row, 0); !good || value < 0 || value > maxZoom {
			return damaged(opOpen, "tiles has the zoom level %.40q, not a number from 0 to %d", row.ColumnText(0), maxZoom)
		}
		return nil
	})
	if err == nil && value < 0 {
		err = refuse(opOpen, fault.Malformed, "Put tiles into it, or minzoom and maxzoom into its metadata.", "the file has no tiles and says no zooms")
	}
	return uint8(value), err
}

// numbers parses a list of numbers, as in bounds and center.
func numbers(text string, into []float64) bool {
	parts := strings.Split(text, ",")
	if len(parts) != len(into) {
		return false
	}
	for i, part := range parts {
		value, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || math.IsNaN(value) || math.Abs(value) > 1e6 {
			return false
		}
		into[i] = value
	}
	return true
}

var world = [4]float64{-180, -85.05112877980659, 180, 85.05112877980659}

func (i *Info) readBounds() error {
	i.Bounds = world
	text := i.Metadata["bounds"]
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if !numbers(text, i.Bounds[:]) || math.Abs(i.Bounds[1]) > 90 || math.Abs(i.Bounds[3]) > 90 || i.Bounds[1] > i.Bounds[3] {
		return badMetadata("bounds of the metadata are %.80q, not west,south,east,north", text)
	}
	return nil
}

func (i *Info) readCenter() error {
	i.Center = [3]float64{(i.Bounds[0] + i.Bounds[2]) / 2, (i.Bounds[1] + i.Bounds[3]) / 2, float64(i.MinZoom)}
	text := i.Metadata["center"]
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if !numbers(text, i.Center[:]) && !numbers(text, i.Center[:2]) {
		return badMetadata("center of the metadata is %.80q, not longitude,latitude,zoom", text)
	}
	return nil
}

// sample reads one tile by its coordinates and by its row. It detects the format
// where the metadata lack it, and does without rows should the two ever differ. A tile that
// cannot be read does not refuse the archive.
func (a *Archive) sample(r *reader) error {
	z, x, row, found, err := anyTile(r)
	if err != nil {
		return err
	}
	var data []byte
	if found {
		data, found, _ = a.fetch(r, nil, z, x, row)
	}
	if found && r.fetchRow != nil && !a.agrees(r, z, x, row, data) {
		a.layout.rows = ""
	}
	if a.info.Format == "" {
		a.info.Format = sniff(data)
	}
	if a.info.Format == "" {
		return badMetadata("the metadata do not name a format, and the first tile does not show one")
	}
	return nil
}

func (a *Archive) agrees(r *reader, z uint8, x, row uint32, data []byte) bool {
	agrees := false
	query := fmt.Sprintf("SELECT tile_data FROM (%s) WHERE zoom_level = %d AND tile_column = %d AND tile_row = %d LIMIT 1", a.layout.rows, z, x, row)
	err := r.each(query, func(at *sqlite.Stmt) error {
		byRow, found, err := a.fetchRow(r, nil, at.ColumnInt64(0))
		agrees = found && bytes.Equal(byRow, data)
		return err
	})
	return err == nil && agrees
}

// anyTile returns the coordinates of the first tile with valid ones.
func anyTile(r *reader) (z uint8, x, row uint32, found bool, err error) {
	err = r.walk("SELECT zoom_level, tile_column, tile_row FROM tiles LIMIT 1", func(at *sqlite.Stmt) error {
		z, x, row, found = coordinates(at)
		return nil
	})
	return z, x, row, found, err
}

// Encoding is the HTTP content coding of a tile, detected by its first bytes:
// "gzip" or "". MBTiles files usually hold compressed vector tiles, and nothing
// in the file says so.
func Encoding(data []byte) string {
	if len(data) > 2 && data[0] == 0x1f && data[1] == 0x8b {
		return "gzip"
	}
	return ""
}

var formats = []struct{ format, start string }{
	{"png", "\x89PNG\r\n\x1a\n"},
	{"jpg", "\xff\xd8\xff"},
	{"gif", "GIF8"},
	{"pbf", "\x1f\x8b"}, // compressed: only vector tiles are
	{"pbf", "\x1a"},     // a layer, the only field of a vector tile
}

// sniff is the format of a tile, detected by its first bytes; "" if unknown.
func sniff(data []byte) string {
	if len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "webp"
	}
	for _, known := range formats {
		if bytes.HasPrefix(data, []byte(known.start)) {
			return known.format
		}
	}
	return ""
}
