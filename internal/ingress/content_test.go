package ingress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/fault"
)

var modified = time.Date(2024, 5, 6, 7, 8, 9, 500, time.UTC)

const (
	earlier = "Mon, 06 May 2024 07:08:08 GMT"
	exactly = "Mon, 06 May 2024 07:08:09 GMT"
	later1  = "Mon, 06 May 2024 07:08:10 GMT"
	digits  = "0123456789"
)

func digitsContent() Content {
	return Content{Size: 10, ETag: `"v1"`, Modified: modified, Type: "text/plain", CacheControl: "public, max-age=60",
		Write: FromReaderAt(strings.NewReader(digits))}
}

// serveContent serves a content without a socket.
func serveContent(t testing.TB, method string, c Content, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	f := newFixture(t, []Route{transfer("GET", "/c", func(w http.ResponseWriter, r *http.Request) error {
		status, err := ServeContent(w, r, c)
		if call := w.(*call); err == nil && int(call.status.Load()) != status {
			t.Errorf("returned %d, answered %d", status, call.status.Load())
		}
		return err
	})})
	r := httptest.NewRequest(method, "/c", nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	return w
}

func TestContent(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		headers []string
		status  int
		body    string
		extra   string // Content-Range, if there must be one
	}{
		"whole": {"GET", nil, 200, digits, ""},
		"head":  {"HEAD", nil, 200, "", ""},

		// Ranges.
		"first bytes":             {"GET", []string{"Range: bytes=0-3"}, 206, "0123", "bytes 0-3/10"},
		"one byte":                {"GET", []string{"Range: bytes=9-9"}, 206, "9", "bytes 9-9/10"},
		"to the end":              {"GET", []string{"Range: bytes=7-"}, 206, "789", "bytes 7-9/10"},
		"past the end":            {"GET", []string{"Range: bytes=7-99"}, 206, "789", "bytes 7-9/10"},
		"last bytes":              {"GET", []string{"Range: bytes=-2"}, 206, "89", "bytes 8-9/10"},
		"more than all":           {"GET", []string{"Range: bytes=-99"}, 206, digits, "bytes 0-9/10"},
		"unit in capitals":        {"GET", []string{"Range: BYTES=0-0"}, 206, "0", "bytes 0-0/10"},
		"spaces":                  {"GET", []string{"Range: bytes= 0-0 "}, 206, "0", "bytes 0-0/10"},
		"empty elements":          {"GET", []string{"Range: bytes=,0-0,"}, 206, "0", "bytes 0-0/10"},
		"far beyond every number": {"GET", []string{"Range: bytes=2-99999999999999999999999"}, 206, "23456789", "bytes 2-9/10"},
		"unknown unit":            {"GET", []string{"Range: pages=1-2"}, 200, digits, ""},
		"no unit":                 {"GET", []string{"Range: 0-3"}, 200, digits, ""},
		"head has no range":       {"HEAD", []string{"Range: bytes=0-3"}, 200, "", ""},
		"outside":                 {"GET", []string{"Range: bytes=10-"}, 416, "", "bytes */10"},
		"far outside":             {"GET", []string{"Range: bytes=99999999999999999999-"}, 416, "", "bytes */10"},
		"nothing of the end":      {"GET", []string{"Range: bytes=-0"}, 416, "", "bytes */10"},
		"nothing, with a space":   {"GET", []string{"Range: bytes=- 0"}, 416, "", "bytes */10"},
		"a huge end":              {"GET", []string{"Range: bytes=-9227000000000000000"}, 206, digits, "bytes 0-9/10"},
		"backwards":               {"GET", []string{"Range: bytes=3-2"}, 416, "", "bytes */10"},
		"not a number":            {"GET", []string{"Range: bytes=a-b"}, 416, "", "bytes */10"},
		"a sign":                  {"GET", []string{"Range: bytes=+1-2"}, 416, "", "bytes */10"},
		"nothing at all":          {"GET", []string{"Range: bytes="}, 416, "", "bytes */10"},
		"only a hyphen":           {"GET", []string{"Range: bytes=-"}, 416, "", "bytes */10"},
		"two":                     {"GET", []string{"Range: bytes=0-1,3-4"}, 200, digits, ""},
		"one of two outside":      {"GET", []string{"Range: bytes=0-1,30-40"}, 206, "01", "bytes 0-1/10"},
		"both outside":            {"GET", []string{"Range: bytes=10-11,30-40"}, 416, "", "bytes */10"},
		"one of two malformed":    {"GET", []string{"Range: bytes=0-1,x"}, 200, digits, ""},
		"outside and malformed":   {"GET", []string{"Range: bytes=x,10-"}, 416, "", "bytes */10"},
		"two headers":             {"GET", []string{"Range: bytes=0-1", "Range: bytes=3-4"}, 200, digits, ""},

		// If-Range.
		"if-range holds":           {"GET", []string{"Range: bytes=0-0", `If-Range: "v1"`}, 206, "0", "bytes 0-0/10"},
		"if-range of another":      {"GET", []string{"Range: bytes=0-0", `If-Range: "v2"`}, 200, digits, ""},
		"if-range is never weak":   {"GET", []string{"Range: bytes=0-0", `If-Range: W/"v1"`}, 200, digits, ""},
		"if-range by date":         {"GET", []string{"Range: bytes=0-0", "If-Range: " + exactly}, 206, "0", "bytes 0-0/10"},
		"if-range by later date":   {"GET", []string{"Range: bytes=0-0", "If-Range: " + later1}, 200, digits, ""},
		"if-range malformed":       {"GET", []string{"Range: bytes=0-0", "If-Range: v1"}, 200, digits, ""},
		"if-range of two":          {"GET", []string{"Range: bytes=0-0", `If-Range: "v1", "v1"`}, 200, digits, ""},
		"if-range twice":           {"GET", []string{"Range: bytes=0-0", `If-Range: "v1"`, `If-Range: "v1"`}, 200, digits, ""},
		"if-range saves a bad one": {"GET", []string{"Range: bytes=99-", `If-Range: "v2"`}, 200, digits, ""},

		// Conditions.
		"none-match":                  {"GET", []string{`If-None-Match: "v1"`}, 304, "", ""},
		"none-match of several":       {"GET", []string{`If-None-Match: "v0", W/"v1"`}, 304, "", ""},
		"none-match in two lines":     {"GET", []string{`If-None-Match: "v0"`, `If-None-Match: "v1"`}, 304, "", ""},
		"none-match star":             {"GET", []string{"If-None-Match: *"}, 304, "", ""},
		"none-match of another":       {"GET", []string{`If-None-Match: "v2"`}, 200, digits, ""},
		"none-match malformed":        {"GET", []string{`If-None-Match: v1`}, 200, digits, ""},
		"none-match half malformed":   {"GET", []string{`If-None-Match: "v1", x`}, 200, digits, ""},
		"none-match glued":            {"GET", []string{`If-None-Match: "v0""v1"`}, 200, digits, ""},
		"none-match, head":            {"HEAD", []string{`If-None-Match: "v1"`}, 304, "", ""},
		"none-match wins over range":  {"GET", []string{`If-None-Match: "v1"`, "Range: bytes=0-0"}, 304, "", ""},
		"none-match wins over date":   {"GET", []string{`If-None-Match: "v2"`, "If-Modified-Since: " + later1}, 200, digits, ""},
		"modified since":              {"GET", []string{"If-Modified-Since: " + earlier}, 200, digits, ""},
		"not modified since":          {"GET", []string{"If-Modified-Since: " + exactly}, 304, "", ""},
		"not modified since, later":   {"GET", []string{"If-Modified-Since: " + later1}, 304, "", ""},
		"modified since, malformed":   {"GET", []string{"If-Modified-Since: yesterday"}, 200, digits, ""},
		"match":                       {"GET", []string{`If-Match: "v1"`}, 200, digits, ""},
		"match star":                  {"GET", []string{"If-Match: *"}, 200, digits, ""},
		"match of another":            {"GET", []string{`If-Match: "v2"`}, 412, "", ""},
		"match is never weak":         {"GET", []string{`If-Match: W/"v1"`}, 412, "", ""},
		"match malformed":             {"GET", []string{"If-Match: v1"}, 200, digits, ""},
		"match wins over date":        {"GET", []string{`If-Match: "v1"`, "If-Unmodified-Since: " + earlier}, 200, digits, ""},
		"unmodified since":            {"GET", []string{"If-Unmodified-Since: " + exactly}, 200, digits, ""},
		"modified after all":          {"GET", []string{"If-Unmodified-Since: " + earlier}, 412, "", ""},
		"unmodified since, malformed": {"GET", []string{"If-Unmodified-Since: x"}, 200, digits, ""},
		"match and range":             {"GET", []string{`If-Match: "v1"`, "Range: bytes=1-1"}, 206, "1", "bytes 1-1/10"},
	} {
		w := serveContent(t, c.method, digitsContent(), c.headers...)
		problem := strings.Contains(w.Header().Get("Content-Type"), "problem")
		if w.Code != c.status || !problem && w.Body.String() != c.body || w.Header().Get("Content-Range") != c.extra {
			t.Errorf("%s: %d %q, Content-Range %q", name, w.Code, w.Body, w.Header().Get("Content-Range"))
		}
		if problem != (w.Code >= 400) {
			t.Errorf("%s: status %d as %q", name, w.Code, w.Header().Get("Content-Type"))
		}
		switch w.Code {
		case 200, 206, 304:
			if w.Header().Get("Etag") != `"v1"` || w.Header().Get("Cache-Control") != "public, max-age=60" || w.Header().Get("Last-Modified") != exactly {
				t.Errorf("%s: %v", name, w.Header())
			}
		default:
			if w.Header().Get("Etag") != "" && w.Code == 416 || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: a refusal must not look like the content: %v", name, w.Header())
			}
		}
		if w.Code == 200 && w.Header().Get("Content-Length") != "10" || w.Code == 304 && (w.Header().Get("Content-Length") != "" || w.Header().Get("Content-Type") != "") {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
}

func TestContentWithoutValidators(t *testing.T) {
	plain := Content{Size: 10, Type: "text/plain", Write: FromReaderAt(strings.NewReader(digits))}
	for name, c := range map[string]struct {
		header string
		status int
	}{
		"none-match": {`If-None-Match: "v1"`, 200}, "match": {`If-Match: "v1"`, 412}, "none-match nothing": {`If-None-Match: ""`, 200},
		"since": {"If-Modified-Since: " + later1, 200}, "unmodified": {"If-Unmodified-Since: " + earlier, 200}, "if-range": {"If-Range: " + exactly, 200},
	} {
		if w := serveContent(t, "GET", plain, c.header); w.Code != c.status {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	weak := plain
	weak.ETag = `W/"v1"`
	for name, c := range map[string]struct {
		headers []string
		status  int
	}{
		"match is never weak":    {[]string{`If-Match: "v1"`}, 412},
		"nor if both are":        {[]string{`If-Match: W/"v1"`}, 412},
		"none-match may be weak": {[]string{`If-None-Match: "v1"`}, 304},
		"if-range is never weak": {[]string{`If-Range: "v1"`, "Range: bytes=0-0"}, 200},
	} {
		if w := serveContent(t, "GET", weak, c.headers...); w.Code != c.status {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	empty := Content{Type: "text/plain", ETag: `"e"`, Write: FromReaderAt(strings.NewReader(""))}
	for _, header := range []string{"X: y", "Range: bytes=0-", "Range: bytes=-5"} {
		if w := serveContent(t, "GET", empty, header); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "0" {
			t.Errorf("%s of nothing: %d %v", header, w.Code, w.Header())
		}
	}
}

func TestMultiRange(t *testing.T) {
	multi := digitsContent()
	multi.MultiRange = true
	w := serveContent(t, "GET", multi, "Range: bytes=0-1, 8-, 4-4")
	kind, params, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if w.Code != 206 || err != nil || kind != "multipart/byteranges" || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	parts := multipart.NewReader(w.Body, params["boundary"])
	for _, want := range []struct{ where, what string }{{"bytes 0-1/10", "01"}, {"bytes 8-9/10", "89"}, {"bytes 4-4/10", "4"}} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(part)
		if string(body) != want.what || part.Header.Get("Content-Range") != want.where || part.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%q %v", body, part.Header)
		}
	}
	if w := serveContent(t, "GET", multi, "Range: bytes=2-3,99-100"); w.Code != 206 || w.Body.String() != "23" {
		t.Errorf("what is left of two is one: %d %q", w.Code, w.Body)
	}
	// The answer is never larger than the content, whatever the ranges.
	if w := serveContent(t, "GET", multi, "Range: bytes=0-,0-,0-"); w.Code != 200 || w.Body.String() != digits {
		t.Errorf("overlapping: %d, %d bytes", w.Code, w.Body.Len())
	}
	if w := serveContent(t, "GET", multi, "Range: bytes="+strings.Repeat("0-0,", 17)); w.Code != 200 || w.Body.String() != digits {
		t.Errorf("numerous: %d", w.Code)
	}
	// Ranges that overlap or touch are one part, and no byte is sent twice.
	for text, want := range map[string]string{
		"0-1,1-2": "0-2/10", "0-1,2-3": "0-3/10", "4-5,0-1,2-3": "0-5/10", "0-0,0-0,0-0": "0-0/10", "3-4,2-6": "2-6/10", "-2,7-7": "7-9/10",
	} {
		if w := serveContent(t, "GET", multi, "Range: bytes="+text); w.Code != 206 || w.Header().Get("Content-Range") != "bytes "+want {
			t.Errorf("%s: %d %q", text, w.Code, w.Header().Get("Content-Range"))
		}
	}
	for text, want := range map[string][]span{
		"0-0,2-2":                {{0, 1}, {2, 1}},
		"8-8,0-1,1-2":            {{8, 1}, {0, 3}},
		"0-0,4-4,2-2,3-3":        {{0, 1}, {2, 3}},
		"0-0,2-2,4-4,6-6,1-1":    {{0, 3}, {4, 1}, {6, 1}},
		"6-6,0-0,2-2,4-4,3-3,-1": {{6, 1}, {0, 1}, {2, 3}, {9, 1}},
	} {
		if _, got := parseRange([]string{"bytes=" + text}, 10, 16); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A date counts only for reading, and only where no tags are given.
func TestDatesBesideTags(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		headers map[string]string
		want    conditionResult
	}{
		"since, reading":               {"HEAD", map[string]string{"If-Modified-Since": later1}, conditionNotModified},
		"since, writing":               {"PUT", map[string]string{"If-Modified-Since": later1}, conditionsHold},
		"none-match, writing":          {"PUT", map[string]string{"If-None-Match": `"v1"`}, preconditionFailed},
		"since beside a malformed tag": {"GET", map[string]string{"If-None-Match": "v1", "If-Modified-Since": later1}, conditionsHold},
		"unmodified beside malformed":  {"GET", map[string]string{"If-Match": "v1", "If-Unmodified-Since": earlier}, conditionsHold},
		"unmodified, writing":          {"PUT", map[string]string{"If-Unmodified-Since": earlier}, preconditionFailed},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		for name, value := range c.headers {
			r.Header.Set(name, value)
		}
		if got := evaluateConditions(r, `"v1"`, modified); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A refusal is a document of its own, whatever the encoding of the content.
func TestRefusalsAreNotPacked(t *testing.T) {
	packed := digitsContent()
	packed.Encoding = "gzip"
	for header, status := range map[string]int{`If-Match: "v2"`: 412, "Range: bytes=99-": 416, `If-None-Match: "v1"`: 304} {
		w := serveContent(t, "GET", packed, header)
		if w.Code != status || w.Header().Get("Content-Encoding") != "" || w.Header().Get("Accept-Ranges") != "" {
			t.Errorf("%s: %d %v", header, w.Code, w.Header())
		}
	}
}

// An error before the first byte is answered as such; after it, the answer is
// cut.
func TestContentThatFails(t *testing.T) {
	bad := digitsContent()
	bad.Write = func(io.Writer, int64, int64) error { return fault.IntegrityFail }
	w := serveContent(t, "GET", bad)
	if w.Code != 502 || w.Header().Get("Etag") != "" || w.Header().Get("Accept-Ranges") != "" || !strings.Contains(w.Body.String(), "IntegrityFail") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w = serveContent(t, "GET", bad, "Range: bytes=0-0"); w.Code != 502 || w.Header().Get("Content-Range") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	short := digitsContent()
	short.Size = 20
	for _, header := range []string{"X: y", "Range: bytes=0-15"} {
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Errorf("%s: a content that is too short must be cut", header)
				}
			}()
			serveContent(t, "GET", short, header)
		}()
	}
	// A ready content has begun before it is written, so it is cut at once.
	ready := bad
	ready.Ready = true
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("a content that was said to be ready must be cut")
			}
		}()
		serveContent(t, "GET", ready)
	}()
	multi := short
	multi.MultiRange = true
	func() {
		defer func() { recover() }()
		serveContent(t, "GET", multi, "Range: bytes=0-1,12-15")
		t.Error("a part that is too short must be cut")
	}()
}

// A file goes from disk to the socket directly, and arrives whole.
func TestContentFromAFile(t *testing.T) {
	name := t.TempDir() + "/big"
	body := noise(300_000)
	if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(w http.ResponseWriter, r *http.Request) error {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = ServeContent(w, r, Content{Size: int64(len(body)), Type: "text/plain", Ready: r.URL.Path == "/ready", Write: func(w io.Writer, from, length int64) error {
			if _, err := file.Seek(from, io.SeekStart); err != nil {
				return err
			}
			_, err := io.CopyN(w, file, length)
			return err
		}})
		return err
	}
	f := newFixture(t, []Route{transfer("GET", "/file", serve), transfer("GET", "/ready", serve), control("GET", "/control", serve)}).listenTCP()
	for _, path := range []string{"/file", "/ready", "/control"} {
		c := f.dialReal()
		if r := c.get(path); r.body != body {
			t.Errorf("%s: %d bytes", path, len(r.body))
		}
		if r := c.get(path, "Range: bytes=100000-299999"); r.body != body[100000:] {
			t.Errorf("%s: %d bytes", path, len(r.body))
		}
		if r := c.get(path, "Range: bytes=-3"); r.body != body[len(body)-3:] {
			t.Errorf("%s: %q", path, r.body)
		}
	}
	// In memory there is no sendfile, and it is copied.
	g := newFixture(t, []Route{transfer("GET", "/file", serve), transfer("GET", "/ready", serve)}).listen()
	for _, path := range []string{"/file", "/ready"} {
		if r := g.dial().get(path); r.body != body {
			t.Errorf("%s: %d bytes", path, len(r.body))
		}
	}
}

// callRecorder is a response writer that records the order of its calls.
type callRecorder struct {
	discard
	calls []string
}

func (c *callRecorder) WriteHeader(status int) { c.calls = append(c.calls, fmt.Sprint(status)) }
func (c *callRecorder) Write(p []byte) (int, error) {
	c.calls = append(c.calls, "write")
	return len(p), nil
}
func (c *callRecorder) FlushError() error { c.calls = append(c.calls, "flush"); return nil }
func (c *callRecorder) ReadFrom(src io.Reader) (int64, error) {
	c.calls = append(c.calls, fmt.Sprintf("%T", src.(*io.LimitedReader).R))
	return io.Copy(io.Discard, src)
}

// The header of a ready file is sent, and then the kernel sends the file. Of
// another one, net/http or we would read the beginning first.
func TestAReadyFileIsNotRead(t *testing.T) {
	file := bodiesFile()
	for ready, want := range map[bool]string{true: "200 flush *os.File", false: "200 write flush *os.File"} {
		w := &callRecorder{discard: discard{http.Header{}}}
		f := newFixture(t, []Route{transfer("GET", "/c", func(w http.ResponseWriter, r *http.Request) error {
			_, err := ServeContent(w, r, Content{Size: 1000, Type: "text/plain", Ready: ready, Write: func(w io.Writer, from, length int64) error {
				file.Seek(from, io.SeekStart)
				_, err := io.CopyN(w, file, length)
				return err
			}})
			return err
		})})
		f.server.ServeHTTP(w, httptest.NewRequest("GET", "/c", nil))
		if got := strings.Join(w.calls, " "); got != want {
			t.Errorf("%t: %s", ready, got)
		}
	}
}

// brokenReader fails after some bytes.
type brokenReader struct{ n int }

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.n == 0 {
		return 0, errors.New("disk on fire")
	}
	n := min(b.n, len(p))
	b.n -= n
	return n, nil
}

func TestLazy(t *testing.T) {
	for _, c := range []struct{ good, status int }{{0, 0}, {100, 206}, {1000, 206}} {
		w := httptest.NewRecorder()
		w.Code = 0
		l := &lazyWriter{ResponseWriter: w, status: 206}
		n, err := l.ReadFrom(&brokenReader{c.good})
		if int(n) != c.good || w.Body.Len() != c.good || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if w.Code != c.status {
			t.Errorf("%d bytes: status %d", c.good, w.Code)
		}
	}
	w := httptest.NewRecorder()
	l := &lazyWriter{ResponseWriter: w, status: 206}
	if n, err := l.ReadFrom(strings.NewReader(digits)); n != 10 || err != nil || w.Code != 206 {
		t.Errorf("%d %v", n, err)
	}
}

// FuzzRange compares with net/http where the two agree, and checks that the
// result always lies inside the content and is never more than it.
func FuzzRange(f *testing.F) {
	for _, text := range []string{"bytes=0-3", "bytes=-2", "bytes=5-", "bytes=0-1,3-4", "BYTES=0-0", "bytes=9-99", "bytes=a-", "pages=1-2", "bytes=,", "bytes=3-2", "bytes=-0", "bytes=0-,0-"} {
		f.Add(text, int64(10), 3)
		f.Add(text, int64(0), 1)
	}
	f.Fuzz(func(t *testing.T, text string, size int64, most int) {
		if size < 0 || most < 1 {
			return
		}
		what, spans := parseRange([]string{text}, size, most)
		if (what == rangeSpans) != (len(spans) > 0) || len(spans) > most {
			t.Fatalf("%q: %d with %v", text, what, spans)
		}
		total := int64(0)
		for _, s := range spans {
			if s.from < 0 || s.length < 1 || s.from+s.length > size {
				t.Fatalf("%q of %d: %v lies outside", text, size, s)
			}
			total += s.length
		}
		if total > size {
			t.Fatalf("%q of %d: %d bytes", text, size, total)
		}
		compareRange(t, text, size, what, spans)
	})
}

// hugeNumber may be more than an int64 holds.
var hugeNumber = regexp.MustCompile(`[0-9]{19}`)

// compareRange sends net/http the same.
func compareRange(t *testing.T, text string, size int64, what rangeResult, spans []span) {
	if size == 0 || size > 1<<20 || strings.ContainsAny(text, "\r\n\x00") || !strings.HasPrefix(text, "bytes=") || strings.Contains(text, ",") {
		return // differs by intent, or cannot be sent
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Range", text)
	w := httptest.NewRecorder()
	http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(make([]byte, size)))
	tight := strings.NewReplacer(" ", "", "\t", "").Replace(text)
	switch {
	case strings.Trim(tight[len("bytes="):], "0123456789-") != "" || strings.Contains(tight, "-0") || hugeNumber.MatchString(tight):
		// net/http accepts signs in numbers and an empty suffix as a part, and
		// rejects positions that do not fit into 64 bits.
	case what == rangeSpans && (w.Code != 206 || w.Header().Get("Content-Range") != spans[0].contentRange(size)):
		t.Fatalf("%q of %d: %v, net/http says %d %s", text, size, spans, w.Code, w.Header().Get("Content-Range"))
	case what == rangeInvalid && w.Code == 206:
		t.Fatalf("%q of %d: refused, net/http says %s", text, size, w.Header().Get("Content-Range"))
	}
}

// FuzzValidators compares the conditions with those of net/http.
func FuzzValidators(f *testing.F) {
	for _, text := range []string{`"v1"`, `W/"v1"`, `*`, `"a", "v1"`, `v1`, `"`, `W/`, earlier, later1, exactly, `"v1" , x`, ``} {
		for which := range 5 {
			f.Add(text, uint8(which))
		}
	}
	names := []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"}
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		name := names[int(which)%len(names)]
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(name, text)
		r.Header.Set("Range", "bytes=0-0")
		ours := evaluateConditions(r, `"v1"`, modified)
		holds := rangeApplies(r, `"v1"`, modified)
		if plausible(name, text) {
			w := httptest.NewRecorder()
			w.Header().Set("Etag", `"v1"`)
			http.ServeContent(w, r, "x.bin", modified, strings.NewReader(digits))
			want := map[bool]int{true: 206, false: 200}[holds]
			switch ours {
			case conditionNotModified:
				want = 304
			case preconditionFailed:
				want = 412
			}
			if w.Code != want {
				t.Fatalf("%s: %q: %d, net/http says %d", name, text, want, w.Code)
			}
		}
	})
}

// plausible leaves out what net/http reads more generously than we do, such as
// a tag with something after it, and a malformed If-Match, which it treats as
// one that does not match.
func plausible(name, text string) bool {
	tag, rest, isTag := scanTag(text)
	isTag = isTag && rest == "" && text == tag
	_, err := http.ParseTime(text)
	switch name {
	case "If-Match", "If-None-Match":
		return isTag || text == "*"
	case "If-Range":
		return isTag || err == nil
	default:
		return err == nil
	}
}
