package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
)

// stuckHandler is a handler that ignores its context, as one that waits for a
// disk would.
type stuckHandler struct {
	waiting chan struct{} // has one for each waiting handler
	release chan struct{} // closed when all may go on
	results chan error    // the results of their writes after that
}

func newStuckHandler() *stuckHandler {
	return &stuckHandler{waiting: make(chan struct{}, 64), release: make(chan struct{}), results: make(chan error, 64)}
}

// silent gets stuck before its answer.
func (s *stuckHandler) silent(w http.ResponseWriter, _ *http.Request) error {
	s.waiting <- struct{}{}
	<-s.release
	w.Header().Set("X-Late", "yes")
	_, err := io.WriteString(w, "too late")
	s.results <- err
	return err
}

// reading reads the body first.
func (s *stuckHandler) reading(w http.ResponseWriter, r *http.Request) error {
	_, _ = io.Copy(io.Discard, r.Body)
	return s.silent(w, r)
}

// begun gets stuck in its answer.
func (s *stuckHandler) begun(w http.ResponseWriter, r *http.Request) error {
	_, _ = io.WriteString(w, "half")
	_ = http.NewResponseController(w).Flush()
	return s.silent(w, r)
}

// events is a stream whose source is stuck.
func (s *stuckHandler) events(w http.ResponseWriter, r *http.Request) error {
	return SSE(w, r, func(context.Context) (Event, error) {
		s.waiting <- struct{}{}
		<-s.release
		s.results <- nil
		return Event{}, io.EOF
	})
}

func (s *stuckHandler) routes() []Route {
	stream := Route{Service: "gateway", Methods: []string{"GET"}, Pattern: "/events", Class: Stream, Handler: s.events}
	quiet := stream
	quiet.Pattern, quiet.Handler = "/quiet", s.silent
	return []Route{
		control("GET POST", "/control", s.silent), control("GET", "/half", s.begun), transfer("GET", "/transfer", s.silent),
		transfer("POST", "/upload", s.reading), transfer("GET", "/download", s.begun), stream, quiet, control("GET", "/well", respondWith("well")),
	}
}

// newTaskGroup is a group that is never drained.
func newTaskGroup(t testing.TB, most int) *supervise.Group {
	t.Helper()
	s, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "intake"}}, DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	group, err := s.NewGroup(supervise.GroupSpec{Service: "gateway", Kind: "handler", Stage: "intake", Max: most, Finish: true})
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// protocols are the protocols of the tests.
var protocols = map[string]struct{ tls, http2 bool }{"HTTP/1.1": {}, "HTTP/1.1 over TLS": {tls: true}, "HTTP/2": {tls: true, http2: true}}

// httpClient is a client over memory.
func (f *fixture) httpClient(a *authority, secure, http2 bool) (*http.Client, string) {
	f.t.Helper()
	scheme, change := "http", func(*ListenOptions) {}
	if secure {
		ring := f.keyring(a.issue("server"))
		scheme, change = "https", func(o *ListenOptions) { o.TLS = ring }
	}
	f.listen(change)
	over := new(http.Protocols)
	over.SetHTTP1(!http2)
	over.SetHTTP2(http2)
	transport := &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return f.mem.connect("127.0.0.1:4001") },
		TLSClientConfig: &tls.Config{RootCAs: a.pool}, Protocols: over,
	}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}, scheme + "://localhost"
}

// Whatever a handler does, the request is answered at the deadline: each class,
// each version of the protocol, with and without a begun answer.
func TestStuckHandlersAreAnsweredFor(t *testing.T) {
	times := DefaultHTTP()
	cases := map[string]struct {
		method, path string
		body         int
		begun        bool
		after        time.Duration
	}{
		"control":                      {"GET", "/control", 0, false, times.Deadline + overrunGrace},
		"control, with a body":         {"POST", "/control", 4 << 10, false, times.Deadline + overrunGrace},
		"control, begun":               {"GET", "/half", 0, true, times.Deadline + writingGrace},
		"transfer":                     {"GET", "/transfer", 0, false, times.FirstByte + overrunGrace},
		"transfer, after the upload":   {"POST", "/upload", 1 << 20, false, times.Progress + overrunGrace},
		"transfer, begun":              {"GET", "/download", 0, true, times.Progress + writingGrace},
		"stream":                       {"GET", "/quiet", 0, false, times.FirstByte + overrunGrace},
		"stream whose events are late": {"GET", "/events", 0, true, times.Heartbeat + times.Progress + writingGrace},
	}
	for version, over := range protocols {
		for name, c := range cases {
			t.Run(version+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStuckHandler()
					f := newFixture(t, s.routes(), func(o *Options) { o.Tasks = newTaskGroup(t, 64) })
					web, base := f.httpClient(newAuthority(t), over.tls, over.http2)
					r, _ := http.NewRequest(c.method, base+c.path, io.LimitReader(zeros{}, int64(c.body)))
					r.ContentLength = int64(c.body)
					from := time.Now()
					answer, err := web.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					text, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					took := time.Since(from)
					if over.http2 && c.begun && c.path != "/events" {
						time.Sleep(c.after - took) // the write deadline of the stream has cut it before
						took = c.after
					}
					if took != c.after {
						t.Errorf("answered after %s, want %s", took, c.after)
					}
					synctest.Wait()
					if c.begun {
						if err == nil {
							t.Errorf("half an answer looks whole: %q", text)
						}
					} else {
						if err != nil {
							t.Errorf("the refusal is cut: %v", err)
						}
						reply{answer, string(text)}.wantRefusal(t, 504, "Timeout")
						f.wantMetric(1, "http_requests_total", "route", c.path, "status", "504")
						if !over.http2 && !answer.Close {
							t.Error("the connection stays, with a handler on it")
						}
					}
					f.wantMetric(1, "stuck_handlers", "route", c.path)
					f.wantMetric(1, "request_overruns_total", "route", c.path)
					f.wantMetric(0, "inflight_requests", "route", c.path)
					if got := f.laneInUse("http_stuck"); got != 1 {
						t.Errorf("%d are in the inventory", got)
					}

					// Other requests are served, and when the handler returns
					// it has no effect.
					if well, text := fetch(t, web, base+"/well"); well.StatusCode != 200 || text != "well" || well.Header.Get("X-Late") != "" {
						t.Errorf("%d %q", well.StatusCode, text)
					}
					close(s.release)
					if err := <-s.results; err == nil && c.path != "/events" {
						t.Error("the handler believes that it has answered")
					}
					time.Sleep(time.Second)
					f.wantMetric(0, "stuck_handlers", "route", c.path)
					if got := f.laneInUse("http_stuck"); got != 0 {
						t.Errorf("%d are left in the inventory", got)
					}
				})
			})
		}
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// laneInUse is how many are in a lane.
func (f *fixture) laneInUse(lane string) int {
	for _, one := range f.inventory.Read() {
		if one.Name == lane {
			return one.Counts.Inside
		}
	}
	f.t.Fatalf("no lane %s", lane)
	return 0
}

// A route with stuck handlers refuses at once; the others do not.
func TestARouteThatIsStuckRefuses(t *testing.T) {
	for version, over := range protocols {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStuckHandler()
				f := newFixture(t, s.routes(), func(o *Options) { o.Tasks, o.Limits.Stuck = newTaskGroup(t, 64), 3 })
				web, base := f.httpClient(newAuthority(t), over.tls, over.http2)
				ask := func(path string) int {
					answer, err := web.Get(base + path)
					if err != nil {
						t.Fatal(err)
					}
					text, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					if err != nil {
						t.Fatal(err)
					}
					if answer.StatusCode == 503 {
						reply{answer, string(text)}.wantRefusal(t, 503, "Backpressure")
						if answer.Header.Get("Retry-After") == "" {
							t.Error("nobody says when to come back")
						}
					}
					return answer.StatusCode
				}
				for range 3 {
					if got := ask("/control"); got != 504 {
						t.Fatal(got)
					}
				}
				from := time.Now()
				if got := ask("/control"); got != 503 || time.Since(from) != 0 {
					t.Errorf("%d after %s", got, time.Since(from))
				}
				f.wantMetric(1, "rejected_total", "reason", "stuck")
				if got := ask("/well"); got != 200 {
					t.Errorf("another route: %d", got)
				}
				close(s.release)
				time.Sleep(time.Second)
				if got := ask("/control"); got != 200 {
					t.Errorf("after they came back: %d", got)
				}
			})
		})
	}
}

// Stuck handlers that do not fit into the lane keep their slots, so that the
// number of handlers stays bounded.
func TestStuckHandlersKeepTheirSlots(t *testing.T) {
	for version, over := range protocols {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStuckHandler()
				f := newFixture(t, s.routes(), func(o *Options) { o.Tasks, o.Limits.Stuck = newTaskGroup(t, 64), 1 })
				web, base := f.httpClient(newAuthority(t), over.tls, over.http2)
				const many = stuckRoutes + 2
				statuses := make(chan int, many)
				for range many {
					go func() {
						answer, err := web.Get(base + "/control")
						if err != nil {
							statuses <- 0
							return
						}
						answer.Body.Close()
						statuses <- answer.StatusCode
					}()
				}
				for range many {
					if got := <-statuses; got != 504 {
						t.Errorf("%d", got)
					}
				}
				if in, held := f.laneInUse("http_stuck"), f.laneInUse("http_inflight"); in != stuckRoutes || held != many-stuckRoutes {
					t.Errorf("%d are stuck and %d keep their places", in, held)
				}
				close(s.release)
				time.Sleep(time.Second)
				if in, held := f.laneInUse("http_stuck"), f.laneInUse("http_inflight"); in != 0 || held != 0 {
					t.Errorf("%d and %d are left", in, held)
				}
			})
		})
	}
}

// A drain waits for handlers that are stuck, and reports those that are left.
func TestADrainReportsStuckHandlers(t *testing.T) {
	for version, over := range protocols {
		for _, comesBack := range []bool{true, false} {
			t.Run(version, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, stone := newSupervisor(t), newStuckHandler()
					group, err := s.NewGroup(supervise.GroupSpec{Service: "gateway", Kind: "handler", Stage: "intake", Max: 8, Finish: true})
					if err != nil {
						t.Fatal(err)
					}
					f := newFixture(t, stone.routes(), func(o *Options) { o.Tasks = group })
					done := make(chan *supervise.Report, 1)
					go func() { report, _ := s.Run(context.Background()); done <- report }()
					web, base := f.httpClient(newAuthority(t), over.tls, over.http2)
					if answer, _ := fetch(t, web, base+"/control"); answer.StatusCode != 504 {
						t.Fatal(answer.Status)
					}
					s.Shutdown("test")
					if comesBack {
						time.Sleep(time.Second)
						close(stone.release)
					}
					report := <-done
					left := strings.Contains(report.String(), "gateway.handler (1 task)")
					if left == comesBack {
						t.Errorf("came back: %v\n%s", comesBack, report)
					}
					if !comesBack {
						close(stone.release)
					}
				})
			})
		}
	}
}

func newSupervisor(t testing.TB) *supervise.Supervisor {
	t.Helper()
	s, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "intake"}}, DrainTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A handler on a goroutine of its own is otherwise like any other.
func TestDetachedHandler(t *testing.T) {
	fails := fault.New("test", fault.InvalidRange, "no such bytes")
	routes := []Route{
		control("GET", "/error", func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("X-Said", "yes")
			return fails
		}),
		control("GET", "/nothing", func(w http.ResponseWriter, _ *http.Request) error { w.Header().Set("X-Said", "yes"); return nil }),
		control("GET", "/panic", func(http.ResponseWriter, *http.Request) error { panic("oh") }),
		control("GET", "/waits", waitForDeadline), control("GET", "/well", respondWith("well")),
		control("GET", "/abort", func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "half")
			return errors.New("and no more")
		}),
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, routes, func(o *Options) { o.Tasks = newTaskGroup(t, 1) })
		web, base := f.httpClient(newAuthority(t), true, true)
		for path, want := range map[string]int{"/error": 416, "/nothing": 200, "/panic": 500, "/waits": 504, "/well": 200} {
			from := time.Now()
			answer, _ := fetch(t, web, base+path)
			synctest.Wait() // the group has room for one
			if answer.StatusCode != want || answer.Header.Get("X-Corr-ID") == "" {
				t.Errorf("%s: %d %v", path, answer.StatusCode, answer.Header)
			}
			if (path == "/error" || path == "/nothing") && answer.Header.Get("X-Said") == "" {
				t.Errorf("%s: the handler's own headers are lost: %v", path, answer.Header)
			}
			if path == "/waits" && time.Since(from) != DefaultHTTP().Deadline {
				t.Errorf("one that listens to its context answered after %s", time.Since(from))
			}
		}
		f.wantMetric(0, "request_overruns_total", "route", "/waits")
		answer, err := web.Get(base + "/abort")
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		if err == nil {
			t.Error("half an answer looks whole")
		}
		if !strings.Contains(f.logs.String(), "overrun_test.go") {
			t.Errorf("the log does not say where it panicked: %s", f.logs)
		}
	})
}

// A request that is answered in the moments after its deadline leaves no
// deadline on its connection: behind a proxy, the next request on it is
// somebody else's.
func TestALateAnswerLeavesAGoodConnection(t *testing.T) {
	times := DefaultHTTP()
	answersLate := func(after time.Duration) Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(after + overrunGrace/2)
			w.WriteHeader(http.StatusCreated)
			return nil
		}
	}
	refusesUnread := func(http.ResponseWriter, *http.Request) error { return fault.New("test", fault.Conflict, "no") }
	routes := []Route{
		control("POST", "/control", answersLate(times.Deadline)), transfer("POST", "/transfer", answersLate(times.Progress)),
		control("POST", "/refused", refusesUnread), control("GET", "/well", respondWith("well")),
	}
	for version, over := range protocols {
		if over.http2 {
			continue
		}
		for path, status := range map[string]int{"/control": http.StatusCreated, "/transfer": http.StatusCreated, "/refused": http.StatusConflict} {
			for coding, length := range map[string]int64{"sized": 8 << 10, "chunked": -1} {
				t.Run(version+" "+path+" "+coding, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFixture(t, routes)
						web, base := f.httpClient(newAuthority(t), over.tls, false)
						r, _ := http.NewRequest("POST", base+path, io.LimitReader(zeros{}, 8<<10))
						r.ContentLength = length
						answer, err := web.Do(r)
						if err != nil {
							t.Fatal(err)
						}
						_, _ = io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
						unseen := over.tls && length < 0 // after chunks over TLS the connection is closed in any case
						if answer.StatusCode != status || answer.Close != unseen {
							t.Errorf("%d, and the connection is closed: %t", answer.StatusCode, answer.Close)
						}
						if well, text := fetch(t, web, base+"/well"); well.StatusCode != 200 || text != "well" {
							t.Errorf("the next request: %d %q", well.StatusCode, text)
						}
					})
				})
			}
		}
	}
}

// A connection on which a deadline passed while net/http read ahead is closed
// after the answer, and says so.
func TestAConnectionWhoseReadTimedOutIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("POST", "/late", func(w http.ResponseWriter, r *http.Request) error {
			_, _ = io.Copy(io.Discard, r.Body)
			callOf(r.Context()).setReadDeadline(time.Now().Add(time.Millisecond)) // as by a watchdog that expires at this moment
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusCreated)
			return nil
		}), control("GET", "/well", respondWith("well"))})
		f.listen()
		c := f.dial()
		c.send("POST /late HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi")
		if late := c.receive(); late.StatusCode != http.StatusCreated || !late.Close {
			t.Errorf("%d, and the connection is closed: %t", late.StatusCode, late.Close)
		}
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("the connection stays open: %v", err)
		}
	})
}
