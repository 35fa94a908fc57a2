package packtest

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ask runs a query that returns one number, on a file that is read as it is.
func ask(t *testing.T, path, query string) int64 {
	t.Helper()
	conn, err := sqlite.OpenConn("file:"+path+"?immutable=1", sqlite.OpenReadOnly, sqlite.OpenURI)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	number := int64(-1)
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		number = row.ColumnInt64(0)
		return nil
	}})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return number
}

func TestMBTilesWritesEveryShape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mbtiles")
	for _, shape := range []MBShape{MBTable, MBView, MBShallow, MBWithoutRowID} {
		spec := MBSpec{Seed: 3, MaxZoom: 2, Shape: shape, PageSize: 1024, Metadata: map[string]string{"name": "mine", "center": ""}}
		if err := MBTiles(path, spec); err != nil {
			t.Fatal(err)
		}
		if n := ask(t, path, "SELECT count(*) FROM tiles WHERE length(tile_data) = 1000"); n != 1+4+16 {
			t.Errorf("shape %d: %d tiles", shape, n)
		}
		if n := ask(t, path, "SELECT count(*) FROM metadata WHERE name = 'name' AND value = 'mine' OR name = 'center'"); n != 1 {
			t.Errorf("shape %d: the metadata of the spec count %d", shape, n)
		}
		if n := ask(t, path, "PRAGMA page_size"); n != 1024 {
			t.Errorf("shape %d: page size %d", shape, n)
		}
	}
}

func TestMBTilesCountsRowsFromTheSouth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mbtiles")
	tile := func(z uint8, x, y uint32) []byte {
		if z == 2 && x == 1 && y == 0 {
			return []byte("x")
		}
		return nil
	}
	if err := MBTiles(path, MBSpec{MaxZoom: 2, Tile: tile}); err != nil {
		t.Fatal(err)
	}
	if n := ask(t, path, "SELECT tile_column * 10 + tile_row FROM tiles"); n != 13 {
		t.Errorf("column and row %d, want 1 and 3", n)
	}
}

func TestMBTilesKeepsEqualTilesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mbtiles")
	tile := func(z uint8, x, y uint32) []byte { return []byte{byte(x % 2)} }
	if err := MBTiles(path, MBSpec{MaxZoom: 2, Shape: MBView, Tile: tile}); err != nil {
		t.Fatal(err)
	}
	if tiles, images := ask(t, path, "SELECT count(*) FROM tiles"), ask(t, path, "SELECT count(*) FROM images"); tiles != 21 || images != 2 {
		t.Errorf("%d tiles in %d images", tiles, images)
	}
}

func TestMBTilesLeavesALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mbtiles")
	if err := MBTiles(path, MBSpec{WAL: true}); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path + "-wal"); err != nil || stat.Size() == 0 {
		t.Errorf("no log: %v", err)
	}
	if n := ask(t, path, "SELECT count(*) FROM metadata WHERE name = 'late'"); n != 0 {
		t.Error("the last transaction is in the file already")
	}
	if err := MBTiles(path, MBSpec{}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("after writing it anew: %q", left)
	}
}

func TestMBHugeLies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mbtiles")
	if err := MBHuge(path); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || stat.Size() > 3<<20 {
		t.Errorf("%v, %v", stat, err)
	}
	if n := ask(t, path, "SELECT length(tile_data) FROM tiles"); n != 100_000_000 {
		t.Errorf("it says %d bytes", n)
	}
}

func TestMBBreakBreaksOnePage(t *testing.T) {
	for _, size := range []int{512, 65536} {
		path := filepath.Join(t.TempDir(), "a.mbtiles")
		if err := MBTiles(path, MBSpec{MaxZoom: 1, PageSize: size}); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := MBBreak(path, 2, 0xab); err != nil {
			t.Fatal(err)
		}
		copy(before[size:], bytes.Repeat([]byte{0xab}, size))
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("page size %d: %v, or not page 2 alone", size, err)
		}
	}
}

func TestMBTilesFails(t *testing.T) {
	folder := t.TempDir()
	if err := MBTiles(filepath.Join(folder, "none", "a.mbtiles"), MBSpec{}); err == nil {
		t.Error("it wrote into a folder that is not there")
	}
	if err := MBTiles(filepath.Join(folder, "a.mbtiles"), MBSpec{SQL: []string{"nonsense"}}); err == nil {
		t.Error("nonsense was run")
	}
	if err := MBBreak(filepath.Join(folder, "none"), 1, 0); err == nil {
		t.Error("a file that is not there was broken")
	}
	short := filepath.Join(folder, "short")
	if err := os.WriteFile(short, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := MBBreak(short, 1, 0); err == nil {
		t.Error("a file without a header was broken")
	}
}

func TestTileBytes(t *testing.T) {
	base := TileBytes(1, 2, 3, 1, 4096)
	if !bytes.Equal(base, TileBytes(1, 2, 3, 1, 4096)) || !bytes.HasPrefix(base, TileBytes(1, 2, 3, 1, 77)) {
		t.Error("the same tile is not the same")
	}
	for name, other := range map[string][]byte{
		"seed": TileBytes(2, 2, 3, 1, 4096), "zoom": TileBytes(1, 3, 3, 1, 4096), "column": TileBytes(1, 2, 2, 1, 4096), "row": TileBytes(1, 2, 3, 2, 4096),
	} {
		if bytes.Equal(base[:16], other[:16]) {
			t.Errorf("another %s gives the same bytes", name)
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(base)
	w.Close()
	if packed.Len() < len(base) {
		t.Errorf("%d bytes can be packed into %d", len(base), packed.Len())
	}
	if len(TileBytes(1, 0, 0, 0, 0)) != 0 {
		t.Error("an empty tile is not empty")
	}
}
