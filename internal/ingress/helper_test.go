package ingress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"micronode/fault"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// fixture is a server with everything around it.
type fixture struct {
	t         testing.TB
	inventory *flow.Inventory
	metrics   *observe.Metrics
	logs      *bytes.Buffer
	options   Options
	server    *Server

	mem      *memListener
	listener *Listener
	served   chan error
	cancel   context.CancelFunc
}

// allowAll allows everything, as on a playground.
func allowAll(context.Context, AuthRequest) error { return nil }

// newFixture makes a server for routes. A change may alter the options.
func newFixture(t testing.TB, routes []Route, changes ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, inventory: flow.NewInventory(), metrics: observe.NewMetrics(observe.Build{}), logs: new(bytes.Buffer)}
	table, err := NewTable(routes...)
	if err != nil {
		t.Fatal(err)
	}
	f.options = Options{
		Service: "gateway", Name: "http", Table: table, Times: DefaultHTTP(), Limits: DefaultLimits(), Authorise: allowAll,
		Inventory: f.inventory, Metrics: f.metrics, Logger: slog.New(slog.NewTextHandler(f.logs, nil)),
	}
	f.metrics.Attach(observe.Sources{Inventory: f.inventory})
	for _, change := range changes {
		change(&f.options)
	}
	if f.server, err = New(f.options); err != nil {
		t.Fatal(err)
	}
	return f
}

// listen serves in memory until the test ends.
func (f *fixture) listen(changes ...func(*ListenOptions)) *fixture {
	f.t.Helper()
	f.mem = newMemListener()
	o := ListenOptions{Name: "http", Addr: "127.0.0.1:8080", Warm: true}
	for _, change := range changes {
		change(&o)
	}
	f.serve(f.server.Attach(f.mem, o))
	return f
}

// listenTCP serves on a real port of loopback until the test ends.
func (f *fixture) listenTCP(changes ...func(*ListenOptions)) *fixture {
	f.t.Helper()
	o := ListenOptions{Name: "http", Addr: "127.0.0.1:0", Warm: true}
	for _, change := range changes {
		change(&o)
	}
	l, err := f.server.Listen(context.Background(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.serve(l)
	return f
}

func (f *fixture) serve(l *Listener) {
	f.listener, f.served = l, make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() { f.served <- l.Serve(ctx) }()
	f.t.Cleanup(f.stop)
}

// stop ends the listener, gracefully if possible.
func (f *fixture) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f.listener.Drain(ctx)
	f.cancel()
	<-f.served
}

// dial connects in memory from one of our own addresses.
func (f *fixture) dial() *client {
	return newClient(f.t, f.mem.dial(f.t, "127.0.0.1:4001"))
}

// dialFrom connects in memory from the address of another client.
func (f *fixture) dialFrom(n int) *client {
	return newClient(f.t, f.mem.dial(f.t, fmt.Sprintf("10.0.%d.%d:4001", n>>8, n&255)))
}

// dialReal connects over the loopback interface.
func (f *fixture) dialReal() *client {
	f.t.Helper()
	c, err := net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	return newClient(f.t, c)
}

// client sends HTTP literally.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func newClient(t testing.TB, c net.Conn) *client {
	t.Cleanup(func() { c.Close() })
	return &client{c, t, bufio.NewReader(c)}
}

// send writes text as it stands.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// reply is an answer, read whole.
type reply struct {
	*http.Response
	body string
}

// receive reads one answer.
func (c *client) receive() reply {
	c.t.Helper()
	r, err := c.tryReceive("GET")
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	return r
}

func (c *client) tryReceive(method string) (reply, error) {
	response, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response, string(body)}, err
}

// get requests a path on one connection, with more headers if need be.
func (c *client) get(path string, headers ...string) reply {
	c.t.Helper()
	return c.ask("GET", path, headers...)
}

func (c *client) ask(method, path string, headers ...string) reply {
	c.t.Helper()
	c.send("%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method, path, lines(headers))
	r, err := c.tryReceive(method)
	if err != nil {
		c.t.Fatalf("%s %s: no answer: %v", method, path, err)
	}
	return r
}

func lines(headers []string) string {
	all := ""
	for _, h := range headers {
		all += h + "\r\n"
	}
	return all
}

// post sends a body of known length.
func (c *client) post(path, body string, headers ...string) reply {
	c.t.Helper()
	c.send("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), lines(headers), body)
	return c.receive()
}

// closed reports whether the server has closed the connection.
func (c *client) closed() bool {
	_, err := c.r.ReadByte()
	return err != nil
}

// problem reads an answer as the document that the contract promises.
func (r reply) problem(t testing.TB) observe.Problem {
	t.Helper()
	var p observe.Problem
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("status %d with content type %q: %s", r.StatusCode, got, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	if p.Status != r.StatusCode || p.CorrID == "" || p.CorrID != r.Header.Get("X-Corr-ID") || p.Next == "" {
		t.Errorf("status %d, header %q, but the document says %+v", r.StatusCode, r.Header.Get("X-Corr-ID"), p)
	}
	return p
}

// wantRefusal checks that an answer is a refusal of a kind.
func (r reply) wantRefusal(t testing.TB, status int, code string) observe.Problem {
	t.Helper()
	p := r.problem(t)
	if r.StatusCode != status || p.Code != code {
		t.Fatalf("%d %s (%s), want %d %s", r.StatusCode, p.Code, p.Detail, status, code)
	}
	return p
}

// metric reads one series; labels are name, value, name, value, …
func (f *fixture) metric(name string, labels ...string) float64 {
	f.t.Helper()
	families, err := f.metrics.Gatherer().Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			if has(m, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.Label {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// wantMetric checks one series.
func (f *fixture) wantMetric(want float64, name string, labels ...string) {
	f.t.Helper()
	if got := f.metric(name, labels...); got != want {
		f.t.Errorf("%s%v = %v, want %v", name, labels, got, want)
	}
}

// respondWith is a handler that answers with a text.
func respondWith(text string) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/plain")
		_, err := io.WriteString(w, text)
		return err
	}
}

// fails is a handler that returns an error.
func fails(err error) Handler {
	return func(http.ResponseWriter, *http.Request) error { return err }
}

// control is a route for tests.
func control(methods, pattern string, handler Handler) Route {
	return Route{Service: "gateway", Methods: strings.Fields(methods), Pattern: pattern, Class: Control, Scope: "test:write", Handler: handler}
}

// echo answers with the body of the request.
func echo(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain")
	_, err = w.Write(text)
	return err
}

// recordAuth allows everything and records the last AuthRequest.
func recordAuth(into *AuthRequest) Authorise {
	return func(_ context.Context, ask AuthRequest) error {
		*into = ask
		return nil
	}
}

// refuseAll allows nothing.
func refuseAll(context.Context, AuthRequest) error { return fault.Unauthorized }
