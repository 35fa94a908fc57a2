package ingress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"micronode/fault"
	"micronode/internal/flow"
)

func TestAnswersAndErrors(t *testing.T) {
	f := newFixture(t, []Route{
		control("GET", "/ok", respondWith("fine")),
		control("GET", "/busy", fails(fault.New("store.put", fault.Busy, "no room"))),
		control("GET", "/bug", fails(errors.New("/root/secret: not found"))),
		control("GET POST", "/o/{b3}", respondWith("o")),
		control("GET", "/panic", func(http.ResponseWriter, *http.Request) error { panic("oh") }),
	}).listen()
	c := f.dial()

	if r := c.get("/ok"); r.StatusCode != 200 || r.body != "fine" || len(r.Header.Get("X-Corr-ID")) != 32 {
		t.Errorf("%d %q, X-Corr-ID %q", r.StatusCode, r.body, r.Header.Get("X-Corr-ID"))
	}
	if r := c.get("/ok", "X-Corr-ID: my-own-id-1"); r.Header.Get("X-Corr-ID") != "my-own-id-1" {
		t.Errorf("a well-formed ID must come back, got %q", r.Header.Get("X-Corr-ID"))
	}
	if r := c.get("/ok", "X-Corr-ID: no spaces!"); r.Header.Get("X-Corr-ID") == "no spaces!" || len(r.Header.Get("X-Corr-ID")) != 32 {
		t.Errorf("a malformed ID must be replaced, got %q", r.Header.Get("X-Corr-ID"))
	}
	busy := c.get("/busy")
	if p := busy.wantRefusal(t, 429, "Busy"); p.Op != "store.put" || p.Detail != "no room" || !p.Retryable || busy.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v, Retry-After %q", p, busy.Header.Get("Retry-After"))
	}
	if p := c.get("/bug").wantRefusal(t, 500, "Internal"); strings.Contains(p.Detail, "secret") {
		t.Errorf("the text of a cause must not be shown: %+v", p)
	}
	c.get("/nowhere").wantRefusal(t, 404, "NotFound")
	wrong := c.ask("DELETE", "/o/x")
	wrong.wantRefusal(t, 405, "MethodNotAllowed")
	if allow := wrong.Header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "HEAD") || !strings.Contains(allow, "POST") {
		t.Errorf("Allow: %q", allow)
	}
	c.ask("OPTIONS", "*").wantRefusal(t, 400, "Malformed")

	c = f.dial()
	c.get("/panic").wantRefusal(t, 500, "Internal")
	if !strings.Contains(f.logs.String(), "oh") {
		t.Errorf("a panic must be logged: %s", f.logs)
	}
	if r := c.get("/ok"); r.body != "fine" {
		t.Errorf("after a panic the connection goes on, got %q", r.body)
	}

	f.wantMetric(4, "http_requests_total", "route", "/ok", "method", "GET", "status", "200")
	f.wantMetric(1, "http_requests_total", "route", "/busy", "status", "429")
	f.wantMetric(1, "http_requests_total", "route", "none", "status", "404")
	f.wantMetric(1, "http_requests_total", "route", "none", "status", "405")
	f.wantMetric(0, "inflight_requests", "route", "/ok")
}

// A handler that fails in the middle of its answer must not leave the client
// with something that looks whole.
func TestAHalfAnswerIsCut(t *testing.T) {
	half := func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, strings.Repeat("x", 8<<10))
		http.NewResponseController(w).Flush()
		return fault.IntegrityFail
	}
	f := newFixture(t, []Route{control("GET", "/half", half), control("GET", "/oops", func(w http.ResponseWriter, r *http.Request) error {
		io.WriteString(w, "x")
		http.NewResponseController(w).Flush()
		panic("late")
	})}).listen()
	for _, path := range []string{"/half", "/oops"} {
		c := f.dial()
		c.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		if r, err := c.tryReceive("GET"); err == nil {
			t.Errorf("%s: read to the end without an error: %d bytes", path, len(r.body))
		}
	}
	f.wantMetric(1, "io_errors_total", "service", "gateway", "op", "cut")
}

func TestTheServerIsAHandler(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/who", func(w http.ResponseWriter, r *http.Request) error {
		if Client(r).IsValid() || Local(r) {
			t.Errorf("client %v, local %t, without a connection", Client(r), Local(r))
		}
		return WriteJSON(w, 200, map[string]int{"n": 1})
	})})
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, httptest.NewRequest("GET", "/who", nil))
	if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"n":1}` || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	if c := Client(httptest.NewRequest("GET", "/", nil)); c.IsValid() || Local(httptest.NewRequest("GET", "/", nil)) {
		t.Error("a request from elsewhere has no client of ours")
	}
}

func TestAuthorise(t *testing.T) {
	var asked []AuthRequest
	allow := func(_ context.Context, ask AuthRequest) error {
		asked = append(asked, ask)
		switch {
		case ask.Token == "good", ask.Scope == "":
			return nil
		case ask.Token == "narrow":
			return fault.Forbidden
		case ask.Token == "spent":
			return fault.QuotaExceeded
		}
		return fault.Unauthorized
	}
	inventory := flow.NewInventory()
	lane := flow.NewLane(inventory, flow.LaneSpec{Service: "overlay", Name: "publish", Running: 1})
	publish := Route{Service: "overlay", Methods: []string{"POST"}, Pattern: "/overlay/publish/{topic...}", Class: Control,
		Scope: "overlay:pub", Topic: "topic", Lane: lane, Handler: respondWith("published")}
	open := Route{Service: "gateway", Methods: []string{"GET", "POST"}, Pattern: "/open", Class: Control, Open: true, Handler: respondWith("open")}
	read := Route{Service: "gateway", Methods: []string{"GET"}, Pattern: "/read", Class: Control, Handler: respondWith("read")}
	f := newFixture(t, []Route{publish, open, read}, func(o *Options) { o.Authorise = allow }).listen()
	c := f.dial()

	const path = "/overlay/publish/a/b"
	if r := c.post(path, "", "Authorization: bearer  good"); r.body != "published" {
		t.Errorf("a good token: %d %s", r.StatusCode, r.body)
	}
	if got := asked[0]; got.Scope != "overlay:pub" || got.Topic != "a/b" || got.Path != path || got.Method != "POST" ||
		got.ClientIP.String() != "127.0.0.1" || !got.Loopback || got.Local || got.Verified {
		t.Errorf("asked %+v", got)
	}
	none := c.post(path, "")
	none.wantRefusal(t, 401, "Unauthorized")
	if none.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Error("a 401 must say how to authenticate")
	}
	c.post(path, "", "Authorization: Bearer narrow").wantRefusal(t, 403, "Forbidden")
	c.post(path, "", "Authorization: Bearer spent").wantRefusal(t, 429, "QuotaExceeded")
	c.post(path, "", "Authorization: Basic good").wantRefusal(t, 401, "Unauthorized")
	c.post(path, "", "Authorization: Bearer good", "Authorization: Bearer good").wantRefusal(t, 401, "Unauthorized")
	c.post(path+"?token=good&access_token=good", "", "Cookie: token=good").wantRefusal(t, 401, "Unauthorized")
	if r := c.get("/open"); r.body != "open" {
		t.Errorf("an open route asks nobody: %d", r.StatusCode)
	}
	if n := len(asked); n != 7 {
		t.Errorf("asked %d times, want 7: an open route asks nobody", n)
	}
	if r := c.get("/read"); r.body != "read" {
		t.Errorf("a read has no scope: %d", r.StatusCode)
	}
	if accepted := inventory.Read()[0].Accepted; accepted != 1 {
		t.Errorf("%d entered the lane: nothing is queued for one who may not", accepted)
	}
	if strings.Contains(f.logs.String(), "good") || strings.Contains(f.logs.String(), "narrow") {
		t.Error("a token got into the log")
	}
	f.wantMetric(4, "rejected_total", "service", "overlay", "reason", "unauthorized")
	f.wantMetric(1, "rejected_total", "service", "overlay", "reason", "forbidden")
	f.wantMetric(1, "rejected_total", "service", "overlay", "reason", "quota")
}

// Two requests of a route run at a time, and three of the server: one more is
// rejected at once, and counted where the operator looks.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		wait := func(w http.ResponseWriter, r *http.Request) error {
			<-hold
			return respondWith("done")(w, r)
		}
		narrow := control("GET", "/narrow", wait)
		narrow.Concurrency = 2
		f := newFixture(t, []Route{narrow, control("GET", "/wide", wait)}, func(o *Options) { o.Limits.Inflight = 3 }).listen()
		var clients []*client
		start := func(path string) *client {
			c := f.dialFrom(1 + len(clients)) // a single client would not get all slots
			c.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			clients = append(clients, c)
			synctest.Wait()
			return c
		}
		start("/narrow")
		start("/narrow")
		f.wantMetric(2, "inflight_requests", "route", "/narrow")
		over := f.dial().get("/narrow")
		over.wantRefusal(t, 429, "Busy")
		if over.Header.Get("Retry-After") == "" {
			t.Error("Busy without Retry-After")
		}
		start("/wide")
		f.dial().get("/wide").wantRefusal(t, 429, "Busy")
		f.wantMetric(1, "busy_rejections_total", "endpoint", "/narrow")
		f.wantMetric(1, "busy_rejections_total", "endpoint", "/wide")
		f.wantMetric(2, "rejected_total", "reason", "busy")
		close(hold)
		for _, c := range clients {
			if r := c.receive(); r.body != "done" {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
		if r := clients[0].get("/narrow"); r.body != "done" {
			t.Errorf("the places must be free again: %d", r.StatusCode)
		}
		f.wantMetric(0, "inflight_requests", "route", "/narrow")
	})
}

func TestALaneOfARoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var entered atomic.Int32
		route := control("GET", "/x", func(w http.ResponseWriter, r *http.Request) error {
			entered.Add(1)
			<-hold
			return respondWith("done")(w, r)
		})
		route.Lane = flow.NewLane(flow.NewInventory(), flow.LaneSpec{Service: "edge", Name: "x", Running: 1, Waiting: 1})
		f := newFixture(t, []Route{route}).listen()
		first, second := f.dial(), f.dial()
		first.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		second.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		f.dial().get("/x").wantRefusal(t, 429, "Busy")
		if entered.Load() != 1 {
			t.Errorf("%d run, the lane is for one", entered.Load())
		}
		second.receive().wantRefusal(t, 504, "Timeout") // it waited until its deadline
		close(hold)
		if r := first.receive(); r.body != "done" {
			t.Errorf("%d", r.StatusCode)
		}
	})
}
