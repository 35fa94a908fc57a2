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
	for _, err := range []error{errRate, errWork, errWorkShare, errClientShare, errInflight} {
		if what, isLimit := requestLimit(fault.Wrap("x", err)); !isLimit || !strings.HasPrefix(what.setting, "limits.") {
			t.Errorf("%v: %+v", err, what)
		}
	}
	if what, isLimit := requestLimit(fault.New("x", fault.QuotaExceeded, "the capability is used up")); !isLimit || what.limit != "the capability is used up" {
		t.Errorf("%+v", what)
	}
	if _, isLimit := requestLimit(fault.NotFound); isLimit {
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
