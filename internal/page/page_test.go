package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestPage is a page with files of the test behind a server.
func newTestPage(t *testing.T) (*Page, *ingress.Server) {
	t.Helper()
	p := &Page{Links: newLinks(), assets: readAssets(fstest.MapFS{
		"index.html":     {Data: []byte("<!doctype html><title>micronode</title>" + strings.Repeat(" ", 500))},
		"app-0123.js":    {Data: []byte(strings.Repeat("export {};\n", 200))},
		"inter-01.woff2": {Data: []byte(strings.Repeat("font", 200))},
		"lib/a-1/a.mjs":  {Data: []byte("export {}")},
	})}
	table, err := ingress.NewTable(p.Routes()...)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ingress.New(ingress.Options{
		Service: service, Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
		Authorise: func(context.Context, ingress.AuthRequest) error { return fault.New("test", fault.Unauthorized, "no") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, server
}

func send(server http.Handler, method, target, body string, header ...string) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, target, nil)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, answer *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A browser at / is sent to the page; a program gets a problem document, as
// before there was a page.
func TestTheRootIsForBrowsers(t *testing.T) {
	_, server := newTestPage(t)
	for accept, browser := range map[string]bool{
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true,
		"application/json, text/html;q=0.5":                               true,
		"*/*":                                                             false,
		"":                                                                false,
		"application/json":                                                false,
		"text/html;q=0, application/json":                                 false,
		"text/*":                                                          false,
	} {
		answer := send(server, http.MethodGet, "/", "", "Accept", accept)
		if answer.Header.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: a cache would mix the answers up: %v", accept, answer.Header)
		}
		switch body := text(t, answer); {
		case browser && (answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != Root):
			t.Errorf("Accept %q: %d to %q", accept, answer.StatusCode, answer.Header.Get("Location"))
		case !browser && (answer.StatusCode != http.StatusNotFound || answer.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, "/openapi.json")):
			t.Errorf("Accept %q: %d %s", accept, answer.StatusCode, body)
		}
	}
}

// Every state of the page is the same document; a file that is not there is not
// the document under another name.
func TestEveryStateHasAPath(t *testing.T) {
	_, server := newTestPage(t)
	for _, path := range []string{"/ui/", "/ui/content", "/ui/map/city", "/ui/content/b3:" + strings.Repeat("0", 64)} {
		answer := send(server, http.MethodGet, path, "")
		if answer.StatusCode != http.StatusOK || !strings.HasPrefix(text(t, answer), "<!doctype html>") || answer.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %v", path, answer.StatusCode, answer.Header)
		}
	}
	if answer := send(server, http.MethodGet, "/ui", ""); answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != Root {
		t.Errorf("%d %v", answer.StatusCode, answer.Header)
	}
	for _, path := range []string{"/ui/app-4567.js", "/ui/lib/none.mjs"} {
		if answer := send(server, http.MethodGet, path, ""); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
}

// Every answer forbids a browser to run what is inline, to load from elsewhere,
// and to show the page in a frame.
func TestThePageKeepsOthersOut(t *testing.T) {
	_, server := newTestPage(t)
	for _, path := range []string{"/ui/", "/ui/content", "/ui/app-0123.js", "/ui/inter-01.woff2"} {
		header := send(server, http.MethodGet, path, "").Header
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "connect-src 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s: %s", path, part, policy)
			}
		}
		for _, loose := range []string{"unsafe", "blob:", "data:", "*", "http"} {
			if strings.Contains(policy, loose) {
				t.Errorf("%s: the policy has %s: %s", path, loose, policy)
			}
		}
		if header.Get("X-Frame-Options") != "DENY" || header.Get("Referrer-Policy") != "no-referrer" || header.Get("X-Content-Type-Options") != "nosniff" ||
			header.Get("Cross-Origin-Resource-Policy") != "same-origin" || header.Get("Cross-Origin-Opener-Policy") != "same-origin" || header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", path, header)
		}
	}
}

func TestFilesAreCompressedAndKept(t *testing.T) {
	_, server := newTestPage(t)
	plain := send(server, http.MethodGet, "/ui/app-0123.js", "")
	want := text(t, plain)
	if plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Cache-Control") != ingress.Immutable || plain.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("%v", plain.Header)
	}
	packed := send(server, http.MethodGet, "/ui/app-0123.js", "", "Accept-Encoding", "br, gzip;q=0.5")
	raw := text(t, packed)
	unpack, err := gzip.NewReader(strings.NewReader(raw))
	if err != nil || packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatal(err, packed.Header)
	}
	if got, err := io.ReadAll(unpack); err != nil || string(got) != want || len(raw) >= len(want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if packed.Header.Get("ETag") == plain.Header.Get("ETag") {
		t.Error("the two have one tag")
	}
	if again := send(server, http.MethodGet, "/ui/app-0123.js", "", "If-None-Match", plain.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
		t.Error(again.StatusCode)
	}
	for _, refused := range []string{"gzip;q=0", "gzip; q=0.0", "br", ""} {
		if answer := send(server, http.MethodGet, "/ui/app-0123.js", "", "Accept-Encoding", refused); answer.Header.Get("Content-Encoding") != "" {
			t.Errorf("%q: %v", refused, answer.Header)
		}
	}
	if font := send(server, http.MethodGet, "/ui/inter-01.woff2", "", "Accept-Encoding", "gzip"); font.Header.Get("Content-Encoding") != "" || font.Header.Get("Content-Type") != "font/woff2" {
		t.Errorf("%v", font.Header)
	}
}

// session exchanges a code.
func session(t *testing.T, server http.Handler, code string, header ...string) (int, client.PageSession) {
	t.Helper()
	raw, _ := json.Marshal(client.PageCode{Code: code})
	answer := send(server, http.MethodPost, "/ui/session", string(raw), append(header, "Content-Type", "application/json")...)
	var got client.PageSession
	body := text(t, answer)
	if answer.StatusCode == http.StatusOK {
		if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&got); err != nil || answer.Header.Get("Cache-Control") != "no-store" {
			t.Error(err, answer.Header)
		}
	}
	return answer.StatusCode, got
}

// A link gives its capability once, to the page only, and for a minute.
func TestALinkWorksOnce(t *testing.T) {
	p, server := newTestPage(t)
	code, _, err := p.Links.Add(client.PageSession{Token: "mn1_x"})
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := session(t, server, code, "Sec-Fetch-Site", "cross-site"); status != fault.RejectPolicy.Status() {
		t.Errorf("a foreign page: %d", status)
	}
	if status, _ := session(t, server, code+"x"); status != http.StatusForbidden {
		t.Errorf("another code: %d", status)
	}
	if status, got := session(t, server, code, "Sec-Fetch-Site", "same-origin"); status != http.StatusOK || got.Token != "mn1_x" {
		t.Errorf("%d %+v", status, got)
	}
	if status, got := session(t, server, code); status != http.StatusForbidden || got.Token != "" {
		t.Errorf("the second time: %d %+v", status, got)
	}
}

func TestALinkIsVoidAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinks()
		code, _, err := l.Add(client.PageSession{Token: "late"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(LinkLife)
		if _, err := l.redeem(code); fault.KindOf(err) != fault.Forbidden || !strings.Contains(fault.NextOf(err), "micronode ui") {
			t.Error(err)
		}
		for range maxLinks {
			if _, _, err := l.Add(client.PageSession{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := l.Add(client.PageSession{}); fault.KindOf(err) != fault.Busy {
			t.Errorf("one more than may wait: %v", err)
		}
		time.Sleep(LinkLife)
		if _, _, err := l.Add(client.PageSession{}); err != nil {
			t.Errorf("all of them are void: %v", err)
		}
	})
}

// The files in the binary, if there are any, begin with the document.
func TestTheBinaryHasThePage(t *testing.T) {
	p := New()
	if !p.Built() {
		if p.Routes() != nil {
			t.Error("there are routes without files")
		}
		return
	}
	if document := string(p.assets[index].plain); !strings.Contains(document, "<title>") || strings.Contains(document, "style=") {
		t.Errorf("%.200s", document)
	}
	for name := range p.assets {
		if mediaType(name) == "" {
			t.Errorf("%s has no media type", name)
		}
	}
}

// What a browser fetches is bounded: the page, and the page with the library of its maps.
func TestThePageIsSmall(t *testing.T) {
	const pageBound, allBound = 60_000, 350_000
	var page, maps int
	for name, one := range New().assets {
		sent := len(one.plain)
		if packed := one.compressed(); packed.bytes != nil {
			sent = len(packed.bytes)
		}
		switch {
		case strings.HasSuffix(name, ".txt"): // for those who ask for it
		case strings.HasPrefix(name, "map"): // map-HASH.js and maplibre-gl-VERSION/
			maps += sent
		default:
			page += sent
		}
	}
	t.Logf("%d of %d bytes for the page, %d of %d with the map", page, pageBound, page+maps, allBound)
	if page > pageBound || page+maps > allBound {
		t.Errorf("%d bytes for the page, %d with the map: the bounds are %d and %d", page, page+maps, pageBound, allBound)
	}
}

// What is in the binary was built from the sources that are here: build.mjs
// writes their hash beside it. `make page-check` builds them anew and compares
// every byte, but needs npm.
func TestTheBuiltFilesAreThoseOfTheSources(t *testing.T) {
	p := New()
	if !p.Built() {
		t.Skip("built without the page")
	}
	web := os.DirFS("../../web")
	names := []string{"build.mjs", "package.json", "package-lock.json", "tsconfig.json"}
	testkit.Must(t, fs.WalkDir(web, "src", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	}))
	slices.Sort(names)
	list := sha256.New()
	for _, name := range names {
		source, err := fs.ReadFile(web, name)
		fmt.Fprintf(list, "%x  %s\n", sha256.Sum256(testkit.Value(t, source, err)), name)
	}
	if got, want := fmt.Sprintf("%x\n", list.Sum(nil)), string(p.assets["sources.txt"].plain); got != want {
		t.Errorf("internal/page/dist was built from other sources than those in web/ (%.16s…, not %.16s…). Run `make page`, and commit what changed.", want, got)
	}
}
