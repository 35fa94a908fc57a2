package pack

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

// encoded compresses some bytes.
func encoded(tb testing.TB, encoding string, data []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "zstd":
		z, err := zstd.NewWriter(&out)
		testkit.Must(tb, err)
		w = z
	default:
		return data
	}
	_, err := w.Write(data)
	testkit.Must(tb, err)
	testkit.Must(tb, w.Close())
	return out.Bytes()
}

func TestTypesAndEncodings(t *testing.T) {
	plain := []byte(strings.Repeat("a tile of some size ", 20))
	for name, c := range map[string]struct {
		file               string
		tileType, encoding uint8  // of PMTiles
		format             string // of MBTiles
		wantType, want     string
	}{
		"vector, gzip":      {file: "a.pmtiles", tileType: packtest.PMVector, encoding: packtest.PMGzip, wantType: "application/vnd.mapbox-vector-tile", want: "gzip"},
		"vector, plain":     {file: "a.pmtiles", tileType: packtest.PMVector, encoding: packtest.PMNone, wantType: "application/vnd.mapbox-vector-tile"},
		"vector, brotli":    {file: "a.pmtiles", tileType: packtest.PMVector, encoding: packtest.PMBrotli, wantType: "application/vnd.mapbox-vector-tile", want: "br"},
		"vector, zstd":      {file: "a.pmtiles", tileType: packtest.PMVector, encoding: packtest.PMZstd, wantType: "application/vnd.mapbox-vector-tile", want: "zstd"},
		"png":               {file: "a.pmtiles", tileType: packtest.PMPNG, encoding: packtest.PMNone, wantType: "image/png"},
		"jpeg":              {file: "a.pmtiles", tileType: packtest.PMJPEG, encoding: packtest.PMNone, wantType: "image/jpeg"},
		"webp":              {file: "a.pmtiles", tileType: packtest.PMWebP, encoding: packtest.PMNone, wantType: "image/webp"},
		"avif":              {file: "a.pmtiles", tileType: packtest.PMAVIF, encoding: packtest.PMNone, wantType: "image/avif"},
		"pbf, gzip":         {file: "a.mbtiles", format: "pbf", wantType: "application/vnd.mapbox-vector-tile", want: "gzip"},
		"pbf, plain":        {file: "a.mbtiles", format: "pbf", wantType: "application/vnd.mapbox-vector-tile"},
		"png in a database": {file: "a.mbtiles", format: "png", wantType: "image/png"},
		"jpg in a database": {file: "a.mbtiles", format: "jpg", wantType: "image/jpeg"},
		"webp there":        {file: "a.mbtiles", format: "webp", wantType: "image/webp"},
		"something else":    {file: "a.mbtiles", format: "application/x-whatever", wantType: "application/octet-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			data := encoded(t, c.want, plain)
			if kindOf(c.file) == pmtilesKind {
				put(t, s.path(c.file), packtest.PMTiles(packtest.PMSpec{
					Tiles: []packtest.PMTile{{Data: data}}, Type: c.tileType, TileCompression: c.encoding,
				}))
			} else {
				testkit.Must(t, packtest.MBTiles(s.path(c.file), packtest.MBSpec{
					Tile: func(uint8, uint32, uint32) []byte { return data }, Metadata: map[string]string{"format": c.format},
				}))

			}
			s.mount()
			p, err := s.Open("a")
			testkit.Must(t, err)
			defer p.Close()
			got, err := p.Tile(t.Context(), 0, 0, 0)
			testkit.Must(t, err)
			if got.Type != c.wantType || got.Encoding != c.want || !bytes.Equal(got.Data, data) {
				t.Errorf("got %s, %q, %d bytes", got.Type, got.Encoding, len(got.Data))
			}
		})
	}
}

func TestInflate(t *testing.T) {
	plain := []byte(strings.Repeat("a tile of some size ", 500))
	for _, encoding := range []string{"", "gzip", "deflate", "zstd"} {
		for range 3 { // decoders are reused
			got, err := Inflate(Tile{Data: encoded(t, encoding, plain), Type: "x/y", Encoding: encoding}, int64(len(plain)))
			if err != nil || !bytes.Equal(got.Data, plain) || got.Type != "x/y" || got.Encoding != "" {
				t.Errorf("%q: %d bytes, %q, %v", encoding, len(got.Data), got.Encoding, err)
			}
		}
		if encoding == "" {
			continue
		}
		_, err := Inflate(Tile{Data: encoded(t, encoding, plain), Encoding: encoding}, int64(len(plain)-1))
		if fault.KindOf(err) != fault.RatioCap || ownNext(err) == "" {
			t.Errorf("%s: a byte too many: %v", encoding, err)
		}
		whole := encoded(t, encoding, plain)
		for _, bad := range [][]byte{nil, whole[:5], whole[:len(whole)-3], []byte("garbage that is long enough")} {
			_, err := Inflate(Tile{Data: bad, Encoding: encoding}, 1<<20)
			if kind := fault.KindOf(err); kind != fault.IntegrityFail && !(encoding == "zstd" && len(bad) == 0) {
				t.Errorf("%s of %d bytes: %v", encoding, len(bad), err)
			}
		}
	}
	_, err := Inflate(Tile{Data: plain, Encoding: "br"}, 1<<20)
	if fault.KindOf(err) != fault.Malformed || ownNext(err) == "" {
		t.Errorf("brotli: %v", err)
	}
}

// A bomb costs no more than the limit, and what a decoder needs.
func TestInflateABomb(t *testing.T) {
	for _, encoding := range []string{"gzip", "deflate", "zstd"} {
		bomb := encoded(t, encoding, make([]byte, 4<<20))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Inflate(Tile{Data: bomb, Encoding: encoding}, 64<<10)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; fault.KindOf(err) != fault.RatioCap || encoding != "zstd" && taken > 1<<20 || taken > 3*zstdWindow {
			t.Errorf("%s: %v after %d bytes", encoding, err, taken)
		}
	}
}

// A zstd frame may claim a large window before it yields a byte.
func TestInflateAHugeWindow(t *testing.T) {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x70, 0x09, 0x00, 0x00, 'x'} // a window of 16 MiB, a raw block of one byte
	_, err := Inflate(Tile{Data: frame, Encoding: "zstd"}, 1<<20)
	if fault.KindOf(err) != fault.RatioCap {
		t.Errorf("%v", err)
	}
}

func FuzzInflate(f *testing.F) {
	for i, encoding := range []string{"gzip", "deflate", "zstd"} {
		whole := encoded(f, encoding, tileText(1, 2, 3, 3))
		f.Add(uint8(i), whole, uint16(60_000))
		f.Add(uint8(i), whole[:len(whole)/2], uint16(10))
		f.Add(uint8(i), encoded(f, encoding, make([]byte, 100_000)), uint16(50_000))
	}
	f.Add(uint8(3), []byte("brotli"), uint16(100))
	f.Fuzz(func(t *testing.T, which uint8, data []byte, max uint16) {
		encoding := []string{"gzip", "deflate", "zstd", "br", ""}[which%5]
		given := bytes.Clone(data)
		got, err := Inflate(Tile{Data: data, Type: "x/y", Encoding: encoding}, int64(max))
		if !bytes.Equal(data, given) {
			t.Error("the tile that was given has changed")
		}
		if err != nil {
			switch kind := fault.KindOf(err); kind {
			case fault.RatioCap, fault.IntegrityFail, fault.Malformed:
			default:
				t.Errorf("%s: an error of kind %s: %v", encoding, kind, err)
			}
			return
		}
		if got.Encoding != "" || encoding != "" && len(got.Data) > int(max) {
			t.Errorf("%s: %d bytes, at most %d are allowed", encoding, len(got.Data), max)
		}
		if encoding == "gzip" { // the standard library agrees
			r, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("ours inflates, the standard library does not: %v", err)
			}
			want, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(want, got.Data) {
				t.Errorf("ours and the standard library disagree: %v", err)
			}
		}
	})
}

// hostileMetadata has every key with a wrong type or size somewhere.
const hostileMetadata = `{
	"name": "Basel <script>alert(1)</script>", "description": 7, "attribution": "© <a href='https://osm.org'>OSM</a>",
	"version": "1.2.3-bad", "legend": ["no"], "tiles": ["https://evil.example/"], "scheme": "tms", "tilejson": "9.9.9",
	"vector_layers": [
		{"id": "roads", "description": "All roads", "minzoom": 1, "maxzoom": 2, "fields": {"z": "Number", "a": "String", "bad": 3}, "extra": true},
		{"id": 7, "fields": {}}, "not a layer", {"fields": {}}, {"id": ""},
		{"id": "water", "minzoom": 0.5, "maxzoom": 77, "fields": [], "description": {}},
		{"id": "deep", "minzoom": -1, "maxzoom": null}
	]}`

func TestTileJSON(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("basel.pmtiles"), packtest.PMTiles(packtest.PMSpec{MinZoom: 1, MaxZoom: 2, Metadata: hostileMetadata, Damage: packtest.PMDamage{
		Header: func(h *packtest.PMHeader) {
			h.MinLonE7, h.MinLatE7, h.MaxLonE7, h.MaxLatE7 = 75_000_000, 475_000_000, 76_500_000, 476_000_000
			h.CenterLonE7, h.CenterLatE7, h.CenterZoom = 76_000_000, 475_500_000, 2
		},
	}}))
	testkit.Must(t, packtest.MBTiles(s.path("bern.mbtiles"), packtest.MBSpec{MaxZoom: 1, Metadata: map[string]string{
		"format": "pbf", "name": "Bern", "version": "2.0.1", "bounds": "7,46,8,47", "center": "7.5,46.5,1", "attribution": "nobody",
		"json": `{"vector_layers":[{"id":"roads","fields":{"name":"String"}}]}`,
	}}))

	testkit.Must(t, packtest.MBTiles(s.path("photo.mbtiles"), packtest.MBSpec{Metadata: map[string]string{
		"format": "png", "name": strings.Repeat("x", 5000), "bounds": "", "center": "",
	}}))

	s.mount()
	for name, want := range map[string]string{
		"basel": `{"tilejson":"3.0.0","tiles":["https://h/basel/{z}/{x}/{y}.mvt"],"name":"Basel \u003cscript\u003ealert(1)\u003c/script\u003e",` +
			`"attribution":"© \u003ca href='https://osm.org'\u003eOSM\u003c/a\u003e","scheme":"xyz","minzoom":1,"maxzoom":2,` +
			`"bounds":[7.5,47.5,7.65,47.6],"center":[7.6,47.55,2],"vector_layers":[` +
			`{"id":"roads","description":"All roads","minzoom":1,"maxzoom":2,"fields":{"a":"String","z":"Number"}},{"id":"water","fields":{}},{"id":"deep","fields":{}}]}`,
		"bern": `{"tilejson":"3.0.0","tiles":["https://h/bern/{z}/{x}/{y}.mvt"],"name":"Bern","version":"2.0.1","attribution":"nobody","scheme":"xyz",` +
			`"minzoom":0,"maxzoom":1,"bounds":[7,46,8,47],"center":[7.5,46.5,1],"vector_layers":[{"id":"roads","fields":{"name":"String"}}]}`,
		"photo": `{"tilejson":"3.0.0","tiles":["https://h/photo/{z}/{x}/{y}.png"],"name":"photo","scheme":"xyz","minzoom":0,"maxzoom":0,` +
			`"bounds":[-180,-85.05112877980659,180,85.05112877980659],"center":[0,0,0]}`,
	} {
		p, err := s.Open(name)
		testkit.Must(t, err)
		for range 3 {
			got, err := p.TileJSON("https://h/" + name + "/{z}/{x}/{y}." + p.Tiles().Format)
			if err != nil || string(got) != want {
				t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, want)
				break
			}
		}
		p.Close()
	}
}

// The metadata of a pack are kept as long as it is mounted, so they are
// limited; what exceeds the limits is left out.
func TestMetadataAreBounded(t *testing.T) {
	text := func(letter string, n int) string { return `"` + strings.Repeat(letter, n) + `"` }
	layer := func(id, description, fields string) string {
		return `{"id":` + id + `,"description":` + description + `,"fields":{` + fields + `}}`
	}
	var many []string
	for i := range 2 * maxFields {
		many = append(many, fmt.Sprintf(`"f%d":"x"`, i))
	}
	for name, c := range map[string]struct {
		layers       []string
		want, fields int
	}{
		"fits":              {[]string{layer(text("i", 4096), text("d", 4096), text("f", 4096)+":"+text("v", 4096))}, 1, 1},
		"a long id":         {[]string{layer(text("i", 4097), `""`, ``)}, 0, 0},
		"a long field":      {[]string{layer(`"i"`, text("d", 4097), text("f", 4097)+`:"x","a":`+text("v", 4097)+`,"b":"x"`)}, 1, 1},
		"too many fields":   {[]string{layer(`"i"`, `""`, strings.Join(many, ","))}, 1, 0},
		"too many layers":   {slices.Repeat([]string{layer(`"i"`, `""`, ``)}, 2*maxLayers), maxLayers, 0},
		"too much together": {slices.Repeat([]string{layer(text("i", 4000), text("d", 4000), ``)}, 400), maxLayerBytes / 8064, 0},
	} {
		a := packInfo{vector: true, maxZoom: 5}
		got := a.layersOf([]byte("[" + strings.Join(c.layers, ",") + "]"))
		if len(got) != c.want {
			t.Errorf("%s: %d layers, not %d", name, len(got), c.want)
		}
		if len(got) == 1 && (len(got[0].Fields) != c.fields || len(got[0].Description) > maxText) {
			t.Errorf("%s: %d fields, a description of %d", name, len(got[0].Fields), len(got[0].Description))
		}
	}
}

var nan, inf = math.NaN(), math.Inf(1)

func TestBoundsThatAreNotOnEarth(t *testing.T) {
	for name, c := range map[string]struct {
		bounds         [4]float64
		center         [3]float64
		bounded, aimed bool
	}{
		"the world":          {[4]float64{-180, -90, 180, 90}, [3]float64{0, 0, 3}, true, true},
		"a point":            {[4]float64{7, 47, 7, 47}, [3]float64{7, 47, 3}, true, true},
		"nothing":            {},
		"across the date":    {bounds: [4]float64{170, -10, -170, 10}},
		"upside down":        {bounds: [4]float64{0, 10, 10, 0}},
		"too far":            {bounds: [4]float64{-181, -10, 0, 10}},
		"centre outside":     {[4]float64{0, 0, 1, 1}, [3]float64{2, 0, 3}, true, false},
		"centre too deep":    {[4]float64{0, 0, 1, 1}, [3]float64{0, 0, 6}, true, false},
		"centre too high":    {[4]float64{0, 0, 1, 1}, [3]float64{0, 0, 1}, true, false},
		"centre in between":  {[4]float64{0, 0, 1, 1}, [3]float64{0, 0, 2.5}, true, false},
		"centre, no bounds":  {center: [3]float64{1, 1, 3}},
		"centre in mid-air":  {[4]float64{0, 0, 1, 1}, [3]float64{nan, nan, nan}, true, false},
		"bounds in mid-air":  {bounds: [4]float64{nan, nan, nan, nan}},
		"bounds of infinity": {bounds: [4]float64{0, 0, inf, 1}},
	} {
		a := packInfo{minZoom: 2, maxZoom: 5}
		a.setArea(c.bounds, c.center)
		if (a.bounds != nil) != c.bounded || (a.center != nil) != c.aimed {
			t.Errorf("%s: bounds %v, centre %v", name, a.bounds, a.center)
		}
		if _, err := a.tileJSON("x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := packInfo{minZoom: 31, maxZoom: 31}
	a.setArea([4]float64{}, [3]float64{})
	if a.minZoom != 30 || a.maxZoom != 30 {
		t.Errorf("zooms %d to %d", a.minZoom, a.maxZoom)
	}
}
