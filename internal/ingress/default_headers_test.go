package ingress

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Every answer has the headers that restrict a browser, whatever writes it.
func TestDefaultHeaders(t *testing.T) {
	for _, listed := range [][]string{nil, {mapsPage}} {
		f := newWarmFixture(t, func(o *Options) { o.Times.CORS = listed }).listen()
		policy := "same-origin"
		if listed != nil {
			policy = "cross-origin"
		}
		for _, request := range []string{
			warmGet,
			"GET /m/small HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /w/cold HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /w/tiny HTTP/1.1\r\nHost: evil.example\r\n\r\n",
			"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\n\r\n",
			"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
		} {
			c := f.dial()
			c.send("%s", request)
			h := c.receive().Header
			if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Resource-Policy") != policy || h.Get("Strict-Transport-Security") != "" {
				t.Errorf("%q: %v", request, h)
			}
		}
	}
}

// Over TLS an answer has Strict-Transport-Security, unless the host is
// localhost.
func TestStaySecure(t *testing.T) {
	a := newAuthority(t)
	files := a.issue("server")
	for name, c := range map[string]struct {
		hsts time.Duration
		host string
		want string
	}{
		"a year":         {365 * 24 * time.Hour, "127.0.0.1", "max-age=31536000"},
		"a minute":       {time.Minute, "node.example:8080", "max-age=60"},
		"off":            {0, "127.0.0.1", ""},
		"everybody's":    {time.Hour, "localhost:8080", ""},
		"in any letters": {time.Hour, "LocalHost", ""},
	} {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Times.HSTS = c.hsts })
		f.listenTCP(func(o *ListenOptions) { o.TLS, o.Hosts = f.keyring(files), []string{"node.example"} })
		r, _ := http.NewRequest("GET", "https://"+f.listener.Addr().String()+"/x", nil)
		r.Host = c.host
		response, err := httpsClient(a, true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := response.Header.Get("Strict-Transport-Security"); got != c.want || response.StatusCode != 200 {
			t.Errorf("%s: %d, %q", name, response.StatusCode, got)
		}
	}
	for _, bad := range []time.Duration{-time.Second, 1500 * time.Millisecond} {
		h := DefaultHTTP()
		h.HSTS = bad
		if err := h.Validate(); err == nil || !strings.Contains(nextOf(err), "whole seconds") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestUntrusted(t *testing.T) {
	f := newWarmFixture(t).listen()
	h := f.dial().get("/m/small").Header
	if f.requests(t) != 0 || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", h)
	}
}
