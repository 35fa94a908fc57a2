package ingress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An answer that is made on the spot equals that of the chain, in all its
// parts, and is released when it is written.
func TestMadeOnDemand(t *testing.T) {
	f := newWarmFixture(t)
	f.listenTCP() // with sendfile
	c := f.dialReal()
	for _, path := range []string{"/m/small", "/f/small", "/f/large", "/m/large", "/f/empty", "/m/empty", "/f/tiny", "/w/tiny", "/m/tiny"} {
		body := bodies[path[3:]]
		if r := c.get(path); r.StatusCode != 200 || r.body != string(body) || r.ContentLength != int64(len(body)) {
			t.Errorf("%s: %d, %d bytes", path, r.StatusCode, len(r.body))
		}
	}
	if r := c.get("/m/tiny"); r.Header.Get("Etag") != `"b3:test"` || r.Header.Get("Last-Modified") != exactly || r.Header.Get("Age") != "7" {
		t.Errorf("%v", r.Header)
	}
	c.get("/m/packed") // made, and then not used
	if f.requests(t) != 1 || f.hits.Load() != 10 {
		t.Errorf("%d through the chain, %d hits", f.requests(t), f.hits.Load())
	}
	if err := f.listener.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.outstanding.Load(); n != 0 {
		t.Errorf("%d answers were not given back", n)
	}
	f.wantMetric(6, "http_requests_total", "service", "edge", "route", "/m/{name}", "method", "GET", "status", "200")
}

// A file that is shorter than promised must not look whole.
func TestFileThatIsTooShort(t *testing.T) {
	name := t.TempDir() + "/short"
	if err := os.WriteFile(name, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() }) // when the servers have stopped: they may still use it
	template, _ := NewTemplate(TemplateSpec{Pattern: "/x", Header: http.Header{"Content-Type": {"text/plain"}}})
	warm := warmFunc(func([]byte) (*PreparedResponse, bool) {
		return template.Render(TemplateValues{File: file, Offset: 1, Length: 5}, nil)
	})
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Warm = warm })
	f.listenTCP()
	c := f.dialReal()
	c.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if r, err := c.tryReceive("GET"); err == nil || r.body != "bc" {
		t.Errorf("%q, %v", r.body, err)
	}
	g := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Warm = warm }).listen()
	if got, _ := io.ReadAll(func() io.Reader { c := g.dial(); c.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"); return c }()); len(got) != 0 {
		t.Errorf("%q", got)
	}
	g.wantMetric(1, "io_errors_total", "service", "gateway", "op", "write")
}

type warmFunc func([]byte) (*PreparedResponse, bool)

func (f warmFunc) Lookup(target []byte) (*PreparedResponse, bool) { return f(target) }

// A file for a slow client is continued where it stopped.
func TestFileInPieces(t *testing.T) {
	f := newWarmFixture(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := f.server.Attach(inner, ListenOptions{Name: "http", Warm: true})
	there, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	there.(*net.TCPConn).SetReadBuffer(8 << 10)
	here, err := inner.Accept()
	if err != nil {
		t.Fatal(err)
	}
	here.(*net.TCPConn).SetWriteBuffer(8 << 10)
	c, _ := l.admit(here)
	defer c.Close()
	p, found := f.options.Warm.Lookup([]byte("/f/large"))
	if !found {
		t.Fatal("there is no file")
	}
	c.warmConn.buffer = &warmBuffer{out: []byte("head ")}
	if err := c.warmConn.prepareFile(c, p); err != nil {
		t.Fatal(err)
	}
	from, arrived := bufio.NewReader(there), make(chan struct{})
	go func() { // the deadline is over as soon as something has come
		from.Peek(1)
		c.Conn.SetWriteDeadline(time.Now())
		close(arrived)
	}()
	first, err := c.warmConn.sender.send()
	if !errors.Is(err, os.ErrDeadlineExceeded) || first == 0 || first >= int64(len(largeBody)) {
		t.Fatalf("%d bytes, %v", first, err)
	}
	<-arrived
	c.Conn.SetWriteDeadline(time.Time{})
	written := make(chan error, 1)
	go func() {
		_, err := c.warmConn.sender.send()
		c.Close()
		written <- err
	}()
	got, err := io.ReadAll(from)
	if string(got) != "head "+string(largeBody) || err != nil || <-written != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// On a closed connection it returns an error.
	if err := c.writeWarm(c.warmConn, p, time.Now()); err == nil {
		t.Error("written to nobody")
	}
	p.release()
}

func TestWhatIsNotForTheLane(t *testing.T) {
	closed := 0
	done := closer(func() { closed++ })
	template, err := NewTemplate(TemplateSpec{Pattern: "/x", Header: http.Header{"Content-Type": {"text/plain"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		one  TemplateValues
		tag  string
		body [][]byte
	}{
		"too large":      {body: [][]byte{make([]byte, WarmMaxBody), {1}}},
		"a large file":   {one: TemplateValues{File: os.Stdin, Length: WarmMaxBody + 1}},
		"less than none": {one: TemplateValues{File: os.Stdin, Length: -1}},
		"too many parts": {body: make([][]byte, warmMaxParts+1)},
		"no tag":         {tag: "x"},
		"half a tag":     {tag: `"`},
		"two tags":       {tag: `"a", "b"`},
		"another header": {tag: "\"\r\nX-Evil: y\""},
	} {
		c.one.Done = done
		if _, ok := template.Render(c.one, []byte(c.tag), c.body...); ok {
			t.Errorf("%s: answered", name)
		}
	}
	if closed != 8 {
		t.Errorf("%d of 8 were closed", closed)
	}
	for _, good := range []string{`"b3:x"`, `W/"x"`, `""`} {
		if _, ok := template.Render(TemplateValues{}, []byte(good)); !ok {
			t.Errorf("%s is a tag", good)
		}
	}
}

// A source that panics closes its connection, and nothing else.
func TestAMakerThatPanics(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) {
		o.Warm = warmFunc(func([]byte) (*PreparedResponse, bool) { panic("out of order") })
	}).listen()
	c := f.dial()
	c.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if !c.closed() || !strings.Contains(f.logs.String(), "out of order") {
		t.Errorf("%s", f.logs)
	}
	if r := f.dial().ask("HEAD", "/x"); r.StatusCode != 200 {
		t.Errorf("%d", r.StatusCode)
	}
}

// A body of the largest size, in blocks, on a slow connection.
func TestWarmMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := make([][]byte, 16)
		for i := range blocks {
			blocks[i] = bytes.Repeat([]byte{byte('a' + i)}, WarmMaxBody/16)
		}
		template, _ := NewTemplate(TemplateSpec{Pattern: "/x", Header: http.Header{"Content-Type": {"text/plain"}}})
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) {
			o.Warm = warmFunc(func([]byte) (*PreparedResponse, bool) { return template.Render(TemplateValues{}, nil, blocks...) })
		}).listen()
		c := f.dial()
		for range 2 {
			if r := c.get("/x"); r.body != string(bytes.Join(blocks, nil)) {
				t.Errorf("%d bytes", len(r.body))
			}
		}
	})
}

// madeHit is a warm request whose answer is made on the spot.
func madeHit(tb testing.TB, kind string) func() {
	header := http.Header{"Content-Type": {"application/octet-stream"}, "Cache-Control": {"public, max-age=31536000, immutable"}, "Accept-Ranges": {"bytes"}}
	template, err := NewTemplate(TemplateSpec{Pattern: "/w/{name}", Header: header})
	if err != nil {
		tb.Fatal(err)
	}
	done := closer(func() {})
	tag := []byte(`"b3:` + strings.Repeat("0", 64) + `"`)
	return warmHitFrom(tb, "", warmFunc(func([]byte) (*PreparedResponse, bool) {
		if kind == "parts" {
			return template.Render(TemplateValues{Modified: modified, Done: done}, tag, smallBody[:8<<10], smallBody[8<<10:])
		}
		var space [80]byte // a tag that is built on the stack
		return template.Render(TemplateValues{Done: done}, append(space[:0], tag...), smallBody)
	}))
}

func TestAnAnswerOnDemandDoesNotAllocate(t *testing.T) {
	for _, kind := range []string{"bytes", "parts"} {
		hit := madeHit(t, kind)
		hit()
		if n := testing.AllocsPerRun(2000, hit); n != 0 {
			t.Errorf("%s: %v allocations a request", kind, n)
		}
	}
}

// BenchmarkMadeHit is BenchmarkWarmHit with an answer that is made on the spot.
func BenchmarkMadeHit(b *testing.B) {
	hit := madeHit(b, "parts")
	b.ReportAllocs()
	for b.Loop() {
		hit()
	}
}

// closer makes a closer of a function.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}
