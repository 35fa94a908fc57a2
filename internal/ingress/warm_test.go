package ingress

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a Warm for tests.
type shelf map[string]*Prepared

func (s shelf) Lookup(target []byte) (*Prepared, bool) {
	p, ok := s[string(target)]
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
)

type tallyHits struct{ atomic.Int64 }

func (h *tallyHits) Inc() { h.Add(1) }

// warmFixture serves the same contents by the chain and by the warm lane.
type warmFixture struct {
	*fixture
	seen *atomic.Int64 // requests that reached the handler
	hits *tallyHits
}

func newWarmFixture(t testing.TB, changes ...func(*Options)) *warmFixture {
	t.Helper()
	f := &warmFixture{seen: new(atomic.Int64), hits: new(tallyHits)}
	bodies := map[string][]byte{"tiny": []byte("hello"), "small": smallBody, "large": largeBody, "empty": nil, "packed": gzipBody}
	find := func(name string, header http.Header) (Content, bool) {
		body, ok := bodies[name]
		content := contentOf(body)
		if name == "packed" {
			content.Encoding = "gzip"
			header.Set("Vary", "Accept-Encoding")
		}
		return content, ok
	}
	handler := func(w http.ResponseWriter, r *http.Request) error {
		f.seen.Add(1)
		content, ok := find(r.PathValue("name"), w.Header())
		if !ok {
			return answers(r.PathValue("name"))(w, r)
		}
		_, err := ServeContent(w, r, content)
		return err
	}
	route := transfer("GET", "/w/{name}", handler)
	post := control("POST", "/w/{name}", echo)
	warm := shelf{}
	for name, body := range bodies {
		header := http.Header{}
		content, _ := find(name, header)
		content.Header(header)
		prepared, err := Prepare(Preparation{Pattern: "/w/{name}", Header: header, Body: body, Hits: f.hits})
		if err != nil {
			t.Fatal(err)
		}
		warm["/w/"+name] = prepared
	}
	changes = append([]func(*Options){func(o *Options) { o.Warm = Shelves{{"/other/", shelf{}}, {"/w/", warm}} }}, changes...)
	f.fixture = newFixture(t, []Route{route, post}, changes...)
	return f
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
	f.counted(6, "http_requests_total", "service", "edge", "route", "/w/{name}", "method", "GET", "status", "200")
	f.counted(6, "request_latency_seconds", "service", "edge", "route", "/w/{name}")
	if n := f.hits.Load(); n != 6 {
		t.Errorf("%d hits", n)
	}
	// Whatever is not for the lane is answered on the same connection, and so
	// is everything after it, by the chain.
	part := c.get("/w/small", "Range: bytes=0-4")
	if part.StatusCode != 206 || part.body != string(smallBody[:5]) {
		t.Errorf("%d %q", part.StatusCode, part.body)
	}
	if r := c.get("/w/small"); r.body != string(smallBody) || f.requests(t) != 2 {
		t.Errorf("%d requests through the chain, want 2: a connection that was handed over stays so", f.requests(t))
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
		if f.requests(t) != 2 || f.hits.Load() != 2 {
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
		// After the hand-over a header has its five seconds, counted anew.
		c = f.dial()
		c.get("/w/small")
		time.Sleep(30 * time.Second)
		c.send("GET /w/tail HTTP/1.1\r\nHost:")
		time.Sleep(4 * time.Second)
		c.send(" localhost\r\n\r\n")
		if r := c.receive(); r.body != "tail" {
			t.Errorf("%d %q", r.StatusCode, r.body)
		}
		// A client that asks and does not read is cut.
		c = f.dial()
		from = time.Now()
		c.send("GET /w/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
		time.Sleep(10 * time.Second)
		if got, _ := io.ReadAll(c); len(got) >= len(largeBody) || time.Since(from) != 10*time.Second {
			t.Errorf("%d bytes after %s", len(got), time.Since(from))
		}
		f.counted(1, "io_errors_total", "service", "gateway", "op", "write")
	})
}

func TestWarmKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1, 3 }).listen()
		c := f.dial()
		for range 3 {
			if r := c.get("/w/small"); r.StatusCode != 200 {
				t.Errorf("%d", r.StatusCode)
			}
		}
		c.get("/w/small").refused(t, 429, "RateLimited")
		if f.requests(t) != 0 || f.hits.Load() != 3 {
			t.Errorf("%d handled, %d warm", f.requests(t), f.hits.Load())
		}
	})
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
	f.memory = newMemory()
	f.memory.addr = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}
	f.serve(f.server.Attach(f.memory, ListenOptions{Name: "http", Warm: true}))
	f.dial().get("/w/small")
	if f.requests(t) != 1 {
		t.Error("the lane asks nobody for a token, so it is for loopback only")
	}
}

func TestPrepareRefuses(t *testing.T) {
	plain := func() http.Header { return http.Header{"Content-Type": {"text/plain"}} }
	for name, header := range map[string]http.Header{
		"no type":    {},
		"a date":     {"Content-Type": {"text/plain"}, "Date": {"now"}},
		"connection": {"Content-Type": {"text/plain"}, "Connection": {"close"}},
		"vary":       {"Content-Type": {"text/plain"}, "Vary": {"Accept-Encoding"}},
		"vary more":  {"Content-Type": {"text/plain"}, "Content-Encoding": {"gzip"}, "Vary": {"Cookie"}},
	} {
		if _, err := Prepare(Preparation{Header: header}); err == nil {
			t.Errorf("%s: prepared", name)
		}
	}
	header := plain()
	header.Set("X-Split", "a\r\nX-Evil: b")
	p, err := Prepare(Preparation{Pattern: "/unknown", Header: header, Body: []byte("x")})
	if err != nil || bytes.Contains(p.head, []byte("\r\nX-Evil")) {
		t.Errorf("a header must not split the answer: %v %q", err, p.head)
	}
	if p.Size() != len(p.head)+1 {
		t.Errorf("size %d", p.Size())
	}
	f := newFixture(t, []Route{control("GET", "/x", answers("x"))})
	p.tallyOn(f.server).counter.Inc()
	p.tallyOn(f.server).counter.Inc()
	f.counted(2, "http_requests_total", "route", "none", "status", "200")
}
