package ingress

import (
	"errors"
	"strings"
	"testing"

	"micronode/internal/config"
)

const mapsPage = "https://maps.example"

// corsFixture has a route to read and one to write, with origins listed.
func corsFixture(t *testing.T, listed ...string) *fixture {
	return newFixture(t, []Route{
		control("GET", "/x/{id}", respondWith("x")), control("PUT", "/x/{id}", echo), control("POST", "/only", echo),
	}, func(o *Options) { o.Times.CORS = listed })
}

func TestNobodyIsListed(t *testing.T) {
	f := corsFixture(t).listen()
	c := f.dial()
	r := c.get("/x/1")
	for name := range r.Header {
		if strings.HasPrefix(name, "Access-Control") || name == "Vary" {
			t.Errorf("%s: %s", name, r.Header.Get(name))
		}
	}
	c.get("/x/1", "Origin: "+mapsPage).wantRefusal(t, 403, "RejectPolicy")
	c.ask("OPTIONS", "/x/1", "Origin: http://localhost", "Access-Control-Request-Method: GET").wantRefusal(t, 405, "MethodNotAllowed")
}

// An origin that is listed by name may read and write, and its name is in the
// answer.
func TestListedByName(t *testing.T) {
	f := corsFixture(t, mapsPage, "http://localhost:3000").listen()
	c := f.dial()
	for _, origin := range []string{mapsPage, "http://localhost:3000"} {
		r := c.get("/x/1", "Origin: "+origin)
		if r.body != "x" || r.Header.Get("Access-Control-Allow-Origin") != origin || r.Header.Get("Vary") != "Origin" || r.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%d %v", r.StatusCode, r.Header)
		}
		for _, name := range []string{"ETag", "Content-Range", "Content-Length", "Accept-Ranges", "Age", "X-Corr-ID"} {
			if !strings.Contains(r.Header.Get("Access-Control-Expose-Headers"), name) {
				t.Errorf("a page may not read %s", name)
			}
		}
		c.send("PUT /x/1 HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\nContent-Length: 2\r\n\r\nhi", origin)
		if r := c.receive(); r.body != "hi" {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
	// A refusal can be read too; and an answer to a request without Origin
	// still has Vary: Origin.
	if r := c.get("/nowhere", "Origin: "+mapsPage); r.StatusCode != 404 || r.Header.Get("Access-Control-Allow-Origin") != mapsPage {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	if r := c.get("/x/1"); r.Header.Get("Vary") != "Origin" || r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", r.Header)
	}
	for _, other := range []string{"https://maps.example.evil", "http://maps.example", "https://maps.example:8443", "https://MAPS.example", "null"} {
		r := c.get("/x/1", "Origin: "+other)
		r.wantRefusal(t, 403, "RejectPolicy")
		if r.Header.Get("Access-Control-Allow-Origin") != "" || r.Header.Get("Vary") != "Origin" {
			t.Errorf("%s: %v", other, r.Header)
		}
	}
	c.get("/x/1", "Origin: "+mapsPage, "Origin: "+mapsPage).wantRefusal(t, 403, "RejectPolicy")
	// The Host still counts: it is what rebinding changes.
	c.send("GET /x/1 HTTP/1.1\r\nHost: evil.example\r\nOrigin: %s\r\n\r\n", mapsPage)
	c.receive().wantRefusal(t, 403, "RejectPolicy")
}

func TestPreflight(t *testing.T) {
	f := corsFixture(t, mapsPage).listen()
	c := f.dial()
	r := c.ask("OPTIONS", "/x/1", "Origin: "+mapsPage, "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: range", "Access-Control-Request-Private-Network: true")
	if r.StatusCode != 204 || r.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, PUT" || r.Header.Get("Access-Control-Allow-Origin") != mapsPage ||
		r.Header.Get("Access-Control-Max-Age") == "" || r.Header.Get("Access-Control-Allow-Private-Network") != "true" || r.Header.Get("X-Corr-Id") == "" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	for _, name := range []string{"Range", "If-None-Match", "If-Range", "If-Match", "If-Modified-Since", "Authorization", "Content-Type", "X-Corr-ID"} {
		if !strings.Contains(r.Header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("a page may not send %s", name)
		}
	}
	if r := c.ask("OPTIONS", "/only", "Origin: "+mapsPage, "Access-Control-Request-Method: GET"); r.StatusCode != 204 || r.Header.Get("Access-Control-Allow-Methods") != "POST" || r.Header.Get("Access-Control-Allow-Private-Network") != "" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	c.ask("OPTIONS", "/nowhere", "Origin: "+mapsPage, "Access-Control-Request-Method: GET").wantRefusal(t, 404, "NotFound")
	c.ask("OPTIONS", "/x/1", "Origin: "+mapsPage).wantRefusal(t, 405, "MethodNotAllowed") // not a preflight
	c.ask("OPTIONS", "/x/1", "Access-Control-Request-Method: GET").wantRefusal(t, 405, "MethodNotAllowed")
	c.ask("OPTIONS", "/x/1", "Origin: https://evil.example", "Access-Control-Request-Method: GET").wantRefusal(t, 403, "RejectPolicy")
}

// A star is for reading, by every page.
func TestEverybodyMayRead(t *testing.T) {
	f := corsFixture(t, "*", mapsPage).listen()
	c := f.dial()
	for _, headers := range [][]string{nil, {"Origin: https://anybody.example"}, {"Origin: null"}, {"Origin: " + mapsPage}} {
		if r := c.get("/x/1", headers...); r.body != "x" || r.Header.Get("Access-Control-Allow-Origin") != "*" || r.Header.Get("Vary") != "" {
			t.Errorf("%v: %d %v", headers, r.StatusCode, r.Header)
		}
	}
	put := func(origin string) reply {
		c.send("PUT /x/1 HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\nContent-Length: 2\r\n\r\nhi", origin)
		return c.receive()
	}
	put("https://anybody.example").wantRefusal(t, 403, "RejectPolicy")
	if r := put(mapsPage); r.body != "hi" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := c.ask("OPTIONS", "/x/1", "Origin: https://anybody.example", "Access-Control-Request-Method: PUT"); r.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD" {
		t.Errorf("%v", r.Header)
	}
	if r := c.ask("OPTIONS", "/x/1", "Origin: "+mapsPage, "Access-Control-Request-Method: PUT"); r.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, PUT" {
		t.Errorf("%v", r.Header)
	}
	c.ask("OPTIONS", "/only", "Origin: https://anybody.example", "Access-Control-Request-Method: POST").wantRefusal(t, 405, "MethodNotAllowed")
}

// Origin is added to a handler's Vary, and also to an answer without a body or
// without a Vary of its own.
func TestVaryIsAdded(t *testing.T) {
	f := newWarmFixture(t, func(o *Options) { o.Times.CORS = []string{mapsPage} }).listen(func(o *ListenOptions) { o.Warm = false })
	c := f.dial()
	if r := c.get("/w/packed"); strings.Join(r.Header["Vary"], ", ") != "Accept-Encoding, Origin" {
		t.Errorf("%v", r.Header)
	}
	if r := c.get("/w/small", `If-None-Match: "b3:test"`); r.StatusCode != 304 || r.Header.Get("Vary") != "Origin" {
		t.Errorf("%v", r.Header)
	}
	silent := newFixture(t, []Route{control("GET", "/x", fails(nil))}, func(o *Options) { o.Times.CORS = []string{mapsPage} }).listen()
	if r := silent.dial().get("/x"); r.StatusCode != 200 || r.Header.Get("Vary") != "Origin" {
		t.Errorf("%v", r.Header)
	}
}

// The lane answers pages of listed origins as it answers all others.
func TestListedOriginsAreWarm(t *testing.T) {
	for _, listed := range [][]string{{mapsPage}, {"*"}} {
		f := newWarmFixture(t, func(o *Options) { o.Times.CORS = listed }).listen()
		c := f.dial()
		for range 3 {
			want := mapsPage
			if listed[0] == "*" {
				want = "*"
			}
			r := c.get("/m/small", "Origin: "+mapsPage, "Sec-Fetch-Mode: cors", `Sec-Ch-Ua: "Chromium";v="140"`, "Sec-Ch-Ua-Mobile: ?0", `Sec-Ch-Ua-Platform: "Linux"`)
			if r.body != string(smallBody) || r.Header.Get("Access-Control-Allow-Origin") != want {
				t.Errorf("%d %v", r.StatusCode, r.Header)
			}
		}
		if f.requests(t) != 0 {
			t.Errorf("%v: %d of 3 went through the chain", listed, f.requests(t))
		}
	}
}

// The admin plane is for no page but its own, whatever the gateway allows.
func TestTheAdminPlaneListsNobody(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Times.CORS, o.Exempt = []string{"*"}, true }).listen()
	f.dial().get("/x", "Origin: "+mapsPage).wantRefusal(t, 403, "RejectPolicy")
}

func TestOriginsAreChecked(t *testing.T) {
	for _, good := range [][]string{nil, {"*"}, {mapsPage, "http://localhost:3000"}, {"https://[2001:db8::1]:8443"}, {"https://xn--bcher-kva.example"}} {
		h := DefaultHTTP()
		h.CORS = good
		if err := h.Validate(); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for bad, next := range map[string]string{
		"maps.example": "as a browser does", "null": "list that", "https://maps.example/": "after the host", "https://maps.example/map": "after the host",
		"https://*.example": "by itself", "https://Maps.example": "lower case", "https://bücher.example": "xn--", "ftp://maps.example": "as a browser does",
		"https://maps.example:443": "out the port", "http://maps.example:80": "out the port", "https://maps.example:": "out the port", "https://": "as a browser does",
		"https://u@maps.example": "after the host", "http://%zz": "as a browser does", "": "as a browser does",
	} {
		h := DefaultHTTP()
		h.CORS = []string{mapsPage, bad}
		if err := h.Validate(); err == nil || !strings.Contains(nextOf(err), next) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// nextOf is the next step of an invalid setting.
func nextOf(err error) string {
	problem, _ := errors.AsType[*config.Problem](err)
	return problem.Next
}
