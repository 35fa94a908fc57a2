package ingress

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

// A client that a limit rejects is a line in the log, once a minute, with the limit
// and the setting.
func TestARefusedClientIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1, 1 }).listen()
		lines := func() int { return strings.Count(f.logs.String(), "a limit rejects a client") }
		flood := func(c *client) {
			for range 5 {
				c.get("/x")
			}
		}
		flood(newClient(t, f.mem.dial(t, "192.0.2.9:1")))
		if text := f.logs.String(); lines() != 1 || !strings.Contains(text, "192.0.2.9") || !strings.Contains(text, "limits.rate") || !strings.Contains(text, "requests of one client in a second") {
			t.Errorf("logged\n%s", text)
		}
		flood(newClient(t, f.mem.dial(t, "192.0.2.10:1")))
		if lines() != 2 {
			t.Errorf("another client makes %d lines", lines())
		}
		time.Sleep(time.Minute)
		flood(newClient(t, f.mem.dial(t, "192.0.2.9:2")))
		if lines() != 3 || !strings.Contains(f.logs.String(), "also_refused") {
			t.Errorf("after a minute there are %d lines:\n%s", lines(), f.logs)
		}
	})
}

func TestEveryLimitNamesItsSetting(t *testing.T) {
	plain, stream, read := &mountedRoute{}, &mountedRoute{route: Route{Class: Stream}}, &mountedRoute{route: Route{Cheap: true}}
	for _, c := range []struct {
		route   *mountedRoute
		err     error
		setting string
	}{
		{plain, errRate, "limits.rate"}, {plain, errWork, "limits.work_rate"}, {plain, errWorkShare, "limits.work_rate"},
		{plain, errPublicWork, "limits.public_work"}, {plain, errHeld, "limits.memory"}, {plain, errHeldLarge, "limits.memory"},
		{plain, errClientShare, "limits.inflight"}, {plain, errInflight, "limits.inflight"}, {stream, errClientShare, "limits.streams"}, {stream, errInflight, "limits.streams"},
		{read, errReads, "limits.reads"}, {read, errReadsShare, "limits.reads_waiting"}, {plain, errLaneShare, ""},
		{plain, Limited("fetches in a second", "limits.work_rate", fault.New("y", fault.RateLimited, "too many")), "limits.work_rate"},
	} {
		if what, isLimit := c.route.limitOf(fault.Wrap("x", c.err)); !isLimit || what.limit == "" || what.setting != c.setting {
			t.Errorf("%v: %+v, want %s", c.err, what, c.setting)
		}
	}
	if what, isLimit := plain.limitOf(fault.New("x", fault.QuotaExceeded, "the capability is used up")); !isLimit || what.limit != "the capability is used up" {
		t.Errorf("%+v", what)
	}
	if _, isLimit := plain.limitOf(fault.NotFound); isLimit {
		t.Error("what is not there is no limit")
	}
}

func TestARefusedClientIsItsNetwork(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
	f.server.noteRefusedClient(netip.MustParseAddr("2001:db8:1:2:3:4:5:6"), connLimits["conns_per_ip"])
	f.server.noteRefusedClient(netip.MustParseAddr("2001:db8:1:2:ffff::1"), connLimits["conns_per_ip"])
	f.server.noteRefusedClient(netip.Addr{}, connLimits["max_conns"])
	text := f.logs.String()
	if strings.Count(text, "a limit rejects a client") != 2 || !strings.Contains(text, "2001:db8:1:2::/64") || !strings.Contains(text, "limits.conns_per_ip") {
		t.Errorf("logged\n%s", text)
	}
}

// wantRefusal checks that the log and the status name a limit, and its setting.
func (f *fixture) wantRefusal(limit, setting string) {
	f.t.Helper()
	if text := f.logs.String(); !strings.Contains(text, "a limit rejects a client") || !strings.Contains(text, limit) || !strings.Contains(text, setting) {
		f.t.Errorf("the log does not name %q and %q:\n%s", limit, setting, text)
	}
	for _, one := range f.server.refusals.Recent(time.Now()) {
		if one.Limit == limit && one.Setting == setting && one.Client != "" && one.Count > 0 {
			return
		}
	}
	f.t.Errorf("the status does not name %q and %q", limit, setting)
}
