package ingress

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", answers("x"))}, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 5, 10 }).listen()
		burst := func(c *client) (served int) {
			for range 15 {
				if r := c.get("/x"); r.StatusCode == 200 {
					served++
				} else {
					r.refused(t, 429, "RateLimited")
					if r.Header.Get("Retry-After") != "1" {
						t.Errorf("Retry-After: %q", r.Header.Get("Retry-After"))
					}
				}
			}
			return served
		}
		c := f.dial()
		if n := burst(c); n != 10 {
			t.Errorf("%d of a burst were served, want 10", n)
		}
		f.counted(5, "rejected_total", "reason", "rate_limit")
		// Neither another connection nor a new one is a new start.
		if n := burst(f.dial()); n != 0 {
			t.Errorf("a second connection got %d more", n)
		}
		for _, open := range []*client{c} {
			open.Close()
		}
		synctest.Wait()
		if n := burst(f.dial()); n != 0 {
			t.Errorf("after closing, a new connection got %d more", n)
		}
		// Others are unaffected.
		if n := burst(newClient(t, f.memory.dial(t, "10.0.0.9:1"))); n != 10 {
			t.Errorf("another address got %d of its own 10", n)
		}
		time.Sleep(time.Second)
		if n := burst(f.dial()); n != 5 {
			t.Errorf("%d after a second, want 5", n)
		}
	})
}

func TestTheAdminPlaneHasNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", answers("x"))}, func(o *Options) {
			o.Limits.Rate, o.Limits.Burst, o.Limits.Inflight, o.Exempt = 1, 1, 1, true
		}).listen()
		c := f.dial()
		for range 100 {
			if r := c.get("/x"); r.StatusCode != 200 {
				t.Fatalf("%d", r.StatusCode)
			}
		}
	})
}

func TestWorkRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := func(service, pattern string) Route {
			r := control("GET", pattern, answers("x"))
			r.Service, r.Queued = service, true
			return r
		}
		f := newFixture(t, []Route{queued("index", "/a"), queued("index", "/b"), queued("edge", "/c"), control("GET", "/free", answers("x"))},
			func(o *Options) { o.Limits.WorkRate = 3 }).listen()
		c := f.dial()
		for _, path := range []string{"/a", "/b", "/a"} {
			if r := c.get(path); r.StatusCode != 200 {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
		c.get("/b").refused(t, 429, "RateLimited")
		for _, path := range []string{"/c", "/free"} {
			if r := c.get(path); r.StatusCode != 200 {
				t.Errorf("%s is not of that service's queue: %d", path, r.StatusCode)
			}
		}
		f.counted(1, "rejected_total", "service", "index", "reason", "work_rate")
	})
}

// The table of addresses is bounded, whatever strangers do.
func TestPeersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		limits.MaxConns, limits.ConnsPerIP = 8, 2
		p := newPeers(limits, false)
		var first *peer
		for i := range 100 {
			one, ok := p.join(netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i)))
			if !ok {
				t.Fatal("refused")
			}
			if i == 0 {
				first = one
				continue
			}
			p.leave(one)
		}
		if n := len(p.known); n > 1+8 {
			t.Errorf("%d addresses are kept for 1 connection and a memory of 8", n)
		}
		time.Sleep(3 * time.Second) // more than burst/rate
		p.leave(first)
		again, _ := p.join(netip.MustParseAddr("10.0.0.0"))
		if again != first {
			t.Error("an address that has just left must keep its bucket")
		}
		p.leave(again)
		time.Sleep(3 * time.Second)
		other, _ := p.join(netip.MustParseAddr("10.9.9.9"))
		if len(p.known) != 1 || p.gone.Len() != 0 {
			t.Errorf("%d known, %d gone: all but one should be forgotten", len(p.known), p.gone.Len())
		}
		if _, ok := p.join(netip.MustParseAddr("10.9.9.9")); !ok {
			t.Error("a second connection is allowed")
		}
		if _, ok := p.join(netip.MustParseAddr("10.9.9.9")); ok {
			t.Error("a third is not")
		}
		p.leave(other)
	})
}

func TestAnIPv6NetworkIsOneClient(t *testing.T) {
	a, b, c := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff:1"), netip.MustParseAddr("2001:db8:0:1::1")
	if network(a) != network(b) || network(a) == network(c) {
		t.Errorf("%v %v %v", network(a), network(b), network(c))
	}
	if ip := netip.MustParseAddr("10.0.0.1"); network(ip) != ip {
		t.Errorf("%v", network(ip))
	}
}
