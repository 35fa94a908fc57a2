package fill

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The certificate authority of the tests, and the certificate of every origin.
// They are valid in the year 2000 too, where synctest begins.
var authority = sync.OnceValues(func() ([]byte, tls.Certificate) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	span := func(c *x509.Certificate) *x509.Certificate {
		c.NotBefore, c.NotAfter = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
		return c
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := span(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := span(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "origin"},
		DNSNames: []string{"origin.test", "other.test", "localhost", "*.wild.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// caFile writes the authority to a file that the configuration can name.
func caFile(t testing.TB) string {
	t.Helper()
	text, _ := authority()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tally counts what the cache reports.
type tally struct {
	mu                               sync.Mutex
	hits, misses, coalesced, retries int
	stale, opened                    int
	unwritten, givenUp               int
	filled                           int
	rejects                          map[string]int
	events                           []Event
}

func (c *tally) counters() Counters {
	count := func(n *int) func() {
		return func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			*n++
		}
	}
	filled := count(&c.filled)
	return Counters{Hit: count(&c.hits), Miss: count(&c.misses), Coalesced: count(&c.coalesced), Retry: count(&c.retries), Stale: count(&c.stale), BreakerOpened: count(&c.opened), WriteFailed: count(&c.unwritten), GivenUp: count(&c.givenUp),
		Filled: func(time.Duration) { filled() },
		Reject: func(reason string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.rejects[reason]++
		}}
}

func (c *tally) onEvent(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

func (c *tally) rejected(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejects[reason]
}

func (c *tally) eventsOf(kind EventType) (found []Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Type == kind {
			found = append(found, e)
		}
	}
	return found
}

// fakeNetwork is a network in memory, so that time can be faked: a host is a
// function that gets each connection.
type fakeNetwork struct {
	mu    sync.Mutex
	hosts map[string]func(net.Conn)
	dials int
	conns []net.Conn
	open  atomic.Int64
}

func (f *fakeNetwork) dial(_ context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	host := f.hosts[address]
	if host == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	ours, theirs := net.Pipe()
	f.conns = append(f.conns, ours, theirs)
	f.open.Add(1)
	go host(theirs)
	return &counted{Conn: ours, open: &f.open}, nil
}

// counted is a connection that is counted while it is open.
type counted struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// host sets the function that answers at an address; nil for none.
func (f *fakeNetwork) host(address string, answer func(net.Conn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[address] = answer
}

// cut closes every connection.
func (f *fakeNetwork) cut() {
	f.mu.Lock()
	conns := f.conns
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// listener passes the connections of a host to an http.Server.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

func serverTLS(protocols ...string) *tls.Config {
	_, leaf := authority()
	if len(protocols) == 0 {
		protocols = []string{"h2", "http/1.1"}
	}
	return &tls.Config{Certificates: []tls.Certificate{leaf}, NextProtos: protocols}
}

// quiet keeps the servers of tests from logging.
var quiet = log.New(io.Discard, "", 0)

// fixture is a cache with workers, a network, and an origin that tests control.
type fixture struct {
	t       *testing.T
	timeout time.Duration // of each request
	*Cache
	*tally
	network *fakeNetwork
	store   store.Store
	sup     *supervise.Supervisor
	ended   chan struct{}
	close   []func()

	stopOnce sync.Once
	answers  atomic.Int64 // that the origin is sending

	mu      sync.Mutex
	handler http.HandlerFunc
	asked   []*http.Request // of origin.test and other.test
}

// option changes the spec of a fixture.
type option func(*Spec)

func with(change func(*Config)) option { return func(s *Spec) { change(&s.Config) } }

// pool is how many workers a fixture has, and workers how many of them one
// origin gets while no other is requested.
const (
	pool    = 8
	workers = pool / 2
)

func newFixture(t *testing.T, options ...option) *fixture {
	t.Helper()
	w := makeFixture(t, options...)
	for _, host := range []string{"origin.test:443", "other.test:443", "a.wild.test:443"} {
		w.serve(host)
	}
	w.run()
	return w
}

// newBareFixture has no origin that answers.
func newBareFixture(t *testing.T, options ...option) *fixture {
	t.Helper()
	w := makeFixture(t, options...)
	w.run()
	return w
}

// makeFixture makes a fixture in which nothing runs yet.
func makeFixture(t *testing.T, options ...option) *fixture {
	t.Helper()
	w := &fixture{t: t, timeout: 5 * time.Second, tally: &tally{rejects: map[string]int{}}, network: &fakeNetwork{hosts: map[string]func(net.Conn){}}, ended: make(chan struct{})}
	spec := Spec{Config: DefaultConfig(), Cache: DefaultCacheConfig(), Breaker: DefaultBreakerConfig(), Workers: pool, Allow: []string{"origin.test", "other.test", "*.wild.test"},
		Amnesia: true, OnEvent: w.onEvent, Counters: w.counters(), dial: w.network.dial}
	spec.Config.CAFile = caFile(t)
	spec.Config.Jitter = false
	for _, change := range options {
		change(&spec)
	}
	inv := flow.NewInventory()
	if spec.Store == nil {
		spec.Store = store.NewRAM(store.RAMSpec{Budget: 16 << 20})
	}
	w.store = spec.Store
	var err error
	if w.Cache, err = New(inv, spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.stop)
	return w
}

// run starts the workers.
func (w *fixture) run() {
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "work", DrainTimeout: time.Second}}, DrainTimeout: 2 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	err = sup.AddPool(supervise.Pool{N: w.spec.Workers, NextJob: w.Next,
		Service: supervise.Service{Service: "edge", Name: "worker", Stage: "work", Drain: func(context.Context) error { w.Drain(); return nil }}})
	if err == nil {
		err = sup.Add(supervise.Service{Service: "edge", Name: "warm", Stage: "work", Serve: w.WarmUp})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.sup = sup
	go func() {
		defer close(w.ended)
		_, _ = sup.Run(context.Background())
	}()
}

// stop ends everything, and checks that no handle was left open.
func (w *fixture) stop() { w.stopOnce.Do(w.end) }

func (w *fixture) end() {
	w.sup.Shutdown("the test is over")
	<-w.ended
	if err := w.Cache.Close(); err != nil {
		w.t.Error(err)
	}
	if f := w.Stats().Flights; f != 0 {
		w.t.Errorf("%d flights are still aloft", f)
	}
	if n := w.streaming.used.Load(); n != 0 {
		w.t.Errorf("%d bytes of bodies under way are held by nobody", n)
	}
	for _, end := range w.close {
		end()
	}
	w.network.cut()
	testkit.WaitFor(w.t, "all handlers have returned", func() bool { return w.answers.Load() == 0 }) // they outlive their servers
	_ = w.store.Close()                                                                              // a handle that is open now has leaked
	if left := w.store.Usage().Lingering; left != 0 {
		w.t.Errorf("%d bytes are held open by nobody", left)
	}
}

// serve runs an HTTP server for a host, with either protocol.
func (w *fixture) serve(host string, protocols ...string) {
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{TLSConfig: serverTLS(protocols...), ErrorLog: quiet, Handler: http.HandlerFunc(w.answer)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	w.network.host(host, func(c net.Conn) {
		select {
		case l.conns <- c:
		case <-l.done:
			_ = c.Close()
		}
	})
	w.close = append(w.close, func() { _ = server.Close(); <-done })
}

func (w *fixture) answer(rw http.ResponseWriter, r *http.Request) {
	w.answers.Add(1)
	defer w.answers.Add(-1)
	w.mu.Lock()
	w.asked = append(w.asked, r.Clone(context.Background()))
	handler := w.handler
	w.mu.Unlock()
	if handler == nil {
		rw.WriteHeader(http.StatusTeapot)
		return
	}
	handler(rw, r)
}

// origin sets how the origin answers from now on.
func (w *fixture) origin(h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = h
}

// requests is the requests that the origin has received.
func (w *fixture) requests() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// readAnswer is an answer that was read whole.
type readAnswer struct {
	*Answer
	body string
}

// request is a GET of a path, with headers in pairs.
func request(path string, header ...string) Request {
	path, query, _ := strings.Cut(path, "?")
	r := Request{Host: "origin.test", Path: path, Query: query, Method: http.MethodGet, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// ask sends a request, with the five seconds that the edge has, and reads the
// whole answer.
func (w *fixture) ask(r Request) (readAnswer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	answer, err := w.Get(ctx, r)
	if err != nil {
		return readAnswer{}, err
	}
	defer answer.Close()
	var body writer
	err = answer.WriteRange(&body, 0, answer.Size())
	return readAnswer{answer, string(body)}, err
}

func read(t *testing.T, answer *Answer) readAnswer {
	t.Helper()
	defer answer.Close()
	var body writer
	if err := answer.WriteRange(&body, 0, answer.Size()); err != nil {
		t.Error("reading the answer:", err)
	}
	return readAnswer{answer, string(body)}
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// get sends a request that must succeed.
func (w *fixture) get(path string, header ...string) readAnswer {
	w.t.Helper()
	answer, err := w.ask(request(path, header...))
	if err != nil {
		w.t.Fatalf("GET %s: %v", path, err)
	}
	return answer
}

// wantRefused sends a request that must be refused with a kind and a reason.
func (w *fixture) wantRefused(r Request, kind fault.Kind, reason string) error {
	w.t.Helper()
	before := w.rejected(reason)
	_, err := w.ask(r)
	if fault.KindOf(err) != kind {
		w.t.Errorf("%s%s: %v, which is %s; want %s", r.Host, r.Path, err, fault.KindOf(err), kind)
	}
	if got := w.rejected(reason) - before; reason != "" && got != 1 {
		w.t.Errorf("%s%s: counted %d times as %s, want once; all: %v", r.Host, r.Path, got, reason, w.rejects)
	}
	return err
}

// wantEmpty checks that nothing was kept.
func (w *fixture) wantEmpty() {
	w.t.Helper()
	if s, u := w.Stats(), w.store.Usage(); s.Entries != 0 || u.Objects != 0 {
		w.t.Errorf("%d entries and %d bodies were kept", s.Entries, u.Objects)
	}
}

// wantAsked checks how often the origin was asked.
func (w *fixture) wantAsked(want int) {
	w.t.Helper()
	if got := len(w.requests()); got != want {
		w.t.Errorf("the origin was asked %d times, want %d", got, want)
	}
}

// answerWith is an origin that gives every request the same answer.
func answerWith(body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		_, _ = io.WriteString(w, body)
	}
}

// answerNumbered is an origin that numbers its answers.
func answerNumbered(header ...string) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		answerWith(string(rune('0'+n.Add(1))), header...)(w, r)
	}
}
