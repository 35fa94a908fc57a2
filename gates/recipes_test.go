//go:build gates

package gates

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"micronode/internal/edge/pack/packtest"
)

// Somebody with a map and a folder types what the README says on a machine of
// its own: the ports are those of the README. A browser is curl that asks for
// pages and follows.
func TestTheReadmesRecipes(t *testing.T) {
	if !hasNetworks(t) {
		return
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	machine, _ := newNetnsPair(t)
	s := &shell{machine, t.TempDir()}
	tile := strings.Repeat("a tile of the city ", 50)
	if err := packtest.WritePMTiles(filepath.Join(s.folder, "city.pmtiles"), packtest.PMSpec{Tiles: []packtest.PMTile{{Data: []byte(tile)}}, Type: packtest.PMVector, Metadata: `{"name":"City"}`}); err != nil {
		t.Fatal(err)
	}
	writeSite := func(text string) {
		if err := os.MkdirAll(filepath.Join(s.folder, "site"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.folder, "site", "index.html"), []byte("<!doctype html><title>Docs</title><p>"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	typed := func(line string) string {
		line = strings.Replace(line, "open http", "curl --location --header 'Accept: text/html' http", 1)
		out := s.typed(strings.Replace(line, "curl ", "curl --fail --silent --show-error ", 1))
		t.Logf("$ %s\n%s", line, out)
		return out
	}

	city := readmeLines(t, "Serve a map")
	stop := s.run(city[0][1])
	var document struct{ Tiles []string }
	if out := typed(city[1][1]); json.Unmarshal([]byte(out), &document) != nil || len(document.Tiles) != 1 || !strings.HasPrefix(document.Tiles[0], "http://127.0.0.1:8080/edge/tiles/city/") {
		t.Errorf("TileJSON: %s", out)
	}
	typed(city[2][1])
	if got, err := os.ReadFile(filepath.Join(s.folder, "tile")); err != nil || string(got) != tile {
		t.Errorf("the tile has %d bytes, %v", len(got), err)
	}

	site := readmeLines(t, "Publish a site")
	for _, version := range []string{"the first version", "the second version"} {
		writeSite(version)
		typed(site[0][1])
		if out := typed(site[1][1]); !strings.Contains(out, version) {
			t.Errorf("the site does not show %s: %s", version, out)
		}
	}
	stop()
	report(t, "the README's recipes for a map and a site", "work as they are typed", "they do")
}
