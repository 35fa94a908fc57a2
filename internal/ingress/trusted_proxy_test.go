package ingress

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Who the client is, where proxies say so.
func TestWhoTheClientIs(t *testing.T) {
	proxies, err := parseProxies([]string{"127.0.0.1", "10.0.0.0/8", "2001:db8::/32"})
	if err != nil {
		t.Fatal(err)
	}
	p := &policy{proxies: proxies}
	peer := netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		header []string
		want   string
		base   string
	}{
		"nothing":                           {nil, "", ""},
		"X-Forwarded-For":                   {[]string{"X-Forwarded-For: 192.0.2.7"}, "192.0.2.7", " "},
		"with a port":                       {[]string{"X-Forwarded-For: 192.0.2.7:4711"}, "192.0.2.7", " "},
		"IPv6":                              {[]string{"X-Forwarded-For: [2001:db9::7]:4711"}, "2001:db9::7", " "},
		"IPv6, bare":                        {[]string{"X-Forwarded-For: 2001:db9::7"}, "2001:db9::7", " "},
		"IPv4 in IPv6":                      {[]string{"X-Forwarded-For: ::ffff:192.0.2.7"}, "192.0.2.7", " "},
		"what a client made up":             {[]string{"X-Forwarded-For: 203.0.113.9, 192.0.2.7"}, "192.0.2.7", " "},
		"made up, in two lines":             {[]string{"X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 192.0.2.7"}, "192.0.2.7", " "},
		"two proxies":                       {[]string{"X-Forwarded-For: 203.0.113.9, 192.0.2.7, 10.0.0.2"}, "192.0.2.7", " "},
		"proxies only":                      {[]string{"X-Forwarded-For: 10.0.0.3, 10.0.0.2"}, "10.0.0.3", " "},
		"unknown":                           {[]string{"X-Forwarded-For: unknown"}, "10.0.0.1", " "},
		"unknown behind a proxy":            {[]string{"X-Forwarded-For: 192.0.2.7, unknown, 10.0.0.2"}, "10.0.0.2", " "},
		"empty":                             {[]string{"X-Forwarded-For: "}, "10.0.0.1", " "},
		"scheme and host":                   {[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: maps.example"}, "192.0.2.7", "https maps.example"},
		"of the nearest proxy":              {[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: gopher, https", "X-Forwarded-Host: evil.example, maps.example:8443"}, "192.0.2.7", "https maps.example:8443"},
		"a host that is none":               {[]string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: javascript", `X-Forwarded-Host: a"b/c`}, "192.0.2.7", " "},
		"Forwarded":                         {[]string{`Forwarded: for=192.0.2.7;proto=https;host=maps.example`}, "192.0.2.7", "https maps.example"},
		"Forwarded, quoted":                 {[]string{`Forwarded: For="[2001:db9::7]:4711";Proto=HTTPS;host="maps.example:8443"`}, "2001:db9::7", "https maps.example:8443"},
		"Forwarded, made up":                {[]string{`Forwarded: for=203.0.113.9;host=evil.example, for=192.0.2.7;proto=http;host=maps.example`}, "192.0.2.7", "http maps.example"},
		"Forwarded, a comma in a quotation": {[]string{`Forwarded: for="_a,for=203.0.113.9", for=192.0.2.7`}, "192.0.2.7", " "},
		"Forwarded, obfuscated":             {[]string{`Forwarded: for=_hidden`}, "10.0.0.1", " "},
		"both, of one mind":                 {[]string{"X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.7"}, "192.0.2.7", " "},
		"one of them made up":               {[]string{"X-Forwarded-For: 192.0.2.7", "Forwarded: for=203.0.113.9"}, "10.0.0.1", " "},
		"a list without end":                {[]string{"X-Forwarded-For: " + strings.Repeat("10.0.0.2, ", 1000) + "10.0.0.2"}, "10.0.0.2", " "},
	} {
		header := http.Header{}
		for _, line := range c.header {
			key, value, _ := strings.Cut(line, ": ")
			header.Add(key, value)
		}
		said, any := p.readForwarded(header, peer)
		if !any {
			if c.want != "" {
				t.Errorf("%s: nothing was read", name)
			}
			continue
		}
		if said.client.String() != c.want || said.scheme+" "+said.host != c.base {
			t.Errorf("%s: %s, %q %q", name, said.client, said.scheme, said.host)
		}
	}
}

// proxyFixture is a node on loopback behind a proxy on the same machine.
func proxyFixture(t *testing.T, change func(*HTTP)) *fixture {
	who := func(w http.ResponseWriter, r *http.Request) error {
		return respondWith(fmt.Sprint(Client(r), " ", BaseURL(r), " ", Location(r, "/o/x")))(w, r)
	}
	public, inside := control("GET", "/who", who), control("GET", "/inside", who)
	public.Scope, inside.Scope, public.Public = "", "", PublicTiles
	return newFixture(t, []Route{public, inside}, func(o *Options) {
		o.Authorise, o.Times.Public = knowsCallers, []string{"tiles"}
		o.Limits.Rate, o.Limits.Burst, o.Limits.ConnsPerIP = 1, 3, 4
		change(&o.Times)
	}).listen()
}

// What a trusted proxy says counts; what comes through it has the rights of a
// stranger, whatever its Host, and has limits of its own.
func TestBehindATrustedProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxyFixture(t, func(h *HTTP) { h.TrustedProxies = []string{"127.0.0.1"} })
		c := f.dial()
		ask := func(path, client string) reply {
			c.send("GET %s HTTP/1.1\r\nHost: maps.example\r\nX-Forwarded-For: %s\r\nX-Forwarded-Proto: https\r\n\r\n", path, client)
			return c.receive()
		}
		if r := ask("/who", "192.0.2.7"); r.body != "192.0.2.7 https://maps.example /o/x" {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
		ask("/inside", "192.0.2.7").wantRefusal(t, 401, "Unauthorized")
		ask("/inside", "127.0.0.1").wantRefusal(t, 401, "Unauthorized")
		for range 1 {
			ask("/who", "192.0.2.7")
		}
		ask("/who", "192.0.2.7").wantRefusal(t, 429, "RateLimited")
		if r := ask("/who", "192.0.2.8"); r.StatusCode != 200 {
			t.Errorf("another client of the proxy: %d %s", r.StatusCode, r.body)
		}
		if r := c.get("/inside"); r.body != "127.0.0.1 http://localhost /o/x" {
			t.Errorf("a program on this machine: %d %s", r.StatusCode, r.body)
		}
		c.send("GET /who HTTP/1.1\r\nHost: maps.example\r\n\r\n") // a rebound name
		c.receive().wantRefusal(t, 403, "RejectPolicy")
		for i := range 10 {
			if r := f.dial().get("/who", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", 100+i)); r.StatusCode != 200 {
				t.Errorf("the %dth connection of the proxy: %d", i, r.StatusCode)
			}
		}
	})
}

// A forwarded host counts only if it is one of this node, and only where the
// client's own Host has not come through: a cache in front would keep what a
// client made up.
func TestForwardedHostsThatCount(t *testing.T) {
	for name, c := range map[string]struct {
		host, said string
		want       string // the URL; or the path, of a site
	}{
		"the Host":                              {"maps.example", "maps.example", "https://maps.example"},
		"made up":                               {"maps.example", "evil.example", "https://maps.example"},
		"made up, with a port":                  {"127.0.0.1:8080", "known.example:99", "https://127.0.0.1:8080"},
		"made up, of this machine":              {"127.0.0.1:8080", "b3-x.localhost", "https://127.0.0.1:8080"},
		"of http.hosts":                         {"127.0.0.1:8080", "Known.Example", "https://Known.Example"},
		"of http.hosts, with its port":          {"127.0.0.1:8080", "known.example:8443", "https://known.example:8443"},
		"of --domain":                           {"127.0.0.1:8080", "www.example.org", "https://www.example.org"},
		"one of ours in place of one of ours":   {"www.example.org", "known.example", "https://www.example.org"},
		"a site":                                {"127.0.0.1:8080", "docs.example.org", "site"},
		"a site in place of a name of the node": {"www.example.org:8443", "docs.example.org", "https://www.example.org:8443"},
		"a site in place of a site":             {"docs.example.org", "other.example.org", "site"},
		"a site by its own Host":                {"docs.example.org", "", "site"},
	} {
		for _, header := range []string{"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: " + c.said, "Forwarded: for=192.0.2.7;proto=https;host=\"" + c.said + "\""} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					site := control("GET", SitePrefix+"{path...}", func(w http.ResponseWriter, r *http.Request) error { return respondWith(r.PathValue("path"))(w, r) })
					site.Scope, site.Public = "", PublicSites
					who := control("GET", "/who", func(w http.ResponseWriter, r *http.Request) error { return respondWith(BaseURL(r))(w, r) })
					who.Scope, who.Public = "", PublicTiles
					f := newFixture(t, []Route{who, site}, func(o *Options) {
						o.Times.Public, o.Times.TrustedProxies = []string{"tiles", "sites"}, []string{"127.0.0.1"}
						o.Times.Hosts, o.Times.ACME.Domains = []string{"known.example", "known.example:8443"}, []string{"www.example.org"}
						o.Sites = func(host string) (string, bool) {
							return "name:" + host[:4], host == "docs.example.org" || host == "other.example.org" || host == "b3-x.localhost"
						}
					}).listen()
					dial := f.dial()
					dial.send("GET /who HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", c.host, header)
					want := c.want
					if want == "site" {
						want = "name:docs/who"
					}
					if r := dial.receive(); r.body != want {
						t.Errorf("%d %s, want %s", r.StatusCode, r.body, want)
					}
					if strings.HasPrefix(name, "made up") != strings.Contains(f.logs.String(), "http.public_url") {
						t.Errorf("the log: %s", f.logs)
					}
					synctest.Wait()
				})
			})
		}
	}
}

// What anybody else says does not count, and the log says so once.
func TestBehindAProxyThatIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxyFixture(t, func(h *HTTP) { h.TrustedProxies = []string{"192.0.2.1"} })
		c := f.dial()
		for range 2 {
			if r := c.get("/who", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example", "Forwarded: for=192.0.2.7"); r.body != "127.0.0.1 http://localhost /o/x" {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
		if n := strings.Count(f.logs.String(), "trusted_proxies"); n != 1 {
			t.Errorf("it was logged %d times: %s", n, f.logs)
		}
		synctest.Wait()
	})
}

// http.public_url overrides what requests and proxies say, and has a path.
func TestThePublicURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxyFixture(t, func(h *HTTP) { h.PublicURL = "https://example.org/maps/" })
		if r := f.dial().get("/who"); r.body != "127.0.0.1 https://example.org/maps /maps/o/x" {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
		times := f.options.Times
		times.PublicURL = ""
		f.server.Reconfigure(times)
		if r := f.dial().get("/who"); r.body != "127.0.0.1 http://localhost /o/x" {
			t.Errorf("after a reload: %d %s", r.StatusCode, r.body)
		}
		synctest.Wait()
	})
}

// The header of the PROXY protocol names the client, on connections of a
// trusted proxy.
func TestProxyProtocol(t *testing.T) {
	v2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x08\x7f\x00\x00\x01\x10\x00\x1f\x90"
	health := "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	for name, c := range map[string]struct{ header, want string }{
		"version 1":         {"PROXY TCP4 192.0.2.7 127.0.0.1 4711 8080\r\n", "192.0.2.7"},
		"version 1, IPv6":   {"PROXY TCP6 2001:db8::7 ::1 4711 8080\r\n", "2001:db8::7"},
		"version 2":         {v2, "192.0.2.8"},
		"of its own":        {health, "127.0.0.1"},
		"no header":         {"", ""},
		"not a header":      {"PROXY UDP9 192.0.2.7\r\n", ""},
		"half of an header": {"PROXY TCP4 192.0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				who := func(w http.ResponseWriter, r *http.Request) error { return respondWith(Client(r).String())(w, r) }
				public, inside := control("GET", "/who", who), control("GET", "/inside", who)
				public.Scope, inside.Scope, public.Public = "", "", PublicTiles
				f := newFixture(t, []Route{public, inside}, func(o *Options) {
					o.Authorise, o.Times.Public, o.Times.TrustedProxies, o.Times.ProxyProtocol = knowsCallers, []string{"tiles"}, []string{"127.0.0.1"}, true
				}).listen(func(o *ListenOptions) { o.ProxyProtocol = true })
				client := f.dial()
				client.send("%s", c.header+"GET /who HTTP/1.1\r\nHost: maps.example\r\nX-Forwarded-For: 203.0.113.9\r\n\r\nGET /inside HTTP/1.1\r\nHost: maps.example\r\n\r\n")
				r, err := client.tryReceive("GET")
				if c.want == "" {
					if err == nil && r.StatusCode == 200 {
						t.Errorf("it was served: %s", r.body)
					}
					f.wantMetric(1, "rejected_total", "reason", "proxy_header")
					return
				}
				if err != nil || r.body != c.want && c.want != "127.0.0.1" {
					t.Fatalf("%v %s", err, r.body)
				}
				client.receive().wantRefusal(t, 401, "Unauthorized")
				if r := newClient(t, f.mem.dial(t, "192.0.2.9:1")).get("/who"); r.body != "192.0.2.9" {
					t.Errorf("past the proxy: %d %s", r.StatusCode, r.body)
				}
			})
		})
	}
}

// The limits of connections are those of the client that the header names, and
// not of the proxy: otherwise nobody would have any behind it.
func TestConnectionsBehindTheProxyProtocolAreThoseOfTheirClient(t *testing.T) {
	for name, limit := range map[string]func(*Limits){
		"conns_per_ip": func(l *Limits) { l.ConnsPerIP = 2 },
		"open_rate":    func(l *Limits) { l.OpenRate, l.OpenBurst = 1, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, []Route{control("GET", "/who", func(w http.ResponseWriter, r *http.Request) error { return respondWith(Client(r).String())(w, r) })}, func(o *Options) {
					o.Times.TrustedProxies, o.Times.ProxyProtocol = []string{"127.0.0.1", "198.51.100.1"}, true
					limit(&o.Limits)
				}).listen(func(o *ListenOptions) { o.ProxyProtocol = true })
				ask := func(who string) (*client, error) {
					c := f.dial()
					c.send("PROXY TCP4 %s 127.0.0.1 4711 8080\r\nGET /who HTTP/1.1\r\nHost: maps.example\r\n\r\n", who)
					r, err := c.tryReceive("GET")
					if err == nil && r.body != who {
						t.Errorf("%s is %s", who, r.body)
					}
					return c, err
				}
				var first *client
				for i := range 2 {
					c, err := ask("192.0.2.7")
					if err != nil {
						t.Fatalf("connection %d: %v", i, err)
					}
					first = cmp.Or(first, c)
				}
				if _, err := ask("192.0.2.7"); err == nil {
					t.Error("a connection beyond the limit was served")
				}
				f.wantMetric(1, "rejected_total", "reason", name)
				if !strings.Contains(f.logs.String(), "client=192.0.2.7") {
					t.Errorf("the log does not name the client: %s", f.logs)
				}
				if _, err := ask("192.0.2.8"); err != nil {
					t.Errorf("another client: %v", err)
				}
				for range 4 {
					if _, err := ask("198.51.100.1"); err != nil {
						t.Errorf("a proxy behind the proxy: %v", err)
					}
				}
				first.Close()
				time.Sleep(time.Second) // one more connection may be opened
				synctest.Wait()
				if _, err := ask("192.0.2.7"); err != nil {
					t.Errorf("after one was closed: %v", err)
				}
			})
		})
	}
}

// Without TLS, only proxies may connect from elsewhere: all others are closed,
// counted and named in the log. A reload changes who they are.
func TestAListenerForProxiesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := control("GET", "/who", func(w http.ResponseWriter, r *http.Request) error {
			return respondWith(fmt.Sprint(Client(r), " ", BaseURL(r)))(w, r)
		})
		inside := control("GET", "/inside", respondWith("inside"))
		who.Scope, inside.Scope, who.Public = "", "", PublicTiles
		f := newFixture(t, []Route{who, inside}, func(o *Options) {
			o.Authorise, o.Times.Public, o.Times.TrustedProxies = knowsCallers, []string{"tiles"}, []string{"10.0.0.1"}
		})
		f.mem = newMemListener()
		f.mem.addr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.9:8080"))
		f.serve(f.server.Attach(f.mem, ListenOptions{Name: "http", Addr: "10.0.0.9:8080", ProxiesOnly: true}))
		proxy := f.dialFrom(1)
		if r := proxy.get("/who", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"); r.body != "192.0.2.7 https://localhost" {
			t.Errorf("by the proxy: %d %s", r.StatusCode, r.body)
		}
		proxy.get("/inside", "X-Forwarded-For: 127.0.0.1").wantRefusal(t, 401, "Unauthorized")
		proxy.get("/inside").wantRefusal(t, 401, "Unauthorized")
		for range 2 {
			other := newClient(t, f.mem.dial(t, "10.0.0.2:4001"))
			if r, err := other.tryReceive("GET"); err == nil {
				t.Errorf("past the proxy: %d %s", r.StatusCode, r.body)
			}
		}
		f.wantMetric(2, "rejected_total", "reason", "not_a_proxy")
		if n := strings.Count(f.logs.String(), `trusted_proxies = [\"10.0.0.2\"]`); n != 1 {
			t.Errorf("the log: %d times in %s", n, f.logs)
		}
		times := f.options.Times
		times.TrustedProxies = []string{"10.0.0.0/24"}
		f.server.Reconfigure(times)
		if r := newClient(t, f.mem.dial(t, "10.0.0.2:4001")).get("/who"); r.body != "10.0.0.2 http://localhost" {
			t.Errorf("after a reload: %d %s", r.StatusCode, r.body)
		}
		synctest.Wait()
	})
}

func TestProxySettingsAreChecked(t *testing.T) {
	for _, change := range []func(*HTTP){
		func(h *HTTP) { h.TrustedProxies = []string{"nginx"} }, func(h *HTTP) { h.TrustedProxies = []string{"10.0.0.0/99"} },
		func(h *HTTP) { h.ProxyProtocol = true }, func(h *HTTP) { h.PublicURL = "maps.example.org" }, func(h *HTTP) { h.PublicURL = "https://a.example/?x" },
		func(h *HTTP) { h.PublicURL = "https://u:p@a.example" },
	} {
		times := DefaultHTTP()
		change(&times)
		if times.Validate() == nil {
			t.Errorf("%+v %q", times.TrustedProxies, times.PublicURL)
		}
	}
}
