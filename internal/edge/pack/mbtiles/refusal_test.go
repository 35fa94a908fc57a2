package mbtiles_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

// refused opens what must not open, and checks the error.
func refused(t *testing.T, path string, kind fault.Kind, detail, next string) {
	t.Helper()
	before, files := entries(t, filepath.Dir(path)), testkit.OpenFiles(t, filepath.Dir(path))
	archive, err := mbtiles.OpenWithin(path, mbtiles.Options{Readers: 2}, time.Minute, 1000)
	if err == nil {
		archive.Close()
		t.Fatal("it was opened")
	}
	explained(t, err, kind, detail, next)
	if left := testkit.OpenFiles(t, filepath.Dir(path)); left != files {
		t.Errorf("%d files were open before, %d are after", files, left)
	}
	if after := entries(t, filepath.Dir(path)); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("the folder had %q and has %q", before, after)
	}
}

func explained(t *testing.T, err error, kind fault.Kind, detail, next string) {
	t.Helper()
	if fault.KindOf(err) != kind || !strings.Contains(fault.DetailOf(err), detail) || !strings.Contains(fault.NextOf(err), next) {
		t.Errorf("%v\nkind %v, want %v\ndetail %q, want %q\nnext %q, want %q",
			err, fault.KindOf(err), kind, fault.DetailOf(err), detail, fault.NextOf(err), next)
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	good, err := os.ReadFile(file(t, packtest.MBSpec{MaxZoom: 3}))
	if err != nil {
		t.Fatal(err)
	}
	patched := func(at int, with ...byte) []byte {
		data := bytes.Clone(good)
		copy(data[at:], with)
		return data
	}
	for name, c := range map[string]struct {
		data   []byte
		detail string
		next   string
	}{
		"empty":              {nil, "not a SQLite file", "MBTiles"},
		"text":               {[]byte(strings.Repeat("hello ", 300)), "not a SQLite file", "MBTiles"},
		"a PMTiles file":     {[]byte("PMTiles\x03" + strings.Repeat("\x00", 600)), "not a SQLite file", "MBTiles"},
		"encrypted":          {packtest.TileBytes(3, 0, 0, 0, 8192), "encrypted", "SQLCipher"},
		"magic alone":        {good[:16], "ends within its header", "integrity_check"},
		"half a header":      {good[:99], "ends within its header", "integrity_check"},
		"a header alone":     {good[:100], "truncated", "integrity_check"},
		"half":               {good[:len(good)/2], "truncated", "integrity_check"},
		"a page short":       {good[:len(good)-1], "truncated", "integrity_check"},
		"page size 0":        {patched(16, 0, 0), "page size", "integrity_check"},
		"page size 1000":     {patched(16, 3, 232), "page size", "integrity_check"},
		"all reserved":       {patched(16, 2, 0, 2, 2, 255), "leaves", "integrity_check"},
		"UTF-16":             {patched(56, 0, 0, 0, 2), "UTF-8", ".dump"},
		"less than a page":   {append(patched(24, 1, 2, 3, 4)[:100], make([]byte, 10)...), "first page", "integrity_check"},
		"no tree at page 1":  {patched(100, 77), "the file is damaged", "integrity_check"},
		"many cells":         {patched(103, 255, 255), "the file is damaged", "integrity_check"},
		"cells out of place": {patched(108, 255, 255), "the file is damaged", "integrity_check"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.mbtiles")
			if err := os.WriteFile(path, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			refused(t, path, fault.Malformed, c.detail, c.next)
		})
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe.mbtiles")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, filepath.Join(folder, "absent.mbtiles"), fault.NotFound, "no such file", "path")
	refused(t, folder, fault.Malformed, "not a regular file", "Name a file")
	refused(t, pipe, fault.Malformed, "not a regular file", "Name a file")
	if _, err := mbtiles.Open(folder+"/a\x00b", mbtiles.Options{}); err == nil {
		t.Error("a path with a zero byte was opened")
	}
	if _, err := mbtiles.Open(pipe+"/below", mbtiles.Options{}); fault.KindOf(err) != fault.Internal {
		t.Errorf("a path through a file: %v", err)
	}
}

func TestJournalsAreRefused(t *testing.T) {
	t.Run("crashed writer with a WAL", func(t *testing.T) {
		path := file(t, packtest.MBSpec{MaxZoom: 1, WAL: true})
		refused(t, path, fault.NotReady, "-wal", `sqlite3 pack.mbtiles "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode=DELETE;"`)
		checkpoint(t, path)
		archive := open(t, path, mbtiles.Options{})
		if late := archive.Info().Metadata["late"]; late != "in the log" {
			t.Errorf("after the checkpoint the last transaction reads %q", late)
		}
	})
	for name, c := range map[string]struct {
		content []byte
		live    bool
	}{
		"hot journal":       {[]byte("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7 and so on"), true},
		"truncated journal": {nil, false},
		"persisted journal": {make([]byte, 512), false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(filepath.Dir(file(t, packtest.MBSpec{})), "it's 1.mbtiles")
			if err := packtest.MBTiles(path, packtest.MBSpec{}); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+"-journal", c.content, 0o644); err != nil {
				t.Fatal(err)
			}
			if c.live {
				refused(t, path, fault.NotReady, "-journal", `sqlite3 'it'\''s 1.mbtiles' "PRAGMA`)
			} else {
				open(t, path, mbtiles.Options{})
			}
		})
	}
}

// checkpoint does what the next step of the refusal says.
func checkpoint(t *testing.T, path string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, pragma := range []string{"PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA journal_mode=DELETE"} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFileThatIsBeingWrittenIsRefused(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 1})
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(statement string) {
		t.Helper()
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN IMMEDIATE") // the reserved lock: there is no journal yet
	refused(t, path, fault.NotReady, "being written", "Wait")
	run("COMMIT")
	open(t, path, mbtiles.Options{})
}

func TestWrongTablesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spec   packtest.MBSpec
		detail string
	}{
		"no metadata":         {packtest.MBSpec{SQL: []string{"DROP TABLE metadata"}}, "no table metadata"},
		"no tiles":            {packtest.MBSpec{SQL: []string{"DROP TABLE tiles"}}, "no table tiles"},
		"no tile_row":         {packtest.MBSpec{SQL: []string{"ALTER TABLE tiles RENAME COLUMN tile_row TO y"}}, "tile_row"},
		"no tile_data":        {packtest.MBSpec{SQL: []string{"ALTER TABLE tiles DROP COLUMN tile_data"}}, "tile_data"},
		"no value":            {packtest.MBSpec{SQL: []string{"ALTER TABLE metadata RENAME COLUMN value TO v"}}, "value"},
		"nothing at all":      {packtest.MBSpec{SQL: []string{"DELETE FROM tiles", "DELETE FROM metadata WHERE name LIKE '%zoom'"}}, "no tiles"},
		"virtual tiles":       {packtest.MBSpec{SQL: []string{"DROP TABLE tiles", "CREATE VIRTUAL TABLE tiles USING fts5(zoom_level, tile_column, tile_row, tile_data)"}}, "virtual"},
		"huge schema":         {packtest.MBSpec{SQL: []string{"CREATE TABLE t (a /*" + strings.Repeat("x", 2<<20) + "*/)"}}, "schema"},
		"a view on nothing":   {packtest.MBSpec{SQL: []string{"DROP TABLE tiles", "CREATE VIEW tiles AS SELECT * FROM gone"}}, "gone"},
		"a view without data": {packtest.MBSpec{SQL: []string{"DROP TABLE tiles", "CREATE VIEW tiles AS SELECT 1 AS zoom_level"}}, "tile_data"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, file(t, c.spec), fault.Malformed, c.detail, "") })
	}
}

func TestManyObjectsAreRefused(t *testing.T) {
	var many []string
	for i := range 450 {
		many = append(many, fmt.Sprintf("CREATE TABLE t%d (a)", i))
	}
	many = append([]string{"BEGIN"}, append(many, "COMMIT")...)
	refused(t, file(t, packtest.MBSpec{SQL: many}), fault.Malformed, "schema", "Copy")
}

// SQLite keeps the whole schema in memory, so it is stopped before it has read
// more of one than is accepted.
func TestALargeSchemaIsRefused(t *testing.T) {
	for name, size := range map[string]int{"a little too large": 60_000, "far too large": 600_000} {
		t.Run(name, func(t *testing.T) {
			many := []string{"BEGIN"}
			for i := range 20 {
				many = append(many, fmt.Sprintf("CREATE TABLE t%d (a /*%s*/)", i, strings.Repeat("x", size)))
			}
			refused(t, file(t, packtest.MBSpec{SQL: append(many, "COMMIT")}), fault.Malformed, "schema is larger", "Copy")
		})
	}
}

// Eighteen pages that each lead to the next one 200 times are a schema that no
// program reads to its end, though all of it fits into the cache.
func TestASchemaThatNeverEndsIsInterrupted(t *testing.T) {
	const page = 4096
	path := file(t, packtest.MBSpec{SQL: []string{"CREATE TABLE u (a UNIQUE)"}})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := len(data) / page // the pages that are there
	// The leaf at page 1 becomes the last page; its cells stay where they are.
	leaf := bytes.Clone(data[:page])
	cells := int(leaf[103])<<8 | int(leaf[104])
	copy(leaf, data[100:108+2*cells])
	// Behind it, a leaf with the row of the automatic index alone: SQLite takes
	// that row any number of times.
	again := bytes.Clone(leaf)
	row := bytes.Index(leaf, []byte("indexsqlite_autoindex_u_1"))
	for i := range cells {
		if at := int(leaf[8+2*i])<<8 | int(leaf[9+2*i]); at < row && row-at < 16 {
			copy(again[8:], leaf[8+2*i:10+2*i])
		}
	}
	again[3], again[4] = 0, 1
	inner := func(head, cells, first, child int) []byte {
		out := make([]byte, page)
		out[head], out[head+3], out[head+4], out[head+5], out[head+6] = 5, 0, byte(cells), 0x0c, 0
		binary.BigEndian.PutUint32(out[head+8:], uint32(child))
		for i := range cells {
			at := 0x0c00 + 5*i
			binary.BigEndian.PutUint16(out[head+12+2*i:], uint16(at))
			binary.BigEndian.PutUint32(out[at:], uint32(child))
			out[at+4] = byte(min(i+1, 127))
		}
		binary.BigEndian.PutUint32(out[0x0c00:], uint32(first))
		return out
	}
	const depth = 17
	root := inner(100, 200, last+1, last+3)
	copy(root, data[:100])
	binary.BigEndian.PutUint32(root[28:], uint32(last+2+depth))
	copy(data, root)
	data = append(append(data, leaf...), again...)
	for i := range depth {
		child := last + 4 + i
		if i == depth-1 {
			child = last + 2
		}
		data = append(data, inner(0, 200, child, child)...)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = mbtiles.OpenWithin(path, mbtiles.Options{Readers: 1}, 200*time.Millisecond, 1000)
	explained(t, err, fault.Timeout, "the schema did not answer", "CREATE TABLE tiles")
}

// Without the checks, each of these would run for ever, or take memory without
// a bound.
func TestHostileViewsAreRefused(t *testing.T) {
	view := func(sql string, before ...string) packtest.MBSpec {
		return packtest.MBSpec{MaxZoom: 1, SQL: append(append([]string{"ALTER TABLE tiles RENAME TO t"}, before...), "CREATE VIEW tiles AS "+sql)}
	}
	ladder := []string{"CREATE VIEW v0 AS SELECT * FROM t"}
	for i := range 30 {
		ladder = append(ladder, fmt.Sprintf("CREATE VIEW v%d AS SELECT a.* FROM v%d a, v%d b", i+1, i, i))
	}
	const columns = "zoom_level, tile_column, tile_row, tile_data"
	for name, spec := range map[string]packtest.MBSpec{
		"recursion":      view("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n AS zoom_level, 0 AS tile_column, 0 AS tile_row, x'00' AS tile_data FROM c"),
		"a ladder":       view("SELECT "+columns+" FROM v30", ladder...),
		"a quoted rung":  view("SELECT "+columns+" FROM \"v 0\"", "CREATE VIEW \"v 0\" AS SELECT * FROM t"),
		"sorting":        view("SELECT a.* FROM t a, t b, t c ORDER BY a.tile_data, b.tile_data LIMIT 5"),
		"grouping":       view("SELECT " + columns + " FROM t GROUP BY tile_data"),
		"distinct":       view("SELECT DISTINCT a.* FROM t a, t b, t c"),
		"union":          view("SELECT " + columns + " FROM t UNION SELECT " + columns + " FROM t"),
		"huge values":    view("SELECT zoom_level, tile_column, tile_row, zeroblob(1000000000) AS tile_data FROM t"),
		"functions":      view("SELECT zoom_level, tile_column, tile_row, printf('%.*c', 10000000, 'x') AS tile_data FROM t"),
		"a subquery":     view("SELECT zoom_level, tile_column, tile_row, (SELECT tile_data FROM t) AS tile_data FROM t"),
		"json_each":      view("SELECT key AS zoom_level, 0 AS tile_column, 0 AS tile_row, value AS tile_data FROM json_each('[1,2]')"),
		"the schema":     view("SELECT cid AS zoom_level, 0 AS tile_column, 0 AS tile_row, name AS tile_data FROM pragma_table_info('t')"),
		"a long product": view("SELECT a.* FROM t a" + strings.Repeat(", t", 70)),
	} {
		t.Run(name, func(t *testing.T) { refused(t, file(t, spec), fault.Malformed, "", "CREATE TABLE tiles") })
	}
}

// A product of tables takes no memory, only time: only the deadline
// distinguishes it from a slow disk.
func TestAViewThatNeverEndsIsInterrupted(t *testing.T) {
	var rows []string
	for i := range 60 {
		rows = append(rows, fmt.Sprintf("(%d)", i))
	}
	path := file(t, packtest.MBSpec{MaxZoom: 1, SQL: []string{
		"ALTER TABLE tiles RENAME TO t", "CREATE TABLE n (i)", "INSERT INTO n VALUES " + strings.Join(rows, ","),
		"CREATE VIEW tiles AS SELECT t.zoom_level, t.tile_column, t.tile_row, t.tile_data FROM t" +
			" LEFT JOIN n AS a ON a.i < 90 LEFT JOIN n AS b ON b.i < 90 LEFT JOIN n AS c ON c.i < 90 LEFT JOIN n AS d ON d.i < 90 LEFT JOIN n AS e ON e.i < 90 LEFT JOIN n AS f ON f.i < 90" +
			" WHERE a.i + b.i + c.i + d.i + e.i + f.i > 1000",
	}})
	_, err := mbtiles.OpenWithin(path, mbtiles.Options{Readers: 2}, 200*time.Millisecond, 1000)
	explained(t, err, fault.Timeout, "did not answer", "CREATE TABLE tiles")
}

// The same with a good index: it is opened, since the tile that Open reads is
// found at once; a look-up that never ends is interrupted by its caller.
func TestALookUpThatNeverEndsIsInterrupted(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 1, SQL: []string{
		"ALTER TABLE tiles RENAME TO t",
		"CREATE TABLE n (i integer, j integer)", "CREATE INDEX n_i ON n (i)",
		"WITH RECURSIVE c(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM c WHERE v < 400) INSERT INTO n SELECT 1, v FROM c",
		"INSERT INTO n VALUES (0, 0), (0, 0), (0, 0), (0, 0)", // 4⁵ rows for zoom 0: more than Open reads into memory, so it stops before zoom 1
		"CREATE VIEW tiles AS SELECT t.zoom_level, t.tile_column, t.tile_row, t.tile_data FROM t" +
			" CROSS JOIN n AS a ON a.i = t.zoom_level CROSS JOIN n AS b ON b.i = t.zoom_level CROSS JOIN n AS c ON c.i = t.zoom_level CROSS JOIN n AS d ON d.i = t.zoom_level CROSS JOIN n AS e ON e.i = t.zoom_level" +
			" WHERE t.zoom_level = 0 OR a.j + b.j + c.j + d.j + e.j < 0",
	}})
	archive, err := mbtiles.OpenWithin(path, mbtiles.Options{Readers: 1}, time.Minute, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	archive.DropTileIndex()
	for name, ask := range map[string]func(context.Context) error{
		"tile":  func(ctx context.Context) error { _, _, err := archive.Tile(ctx, 1, 0, 0); return err },
		"check": archive.Check,
	} {
		ctx, pass := testkit.Deadline(t)
		go func() {
			testkit.Poll(archive.Busy)
			pass()
		}()
		if err := ask(ctx); fault.KindOf(err) != fault.Timeout {
			t.Errorf("%s: %v", name, err)
		}
		if _, found, err := archive.Tile(t.Context(), 0, 0, 0); !found || err != nil {
			t.Errorf("the reader after %s: %t, %v", name, found, err)
		}
	}
	running := make(chan error)
	go func() { _, _, err := archive.Tile(context.Background(), 1, 0, 0); running <- err }()
	for !archive.Busy() {
		runtime.Gosched()
	}
	if err := archive.Close(); err != nil {
		t.Error(err)
	}
	if err := <-running; !errors.Is(err, fault.NotReady) {
		t.Errorf("a look-up that Close ended: %v", err)
	}
}

func TestTilesThatCannotBeServed(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(path string) error
		detail string
	}{
		"text": {func(path string) error {
			return packtest.MBTiles(path, packtest.MBSpec{SQL: []string{"UPDATE tiles SET tile_data = 'a text'"}})
		}, "not a blob"},
		"a number": {func(path string) error {
			return packtest.MBTiles(path, packtest.MBSpec{SQL: []string{"UPDATE tiles SET tile_data = 7"}})
		}, "not a blob"},
		"over the cap": {func(path string) error {
			return packtest.MBTiles(path, packtest.MBSpec{Size: 100_001})
		}, "cap"},
		"100 MB declared": {packtest.MBHuge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.mbtiles")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			eachReadPath(t, path, mbtiles.Options{Tile: 100_000}, func(t *testing.T, archive *mbtiles.Archive) {
				data, found, err := archive.Tile(t.Context(), 0, 0, 0)
				if data != nil || found || fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.DetailOf(err), c.detail) {
					t.Errorf("tile: %d bytes, %t, %v", len(data), found, err)
				}
				if err := archive.Check(t.Context()); fault.KindOf(err) != fault.Malformed {
					t.Errorf("check: %v", err)
				}
			})
		})
	}
}

func TestATileOfNullIsAbsent(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 1, SQL: []string{"UPDATE tiles SET tile_data = NULL WHERE zoom_level = 1"}})
	eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
		if data, found, err := archive.Tile(t.Context(), 1, 0, 0); data != nil || found || err != nil {
			t.Errorf("%d bytes, %t, %v", len(data), found, err)
		}
		if err := archive.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheLargestTileIsServed(t *testing.T) {
	path := file(t, packtest.MBSpec{Size: 1_000_000})
	eachReadPath(t, path, mbtiles.Options{Tile: 1_000_000}, func(t *testing.T, archive *mbtiles.Archive) {
		data, found, err := archive.Tile(t.Context(), 0, 0, 0)
		if err != nil || !found || !bytes.Equal(data, packtest.TileBytes(0, 0, 0, 0, 1_000_000)) {
			t.Errorf("%d bytes, %t, %v", len(data), found, err)
		}
	})
}
