package mbtiles_test

import (
	"os"
	"testing"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
)

func TestCheckPasses(t *testing.T) {
	for name, shape := range shapes {
		archive := open(t, file(t, packtest.MBSpec{MaxZoom: 3, Shape: shape, Size: 5000}), mbtiles.Options{})
		if err := archive.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckFindsTilesOutOfPlace(t *testing.T) {
	for name, values := range map[string]string{
		"zoom 31":     "31, 0, 0, x'00'",
		"zoom -1":     "-1, 0, 0, x'00'",
		"zoom 1.5":    "1.5, 0, 0, x'00'",
		"zoom text":   "'one', 0, 0, x'00'",
		"column 2":    "1, 2, 0, x'00'",
		"row -1":      "1, 0, -1, x'00'",
		"row nothing": "1, 0, NULL, x'00'",
		"huge column": "1, 9223372036854775807, 0, x'00'",
	} {
		for _, shape := range []packtest.MBShape{packtest.MBTable, packtest.MBView} {
			t.Run(name, func(t *testing.T) {
				sql := []string{"INSERT INTO tiles VALUES (" + values + ")"}
				if shape == packtest.MBView {
					sql = []string{"INSERT INTO images VALUES (x'00', '77')", "INSERT INTO map VALUES (" + values[:len(values)-5] + "77)"}
				}
				archive := open(t, file(t, packtest.MBSpec{MaxZoom: 1, Shape: shape, SQL: sql}), mbtiles.Options{})
				if err := archive.Check(t.Context()); fault.KindOf(err) != fault.Malformed {
					t.Errorf("check: %v", err)
				}
				if _, found, err := archive.Tile(t.Context(), 1, 1, 1); !found || err != nil {
					t.Errorf("a good tile beside it: %t, %v", found, err)
				}
			})
		}
	}
}

// Every page is broken once. Whatever it is, Check or Open must notice, no
// tile may be wrong, and nothing may panic.
func TestBrokenPages(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			source := file(t, packtest.MBSpec{MaxZoom: 1, Size: 1300, Shape: shape, PageSize: 1024})
			whole, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			for page := 1; page <= len(whole)/1024; page++ {
				for _, with := range []byte{0x00, 0x0d, 0xff} {
					path := t.TempDir() + "/broken.mbtiles"
					if err := os.WriteFile(path, whole, 0o644); err != nil {
						t.Fatal(err)
					}
					if err := packtest.MBBreak(path, page, with); err != nil {
						t.Fatal(err)
					}
					archive, err := mbtiles.Open(path, mbtiles.Options{Readers: 1})
					if err != nil {
						continue
					}
					checked := archive.Check(t.Context())
					readAll(t, archive, 1)
					archive.DropTileIndex()
					readAll(t, archive, 1)
					archive.Close()
					// The data of an overflow page are data: only their link is structure.
					if checked == nil && with == 0xff {
						t.Errorf("page %d full of %#x was not noticed", page, with)
					}
				}
			}
		})
	}
}

func readAll(t *testing.T, archive *mbtiles.Archive, zoom uint8) {
	for z := range zoom + 1 {
		for x := range uint32(1) << z {
			for y := range uint32(1) << z {
				if data, found, err := archive.Tile(t.Context(), z, x, y); err != nil && (found || data != nil) {
					t.Errorf("%d/%d/%d: %d bytes, %t and %v", z, x, y, len(data), found, err)
				}
			}
		}
	}
}

func TestAFileThatChangesWhileItIsOpen(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 3, Size: 9000})
	eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile(path, whole, 0o644)
		if err := os.Truncate(path, 8192); err != nil {
			t.Fatal(err)
		}
		if data, found, err := archive.Tile(t.Context(), 3, 7, 7); found || data != nil || fault.KindOf(err) != fault.Malformed {
			t.Errorf("a tile of a file cut short: %d bytes, %t, %v", len(data), found, err)
		}
		if err := archive.Check(t.Context()); fault.KindOf(err) != fault.NotReady {
			t.Errorf("check: %v", err)
		}
	})
}

// An index that lists rows which the table does not have is damage, and not a
// map without tiles.
func TestATileThatIsListedButNotThere(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 1, SQL: []string{
		"CREATE TABLE empty (zoom_level, tile_column, tile_row, tile_data)", "PRAGMA writable_schema = ON",
		"UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'empty') WHERE name = 'tiles'",
	}})
	eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
		if data, found, err := archive.Tile(t.Context(), 1, 0, 0); data != nil || found || fault.KindOf(err) != fault.Malformed {
			t.Errorf("%d bytes, %t, %v", len(data), found, err)
		}
		if err := archive.Check(t.Context()); fault.KindOf(err) != fault.Malformed {
			t.Errorf("check: %v", err)
		}
	})
}
