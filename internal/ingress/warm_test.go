package ingress

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// preparedMap is a WarmSource for tests.
type preparedMap map[string]*PreparedResponse

func (m preparedMap) Lookup(target []byte) (*PreparedResponse, bool) {
	p, ok := m[string(target)]
	return p, ok
}

// contentOf is what both lanes serve.
func contentOf(body []byte) Content {
	return Content{
		Size: int64(len(body)), ETag: `"b3:test"`, Type: "application/octet-stream",
		CacheControl: "public, max-age=31536000, immutable", Write: FromReaderAt(bytes.NewReader(body)),
	}
}

var (
	smallBody = []byte(noise(16 << 10))
	largeBody = []byte(noise(300 << 10))
	gzipBody  = []byte(gzipped(noise(1000)))
	bodies    = map[string][]byte{"tiny": []byte("hello"), "small": smallBody, "large": largeBody, "empty": nil, "packed": gzipBody}
)

type tallyHits struct{ atomic.Int64 }

func (h *tallyHits) Inc() { h.Add(1) }

// warmFixture serves the same contents by the chain and by the warm lane: under
// /w/ they are prepared, under /m/ they are made of parts on request, and under
// /f/ they are in a file.
type warmFixture struct {
	*fixture
	seen        *atomic.Int64 // requests that reached the handler
	hits        *tallyHits
	outstanding *atomic.Int64 // answers that were made and not released
}

func newWarmFixture(t testing.TB, changes ...func(*Options)) *warmFixture {
	t.Helper()
	f := &warmFixture{seen: new(atomic.Int64), hits: new(tallyHits), outstanding: new(atomic.Int64)}
	routes := []Route{control("POST", "/w/{name}", echo)}
	for _, prefix := range []string{"w", "m", "f"} {
		routes = append(routes, transfer("GET", "/"+prefix+"/{name}", f.handler(prefix)))
	}
	warm := WarmRoutes{{"/other/", preparedMap{}}, {"/w/", f.prepareAll(t)}, {"/m/", f.newTemplateSource(t, nil)}, {"/f/", f.newTemplateSource(t, bodiesFile())}}
	changes = append([]func(*Options){func(o *Options) { o.Warm = warm }}, changes...)
	f.fixture = newFixture(t, routes, changes...)
	return f
}

// contentFor is a content, and the handler's other headers.
func contentFor(prefix, name string, header http.Header) (Content, bool) {
	body, ok := bodies[name]
	content := contentOf(body)
	if name == "packed" {
		content.Encoding = "gzip"
		header.Set("Vary", "Accept-Encoding")
	}
	switch prefix {
	case "m":
		content.Modified = modified
		header.Set("Age", "7")
		MarkUntrusted(header)
	case "f":
		content.ETag = ""
		header.Set("Expires", "never")
		header.Set("X-Zone", "behind the correlation ID")
		header["Cross-Origin-Resource-Policy"] = nil
	}
	return content, ok
}

func (f *warmFixture) handler(prefix string) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		f.seen.Add(1)
		if r.PathValue("name") == "slow" {
			time.Sleep(250 * time.Millisecond)
		}
		content, ok := contentFor(prefix, r.PathValue("name"), w.Header())
		if !ok {
			return respondWith(r.PathValue("name"))(w, r)
		}
		_, err := ServeContent(w, r, content)
		return err
	}
}

// prepareAll prepares everything.
func (f *warmFixture) prepareAll(t testing.TB) preparedMap {
	ready := preparedMap{}
	for name, body := range bodies {
		header := http.Header{}
		content, _ := contentFor("w", name, header)
		content.Header(header)
		prepared, err := Prepare(PreparedSpec{Pattern: "/w/{name}", Header: header, Body: body, Hits: f.hits})
		if err != nil {
			t.Fatal(err)
		}
		ready["/w/"+name] = prepared
	}
	return ready
}

// templateSource makes answers on request.
type templateSource struct {
	fixture   *warmFixture
	templates map[string]*Template
	file      *os.File
	offsets   map[string]int64
}

// bodiesFile has all bodies, one after the other, sorted by name. It is in
// memory, and there is one for all tests.
var bodiesFile = sync.OnceValue(func() *os.File {
	fd, err := unix.MemfdCreate("bodies", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	file := os.NewFile(uintptr(fd), "bodies")
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		file.Write(bodies[name])
	}
	return file
})

func (f *warmFixture) newTemplateSource(t testing.TB, file *os.File) *templateSource {
	m := &templateSource{fixture: f, templates: map[string]*Template{}, file: file, offsets: map[string]int64{}}
	prefix, offset := "m", int64(0)
	if file != nil {
		prefix = "f"
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		header := http.Header{}
		content, _ := contentFor(prefix, name, header)
		content.Header(header)
		for _, own := range perResponseHeaders {
			header.Del(own)
		}
		template, err := NewTemplate(TemplateSpec{Pattern: "/" + prefix + "/{name}", Header: header, HasAge: prefix == "m", Hits: f.hits})
		if err != nil {
			t.Fatal(err)
		}
		m.templates[name], m.offsets[name] = template, offset
		offset += int64(len(bodies[name]))
	}
	return m
}

func (s *templateSource) Close() error {
	s.fixture.outstanding.Add(-1)
	return nil
}

func (s *templateSource) Lookup(target []byte) (*PreparedResponse, bool) {
	template := s.templates[string(target[len("/m/"):])]
	if template == nil {
		return nil, false
	}
	s.fixture.outstanding.Add(1)
	body := bodies[string(target[len("/m/"):])]
	if s.file != nil {
		return template.Render(TemplateValues{File: s.file, Offset: s.offsets[string(target[len("/m/"):])], Length: int64(len(body)), Done: s}, nil)
	}
	half := len(body) / 2
	return template.Render(TemplateValues{Modified: modified, Age: 7900 * time.Millisecond, Done: s}, []byte(`"b3:test"`), body[:half], body[half:])
}

func (f *warmFixture) listen(changes ...func(*ListenOptions)) *warmFixture {
	f.fixture.listen(changes...)
	return f
}

// requests is how many went through the chain.
func (f *warmFixture) requests(testing.TB) int64 { return f.seen.Load() }

func TestWarmAnswers(t *testing.T) { synctest.Test(t, testWarmAnswers) }

func testWarmAnswers(t *testing.T) {
	f := newWarmFixture(t).listen()
	c := f.dial()
	for i, body := range [][]byte{smallBody, largeBody, smallBody, nil} {
		path := []string{"/w/small", "/w/large", "/w/small", "/w/empty"}[i]
		r := c.get(path, "User-Agent: test", "Accept: */*", "Accept-Encoding: gzip", "Connection: Keep-Alive")
		if r.StatusCode != 200 || r.body != string(body) || r.Header.Get("Etag") != `"b3:test"` || len(r.Header.Get("X-Corr-ID")) != 32 || r.Header.Get("Date") == "" {
			t.Errorf("%s: %d, %d bytes, %v", path, r.StatusCode, len(r.body), r.Header)
		}
	}
	if r := c.get("/w/small", "X-Corr-ID: 0f8fad5b-d9cb-469f-a165-70867728950e"); r.Header.Get("X-Corr-ID") != "0f8fad5b-d9cb-469f-a165-70867728950e" {
		t.Errorf("X-Corr-ID %q", r.Header.Get("X-Corr-ID"))
	}
	if r := c.get("/w/packed", "Accept-Encoding: br, gzip"); r.body != string(gzipBody) || r.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v", r.Header)
	}
	if n := f.requests(t); n != 0 {
		t.Errorf("%d of the requests went through the chain", n)
	}
	synctest.Wait() // it counts when it has written
	f.wantMetric(6, "http_requests_total", "service", "edge", "route", "/w/{name}", "method", "GET", "status", "200")
	f.wantMetric(6, "request_latency_seconds", "service", "edge", "route", "/w/{name}")
	if n := f.hits.Load(); n != 6 {
		t.Errorf("%d hits", n)
	}
	// A request that is not for the lane is answered on the same connection by
	// the chain, and the next one by the lane again.
	part := c.get("/w/small", "Range: bytes=0-4")
	if part.StatusCode != 206 || part.body != string(smallBody[:5]) {
		t.Errorf("%d %q", part.StatusCode, part.body)
	}
	synctest.Wait() // net/http waits for the next request; one that comes sooner is still net/http's
	if r := c.get("/w/small"); r.body != string(smallBody) || f.requests(t) != 1 {
		t.Errorf("%d requests through the chain, want 1: one that is not for the lane must not spoil the connection", f.requests(t))
	}
}

func TestNotWarm(t *testing.T) {
	f := newWarmFixture(t).listen()
	for name, request := range map[string]string{
		"another path":         "GET /w/other HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a query":              "GET /w/small?x HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"HEAD":                 "HEAD /w/small HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a range":              "GET /w/small HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-0\r\n\r\n",
		"a condition":          "GET /w/small HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"b3:test\"\r\n\r\n",
		"a token":              "GET /w/small HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n",
		"a deadline":           "GET /w/small HTTP/1.1\r\nHost: localhost\r\nRequest-Timeout: 1\r\n\r\n",
		"an origin":            "GET /w/small HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
		"close":                "GET /w/small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"a body":               "GET /w/small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx",
		"a coding not taken":   "GET /w/packed HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a coding refused":     "GET /w/packed HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip;q=0\r\n\r\n",
		"a long list of names": "GET /w/small HTTP/1.1\r\nHost: localhost\r\nX-Unknown: 1\r\n\r\n",
	} {
		before := f.requests(t)
		c := f.dial()
		c.send("%s", request)
		if r, err := c.tryReceive(strings.Fields(request)[0]); err != nil && r.Response == nil {
			t.Errorf("%s: no answer: %v", name, err)
		}
		if f.requests(t) != before+1 {
			t.Errorf("%s: not for the warm lane", name)
		}
	}
}

// A request that comes in pieces, and several that come at once.
func TestWarmPipelining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t).listen()
		one := "GET /w/small HTTP/1.1\r\nHost: localhost\r\n\r\n"
		c := f.dial()
		c.send("%s%s%s", one, one, "GET /w/tail HTTP/1.1\r\nHost: loc")
		for range 2 {
			if r := c.receive(); r.body != string(smallBody) {
				t.Errorf("%d, %d bytes", r.StatusCode, len(r.body))
			}
		}
		time.Sleep(time.Second)
		c.send("alhost\r\n\r\n%s", one)
		if r := c.receive(); r.body != "tail" {
			t.Errorf("%q", r.body)
		}
		if r := c.receive(); r.body != string(smallBody) {
			t.Errorf("%d", r.StatusCode)
		}
		if f.requests(t) != 2 || f.hits.Load() != 2 { // net/http has read the last one with the one before
			t.Errorf("%d through the chain, %d warm", f.requests(t), f.hits.Load())
		}
	})
}

// The deadlines of the lane are those of net/http.
func TestWarmDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t).listen()
		c := f.dial()
		for range 3 { // longer than a header may take, shorter than idle
			if r := c.get("/w/small"); r.StatusCode != 200 {
				t.Fatalf("%d", r.StatusCode)
			}
			time.Sleep(50 * time.Second)
		}
		c.get("/w/small")
		from := time.Now()
		if !c.closed() || time.Since(from) != 60*time.Second {
			t.Errorf("an idle connection was closed after %s", time.Since(from))
		}
		// After the request is passed to net/http a header has its five seconds
		// again.
		c = f.dial()
		c.get("/w/small")
		time.Sleep(30 * time.Second)
		c.send("GET /w/tail HTTP/1.1\r\nHost:")
		time.Sleep(4 * time.Second)
		c.send(" localhost\r\n\r\n")
		if r := c.receive(); r.body != "tail" {
			t.Errorf("%d %q", r.StatusCode, r.body)
		}
		// A client that does not read its answer is cut.
		c = f.dial()
		from = time.Now()
		c.send("GET /w/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
		time.Sleep(10 * time.Second)
		if got, _ := io.ReadAll(c); len(got) >= len(largeBody) || time.Since(from) != 10*time.Second {
			t.Errorf("%d bytes after %s", len(got), time.Since(from))
		}
		f.wantMetric(1, "io_errors_total", "service", "gateway", "op", "write")
	})
}

// A connection that comes back to the lane has the lane's deadlines again.
func TestDeadlinesBackInTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t).listen()
		c := f.dial()
		c.get("/w/small")
		c.get("/w/cold")
		c.send("GET /w/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
		time.Sleep(10 * time.Second)
		if got, _ := io.ReadAll(c); len(got) >= len(largeBody) {
			t.Errorf("a client that asks and does not read got %d bytes", len(got))
		}
		c = f.dial()
		c.get("/w/cold")
		c.get("/w/small")
		time.Sleep(50 * time.Second)
		c.get("/w/small")
		from := time.Now()
		if !c.closed() || time.Since(from) != 60*time.Second {
			t.Errorf("an idle connection was closed after %s", time.Since(from))
		}
		c = f.dial() // idle after the chain, with the lane waiting
		c.get("/w/cold")
		from = time.Now()
		if !c.closed() || time.Since(from) != 60*time.Second {
			t.Errorf("an idle connection was closed after %s", time.Since(from))
		}
	})
}

// A client that reads slowly, but reads, gets all of it: from the lane as from
// the chain.
func TestWarmPatience(t *testing.T) {
	for _, path := range []string{"/w/large", "/m/large", "/f/large"} {
		synctest.Test(t, func(t *testing.T) {
			f := newWarmFixture(t).listen()
			c := f.dial()
			c.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			got, piece := 0, make([]byte, 8<<10)
			for got < len(largeBody) {
				time.Sleep(time.Second)
				n, err := io.ReadFull(c, piece)
				if got += n; err != nil && err != io.ErrUnexpectedEOF {
					t.Fatalf("%s: %d bytes, then %v", path, got, err)
				}
			}
			if f.hits.Load() != 1 {
				t.Errorf("%s: %d hits", path, f.hits.Load())
			}
		})
	}
}

func TestWarmKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1, 3 }).listen()
		c := f.dialFrom(1) // a client of this machine has no rate for what needs a scope
		for range 3 {
			if r := c.get("/w/small"); r.StatusCode != 200 {
				t.Errorf("%d", r.StatusCode)
			}
		}
		c.get("/w/small").wantRefusal(t, 429, "RateLimited")
		if f.requests(t) != 0 || f.hits.Load() != 3 {
			t.Errorf("%d handled, %d warm", f.requests(t), f.hits.Load())
		}
	})
}

// connLog is what net/http did with a connection.
type connLog struct {
	mu     sync.Mutex
	events []string
}

func (c *connLog) record(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, what)
}

// sinceIdle is what it did since it first reported the connection idle.
func (c *connLog) sinceIdle() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.events[slices.Index(c.events, "idle"):], ", ")
}

// recordingConn records it.
type recordingConn struct {
	net.Conn
	diary *connLog
}

func (r recordingConn) Read(p []byte) (int, error) {
	r.diary.record(fmt.Sprint("read ", len(p)))
	return r.Conn.Read(p)
}

func (r recordingConn) SetReadDeadline(t time.Time) error {
	r.diary.record("deadline")
	return r.Conn.SetReadDeadline(t)
}

type recordingListener struct {
	*memListener
	diary *connLog
}

func (r recordingListener) Accept() (net.Conn, error) {
	c, err := r.memListener.Accept()
	return recordingConn{c, r.diary}, err
}

// The lane takes a connection again when net/http is between two requests.
// net/http does not report that; the lane concludes it from the order of
// events. If a new release of Go changes the order, this fails, and the rule in
// canEnterLane must be reviewed.
func TestWhatNetHTTPDoesBetweenRequests(t *testing.T) {
	const one = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		pieces []string
		want   string // from the first time that it is idle on
	}{
		"one after the other":      {[]string{one, one}, "idle, deadline, read 4096, deadline"},
		"two at once":              {[]string{one + one}, "idle, deadline, deadline"},
		"one and a line":           {[]string{one + one[:16], one[16:]}, "idle, deadline, deadline"},
		"one and two bytes":        {[]string{one + one[:2], one[2:]}, "idle, deadline, read 4094, deadline"},
		"a byte while it answered": {[]string{"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", one[:1], one[1:]}, "idle, deadline, read 4095, deadline"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, m := new(connLog), newMemListener()
			server := &http.Server{ReadHeaderTimeout: time.Second, IdleTimeout: time.Second,
				ConnState: func(_ net.Conn, state http.ConnState) {
					if state == http.StateIdle {
						d.record("idle")
					}
				},
				Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						time.Sleep(150 * time.Millisecond)
					}
				})}
			go server.Serve(recordingListener{m, d})
			client := newClient(t, m.dial(t, "127.0.0.1:4001"))
			for _, piece := range c.pieces {
				client.send("%s", piece)
				time.Sleep(100 * time.Millisecond)
			}
			client.receive()
			client.receive()
			server.Close()
			synctest.Wait()
			if got := d.sinceIdle(); !strings.HasPrefix(got, c.want+", ") {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

// The lane is off where it could not do what the listener needs.
func TestWhereTheLaneIsOff(t *testing.T) {
	for name, change := range map[string]func(*ListenOptions){
		"not wanted": func(o *ListenOptions) { o.Warm = false },
		"local":      func(o *ListenOptions) { o.Local = true },
	} {
		f := newWarmFixture(t).listen(change)
		f.dial().get("/w/small")
		if f.requests(t) != 1 {
			t.Errorf("%s: the lane was on", name)
		}
	}
	f := newWarmFixture(t)
	f.mem = newMemListener()
	f.mem.addr = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}
	f.serve(f.server.Attach(f.mem, ListenOptions{Name: "http", Warm: true}))
	f.dial().get("/w/small")
	if f.requests(t) != 1 {
		t.Error("the lane asks nobody for a token, so it is for loopback only")
	}
}

func TestPrepareRefuses(t *testing.T) {
	plain := func() http.Header { return http.Header{"Content-Type": {"text/plain"}} }
	for name, header := range map[string]http.Header{
		"no type":    {},
		"connection": {"Content-Type": {"text/plain"}, "Connection": {"close"}},
		"vary":       {"Content-Type": {"text/plain"}, "Vary": {"Accept-Encoding"}},
		"vary more":  {"Content-Type": {"text/plain"}, "Content-Encoding": {"gzip"}, "Vary": {"Cookie"}},
	} {
		if _, err := Prepare(PreparedSpec{Header: header}); err == nil {
			t.Errorf("%s: prepared", name)
		}
	}
	if _, err := NewTemplate(TemplateSpec{Header: http.Header{"Content-Type": {"text/plain"}, "Date": {"now"}}}); err == nil {
		t.Error("a template has a date that every answer would have")
	}
	header := plain()
	header.Set("X-Split", "a\r\nX-Evil: b")
	p, err := Prepare(PreparedSpec{Pattern: "/unknown", Header: header, Body: []byte("x")})
	if err != nil || p.Size() < len("x")+2*len("Content-Type: text/plain\r\n") {
		t.Fatalf("%v, size %d", err, p.Size())
	}
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
	form := p.template.compiledFor(f.server)
	if head := new(warmLane).appendHeader(nil, p, form, &warmRequest{}, time.Now()); bytes.Contains(head, []byte("\r\nX-Evil")) {
		t.Errorf("a header must not split the answer: %q", head)
	}
	form.counter.Inc()
	p.template.compiledFor(f.server).counter.Inc()
	f.wantMetric(2, "http_requests_total", "route", "none", "status", "200")
	if _, err := NewTemplate(TemplateSpec{Header: http.Header{"Content-Type": {"text/plain"}, "Etag": {`"x"`}}}); err == nil {
		t.Error("the tag of a template would be that of all its answers")
	}
}
