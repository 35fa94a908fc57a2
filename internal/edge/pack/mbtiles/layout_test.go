package mbtiles_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
)

// The shapes that writers give their tables and views, and some unusual ones.
// Every one must give the same tiles in both ways.
func TestLayouts(t *testing.T) {
	fill := "INSERT INTO tiles (zoom_level, tile_column, tile_row, tile_data) SELECT zoom_level, tile_column, tile_row, tile_data FROM old"
	table := func(sql string, more ...string) []string {
		return append([]string{"ALTER TABLE tiles RENAME TO old", "DROP INDEX tile_index", sql, fill}, more...)
	}
	const index = "CREATE UNIQUE INDEX i ON tiles (zoom_level, tile_column, tile_row)"
	split := func(view string) []string {
		return []string{
			"ALTER TABLE tiles RENAME TO old", "CREATE TABLE map (zoom_level integer, tile_column integer, tile_row integer, id integer)",
			"CREATE TABLE images (id integer unique, note text, tile_data blob)",
			"INSERT INTO images SELECT rowid * 3, 'note', tile_data FROM old", "INSERT INTO map SELECT zoom_level, tile_column, tile_row, rowid * 3 FROM old",
			"DROP TABLE old", "CREATE UNIQUE INDEX m ON map (tile_row, zoom_level, tile_column)", view,
		}
	}
	for name, c := range map[string]struct {
		sql  []string
		rows bool // the tiles can be listed by rows
	}{
		"contents first": {table("CREATE TABLE tiles (tile_data blob, zoom_level integer, tile_column integer, tile_row integer)", index), true},
		"columns of every size": {table("CREATE TABLE tiles (a integer default 0, b integer default 1, c integer default 200, d integer default 70000, e integer default 5000000, "+
			"f integer default 3000000000, g integer default 5000000000000000, h real default 1.5, i text default 'text', j blob default x'0102', k, zoom_level integer, tile_column integer, tile_row integer, tile_data blob, z text default 'after')", index), true},
		"a long column before":     {table("CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, note text default '"+strings.Repeat("long ", 3000)+"', tile_data blob)", index), true},
		"a primary key":            {table("CREATE TABLE tiles (id integer primary key, zoom_level, tile_column, tile_row, tile_data, UNIQUE (zoom_level, tile_column, tile_row))"), true},
		"a column named rowid":     {table("CREATE TABLE tiles (\"_RowID_\" integer default 7, zoom_level integer, tile_column integer, tile_row integer, tile_data blob)", index), false},
		"a generated column":       {table("CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, twice AS (zoom_level * 2), tile_data blob)", index), false},
		"strict":                   {table("CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob) STRICT", index), true},
		"constraints":              {table("CREATE TABLE tiles (zoom_level integer CHECK (typeof(zoom_level) = 'integer'), tile_column integer, tile_row integer, tile_data blob)", index), true},
		"a column added later":     {[]string{"ALTER TABLE tiles ADD COLUMN created text DEFAULT 'now'"}, true},
		"capitals":                 {[]string{"ALTER TABLE tiles RENAME TO x", "ALTER TABLE x RENAME TO TILES"}, true},
		"deleted and written anew": {[]string{"CREATE TABLE copy AS SELECT * FROM tiles", "DELETE FROM tiles WHERE tile_column % 2", "INSERT INTO tiles SELECT * FROM copy WHERE tile_column % 2"}, true},
		"old auto-vacuum":          {[]string{"PRAGMA auto_vacuum = FULL", "VACUUM"}, true},

		"view: plain columns": {split("CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM map JOIN images ON map.id = images.id"), true},
		"view: short names":   {split("CREATE VIEW tiles AS SELECT m.zoom_level, m.tile_column, m.tile_row, i.tile_data FROM map AS m, images AS i WHERE m.id = i.id;"), true},
		"view: lower case":    {split("create view tiles as\nselect m.zoom_level as zoom_level, m.tile_column as tile_column, m.tile_row as tile_row, i.tile_data as tile_data from map m inner join images i on (i.id = m.id)"), true},
		"view: left join":     {split("CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM map LEFT JOIN images USING (id)"), true},
		"view: quoted":        {split("CREATE VIEW \"tiles\" AS SELECT \"zoom_level\", \"tile_column\", \"tile_row\", \"tile_data\" FROM map JOIN images USING (id)"), false},
		"view: column list":   {split("CREATE VIEW tiles (zoom_level, tile_column, tile_row, tile_data) AS SELECT zoom_level, tile_column, tile_row, tile_data FROM map JOIN images USING (id)"), false},
		"view: star":          {split("CREATE VIEW tiles AS SELECT * FROM map JOIN images USING (id)"), false},
		"view: renamed":       {append(split("CREATE TABLE blobs (id integer unique, b blob)"), "INSERT INTO blobs SELECT id, tile_data FROM images", "CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, b AS tile_data FROM map JOIN blobs USING (id)"), false},
		"view: two halves": {split("CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM map JOIN images USING (id) WHERE tile_row < 2 " +
			"UNION ALL SELECT zoom_level, tile_column, tile_row, tile_data FROM map JOIN images USING (id) WHERE tile_row >= 2"), false},
		"view: one table": {[]string{"ALTER TABLE tiles RENAME TO tiles_with_hash", "CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles_with_hash"}, true},
		"view: commented": {split("CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data -- the tile_data\n FROM map JOIN images USING (id)"), false},
		"other views":     {[]string{"CREATE VIEW about AS SELECT * FROM metadata", "CREATE VIEW \"odd name\" AS SELECT 1"}, true},
		"metadata a view": {[]string{"ALTER TABLE metadata RENAME TO m", "CREATE VIEW metadata AS SELECT name, value FROM m"}, true},
		"a long schema":   {[]string{"CREATE TABLE other (a /*" + strings.Repeat("x", 20_000) + "*/)", "CREATE TABLE another (b)"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, packtest.MBSpec{MaxZoom: 2, Size: 4500, SQL: c.sql})
			if rows, _ := open(t, path, mbtiles.Options{}).InMemory(); rows != c.rows {
				t.Errorf("the tiles can be listed by rows: %t, want %t", rows, c.rows)
			}
			eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
				for x := range uint32(4) {
					for y := range uint32(4) {
						data, found, err := archive.Tile(t.Context(), 2, x, y)
						if err != nil || !found || !bytes.Equal(data, packtest.TileBytes(0, 2, x, y, 4500)) {
							t.Fatalf("2/%d/%d: %d bytes, %t, %v", x, y, len(data), found, err)
						}
					}
				}
				if err := archive.Check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The first of two rows for one tile is served, in both ways.
func TestATileThatIsThereTwice(t *testing.T) {
	path := file(t, packtest.MBSpec{NoIndex: true, SQL: []string{
		"INSERT INTO tiles VALUES (0, 0, 0, x'02')", "UPDATE tiles SET tile_data = x'01' WHERE rowid = 1",
		"CREATE INDEX i ON tiles (zoom_level, tile_column, tile_row)",
	}})
	eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
		if data, _, err := archive.Tile(t.Context(), 0, 0, 0); err != nil || string(data) != "\x01" {
			t.Errorf("%x, %v", data, err)
		}
	})
}

// manyTilesSQL fills zoom 9 with 5,000 small tiles: more than these tests allow in
// memory.
const manyTilesSQL = "WITH RECURSIVE c(v) AS (SELECT 0 UNION ALL SELECT v + 1 FROM c WHERE v < 4999) " +
	"INSERT INTO tiles SELECT 9, v % 512, v / 512, CAST(v AS blob) FROM c"

func TestALargeFile(t *testing.T) {
	zooms := map[string]string{"minzoom": "", "maxzoom": ""}
	path := file(t, packtest.MBSpec{Metadata: zooms, PageSize: 512, SQL: []string{manyTilesSQL}})
	archive, err := mbtiles.OpenWithin(path, mbtiles.Options{}, time.Minute, 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if rows, indexed := archive.InMemory(); !rows || indexed {
		t.Errorf("rows %t, index %t", rows, indexed)
	}
	if info := archive.Info(); info.MinZoom != 0 || info.MaxZoom != 9 {
		t.Errorf("zooms %d to %d", info.MinZoom, info.MaxZoom)
	}
	for v := uint32(0); v < 5_000; v += 37 {
		data, found, err := archive.Tile(t.Context(), 9, v%512, 511-v/512)
		if err != nil || !found || string(data) != fmt.Sprint(v) {
			t.Fatalf("%d: %q, %t, %v", v, data, found, err)
		}
	}
	if _, found, err := archive.Tile(t.Context(), 9, 0, 0); found || err != nil {
		t.Errorf("an absent tile: %t, %v", found, err)
	}
	if err := archive.Check(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestALargeFileWithoutAnIndexIsRefused(t *testing.T) {
	refused(t, file(t, packtest.MBSpec{NoIndex: true, SQL: []string{manyTilesSQL}}), fault.Malformed, "no index", "CREATE UNIQUE INDEX")
}

// An index that leads to a zoom but not to a tile does not count.
func TestHalfAnIndexIsNone(t *testing.T) {
	path := file(t, packtest.MBSpec{NoIndex: true, SQL: []string{manyTilesSQL, "CREATE INDEX z ON tiles (zoom_level)"}})
	refused(t, path, fault.Malformed, "no index", "CREATE UNIQUE INDEX")
}
