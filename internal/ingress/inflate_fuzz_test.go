package ingress

import (
	"bytes"
	stdgzip "compress/gzip"
	"io"
	"net/http"
	"testing"

	"micronode/fault"
)

// FuzzInflate inflates arbitrary input. The output stays within both caps at
// every moment, an error has a kind, and a whole gzip body means the same as to
// the standard library.
func FuzzInflate(f *testing.F) {
	const most, ratio = 32 << 10, 10
	fixture := newFixture(f, []Route{control("POST", "/echo", echo)}, func(o *Options) {
		o.Limits.Inflate, o.Limits.InflateRatio = most, ratio
	})
	route := fixture.server.routes["/echo"]
	text := noise(4 << 10)
	for _, body := range []string{"", text, gzipped(text), zstded(text), gzipped(text)[:100], zstded(text)[:100],
		gzipped(text[:100]) + gzipped(text[100:]), gzipped(string(make([]byte, 20<<10))), zstded(string(make([]byte, 20<<10)))} {
		f.Add(true, []byte(body))
		f.Add(false, []byte(body))
	}
	f.Fuzz(func(t *testing.T, zip bool, body []byte) {
		r := &http.Request{Header: http.Header{"Content-Encoding": {"zstd"}}, Body: io.NopCloser(bytes.NewReader(body))}
		if zip {
			r.Header.Set("Content-Encoding", "gzip")
		}
		if err := route.inflate(r); err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(r.Body)
		if len(out) > most || len(out) > ratio*len(body) {
			t.Fatalf("%d bytes became %d", len(body), len(out))
		}
		if kind := fault.KindOf(err); err != nil && kind != fault.Malformed && kind != fault.RatioCap {
			t.Fatalf("an error of kind %s: %v", kind, err)
		}
		if zip && err == nil {
			compareWithStdlib(t, body, out)
		}
		if err := r.Body.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func compareWithStdlib(t *testing.T, body, out []byte) {
	t.Helper()
	reader, err := stdgzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("taken here, refused there: %v", err)
	}
	want, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(out, want) {
		t.Fatalf("%d bytes here, %d there: %v", len(out), len(want), err)
	}
}
