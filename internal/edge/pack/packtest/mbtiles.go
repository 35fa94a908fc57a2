package packtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// MBShape is how an MBTiles file stores its tiles.
type MBShape int

const (
	MBTable        MBShape = iota // a table tiles, as the specification has it
	MBView                        // a view tiles over map and images: equal tiles are stored once
	MBShallow                     // a view tiles over tiles_shallow (WITHOUT ROWID) and tiles_data, as Planetiler writes it
	MBWithoutRowID                // a table tiles WITHOUT ROWID
)

// MBSpec says what MBTiles writes. The zero value is one tile at zoom 0 in a
// plain table with an index.
type MBSpec struct {
	Seed             uint64 // for TileBytes
	MinZoom, MaxZoom uint8  // every tile of these zooms
	Size             int    // bytes of a tile; 1000 if it is zero

	// Tile returns the bytes of a tile in XYZ coordinates, nil for one that is
	// absent. It replaces TileBytes.
	Tile func(z uint8, x, y uint32) []byte

	Shape    MBShape
	NoIndex  bool
	PageSize int // of SQLite; 4096 if it is zero

	// Metadata overrides the default metadata; an empty value removes the name.
	Metadata map[string]string

	// SQL runs when everything else is written: for wrong types, missing
	// tables, views that never end.
	SQL []string

	// WAL leaves the file as a crashed writer does: in WAL mode, the last
	// transaction in the log beside it.
	WAL bool
}

// MBTiles writes an MBTiles file. An existing file is replaced.
func MBTiles(path string, spec MBSpec) error {
	if spec.Size == 0 {
		spec.Size = 1000
	}
	if spec.Tile == nil {
		spec.Tile = func(z uint8, x, y uint32) []byte { return TileBytes(spec.Seed, z, x, y, spec.Size) }
	}
	for _, old := range []string{path, path + "-wal", path + "-shm", path + "-journal"} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return err
	}
	err = writeMB(conn, spec)
	if err == nil && spec.WAL {
		err = crash(conn, path)
	}
	return errors.Join(err, conn.Close(), spec.restoreLog(path))
}

func writeMB(conn *sqlite.Conn, spec MBSpec) error {
	before := []string{"PRAGMA synchronous = OFF", "BEGIN", "CREATE TABLE metadata (name text, value text)"}
	if spec.PageSize != 0 {
		before = append([]string{fmt.Sprintf("PRAGMA page_size = %d", spec.PageSize)}, before...)
	}
	after := append([]string{"COMMIT"}, spec.SQL...)
	if !spec.NoIndex {
		after = append(slices.Clone(indices[spec.Shape]), after...)
	}
	for _, step := range []func() error{
		func() error { return run(conn, append(before, tables[spec.Shape]...)...) },
		func() error { return writeMetadata(conn, spec) },
		func() error { return writeTiles(conn, spec) },
		func() error { return run(conn, after...) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

var tables = map[MBShape][]string{
	MBTable: {"CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob)"},
	MBView: {
		"CREATE TABLE map (zoom_level integer, tile_column integer, tile_row integer, tile_id text)",
		"CREATE TABLE images (tile_data blob, tile_id text)",
		"CREATE UNIQUE INDEX images_id ON images (tile_id)",
		"CREATE VIEW tiles AS SELECT map.zoom_level AS zoom_level, map.tile_column AS tile_column, map.tile_row AS tile_row, " +
			"images.tile_data AS tile_data FROM map JOIN images ON images.tile_id = map.tile_id",
	},
	MBShallow: {
		"CREATE TABLE tiles_shallow (zoom_level integer, tile_column integer, tile_row integer, tile_data_id integer, " +
			"PRIMARY KEY (zoom_level, tile_column, tile_row)) WITHOUT ROWID",
		"CREATE TABLE tiles_data (tile_data_id integer primary key, tile_data blob)",
		"CREATE VIEW tiles AS\n  SELECT\n    tiles_shallow.zoom_level AS zoom_level,\n    tiles_shallow.tile_column AS tile_column,\n" +
			"    tiles_shallow.tile_row AS tile_row,\n    tiles_data.tile_data AS tile_data\n  FROM tiles_shallow\n" +
			"  JOIN tiles_data ON tiles_shallow.tile_data_id = tiles_data.tile_data_id",
	},
	MBWithoutRowID: {"CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob, " +
		"PRIMARY KEY (zoom_level, tile_column, tile_row)) WITHOUT ROWID"},
}

var indices = map[MBShape][]string{
	MBTable: {"CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)"},
	MBView:  {"CREATE UNIQUE INDEX map_index ON map (zoom_level, tile_column, tile_row)"},
}

// inserts are the statements for one tile; ?5 numbers the distinct contents.
var inserts = map[MBShape][]string{
	MBTable:        {"INSERT INTO tiles VALUES (?1, ?2, ?3, ?4)"},
	MBView:         {"INSERT INTO map VALUES (?1, ?2, ?3, ?5)", "INSERT OR IGNORE INTO images VALUES (?4, ?5)"},
	MBShallow:      {"INSERT INTO tiles_shallow VALUES (?1, ?2, ?3, ?5)", "INSERT OR IGNORE INTO tiles_data VALUES (?5, ?4)"},
	MBWithoutRowID: {"INSERT INTO tiles VALUES (?1, ?2, ?3, ?4)"},
}

func writeMetadata(conn *sqlite.Conn, spec MBSpec) error {
	values := map[string]string{
		"name": "test", "format": "pbf", "bounds": "-180,-85.05112878,180,85.05112878", "center": "7.6,47.5,3",
		"minzoom": strconv.Itoa(int(spec.MinZoom)), "maxzoom": strconv.Itoa(int(spec.MaxZoom)),
		"json": `{"vector_layers":[{"id":"land","fields":{"kind":"String"}}]}`,
	}
	maps.Copy(values, spec.Metadata)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == "" {
			continue
		}
		err := sqlitex.ExecuteTransient(conn, "INSERT INTO metadata VALUES (?, ?)", &sqlitex.ExecOptions{Args: []any{name, values[name]}})
		if err != nil {
			return err
		}
	}
	return nil
}

func writeTiles(conn *sqlite.Conn, spec MBSpec) error {
	ids := map[string]int{}
	for z := int(spec.MinZoom); z <= int(spec.MaxZoom); z++ {
		side := uint32(1) << z
		for x := range side {
			for y := range side {
				data := spec.Tile(uint8(z), x, y)
				if data == nil {
					continue
				}
				id, known := ids[string(data)]
				if !known && spec.Shape != MBTable {
					id = len(ids) + 1
					ids[string(data)] = id
				}
				if err := insertTile(conn, spec.Shape, z, int64(x), int64(side-1-y), data, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func insertTile(conn *sqlite.Conn, shape MBShape, values ...any) error {
	for _, insert := range inserts[shape] {
		given := values
		if !strings.Contains(insert, "?5") {
			given = values[:4]
		}
		if err := sqlitex.Execute(conn, insert, &sqlitex.ExecOptions{Args: given}); err != nil {
			return err
		}
	}
	return nil
}

func run(conn *sqlite.Conn, statements ...string) error {
	for _, statement := range statements {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// crash leaves a transaction in the log. The library checkpoints and removes
// the log when the connection closes, so copies are made first.
func crash(conn *sqlite.Conn, path string) error {
	err := run(conn, "PRAGMA journal_mode = WAL", "INSERT INTO metadata VALUES ('late', 'in the log')")
	return errors.Join(err, copyFile(path, path+".kept"), copyFile(path+"-wal", path+"-wal.kept"))
}

func (spec MBSpec) restoreLog(path string) error {
	if !spec.WAL {
		return nil
	}
	return errors.Join(os.Rename(path+".kept", path), os.Rename(path+"-wal.kept", path+"-wal"))
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, data, 0o644))
}

// MBHuge writes a file whose only tile, 0/0/0, claims to have 100 MB. The file
// itself has about two: the false length is in the header of the record.
func MBHuge(path string) error {
	const real, declared = 2_200_000, 100_000_000
	tile := func(uint8, uint32, uint32) []byte { return make([]byte, real) }
	if err := MBTiles(path, MBSpec{Tile: tile}); err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// The serial type of a blob is twice its length plus 12. It is in the
	// header of the record, and the length of the record a few bytes before.
	serial := bytes.Index(data, varint(2*real+12))
	if serial < 0 {
		return errors.New("the record of the tile was not found")
	}
	for length := serial - 12; length < serial; length++ {
		for header := range uint64(16) {
			if bytes.HasPrefix(data[length:], varint(real+header)) {
				copy(data[length:], varint(declared+header))
				copy(data[serial:], varint(2*declared+12))
				return os.WriteFile(path, data, 0o644)
			}
		}
	}
	return errors.New("the length of the record was not found")
}

// varint is SQLite's: seven bits a byte, the most significant first.
func varint(value uint64) []byte {
	out := []byte{byte(value & 0x7f)}
	for value >>= 7; value > 0; value >>= 7 {
		out = append(out, byte(value&0x7f)|0x80)
	}
	slices.Reverse(out)
	return out
}

// MBBreak writes over a page of a file, counted from one as SQLite does.
func MBBreak(path string, page int, with byte) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := pageSize(file)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(bytes.Repeat([]byte{with}, size), int64(page-1)*int64(size))
	return err
}

func pageSize(file io.ReaderAt) (int, error) {
	var raw [2]byte
	if _, err := file.ReadAt(raw[:], 16); err != nil {
		return 0, err
	}
	if size := int(binary.BigEndian.Uint16(raw[:])); size > 1 {
		return size, nil
	}
	return 65536, nil
}
