package ingress

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// Every page may read what is public, without credentials, on loopback too.
func TestEveryPageReadsWhatIsPublic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, listed := range [][]string{nil, {mapsPage}} {
			f := proxyFixture(t, func(h *HTTP) { h.CORS = listed })
			for _, origin := range []string{"https://other.example", "null", mapsPage} {
				r := f.dialFrom(1).get("/who", "Origin: "+origin)
				if r.StatusCode != 200 || r.Header.Get("Access-Control-Allow-Origin") != "*" || r.Header.Get("Access-Control-Allow-Credentials") != "" ||
					r.Header.Get("Cross-Origin-Resource-Policy") != "cross-origin" || r.Header.Get("Vary") != "" {
					t.Errorf("%s: %d %v", origin, r.StatusCode, r.Header)
				}
				if origin == mapsPage && listed != nil {
					continue
				}
				f.dialFrom(2).get("/inside", "Origin: "+origin).wantRefusal(t, 403, "RejectPolicy")
				if r := f.dialFrom(3).get("/inside"); listed == nil && r.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
					t.Errorf("%v", r.Header)
				}
			}
			r := f.dialFrom(4).ask("OPTIONS", "/who", "Origin: https://other.example", "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: range")
			if r.StatusCode != 204 || r.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%d %v", r.StatusCode, r.Header)
			}
			if r := f.dialFrom(5).ask("OPTIONS", "/who", "Origin: https://other.example", "Access-Control-Request-Method: PUT"); r.StatusCode < 400 {
				t.Errorf("a write: %d %v", r.StatusCode, r.Header)
			}
			synctest.Wait()
		}
	})
}

// A reload applies a list of origins, also to prepared answers.
func TestCORSFollowsAReload(t *testing.T) {
	f := newWarmFixture(t, func(*Options) {}).listen()
	c := f.dial()
	ask := func() string {
		c.send("GET /w/small HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: %s\r\n\r\n", mapsPage)
		return c.receive().Header.Get("Access-Control-Allow-Origin")
	}
	if got := ask(); got != "" {
		t.Errorf("before: %q", got)
	}
	times := f.options.Times
	times.CORS = []string{mapsPage}
	f.server.Reconfigure(times)
	if got := ask(); got != mapsPage {
		t.Errorf("after: %q", got)
	}
}

// A refused origin is in the log once, with the line to add.
func TestRefusedOriginsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := corsFixture(t).listen()
		for i := range 3 * maxRefusedOrigins {
			f.dial().get("/x/1", "Origin: "+mapsPage)
			f.dial().get("/x/1", "Origin: https://n"+strings.Repeat("x", i)+".example")
		}
		f.dial().get("/x/1", "Origin: javascript:alert(1)")
		f.dial().get("/x/1", "Origin: http://localhost:8080")
		synctest.Wait()
		log := f.logs.String()
		if strings.Count(log, "origin="+mapsPage) != 1 || !strings.Contains(log, `cors = [\"`+mapsPage+`\"]`) {
			t.Errorf("%s", log)
		}
		if n := bytes.Count(f.logs.Bytes(), []byte("may not read from this node")); n != maxRefusedOrigins || strings.Contains(log, "javascript") {
			t.Errorf("%d lines: %s", n, log)
		}
	})
}

// Prepared answers of public routes are those of the chain, whatever the page.
func TestPublicAnswersAreTheSameInBothLanes(t *testing.T) {
	for _, origin := range []string{"", "Origin: https://other.example\r\n", "Origin: null\r\n"} {
		var headers []http.Header
		for _, warm := range []bool{true, false} {
			f := newWarmFixture(t, func(o *Options) {
				routes := o.Table.Routes()
				for i := range routes {
					if routes[i].Methods[0] == "GET" && strings.HasPrefix(routes[i].Pattern, "/w/") {
						routes[i].Scope, routes[i].Public = "", PublicTiles
					}
				}
				o.Table, _ = NewTable(routes...)
				o.Times.Public = []string{"tiles"}
			}).listen(func(o *ListenOptions) { o.Warm = warm })
			c := f.dial()
			c.send("GET /w/small HTTP/1.1\r\nHost: localhost:8080\r\n%sX-Corr-ID: corr-12345678\r\n\r\n", origin)
			r := c.receive()
			r.Header.Del("Date")
			headers = append(headers, r.Header)
		}
		if a, b := headers[0], headers[1]; len(a) != len(b) || a.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%q: %v and %v", origin, a, b)
		}
		for key := range headers[0] {
			if headers[0].Get(key) != headers[1].Get(key) {
				t.Errorf("%q: %s is %q and %q", origin, key, headers[0].Get(key), headers[1].Get(key))
			}
		}
	}
}
