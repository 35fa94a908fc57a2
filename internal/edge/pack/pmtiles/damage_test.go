package pmtiles

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

// refusal is an archive that is wrong in one way.
type refusal struct {
	spec   packtest.PMSpec
	kind   fault.Kind
	detail string
}

func header(change func(h *packtest.PMHeader)) packtest.PMSpec {
	return packtest.PMSpec{MaxZoom: 2, Damage: packtest.PMDamage{Header: change}}
}

// rootOf is an archive with one tile of 100 bytes whose root directory has
// other entries.
func rootOf(entries ...packtest.PMEntry) packtest.PMSpec {
	return packtest.PMSpec{Damage: packtest.PMDamage{Entries: func(int, []packtest.PMEntry) []packtest.PMEntry { return entries }}}
}

// rawRoot has another root directory, byte for byte.
func rawRoot(numbers ...uint64) packtest.PMSpec {
	return packtest.PMSpec{Damage: packtest.PMDamage{Directory: func(int, []byte) []byte {
		var raw []byte
		for _, n := range numbers {
			raw = binary.AppendUvarint(raw, n)
		}
		return raw
	}}}
}

func stored(compression uint8, change func(raw []byte) []byte) packtest.PMSpec {
	return packtest.PMSpec{MaxZoom: 2, InternalCompression: compression, Damage: packtest.PMDamage{
		Stored: func(_ int, raw []byte) []byte { return change(raw) }}}
}

func entryOf(id, offset, length, run uint64) packtest.PMEntry {
	return packtest.PMEntry{ID: id, Offset: offset, Length: length, Run: run}
}

func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]refusal{
		"other magic":      {header(func(h *packtest.PMHeader) { h.Magic = "PMTiler" }), fault.Malformed, "does not begin with PMTiles"},
		"version 2":        {header(func(h *packtest.PMHeader) { h.Version = 2 }), fault.Malformed, "version 2 of the format"},
		"version 4":        {header(func(h *packtest.PMHeader) { h.Version = 4 }), fault.Malformed, "version 4 of the format"},
		"internal brotli":  {packtest.PMSpec{InternalCompression: packtest.PMBrotli}, fault.Malformed, "compressed as br; only none and gzip"},
		"internal zstd":    {packtest.PMSpec{InternalCompression: packtest.PMZstd}, fault.Malformed, "compressed as zstd; only none and gzip"},
		"internal unknown": {header(func(h *packtest.PMHeader) { h.InternalCompression = 0 }), fault.Malformed, "compressed as unknown;"},
		"internal 200":     {header(func(h *packtest.PMHeader) { h.InternalCompression = 200 }), fault.Malformed, "compressed as unknown(200)"},
		"zooms turned":     {header(func(h *packtest.PMHeader) { h.MinZoom = 3 }), fault.Malformed, "zooms 3 to 2"},
		"zoom 32":          {header(func(h *packtest.PMHeader) { h.MaxZoom = 32 }), fault.Malformed, "zooms 0 to 32"},

		"no root":              {header(func(h *packtest.PMHeader) { h.RootLength = 0 }), fault.Malformed, "no root directory"},
		"root over header":     {header(func(h *packtest.PMHeader) { h.RootOffset = 126 }), fault.Malformed, "root directory (85 bytes at 126) lies over the header"},
		"root past the head":   {packtest.PMSpec{MinSize: 16 << 10, Damage: packtest.PMDamage{Header: func(h *packtest.PMHeader) { h.RootLength = 16<<10 - 126 }}}, fault.Malformed, "root directory (16258 bytes at 127) does not end within the first 16384 bytes"},
		"root outside":         {header(func(h *packtest.PMHeader) { h.RootOffset = 1 << 40 }), fault.Malformed, "is not inside the file"},
		"root overflows":       {header(func(h *packtest.PMHeader) { h.RootOffset, h.RootLength = 200, math.MaxUint64-100 }), fault.Malformed, "is not inside the file"},
		"metadata outside":     {header(func(h *packtest.PMHeader) { h.MetadataLength = 1 << 50 }), fault.Malformed, "metadata"},
		"metadata overflows":   {header(func(h *packtest.PMHeader) { h.MetadataOffset = math.MaxUint64 }), fault.Malformed, "metadata"},
		"metadata over header": {header(func(h *packtest.PMHeader) { h.MetadataOffset = 0 }), fault.Malformed, "metadata (19 bytes at 0) lies over the header"},
		"leaves outside":       {header(func(h *packtest.PMHeader) { h.LeafLength = 1 << 62 }), fault.Malformed, "leaf directories"},
		"tiles outside":        {header(func(h *packtest.PMHeader) { h.TileLength++ }), fault.Malformed, "tile data"},
		"tiles overflow":       {header(func(h *packtest.PMHeader) { h.TileOffset = math.MaxUint64 - 1 }), fault.Malformed, "tile data"},

		"empty directory":        {rawRoot(0), fault.Malformed, "the directory at byte 127: it has no entries"},
		"count of too many":      {rawRoot(3, 0, 1, 1, 1, 1, 1, 1, 1), fault.Malformed, "says that it has 3 entries; its bytes are enough for 2"},
		"count of 2^64-1":        {rawRoot(math.MaxUint64, 0, 1, 100, 1), fault.Malformed, "its bytes are enough for 1"},
		"count cut":              {stored(packtest.PMNone, func([]byte) []byte { return []byte{0x80} }), fault.Malformed, "in the count of entry 0"},
		"number of 11 bytes":     {stored(packtest.PMNone, func([]byte) []byte { return bytes.Repeat([]byte{0xff}, 20) }), fault.Malformed, "in the count"},
		"ids cut":                {stored(packtest.PMNone, func([]byte) []byte { return []byte{1, 0x80, 0x80, 0x80, 0x80} }), fault.Malformed, "in the tile id of entry 0"},
		"runs cut":               {stored(packtest.PMNone, func([]byte) []byte { return []byte{1, 0x80, 0x80, 0, 0x80} }), fault.Malformed, "in the run length of entry 0"},
		"lengths cut":            {stored(packtest.PMNone, func([]byte) []byte { return []byte{1, 0x80, 0, 1, 0x80} }), fault.Malformed, "in the length of entry 0"},
		"offsets cut":            {stored(packtest.PMNone, func([]byte) []byte { return []byte{1, 0, 1, 1, 0x80} }), fault.Malformed, "in the offset of entry 0"},
		"bytes left over":        {rawRoot(1, 0, 1, 100, 1, 7, 7), fault.Malformed, "2 bytes are left over after its 1 entries"},
		"same tile twice":        {rootOf(entryOf(5, 0, 10, 1), entryOf(5, 10, 10, 1)), fault.Malformed, "entry 1 begins with the same tile, 5, as the one before"},
		"tiles turned":           {rootOf(entryOf(5, 0, 10, 1), entryOf(4, 10, 10, 1)), fault.Malformed, "entry 1 begins past the last tile"},
		"past the last tile":     {rootOf(entryOf(endOfIDs, 0, 10, 1)), fault.Malformed, "entry 0 begins past the last tile of zoom 31"},
		"ids overflow":           {rawRoot(2, 7, math.MaxUint64-2, 1, 1, 1, 1, 1, 1), fault.Malformed, "entry 1 begins past the last tile"},
		"runs overlap":           {rootOf(entryOf(5, 0, 10, 3), entryOf(7, 10, 10, 1)), fault.Malformed, "entry 0, at tile 5, is for a run of 3 tiles; there is room for 2"},
		"run past the tree":      {rootOf(entryOf(endOfIDs-3, 0, 10, 4)), fault.Malformed, "is for a run of 4 tiles; there is room for 3"},
		"run of more than 2^32":  {rootOf(entryOf(5, 0, 10, 1<<32)), fault.Malformed, "is for a run of 4294967296 tiles"},
		"empty tile":             {rootOf(entryOf(5, 0, 0, 1)), fault.Malformed, "entry 0, at tile 5, has a length of 0 bytes"},
		"tile of 4 GiB":          {rootOf(entryOf(5, 0, 1<<32, 1)), fault.Malformed, "has a length of 4294967296 bytes"},
		"no first offset":        {rawRoot(1, 0, 1, 100, 0), fault.Malformed, "its first entry has no offset"},
		"offset outside":         {rootOf(entryOf(5, 91, 10, 1)), fault.Malformed, "points at 10 bytes at 91 of the tile data, which have 100"},
		"offset overflows":       {rawRoot(1, 5, 1, 10, math.MaxUint64), fault.Malformed, "of the tile data, which have 100"},
		"offset follows outside": {rootOf(entryOf(5, 0, 95, 1), entryOf(6, 95, 10, 1)), fault.Malformed, "entry 1, at tile 6, points at 10 bytes at 95"},
		"leaf outside":           {rootOf(entryOf(5, 0, 10, 0)), fault.Malformed, "points at 10 bytes at 0 of the leaf directories, which have 0"},

		"not gzip":     {stored(packtest.PMGzip, func(raw []byte) []byte { raw[0]++; return raw }), fault.Malformed, "the directory at byte 127 is not gzip"},
		"cut gzip":     {stored(packtest.PMGzip, func(raw []byte) []byte { return raw[:len(raw)-9] }), fault.Malformed, "the directory at byte 127 cannot be inflated"},
		"wrong sum":    {stored(packtest.PMGzip, func(raw []byte) []byte { raw[len(raw)-5]++; return raw }), fault.Malformed, "cannot be inflated"},
		"a bomb":       {stored(packtest.PMGzip, func([]byte) []byte { return packtest.PMGzipped(make([]byte, 4<<20)) }), fault.RatioCap, "the directory at byte 127 has"},
		"small bomb":   {stored(packtest.PMGzip, func([]byte) []byte { return packtest.PMGzipped(make([]byte, 1<<20+1)) }), fault.RatioCap, "inflates to more than the 1048576"},
		"just no bomb": {stored(packtest.PMGzip, func([]byte) []byte { return packtest.PMGzipped(make([]byte, 1<<20)) }), fault.Malformed, "it has no entries"},
	} {
		t.Run(name, func(t *testing.T) {
			data := packtest.PMTiles(c.spec)
			_, err := Open(strictReader{t, data}, int64(len(data)), nil, Limits{})
			wantFault(t, err, c.kind, c.detail)
		})
	}
}

// A truncated archive is refused, or nothing in it leads outside.
func TestCutArchives(t *testing.T) {
	for _, spec := range []packtest.PMSpec{{MaxZoom: 2, LeafSize: 5}, {MaxZoom: 2, InternalCompression: packtest.PMGzip}} {
		whole := packtest.PMTiles(spec)
		for length := range whole {
			data := whole[:length]
			if _, err := Open(strictReader{t, data}, int64(length), nil, Limits{}); fault.KindOf(err) != fault.Malformed {
				t.Fatalf("cut to %d of %d bytes: %v", length, len(whole), err)
			}
		}
	}
}

// leaves is an archive with leaf directories of five entries at zooms 0 to 2:
// root entries begin at tiles 0, 5, 10, 15, 20. Directory 0 is the root.
func leaves(number int, change func(entries []packtest.PMEntry) []packtest.PMEntry) packtest.PMSpec {
	return packtest.PMSpec{MaxZoom: 2, LeafSize: 5, Damage: packtest.PMDamage{
		Entries: func(n int, entries []packtest.PMEntry) []packtest.PMEntry {
			if n == number {
				entries = change(entries)
			}
			return entries
		},
	}}
}

// pointing makes one entry point at another directory.
func pointing(entry int, offset, length uint64) func([]packtest.PMEntry) []packtest.PMEntry {
	return func(entries []packtest.PMEntry) []packtest.PMEntry {
		entries[entry].Offset, entries[entry].Length, entries[entry].Run = offset, length, 0
		return entries
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, c := range map[string]refusal{
		"wrong number of tiles":    {header(func(h *packtest.PMHeader) { h.AddressedTiles++ }), fault.Malformed, "the header says 22 tiles; the directories have 21"},
		"wrong number of entries":  {header(func(h *packtest.PMHeader) { h.TileEntries-- }), fault.Malformed, "the header says 20 entries for tiles; the directories have 21"},
		"wrong number of contents": {header(func(h *packtest.PMHeader) { h.TileContents = 3 }), fault.Malformed, "the header says 3 different tiles; the directories have 21"},
		"wrong number of contents, unclustered": {packtest.PMSpec{MaxZoom: 2, Unclustered: true, Damage: packtest.PMDamage{
			Header: func(h *packtest.PMHeader) { h.TileContents = 3 }}}, fault.Malformed, "the header says 3 different tiles; the directories have 21"},
		"zoom above": {header(func(h *packtest.PMHeader) { h.MinZoom = 1 }), fault.Malformed, "zooms 1 to 2; there are tiles of zooms 0 to 2"},
		"zoom below": {header(func(h *packtest.PMHeader) { h.MaxZoom = 1 }), fault.Malformed, "zooms 0 to 1; there are tiles of zooms 0 to 2"},

		"leaf begins too early": {leaves(0, func(entries []packtest.PMEntry) []packtest.PMEntry {
			entries[1].ID = 7
			return entries
		}), fault.Malformed, "tile 5 is not where it belongs"},
		"leaf ends too late": {leaves(1, func(entries []packtest.PMEntry) []packtest.PMEntry {
			entries[4].ID = 5
			return entries
		}), fault.Malformed, "tile 5 is not where it belongs"},
		"run goes on in the next leaf": {leaves(1, func(entries []packtest.PMEntry) []packtest.PMEntry {
			entries[4].Run = 2
			return entries
		}), fault.Malformed, "the run of 2 tiles from 4 goes past the next directory, at 5"},
		"one leaf twice": {leaves(0, func(entries []packtest.PMEntry) []packtest.PMEntry {
			entries[1].Offset, entries[1].Length = entries[0].Offset, entries[0].Length
			return entries
		}), fault.Malformed, "tile 0 is not where it belongs"},
		"leaf is not a directory": {packtest.PMSpec{MaxZoom: 2, LeafSize: 5, Damage: packtest.PMDamage{
			Stored: func(number int, raw []byte) []byte {
				if number == 2 {
					raw[0] = 0
				}
				return raw
			}}}, fault.Malformed, "it has no entries"},
		"too deep":            {packtest.PMSpec{MaxZoom: 3, LeafSize: 3, Levels: maxLeafLevels + 1}, fault.Malformed, "below more than 4 leaf directories"},
		"leaf to itself":      {selfReferencing(2), fault.Malformed, "tile 0 lies below more than 4 leaf directories"},
		"only leaf to itself": {selfReferencing(1), fault.Malformed, "the leaf directories up to tile 0 have 42 bytes, more than the 21 of their section"},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t, packtest.PMTiles(c.spec), nil)
			wantFault(t, check(a), c.kind, c.detail)
			if odd := a.Remarks(); odd != nil {
				t.Errorf("remarks after a refusal: %q", odd)
			}
		})
	}
}

// selfReferencing has a leaf directory whose first entry points at that directory.
func selfReferencing(zooms uint8) packtest.PMSpec {
	spec := leaves(1, func(entries []packtest.PMEntry) []packtest.PMEntry {
		length := len(packtest.PMDirectory(pointing(0, 0, 1)(entries)))
		return pointing(0, 0, uint64(length))(entries)
	})
	spec.MaxZoom = zooms
	return spec
}

func TestLocateEndsInACircle(t *testing.T) {
	a := open(t, packtest.PMTiles(selfReferencing(2)), NewDirectoryCache(1<<20))
	_, found, err := a.Locate(0, 0, 0)
	if found {
		t.Error("a tile was found in a circle")
	}
	wantFault(t, err, fault.Malformed, "tile 0 lies below more than 4 leaf directories")
}

func TestLocateRefusesTooDeep(t *testing.T) {
	a := open(t, packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 3, Levels: maxLeafLevels + 1}), NewDirectoryCache(1<<20))
	_, _, err := a.Locate(2, 1, 1)
	wantFault(t, err, fault.Malformed, "below more than 4 leaf directories")
}

func TestLocateReportsADamagedLeaf(t *testing.T) {
	spec := packtest.PMSpec{MaxZoom: 2, LeafSize: 5, InternalCompression: packtest.PMGzip}
	spec.Damage.Stored = func(number int, raw []byte) []byte {
		if number == 2 {
			raw[len(raw)-1] ^= 1
		}
		return raw
	}
	a := open(t, packtest.PMTiles(spec), NewDirectoryCache(1<<20))
	if _, found, err := a.Locate(1, 0, 0); !found || err != nil {
		t.Errorf("a tile of a good leaf: %t, %v", found, err)
	}
	for range 2 { // the second time, too: damaged directories are not cached
		_, _, err := a.Locate(2, 0, 0)
		wantFault(t, err, fault.Malformed, "cannot be inflated")
	}
}

func TestRemarks(t *testing.T) {
	for want, spec := range map[string]packtest.PMSpec{
		"the bounds have no area; a map may not show the tiles":              header(func(h *packtest.PMHeader) { h.MaxLonE7 = h.MinLonE7 }),
		"the centre is at zoom 3, outside of zooms 0 to 2":                   header(func(h *packtest.PMHeader) { h.CenterZoom = 3 }),
		"a section that is empty has no offset":                              header(func(h *packtest.PMHeader) { h.LeafOffset = 0 }),
		"the header leaves a count open":                                     header(func(h *packtest.PMHeader) { h.TileContents = 0 }),
		"the header says zooms 0 to 3; there are tiles of zooms 0 to 2 only": header(func(h *packtest.PMHeader) { h.MaxZoom = 3 }),
		"the header says that the tiles are clustered; they are not in order": {MaxZoom: 2, Unclustered: true, Damage: packtest.PMDamage{
			Header: func(h *packtest.PMHeader) { h.Clustered = 1 }}},
		"the header says zooms 0 to 1; the last run goes on to zoom 2, and cannot be asked for there": {MaxZoom: 2, Repeat: 1, Damage: packtest.PMDamage{
			Header: func(h *packtest.PMHeader) { h.MaxZoom = 1 }}},
		"the sections do not add up to the size of the file": {Damage: packtest.PMDamage{
			File: func(file []byte) []byte { return append(file, "more"...) }}},
	} {
		data := packtest.PMTiles(spec)
		a := open(t, data, nil)
		if a.Remarks() != nil {
			t.Errorf("%q: remarks before the first check", want)
		}
		if err := check(a); err != nil {
			t.Errorf("%q is no reason to refuse: %v", want, err)
		}
		if odd := a.Remarks(); len(odd) != 1 || odd[0] != want {
			t.Errorf("%q, want %q", odd, want)
		}
		wantTiles(t, a, data, slices.DeleteFunc(spec.Contents(), func(tile packtest.PMTile) bool { return tile.Z > a.Header().MaxZoom }))
	}
}

func TestCheckHeedsItsContext(t *testing.T) {
	a := open(t, packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 3}), nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := a.Check(ctx); fault.KindOf(err) != fault.Canceled || fault.OpOf(err) != "pmtiles.check" {
		t.Error(err)
	}
}

// A walk stops at its bounds; the numbers are too large to reach them with
// files.
func TestCheckIsBounded(t *testing.T) {
	a := open(t, packtest.PMTiles(packtest.PMSpec{MaxZoom: 2, Unclustered: true}), nil)
	w := &walk{a: a, directories: maxDirectories}
	wantFault(t, w.directory(context.Background(), a.root, 0, endOfIDs), fault.RatioCap, "more than 1048576 directories")

	w = &walk{a: a, offsets: make([]uint64, maxOffsets)}
	if err := w.directory(context.Background(), a.root, 0, endOfIDs); err != nil {
		t.Fatal(err)
	}
	if n, known := w.distinctContents(); known || len(w.offsets) != maxOffsets+1 {
		t.Errorf("%d different offsets, known %t, of %d remembered", n, known, len(w.offsets))
	}
	if err := w.compare(); err != nil {
		t.Errorf("a number that is not known was compared: %v", err)
	}
}
