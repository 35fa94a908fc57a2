package pmtiles

import (
	"encoding/binary"
	"fmt"

	"micronode/fault"
)

// headerBytes is the size of the fixed header at the start of every archive.
const headerBytes = 127

// firstReadBytes is how much of an archive is read to open it. The format
// promises that header and root directory are within it.
const firstReadBytes = 16 << 10

// Header is the header of an archive, field for field as in the specification.
// Offsets and lengths are in bytes; an offset counts from the start of the
// file. A count of zero means that the writer did not know.
type Header struct {
	Version uint8

	RootOffset, RootLength         uint64
	MetadataOffset, MetadataLength uint64
	LeafOffset, LeafLength         uint64
	TileOffset, TileLength         uint64

	AddressedTiles uint64 // tiles that can be requested, runs counted in full
	TileEntries    uint64 // entries that hold tiles
	TileContents   uint64 // distinct offsets in the tile data

	Clustered           bool
	InternalCompression Compression // of directories and metadata
	TileCompression     Compression // of each tile, as stored
	TileType            TileType
	MinZoom, MaxZoom    uint8

	// Positions are in degrees times ten million.
	MinLonE7, MinLatE7       int32
	MaxLonE7, MaxLatE7       int32
	CenterZoom               uint8
	CenterLonE7, CenterLatE7 int32
}

// Bounds is the area that the archive covers by its header, in degrees: west,
// south, east, north.
func (h Header) Bounds() [4]float64 {
	return [4]float64{degrees(h.MinLonE7), degrees(h.MinLatE7), degrees(h.MaxLonE7), degrees(h.MaxLatE7)}
}

// Center is where a map of this archive would start, in degrees: longitude,
// latitude. The zoom to start with is CenterZoom.
func (h Header) Center() [2]float64 {
	return [2]float64{degrees(h.CenterLonE7), degrees(h.CenterLatE7)}
}

func degrees(e7 int32) float64 { return float64(e7) / 1e7 }

// Compression is how bytes are stored: a number of the format.
type Compression uint8

// The compressions that the format knows.
const (
	UnknownCompression Compression = 0
	None               Compression = 1
	Gzip               Compression = 2
	Brotli             Compression = 3
	Zstd               Compression = 4
)

// String is the name that the tools of the format use.
func (c Compression) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Brotli:
		return "br"
	case Zstd:
		return "zstd"
	case UnknownCompression:
		return "unknown"
	default:
		return fmt.Sprintf("unknown(%d)", uint8(c))
	}
}

// ContentEncoding is the HTTP content coding of bytes that are stored this way.
// It is empty for bytes that are not compressed, and for an unknown
// compression.
func (c Compression) ContentEncoding() string {
	switch c {
	case Gzip, Brotli, Zstd:
		return c.String()
	default:
		return ""
	}
}

// TileType is what the tiles of an archive are: a number of the format.
type TileType uint8

// The types of tiles that the format knows.
const (
	UnknownTile TileType = 0
	MVT         TileType = 1 // Mapbox Vector Tile
	PNG         TileType = 2
	JPEG        TileType = 3
	WebP        TileType = 4
	AVIF        TileType = 5
	MLT         TileType = 6 // MapLibre Tile
)

// tileTypes has a row for each known type.
var tileTypes = [...]struct{ name, media, extension string }{
	UnknownTile: {"unknown", "application/octet-stream", ""},
	MVT:         {"mvt", "application/vnd.mapbox-vector-tile", "mvt"},
	PNG:         {"png", "image/png", "png"},
	JPEG:        {"jpeg", "image/jpeg", "jpg"},
	WebP:        {"webp", "image/webp", "webp"},
	AVIF:        {"avif", "image/avif", "avif"},
	MLT:         {"mlt", "application/vnd.maplibre-vector-tile", "mlt"},
}

// String is the short name of the type.
func (t TileType) String() string {
	if int(t) < len(tileTypes) {
		return tileTypes[t].name
	}
	return fmt.Sprintf("unknown(%d)", uint8(t))
}

// MediaType is the Content-Type of such a tile.
func (t TileType) MediaType() string { return t.known().media }

// Extension is the file extension of such a tile, without the dot. It is empty
// for an unknown type.
func (t TileType) Extension() string { return t.known().extension }

func (t TileType) known() struct{ name, media, extension string } {
	if int(t) < len(tileTypes) {
		return tileTypes[t]
	}
	return tileTypes[UnknownTile]
}

// parseHeader parses the header at the start of head and checks what can be
// checked without further reads: that every section is in the file.
func parseHeader(head []byte, size int64) (Header, error) {
	if len(head) < headerBytes {
		return Header{}, damaged("open", "the file has %d bytes; the header alone has %d", size, headerBytes)
	}
	if string(head[:7]) != "PMTiles" {
		return Header{}, damaged("open", "the file does not begin with PMTiles")
	}
	if version := head[7]; version != 3 {
		return Header{}, otherVersion(version)
	}
	h := readHeader(head)
	if err := h.check(uint64(size)); err != nil {
		return Header{}, err
	}
	return h, nil
}

func otherVersion(version uint8) error {
	return &fault.Error{Op: opPrefix + "open", Kind: fault.Malformed,
		Detail: fmt.Sprintf("the archive is of version %d of the format; only version 3 is read", version),
		Next:   "Make the archive again as version 3, for example from its source: pmtiles convert SOURCE.mbtiles NEW.pmtiles."}
}

func readHeader(b []byte) Header {
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	i32 := func(at int) int32 { return int32(binary.LittleEndian.Uint32(b[at:])) }
	return Header{
		Version:    b[7],
		RootOffset: u64(8), RootLength: u64(16),
		MetadataOffset: u64(24), MetadataLength: u64(32),
		LeafOffset: u64(40), LeafLength: u64(48),
		TileOffset: u64(56), TileLength: u64(64),
		AddressedTiles: u64(72), TileEntries: u64(80), TileContents: u64(88),
		Clustered:           b[96] == 1,
		InternalCompression: Compression(b[97]), TileCompression: Compression(b[98]),
		TileType: TileType(b[99]),
		MinZoom:  b[100], MaxZoom: b[101],
		MinLonE7: i32(102), MinLatE7: i32(106), MaxLonE7: i32(110), MaxLatE7: i32(114),
		CenterZoom: b[118], CenterLonE7: i32(119), CenterLatE7: i32(123),
	}
}

// check refuses a header whose sections are not inside the file. Sections may
// have gaps between them and may come in any order, so that is not checked.
func (h Header) check(size uint64) error {
	for _, s := range []struct {
		name           string
		offset, length uint64
	}{
		{"root directory", h.RootOffset, h.RootLength},
		{"metadata", h.MetadataOffset, h.MetadataLength},
		{"leaf directories", h.LeafOffset, h.LeafLength},
		{"tile data", h.TileOffset, h.TileLength},
	} {
		if !inside(s.offset, s.length, size) {
			return damaged("open", "the %s (%d bytes at %d) is not inside the file of %d bytes", s.name, s.length, s.offset, size)
		}
		if s.length > 0 && s.offset < headerBytes {
			return damaged("open", "the %s (%d bytes at %d) lies over the header", s.name, s.length, s.offset)
		}
	}
	if h.RootLength == 0 {
		return damaged("open", "there is no root directory")
	}
	if !inside(h.RootOffset, h.RootLength, firstReadBytes) {
		return damaged("open", "the root directory (%d bytes at %d) does not end within the first %d bytes", h.RootLength, h.RootOffset, firstReadBytes)
	}
	if h.MinZoom > h.MaxZoom || h.MaxZoom > maxZoom {
		return damaged("open", "the zooms %d to %d are not a range within 0 to %d", h.MinZoom, h.MaxZoom, maxZoom)
	}
	return h.checkCompression()
}

func (h Header) checkCompression() error {
	switch h.InternalCompression {
	case None, Gzip:
		return nil
	default:
		return &fault.Error{Op: opPrefix + "open", Kind: fault.Malformed,
			Detail: fmt.Sprintf("directories are compressed as %s; only none and gzip are read", h.InternalCompression),
			Next:   "Make the archive again with gzip as its internal compression, for example from its source: pmtiles convert SOURCE.mbtiles NEW.pmtiles."}
	}
}

// inside reports whether a range is inside a whole of so many bytes. It is
// written so that no sum can overflow.
func inside(offset, length, whole uint64) bool {
	return offset <= whole && length <= whole-offset
}
