package ingress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

// knowsCallers is an authoriser like the node's.
func knowsCallers(_ context.Context, auth AuthRequest) error {
	if auth.Scope == "" && (auth.Loopback || auth.Verified || auth.Public) || auth.Local || auth.Token == "good" {
		return nil
	}
	return fault.New("test", fault.Unauthorized, "who is it")
}

// publicFixture has a route of a group, one without, and one that spends. It
// listens where everybody can connect.
func publicFixture(t *testing.T, changes ...func(*Options)) *fixture {
	return publicFixtureOn(t, ListenOptions{Name: "http", Addr: "192.0.2.1:8080"}, changes...)
}

func publicFixtureOn(t *testing.T, on ListenOptions, changes ...func(*Options)) *fixture {
	spend := func(w http.ResponseWriter, r *http.Request) error {
		if err := Spend(r.Context()); err != nil {
			return err
		}
		return respondWith(strconv.FormatBool(IsStranger(r)))(w, r)
	}
	tile, inside, spending := control("GET", "/tile", respondWith("tile")), control("GET", "/inside", respondWith("inside")), control("GET", "/spend", spend)
	tile.Scope, inside.Scope, spending.Scope = "", "", ""
	tile.Public, spending.Public = PublicTiles, PublicAssets
	changes = append([]func(*Options){func(o *Options) {
		o.Authorise, o.Times.Public = knowsCallers, []string{"tiles", "assets"}
	}}, changes...)
	f := newFixture(t, []Route{tile, inside, spending}, changes...)
	f.mem = newMemListener()
	f.mem.addr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(on.Addr))
	f.serve(f.server.Attach(f.mem, on))
	return f
}

// Strangers read the groups that are public, and nothing else.
func TestWhatStrangersMayRead(t *testing.T) {
	f := publicFixture(t)
	c := f.dialFrom(1)
	if r := c.get("/tile"); r.body != "tile" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	c.get("/inside").wantRefusal(t, 401, "Unauthorized")
	if r := c.get("/inside", "Authorization: Bearer good"); r.body != "inside" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	closed := publicFixture(t, func(o *Options) { o.Times.Public = nil })
	closed.dialFrom(1).get("/tile").wantRefusal(t, 401, "Unauthorized")
	other := publicFixture(t, func(o *Options) { o.Times.Public = []string{"registry"} })
	other.dialFrom(1).get("/tile").wantRefusal(t, 401, "Unauthorized")
}

// What costs more than a read is for callers of whom something is known.
func TestWhoMaySpend(t *testing.T) {
	f := publicFixture(t)
	c := f.dialFrom(1)
	c.get("/spend").wantRefusal(t, 401, "Unauthorized")
	c.get("/spend", "Authorization: Bearer bad").wantRefusal(t, 401, "Unauthorized")
	if r := c.get("/spend", "Authorization: Bearer good"); r.body != "false" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	c.get("/spend", "Authorization: Bearer good", StrangerHeader+": 1").wantRefusal(t, 401, "Unauthorized") // it only loses rights
	local := newFixture(t, f.options.Table.Routes(), func(o *Options) { o.Authorise, o.Times.Public = knowsCallers, []string{"assets"} }).listen()
	if r := local.dial().get("/spend"); r.body != "false" {
		t.Errorf("on loopback: %d %s", r.StatusCode, r.body)
	}
}

// A greedy stranger leaves work for the next one.
func TestStrangersShareTheirWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := publicFixture(t, func(o *Options) { o.Limits.PublicWork = 10 })
		greedy := 0
		for c, i := f.dialFrom(1), 0; i < 20; i++ {
			switch r := c.get("/spend"); r.StatusCode {
			case 200:
				greedy++
			case 429:
				if r.Header.Get("Retry-After") == "" {
					t.Errorf("nobody says when: %v", r.Header)
				}
			default:
				t.Fatalf("%d %s", r.StatusCode, r.body)
			}
		}
		if greedy != 5 {
			t.Errorf("one stranger alone had %d of 10", greedy)
		}
		if r := f.dialFrom(2).get("/spend"); r.body != "true" {
			t.Errorf("and the next %d %s", r.StatusCode, r.body)
		}
		time.Sleep(time.Second)
		if r := f.dialFrom(1).get("/spend"); r.body != "true" {
			t.Errorf("a second later: %d %s", r.StatusCode, r.body)
		}
		synctest.Wait()
	})
}

func TestPublicGroupsAreChecked(t *testing.T) {
	times := DefaultHTTP()
	times.Public = []string{"tiles", "admin"}
	if err := times.Validate(); err == nil || !strings.Contains(err.Error(), "admin") {
		t.Error(err)
	}
	limits := DefaultLimits()
	limits.PublicWork = -1
	if limits.Validate() == nil {
		t.Error("a rate below zero")
	}
	for _, group := range UsualPublic {
		if !slices.Contains(PublicGroups, group) {
			t.Errorf("%s is not documented", group)
		}
	}
	write, open, odd := control("PUT", "/x", echo), control("GET", "/x", respondWith("x")), control("GET", "/x", respondWith("x"))
	write.Scope, write.Public, open.Scope, open.Open, open.Public, odd.Public = "a:b", PublicTiles, "", true, PublicTiles, "inside"
	for _, route := range []Route{write, open, odd} {
		if _, err := NewTable(route); err == nil {
			t.Errorf("%v was mounted", route.Methods)
		}
	}
}

// A listener without TLS in a private network is for reads of its groups, with
// a capability too: that must not be sent there.
func TestAListenerForReadsOnly(t *testing.T) {
	health := control("GET", "/healthz", respondWith("well"))
	health.Scope, health.Open = "", true
	f := publicFixtureOn(t, ListenOptions{Name: "lan1", Addr: "192.168.0.1:8080", ReadsOnly: true, Public: UsualPublic}, func(o *Options) {
		o.Times.Public = nil
		o.Table, _ = NewTable(append(o.Table.Routes(), control("PUT", "/w", echo), health)...)
	})
	c := f.dialFrom(1)
	if r := c.get("/tile", "Origin: https://page.example"); r.body != "tile" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%d %s %v", r.StatusCode, r.body, r.Header)
	}
	c.get("/inside").wantRefusal(t, 403, "RejectPolicy")
	c.get("/inside", "Authorization: Bearer good").wantRefusal(t, 403, "RejectPolicy")
	if r := c.get("/healthz", "Authorization: Bearer good"); r.body != "well" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := c.get("/spend", "Authorization: Bearer good"); r.StatusCode != 401 {
		t.Errorf("what was sent in clear text lets it spend: %d %s", r.StatusCode, r.body)
	}
	c.send("PUT /w HTTP/1.1\r\nHost: 192.168.0.1\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\n\r\nhi")
	c.receive().wantRefusal(t, 403, "RejectPolicy")
}
