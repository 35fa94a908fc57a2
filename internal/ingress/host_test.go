package ingress

import (
	"net"
	"testing"
)

func TestHostAndOrigin(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}).listen(func(o *ListenOptions) { o.Hosts = []string{"Node.Example"} })
	for name, c := range map[string]struct {
		host, origin string
		reason       string // of the refusal; empty if it is answered
	}{
		"localhost":               {"localhost", "", ""},
		"localhost with port":     {"localhost:8080", "", ""},
		"any case":                {"LocalHost:8080", "", ""},
		"another port (forward)":  {"127.0.0.1:9999", "", ""},
		"IPv6":                    {"[::1]:8080", "", ""},
		"configured":              {"node.example", "", ""},
		"rebinding":               {"evil.example:8080", "", "host"},
		"suffix of ours":          {"notlocalhost", "", "host"},
		"ours as prefix":          {"localhost.evil.example", "", "host"},
		"empty":                   {"", "", "host"},
		"own page":                {"localhost:8080", "http://localhost:8080", ""},
		"own page by number":      {"localhost:8080", "http://127.0.0.1:8080", ""},
		"own page, no port":       {"localhost", "http://localhost", ""},
		"other page":              {"localhost:8080", "http://evil.example", "origin"},
		"other program here":      {"localhost:8080", "http://localhost:3000", "origin"},
		"sandboxed page":          {"localhost:8080", "null", "origin"},
		"extension":               {"localhost:8080", "chrome-extension://localhost:8080", "origin"},
		"origin that is no URL":   {"localhost:8080", "http://%zz", "origin"},
		"rebinding with own page": {"evil.example:8080", "http://evil.example:8080", "host"},
	} {
		before := f.metric("rejected_total", "reason", c.reason)
		conn := f.dial()
		headers := "Host: " + c.host + "\r\n"
		if c.origin != "" {
			headers += "Origin: " + c.origin + "\r\n"
		}
		conn.send("GET /x HTTP/1.1\r\n%s\r\n", headers)
		r := conn.receive()
		if c.reason == "" {
			if r.StatusCode != 200 {
				t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
			}
			continue
		}
		r.wantRefusal(t, 403, "RejectPolicy")
		if after := f.metric("rejected_total", "reason", c.reason); after != before+1 {
			t.Errorf("%s: not counted as %s", name, c.reason)
		}
	}
	c := f.dial()
	c.send("GET /x HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n")
	c.receive().wantRefusal(t, 403, "RejectPolicy")
}

// A client on the local socket may send any Host: no browser gets there.
func TestTheLocalSocketHasNoHost(t *testing.T) {
	var asked AuthRequest
	f := newFixture(t, []Route{control("POST", "/x", respondWith("x"))}, func(o *Options) {
		o.Limits.Rate, o.Limits.Burst, o.Limits.ConnsPerIP = 1, 1, 1
	})
	f.server.authorise = recordAuth(&asked)
	dir := t.TempDir()
	inner, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	f.serve(f.server.Attach(inner, ListenOptions{Name: "local", Local: true}))
	for range 3 {
		raw, err := net.Dial("unix", dir+"/s")
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, raw)
		for range 3 {
			c.send("POST /x HTTP/1.1\r\nHost: micronode\r\nOrigin: http://anything\r\nContent-Length: 0\r\n\r\n")
			if r := c.receive(); r.body != "x" {
				t.Fatalf("%d %s", r.StatusCode, r.body)
			}
		}
	}
	if !asked.Local || asked.Loopback || asked.ClientIP.IsValid() {
		t.Errorf("%+v", asked)
	}
	if f.listener.Addr().Network() != "unix" {
		t.Errorf("%v", f.listener.Addr())
	}
}

// The authoriser is told whether a read shows the inside, which one without a
// group does, and whether a proxy passed it on.
func TestWhatAReadShows(t *testing.T) {
	var asked AuthRequest
	read := func(pattern string, group PublicGroup) Route {
		route := control("GET", pattern, respondWith("x"))
		route.Scope, route.Public = "", group
		return route
	}
	f := newFixture(t, []Route{read("/none", ""), read("/list", OnThisMachine), read("/tiles", PublicTiles), control("POST", "/written", respondWith("x"))},
		func(o *Options) { o.Authorise = recordAuth(&asked) }).listen()
	c := f.dial()
	for _, want := range []struct {
		path             string
		header           string
		inside, loopback bool
	}{
		{"/none", "X: y", true, true}, {"/list", "X: y", false, true}, {"/tiles", "X: y", false, true},
		{"/none", "Via: 1.1 proxy", true, false}, {"/list", "Via: 1.1 proxy", false, false}, {"/tiles", "X-Real-IP: 192.0.2.7", false, false},
		{"/list", "Forwarded: for=192.0.2.7", false, false}, {"/list", "X-Forwarded-For: 192.0.2.7", false, false},
	} {
		c.get(want.path, want.header)
		if asked.Inside != want.inside || asked.Loopback != want.loopback {
			t.Errorf("%s with %s: inside %v, loopback %v", want.path, want.header, asked.Inside, asked.Loopback)
		}
	}
	if c.post("/written", ""); asked.Inside {
		t.Error("a write is no read")
	}
}
