package ingress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"micronode/fault"
)

// chunked is a body without a length.
func chunked(text string) string {
	return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text)
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

func zstded(text string) string {
	w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	defer w.Close()
	return string(w.EncodeAll([]byte(text), nil))
}

// noise does not compress well.
func noise(n int) string {
	text := make([]byte, n)
	state := uint32(1)
	for i := range text {
		state = state*1664525 + 1013904223
		text[i] = 'a' + byte(state>>24)%16
	}
	return string(text)
}

func TestBodyCap(t *testing.T) {
	large := control("POST", "/large", echo)
	large.BodyCap = 2 << 10
	f := newFixture(t, []Route{control("POST", "/echo", echo), large}, func(o *Options) { o.Limits.Body = 1 << 10 }).listen()

	if r := f.dial().post("/echo", noise(1<<10)); r.StatusCode != 200 || len(r.body) != 1<<10 {
		t.Errorf("a body at the cap: %d", r.StatusCode)
	}
	if r := f.dial().post("/large", noise(2<<10)); r.StatusCode != 200 {
		t.Errorf("a route's own cap: %d", r.StatusCode)
	}
	// Over the cap: refused before a byte of it is sent.
	c := f.dial()
	c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1025\r\n\r\n")
	c.receive().wantRefusal(t, 413, "BodyTooLarge")
	if !c.closed() {
		t.Error("the connection must not wait for the rest")
	}
	// Expect: 100-continue is refused without a 100.
	c = f.dial()
	c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n")
	c.receive().wantRefusal(t, 413, "BodyTooLarge")

	// Without a length it is cut at the cap.
	c = f.dial()
	c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%s", chunked(noise(1025)))
	c.receive().wantRefusal(t, 413, "BodyTooLarge")
	c = f.dial()
	c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%s", chunked(noise(1024)))
	if r := c.receive(); r.StatusCode != 200 {
		t.Errorf("chunked at the cap: %d", r.StatusCode)
	}
	c = f.dial()
	c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	c.receive().wantRefusal(t, 400, "Malformed")

	f.wantMetric(3, "rejected_total", "reason", "body_cap")
}

func TestInflate(t *testing.T) {
	f := newFixture(t, []Route{control("POST", "/echo", echo)}, func(o *Options) { o.Limits.Inflate = 64 << 10 }).listen()
	text := noise(20 << 10)
	member := gzipped("x" + noise(100))
	for name, c := range map[string]struct {
		coding, body string
		status       int
		code         string
	}{
		"gzip":                     {"gzip", gzipped(text), 200, ""},
		"x-gzip":                   {"X-GZIP", gzipped(text), 200, ""},
		"zstd":                     {"zstd", zstded(text), 200, ""},
		"identity":                 {"identity", text, 200, ""},
		"gzip members":             {"gzip", gzipped(text[:9000]) + gzipped(text[9000:]), 200, ""},
		"gzip bomb":                {"gzip", gzipped(strings.Repeat("0", 60<<10)), 413, "RatioCap"},
		"zstd bomb":                {"zstd", zstded(strings.Repeat("0", 60<<10)), 413, "RatioCap"},
		"small bomb":               {"gzip", gzipped(strings.Repeat("0", 2000)), 413, "RatioCap"},
		"gzip over the whole cap":  {"gzip", gzipped(noise(80 << 10)), 413, "RatioCap"},
		"zstd over the whole cap":  {"zstd", zstded(noise(80 << 10)), 413, "RatioCap"},
		"unknown":                  {"br", text, 415, "UnsupportedMediaType"},
		"two layers":               {"gzip, gzip", gzipped(member), 415, "UnsupportedMediaType"},
		"gzip that is none":        {"gzip", text, 400, "Malformed"},
		"zstd that is none":        {"zstd", text, 400, "Malformed"},
		"truncated gzip":           {"gzip", gzipped(text)[:5000], 400, "Malformed"},
		"truncated zstd":           {"zstd", zstded(text)[:5000], 400, "Malformed"},
		"gzip of three bytes":      {"gzip", "\x1f\x8b\x08", 400, "Malformed"},
		"gzip header, then noise":  {"gzip", gzipped(text)[:10] + text, 400, "Malformed"},
		"zstd with a giant window": {"zstd", "\x28\xb5\x2f\xfd\x00\xff\x00\x00\x00\x00\x00\x00\x00", 413, "RatioCap"},
	} {
		for range 2 { // the second time with pooled decoders
			r := f.dial().post("/echo", c.body, "Content-Encoding: "+c.coding)
			switch {
			case c.status == 200 && (r.StatusCode != 200 || r.body != text):
				t.Errorf("%s: %d, %d bytes", name, r.StatusCode, len(r.body))
			case c.status != 200:
				r.wantRefusal(t, c.status, c.code)
			}
			if unknown := name == "unknown" || name == "two layers"; unknown != (r.Header.Get("Accept-Encoding") == "gzip, zstd") {
				t.Errorf("%s: Accept-Encoding %q", name, r.Header.Get("Accept-Encoding"))
			}
		}
	}
	f.wantMetric(4, "rejected_total", "reason", "encoding")
	if n := f.metric("rejected_total", "reason", "decompress_cap"); n != 12 {
		t.Errorf("%v bombs were counted, want 12", n)
	}
}

// A bomb must be stopped while it is small, not when it has been unpacked.
func TestABombIsStoppedEarly(t *testing.T) {
	var seen int64
	route := control("POST", "/count", func(w http.ResponseWriter, r *http.Request) error {
		var err error
		seen, err = io.Copy(io.Discard, r.Body)
		return err
	})
	f := newFixture(t, []Route{route}).listen()
	bomb := gzipped(strings.Repeat("0", 12<<20))
	f.dial().post("/count", bomb, "Content-Encoding: gzip").wantRefusal(t, 413, "RatioCap")
	if seen > int64(10*len(bomb)) || seen > 10<<20 {
		t.Errorf("the handler got %d bytes of a body of %d", seen, len(bomb))
	}
}

func TestABodyThatIsNotRead(t *testing.T) {
	f := newFixture(t, []Route{control("POST", "/ignore", respondWith("ignored")), control("POST", "/echo", echo)}).listen()
	c := f.dial()
	if r := c.post("/ignore", gzipped("hello"), "Content-Encoding: gzip"); r.body != "ignored" {
		t.Errorf("%d", r.StatusCode)
	}
	if r := c.post("/echo", "again"); r.body != "again" {
		t.Errorf("the connection must go on: %d", r.StatusCode)
	}
}

// A refusal does not wait for a body that is slow to come, and keeps the
// connection if the body is here.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("POST", "/x", echo)})
		f.server.authorise = refuseAll
		f.listen()
		c := f.dial()
		for range 3 {
			if r := c.post("/x", noise(10<<10)); r.Close {
				t.Error("a small body that is here costs the connection")
			} else {
				r.wantRefusal(t, 401, "Unauthorized")
			}
		}
		for name, request := range map[string]string{
			"a part of it":   "Content-Length: 100\r\n\r\nxxx",
			"a large one":    "Content-Length: 1000000\r\n\r\nxxx",
			"chunked":        "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
			"asks before it": "Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
		} {
			c := f.dial()
			from := time.Now()
			c.send("POST /x HTTP/1.1\r\nHost: localhost\r\n%s", request)
			r := c.receive()
			r.wantRefusal(t, 401, "Unauthorized")
			if took := time.Since(from); took > 50*time.Millisecond || !r.Close {
				t.Errorf("%s: refused after %s, closing %t", name, took, r.Close)
			}
			c.Write([]byte("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")) // the rest must never be read as a request
			if r, err := c.tryReceive("GET"); err == nil {
				t.Errorf("%s: the body was taken for a request: %d", name, r.StatusCode)
			}
		}
	})
}

func TestAClientThatLeavesItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("POST", "/echo", echo)}).listen()
		c := f.dial()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nxxx")
		synctest.Wait()
		c.Close()
		synctest.Wait()
		f.wantMetric(1, "io_errors_total", "service", "gateway", "op", "read")
		f.wantMetric(1, "http_requests_total", "route", "/echo", "status", "499")
	})
}

func TestAnAnswerWithoutWords(t *testing.T) {
	f := newFixture(t, []Route{control("GET", "/x", fails(nil))}).listen()
	if r := f.dial().get("/x"); r.StatusCode != 200 || r.body != "" {
		t.Errorf("%d %q", r.StatusCode, r.body)
	}
	f.wantMetric(1, "http_requests_total", "route", "/x", "status", "200")
}

// The error is about the body as sent, not about what the decoder made of it.
func TestInflateOfABodyThatIsTooLarge(t *testing.T) {
	f := newFixture(t, []Route{control("POST", "/echo", echo)}, func(o *Options) { o.Limits.Body = 4 << 10 }).listen()
	for coding, body := range map[string]string{"gzip": gzipped(noise(20 << 10)), "zstd": zstded(noise(20 << 10))} {
		c := f.dial()
		c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Encoding: %s\r\n\r\n%s", coding, chunked(body))
		c.receive().wantRefusal(t, 413, "BodyTooLarge")
	}
}

// A handler may close a body that it does not read.
func TestCloseOfAnInflatedBody(t *testing.T) {
	f := newFixture(t, []Route{control("POST", "/close", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := r.Body.Read(make([]byte, 1)); err != nil {
			return err
		}
		if err := r.Body.Close(); err != nil {
			return err
		}
		if _, err := r.Body.Read(make([]byte, 1)); err == nil {
			return errors.New("read after close")
		}
		return respondWith("closed")(w, r)
	})}).listen()
	for coding, body := range map[string]string{"gzip": gzipped(noise(2000)), "zstd": zstded(noise(2000))} {
		if r := f.dial().post("/close", body, "Content-Encoding: "+coding); r.body != "closed" {
			t.Errorf("%s: %d %s", coding, r.StatusCode, r.body)
		}
	}
}

// blockingDecoder is a decoder whose reads block until they are released.
type blockingDecoder struct {
	begun, unblock chan struct{}
	released       atomic.Int64 // how often it was released
}

func (b *blockingDecoder) Read([]byte) (int, error) {
	close(b.begun)
	<-b.unblock
	return 0, nil
}

func (b *blockingDecoder) release() { b.released.Add(1) }

// A proxy closes the body while its transport still reads it. The decoder is
// reused only after that read has ended, and it is released once.
func TestAnInflatedBodyIsClosedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &blockingDecoder{begun: make(chan struct{}), unblock: make(chan struct{})}
		body := &inflatedBody{open: func(io.Reader) (decoder, error) { return slow, nil }, compressed: &countingReader{inner: http.NoBody}, ratio: 1, maxBytes: 1}
		go body.Read(make([]byte, 1))
		<-slow.begun
		body.Close()
		if slow.released.Load() != 0 {
			t.Error("the decoder was given back while it is in use")
		}
		close(slow.unblock)
		synctest.Wait()
		body.Close()
		if n := slow.released.Load(); n != 1 {
			t.Errorf("the decoder was given back %d times", n)
		}
		if _, err := body.Read(make([]byte, 1)); err == nil {
			t.Error("it was read after it was closed")
		}
	})
}

// The goroutine of a request checks whether the body was read to its end, while
// a transport reads it.
func TestABodyIsReadOnAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("POST", "/pass", func(w http.ResponseWriter, r *http.Request) error {
			go io.Copy(io.Discard, r.Body)
			time.Sleep(time.Second) // it has been read by then, without synchronisation
			return fault.New("test", fault.UpstreamFailed, "the part refuses")
		})}).listen()
		c := f.dial()
		if r := c.post("/pass", "hello"); r.StatusCode != 502 || r.Close {
			t.Errorf("%d, closing %t", r.StatusCode, r.Close)
		}
	})
}
