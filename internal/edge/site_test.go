package edge

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/ingress"
)

const siteSelf = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// newSiteFixture is an edge with a site under the name docs, whose host is
// docs--….localhost, and whose pages name their version.
func newSiteFixture(t *testing.T) (f *fixture, publish func(version string) b3.Address) {
	hosts := NewSiteHosts([]string{"docs.example=name:docs"}, siteSelf)
	f, s := newSourceFixture(t, func(o *options) {
		o.spec.Self, o.sites, o.times.Public = siteSelf, hosts.Find, []string{"sites"}
		o.times.TrustedProxies = []string{"127.0.0.1"}

		o.authorise = allowReads
	})
	return f, func(version string) b3.Address {
		files := map[string]string{
			"index.html": "index " + version, "404.html": "nothing here " + version, "app.js": "script " + version, "app.js.gz": "packed " + version, "about.html": "about " + version,
			"guide/index.html": "guide " + version, "guide/data.unknown": "data " + version, "_headers": "/*\n  X: y\n",
		}
		var entries []client.Entry
		for path, text := range files {
			kind := "application/octet-stream"
			if strings.HasSuffix(path, ".unknown") {
				kind = "x/y"
			}
			entries = append(entries, client.Entry{Path: path, B3: s.keep(t, false, text), Size: int64(len(text)), Type: kind})
		}
		raw, err := client.Manifest{Entries: entries}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		folder := s.keep(t, false, string(raw))
		s.names["name:docs"] = folder
		return folder
	}
}

// What people expect of a site, on a host of its own and below /site/.
func TestASiteIsShown(t *testing.T) {
	f, publish := newSiteFixture(t)
	folder := publish("1")
	for _, site := range []struct{ host, path string }{
		{"docs--" + siteSelf + ".localhost", ""}, {"docs.example", ""}, {"localhost", "/site/name:docs"}, {"localhost", "/site/" + folder.String()}, {NewSiteHosts(nil, "").Host(folder.String()), ""},
	} {
		named := !strings.Contains(site.path, "b3:") && !strings.HasPrefix(site.host, "b3-")
		for path, want := range map[string]struct {
			status     int
			body, kind string
		}{
			"/":                   {200, "index 1", "text/html; charset=utf-8"},
			"/index.html":         {200, "index 1", "text/html; charset=utf-8"},
			"/app.js":             {200, "script 1", "text/javascript; charset=utf-8"},
			"/about":              {200, "about 1", "text/html; charset=utf-8"},
			"/guide/":             {200, "guide 1", "text/html; charset=utf-8"},
			"/guide/data.unknown": {200, "data 1", "x/y"},
			"/nowhere":            {404, "nothing here 1", "text/html; charset=utf-8"},
			"/guide/nowhere/":     {404, "nothing here 1", "text/html; charset=utf-8"},
			"/guide":              {302, "", ""},
			"/_headers":           {403, "", "application/problem+json"},
		} {
			got := f.get(site.path+path, "Host", site.host)
			if got.status != want.status || want.body != "" && string(got.body) != want.body || got.header.Get("Content-Type") != want.kind {
				t.Errorf("%s%s%s: %d %q %v", site.host, site.path, path, got.status, got.body, got.header)
			}
			if got.status == 302 && got.header.Get("Location") != strings.ReplaceAll(site.path, ":", "%3A")+"/guide/" && got.header.Get("Location") != site.path+"/guide/" {
				t.Errorf("%s%s%s: %v", site.host, site.path, path, got.header)
			}
			if sandboxed := strings.Contains(got.header.Get("Content-Security-Policy"), "sandbox"); want.status == 200 && sandboxed != (site.path != "") {
				t.Errorf("%s%s%s: in a sandbox: %t", site.host, site.path, path, sandboxed)
			}
			if control := got.header.Get("Cache-Control"); want.status == 200 && (control == ingress.Immutable) == named {
				t.Errorf("%s%s%s: %s", site.host, site.path, path, control)
			}
		}
		if got := f.get(site.path+"/app.js", "Host", site.host, "Accept-Encoding", "gzip"); string(got.body) != "packed 1" || got.header.Get("Content-Encoding") != "gzip" || got.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("a packed file: %d %q %v", got.status, got.body, got.header)
		}
		if got := f.get(site.path+"/app.js", "Host", site.host, "Range", "bytes=0-5"); got.status != 206 || string(got.body) != "script" {
			t.Errorf("a range: %d %q", got.status, got.body)
		}
		tag := f.get(site.path+"/app.js", "Host", site.host).header.Get("Etag")
		if got := f.get(site.path+"/app.js", "Host", site.host, "If-None-Match", tag); tag == "" || got.status != 304 {
			t.Errorf("unchanged: %q %d", tag, got.status)
		}
		if got := f.ask("POST", site.path+"/", "Host", site.host); got.status != 405 {
			t.Errorf("a write: %d", got.status)
		}
	}
}

// The host of a site has nothing of the API, and pages of other origins read
// nothing of it.
func TestASiteIsAlone(t *testing.T) {
	f, publish := newSiteFixture(t)
	publish("1")
	host := "docs--" + siteSelf + ".localhost"
	for _, path := range []string{"/edge/packs", "/edge/assets/name:docs/index.html", "/site/name:docs/", "/openapi.json"} {
		if got := f.get(path, "Host", host); got.status != 404 || string(got.body) != "nothing here 1" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for _, origin := range []string{"http://localhost", "http://other--" + siteSelf + ".localhost", "https://evil.example", "null"} {
		got := f.get("/app.js", "Host", host, "Origin", origin)
		if got.status != 403 || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s read the site: %d %v", origin, got.status, got.header)
		}
		if got := f.get("/edge/packs", "Host", "localhost", "Origin", "http://"+host); got.status != 403 {
			t.Errorf("the site read the API: %d", got.status)
		}
	}
	got := f.get("/app.js", "Host", host, "Origin", "http://"+host)
	if got.status != 200 || got.header.Get("Cross-Origin-Resource-Policy") != "same-origin" || got.header.Get("Origin-Agent-Cluster") != "?1" {
		t.Errorf("its own page: %d %v", got.status, got.header)
	}
	for _, host := range []string{"docs.localhost", "docs--x.localhost", "evil.example", "--" + siteSelf + ".localhost", "b3-x.localhost"} {
		if got := f.get("/", "Host", host); got.status != 403 {
			t.Errorf("%s: %d", host, got.status)
		}
	}
}

// A new version of a name is seen by the next page, and no page mixes two.
func TestASiteIsSeenWhole(t *testing.T) {
	f, publish := newSiteFixture(t)
	publish("1")
	host := "docs--" + siteSelf + ".localhost"
	page := f.get("/", "Host", host, "Sec-Fetch-Mode", "navigate")
	cookie, _, _ := strings.Cut(page.header.Get("Set-Cookie"), ";")
	publish("2")
	load := func(cookie string) string {
		return string(f.get("/app.js", "Host", host, "Sec-Fetch-Mode", "no-cors", "Cookie", cookie).body)
	}
	if got := load(cookie); got != "script 1" {
		t.Errorf("the old page loads %q", got)
	}
	if got := f.get("/", "Host", host, "Sec-Fetch-Mode", "navigate", "Cookie", cookie); string(got.body) != "index 2" || load(strings.Split(got.header.Get("Set-Cookie"), ";")[0]) != "script 2" {
		t.Errorf("the next page is %q", got.body)
	}
	other := publish("3")
	publish("4")
	for _, forged := range []string{versionCookie + "=" + strings.TrimPrefix(other.String(), "b3:"), versionCookie + "=x", ""} {
		if got := load(forged); got != "script 4" {
			t.Errorf("a version that no page has shown, %q: %q", forged, got)
		}
	}
}

// Without a host the same holds: the path of a page has the version, and what
// opens a page is always sent to the newest.
func TestASiteWithoutAHostIsSeenWhole(t *testing.T) {
	f, publish := newSiteFixture(t)
	publish("1")
	open := func(path string) string {
		t.Helper()
		got := f.get(path, "Host", "public.example", "X-Forwarded-For", "192.0.2.7", "Sec-Fetch-Mode", "navigate")
		if got.status != http.StatusFound || got.header.Get("Cache-Control") != siteRevalidate {
			t.Fatalf("%s: %d %v", path, got.status, got.header)
		}
		return got.header.Get("Location")
	}
	load := func(page, relative string) string {
		return string(f.get(strings.TrimSuffix(page, "guide/?a=b")+relative, "Host", "public.example", "X-Forwarded-For", "192.0.2.7", "Sec-Fetch-Mode", "no-cors").body)
	}
	page := open("/site/name:docs/guide/?a=b")
	if got := f.get(page, "Host", "public.example", "X-Forwarded-For", "192.0.2.7", "Sec-Fetch-Mode", "navigate"); !strings.HasSuffix(page, "/guide/?a=b") || string(got.body) != "guide 1" || got.header.Get("Set-Cookie") != "" {
		t.Errorf("%s: %d %s", page, got.status, got.body)
	}
	publish("2")
	if got := load(page, "app.js"); got != "script 1" {
		t.Errorf("the old page loads %q", got)
	}
	next := open(page) // a reload
	if got := f.get(next, "Host", "public.example", "X-Forwarded-For", "192.0.2.7", "Sec-Fetch-Mode", "navigate"); string(got.body) != "guide 2" || load(next, "app.js") != "script 2" || load(page, "app.js") != "script 1" {
		t.Errorf("after a reload %s: %d %s", next, got.status, got.body)
	}
	if got := load("/site/name:docs/", "app.js"); got != "script 2" {
		t.Errorf("without a version: %q", got)
	}
	if got := f.get("/site/name:docs/guide/", "Host", "public.example", "X-Forwarded-For", "192.0.2.7"); string(got.body) != "guide 2" {
		t.Errorf("a program: %d %s", got.status, got.body)
	}
	other := publish("3")
	publish("4")
	for _, forged := range []string{other.String(), "b3:x", "b3:"} {
		if got := load("/site/name:docs@"+forged+"/", "app.js"); got != "script 4" {
			t.Errorf("a version that no page has shown, %s: %q", forged, got)
		}
	}
}

// A browser that comes by the path is sent to the host, on this machine.
func TestABrowserIsSentToTheHost(t *testing.T) {
	f, publish := newSiteFixture(t)
	publish("1")
	port := f.url[strings.LastIndex(f.url, ":"):]
	got := f.get("/site/name:docs/guide/?a=b", "Host", "127.0.0.1"+port, "Sec-Fetch-Mode", "navigate")
	if want := "http://docs--" + siteSelf + ".localhost" + port + "/guide/?a=b"; got.status != http.StatusFound || got.header.Get("Location") != want {
		t.Errorf("%d %v", got.status, got.header)
	}
}

// Hosts and sites are two ways to write the same thing.
func TestSiteHosts(t *testing.T) {
	hosts := NewSiteHosts([]string{"docs.example.org=name:docs", "old.example.org=" + b3.Of([]byte("x")).String()}, siteSelf)
	other := strings.Repeat("b", 51) + "a"
	for _, site := range []string{"name:docs", "name:a-b--c", "name:" + strings.Repeat("n", 40), "name:docs@" + other, b3.Of([]byte("x")).String()} {
		host := hosts.Host(site)
		if found, ok := hosts.Find(host); !ok || found != site {
			t.Errorf("%s is at %s, which is %s", site, host, found)
		}
	}
	for _, site := range []string{"name:Docs", "name:a.b", "name:-a", "name:", "docs", "name:" + strings.Repeat("n", 64), "name:ü"} {
		if host := hosts.Host(site); host != "" {
			t.Errorf("%s is at %s", site, host)
		}
	}
	for _, one := range []string{"Docs.example=name:docs", "docs.example:80=name:docs", "docs.example=docs", "docs.example=b3:x", "=name:docs", "*.example=name:docs", "a/b=name:docs"} {
		if _, err := parseSites([]string{one}); err == nil {
			t.Errorf("%s was accepted", one)
		}
	}
}

// allowReads lets everybody read.
func allowReads(context.Context, ingress.AuthRequest) error { return nil }
