package packtest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
)

// Numbers of the PMTiles format, for the fields of [PMSpec] and [PMHeader].
const (
	PMNone, PMGzip, PMBrotli, PMZstd                 uint8 = 1, 2, 3, 4
	PMVector, PMPNG, PMJPEG, PMWebP, PMAVIF, PMLibre uint8 = 1, 2, 3, 4, 5, 6
)

// PMTile is one tile of an archive.
type PMTile struct {
	Z    uint8
	X, Y uint32
	ID   uint64
	Data []byte
}

// PMEntry is one entry of a directory, as the format has it.
type PMEntry struct {
	ID     uint64
	Offset uint64 // in the tile data, or in the leaf directories
	Length uint64 // the format has 32 bits; a damaged directory may have more
	Run    uint64 // the same; zero is for a leaf directory
}

// PMHeader is the header of an archive, as the format has it.
type PMHeader struct {
	Magic   string
	Version uint8

	RootOffset, RootLength         uint64
	MetadataOffset, MetadataLength uint64
	LeafOffset, LeafLength         uint64
	TileOffset, TileLength         uint64

	AddressedTiles, TileEntries, TileContents uint64

	Clustered, InternalCompression, TileCompression, TileType uint8

	MinZoom, MaxZoom                       uint8
	MinLonE7, MinLatE7, MaxLonE7, MaxLatE7 int32
	CenterZoom                             uint8
	CenterLonE7, CenterLatE7               int32
}

// PMSpec describes an archive. The zero value is one tile, at zoom 0. The same
// spec makes the same bytes every time.
type PMSpec struct {
	// The tiles. Either they are given, in any order, or they are generated:
	// all of the zooms from MinZoom to MaxZoom, or only those that Keep
	// selects.
	Tiles            []PMTile
	MinZoom, MaxZoom uint8
	Keep             func(z uint8, x, y uint32) bool

	// Their contents, if they are generated. Sizes are between the two, drawn
	// from Seed. Repeat is the probability that a tile equals the one before
	// (which makes runs), and Duplicate that it equals some earlier one (which
	// makes entries that point backwards).
	MinSize, MaxSize  int
	Seed              uint64
	Repeat, Duplicate float64

	// How they are stored. With LeafSize, the entries are in leaf directories
	// of so many, and with Levels over one, there are leaf directories of leaf
	// directories. Without, all entries are in the root directory. SingleRuns
	// makes an entry for every tile, however often it repeats. Unclustered
	// shuffles the tile data. Pad puts the sections after the first 16 KiB, as
	// some writers do.
	LeafSize, Levels      int
	SingleRuns            bool
	Unclustered           bool
	Pad                   bool
	InternalCompression   uint8 // none, if it is left out
	TileCompression, Type uint8 // none and vector tiles, if they are left out
	Metadata              string

	Damage PMDamage
}

// PMDamage changes an archive while it is written. Nil functions change
// nothing.
type PMDamage struct {
	// Entries changes the entries of a directory. The root is number 0; leaf
	// directories follow, in the order in which they are written.
	Entries func(number int, entries []PMEntry) []PMEntry

	// Directory changes an encoded directory before it is compressed; Stored
	// changes it after that.
	Directory, Stored func(number int, raw []byte) []byte

	// Header and File change the finished header and file.
	Header func(h *PMHeader)
	File   func(file []byte) []byte
}

func (d PMDamage) any() bool {
	return d.Entries != nil || d.Directory != nil || d.Stored != nil || d.Header != nil || d.File != nil
}

// PMTiles writes an archive.
func PMTiles(spec PMSpec) []byte {
	w := &pmWriter{spec: spec.withDefaults()}
	w.tiles = w.spec.Contents()
	w.writeTiles()
	root := w.directories()
	return w.file(root)
}

// WritePMTiles writes an archive to a file.
func WritePMTiles(path string, spec PMSpec) error {
	return os.WriteFile(path, PMTiles(spec), 0o644)
}

// withDefaults fills in what was left out.
func (s PMSpec) withDefaults() PMSpec {
	if s.MinSize <= 0 {
		s.MinSize = 100
	}
	s.MaxSize = max(s.MinSize, s.MaxSize)
	if s.InternalCompression == 0 {
		s.InternalCompression = PMNone
	}
	if s.TileCompression == 0 {
		s.TileCompression = PMNone
	}
	if s.Type == 0 {
		s.Type = PMVector
	}
	if s.Metadata == "" {
		s.Metadata = `{"name":"packtest"}`
	}
	return s
}

// Contents are the tiles of the archive, by id. Equal tiles share their bytes.
func (s PMSpec) Contents() []PMTile {
	s = s.withDefaults()
	if s.Tiles != nil {
		return withIDs(s.Tiles)
	}
	random := rand.New(rand.NewPCG(s.Seed, 1))
	var tiles []PMTile
	for z := s.MinZoom; z <= s.MaxZoom; z++ {
		id := PMID(z, 0, 0)
		hilbert(z, func(x, y uint32) {
			if s.Keep == nil || s.Keep(z, x, y) {
				tile := PMTile{Z: z, X: x, Y: y, ID: id}
				tile.Data = s.data(random, tile, tiles)
				tiles = append(tiles, tile)
			}
			id++
		})
	}
	return tiles
}

func withIDs(tiles []PMTile) []PMTile {
	tiles = slices.Clone(tiles)
	for i := range tiles {
		tiles[i].ID = PMID(tiles[i].Z, tiles[i].X, tiles[i].Y)
	}
	slices.SortFunc(tiles, func(a, b PMTile) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return tiles
}

// data makes the contents of a tile, or repeats those of an earlier one.
func (s PMSpec) data(random *rand.Rand, tile PMTile, before []PMTile) []byte {
	if n := len(before); n > 0 {
		switch chance := random.Float64(); {
		case chance < s.Repeat:
			return before[n-1].Data
		case chance < s.Repeat+s.Duplicate:
			return before[random.IntN(n)].Data
		}
	}
	size := s.MinSize + random.IntN(s.MaxSize-s.MinSize+1)
	return TileBytes(s.Seed, tile.Z, tile.X, tile.Y, size)
}

// hilbert visits all tiles of a zoom along the curve. It draws the curve as it
// is defined, by turning smaller ones, and so is a check on readers that
// compute a position on it.
func hilbert(z uint8, visit func(x, y uint32)) {
	// A square has a corner and two sides, as vectors; the curve goes from the
	// corner along the first side to the other end of it.
	var draw func(z uint8, x, y, ax, ay, bx, by int64)
	draw = func(z uint8, x, y, ax, ay, bx, by int64) {
		if z == 0 {
			visit(uint32(x+min(ax+bx, 0)), uint32(y+min(ay+by, 0)))
			return
		}
		ax, ay, bx, by = ax/2, ay/2, bx/2, by/2
		draw(z-1, x, y, bx, by, ax, ay)
		draw(z-1, x+bx, y+by, ax, ay, bx, by)
		draw(z-1, x+ax+bx, y+ay+by, ax, ay, bx, by)
		draw(z-1, x+2*ax+bx, y+2*ay+by, -bx, -by, -ax, -ay)
	}
	n := int64(1) << z
	draw(z, 0, 0, n, 0, 0, n)
}

// PMID is the number of a tile in the order of the format, found by turning the
// square at each step, as in textbooks.
func PMID(z uint8, x, y uint32) uint64 {
	id := (uint64(1)<<(2*z) - 1) / 3
	for side := uint64(1) << z / 2; side > 0; side /= 2 {
		var right, lower uint64
		if uint64(x)&side != 0 {
			right = 1
		}
		if uint64(y)&side != 0 {
			lower = 1
		}
		id += side * side * (3*right ^ lower)
		if lower == 0 {
			if right == 1 {
				x, y = uint32(side-1)-x&uint32(side-1), uint32(side-1)-y&uint32(side-1)
			}
			x, y = y, x
		}
	}
	return id
}

// pmWriter is one archive being written.
type pmWriter struct {
	spec     PMSpec
	tiles    []PMTile
	data     []byte // the tile data
	entries  []PMEntry
	contents int // distinct tiles

	leaves []byte
	number int // of the last leaf directory
}

// writeTiles lays out the tile data and makes an entry for each run.
func (w *pmWriter) writeTiles() {
	offsets := w.layOut()
	for _, tile := range w.tiles {
		entry := PMEntry{ID: tile.ID, Offset: offsets[dataPointer(tile.Data)], Length: uint64(len(tile.Data)), Run: 1}
		if n := len(w.entries); n > 0 && !w.spec.SingleRuns {
			last := &w.entries[n-1]
			if last.ID+last.Run == entry.ID && last.Offset == entry.Offset {
				last.Run++
				continue
			}
		}
		w.entries = append(w.entries, entry)
	}
	w.contents = len(offsets)
}

// dataPointer identifies contents by their address in memory: equal tiles share
// their bytes. That is fast even for large archives.
func dataPointer(data []byte) *byte { return &data[:1][0] }

// layOut puts each of the distinct contents into the tile data once.
func (w *pmWriter) layOut() map[*byte]uint64 {
	offsets := make(map[*byte]uint64, len(w.tiles))
	order := make([]int, len(w.tiles))
	size := 0
	for i := range order {
		order[i] = i
		size += len(w.tiles[i].Data)
	}
	if w.spec.Unclustered {
		rand.New(rand.NewPCG(w.spec.Seed, 2)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	w.data = make([]byte, 0, size)
	for _, i := range order {
		data := w.tiles[i].Data
		if _, there := offsets[dataPointer(data)]; !there {
			offsets[dataPointer(data)] = uint64(len(w.data))
			w.data = append(w.data, data...)
		}
	}
	return offsets
}

// directories writes the leaf directories, lowest level first, and returns the
// root directory.
func (w *pmWriter) directories() []byte {
	entries := w.entries
	if w.spec.LeafSize > 0 {
		for range max(1, w.spec.Levels) {
			entries = w.level(entries)
		}
	}
	return w.directory(0, entries)
}

// level writes entries into leaf directories and returns the entries that point
// to those.
func (w *pmWriter) level(entries []PMEntry) []PMEntry {
	var above []PMEntry
	for part := range slices.Chunk(entries, w.spec.LeafSize) {
		w.number++
		raw := w.directory(w.number, slices.Clone(part))
		above = append(above, PMEntry{ID: part[0].ID, Offset: uint64(len(w.leaves)), Length: uint64(len(raw))})
		w.leaves = append(w.leaves, raw...)
	}
	return above
}

func (w *pmWriter) directory(number int, entries []PMEntry) []byte {
	damage := w.spec.Damage
	if damage.Entries != nil {
		entries = damage.Entries(number, entries)
	}
	raw := PMDirectory(entries)
	if damage.Directory != nil {
		raw = damage.Directory(number, raw)
	}
	raw = w.compress(raw)
	if damage.Stored != nil {
		raw = damage.Stored(number, raw)
	}
	return raw
}

// PMDirectory encodes a directory, without compression: a count and four
// columns of numbers.
func PMDirectory(entries []PMEntry) []byte {
	raw := binary.AppendUvarint(nil, uint64(len(entries)))
	var last uint64
	for _, e := range entries {
		raw = binary.AppendUvarint(raw, e.ID-last)
		last = e.ID
	}
	for _, e := range entries {
		raw = binary.AppendUvarint(raw, e.Run)
	}
	for _, e := range entries {
		raw = binary.AppendUvarint(raw, e.Length)
	}
	for i, e := range entries {
		if i > 0 && e.Offset == entries[i-1].Offset+entries[i-1].Length {
			raw = append(raw, 0)
		} else {
			raw = binary.AppendUvarint(raw, e.Offset+1)
		}
	}
	return raw
}

// compress applies the internal compression. Compressions that we cannot write
// leave the bytes as they are, which is enough for a reader that has to refuse
// them.
func (w *pmWriter) compress(raw []byte) []byte {
	if w.spec.InternalCompression != PMGzip {
		return raw
	}
	return PMGzipped(raw)
}

// PMGzipped compresses bytes with gzip.
func PMGzipped(raw []byte) []byte {
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := zw.Write(raw); err != nil {
		panic(err) // a buffer never fails
	}
	if err := zw.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// file assembles the sections.
func (w *pmWriter) file(root []byte) []byte {
	if len(root) > pmFirstRead-pmHeaderBytes && !w.spec.Damage.any() {
		panic(fmt.Sprintf("packtest: the root directory has %d bytes and does not fit into the first 16 KiB: give the spec a LeafSize", len(root)))
	}
	metadata := w.compress([]byte(w.spec.Metadata))
	h := w.header()
	h.RootOffset, h.RootLength = pmHeaderBytes, uint64(len(root))
	h.MetadataOffset, h.MetadataLength = h.RootOffset+h.RootLength, uint64(len(metadata))
	if w.spec.Pad {
		h.MetadataOffset = max(h.MetadataOffset, pmFirstRead)
	}
	h.LeafOffset, h.LeafLength = h.MetadataOffset+h.MetadataLength, uint64(len(w.leaves))
	h.TileOffset, h.TileLength = h.LeafOffset+h.LeafLength, uint64(len(w.data))
	total := h.TileOffset + h.TileLength

	file := make([]byte, total)
	copy(file[h.RootOffset:], root)
	copy(file[h.MetadataOffset:], metadata)
	copy(file[h.LeafOffset:], w.leaves)
	copy(file[h.TileOffset:], w.data)
	if w.spec.Damage.Header != nil {
		w.spec.Damage.Header(&h)
	}
	copy(file, h.Bytes())
	if w.spec.Damage.File != nil {
		file = w.spec.Damage.File(file)
	}
	return file
}

const (
	pmHeaderBytes = 127
	pmFirstRead   = 16 << 10
)

// header is the header without the offsets of the sections.
func (w *pmWriter) header() PMHeader {
	h := PMHeader{
		Magic: "PMTiles", Version: 3,
		AddressedTiles: uint64(len(w.tiles)), TileEntries: uint64(len(w.entries)), TileContents: uint64(w.contents),
		Clustered:           1,
		InternalCompression: w.spec.InternalCompression, TileCompression: w.spec.TileCompression, TileType: w.spec.Type,
		MinLonE7: -180e7, MinLatE7: -85e7, MaxLonE7: 180e7, MaxLatE7: 85e7,
		CenterLonE7: 7_588576, CenterLatE7: 47_559600,
	}
	if w.spec.Unclustered {
		h.Clustered = 0
	}
	if n := len(w.tiles); n > 0 {
		h.MinZoom, h.MaxZoom = w.tiles[0].Z, w.tiles[n-1].Z
		h.CenterZoom = h.MinZoom
	}
	return h
}

// Bytes encodes the header.
func (h PMHeader) Bytes() []byte {
	b := append(make([]byte, 0, pmHeaderBytes), h.Magic...)
	b = append(b, h.Version)
	for _, v := range []uint64{h.RootOffset, h.RootLength, h.MetadataOffset, h.MetadataLength,
		h.LeafOffset, h.LeafLength, h.TileOffset, h.TileLength,
		h.AddressedTiles, h.TileEntries, h.TileContents} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, h.Clustered, h.InternalCompression, h.TileCompression, h.TileType, h.MinZoom, h.MaxZoom)
	for _, v := range []int32{h.MinLonE7, h.MinLatE7, h.MaxLonE7, h.MaxLatE7} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	b = append(b, h.CenterZoom)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.CenterLonE7))
	return binary.LittleEndian.AppendUint32(b, uint32(h.CenterLatE7))
}
