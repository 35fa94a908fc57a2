package mbtiles_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

var shapes = map[string]packtest.MBShape{
	"table": packtest.MBTable, "view": packtest.MBView, "shallow": packtest.MBShallow, "withoutrowid": packtest.MBWithoutRowID,
}

// file writes an archive into a folder of its own.
func file(t testing.TB, spec packtest.MBSpec) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pack.mbtiles")
	if err := packtest.MBTiles(path, spec); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, o mbtiles.Options) *mbtiles.Archive {
	t.Helper()
	archive, err := mbtiles.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { archive.Close() })
	return archive
}

// eachReadPath runs a test for each of the two ways to read a tile: by its row,
// which the index in memory knows, and by its coordinates.
func eachReadPath(t *testing.T, path string, o mbtiles.Options, test func(*testing.T, *mbtiles.Archive)) {
	for name, forget := range map[string]func(*mbtiles.Archive){
		"memory": func(*mbtiles.Archive) {}, "file": (*mbtiles.Archive).DropTileIndex,
	} {
		t.Run(name, func(t *testing.T) {
			archive := open(t, path, o)
			forget(archive)
			test(t, archive)
		})
	}
}

func entries(t testing.TB, folder string) []string {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

// Tiles on both sides of every threshold of SQLite's pages: all on the leaf,
// a little over, one overflow page, many of them.
func sizes(page int) []int {
	return []int{0, 1, page/8 - 1, page - 60, page - 40, page - 35, page, page + 1, 2*page - 8, 3 * page, 9*page + 17}
}

func TestEveryTileOfEveryShape(t *testing.T) {
	for name, shape := range shapes {
		for _, page := range []int{512, 4096, 65536} {
			t.Run(fmt.Sprint(name, "/", page), func(t *testing.T) {
				choice := sizes(page)
				tile := func(z uint8, x, y uint32) []byte {
					if (x+2*y)%7 == 3 {
						return nil
					}
					return packtest.TileBytes(5, z, x, y, choice[int(x*4+y)%len(choice)])
				}
				path := file(t, packtest.MBSpec{MinZoom: 1, MaxZoom: 2, Tile: tile, Shape: shape, PageSize: page})
				eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
					for z := range uint8(4) {
						for x := range uint32(1) << z {
							for y := range uint32(1) << z {
								want := tile(z, x, y)
								if z == 0 || z == 3 {
									want = nil
								}
								data, found, err := archive.Tile(t.Context(), z, x, y)
								if err != nil || found != (want != nil) || !bytes.Equal(data, want) {
									t.Fatalf("%d/%d/%d: %d bytes, %t, %v; want %d bytes", z, x, y, len(data), found, err, len(want))
								}
							}
						}
					}
				})
			})
		}
	}
}

// The index in memory makes reading fast, and tests of the results would not
// notice if it were not used.
func TestTheTilesOfASmallFileAreListedInMemory(t *testing.T) {
	for name, want := range map[string]bool{"table": true, "view": true, "shallow": true, "withoutrowid": false} {
		archive := open(t, file(t, packtest.MBSpec{MaxZoom: 2, Shape: shapes[name]}), mbtiles.Options{})
		if rows, indexed := archive.InMemory(); rows != want || indexed != want {
			t.Errorf("%s: rows %t, index %t; want %t", name, rows, indexed, want)
		}
	}
}

func TestTilesOutsideTheWorldAreAbsent(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 2})
	eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
		for _, at := range [][3]uint32{{0, 1, 0}, {0, 0, 1}, {2, 4, 0}, {2, 0, 4}, {2, 1 << 31, 0}, {31, 0, 0}, {255, 0, 0}, {30, 1<<30 - 1, 1<<30 - 1}} {
			if data, found, err := archive.Tile(t.Context(), uint8(at[0]), at[1], at[2]); data != nil || found || err != nil {
				t.Errorf("%v: %d bytes, %t, %v", at, len(data), found, err)
			}
		}
	})
}

func TestRowsCountFromTheSouth(t *testing.T) {
	path := file(t, packtest.MBSpec{MinZoom: 1, MaxZoom: 1, SQL: []string{
		"DELETE FROM tiles", "INSERT INTO tiles VALUES (1, 0, 0, x'aa'), (1, 1, 1, x'bb')",
	}})
	archive := open(t, path, mbtiles.Options{})
	for at, want := range map[[2]uint32]string{{0, 1}: "\xaa", {1, 0}: "\xbb", {0, 0}: "", {1, 1}: ""} {
		data, found, err := archive.Tile(t.Context(), 1, at[0], at[1])
		if err != nil || found != (want != "") || string(data) != want {
			t.Errorf("1/%d/%d: %x, %t, %v; want %x", at[0], at[1], data, found, err, want)
		}
	}
}

func TestWrittenTilesAreFound(t *testing.T) {
	type place struct {
		z    uint8
		x, y uint32
	}
	folder := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		coordinates := rapid.Custom(func(t *rapid.T) place {
			z := rapid.Uint8Range(0, 5).Draw(t, "z")
			return place{z, rapid.Uint32Range(0, 1<<z-1).Draw(t, "x"), rapid.Uint32Range(0, 1<<z-1).Draw(t, "y")}
		})
		written := rapid.MapOfN(coordinates, rapid.IntRange(0, 9000), 1, 40).Draw(t, "tiles")
		spec := packtest.MBSpec{
			MaxZoom: 5, NoIndex: rapid.Bool().Draw(t, "without index"),
			Shape:    rapid.SampledFrom(slices.Sorted(maps.Values(shapes))).Draw(t, "shape"),
			PageSize: rapid.SampledFrom([]int{512, 2048, 4096}).Draw(t, "page size"),
			Tile: func(z uint8, x, y uint32) []byte {
				if size, ok := written[place{z, x, y}]; ok {
					return packtest.TileBytes(9, z, x, y, size)
				}
				return nil
			},
		}
		path := filepath.Join(folder, "p.mbtiles")
		if err := packtest.MBTiles(path, spec); err != nil {
			t.Fatal(err)
		}
		archive, err := mbtiles.Open(path, mbtiles.Options{Readers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		if err := archive.Check(context.Background()); err != nil {
			t.Fatal(err)
		}
		if !spec.NoIndex && rapid.Bool().Draw(t, "as a large file") {
			archive.DropTileIndex()
		}
		probes := slices.AppendSeq(rapid.SliceOfN(coordinates, 5, 20).Draw(t, "probes"), maps.Keys(written))
		for _, p := range probes {
			size, there := written[p]
			data, found, err := archive.Tile(context.Background(), p.z, p.x, p.y)
			if err != nil || found != there || there && !bytes.Equal(data, packtest.TileBytes(9, p.z, p.x, p.y, size)) {
				t.Fatalf("%v: %d bytes, %t, %v; written %t with %d", p, len(data), found, err, there, size)
			}
		}
	})
}

func TestABufferOfTheCallerIsUsed(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 1, Size: 5000})
	eachReadPath(t, path, mbtiles.Options{}, func(t *testing.T, archive *mbtiles.Archive) {
		want := packtest.TileBytes(0, 1, 1, 0, 5000)
		large, small := make([]byte, 3, 6000), make([]byte, 4999)
		data, _, err := archive.TileInto(t.Context(), large, 1, 1, 0)
		if err != nil || !bytes.Equal(data, want) || &data[0] != &large[0] {
			t.Errorf("a buffer that is large enough: %d bytes, %v, used: %t", len(data), err, &data[0] == &large[0])
		}
		data, _, err = archive.TileInto(t.Context(), small, 1, 1, 0)
		if err != nil || !bytes.Equal(data, want) || &data[0] == &small[0] {
			t.Errorf("a buffer that is too small: %d bytes, %v", len(data), err)
		}
	})
}

// Every character that means something in a URI, to a shell or to SQL.
func TestAnyPath(t *testing.T) {
	for _, name := range []string{
		"a b.mbtiles", "what?mode=rw.mbtiles", "c#d.mbtiles", "100%.mbtiles", "%41.mbtiles", "it's.mbtiles", `a"b.mbtiles`,
		"ü é 日.mbtiles", "a+b&c=d;e.mbtiles", "back\\slash.mbtiles", ":memory:", "-x.mbtiles", "line\nbreak.mbtiles",
	} {
		t.Run(name, func(t *testing.T) {
			source := file(t, packtest.MBSpec{MaxZoom: 1})
			folder := filepath.Join(t.TempDir(), "f?o#l%20d er")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(source, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
			t.Chdir(folder)
			for _, path := range []string{filepath.Join(folder, name), name} {
				archive := open(t, path, mbtiles.Options{Readers: 1})
				if _, found, err := archive.Tile(t.Context(), 1, 0, 0); !found || err != nil {
					t.Errorf("%q: %t, %v", path, found, err)
				}
			}
		})
	}
}

func TestNothingIsWritten(t *testing.T) {
	for name, spec := range map[string]packtest.MBSpec{
		"table":     {MaxZoom: 3},
		"view":      {MaxZoom: 3, Shape: packtest.MBView},
		"no index":  {MaxZoom: 3, NoIndex: true},
		"wal mode":  {MaxZoom: 1, SQL: []string{"PRAGMA journal_mode = WAL"}},
		"no format": {MaxZoom: 1, Tile: func(uint8, uint32, uint32) []byte { return []byte("\x1f\x8bxyz") }, Metadata: map[string]string{"format": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, spec)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o444); err != nil {
				t.Fatal(err)
			}
			files := testkit.OpenFiles(t, filepath.Dir(path))
			archive := open(t, path, mbtiles.Options{})
			if _, _, err := archive.Tile(t.Context(), 1, 0, 0); err != nil {
				t.Error(err)
			}
			if err := archive.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if names := entries(t, filepath.Dir(path)); len(names) != 1 {
				t.Errorf("while it is open, the folder holds %q", names)
			}
			if err := archive.Close(); err != nil {
				t.Error(err)
			}
			if left := testkit.OpenFiles(t, filepath.Dir(path)); left != files {
				t.Errorf("%d files were open before, %d are after", files, left)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) || len(entries(t, filepath.Dir(path))) != 1 {
				t.Errorf("the file or its folder changed: %v, %q", err, entries(t, filepath.Dir(path)))
			}
		})
	}
}

func TestManyReadersAtOnce(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 4, Size: 6000, Shape: packtest.MBView})
	eachReadPath(t, path, mbtiles.Options{Readers: 3}, func(t *testing.T, archive *mbtiles.Archive) {
		var group sync.WaitGroup
		for worker := range uint32(16) {
			group.Go(func() {
				for i := range uint32(60) {
					x, y := (worker+i)%16, (worker*i)%16
					data, found, err := archive.Tile(t.Context(), 4, x, y)
					if err != nil || !found || !bytes.Equal(data, packtest.TileBytes(0, 4, x, y, 6000)) {
						t.Errorf("4/%d/%d: %d bytes, %t, %v", x, y, len(data), found, err)
						return
					}
				}
			})
		}
		group.Wait()
	})
}

func TestCloseWhileReadersRun(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 4, Size: 3000})
	eachReadPath(t, path, mbtiles.Options{Readers: 2}, func(t *testing.T, archive *mbtiles.Archive) {
		var group sync.WaitGroup
		started := make(chan struct{}, 8)
		for range 8 {
			group.Go(func() {
				for i := uint32(0); ; i++ {
					data, found, err := archive.Tile(t.Context(), 4, i%16, i/16%16)
					if i == 0 {
						started <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, fault.NotReady) {
							t.Errorf("after Close: %v", err)
						}
						return
					}
					if !found || !bytes.Equal(data, packtest.TileBytes(0, 4, i%16, i/16%16, 3000)) {
						t.Errorf("before Close: %d bytes, %t", len(data), found)
						return
					}
				}
			})
		}
		for range 8 {
			<-started
		}
		if err := archive.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
		if err := archive.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if _, _, err := archive.Tile(t.Context(), 0, 0, 0); !errors.Is(err, fault.NotReady) {
			t.Errorf("a tile of a closed archive: %v", err)
		}
		if err := archive.Check(t.Context()); !errors.Is(err, fault.NotReady) {
			t.Errorf("a check of a closed archive: %v", err)
		}
	})
}

func TestACanceledCallerGetsNothing(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 2})
	eachReadPath(t, path, mbtiles.Options{Readers: 1}, func(t *testing.T, archive *mbtiles.Archive) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel2 := context.WithDeadline(t.Context(), time.Unix(0, 0))
		defer cancel2()
		if _, _, err := archive.Tile(canceled, 0, 0, 0); fault.KindOf(err) != fault.Canceled {
			t.Errorf("canceled: %v", err)
		}
		if _, _, err := archive.Tile(late, 0, 0, 0); fault.KindOf(err) != fault.Timeout {
			t.Errorf("late: %v", err)
		}
		if err := archive.Check(canceled); fault.KindOf(err) != fault.Canceled {
			t.Errorf("check: %v", err)
		}
		if _, found, err := archive.Tile(t.Context(), 0, 0, 0); !found || err != nil {
			t.Errorf("the next caller: %t, %v", found, err)
		}
	})
}

func TestWaitingForAReaderEndsWithTheCaller(t *testing.T) {
	archive := open(t, file(t, packtest.MBSpec{MaxZoom: 2}), mbtiles.Options{Readers: 1})
	archive.DropTileIndex()
	release := archive.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, _, err := archive.Tile(ctx, 0, 0, 0)
		waiting <- err
	}()
	select {
	case err := <-waiting:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	cancel()
	if err := <-waiting; fault.KindOf(err) != fault.Canceled {
		t.Errorf("canceled while waiting: %v", err)
	}
	release()
	if _, found, err := archive.Tile(t.Context(), 0, 0, 0); !found || err != nil {
		t.Errorf("the reader is back: %t, %v", found, err)
	}
}
