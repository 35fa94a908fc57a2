package packtest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func ExamplePMTiles() {
	spec := PMSpec{MaxZoom: 1, MinSize: 10}
	file := PMTiles(spec)
	for _, tile := range spec.Contents()[:3] {
		fmt.Printf("%d: %d/%d/%d, %d bytes\n", tile.ID, tile.Z, tile.X, tile.Y, len(tile.Data))
	}
	fmt.Printf("%s, version %d\n", file[:7], file[7])
	// Output:
	// 0: 0/0/0, 10 bytes
	// 1: 1/0/0, 10 bytes
	// 2: 1/0/1, 10 bytes
	// PMTiles, version 3
}

// The curve as it is drawn and the number as it is computed agree.
func TestTheCurveIsNumbered(t *testing.T) {
	for z := range uint8(8) {
		id := PMID(z, 0, 0)
		seen := map[[2]uint32]bool{}
		hilbert(z, func(x, y uint32) {
			if got := PMID(z, x, y); got != id || x >= 1<<z || y >= 1<<z || seen[[2]uint32{x, y}] {
				t.Fatalf("%d/%d/%d is number %d on the curve, %d by sum", z, x, y, id, got)
			}
			seen[[2]uint32{x, y}] = true
			id++
		})
		if len(seen) != 1<<(2*z) {
			t.Errorf("zoom %d has %d tiles", z, len(seen))
		}
	}
	if last := PMID(31, 1<<31-1, 0); last != (1<<64-1)/3-1 {
		t.Errorf("the last tile has number %d", last)
	}
}

func TestTheSameSpecMakesTheSameFile(t *testing.T) {
	spec := PMSpec{MaxZoom: 4, Seed: 3, MinSize: 5, MaxSize: 90, Repeat: 0.3, Duplicate: 0.1, LeafSize: 20, Unclustered: true, InternalCompression: PMGzip}
	first, second := PMTiles(spec), PMTiles(spec)
	spec.Seed++
	if !bytes.Equal(first, second) || bytes.Equal(first, PMTiles(spec)) {
		t.Error("two files of one seed differ, or two of different seeds do not")
	}
}

// shape counts what a spec makes, in the terms of its header.
func shape(spec PMSpec) (tiles, entries, contents uint64) {
	b := PMTiles(spec)
	return binary.LittleEndian.Uint64(b[72:]), binary.LittleEndian.Uint64(b[80:]), binary.LittleEndian.Uint64(b[88:])
}

func TestRunsAndRepetitions(t *testing.T) {
	if tiles, entries, contents := shape(PMSpec{MaxZoom: 3}); tiles != 85 || entries != 85 || contents != 85 {
		t.Errorf("all different: %d tiles, %d entries, %d contents", tiles, entries, contents)
	}
	if tiles, entries, contents := shape(PMSpec{MaxZoom: 3, Repeat: 1}); tiles != 85 || entries != 1 || contents != 1 {
		t.Errorf("all the same: %d tiles, %d entries, %d contents", tiles, entries, contents)
	}
	if tiles, entries, contents := shape(PMSpec{MaxZoom: 3, Repeat: 1, SingleRuns: true}); tiles != 85 || entries != 85 || contents != 1 {
		t.Errorf("all the same, no runs: %d tiles, %d entries, %d contents", tiles, entries, contents)
	}
	if tiles, entries, contents := shape(PMSpec{MaxZoom: 4, Duplicate: 0.5}); tiles != 341 || contents > 250 || entries <= contents {
		t.Errorf("half of them again: %d tiles, %d entries, %d contents", tiles, entries, contents)
	}
}

func TestTilesThatAreGiven(t *testing.T) {
	spec := PMSpec{Tiles: []PMTile{{Z: 2, X: 1, Data: []byte("b")}, {Z: 0, Data: []byte("a")}}}
	tiles := spec.Contents()
	if len(tiles) != 2 || tiles[0].ID != 0 || tiles[1].ID != 6 || spec.Tiles[0].ID != 0 {
		t.Errorf("%+v", tiles)
	}
	if file := PMTiles(spec); !bytes.HasSuffix(file, []byte("ab")) || file[100] != 0 || file[101] != 2 {
		t.Errorf("%q", file)
	}
}

func TestDamageIsDone(t *testing.T) {
	spec := PMSpec{MaxZoom: 2, LeafSize: 10, InternalCompression: PMGzip}
	var steps []string
	spec.Damage = PMDamage{
		Entries: func(number int, entries []PMEntry) []PMEntry {
			steps = append(steps, fmt.Sprintf("%d has %d", number, len(entries)))
			return entries
		},
		Directory: func(number int, raw []byte) []byte { return append(raw, byte(number)) },
		Stored: func(number int, raw []byte) []byte {
			zr, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := io.ReadAll(zr); err != nil || plain[len(plain)-1] != byte(number) {
				t.Errorf("directory %d: %v", number, err)
			}
			return raw
		},
		Header: func(h *PMHeader) { h.MaxZoom = 77 },
		File:   func(file []byte) []byte { return append(file, "end"...) },
	}
	file := PMTiles(spec)
	if file[101] != 77 || !bytes.HasSuffix(file, []byte("end")) || fmt.Sprint(steps) != "[1 has 10 2 has 10 3 has 1 0 has 3]" {
		t.Errorf("zoom %d, steps %q", file[101], steps)
	}
}

// A root directory that does not fit is a mistake of the test.
func TestARootThatDoesNotFit(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an archive was written that no reader takes")
		}
	}()
	PMTiles(PMSpec{MaxZoom: 7, MaxSize: 2000})
}

// The archive of the benchmarks: all tiles of zooms 0 to 6, 46 MB.
func TestALargeArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.pmtiles")
	if err := WritePMTiles(path, PMSpec{MaxZoom: 6, MinSize: 8_400, MaxSize: 8_400, InternalCompression: PMGzip}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() < 45e6 || info.Size() > 47e6 {
		t.Errorf("%v, %v", info, err)
	}
}
