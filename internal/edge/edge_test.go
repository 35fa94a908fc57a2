package edge

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/internal/config"
	"micronode/internal/edge/fill"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an edge behind a real server, with its workers running.
type fixture struct {
	t         *testing.T
	edge      *Edge
	url       string
	readiness *observe.Readiness
	metrics   *observe.Metrics
	audited   chan fill.Event
}

// options change a fixture before it is made.
type options struct {
	spec   Spec
	limits ingress.Limits
	times  ingress.HTTP
	idle   bool // no workers run
	sites  func(string) (string, bool)
	warm   bool // the listener runs the warm lane

	authorise ingress.Authorise
}

func newFixture(t *testing.T, change func(*options)) *fixture {
	t.Helper()
	inv := flow.NewInventory()
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}, DrainTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, metrics: observe.NewMetrics(observe.ReadBuild("test")), audited: make(chan fill.Event, 4096)}
	f.readiness = observe.NewReadiness(inv, supervisor)
	o := options{spec: Spec{Config: DefaultConfig(), WorkRate: 1000, Amnesia: true, Metrics: f.metrics, Readiness: f.readiness}, limits: ingress.DefaultLimits(), times: ingress.DefaultHTTP()}
	o.limits.Rate, o.limits.Burst = 1_000_000, 1_000_000
	o.authorise = func(context.Context, ingress.AuthRequest) error { return nil }
	change(&o)
	if err := o.spec.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	if o.spec.Store == nil {
		o.spec.Store = store.NewRAM(o.spec.Config.RAMSpec())
	}
	if f.edge, err = New(t.Context(), inv, o.spec); err != nil {
		t.Fatal(err)
	}
	stages := Stages{State: "state", Workers: "workers"}
	if !o.idle {
		if err := f.edge.Add(supervisor, stages, func(event fill.Event) { f.audited <- event }); err != nil {
			t.Fatal(err)
		}
	}
	f.listen(inv, supervisor, o)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := supervisor.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if err := f.edge.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) listen(inv *flow.Inventory, supervisor *supervise.Supervisor, o options) {
	f.t.Helper()
	table, err := ingress.NewTable(f.edge.Routes()...)
	if err != nil {
		f.t.Fatal(err)
	}
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: o.times, Limits: o.limits,
		Authorise: o.authorise,
		Inventory: inv, Metrics: f.metrics, Logger: slog.New(slog.NewTextHandler(f.t.Output(), nil)), Warm: f.edge.WarmRoutes(), Sites: o.sites,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	listener, err := server.Listen(f.t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0", Warm: o.warm})
	if err != nil {
		f.t.Fatal(err)
	}
	f.url = "http://" + listener.Addr().String()
	if err := supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}); err != nil {
		f.t.Fatal(err)
	}
}

// answer is what a test checks.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code is the kind that a problem document names.
func (a answer) code() string {
	var document struct{ Code, Next string }
	_ = json.Unmarshal(a.body, &document)
	return document.Code
}

// ask sends a request with headers in pairs.
func (f *fixture) ask(method, path string, headers ...string) answer {
	f.t.Helper()
	return f.send(method, path, "", headers...)
}

func (f *fixture) send(method, path, body string, headers ...string) answer {
	f.t.Helper()
	got, err := f.try(method, path, body, headers...)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

// try is send for an answer that may be cut off: then there is an error too.
func (f *fixture) try(method, path, body string, headers ...string) (answer, error) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	got, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, text}, err
}

func (f *fixture) get(path string, headers ...string) answer {
	f.t.Helper()
	return f.ask(http.MethodGet, path, headers...)
}

// rejects is how often the edge has refused for a reason.
func (f *fixture) rejects(reason string) float64 {
	return testutil.ToFloat64(f.edge.metrics.rejects[reason])
}

// backdate makes a file look as if it had not changed for a while.
func backdate(t *testing.T, path string) {
	t.Helper()
	then := time.Now().Add(-time.Minute)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func gzipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// plainTile is the content of a test's tile, before it is compressed.
func plainTile(z uint8, x, y uint32) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "tile %d/%d/%d ", z, x, y), 50)
}

// writeCityPack writes a pack with some compressed vector tiles up to zoom 2.
func writeCityPack(t *testing.T, folder string) string {
	t.Helper()
	var tiles []packtest.PMTile
	for z := range uint8(3) {
		for x := range uint32(1) << z {
			for y := range uint32(1) << z {
				if x != y || z == 0 {
					tiles = append(tiles, packtest.PMTile{Z: z, X: x, Y: y, Data: gzipped(plainTile(z, x, y))})
				}
			}
		}
	}
	path := filepath.Join(folder, "city.pmtiles")
	err := packtest.WritePMTiles(path, packtest.PMSpec{Tiles: tiles, MaxZoom: 2, TileCompression: packtest.PMGzip, Type: packtest.PMVector,
		Metadata: `{"name":"City","vector_layers":[{"id":"roads","fields":{}}]}`})
	if err != nil {
		t.Fatal(err)
	}
	backdate(t, path)
	return path
}

func withPack(t *testing.T) func(*options) {
	return func(o *options) { o.spec.Config.Packs = []string{writeCityPack(t, t.TempDir())} }
}

func TestATileIsSentAsTheClientTakesIt(t *testing.T) {
	f := newFixture(t, withPack(t))
	want := plainTile(2, 1, 3)
	packed := f.get("/edge/tiles/city/2/1/3.mvt", "Accept-Encoding", "br, gzip;q=0.5")
	if packed.status != http.StatusOK || packed.header.Get("Content-Encoding") != "gzip" || !bytes.Equal(packed.body, gzipped(want)) {
		t.Errorf("for a client with gzip: %d %v", packed.status, packed.header)
	}
	for _, refuses := range []string{"", "identity", "gzip;q=0", "br", "*;q=0"} {
		plain := f.get("/edge/tiles/city/2/1/3", "Accept-Encoding", refuses)
		if plain.status != http.StatusOK || plain.header.Get("Content-Encoding") != "" || !bytes.Equal(plain.body, want) {
			t.Errorf("for a client with %q: %d %v", refuses, plain.status, plain.header)
		}
		if plain.header.Get("Etag") == packed.header.Get("Etag") {
			t.Error("two different bodies have one strong tag")
		}
	}
	for name, value := range map[string]string{
		"Content-Type": "application/vnd.mapbox-vector-tile", "Vary": "Accept-Encoding", "Cache-Control": "public, max-age=300",
		"Etag": `"` + b3.Of(packed.body).String() + `"`, "X-Content-Type-Options": "nosniff",
	} {
		if got := packed.header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if again := f.get("/edge/tiles/city/2/1/3.mvt", "Accept-Encoding", "gzip", "If-None-Match", packed.header.Get("Etag")); again.status != http.StatusNotModified {
		t.Errorf("conditional: %d", again.status)
	}
}

func TestWhichTilesThereAre(t *testing.T) {
	f := newFixture(t, withPack(t))
	for path, want := range map[string]int{
		"/edge/tiles/city/0/0/0":           http.StatusOK,
		"/edge/tiles/city/0/0/0.pbf":       http.StatusOK, // the other name of vector tiles
		"/edge/tiles/city/1/1/1":           http.StatusNotFound,
		"/edge/tiles/city/9/1/1":           http.StatusNotFound,
		"/edge/tiles/city/0/0/0.png":       http.StatusNotFound,
		"/edge/tiles/town/0/0/0":           http.StatusNotFound,
		"/edge/tiles/city/0/0/1":           http.StatusBadRequest,
		"/edge/tiles/city/0/1/0":           http.StatusBadRequest,
		"/edge/tiles/city/32/0/0":          http.StatusBadRequest,
		"/edge/tiles/city/01/0/0":          http.StatusBadRequest,
		"/edge/tiles/city/-1/0/0":          http.StatusBadRequest,
		"/edge/tiles/city/1/0/4294967296":  http.StatusBadRequest,
		"/edge/tiles/city/1/0/99999999999": http.StatusBadRequest,
		"/edge/tiles/city/1/0/0.exe":       http.StatusBadRequest,
		"/edge/tiles/city/a/b/c":           http.StatusBadRequest,
		"/edge/tiles/city":                 http.StatusNotFound,
		"/edge/tiles/town.json":            http.StatusNotFound,
	} {
		if got := f.get(path); got.status != want {
			t.Errorf("%s: %d, want %d: %s", path, got.status, want, got.body)
		}
	}
}

func TestTileJSON(t *testing.T) {
	f := newFixture(t, withPack(t))
	got := f.get("/edge/tiles/city.json")
	var document struct {
		TileJSON         string
		Tiles            []string
		Name             string
		MinZoom, MaxZoom int
		VectorLayers     []struct{ ID string } `json:"vector_layers"`
	}
	if err := json.Unmarshal(got.body, &document); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	if document.TileJSON != "3.0.0" || document.Name != "City" || document.MaxZoom != 2 || len(document.VectorLayers) != 1 {
		t.Errorf("%s", got.body)
	}
	if len(document.Tiles) != 1 || document.Tiles[0] != f.url+"/edge/tiles/city/{z}/{x}/{y}.mvt" {
		t.Errorf("tiles are at %v", document.Tiles)
	}
	path := strings.NewReplacer("{z}", "1", "{x}", "0", "{y}", "1").Replace(strings.TrimPrefix(document.Tiles[0], f.url))
	if tile := f.get(path); tile.status != http.StatusOK {
		t.Errorf("the tile that the document leads to: %d", tile.status)
	}
	if again := f.get("/edge/tiles/city.json", "If-None-Match", got.header.Get("Etag")); again.status != http.StatusNotModified {
		t.Errorf("conditional: %d", again.status)
	}
}

// Clients that read PMTiles themselves ask for ranges of the whole file.
func TestTheWholePackInRanges(t *testing.T) {
	folder := t.TempDir()
	path := writeCityPack(t, folder)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *options) { o.spec.Config.Packs = []string{path} })
	head := f.get("/edge/assets/city.pmtiles", "Range", "bytes=0-126")
	if head.status != http.StatusPartialContent || !bytes.Equal(head.body, whole[:127]) || head.header.Get("Content-Range") != fmt.Sprintf("bytes 0-126/%d", len(whole)) {
		t.Errorf("%d %v", head.status, head.header)
	}
	tag := head.header.Get("Etag")
	if rest := f.get("/edge/assets/city.pmtiles", "Range", "bytes=127-", "If-Range", tag); rest.status != http.StatusPartialContent || !bytes.Equal(rest.body, whole[127:]) {
		t.Errorf("%d %v", rest.status, rest.header)
	}
	if all := f.get("/edge/assets/city.pmtiles", "Range", "bytes=127-", "If-Range", `"another"`); all.status != http.StatusOK || !bytes.Equal(all.body, whole) {
		t.Errorf("another version: %d, %d bytes", all.status, len(all.body))
	}
	if several := f.get("/edge/assets/city.pmtiles", "Range", "bytes=0-0,2-3"); several.status != http.StatusOK || !bytes.Equal(several.body, whole) {
		t.Errorf("several ranges: %d, %d bytes", several.status, len(several.body))
	}
	for _, asked := range []string{fmt.Sprintf("bytes=%d-", len(whole)), fmt.Sprintf("bytes=%d-,%d-", len(whole), len(whole)+1)} {
		if outside := f.get("/edge/assets/city.pmtiles", "Range", asked); outside.status != http.StatusRequestedRangeNotSatisfiable || outside.code() != "InvalidRange" {
			t.Errorf("%s: %d %s", asked, outside.status, outside.body)
		}
	}
	if f.rejects("invalid_range") != 2 {
		t.Errorf("invalid_range is %v", f.rejects("invalid_range"))
	}
	if got := f.ask(http.MethodHead, "/edge/assets/city.pmtiles"); got.status != http.StatusOK || got.header.Get("Content-Length") != strconv.Itoa(len(whole)) {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
	if got := f.get("/edge/assets/city.pmtiles/inside"); got.status != http.StatusForbidden {
		t.Errorf("below a pack: %d", got.status)
	}
}

// A pack may have any name; a client escapes what a URL cannot contain, and
// sometimes more.
func TestPacksWhoseNamesAreEscaped(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "Köln 50%+.pmtiles")
	if err := os.Rename(writeCityPack(t, folder), path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *options) { o.spec.Config.Packs = []string{path} })
	for _, name := range []string{"K%C3%B6ln%2050%25+", "K%c3%b6ln%2050%25%2B", "%4B%C3%B6ln%2050%25+"} {
		part := f.get("/edge/assets/"+name+".pmtiles", "Range", "bytes=0-126")
		if part.status != http.StatusPartialContent || !bytes.Equal(part.body, whole[:127]) {
			t.Errorf("%s: %d %s", name, part.status, part.code())
		}
		if tile := f.get("/edge/tiles/" + name + "/1/0/1.mvt"); tile.status != http.StatusOK {
			t.Errorf("a tile of %s: %d", name, tile.status)
		}
		var document struct{ Tiles []string }
		if got := f.get("/edge/tiles/" + name + ".json"); json.Unmarshal(got.body, &document) != nil || len(document.Tiles) != 1 {
			t.Errorf("the document of %s: %d %s", name, got.status, got.body)
		} else if tile := f.get(strings.NewReplacer("{z}", "1", "{x}", "0", "{y}", "1").Replace(strings.TrimPrefix(document.Tiles[0], f.url))); tile.status != http.StatusOK {
			t.Errorf("the tile that it leads to, %s: %d", document.Tiles[0], tile.status)
		}
	}
}

func TestSeveralRangesWhereTheyAreAllowed(t *testing.T) {
	f := newFixture(t, func(o *options) {
		withPack(t)(o)
		o.spec.Config.MultiRange = true
	})
	got := f.get("/edge/assets/city.pmtiles", "Range", "bytes=0-0,2-3")
	if got.status != http.StatusPartialContent || !strings.HasPrefix(got.header.Get("Content-Type"), "multipart/byteranges") {
		t.Errorf("%d %v", got.status, got.header)
	}
}

func TestPacksAreListed(t *testing.T) {
	folder := t.TempDir()
	writeCityPack(t, folder)
	bad := filepath.Join(folder, "bad.mbtiles")
	if err := os.WriteFile(bad, []byte("this is not SQLite, however long it is made to be"), 0o600); err != nil {
		t.Fatal(err)
	}
	backdate(t, bad)
	f := newFixture(t, func(o *options) { o.spec.Config.Packs = []string{folder} })
	var list Packs
	if err := json.Unmarshal(f.get("/edge/packs").body, &list); err != nil || len(list.Packs) != 2 {
		t.Fatalf("%v %+v", err, list)
	}
	wrong, right := list.Packs[0], list.Packs[1]
	if wrong.Name != "bad" || wrong.State != "bad" || wrong.Reason == "" || wrong.Next == "" || wrong.TileJSON != "" {
		t.Errorf("%+v", wrong)
	}
	if right.Name != "city" || right.State != "serving" || right.TileJSON != "/edge/tiles/city.json" || right.MaxZoom != 2 || right.Format != "mvt" {
		t.Errorf("%+v", right)
	}
	verdict := f.readiness.Evaluate()
	if verdict.Ready || !strings.Contains(fmt.Sprint(verdict.Reasons), "bad.mbtiles") {
		t.Errorf("%+v", verdict)
	}
	if got := f.get("/edge/tiles/bad/0/0/0"); got.status != http.StatusServiceUnavailable || got.code() != "NotReady" {
		t.Errorf("a tile of the bad one: %d %s", got.status, got.body)
	}
	if maps := f.edge.TileJSONPaths(); len(maps) != 1 || maps[0] != "/edge/tiles/city.json" {
		t.Errorf("%v", maps)
	}
}

// assets makes a folder with a few files, and something outside of it.
func assets(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "files")
	for name, text := range map[string]string{
		"files/page.html": "<p>hello</p>", "files/site/index.html": "<p>index</p>", "files/data.geojson": "{}", "secret": "secret", "files/odd name.txt": "odd",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestFilesOfTheFolder(t *testing.T) {
	folder := assets(t)
	f := newFixture(t, func(o *options) { o.spec.Config.Assets = folder })
	for path, want := range map[string]struct {
		status int
		kind   string
		body   string
	}{
		"/edge/assets/page.html":      {http.StatusOK, "text/html; charset=utf-8", "<p>hello</p>"},
		"/edge/assets/site/":          {http.StatusOK, "text/html; charset=utf-8", "<p>index</p>"},
		"/edge/assets/data.geojson":   {http.StatusOK, "application/geo+json", "{}"},
		"/edge/assets/odd%20name.txt": {http.StatusOK, "text/plain; charset=utf-8", "odd"},
		"/edge/assets/site":           {http.StatusNotFound, "", ""},
		"/edge/assets/site/none":      {http.StatusNotFound, "", ""},
		"/edge/assets/link":           {http.StatusForbidden, "", ""},
		"/edge/assets/secret":         {http.StatusForbidden, "", ""}, // no such name, and no such host
		"/edge/assets/":               {http.StatusBadRequest, "", ""},
	} {
		got := f.get(path)
		if got.status != want.status || want.body != "" && (string(got.body) != want.body || got.header.Get("Content-Type") != want.kind) {
			t.Errorf("%s: %d %s %q", path, got.status, got.header.Get("Content-Type"), got.body)
		}
		if string(got.body) == "secret" {
			t.Errorf("%s gave the secret away", path)
		}
	}
	got := f.get("/edge/assets/page.html")
	if got.header.Get("Content-Security-Policy") == "" {
		t.Error("somebody else's page may run scripts in our origin")
	}
	if again := f.get("/edge/assets/page.html", "If-None-Match", got.header.Get("Etag")); again.status != http.StatusNotModified {
		t.Errorf("conditional: %d", again.status)
	}
	if part := f.get("/edge/assets/page.html", "Range", "bytes=3-7"); part.status != http.StatusPartialContent || string(part.body) != "hello" {
		t.Errorf("range: %d %q", part.status, part.body)
	}
	if err := os.WriteFile(filepath.Join(folder, "page.html"), []byte("<p>other</p>"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed := f.get("/edge/assets/page.html", "If-None-Match", got.header.Get("Etag")); changed.status != http.StatusOK || string(changed.body) != "<p>other</p>" {
		t.Errorf("after a change: %d %q", changed.status, changed.body)
	}
}

// origin starts an HTTPS origin that the edge may fetch from.
func origin(t *testing.T, handler http.HandlerFunc) (host string, change func(*options)) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	host = strings.TrimPrefix(server.URL, "https://")
	return host, func(o *options) {
		o.spec.Config.Allow = []string{host}
		o.spec.Config.Fill.CAFile, o.spec.Config.Fill.AllowPrivate = ca, true
		o.spec.Config.Fill.BaseMS, o.spec.Config.Fill.MaxMS = 1, 1
	}
}

func TestAnOriginIsFetchedOnce(t *testing.T) {
	asked := 0
	host, change := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "text/css")
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprint(w, "body { color: black }")
	})
	f := newFixture(t, change)
	path := "/edge/assets/" + host + "/style.css"
	first, second := f.get(path), f.get(path)
	for name, got := range map[string]answer{"a miss": first, "a hit": second} {
		if got.status != http.StatusOK || string(got.body) != "body { color: black }" || got.header.Get("Content-Type") != "text/css" {
			t.Errorf("%s: %d %v %q", name, got.status, got.header, got.body)
		}
		if got.header.Get("Etag") != `"`+b3.Of(got.body).String()+`"` || got.header.Get("Cache-Control") != "max-age=600" {
			t.Errorf("%s: %v", name, got.header)
		}
	}
	if asked != 1 || second.header.Get("Age") == "" {
		t.Errorf("the origin was asked %d times; Age %q", asked, second.header.Get("Age"))
	}
	if part := f.get(path, "Range", "bytes=0-3"); part.status != http.StatusPartialContent || string(part.body) != "body" {
		t.Errorf("range: %d %q", part.status, part.body)
	}
	if not := f.get(path, "If-None-Match", first.header.Get("Etag")); not.status != http.StatusNotModified {
		t.Errorf("conditional: %d", not.status)
	}
	if head := f.ask(http.MethodHead, path); head.status != http.StatusOK || head.header.Get("Content-Length") != "21" {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
	if out := f.get(path, "Range", "bytes=100-"); out.status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("outside: %d", out.status)
	}
	hits, misses := testutil.ToFloat64(f.edge.metrics.hits), testutil.ToFloat64(f.edge.metrics.misses)
	if hits != 5 || misses != 1 {
		t.Errorf("%v hits and %v misses", hits, misses)
	}
	if event := <-f.audited; event.Type != fill.EventFilled || event.Status != http.StatusOK || event.Bytes != 21 {
		t.Errorf("%+v", event)
	}
}

func TestOtherAnswersOfAnOriginPassThrough(t *testing.T) {
	host, change := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "not=ours")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "not here")
	})
	f := newFixture(t, change)
	got := f.get("/edge/assets/" + host + "/x")
	if got.status != http.StatusNotFound || string(got.body) != "not here" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got.header.Get("Set-Cookie") != "" || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the origin speaks for us: %v", got.header)
	}
	if got := f.ask(http.MethodHead, "/edge/assets/"+host+"/x"); got.status != http.StatusNotFound {
		t.Errorf("HEAD: %d", got.status)
	}
}

// Everything that some programs read as a step up, a separator or an end.
func TestPathTricks(t *testing.T) {
	folder := assets(t)
	f := newFixture(t, func(o *options) { o.spec.Config.Assets = folder })
	for _, path := range []string{
		"/edge/assets/%2e%2e/secret", "/edge/assets/site/%2E%2e/page.html", "/edge/assets/site/%2e/index.html",
		"/edge/assets/../secret", "/edge/assets/site/../page.html", "/edge/assets//page.html", "/edge/assets/site%2findex.html", "/edge/assets/site%5cindex.html", "/edge/assets/page.html%00.txt", "/edge/assets/..%2fsecret",
	} {
		got := f.get(path)
		if got.status != http.StatusBadRequest || got.code() != "Malformed" || bytes.Contains(got.body, []byte("secret\"")) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// Every reason for which the edge refuses occurs, is answered with its status,
// and is counted.
func TestEveryReasonIsCounted(t *testing.T) {
	release := make(chan struct{})
	bomb := gzipped(make([]byte, 4<<20))
	host, change := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		switch r.URL.Path {
		case "/slow":
			<-release
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		case "/large":
			_, _ = w.Write(make([]byte, 300_000))
		case "/huge":
			w.Header().Set("Content-Length", "700000")
			_, _ = w.Write(make([]byte, 700_000))
		case "/tag":
			w.WriteHeader(http.StatusNotModified) // although the request had no condition
		case "/fail":
			w.WriteHeader(http.StatusBadGateway)
		case "/broken":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		default:
			fmt.Fprint(w, "fine")
		}
	})
	f := newFixture(t, func(o *options) {
		change(o)
		o.spec.Config.Fill.MaxBytes = 512 * config.KiB
		o.spec.Config.Cache.MaxBytes = config.Auto[config.Size]{Value: 200 * config.KiB}
	})
	defer close(release)
	for _, c := range []struct {
		path, reason string
		status       int // or the answer is cut off, if part of the body was relayed before the fault was found
		headers      []string
	}{
		{"/edge/assets/elsewhere.example.org/x", "not_allowed", http.StatusForbidden, nil},
		{"/edge/assets/" + host + "/slow", "timeout", http.StatusGatewayTimeout, []string{"Request-Timeout", "1"}},
		{"/edge/assets/" + host + "/bomb", "decompress_cap", http.StatusRequestEntityTooLarge, nil},
		{"/edge/assets/" + host + "/huge", "body_cap", http.StatusBadGateway, nil},
		{"/edge/assets/" + host + "/large", "amnesia", http.StatusInsufficientStorage, nil},
		{"/edge/assets/" + host + "/tag", "etag_invalid", http.StatusBadGateway, nil},
		{"/edge/assets/" + host + "/broken", "upstream", http.StatusBadGateway, nil},
		{"/edge/assets/" + host + "/fine", "invalid_range", http.StatusRequestedRangeNotSatisfiable, []string{"Range", "bytes=9-"}},
	} {
		before := f.rejects(c.reason)
		got, err := f.try(http.MethodGet, c.path, "", c.headers...)
		if cut := got.status == http.StatusOK && errors.Is(err, io.ErrUnexpectedEOF); !cut && got.status != c.status || f.rejects(c.reason) != before+1 {
			t.Errorf("%s: %d %s %v; %s went from %v to %v", c.path, got.status, got.body, err, c.reason, before, f.rejects(c.reason))
		}
	}
}

// Too many misses in a second.
func TestTheRateOfMisses(t *testing.T) {
	host, change := origin(t, func(http.ResponseWriter, *http.Request) {})
	f := newFixture(t, func(o *options) {
		change(o)
		o.idle = true
		o.spec.WorkRate = 0 // one, and none after that
	})
	if err := f.occupy(host, 1); err != nil {
		t.Fatal(err)
	}
	got := f.get("/edge/assets/" + host + "/another")
	if got.status != http.StatusTooManyRequests || got.code() != "RateLimited" || got.header.Get("Retry-After") == "" || f.rejects("rate_limit") != 1 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Too many misses at once.
func TestAFullQueue(t *testing.T) {
	host, change := origin(t, func(http.ResponseWriter, *http.Request) {})
	f := newFixture(t, func(o *options) {
		change(o)
		o.idle = true // no worker takes from the queue
		o.spec.WorkRate = 1_000_000
	})
	for i := range 512 {
		if err := f.occupy(host, i); err != nil {
			t.Fatal(err)
		}
	}
	got := f.get("/edge/assets/" + host + "/one/more")
	if got.status != http.StatusTooManyRequests || got.code() != "Busy" || got.header.Get("Retry-After") == "" || f.rejects("busy") != 1 {
		t.Errorf("a full queue: %d %s", got.status, got.body)
	}
}

// occupy takes a slot of the queue until the test ends, as the client that the
// requests of the test are from.
func (f *fixture) occupy(host string, n int) error {
	result := make(chan error, 1)
	before := f.waiting()
	go func() {
		_, err := f.edge.cache.Get(f.t.Context(), fill.Request{Host: host, Path: fmt.Sprintf("/%d", n), Method: http.MethodGet, Header: http.Header{}, Client: netip.MustParseAddr("127.0.0.1")})
		result <- err
	}()
	f.t.Cleanup(func() { <-result })
	for f.waiting() == before {
		select {
		case err := <-result:
			result <- err
			return err
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// waiting is how many fills have not ended.
func (f *fixture) waiting() int { return f.edge.cache.Stats().Flights }

func TestPurge(t *testing.T) {
	asked := 0
	host, change := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprint(w, asked)
	})
	f := newFixture(t, func(o *options) {
		change(o)
		o.warm = true
	})
	for _, path := range []string{"/a/1", "/a/2", "/b"} {
		f.get("/edge/assets/" + host + path)
		f.get("/edge/assets/" + host + path)
	}
	purge := func(body string) answer {
		return f.send(http.MethodPost, "/admin/edge/purge", body, "Content-Type", "application/json")
	}
	if got := purge(`{"prefix":"https://` + host + `/a/"}`); got.status != http.StatusOK || !bytes.Contains(got.body, []byte(`"purged":2`)) {
		t.Errorf("by prefix: %d %s", got.status, got.body)
	}
	if got := purge(`{"url":"https://` + host + `/b"}`); got.status != http.StatusOK || !bytes.Contains(got.body, []byte(`"purged":1`)) {
		t.Errorf("by URL: %d %s", got.status, got.body)
	}
	if got := f.get("/edge/assets/" + host + "/b"); string(got.body) != "4" {
		t.Errorf("after the purge: %q", got.body)
	}
	for _, wrong := range []string{`{}`, `{"url":"https://a/","prefix":"https://b/"}`, `{"path":"x"}`, `{"url":"ftp://x"}`} {
		if got := purge(wrong); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, got.status, got.body)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"workers":   func(c *Config) { c.Workers = config.Auto[int]{Value: 0} },
		"reconcile": func(c *Config) { c.Reconcile = 0 },
		"max_age":   func(c *Config) { c.MaxAge = -1 },
		"allow":     func(c *Config) { c.Allow = []string{"https://example.org/"} },
		"expect":    func(c *Config) { c.Expect = []string{"city.pmtiles"} },
		"assets":    func(c *Config) { c.Assets = "/there/is/no/such/folder" },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s: a setting that cannot be meant is taken", name)
		}
	}
	c := DefaultConfig()
	if err := c.Validate(); err != nil || c.workers() < 4 {
		t.Errorf("%v, %d workers", err, c.workers())
	}
}
