package pmtiles

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

func TestEveryTileIsFoundAndNoOther(t *testing.T) {
	for name, spec := range shapes {
		t.Run(name, func(t *testing.T) {
			data := packtest.PMTiles(spec)
			a := open(t, data, NewDirectoryCache(1<<20))
			wantTiles(t, a, data, spec.Contents())
			if err := check(a); err != nil {
				t.Fatal(err)
			}
			if odd := a.Remarks(); len(odd) != 0 {
				t.Errorf("remarks about a good archive: %q", odd)
			}
		})
	}
}

// anyShape draws an archive.
func anyShape(t *rapid.T) packtest.PMSpec {
	spec := packtest.PMSpec{
		MinSize: rapid.IntRange(1, 40).Draw(t, "min size"), MaxSize: rapid.IntRange(1, 80).Draw(t, "max size"),
		Seed:        rapid.Uint64().Draw(t, "seed"),
		Repeat:      rapid.Float64Range(0, 0.9).Draw(t, "repeat"),
		Duplicate:   rapid.Float64Range(0, 0.1).Draw(t, "again"),
		LeafSize:    rapid.SampledFrom([]int{0, 1, 3, 16, 200}).Draw(t, "leaf size"),
		Levels:      rapid.IntRange(1, maxLeafLevels).Draw(t, "levels"),
		SingleRuns:  rapid.Bool().Draw(t, "single runs"),
		Unclustered: rapid.Bool().Draw(t, "unclustered"),
		Pad:         rapid.Bool().Draw(t, "pad"),

		InternalCompression: rapid.SampledFrom([]uint8{packtest.PMNone, packtest.PMGzip}).Draw(t, "internal"),
	}
	if rapid.Bool().Draw(t, "few tiles anywhere") {
		seen := map[uint64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "tiles") {
			z := rapid.Uint8Range(0, maxZoom).Draw(t, "z")
			x := rapid.Uint32Range(0, 1<<z-1).Draw(t, "x")
			y := rapid.Uint32Range(0, 1<<z-1).Draw(t, "y")
			if id := packtest.PMID(z, x, y); !seen[id] {
				seen[id] = true
				spec.Tiles = append(spec.Tiles, packtest.PMTile{Z: z, X: x, Y: y, Data: packtest.TileBytes(spec.Seed, z, x, y, 9)})
			}
		}
		return spec
	}
	spec.MaxZoom = rapid.Uint8Range(0, 4).Draw(t, "max zoom")
	spec.MinZoom = rapid.Uint8Range(0, spec.MaxZoom).Draw(t, "min zoom")
	modulus := rapid.Uint32Range(1, 5).Draw(t, "one in")
	first := spec.MinZoom
	spec.Keep = func(z uint8, x, y uint32) bool { return z == first && x == 0 && y == 0 || (x*5+y*3)%modulus == 0 }
	return spec
}

func TestWriterAndReaderAgree(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		spec := anyShape(r)
		data := packtest.PMTiles(spec)
		a := open(t, data, NewDirectoryCache(rapid.SampledFrom([]int64{0, 1000, 1 << 20}).Draw(r, "cache")))
		wantTiles(t, a, data, spec.Contents())
		if err := check(a); err != nil {
			r.Fatal(err)
		}
	})
}

func TestTheHeaderIsRead(t *testing.T) {
	spec := packtest.PMSpec{MinZoom: 1, MaxZoom: 3, InternalCompression: packtest.PMGzip, TileCompression: packtest.PMZstd, Type: packtest.PMAVIF}
	var want packtest.PMHeader
	spec.Damage.Header = func(h *packtest.PMHeader) { want = *h }
	h := open(t, packtest.PMTiles(spec), nil).Header()

	got := packtest.PMHeader{
		Magic: "PMTiles", Version: h.Version,
		RootOffset: h.RootOffset, RootLength: h.RootLength, MetadataOffset: h.MetadataOffset, MetadataLength: h.MetadataLength,
		LeafOffset: h.LeafOffset, LeafLength: h.LeafLength, TileOffset: h.TileOffset, TileLength: h.TileLength,
		AddressedTiles: h.AddressedTiles, TileEntries: h.TileEntries, TileContents: h.TileContents, Clustered: 1,
		InternalCompression: uint8(h.InternalCompression), TileCompression: uint8(h.TileCompression), TileType: uint8(h.TileType),
		MinZoom: h.MinZoom, MaxZoom: h.MaxZoom, CenterZoom: h.CenterZoom,
		MinLonE7: h.MinLonE7, MinLatE7: h.MinLatE7, MaxLonE7: h.MaxLonE7, MaxLatE7: h.MaxLatE7,
		CenterLonE7: h.CenterLonE7, CenterLatE7: h.CenterLatE7,
	}
	if got != want || !h.Clustered || h.AddressedTiles != 4+16+64 {
		t.Errorf("read    %+v\nwritten %+v", got, want)
	}
	if h.Bounds() != [4]float64{-180, -85, 180, 85} || h.Center() != [2]float64{0.7588576, 4.75596} {
		t.Errorf("bounds %v, centre %v", h.Bounds(), h.Center())
	}
}

func TestNames(t *testing.T) {
	for tt, want := range map[TileType][3]string{
		UnknownTile: {"unknown", "application/octet-stream", ""},
		MVT:         {"mvt", "application/vnd.mapbox-vector-tile", "mvt"},
		PNG:         {"png", "image/png", "png"},
		JPEG:        {"jpeg", "image/jpeg", "jpg"},
		WebP:        {"webp", "image/webp", "webp"},
		AVIF:        {"avif", "image/avif", "avif"},
		MLT:         {"mlt", "application/vnd.maplibre-vector-tile", "mlt"},
		77:          {"unknown(77)", "application/octet-stream", ""},
	} {
		if got := [3]string{tt.String(), tt.MediaType(), tt.Extension()}; got != want {
			t.Errorf("type %d: %q, want %q", uint8(tt), got, want)
		}
	}
	for c, want := range map[Compression][2]string{
		UnknownCompression: {"unknown", ""}, None: {"none", ""}, Gzip: {"gzip", "gzip"},
		Brotli: {"br", "br"}, Zstd: {"zstd", "zstd"}, 9: {"unknown(9)", ""},
	} {
		if got := [2]string{c.String(), c.ContentEncoding()}; got != want {
			t.Errorf("compression %d: %q, want %q", uint8(c), got, want)
		}
	}
}

func TestTilesThatCannotBe(t *testing.T) {
	a := open(t, packtest.PMTiles(packtest.PMSpec{MinZoom: 1, MaxZoom: 2}), nil)
	for _, c := range [][3]uint32{{1, 2, 0}, {1, 0, 2}, {0, 1, 0}, {32, 0, 0}, {255, 0, 0}, {31, 1 << 31, 0}} {
		_, found, err := a.Locate(uint8(c[0]), c[1], c[2])
		if found {
			t.Errorf("%v was found", c)
		}
		wantFault(t, err, fault.Malformed, "no such tile")
	}
	for _, z := range []uint8{0, 3, 31} {
		if _, found, err := a.Locate(z, 0, 0); found || err != nil {
			t.Errorf("zoom %d, which the archive has not: %t, %v", z, found, err)
		}
	}
}

// The zooms of the header decide: tiles outside of them are absent, as for
// other readers of the format.
func TestZoomsOutsideTheHeaderAreAbsent(t *testing.T) {
	spec := packtest.PMSpec{MaxZoom: 3}
	spec.Damage.Header = func(h *packtest.PMHeader) { h.MinZoom, h.MaxZoom = 1, 2 }
	a := open(t, packtest.PMTiles(spec), nil)
	for z, want := range []bool{false, true, true, false} {
		if _, found, err := a.Locate(uint8(z), 0, 0); found != want || err != nil {
			t.Errorf("zoom %d: %t, %v", z, found, err)
		}
	}
	wantFault(t, check(a), fault.Malformed, "zooms 1 to 2; there are tiles of zooms 0 to 3")
}

func TestMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		spec packtest.PMSpec
		want string
	}{
		"plain":       {packtest.PMSpec{Metadata: ` {"name":"x"}` + "\n"}, ` {"name":"x"}` + "\n"},
		"gzip":        {packtest.PMSpec{Metadata: `{"a":[1,2]}`, InternalCompression: packtest.PMGzip}, `{"a":[1,2]}`},
		"none at all": {packtest.PMSpec{Damage: packtest.PMDamage{Header: func(h *packtest.PMHeader) { h.MetadataLength = 0 }}}, `{}`},
	} {
		text, err := open(t, packtest.PMTiles(c.spec), nil).Metadata()
		if err != nil || string(text) != c.want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestMetadataThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spec   packtest.PMSpec
		kind   fault.Kind
		detail string
	}{
		"not JSON":      {packtest.PMSpec{Metadata: `{"name":`}, fault.Malformed, "is not a JSON object"},
		"not an object": {packtest.PMSpec{Metadata: `[1]`}, fault.Malformed, "is not a JSON object"},
		"blank":         {packtest.PMSpec{Metadata: " \n"}, fault.Malformed, "is not a JSON object"},
		"too large":     {packtest.PMSpec{Metadata: strings.Repeat(" ", 9<<20) + "{}"}, fault.RatioCap, "at most 8388608 are allowed"},
		"a bomb":        {packtest.PMSpec{Metadata: strings.Repeat(" ", 4<<20) + "{}", InternalCompression: packtest.PMGzip}, fault.RatioCap, "inflates to more than"},
		"too steep":     {packtest.PMSpec{Metadata: strings.Repeat(" ", 2<<20) + "{}", InternalCompression: packtest.PMGzip}, fault.RatioCap, "inflates to more than"},
		"not gzip": {packtest.PMSpec{Metadata: `{}`, InternalCompression: packtest.PMGzip,
			Damage: packtest.PMDamage{Header: func(h *packtest.PMHeader) { h.MetadataOffset++; h.MetadataLength-- }}}, fault.Malformed, "the metadata is not gzip"},
		"cut gzip": {packtest.PMSpec{Metadata: `{}`, InternalCompression: packtest.PMGzip,
			Damage: packtest.PMDamage{Header: func(h *packtest.PMHeader) { h.MetadataLength -= 5 }}}, fault.Malformed, "the metadata cannot be inflated"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := open(t, packtest.PMTiles(c.spec), nil).Metadata()
			if text != nil {
				t.Errorf("%d bytes were returned", len(text))
			}
			wantFault(t, err, c.kind, c.detail)
		})
	}
}

// A directory of tiles of one size compresses to almost nothing. It is small,
// so that is no bomb.
func TestRegularDirectoriesAreNotBombs(t *testing.T) {
	spec := packtest.PMSpec{MaxZoom: 6, MinSize: 8, MaxSize: 8, InternalCompression: packtest.PMGzip}
	data := packtest.PMTiles(spec)
	a := open(t, data, nil)
	if plain := 4 * a.Header().TileEntries; plain < 200*a.Header().RootLength {
		t.Fatalf("%d bytes became %d: not steep enough to show anything", plain, a.Header().RootLength)
	}
	wantTiles(t, a, data, spec.Contents())
}

func TestLimitsOfTheCaller(t *testing.T) {
	data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 50, MinSize: 100, Metadata: `{"name":"a name"}`})
	openWith := func(l Limits) (*Archive, error) { return Open(strictReader{t, data}, int64(len(data)), nil, l) }

	a, err := openWith(Limits{Directory: 50 * entryBytes, Metadata: 10, Tile: 99})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Locate(1, 0, 0)
	wantFault(t, err, fault.Malformed, "tile 1 has 100 bytes; at most 99 are allowed")
	wantFault(t, check(a), fault.Malformed, "tile 0 has 100 bytes; at most 99 are allowed")
	_, err = a.Metadata()
	wantFault(t, err, fault.RatioCap, "at most 10 are allowed")

	if a, err = openWith(Limits{Directory: 50*entryBytes - 1}); err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Locate(1, 0, 0)
	wantFault(t, err, fault.RatioCap, "has 50 entries; at most 49 are allowed")

	if a, err = openWith(Limits{Directory: 100}); err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Locate(1, 0, 0)
	wantFault(t, err, fault.RatioCap, "bytes as stored; at most 100 are allowed")
}

func TestDefaultsFillWhatIsLeftOut(t *testing.T) {
	if got := (Limits{}).withDefaults(); got != DefaultLimits() {
		t.Errorf("%+v", got)
	}
	own := Limits{Directory: 1, Metadata: 2, Tile: 3, Ratio: 4}
	if own.withDefaults() != own {
		t.Errorf("%+v", own.withDefaults())
	}
}

func TestReadsThatFail(t *testing.T) {
	data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 4, LeafSize: 20})
	var broken error
	var short int
	src := failingReader{bytes.NewReader(data), &broken, &short}
	a, err := Open(src, int64(len(data)), nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"open":     func() error { _, err := Open(src, int64(len(data)), nil, Limits{}); return err },
		"locate":   func() error { _, _, err := a.Locate(3, 1, 1); return err },
		"metadata": func() error { _, err := a.Metadata(); return err },
		"check":    func() error { return check(a) },
	}
	broken = os.ErrPermission
	for name, call := range calls {
		err := call()
		if !errors.Is(err, os.ErrPermission) || fault.KindOf(err) != fault.Internal || !strings.HasPrefix(fault.DetailOf(err), "reading ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken, short = nil, 1
	for name, call := range calls {
		if err := call(); fault.KindOf(err) != fault.Malformed || !strings.Contains(err.Error(), "ends early") {
			t.Errorf("%s of a file that shrank: %v", name, err)
		}
	}
	broken = io.ErrUnexpectedEOF
	if err := calls["locate"](); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestSizesThatAreNotFiles(t *testing.T) {
	data := packtest.PMTiles(packtest.PMSpec{})
	for _, size := range []int64{0, 1, 126, -1, math.MinInt64} {
		_, err := Open(bytes.NewReader(data), size, nil, Limits{})
		wantFault(t, err, fault.Malformed, "the header alone has 127")
	}
	// A larger size than that of the file: the head can be read, the rest
	// cannot.
	if _, err := Open(bytes.NewReader(data), math.MaxInt64, nil, Limits{}); err == nil {
		t.Error("a file that is shorter than it is said to be was opened")
	}
}
