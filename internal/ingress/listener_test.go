package ingress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestConnectionsPerIP(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}).listenTCP()
	var open []*client
	for range 256 {
		open = append(open, f.dialReal())
	}
	for i, c := range open {
		if r := c.get("/x"); r.StatusCode != 200 {
			t.Fatalf("connection %d: %d", i, r.StatusCode)
		}
	}
	if c := f.dialReal(); !c.closed() {
		t.Error("the 257th connection of an address must be closed at once")
	}
	f.wantMetric(1, "rejected_total", "service", "gateway", "reason", "conns_per_ip")
}

func TestConnSlotsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Limits.ConnsPerIP, o.Limits.MaxConns = 2, 3 }).listen()
		a, b := f.dial(), f.dial()
		if c := f.dial(); !c.closed() {
			t.Error("a third connection of one address")
		}
		other := newClient(t, f.mem.dial(t, "10.0.0.2:1"))
		if r := other.get("/x"); r.StatusCode != 200 {
			t.Errorf("another address is not affected: %d", r.StatusCode)
		}
		// A fourth in all is admitted, because an idle one is closed for it.
		if r := newClient(t, f.mem.dial(t, "10.0.0.3:1")).get("/x"); r.StatusCode != 200 || !a.closed() {
			t.Errorf("%d, and the oldest that was silent is not closed", r.StatusCode)
		}
		f.wantMetric(1, "rejected_total", "reason", "gave_way")
		b.Close()
		synctest.Wait()
		if r := f.dial().get("/x"); r.StatusCode != 200 {
			t.Errorf("a place that was given back: %d", r.StatusCode)
		}
		f.wantMetric(1, "rejected_total", "reason", "conns_per_ip")
		f.wantMetric(1, "busy_rejections_total", "endpoint", "http_conns")
	})
}

func TestPortInUse(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}).listenTCP()
	_, err := f.server.Listen(context.Background(), ListenOptions{Name: "second", Addr: f.listener.Addr().String()})
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), f.listener.Addr().String()) || !strings.Contains(fault.NextOf(err), "--http") {
		t.Errorf("%v. %s", err, fault.NextOf(err))
	}
	_, err = f.server.Listen(context.Background(), ListenOptions{Name: "third", Addr: "203.0.113.7:1"})
	if fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
		t.Errorf("an address that is not ours: %v", err)
	}
	wrong := ListenError("http.listen", "127.0.0.1:80", "--http", os.NewSyscallError("bind", syscall.EACCES))
	if fault.KindOf(wrong) != fault.Forbidden || !strings.Contains(fault.NextOf(wrong), "1024") {
		t.Errorf("%v. %s", wrong, fault.NextOf(wrong))
	}
	if Backlog() < 4096 {
		t.Errorf("the kernel allows a backlog of %d; the contract wants 4096: raise net.core.somaxconn", Backlog())
	}
}

// A listener that is killed reopens the same address. The test uses one of its
// own: between two runs the port is free for every process.
func TestServeAgain(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
	l, err := f.server.Listen(context.Background(), ListenOptions{Name: "http", Addr: "127.83.17.5:0"})
	if err != nil {
		t.Fatal(err)
	}
	f.listener = l
	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- l.Serve(ctx) }()
		c := dialUntil(t, l.Addr().String())
		if r := c.get("/x"); r.body != "x" {
			t.Errorf("%d", r.StatusCode)
		}
		cancel()
		if err := <-served; fault.KindOf(err) != fault.Canceled {
			t.Errorf("%v", err)
		}
		if !c.closed() {
			t.Error("what is killed cuts its connections")
		}
	}
	if err := l.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if err := l.Serve(context.Background()); err != nil {
		t.Errorf("after a drain there is nothing to serve: %v", err)
	}
}

// A killed listener does not run again before all connections are cut: the rest
// of the cut would hit connections of the next run.
func TestServeWaitsUntilAllIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}).listen()
		release := make(chan struct{})
		leave := f.listener.streams.register(func(error) { <-release })
		defer leave()
		synctest.Wait()
		f.cancel()
		synctest.Wait()
		select {
		case err := <-f.served:
			t.Errorf("it returned while a stream was being told: %v", err)
			f.served <- err
		default:
		}
		close(release)
		err := <-f.served
		f.served <- err // for the stop of the fixture
		if fault.KindOf(err) != fault.Canceled {
			t.Error(err)
		}
	})
}

// dialUntil connects as soon as there is a listener.
func dialUntil(t *testing.T, addr string) *client {
	t.Helper()
	var c net.Conn
	testkit.WaitFor(t, "somebody listens", func() bool {
		var err error
		c, err = net.Dial("tcp", addr)
		return err == nil
	})
	return newClient(t, c)
}

// broken is a listener whose Accept fails.
type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, errors.New("no more") }

func TestAListenerThatFails(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := f.server.Attach(broken{inner}, ListenOptions{Name: "given"})
	if err := l.Serve(context.Background()); fault.KindOf(err) != fault.Transient {
		t.Errorf("%v", err)
	}
	if err := l.Serve(context.Background()); fault.KindOf(err) != fault.Internal {
		t.Errorf("a given listener cannot be opened again: %v", err)
	}
}

// What net/http refuses by itself becomes a problem document too.
func TestRefusalsOfNetHTTP(t *testing.T) {
	f := newFixture(t, []Route{control("GET POST", "/x", respondWith("x"))}, func(o *Options) { o.Limits.Header = 4 << 10 }).listen()
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"not HTTP":           {"hello\r\n\r\n", 400},
		"no host":            {"GET /x HTTP/1.1\r\n\r\n", 400},
		"two hosts":          {"GET /x HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
		"bad header":         {"GET /x HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n", 400},
		"large header":       {"GET /x HTTP/1.1\r\nHost: localhost\r\nX-Large: " + noise(16<<10) + "\r\n\r\n", 431},
		"transfer coding":    {"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
		"version":            {"GET /x HTTP/3.0\r\nHost: localhost\r\n\r\n", 505},
		"strange expectance": {"GET /x HTTP/1.1\r\nHost: localhost\r\nExpect: cake\r\n\r\n", 417},
	} {
		conn := f.dial()
		conn.send("%s", c.request)
		conn.receive().wantRefusal(t, c.status, "Malformed")
		if !conn.closed() {
			t.Errorf("%s: the connection must not go on", name)
		}
	}
	f.wantMetric(8, "rejected_total", "reason", "malformed")

	// Bytes of an answer of ours are never taken for a refusal of net/http's.
	lookalike := "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request" + noise(8<<10)
	g := newFixture(t, []Route{control("GET", "/x", func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", fmt.Sprint(len(lookalike)))
		http.NewResponseController(w).Flush()
		_, err := w.Write([]byte(lookalike))
		return err
	})}).listen()
	conn := g.dial()
	for range 2 {
		if r := conn.get("/x"); r.body != lookalike {
			t.Errorf("%d bytes, the answer was changed", len(r.body))
		}
	}
}

func TestErrorLogIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
		g := &errorLog{server: f.server}
		for range 10 {
			fmt.Fprintf(g, "http: TLS handshake error from 10.0.0.1: EOF\n")
		}
		fmt.Fprintf(g, "http: Accept error: too many open files\n")
		time.Sleep(6 * time.Second)
		fmt.Fprintf(g, "http: something else\n")
		if n := strings.Count(f.logs.String(), "\n"); n != 2 || !strings.Contains(f.logs.String(), "not_shown=10") {
			t.Errorf("%d lines: %s", n, f.logs)
		}
		f.wantMetric(10, "io_errors_total", "op", "handshake")
		f.wantMetric(1, "io_errors_total", "op", "accept")
		f.wantMetric(1, "io_errors_total", "op", "http")
	})
}

func TestOnRequestDone(t *testing.T) {
	done := make(chan RequestSummary, 4)
	f := newFixture(t, []Route{control("GET", "/o/{b3}", respondWith("12345"))}, func(o *Options) { o.OnRequestDone = func(a RequestSummary) { done <- a } }).listen()
	c := f.dial()
	r := c.get("/o/secret-name")
	if a := <-done; a.Route != "/o/{b3}" || a.Service != "gateway" || a.Status != 200 || a.Bytes != 5 || a.Method != "GET" ||
		a.CorrID != r.Header.Get("X-Corr-ID") || a.Client.String() != "127.0.0.1" || a.Local {
		t.Errorf("%+v", a)
	}
	c.get("/nowhere")
	if a := <-done; a.Route != "none" || a.Service != "gateway" || a.Status != 404 {
		t.Errorf("%+v", a)
	}
}

// As node does it.
func TestUnderASupervisor(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
	l, err := f.server.Listen(context.Background(), ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "ingress"}}, DrainTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "ingress", Serve: l.Serve, Drain: l.Drain}); err != nil {
		t.Fatal(err)
	}
	done := make(chan *supervise.Report)
	go func() {
		report, _ := s.Run(context.Background())
		done <- report
	}()
	c := dialUntil(t, l.Addr().String())
	if r := c.get("/x"); r.body != "x" {
		t.Errorf("%d", r.StatusCode)
	}
	s.Shutdown("test")
	report := <-done
	if report.Err != nil || !c.closed() {
		t.Errorf("%+v", report)
	}
	for _, count := range s.Counts() {
		if count.Aborted > 0 || count.Failed > 0 {
			t.Errorf("%+v", count)
		}
	}
}
