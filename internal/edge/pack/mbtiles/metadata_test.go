package mbtiles_test

import (
	"fmt"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
)

func TestInfo(t *testing.T) {
	path := file(t, packtest.MBSpec{MinZoom: 1, MaxZoom: 3, Metadata: map[string]string{
		"format": " PBF ", "bounds": "5.9, 45.8,10.5,47.8", "center": "8.2,46.8,7", "attribution": "© somebody", "minzoom": "1.0",
	}})
	archive := open(t, path, mbtiles.Options{})
	info := archive.Info()
	if info.Format != "pbf" || info.MinZoom != 1 || info.MaxZoom != 3 {
		t.Errorf("format %q, zooms %d to %d", info.Format, info.MinZoom, info.MaxZoom)
	}
	if info.Bounds != [4]float64{5.9, 45.8, 10.5, 47.8} || info.Center != [3]float64{8.2, 46.8, 7} {
		t.Errorf("bounds %v, center %v", info.Bounds, info.Center)
	}
	if string(info.VectorLayers) != `[{"id":"land","fields":{"kind":"String"}}]` {
		t.Errorf("vector layers %s", info.VectorLayers)
	}
	if info.Metadata["attribution"] != "© somebody" || info.Metadata["name"] != "test" {
		t.Errorf("metadata %q", info.Metadata)
	}
	info.Metadata["name"] = "changed"
	if archive.Info().Metadata["name"] != "test" {
		t.Error("a caller can change the metadata of the archive")
	}
}

func TestWhatTheMetadataLeaveOut(t *testing.T) {
	none := map[string]string{"minzoom": "", "maxzoom": "", "bounds": "", "center": "", "json": "", "format": ""}
	for name, spec := range map[string]packtest.MBSpec{
		"small":        {MinZoom: 2, MaxZoom: 4, Metadata: none},
		"no index":     {MinZoom: 2, MaxZoom: 4, Metadata: none, NoIndex: true},
		"view":         {MinZoom: 2, MaxZoom: 4, Metadata: none, Shape: packtest.MBView},
		"withoutrowid": {MinZoom: 2, MaxZoom: 4, Metadata: none, Shape: packtest.MBWithoutRowID},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Tile = func(z uint8, x, y uint32) []byte { return fmt.Appendf(nil, "\x89PNG\r\n\x1a\n%d/%d/%d", z, x, y) }
			info := open(t, file(t, spec), mbtiles.Options{}).Info()
			if info.MinZoom != 2 || info.MaxZoom != 4 || info.Format != "png" || info.VectorLayers != nil {
				t.Errorf("zooms %d to %d, format %q, layers %s", info.MinZoom, info.MaxZoom, info.Format, info.VectorLayers)
			}
			if info.Bounds[0] != -180 || info.Bounds[3] < 85 || info.Bounds[3] > 86 || info.Center != [3]float64{0, 0, 2} {
				t.Errorf("bounds %v, center %v", info.Bounds, info.Center)
			}
		})
	}
}

func TestAnEmptyArchiveThatSaysItsZooms(t *testing.T) {
	info := open(t, file(t, packtest.MBSpec{MaxZoom: 4, SQL: []string{"DELETE FROM tiles"}}), mbtiles.Options{}).Info()
	if info.MaxZoom != 4 || info.Format != "pbf" {
		t.Errorf("%+v", info)
	}
}

func TestMetadataOfOtherTypes(t *testing.T) {
	path := file(t, packtest.MBSpec{MaxZoom: 1, SQL: []string{
		"DROP TABLE metadata", "CREATE TABLE metadata (name, value, more)",
		"INSERT INTO metadata VALUES ('minzoom', 0, 1), ('maxzoom', 1.0, 2), ('format', x'6a706567', 3), ('center', '1,2', 4), ('none', NULL, 5), ('json', '{}', 6)",
	}})
	info := open(t, path, mbtiles.Options{}).Info()
	if info.MaxZoom != 1 || info.Format != "jpg" || info.Center != [3]float64{1, 2, 0} || info.VectorLayers != nil {
		t.Errorf("%+v", info)
	}
}

func TestWrongMetadataAreRefused(t *testing.T) {
	for _, c := range []struct{ name, value, detail string }{
		{"minzoom", "-1", "minzoom"}, {"minzoom", "many", "minzoom"}, {"maxzoom", "31", "maxzoom"}, {"maxzoom", "3.5", "maxzoom"},
		{"maxzoom", "NaN", "maxzoom"}, {"minzoom", "1", "above"},
		{"bounds", "1,2,3", "bounds"}, {"bounds", "a,b,c,d", "bounds"}, {"bounds", "0,10,1,-10", "bounds"}, {"bounds", "0,-91,1,1", "bounds"},
		{"bounds", "NaN,0,1,1", "bounds"}, {"bounds", "1e300,0,1,1", "bounds"},
		{"center", "1", "center"}, {"center", "x,y,z", "center"},
		{"json", "{", "json"}, {"json", "[1]", "json"}, {"json", `{"vector_layers":{"id":1}}`, "array"}, {"json", strings.Repeat("[", 20000), "json"},
		{"text", "\xff\xfe", "UTF-8"},
		{"long", strings.Repeat("x", 9<<20), "metadata have more"},
	} {
		t.Run(fmt.Sprintf("%s=%.20s", c.name, c.value), func(t *testing.T) {
			refused(t, file(t, packtest.MBSpec{Metadata: map[string]string{c.name: c.value}}), fault.Malformed, c.detail, "")
		})
	}
}

func TestTooMuchMetadataIsRefused(t *testing.T) {
	for name, fill := range map[string]string{
		"rows":  "WITH RECURSIVE c(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM c WHERE v < 2000) INSERT INTO metadata SELECT v, 'x' FROM c",
		"bytes": "WITH RECURSIVE c(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM c WHERE v < 20) INSERT INTO metadata SELECT v, zeroblob(1000000) FROM c",
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, file(t, packtest.MBSpec{SQL: []string{fill}}), fault.Malformed, "metadata have more", "UPDATE metadata")
		})
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	spec := packtest.MBSpec{Metadata: map[string]string{"format": ""}, Tile: func(uint8, uint32, uint32) []byte { return []byte("????") }}
	refused(t, file(t, spec), fault.Malformed, "format", "UPDATE metadata")
}

func TestFormatsAreTold(t *testing.T) {
	for start, want := range map[string]string{
		"\x89PNG\r\n\x1a\n": "png", "\xff\xd8\xff\xe0": "jpg", "GIF89a": "gif", "RIFF\x01\x02\x03\x04WEBPVP8 ": "webp", "\x1f\x8b\x08": "pbf", "\x1a\x05": "pbf",
	} {
		spec := packtest.MBSpec{Metadata: map[string]string{"format": ""}, Tile: func(uint8, uint32, uint32) []byte { return []byte(start) }}
		if got := open(t, file(t, spec), mbtiles.Options{Readers: 1}).Info().Format; got != want {
			t.Errorf("%q: %q, want %q", start, got, want)
		}
	}
}

func TestEncoding(t *testing.T) {
	for data, want := range map[string]string{"\x1f\x8b\x08\x00": "gzip", "\x1f\x8b": "", "\x1a\x00\x00": "", "": "", "\x8b\x1f\x08": ""} {
		if got := mbtiles.Encoding([]byte(data)); got != want {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
}
