package ingress

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := control("GET", "/x", respondWith("x"))
		read.Scope = ""
		f := newFixture(t, []Route{read}, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 5, 10 }).listen()
		burst := func(c *client) (served int) {
			for range 15 {
				if r := c.get("/x"); r.StatusCode == 200 {
					served++
				} else {
					r.wantRefusal(t, 429, "RateLimited")
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
		f.wantMetric(5, "rejected_total", "reason", "rate_limit")
		// Neither another connection nor a new one resets the limit.
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
		if n := burst(newClient(t, f.mem.dial(t, "10.0.0.9:1"))); n != 10 {
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
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) {
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
			r := control("GET", pattern, respondWith("x"))
			r.Service, r.Queued = service, true
			return r
		}
		f := newFixture(t, []Route{queued("index", "/a"), queued("index", "/b"), queued("edge", "/c"), control("GET", "/free", respondWith("x"))},
			func(o *Options) { o.Limits.WorkRate = 3 }).listen()
		c := f.dialFrom(1)
		for i, path := range []string{"/a", "/b", "/a"} {
			if r := f.dialFrom(1 + i).get(path); r.StatusCode != 200 {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
		f.dialFrom(4).get("/b").wantRefusal(t, 429, "RateLimited")
		for _, path := range []string{"/c", "/free"} {
			if r := c.get(path); r.StatusCode != 200 {
				t.Errorf("%s is not of that service's queue: %d", path, r.StatusCode)
			}
		}
		f.wantMetric(1, "rejected_total", "service", "index", "reason", "work_rate")
	})
}

// One client does not get all the work of a service, unless it is alone;
// however greedy others are, some is left for the next client.
func TestWorkIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := control("GET", "/a", respondWith("x"))
		queued.Queued = true
		f := newFixture(t, []Route{queued}, func(o *Options) { o.Limits.WorkRate, o.Limits.Rate, o.Limits.Burst = 100, 1_000_000, 1_000_000 }).listen()
		served := func(c *client, n int) (good int) {
			for range n {
				if c.get("/a").StatusCode == 200 {
					good++
				}
			}
			return good
		}
		greedy := f.dialFrom(1)
		if n := served(greedy, 200); n != 50 {
			t.Errorf("one client had %d pieces of work of 100 done at once", n)
		}
		var alone int
		for range 500 { // five seconds
			time.Sleep(10 * time.Millisecond)
			alone += served(greedy, 2)
		}
		if alone < 400 || alone > 550 {
			t.Errorf("one client alone had %d pieces of work done in five seconds, at a rate of 100", alone)
		}
		polite := f.dialFrom(2)
		others := []*client{greedy, f.dialFrom(3), f.dialFrom(4), f.dialFrom(5)}
		for i := range 200 {
			time.Sleep(10 * time.Millisecond)
			for _, one := range others {
				served(one, 3)
			}
			if i%10 == 0 && served(polite, 1) != 1 {
				t.Fatalf("after %d ms beside four greedy clients, a polite one is refused", 10*i)
			}
		}
	})
}

// An unauthorised client spends nothing of a service's rate.
func TestStrangersSpendNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := control("GET", "/a", respondWith("x"))
		queued.Queued = true
		f := newFixture(t, []Route{queued}, func(o *Options) {
			o.Limits.WorkRate = 4
			o.Authorise = func(_ context.Context, ask AuthRequest) error {
				if ask.Token == "" {
					return fault.New("test", fault.Unauthorized, "no token")
				}
				return nil
			}
		}).listen()
		for i := range 20 {
			f.dialFrom(1+i).get("/a").wantRefusal(t, 401, "Unauthorized")
		}
		if r := f.dialFrom(1).get("/a", "Authorization: Bearer x"); r.StatusCode != 200 {
			t.Errorf("who may is told %d %s", r.StatusCode, r.body)
		}
	})
}

// The table of addresses is bounded, whatever clients do.
func TestIdleClientsAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		limits.MaxConns, limits.ConnsPerIP = 8, 2
		p := newClientTable(limits, false, firstLaneShare)
		var first *clientState
		for i := range 100 {
			one, why := p.acquire(netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i)), false)
			if why != "" {
				t.Fatal("refused")
			}
			if i == 0 {
				first = one
				continue
			}
			p.release(one)
		}
		if n := len(p.byNetwork); n > 1+8 {
			t.Errorf("%d addresses are kept for 1 connection and a memory of 8", n)
		}
		time.Sleep(6 * time.Second) // more than any bucket takes to fill
		p.release(first)
		again, _ := p.acquire(netip.MustParseAddr("10.0.0.0"), false)
		if again != first {
			t.Error("an address that has just left must keep its bucket")
		}
		p.release(again)
		time.Sleep(6 * time.Second)
		other, _ := p.acquire(netip.MustParseAddr("10.9.9.9"), false)
		if len(p.byNetwork) != 1 || p.idle.Len() != 0 {
			t.Errorf("%d known, %d gone: all but one should be forgotten", len(p.byNetwork), p.idle.Len())
		}
		if _, why := p.acquire(netip.MustParseAddr("10.9.9.9"), false); why != "" {
			t.Error("a second connection is allowed")
		}
		if _, why := p.acquire(netip.MustParseAddr("10.9.9.9"), false); why != "conns_per_ip" {
			t.Error("a third is not")
		}
		p.release(other)
	})
}

func TestAnIPv6NetworkIsOneClient(t *testing.T) {
	a, b, c := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff:1"), netip.MustParseAddr("2001:db8:0:1::1")
	if clientNetwork(a) != clientNetwork(b) || clientNetwork(a) == clientNetwork(c) {
		t.Errorf("%v %v %v", clientNetwork(a), clientNetwork(b), clientNetwork(c))
	}
	if ip := netip.MustParseAddr("10.0.0.1"); clientNetwork(ip) != ip {
		t.Errorf("%v", clientNetwork(ip))
	}
}
