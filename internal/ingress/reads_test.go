package ingress

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

// readRoute is a route for what is in memory.
func readRoute(pattern string, handler Handler) Route {
	read := control("GET", pattern, handler)
	read.Scope, read.Cheap = "", true
	return read
}

// Sixty tiles at a time from each of several viewers behind one address wait
// for their turn. Nobody is refused, and the next address is served at once.
func TestReadsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, let := blockingHandler()
		f := newFixture(t, []Route{readRoute("/hold", held), readRoute("/x", respondWith("x"))}, func(o *Options) {
			o.Limits.Reads, o.Limits.ReadsWaiting, o.Limits.Rate, o.Limits.Burst = 8, 240, 1, 1
			o.Times.Deadline = time.Minute
		}).listen()
		viewers := make([]*client, 240)
		for i := range viewers {
			viewers[i] = f.dialFrom(1)
			viewers[i].send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		synctest.Wait()
		f.wantMetric(4, "inflight_requests", "route", "/hold")
		if r := f.dialFrom(2).get("/x"); r.body != "x" {
			t.Errorf("another address: %d %s", r.StatusCode, r.body)
		}
		let()
		for i, c := range viewers {
			if r := c.receive(); r.body != "done" {
				t.Fatalf("the %dth: %d %s", i, r.StatusCode, r.body)
			}
		}
		f.wantMetric(0, "inflight_requests", "route", "/hold")
	})
}

// The waiting has bounds: in number, and in time.
func TestReadsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, let := blockingHandler()
		f := newFixture(t, []Route{readRoute("/hold", held), readRoute("/x", respondWith("x"))}, func(o *Options) {
			o.Limits.Reads, o.Limits.ReadsWaiting, o.Times.Deadline = 2, 2, time.Minute
		}).listen()
		waiting := make([]*client, 3)
		for i := range waiting {
			waiting[i] = f.dialFrom(1)
			waiting[i].send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait()
		}
		f.dialFrom(1).get("/x").wantRefusal(t, 429, "Busy")
		f.wantMetric(1, "rejected_total", "reason", "share")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		r := waiting[2].receive()
		r.wantRefusal(t, 503, "Backpressure")
		if r.Header.Get("Retry-After") == "" {
			t.Errorf("nobody says when to come back: %v", r.Header)
		}
		let()
		synctest.Wait()
		if r := f.dialFrom(1).get("/x"); r.body != "x" {
			t.Errorf("afterwards: %d %s", r.StatusCode, r.body)
		}
	})
}

// A caller on this machine with a capability meets queues, and no rate. Without
// one it may not guess faster than others.
func TestRatesOfThisMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write, queued, read := control("PUT", "/w", echo), control("PUT", "/q", echo), control("GET", "/r", respondWith("r"))
		queued.Queued, read.Scope = true, ""
		f := newFixture(t, []Route{write, queued, read}, func(o *Options) {
			o.Limits.Rate, o.Limits.Burst, o.Limits.WorkRate = 1, 3, 1
			o.Authorise = func(_ context.Context, auth AuthRequest) error {
				if auth.Scope == "" || auth.Token == "good" {
					return nil
				}
				return fault.New("test", fault.Unauthorized, "who is it")
			}
		}).listen()
		put := func(c *client, path, token string) int {
			c.send("PUT %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\nhi", path, token)
			return c.receive().StatusCode
		}
		c := f.dial()
		for range 20 {
			if a, b := put(c, "/w", "good"), put(c, "/q", "good"); a != 200 || b != 200 {
				t.Fatalf("%d, queued %d", a, b)
			}
		}
		for i, want := range []int{401, 401, 401, 429} {
			if got := put(c, "/w", "bad"); got != want {
				t.Errorf("the %dth guess: %d", i, got)
			}
		}
		c.get("/r").wantRefusal(t, 429, "RateLimited")
		other := f.dialFrom(1)
		for i, want := range []int{200, 200, 200, 429} {
			if got := put(other, "/w", "good"); got != want {
				t.Errorf("the %dth from elsewhere: %d", i, got)
			}
		}
	})
}

// What a cheap read costs beyond memory counts against the client's rate.
func TestSpendingIsRated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spend := func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.RawQuery == "" {
				return respondWith("cached")(w, r)
			}
			if err := Spend(r.Context()); err != nil {
				return err
			}
			return respondWith("fetched")(w, r)
		}
		f := newFixture(t, []Route{readRoute("/x", spend)}, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1, 2 }).listen()
		c := f.dialFrom(1)
		for range 2 {
			if r := c.get("/x?miss"); r.body != "fetched" {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
		c.get("/x?miss").wantRefusal(t, 429, "RateLimited")
		for range 10 {
			if r := c.get("/x"); r.body != "cached" {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
	})
}

func TestWhatIsCheap(t *testing.T) {
	write, stream := control("PUT", "/x", echo), control("GET", "/x", respondWith("x"))
	stream.Class, stream.Scope = Stream, ""
	for _, route := range []Route{write, stream} {
		route.Cheap = true
		if _, err := NewTable(route); err == nil {
			t.Errorf("%v of class %s was mounted as cheap", route.Methods, route.Class)
		}
	}
}
