package pmtiles

import (
	"bytes"
	"runtime/metrics"
	"testing"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

// smallLimits are small enough for a fuzzer to reach them.
var smallLimits = Limits{Directory: 64 << 10, Metadata: 32 << 10, Tile: 4 << 10, Ratio: 20}

// slack is what a call may allocate besides what its limits say: errors, a gzip
// reader, and what the test itself does.
const slack = 512 << 10

// allocated is how many bytes were ever allocated. Small objects are counted a
// little late, large ones at once, and those are the ones that matter.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// wantTyped checks that every refusal has a kind and a reason.
func wantTyped(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if kind := fault.KindOf(err); kind != fault.Malformed && kind != fault.RatioCap || fault.DetailOf(err) == "" || fault.NextOf(err) == "" {
		t.Errorf("%v is a %v", err, kind)
	}
}

func FuzzDirectory(f *testing.F) {
	for _, entries := range [][]packtest.PMEntry{
		{{ID: 0, Length: 5, Run: 1}},
		{{ID: 0, Length: 5, Run: 3}, {ID: 5, Offset: 5, Length: 7, Run: 0}, {ID: 9, Offset: 0, Length: 5, Run: 1}},
		{{ID: endOfIDs - 1, Offset: 90, Length: 10, Run: 1}},
	} {
		f.Add(packtest.PMDirectory(entries), uint64(100), uint64(50))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint64(1), uint64(1))
	f.Fuzz(func(t *testing.T, plain []byte, tiles, leaves uint64) {
		before := allocated()
		d, err := decodeDirectory(plain, 127, sections{tiles: tiles, leaves: leaves}, smallLimits.Directory)
		if used := allocated() - before; used > uint64(smallLimits.Directory)+slack {
			t.Errorf("%d bytes were allocated", used)
		}
		wantTyped(t, err)
		if err == nil {
			wantOrder(t, d, tiles, leaves)
		}
	})
}

// wantOrder checks the invariants of a decoded directory.
func wantOrder(t *testing.T, d *directory, tiles, leaves uint64) {
	t.Helper()
	for i, id := range d.ids {
		e := d.entries[i]
		next := endOfIDs
		if i+1 < len(d.ids) {
			next = d.ids[i+1]
		}
		if id >= next || uint64(e.run) > next-id {
			t.Fatalf("entry %d: tile %d and a run of %d, before %d", i, id, e.run, next)
		}
		size := tiles
		if e.run == 0 {
			size = leaves
		}
		if end := e.offset + uint64(e.length); e.length == 0 || end < e.offset || end > size {
			t.Fatalf("entry %d: %d bytes at %d of %d", i, e.length, e.offset, size)
		}
		if got, found := d.find(id); !found || got != e {
			t.Fatalf("entry %d is not found by its own tile", i)
		}
	}
	if _, found := d.find(d.ids[0] - 1); d.ids[0] > 0 && found {
		t.Fatal("a tile before the first is found")
	}
}

func FuzzHeader(f *testing.F) {
	whole := packtest.PMTiles(packtest.PMSpec{MaxZoom: 1})
	f.Add(whole[:headerBytes], int64(len(whole)))
	f.Add(whole[:headerBytes-1], int64(1000))
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		if size < int64(len(head)) {
			return // Open never reads more than the file has
		}
		h, err := parseHeader(head, size)
		wantTyped(t, err)
		if err != nil {
			return
		}
		for _, s := range [][2]uint64{{h.RootOffset, h.RootLength}, {h.MetadataOffset, h.MetadataLength}, {h.LeafOffset, h.LeafLength}, {h.TileOffset, h.TileLength}} {
			if end := s[0] + s[1]; end < s[0] || end > uint64(size) {
				t.Errorf("a section of %d bytes at %d of a file of %d was accepted", s[1], s[0], size)
			}
		}
		if h.RootOffset < headerBytes || h.RootOffset+h.RootLength > firstReadBytes || h.MinZoom > h.MaxZoom || h.MaxZoom > maxZoom {
			t.Errorf("%+v was accepted", h)
		}
	})
}

func FuzzOpen(f *testing.F) {
	for _, spec := range []packtest.PMSpec{
		{MaxZoom: 1, MinSize: 3},
		{MaxZoom: 2, MinSize: 3, LeafSize: 5},
		{MaxZoom: 2, MinSize: 3, LeafSize: 4, Levels: 2, InternalCompression: packtest.PMGzip, Repeat: 0.5},
		selfReferencing(2),
	} {
		f.Add(packtest.PMTiles(spec), uint8(1), uint32(1), uint32(0))
	}
	f.Fuzz(func(t *testing.T, file []byte, z uint8, x, y uint32) {
		before := allocated()
		a, err := Open(strictReader{t, file}, int64(len(file)), nil, smallLimits)
		if err == nil {
			use(t, a, file, z, x, y)
		}
		// A look-up loads at most maxLeafLevels directories, twenty times each
		// here, and a check walks a file of this size; nothing is cached.
		if used := allocated() - before; used > 200*uint64(3*smallLimits.Directory)+uint64(200*len(file))+slack {
			t.Errorf("%d bytes were allocated for a file of %d", used, len(file))
		}
		wantTyped(t, err)
	})
}

// use calls all methods of an archive.
func use(t *testing.T, a *Archive, file []byte, z uint8, x, y uint32) {
	found := map[uint64]bool{}
	locate := func(z uint8, x, y uint32) {
		p, ok, err := a.Locate(z, x, y)
		wantTyped(t, err)
		if ok {
			tile(t, file, p)
			id, _ := ID(z, x, y)
			found[id] = true
			if int64(p.Length) > smallLimits.Tile {
				t.Errorf("%+v is larger than a tile may be", p)
			}
		}
	}
	locate(z, x, y)
	for id := range uint64(1 + 4 + 16) {
		z, x, y, err := ZXY(id)
		if err != nil {
			t.Fatal(err)
		}
		locate(z, x, y)
	}
	err := check(a)
	wantTyped(t, err)
	if count := a.Header().AddressedTiles; err == nil && count != 0 && uint64(len(found)) > count {
		t.Errorf("%d tiles were found; a check that passed counted %d", len(found), count)
	}
	text, err := a.Metadata()
	wantTyped(t, err)
	if int64(len(text)) > smallLimits.Metadata || err == nil && !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		t.Errorf("metadata of %d bytes", len(text))
	}
}
