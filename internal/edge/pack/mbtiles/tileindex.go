package mbtiles

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

// tileIndex is an index of the tiles of a small file. With it a tile costs no
// query, and a file without an index of its own can be served at all. It is
// immutable. It takes 16 bytes a tile.
type tileIndex struct {
	keys []uint64 // sorted
	rows []int64  // the row of the contents, at the same position
}

// tileKey counts the tiles of all lower zooms, then those of its own, column by
// column. It fits into 63 bits up to zoom 30.
func tileKey(z uint8, x, row uint32) uint64 {
	return (1<<(2*uint64(z))-1)/3 + (uint64(x)<<z | uint64(row))
}

func (t *tileIndex) find(z uint8, x, row uint32) (int64, bool) {
	at, found := slices.BinarySearch(t.keys, tileKey(z, x, row))
	if !found {
		return 0, false
	}
	return t.rows[at], true
}

// zooms are the lowest and the highest zoom of the tiles.
func (t *tileIndex) zooms() (lowest, highest uint8) {
	for z := uint8(1); z <= maxZoom; z++ {
		if t.keys[0] >= tileKey(z, 0, 0) {
			lowest = z
		}
		if t.keys[len(t.keys)-1] >= tileKey(z, 0, 0) {
			highest = z
		}
	}
	return lowest, highest
}

var errTooMany = errors.New("more tiles than the index in memory holds")

// readTileIndex makes the index, or fails with errTooMany beyond the limit.
// Rows with invalid coordinates are left out.
func readTileIndex(r *reader, l *layout, limit int) (*tileIndex, error) {
	type entry struct {
		key uint64
		row int64
	}
	var entries []entry
	err := r.walk("SELECT zoom_level, tile_column, tile_row, tile_data FROM ("+l.rows+")", func(at *sqlite.Stmt) error {
		if len(entries) == limit {
			return errTooMany
		}
		z, x, row, ok := coordinates(at)
		if ok && !at.ColumnIsNull(3) {
			entries = append(entries, entry{tileKey(z, x, row), at.ColumnInt64(3)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// A stable sort and the first of equals: what SQLite would return.
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.key == b.key })
	p := &tileIndex{keys: make([]uint64, len(entries)), rows: make([]int64, len(entries))}
	for i, e := range entries {
		p.keys[i], p.rows[i] = e.key, e.row
	}
	return p, nil
}

// coordinates reads the first three columns of a row. They are valid if they
// are whole numbers that name a tile.
func coordinates(at *sqlite.Stmt) (z uint8, x, row uint32, ok bool) {
	level, ok1 := wholeNumber(at, 0)
	column, ok2 := wholeNumber(at, 1)
	rowNumber, ok3 := wholeNumber(at, 2)
	if !ok1 || !ok2 || !ok3 || level < 0 || level > maxZoom || column < 0 || column>>level != 0 || rowNumber < 0 || rowNumber>>level != 0 {
		return 0, 0, 0, false
	}
	return uint8(level), uint32(column), uint32(rowNumber), true
}

// wholeNumber reads a number as SQLite compares it with an integer.
func wholeNumber(at *sqlite.Stmt, column int) (int64, bool) {
	switch at.ColumnType(column) {
	case sqlite.TypeInteger:
		return at.ColumnInt64(column), true
	case sqlite.TypeFloat:
		value := at.ColumnFloat(column)
		return int64(value), value == math.Trunc(value)
	default:
		return 0, false
	}
}

// buildIndex makes the index in memory where that is possible, and refuses a
// file that needs it otherwise. A file with an index of its own does not, even
// if reading it was interrupted.
func (a *Archive) buildIndex(r *reader, limit int) (err error) {
	if a.layout.rows != "" {
		a.tileIndex, err = readTileIndex(r, &a.layout, limit)
	}
	slow := errors.Is(err, errTooMany) || sqlite.ErrCode(err) == sqlite.ResultInterrupt
	switch {
	case a.tileIndex != nil, a.layout.indexed && (err == nil || slow):
		return nil
	case err == nil || slow:
		return refuse(opOpen, fault.Malformed,
			`Run: sqlite3 FILE "CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);" (on the table behind it if tiles is a view).`,
			"tiles has no index on zoom_level, tile_column, tile_row, and is too large to do without")
	default:
		return err
	}
}
