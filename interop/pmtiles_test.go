//go:build !smoke

package interop

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	reference "github.com/protomaps/go-pmtiles/pmtiles"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/edge/pack/pmtiles"
)

// mapShapes are archives of many kinds, all of which the reference accepts. Its
// server looks through three leaf directories, and no more.
var mapShapes = map[string]packtest.PMSpec{
	"one tile":            {},
	"plain":               {MaxZoom: 4},
	"gzip":                {MaxZoom: 5, InternalCompression: packtest.PMGzip},
	"runs":                {MaxZoom: 5, Repeat: 0.6, Seed: 5},
	"runs, gzip, leaves":  {MaxZoom: 6, Repeat: 0.5, LeafSize: 40, InternalCompression: packtest.PMGzip},
	"single runs":         {MaxZoom: 4, Repeat: 0.5, SingleRuns: true},
	"repeated":            {MaxZoom: 5, Duplicate: 0.3, Repeat: 0.2},
	"deep zooms only":     {MinZoom: 4, MaxZoom: 5},
	"leaves":              {MaxZoom: 6, LeafSize: 100, MinSize: 1, MaxSize: 50},
	"leaves of one":       {MaxZoom: 4, LeafSize: 1},
	"leaves of leaves":    {MaxZoom: 5, LeafSize: 37, Levels: 2, InternalCompression: packtest.PMGzip},
	"three levels":        {MaxZoom: 5, LeafSize: 12, Levels: 3},
	"unclustered":         {MaxZoom: 4, Unclustered: true, Duplicate: 0.2},
	"unclustered, leaves": {MaxZoom: 5, Unclustered: true, LeafSize: 64, InternalCompression: packtest.PMGzip},
	"padded":              {MaxZoom: 3, Pad: true},
	"sparse":              {MaxZoom: 7, LeafSize: 300, Keep: func(z uint8, x, y uint32) bool { return (uint32(z)+x*7+y*13)%5 == 0 }},
	"webp":                {MaxZoom: 2, TileCompression: packtest.PMBrotli, Type: packtest.PMWebP, Metadata: `{"name":"ä","list":[1,{"x":null}]}`},
	"corners of zoom 31": {Tiles: []packtest.PMTile{
		{Z: 31, Data: []byte("nw")}, {Z: 31, X: 1<<31 - 1, Data: []byte("ne")},
		{Z: 31, Y: 1<<31 - 1, Data: []byte("sw")}, {Z: 31, X: 1<<31 - 1, Y: 1<<31 - 1, Data: []byte("se")},
		{Z: 0, Data: []byte("all")},
	}},
}

// openMap opens an archive that must be valid to our reader.
func openMap(t *testing.T, data []byte) *pmtiles.Archive {
	t.Helper()
	a, err := pmtiles.Open(bytes.NewReader(data), int64(len(data)), pmtiles.NewDirectoryCache(4<<20), pmtiles.DefaultLimits())
	if err != nil {
		t.Fatalf("ours: %v", err)
	}
	if err := a.Check(context.Background()); err != nil {
		t.Fatalf("ours: %v", err)
	}
	return a
}

// ourTile is a tile as our reader finds it; nil for none.
func ourTile(t *testing.T, a *pmtiles.Archive, data []byte, z uint8, x, y uint32) []byte {
	t.Helper()
	p, found, err := a.Locate(z, x, y)
	if err != nil {
		t.Fatalf("ours: %d/%d/%d: %v", z, x, y, err)
	}
	if !found {
		return nil
	}
	return data[p.Offset:][:p.Length]
}

// theirTile is a tile as the functions of the reference find it.
func theirTile(t *testing.T, h reference.HeaderV3, data []byte, z uint8, x, y uint32) []byte {
	t.Helper()
	if z < h.MinZoom || z > h.MaxZoom {
		return nil // their server checks the header first
	}
	id := reference.ZxyToID(z, x, y)
	at, length := h.RootOffset, h.RootLength
	for range 4 {
		entries := reference.DeserializeEntries(bytes.NewBuffer(bytes.Clone(data[at:at+length])), h.InternalCompression)
		e, found := reference.FindTile(entries, id)
		if !found {
			return nil
		}
		if e.RunLength > 0 {
			return data[h.TileDataOffset+e.Offset:][:e.Length]
		}
		at, length = h.LeafDirectoryOffset+e.Offset, uint64(e.Length)
	}
	t.Fatalf("theirs: %d/%d/%d: too deep", z, x, y)
	return nil
}

// theirHeader reads the header with the reference, and compares ours with it.
func theirHeader(t *testing.T, a *pmtiles.Archive, data []byte) reference.HeaderV3 {
	t.Helper()
	theirs, err := reference.DeserializeHeader(data[:reference.HeaderV3LenBytes])
	if err != nil {
		t.Fatalf("theirs: %v", err)
	}
	h := a.Header()
	ours := reference.HeaderV3{
		SpecVersion: h.Version,
		RootOffset:  h.RootOffset, RootLength: h.RootLength,
		MetadataOffset: h.MetadataOffset, MetadataLength: h.MetadataLength,
		LeafDirectoryOffset: h.LeafOffset, LeafDirectoryLength: h.LeafLength,
		TileDataOffset: h.TileOffset, TileDataLength: h.TileLength,
		AddressedTilesCount: h.AddressedTiles, TileEntriesCount: h.TileEntries, TileContentsCount: h.TileContents,
		Clustered:           h.Clustered,
		InternalCompression: reference.Compression(h.InternalCompression), TileCompression: reference.Compression(h.TileCompression),
		TileType: reference.TileType(h.TileType),
		MinZoom:  h.MinZoom, MaxZoom: h.MaxZoom,
		MinLonE7: h.MinLonE7, MinLatE7: h.MinLatE7, MaxLonE7: h.MaxLonE7, MaxLatE7: h.MaxLatE7,
		CenterZoom: h.CenterZoom, CenterLonE7: h.CenterLonE7, CenterLatE7: h.CenterLatE7,
	}
	if ours != theirs {
		t.Fatalf("header: ours   %+v\n        theirs %+v", ours, theirs)
	}
	return theirs
}

// verifyWithReference runs the verify command of the reference. What it only
// prints, and what makes it panic, counts as rejected.
func verifyWithReference(path string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	var printed strings.Builder
	if err := reference.Verify(log.New(&printed, "", 0), path); err != nil {
		return err
	}
	if strings.Contains(printed.String(), "Invalid") {
		return errors.New(printed.String())
	}
	return nil
}

// writeMap writes bytes to a file of their own and returns its path.
func writeMap(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "map.pmtiles")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func readMap(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Both number all tiles alike.
func TestTileIDsAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for z := range uint8(32) {
		side := uint32(1)<<z - 1
		for i := range 2000 {
			x, y := random.Uint32()&side, random.Uint32()&side
			switch i { // the corners
			case 0:
				x, y = 0, 0
			case 1:
				x, y = side, 0
			case 2:
				x, y = 0, side
			case 3:
				x, y = side, side
			}
			ours, err := pmtiles.ID(z, x, y)
			theirs := reference.ZxyToID(z, x, y)
			if err != nil || ours != theirs {
				t.Fatalf("%d/%d/%d: ours %d, %v, theirs %d", z, x, y, ours, err, theirs)
			}
			oz, ox, oy, err := pmtiles.ZXY(theirs)
			tz, tx, ty := reference.IDToZxy(theirs)
			if err != nil || oz != tz || ox != tx || oy != ty {
				t.Fatalf("%d: ours %d/%d/%d, %v, theirs %d/%d/%d", theirs, oz, ox, oy, err, tz, tx, ty)
			}
		}
	}
}

// What packtest writes is valid to the reference, too, and both find the same
// tiles in it.
func TestTheReferenceReadsWhatWeWrite(t *testing.T) {
	for name, spec := range mapShapes {
		t.Run(name, func(t *testing.T) {
			data := packtest.PMTiles(spec)
			path := writeMap(t, data)
			if err := verifyWithReference(path); err != nil {
				t.Fatalf("theirs: %v", err)
			}
			a := openMap(t, data)
			if odd := a.Remarks(); len(odd) > 0 {
				t.Errorf("ours remarks %q where theirs has nothing to say", odd)
			}
			h := theirHeader(t, a, data)
			want := spec.Contents()
			wantSame(t, a, h, data, want)
			wantServed(t, path, a, want)
			wantMetadata(t, a, h, data)
		})
	}
}

// wantSame requests from both tiles that exist and some that do not.
func wantSame(t *testing.T, a *pmtiles.Archive, h reference.HeaderV3, data []byte, want []packtest.PMTile) {
	t.Helper()
	there := map[uint64]bool{}
	step := 1 + len(want)/500 // theirs decodes every directory for every tile
	for i, w := range want {
		there[w.ID] = true
		if ours := ourTile(t, a, data, w.Z, w.X, w.Y); !bytes.Equal(ours, w.Data) {
			t.Fatalf("ours: %d/%d/%d has %d bytes, want %d", w.Z, w.X, w.Y, len(ours), len(w.Data))
		}
		if i%step == 0 && !bytes.Equal(theirTile(t, h, data, w.Z, w.X, w.Y), w.Data) {
			t.Fatalf("theirs: %d/%d/%d is another", w.Z, w.X, w.Y)
		}
	}
	absent := 0
	for id := uint64(0); absent < 200 && id < 30_000; id++ {
		if there[id] {
			continue
		}
		absent++
		z, x, y := reference.IDToZxy(id)
		if ours, theirs := ourTile(t, a, data, z, x, y), theirTile(t, h, data, z, x, y); ours != nil || theirs != nil {
			t.Fatalf("%d/%d/%d was not written: ours %d bytes, theirs %d", z, x, y, len(ours), len(theirs))
		}
	}
}

// wantServed requests some tiles from the server of the reference.
func wantServed(t *testing.T, path string, a *pmtiles.Archive, want []packtest.PMTile) {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	server, err := reference.NewServerWithBucket(reference.NewFileBucket(filepath.Dir(path)), "", quiet, 64, "")
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	for i := 0; i < len(want); i += 1 + len(want)/50 {
		w := want[i]
		target := fmt.Sprintf("/map/%d/%d/%d.%s", w.Z, w.X, w.Y, a.Header().TileType.Extension())
		status, header, body := server.Get(t.Context(), target)
		if status != 200 || !bytes.Equal(body, w.Data) {
			t.Fatalf("their server: %s: %d with %d bytes, want %d", target, status, len(body), len(w.Data))
		}
		if encoding := header["Content-Encoding"]; encoding != a.Header().TileCompression.ContentEncoding() {
			t.Fatalf("their server says encoding %q, ours %q", encoding, a.Header().TileCompression.ContentEncoding())
		}
	}
}

func wantMetadata(t *testing.T, a *pmtiles.Archive, h reference.HeaderV3, data []byte) {
	t.Helper()
	text, err := a.Metadata()
	if err != nil {
		t.Fatalf("ours: %v", err)
	}
	theirs, err := reference.DeserializeMetadataBytes(bytes.NewReader(data[h.MetadataOffset:][:h.MetadataLength]), h.InternalCompression)
	if err != nil || !bytes.Equal(text, theirs) {
		t.Fatalf("metadata: ours %q, theirs %q, %v", text, theirs, err)
	}
}

// convert makes an archive from an MBTiles file with the reference.
func convert(t *testing.T, spec packtest.MBSpec, deduplicate bool) string {
	t.Helper()
	folder := t.TempDir()
	source, target := filepath.Join(folder, "map.mbtiles"), filepath.Join(folder, "map.pmtiles")
	if err := packtest.MBTiles(source, spec); err != nil {
		t.Fatal(err)
	}
	scratch, err := os.Create(filepath.Join(folder, "scratch"))
	if err != nil {
		t.Fatal(err)
	}
	defer scratch.Close()
	if err := reference.Convert(log.New(io.Discard, "", 0), source, target, deduplicate, scratch); err != nil {
		t.Fatal(err)
	}
	return target
}

// What the reference makes from an MBTiles file, we read, tile for tile.
func TestWeReadWhatTheReferenceConverts(t *testing.T) {
	// Some tiles are all the same, as the sea is on every map.
	sea := func(z uint8, x, y uint32) []byte {
		if (x/4+y/4)%3 != 0 {
			return []byte("the sea, the same everywhere")
		}
		return packtest.TileBytes(9, z, x, y, 30+int(x%50))
	}
	for name, c := range map[string]struct {
		spec        packtest.MBSpec
		deduplicate bool
		leaves      bool
	}{
		"rasters, root only":          {packtest.MBSpec{MaxZoom: 4, Size: 50, Metadata: map[string]string{"format": "png"}}, true, false},
		"rasters, leaves":             {packtest.MBSpec{MaxZoom: 7, Size: 20, Metadata: map[string]string{"format": "webp"}}, true, true},
		"rasters, sea":                {packtest.MBSpec{MaxZoom: 7, Tile: sea, Metadata: map[string]string{"format": "jpg"}}, true, false},
		"rasters, sea, all different": {packtest.MBSpec{MaxZoom: 5, Tile: sea, Metadata: map[string]string{"format": "png"}}, false, false},
		"vectors":                     {packtest.MBSpec{MaxZoom: 5, Size: 80, Metadata: map[string]string{"format": "pbf", "json": `{"vector_layers":[]}`}}, true, false},
		"vectors, sea, view":          {packtest.MBSpec{MinZoom: 3, MaxZoom: 6, Tile: sea, Shape: packtest.MBView, Metadata: map[string]string{"format": "pbf", "json": `{"vector_layers":[]}`}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := convert(t, c.spec, c.deduplicate)
			data := readMap(t, path)
			a := openMap(t, data)
			h := theirHeader(t, a, data)
			if (a.Header().LeafLength > 0) != c.leaves {
				t.Errorf("%d bytes of leaf directories, want some: %t", a.Header().LeafLength, c.leaves)
			}
			for _, w := range (packtest.PMSpec{MinZoom: c.spec.MinZoom, MaxZoom: c.spec.MaxZoom, MinSize: 1}).Contents() {
				want := packtest.TileBytes(c.spec.Seed, w.Z, w.X, w.Y, c.spec.Size)
				if c.spec.Tile != nil {
					want = c.spec.Tile(w.Z, w.X, w.Y)
				}
				got := gunzip(t, a.Header().TileCompression, ourTile(t, a, data, w.Z, w.X, w.Y))
				if !bytes.Equal(got, want) {
					t.Fatalf("%d/%d/%d: %d bytes, want %d", w.Z, w.X, w.Y, len(got), len(want))
				}
			}
			wantAbsentOutside(t, a, data)
			wantMetadata(t, a, h, data)
		})
	}
}

// gunzip undoes the compression that the reference gives to vector tiles.
func gunzip(t *testing.T, c pmtiles.Compression, data []byte) []byte {
	t.Helper()
	if c != pmtiles.Gzip || data == nil {
		return data
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantAbsentOutside(t *testing.T, a *pmtiles.Archive, data []byte) {
	t.Helper()
	h := a.Header()
	if h.MinZoom > 0 && ourTile(t, a, data, h.MinZoom-1, 0, 0) != nil || ourTile(t, a, data, h.MaxZoom+1, 0, 0) != nil {
		t.Error("a tile of another zoom was found")
	}
}

// The reference sorts an unclustered archive, and the tiles stay.
func TestWeReadWhatTheReferenceClusters(t *testing.T) {
	for name, c := range map[string]struct {
		spec        packtest.PMSpec
		deduplicate bool
	}{
		"root only":  {packtest.PMSpec{MaxZoom: 4, Unclustered: true, Duplicate: 0.2}, true},
		"leaves":     {packtest.PMSpec{MaxZoom: 7, Unclustered: true, LeafSize: 500, MinSize: 8, MaxSize: 40, Repeat: 0.1, InternalCompression: packtest.PMGzip}, true},
		"no repeats": {packtest.PMSpec{MaxZoom: 4, Unclustered: true, LeafSize: 9}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeMap(t, packtest.PMTiles(c.spec))
			t.Setenv("TMPDIR", t.TempDir())
			if err := reference.Cluster(log.New(io.Discard, "", 0), path, c.deduplicate); err != nil {
				t.Fatal(err)
			}
			data := readMap(t, path)
			a := openMap(t, data)
			h := theirHeader(t, a, data)
			if !h.Clustered || len(a.Remarks()) > 0 {
				t.Errorf("clustered %t, remarks %q", h.Clustered, a.Remarks())
			}
			wantSame(t, a, h, data, c.spec.Contents())
			wantMetadata(t, a, h, data)
		})
	}
}

// The reference extracts a part of an archive. Which tiles that are is up to
// it; ours has to find exactly those, with the bytes they had.
func TestWeReadWhatTheReferenceExtracts(t *testing.T) {
	spec := packtest.PMSpec{MaxZoom: 7, LeafSize: 1000, MinSize: 8, MaxSize: 60, Repeat: 0.2, Duplicate: 0.05, InternalCompression: packtest.PMGzip}
	source := packtest.PMTiles(spec)
	path := writeMap(t, source)
	for name, c := range map[string]struct {
		from, to int8
		box      string
	}{
		"a country":    {-1, -1, "5.9,45.8,10.5,47.8"},
		"half a world": {-1, -1, "-170,-60,10,60"},
		"some zooms":   {2, 5, ""},
		"both":         {1, 6, "100,-40,160,-10"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "piece.pmtiles")
			if err := reference.Extract(t.Context(), log.New(io.Discard, "", 0), "", path, c.from, c.to, "", c.box, out, 1, 0.05, false); err != nil {
				t.Fatal(err)
			}
			data := readMap(t, out)
			a := openMap(t, data)
			h := theirHeader(t, a, data)
			inPiece := tileIDs(t, h, data)
			found := 0
			for _, w := range spec.Contents() {
				ours := ourTile(t, a, data, w.Z, w.X, w.Y)
				if there := inPiece[w.ID]; there != (ours != nil) || there && !bytes.Equal(ours, w.Data) {
					t.Fatalf("%d/%d/%d: in the piece %t; ours has %d bytes, want %d", w.Z, w.X, w.Y, there, len(ours), len(w.Data))
				}
				if ours != nil {
					found++
				}
			}
			if found == 0 || found != len(inPiece) {
				t.Errorf("%d tiles were found, the piece has %d", found, len(inPiece))
			}
		})
	}
}

// tileIDs is every tile of an archive, as the reference walks it.
func tileIDs(t *testing.T, h reference.HeaderV3, data []byte) map[uint64]bool {
	t.Helper()
	ids := map[uint64]bool{}
	err := reference.IterateEntries(h,
		func(offset, length uint64) ([]byte, error) { return data[offset : offset+length], nil },
		func(e reference.EntryV3) {
			for i := range uint64(e.RunLength) {
				ids[e.TileID+i] = true
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// damagedRoot changes the entries of the root directory.
func damagedRoot(change func(entries []packtest.PMEntry) []packtest.PMEntry) packtest.PMSpec {
	return packtest.PMSpec{MaxZoom: 2, Damage: packtest.PMDamage{Entries: func(_ int, entries []packtest.PMEntry) []packtest.PMEntry {
		return change(entries)
	}}}
}

// What the verify command of the reference rejects, we reject; or, where the
// tiles can be served all the same, we report a warning and both still find the
// same tiles.
func TestWhatVerifyRefusesIsNotMissed(t *testing.T) {
	header := func(change func(h *packtest.PMHeader)) packtest.PMSpec {
		return packtest.PMSpec{MaxZoom: 2, Damage: packtest.PMDamage{Header: change}}
	}
	file := func(change func(data []byte) []byte) packtest.PMSpec {
		return packtest.PMSpec{MaxZoom: 2, Damage: packtest.PMDamage{File: change}}
	}
	for name, c := range map[string]struct {
		spec   packtest.PMSpec
		served bool
	}{
		"other magic":       {header(func(h *packtest.PMHeader) { h.Magic = "MPTiles" }), false},
		"version 4":         {header(func(h *packtest.PMHeader) { h.Version = 4 }), false},
		"internal brotli":   {header(func(h *packtest.PMHeader) { h.InternalCompression = packtest.PMBrotli }), false},
		"root at 0":         {header(func(h *packtest.PMHeader) { h.RootOffset = 0 }), false},
		"metadata at 0":     {header(func(h *packtest.PMHeader) { h.MetadataOffset = 0 }), false},
		"tiles at 0":        {header(func(h *packtest.PMHeader) { h.TileOffset = 0 }), false},
		"root too long":     {header(func(h *packtest.PMHeader) { h.RootLength = 1 << 40 }), false},
		"metadata too long": {header(func(h *packtest.PMHeader) { h.MetadataLength = 1 << 40 }), false},
		"leaves too long":   {header(func(h *packtest.PMHeader) { h.LeafLength = 1 << 40 }), false},
		"tiles too long":    {header(func(h *packtest.PMHeader) { h.TileLength++ }), false},
		"wrong tiles":       {header(func(h *packtest.PMHeader) { h.AddressedTiles++ }), false},
		"wrong entries":     {header(func(h *packtest.PMHeader) { h.TileEntries++ }), false},
		"wrong contents":    {header(func(h *packtest.PMHeader) { h.TileContents++ }), false},
		"min zoom too high": {header(func(h *packtest.PMHeader) { h.MinZoom, h.CenterZoom = 1, 1 }), false},
		"max zoom too low":  {header(func(h *packtest.PMHeader) { h.MaxZoom = 1 }), false},
		"cut":               {file(func(data []byte) []byte { return data[:len(data)-1] }), false},
		"cut to the header": {file(func(data []byte) []byte { return data[:127] }), false},
		"cut in the header": {file(func(data []byte) []byte { return data[:100] }), false},
		"tile outside": {damagedRoot(func(entries []packtest.PMEntry) []packtest.PMEntry {
			entries[3].Length += 1 << 20
			return entries
		}), false},
		"entry lost": {damagedRoot(func(entries []packtest.PMEntry) []packtest.PMEntry { return entries[:20] }), false},

		"leaves at 0":       {header(func(h *packtest.PMHeader) { h.LeafOffset = 0 }), true},
		"more bytes":        {file(func(data []byte) []byte { return append(data, 0) }), true},
		"max zoom too high": {header(func(h *packtest.PMHeader) { h.MaxZoom = 3 }), true},
		"no area":           {header(func(h *packtest.PMHeader) { h.MaxLatE7 = h.MinLatE7 }), true},
		"centre outside":    {header(func(h *packtest.PMHeader) { h.CenterZoom = 9 }), true},
		"tiles not counted": {header(func(h *packtest.PMHeader) { h.AddressedTiles = 0 }), true},
	} {
		t.Run(name, func(t *testing.T) {
			data := packtest.PMTiles(c.spec)
			path := writeMap(t, data)
			theirs := verifyWithReference(path)
			if theirs == nil {
				t.Fatal("the reference has nothing against it: this shows nothing")
			}
			if c.served {
				a := openMap(t, data)
				if len(a.Remarks()) != 1 {
					t.Errorf("theirs says %q, ours %q", theirs, a.Remarks())
				}
				wantSame(t, a, theirHeader(t, a, data), data, c.spec.Contents())
				return
			}
			a, err := pmtiles.Open(bytes.NewReader(data), int64(len(data)), nil, pmtiles.DefaultLimits())
			if err == nil {
				err = a.Check(t.Context())
			}
			if fault.KindOf(err) != fault.Malformed {
				t.Errorf("theirs says %q, ours %v", theirs, err)
			}
		})
	}
}

// Some archives pass the verify command, because of sums that overflow and runs
// that it does not compare, and are rejected by ours.
func TestWeRefuseMoreThanVerify(t *testing.T) {
	for name, spec := range map[string]packtest.PMSpec{
		"tile far outside": damagedRoot(func(entries []packtest.PMEntry) []packtest.PMEntry {
			entries[3].Offset = math.MaxUint64 - 5
			return entries
		}),
		"runs overlap": {MaxZoom: 2, Damage: packtest.PMDamage{
			Entries: func(_ int, entries []packtest.PMEntry) []packtest.PMEntry {
				entries[3].Run = 2
				return entries
			},
			Header: func(h *packtest.PMHeader) { h.AddressedTiles++ },
		}},
	} {
		data := packtest.PMTiles(spec)
		if err := verifyWithReference(writeMap(t, data)); err != nil {
			t.Errorf("%s: theirs refuses it now: %v", name, err)
		}
		if _, err := pmtiles.Open(bytes.NewReader(data), int64(len(data)), nil, pmtiles.DefaultLimits()); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: ours: %v", name, err)
		}
	}
}

// Random archives, the same ones every time.
func TestRandomArchivesAgree(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 3))
		spec := packtest.PMSpec{
			Seed: seed, MaxZoom: uint8(random.IntN(6)),
			MinSize: 1 + random.IntN(20), MaxSize: 1 + random.IntN(90),
			Repeat: random.Float64() * 0.8, Duplicate: random.Float64() * 0.2,
			LeafSize: []int{0, 2, 9, 70}[random.IntN(4)], Levels: 1 + random.IntN(3),
			SingleRuns: random.IntN(3) == 0, Unclustered: random.IntN(3) == 0, Pad: random.IntN(3) == 0,
			InternalCompression: packtest.PMNone + uint8(random.IntN(2)),
		}
		if spec.LeafSize == 0 && spec.MaxZoom > 4 {
			spec.LeafSize = 500
		}
		spec.MinZoom = uint8(random.IntN(int(spec.MaxZoom) + 1))
		modulus, first := 1+random.Uint32N(4), spec.MinZoom
		spec.Keep = func(z uint8, x, y uint32) bool { return z == first && x+y == 0 || (3*x+5*y)%modulus == 0 }

		data := packtest.PMTiles(spec)
		a := openMap(t, data)
		wantSame(t, a, theirHeader(t, a, data), data, spec.Contents())
	}
}

// Both read the same metadata from the file, whatever it says.
func TestMetadataAgrees(t *testing.T) {
	for _, text := range []string{`{}`, `{"name":"x","vector_layers":[{"id":"a","fields":{}}]}`, " {\n} "} {
		for _, compression := range []uint8{packtest.PMNone, packtest.PMGzip} {
			data := packtest.PMTiles(packtest.PMSpec{Metadata: text, InternalCompression: compression})
			a := openMap(t, data)
			h := theirHeader(t, a, data)
			ours, err := a.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := reference.DeserializeMetadata(bytes.NewReader(data[h.MetadataOffset:][:h.MetadataLength]), h.InternalCompression)
			if err != nil {
				t.Fatal(err)
			}
			var decoded map[string]any
			if err := json.Unmarshal(ours, &decoded); err != nil || !reflect.DeepEqual(decoded, theirs) {
				t.Errorf("ours %v, %v, theirs %v", decoded, err, theirs)
			}
		}
	}
}
