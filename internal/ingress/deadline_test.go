package ingress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// waitForDeadline answers with how its context ended.
func waitForDeadline(w http.ResponseWriter, r *http.Request) error {
	<-r.Context().Done()
	return flow.Ended(r.Context(), "test.wait")
}

// timedGet measures an answer in faked time.
func timedGet(t *testing.T, c *client, headers ...string) (time.Duration, reply) {
	t.Helper()
	from := time.Now()
	r := c.get("/wait", headers...)
	return time.Since(from), r
}

func TestControlDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := control("GET", "/slow", waitForDeadline)
		slow.Deadline = 5 * time.Second
		f := newFixture(t, []Route{control("GET", "/wait", waitForDeadline), slow}).listen()
		c := f.dial()
		for name, want := range map[string]struct {
			headers []string
			took    time.Duration
		}{
			"the route's":             {nil, 2 * time.Second},
			"shorter":                 {[]string{"Request-Timeout: 1"}, time.Second},
			"fraction":                {[]string{"Request-Timeout: 0.25"}, 250 * time.Millisecond},
			"never longer":            {[]string{"Request-Timeout: 3600"}, 2 * time.Second},
			"not even absurdly":       {[]string{"Request-Timeout: 99999999999999999999"}, 2 * time.Second},
			"zero":                    {[]string{"Request-Timeout: 0"}, 0},
			"by the clock":            {[]string{"Deadline: " + time.Now().Add(24*time.Hour).Format(time.RFC3339)}, 2 * time.Second},
			"by the clock, passed":    {[]string{"Deadline: 2000-01-01T00:00:00Z"}, 0},
			"both, the sooner counts": {[]string{"Request-Timeout: 1", "Deadline: 2000-01-01T00:00:00Z"}, 0},
		} {
			took, r := timedGet(t, c, want.headers...)
			r.wantRefusal(t, 504, "Timeout")
			if took != want.took {
				t.Errorf("%s: %s, want %s", name, took, want.took)
			}
		}
		at := time.Now().Add(1500 * time.Millisecond)
		if took, _ := timedGet(t, c, "Deadline: "+at.Format(time.RFC3339Nano)); took != 1500*time.Millisecond {
			t.Errorf("a deadline by the clock took %s", took)
		}
		from := time.Now()
		c.get("/slow").wantRefusal(t, 504, "Timeout")
		if took := time.Since(from); took != 5*time.Second {
			t.Errorf("a route's own deadline took %s", took)
		}
		for _, wrong := range []string{"Request-Timeout: soon", "Request-Timeout: -1", "Request-Timeout: 1e9", "Request-Timeout: Inf",
			"Request-Timeout: 1.2.3", "Request-Timeout: ", "Request-Timeout: 1\r\nRequest-Timeout: 2", "Deadline: tomorrow"} {
			c.get("/wait", wrong).wantRefusal(t, 400, "Malformed")
		}
		f.wantMetric(11, "io_timeouts_total", "service", "gateway", "op", "request")
	})
}

// A handler that wraps the end of its context in an error of its own still ends
// as a time-out.
func TestATimeoutIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{{Service: "edge", Methods: []string{"GET"}, Pattern: "/wait", Class: Transfer, Handler: func(w http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			return fault.Wrap("edge.fill", context.Canceled)
		}}}).listen()
		took, r := timedGet(t, f.dial())
		r.wantRefusal(t, 504, "Timeout")
		if took != 5*time.Second {
			t.Errorf("the first byte may take 5s, it took %s", took)
		}
		if took, r = timedGet(t, f.dial(), "Request-Timeout: 1"); took != time.Second || r.StatusCode != 504 {
			t.Errorf("%d after %s", r.StatusCode, took)
		}
	})
}

func TestAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		f := newFixture(t, []Route{control("GET", "/wait", func(w http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			ended <- context.Cause(r.Context())
			return flow.Ended(r.Context(), "wait")
		})}).listen()
		c := f.dial()
		c.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		c.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		f.wantMetric(1, "http_requests_total", "route", "/wait", "status", "499")
		f.wantMetric(0, "http_requests_total", "route", "/wait", "status", "503")
	})
}

// transfer is a route for tests.
func transfer(methods, pattern string, handler Handler) Route {
	r := control(methods, pattern, handler)
	r.Service, r.Class, r.BodyCap = "edge", Transfer, 1<<30
	return r
}

func TestATransferGoesOnWhileItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drip := func(w http.ResponseWriter, r *http.Request) error {
			for range 10 {
				if _, err := io.WriteString(w, strings.Repeat("x", 4<<10)); err != nil {
					return err
				}
				http.NewResponseController(w).Flush()
				if err := flow.Sleep(r.Context(), 4*time.Second); err != nil {
					return err
				}
			}
			return nil
		}
		both := func(w http.ResponseWriter, r *http.Request) error {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return err
			}
			return drip(w, r)
		}
		f := newFixture(t, []Route{transfer("GET", "/drip", drip), transfer("POST", "/echo", echo), transfer("POST", "/both", both)}).listen()
		if r := f.dial().post("/both", noise(50<<10)); len(r.body) != 40<<10 {
			t.Errorf("%d bytes of a long answer to an upload", len(r.body))
		}
		if r := f.dial().get("/drip"); len(r.body) != 40<<10 {
			t.Errorf("%d bytes of a download that took 40s", len(r.body))
		}
		// An upload that takes half a minute.
		c := f.dial()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 10<<10)
		for range 10 {
			time.Sleep(3 * time.Second)
			c.send("%s", noise(1<<10))
		}
		if r := c.receive(); r.StatusCode != 200 || len(r.body) != 10<<10 {
			t.Errorf("%d, %d bytes of an upload that took 30s", r.StatusCode, len(r.body))
		}
	})
}

func TestATransferThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := func(w http.ResponseWriter, r *http.Request) error {
			io.WriteString(w, strings.Repeat("x", 8<<10))
			http.NewResponseController(w).Flush()
			return waitForDeadline(w, r)
		}
		f := newFixture(t, []Route{transfer("GET", "/stop", stop)}).listen()
		c := f.dial()
		from := time.Now()
		c.send("GET /stop HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := c.tryReceive("GET"); err == nil {
			t.Error("half an answer must not look whole")
		}
		if took := time.Since(from); took < 5*time.Second || took > 5*time.Second+2*watchResolution {
			t.Errorf("cut after %s, want 5s without progress", took)
		}
	})
}

// A caller's own deadline bounds an upload, however fast it is.
func TestAnUploadKeepsTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{transfer("POST", "/echo", func(w http.ResponseWriter, r *http.Request) error {
			for r.Context().Err() == nil {
				if _, err := r.Body.Read(make([]byte, 4096)); err != nil {
					return err
				}
			}
			return r.Context().Err()
		})}).listen()
		c := f.dial()
		from := time.Now()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nRequest-Timeout: 3\r\n\r\n")
		time.Sleep(time.Second / 2) // so that the deadline finds the server waiting for bytes
		for range 4 {
			time.Sleep(time.Second)
			c.Write([]byte(noise(2 << 10))) // fails once the server has closed
		}
		c.receive().wantRefusal(t, 408, "RequestTimeout")
		if took := time.Since(from); took > 5*time.Second {
			t.Errorf("took %s, the caller said 3s", took)
		}
	})
}

// It bounds one that stalls, too: at once, or after some progress.
func TestAStalledUploadKeepsTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{transfer("POST", "/echo", echo)}).listen()
		for _, moved := range []int{0, 4 << 10} {
			c := f.dial()
			from := time.Now()
			c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nRequest-Timeout: 2\r\n\r\n")
			time.Sleep(time.Second)
			c.send("%s", noise(moved))
			c.receive().wantRefusal(t, 408, "RequestTimeout")
			if took := time.Since(from); took != 2*time.Second {
				t.Errorf("%d bytes, and then none: answered after %s, and the caller said 2s", moved, took)
			}
		}
		// The caller's deadline does not extend the node's.
		c := f.dial()
		from := time.Now()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nRequest-Timeout: 60\r\n\r\n")
		c.receive().wantRefusal(t, 408, "RequestTimeout")
		if took := time.Since(from); took != 5*time.Second {
			t.Errorf("answered after %s, and the node allows 5s", took)
		}
	})
}

// The body came in time, and the handler waits for something else: the answer
// is about the caller's deadline, not that the client left.
func TestAnUploadThatWaitsForItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{transfer("POST", "/echo", func(w http.ResponseWriter, r *http.Request) error {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return err
			}
			return waitForDeadline(w, r)
		})}).listen()
		c := f.dial()
		from := time.Now()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nRequest-Timeout: 2\r\n\r\nhello")
		c.receive().wantRefusal(t, 504, "Timeout")
		if took := time.Since(from); took != 2*time.Second {
			t.Errorf("answered after %s, and the caller said 2s", took)
		}
	})
}

// Slow-loris: a byte now and then is not progress, neither in a header nor in
// a body.
func TestSlowLoris(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("POST", "/echo", echo), transfer("POST", "/upload", echo), control("GET", "/x", respondWith("x"))}).listen()
		var drips sync.WaitGroup
		defer drips.Wait()
		drip := func(c *client) {
			drips.Go(func() {
				for range 8 {
					time.Sleep(time.Second)
					c.Write([]byte("x"))
				}
			})
		}
		// In the header.
		c := f.dial()
		from := time.Now()
		c.send("GET /x HTTP/1.1\r\nHost: localhost\r\nX-")
		drip(c)
		c.receive().wantRefusal(t, 408, "RequestTimeout")
		if !c.closed() || time.Since(from) != 5*time.Second {
			t.Errorf("a slow header was cut after %s, want 5s", time.Since(from))
		}
		// Between two lines of the header, of the first request and of the next.
		for _, first := range []bool{true, false} {
			if c = f.dial(); !first {
				c.get("/x")
			}
			from = time.Now()
			c.send("GET /x HTTP/1.1\r\nHost: localhost\r\n")
			c.receive().wantRefusal(t, 408, "RequestTimeout")
			if !c.closed() || time.Since(from) != 5*time.Second {
				t.Errorf("a header without an end was cut after %s, want 5s", time.Since(from))
			}
		}
		f.wantMetric(3, "rejected_total", "reason", "slow_header")
		// Before the first byte of the first request.
		c, from = f.dial(), time.Now()
		if !c.closed() || time.Since(from) != 5*time.Second {
			t.Errorf("a silent connection was closed after %s, want 5s", time.Since(from))
		}
		// Between two requests.
		c = f.dial()
		c.get("/x")
		from = time.Now()
		if !c.closed() || time.Since(from) != 60*time.Second {
			t.Errorf("an idle connection was closed after %s, want 60s", time.Since(from))
		}
		// In a body, on a route with one deadline.
		c, from = f.dial(), time.Now()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
		drip(c)
		c.receive().wantRefusal(t, 408, "RequestTimeout")
		if took := time.Since(from); took != 2*time.Second {
			t.Errorf("a slow body on a control route: %s", took)
		}
		// In a body, on a transfer route.
		c, from = f.dial(), time.Now()
		c.send("POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
		drip(c)
		c.receive().wantRefusal(t, 408, "RequestTimeout")
		if took := time.Since(from); took != 5*time.Second {
			t.Errorf("a slow body on a transfer: %s", took)
		}
		f.wantMetric(1, "io_timeouts_total", "service", "edge", "op", "read")
	})
}

// A client that does not read its answer is cut; one that reads slowly is not.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		failed := make(chan error, 1)
		big := func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.WriteString(w, noise(size))
			failed <- err
			return err
		}
		f := newFixture(t, []Route{transfer("GET", "/big", big), control("GET", "/control", big)}).listen()
		for path, want := range map[string]time.Duration{"/big": 5 * time.Second, "/control": 3 * time.Second} {
			c := f.dial()
			from := time.Now()
			c.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			err := <-failed
			if took := time.Since(from); took < want || took > want+2*time.Second || fault.KindOf(err) != fault.Timeout {
				t.Errorf("%s: a client that reads nothing was cut after %s: %v", path, took, err)
			}
		}
		slow := f.dial()
		slow.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		var got int
		for buffer := make([]byte, 16<<10); got < size; time.Sleep(time.Second) {
			n, err := slow.Read(buffer)
			if err != nil {
				t.Fatalf("cut after %d bytes: %v", got, err)
			}
			got += n
		}
	})
}

// Nor can a client hold a connection by an answer before any route, or outside
// of it: a refusal that it does not read, one whose body never comes.
func TestSlowOutsideOfRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}).listen()
		c := f.dial()
		from := time.Now()
		c.send("POST /a/../x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
		if r := c.receive(); r.StatusCode != 400 || !r.Close || r.Header.Get("X-Corr-ID") == "" {
			t.Errorf("%d %v", r.StatusCode, r.Header)
		}
		if !c.closed() || time.Since(from) > 2*time.Second {
			t.Errorf("closed after %s", time.Since(from))
		}
		for name, one := range map[string]string{
			"not found": "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"foreign":   "GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		} {
			c, gone := f.dial(), make(chan time.Duration, 1)
			go func() {
				from := time.Now()
				for {
					if _, err := io.WriteString(c, strings.Repeat(one, 1000)); err != nil {
						gone <- time.Since(from)
						return
					}
				}
			}()
			if took := <-gone; took > 3*time.Second {
				t.Errorf("%s: a client that only asks was cut after %s", name, took)
			}
		}
	})
}
