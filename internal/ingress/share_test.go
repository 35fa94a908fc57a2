package ingress

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
)

// blockingHandler is a handler that holds its slot.
func blockingHandler() (Handler, func()) {
	let := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) error {
		<-let
		return respondWith("done")(w, r)
	}, func() { close(let) }
}

// holdSlots sends n requests from n connections of one client, or of as many
// clients.
func (f *fixture) holdSlots(n int, from func(i int) *client) (running, refused int) {
	f.t.Helper()
	all := make([]*client, n)
	for i := range all {
		all[i] = from(i)
		all[i].send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
	}
	running = int(f.metric("inflight_requests", "route", "/hold"))
	return running, n - running
}

// One client does not get what others need, nor does one route; and health
// routes and the local socket are served when all slots are taken.
func TestShares(t *testing.T) {
	const places = 20
	for name, c := range map[string]struct {
		from    func(f *fixture) func(int) *client
		running int
	}{
		"a client":        {func(f *fixture) func(int) *client { return func(int) *client { return f.dialFrom(1) } }, places / 2},
		"two clients":     {func(f *fixture) func(int) *client { return func(i int) *client { return f.dialFrom(1 + i%2) } }, 2 * (places + 1) / 3},
		"a popular route": {func(f *fixture) func(int) *client { return f.dialFrom }, 18},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held, let := blockingHandler()
				health := control("GET", "/healthz", respondWith("alive"))
				health.Open, health.Vital, health.Scope = true, true, ""
				hold := control("GET", "/hold", held)
				hold.Deadline = time.Hour
				routes := []Route{hold, control("GET", "/x", respondWith("x")), health}
				for i := range 8 {
					wait := hold
					wait.Pattern = fmt.Sprintf("/wait%d", i)
					routes = append(routes, wait)
				}
				f := newFixture(t, routes, func(o *Options) { o.Limits.Inflight = places }).listen()
				defer let()
				running, refused := f.holdSlots(2*places, c.from(f))
				if running != c.running {
					t.Errorf("%d run, want %d of %d", running, c.running, places)
				}
				f.wantMetric(float64(refused), "rejected_total", "reason", "share")
				f.wantMetric(float64(refused), "busy_rejections_total", "endpoint", "/hold")
				f.dialFrom(1).get("/hold").wantRefusal(t, 429, "Busy")
				if r := f.dialFrom(200).get("/x"); r.body != "x" {
					t.Errorf("somebody else: %d %s", r.StatusCode, r.body)
				}
				for i := range places { // others, until nothing is left
					f.dialFrom(300+i).send("GET /wait%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i%8)
					synctest.Wait()
				}
				if n := f.laneInUse("http_inflight"); n != places {
					t.Errorf("%d of %d places are taken", n, places)
				}
				f.dialFrom(400).get("/x").wantRefusal(t, 429, "Busy")
				if r := f.dialFrom(1).get("/healthz"); r.body != "alive" {
					t.Errorf("health: %d %s", r.StatusCode, r.body)
				}
			})
		})
	}
}

// However many are greedy on one route, a slot on it is free for the next
// client, and slots are left for other routes.
func TestAGreedyCrowdDoesNotCloseARoute(t *testing.T) {
	const places = 100
	synctest.Test(t, func(t *testing.T) {
		held, let := blockingHandler()
		hold := control("GET", "/hold", held)
		hold.Deadline = time.Hour
		f := newFixture(t, []Route{hold, control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Limits.Inflight = places }).listen()
		defer let()
		if running, _ := f.holdSlots(2*places, func(i int) *client { return f.dialFrom(1 + i%5) }); running != 80 {
			t.Errorf("five greedy clients have %d of %d places", running, places)
		}
		if running, _ := f.holdSlots(20, func(i int) *client { return f.dialFrom(10 + i) }); running != 88 {
			t.Errorf("with those who come later there are %d", running)
		}
		if r := f.dialFrom(99).get("/x"); r.body != "x" {
			t.Errorf("another route: %d %s", r.StatusCode, r.body)
		}
	})
}

// The local socket is outside of all shares.
func TestTheLocalSocketHasNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, let := blockingHandler()
		hold := control("GET", "/hold", held)
		hold.Deadline = time.Hour
		f := newFixture(t, []Route{hold}, func(o *Options) { o.Limits.Inflight = 2 }).listen(func(o *ListenOptions) { o.Local = true })
		defer let()
		if running, _ := f.holdSlots(8, func(int) *client { return f.dial() }); running != 8 {
			t.Errorf("%d of 8 run", running)
		}
		if n := f.laneInUse("http_inflight"); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}

// One client does not get all the slots of a lane in which bodies come as
// slowly as it likes, and slots that it has released are free for all.
func TestALaneOfBodiesIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, let := blockingHandler()
		hold := transfer("GET", "/hold", held)
		hold.Deadline = time.Hour
		hold.Lane = flow.NewLane(flow.NewInventory(), flow.LaneSpec{Service: "edge", Name: "x", Running: 8, Waiting: 8})
		f := newFixture(t, []Route{hold}, func(o *Options) { o.Limits.Inflight = 1000 }).listen()
		if running, _ := f.holdSlots(20, func(int) *client { return f.dialFrom(1) }); running != 4 {
			t.Errorf("one client has %d of 8 places", running)
		}
		f.wantMetric(16, "rejected_total", "reason", "share")
		if running, _ := f.holdSlots(10, func(i int) *client { return f.dialFrom(2) }); running != 6 {
			t.Errorf("two clients have %d of 8 places", running)
		}
		let()
		synctest.Wait()
		for range 10 { // released slots are free again
			if r := f.dialFrom(1).get("/hold"); r.StatusCode != 200 {
				t.Errorf("afterwards: %d %s", r.StatusCode, r.body)
			}
		}
	})
}

// Released slots are free for the same client again.
func TestSharesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Limits.Inflight = 2 }).listen()
		c := f.dial()
		for range 20 {
			if r := c.get("/x"); r.StatusCode != 200 {
				t.Fatalf("%d %s", r.StatusCode, r.body)
			}
		}
	})
}

// A probe of the admin plane gets through, however many idle connections there
// are. Those with a request under way stay.
func TestSilenceGivesWay(t *testing.T) {
	for name, first := range map[string]string{"silent": "", "half a header": "GET /x HT", "idle": "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held, let := blockingHandler()
				f := newFixture(t, []Route{control("GET", "/x", respondWith("x")), control("GET", "/hold", held)}, func(o *Options) {
					o.Limits.ConnsPerIP, o.Exempt = 4, true
				}).listen()
				busy := f.dial()
				busy.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n")
				for range 3 {
					f.dial().send("%s", first)
					synctest.Wait()
				}
				for range 5 {
					if r, err := probe(f.dial()); err != nil || r.body != "x" {
						t.Errorf("a probe: %v %v", r.body, err)
					}
					synctest.Wait() // until net/http reports it idle
				}
				let()
				if r := busy.receive(); r.body != "done" {
					t.Errorf("what was being answered: %d", r.StatusCode)
				}
				f.wantMetric(5, "rejected_total", "reason", "gave_way")
			})
		})
	}
}

func probe(c *client) (reply, error) {
	c.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return c.tryReceive("GET")
}

// One address opens connections at a bounded rate, and with TLS at a lower one:
// the rest are closed before the handshake.
func TestOpenRate(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t)
				f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) {
					o.Limits.OpenRate, o.Limits.OpenBurst, o.Limits.HandshakeRate, o.Limits.HandshakeBurst = 2, 6, 1, 3
				})
				burst, second := 6, 2
				if secure {
					ring := f.keyring(a.issue("server"))
					f.listen(func(o *ListenOptions) { o.TLS = ring })
					burst, second = 3, 1
				} else {
					f.listen()
				}
				count := func(n int) (let int) {
					for range n {
						if f.canConnect(a, secure, "10.0.0.1:1") {
							let++
						}
					}
					return let
				}
				if got := count(2 * burst); got != burst {
					t.Errorf("%d at once, want %d", got, burst)
				}
				f.wantMetric(float64(burst), "rejected_total", "reason", "open_rate")
				if !f.canConnect(a, secure, "10.0.0.2:1") {
					t.Error("another address is refused")
				}
				time.Sleep(time.Second)
				if got := count(burst); got != second {
					t.Errorf("%d after a second, want %d", got, second)
				}
			})
		})
	}
}

// canConnect opens a connection, sends a request, and closes it.
func (f *fixture) canConnect(a *authority, secure bool, from string) bool {
	f.t.Helper()
	conn, err := f.mem.connect(from)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	var over net.Conn = conn
	if secure {
		shaken := tls.Client(conn, &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
		if shaken.Handshake() != nil {
			return false
		}
		over = shaken
	}
	c := newClient(f.t, over)
	if _, err := c.Write([]byte("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		return false
	}
	_, err = c.tryReceive("GET")
	return err == nil
}
