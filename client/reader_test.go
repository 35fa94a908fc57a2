package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

func TestGet(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	for _, size := range []int{0, 1, 16384, 16385, 1 << 20, 3<<20 + 7} {
		data := pattern(size)
		r, err := c.Get(t.Context(), node.Add(data), GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Size() != int64(size) {
			t.Errorf("size %d, want %d", r.Size(), size)
		}
		if size <= 16385 {
			err = iotest.TestReader(r, data) // thorough, and slow
		} else if got, failed := io.ReadAll(r); !bytes.Equal(got, data) {
			err = fmt.Errorf("got %d bytes, %v", len(got), failed)
		}
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(node.seen()); n != 6 {
		t.Errorf("%d requests for 6 objects", n)
	}
	_, err := c.Get(t.Context(), b3.Of([]byte("absent")), GetOptions{})
	testkit.WantKind(t, err, fault.NotFound, "absent")
	if fault.DetailOf(err) != "there is no such object" || fault.OpOf(err) != "fake.op" || fault.NextOf(err) != "Do as the fake says." {
		t.Errorf("%v: %s, %s", err, fault.OpOf(err), fault.NextOf(err))
	}
}

func TestGetPart(t *testing.T) {
	data := pattern(10_000)
	whole := NewFakeNode() // this one does not support ranges
	whole.Before = func(_ http.ResponseWriter, r *http.Request, _ int) bool { r.Header.Del("Range"); return false }
	for name, node := range map[string]*FakeNode{"with ranges": NewFakeNode(), "without ranges": whole} {
		address := node.Add(data)
		c := serve(t, node)
		for _, o := range []GetOptions{{Offset: 1}, {Length: 1}, {Offset: 9_999}, {Offset: 5_000, Length: 100}, {Offset: 9_000, Length: 9_000}, {Length: 10_000}} {
			end := len(data)
			if o.Length > 0 {
				end = min(end, int(o.Offset+o.Length))
			}
			var reported int64
			o.Progress = func(done, total int64) {
				if reported = done; total != int64(end)-o.Offset {
					t.Errorf("%s: total %d of %+v", name, total, o)
				}
			}
			got, err := readAll(t, c, address, o)
			if err != nil || !bytes.Equal(got, data[o.Offset:end]) || reported != int64(len(got)) {
				t.Errorf("%s: %d bytes at %d: got %d bytes, %v, told %d", name, o.Length, o.Offset, len(got), err, reported)
			}
		}
		for _, r := range node.seen() {
			if name == "with ranges" && r.Header.Get("Range") == "" {
				t.Error("a part was wanted, and the whole was asked for")
			}
		}
		_, err := readAll(t, c, address, GetOptions{Offset: 10_000})
		testkit.WantKind(t, err, fault.InvalidRange, name+": after the end")
	}
	c := serve(t, NewFakeNode())
	for _, o := range []GetOptions{{Offset: -1}, {Length: -1}, {Offset: math.MaxInt64, Length: 2}} {
		_, err := c.Get(t.Context(), b3.Of(nil), o)
		testkit.WantKind(t, err, fault.InvalidRange, fmt.Sprintf("%+v", o))
	}
	_, err := c.Get(t.Context(), b3.Address{}, GetOptions{})
	testkit.WantKind(t, err, fault.Malformed, "no address")
}

// Wrong bytes never end with io.EOF.
func TestGetNeverEndsCleanlyWithWrongBytes(t *testing.T) {
	data := pattern(100_000)
	flipped := slices.Clone(data)
	flipped[77_777] ^= 1
	for name, wrong := range map[string][]byte{
		"a flipped bit": flipped, "too short": data[:99_999], "too long": append(slices.Clone(data), 0), "nothing": nil, "swapped": pattern(7),
	} {
		node := NewFakeNode()
		address := b3.Of(data)
		node.Corrupt(address, wrong)
		c := serve(t, node)
		r, err := c.Get(t.Context(), address, GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, r)
		testkit.WantKind(t, err, fault.IntegrityFail, name)
		if !errors.Is(err, b3.ErrMismatch) || CorrID(err) == "" || len(node.seen()) != 1 {
			t.Errorf("%s: %v after %d tries", name, err, len(node.seen()))
		}
		for range 2 { // and it stays so
			n, err := r.Read(make([]byte, 10))
			if testkit.WantKind(t, err, fault.IntegrityFail, name); n != 0 {
				t.Errorf("%s: %d bytes after the end", name, n)
			}
		}
		_ = r.Close()
	}
}

// breakConnections makes a node break every connection after so many bytes of
// a body.
func breakConnections(node *FakeNode, after func(n int) int, chunked bool) {
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		left := after(n)
		if left < 0 || r.Method != http.MethodGet {
			return false
		}
		recorder := httptest.NewRecorder()
		node.one(recorder, r, strings.TrimPrefix(r.URL.Path, "/o/"))
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		if chunked {
			w.Header().Del("Content-Length")
		}
		w.WriteHeader(recorder.Code)
		body := recorder.Body.Bytes()
		_, _ = w.Write(body[:min(left, len(body))])
		if left >= len(body) {
			return true
		}
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestGetGoesOnWhereItWas(t *testing.T) {
	data := pattern(500_000)
	for name, chunked := range map[string]bool{"with a length": false, "in chunks": true} {
		node := NewFakeNode()
		breakConnections(node, func(int) int { return 100_000 }, chunked)
		address := node.Add(data)
		var done, total int64
		got, err := readAll(t, serve(t, node), address, GetOptions{Progress: func(d, all int64) { done, total = d, all }})
		if err != nil || !bytes.Equal(got, data) || done != 500_000 || total != 500_000 {
			t.Errorf("%s: %d bytes, %v, told %d of %d", name, len(got), err, done, total)
		}
		seen := node.seen()
		corr := map[string]bool{}
		for _, r := range seen {
			corr[r.Header.Get("X-Corr-ID")] = true
		}
		// Each byte resets the count of tries, so five connections are no more
		// than three tries.
		if len(seen) != 5 || len(corr) != 1 || seen[1].Header.Get("Range") == "" {
			t.Errorf("%s: %d requests with %d corr-ids", name, len(seen), len(corr))
		}
	}
}

// A part is resumed too, without a request for more than the part.
func TestAPartGoesOn(t *testing.T) {
	data := pattern(50_000)
	node := NewFakeNode()
	breakConnections(node, func(int) int { return 10_000 }, false)
	address := node.Add(data)
	got, err := readAll(t, serve(t, node), address, GetOptions{Offset: 5_000, Length: 25_000})
	if err != nil || !bytes.Equal(got, data[5_000:30_000]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	var asked []string
	for _, r := range node.seen() {
		asked = append(asked, r.Header.Get("Range"))
	}
	if fmt.Sprint(asked) != "[bytes=5000-29999 bytes=15000-29999 bytes=25000-29999]" {
		t.Errorf("asked for %q", asked)
	}
}

// A body that ends silently before its announced length, and a server without
// ranges that breaks again while the bytes that were read already are skipped.
func TestGetOverAnotherTransport(t *testing.T) {
	data := "0123456789"
	says := func(body io.Reader) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			a := answer(200, data)
			a.Body = io.NopCloser(body)
			return a, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, says(strings.NewReader(data[:6])),
			says(io.MultiReader(strings.NewReader(data[:3]), failingReader{io.ErrUnexpectedEOF})), says(strings.NewReader(data)))
		got, err := readAll(t, c, b3.Of([]byte(data)), GetOptions{})
		if err != nil || string(got) != data || len(s.at) != 3 {
			t.Errorf("%q, %v after %d tries", got, err, len(s.at))
		}
	})
}

// Without new bytes, Get fails.
func TestGetGivesUp(t *testing.T) {
	data := pattern(50_000)
	node := NewFakeNode()
	breakConnections(node, func(n int) int { return max(0, 20_000-20_000*(n-1)) }, false)
	address := node.Add(data)
	got, err := readAll(t, serve(t, node), address, GetOptions{})
	testkit.WantKind(t, err, fault.BrokenPipe, "broken for ever")
	if !bytes.Equal(got, data[:20_000]) || len(node.seen()) != 3 || !errors.Is(err, io.ErrUnexpectedEOF) || CorrID(err) == "" {
		t.Errorf("%d bytes, %v after %d tries", len(got), err, len(node.seen()))
	}

	// A node that loses the object in the middle, one that drains, one that is
	// busy for too long.
	for _, kind := range []fault.Kind{fault.NotFound, fault.Canceled, fault.Busy} {
		node = NewFakeNode()
		breakConnections(node, func(int) int { return 20_000 }, false)
		breaks := node.Before
		node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 1 {
				return breaks(w, r, n)
			}
			w.Header().Set("Retry-After", "3600")
			refuse(w, r, kind, "not now")
			return true
		}
		got, err := readAll(t, serve(t, node), node.Add(data), GetOptions{})
		testkit.WantKind(t, err, kind, "then "+kind.Code())
		if len(got) != 20_000 || len(node.seen()) != 2 {
			t.Errorf("%v: %d bytes after %d tries", kind, len(got), len(node.seen()))
		}
	}
}

// An answer that does not match the request is rejected.
func TestStrangeAnswers(t *testing.T) {
	data := pattern(1000)
	for name, strange := range map[string]struct {
		status int
		header string
		length int
		kind   fault.Kind
	}{
		"another place":      {206, "bytes 400-999/1000", 600, fault.IntegrityFail},
		"another end":        {206, "bytes 500-899/1000", 400, fault.IntegrityFail},
		"another size":       {206, "bytes 500-1999/2000", 1500, fault.IntegrityFail},
		"beyond the size":    {206, "bytes 500-1000/1000", 501, fault.IntegrityFail},
		"no Content-Range":   {206, "", 500, fault.IntegrityFail},
		"no size":            {206, "bytes 500-999/*", 500, fault.IntegrityFail},
		"no bytes":           {206, "lines 500-999/1000", 500, fault.IntegrityFail},
		"another whole":      {200, "", 999, fault.IntegrityFail},
		"nothing":            {204, "", 0, fault.UpstreamFailed},
		"something accepted": {202, "", 0, fault.UpstreamFailed},
	} {
		node := NewFakeNode()
		breakConnections(node, func(int) int { return 500 }, false)
		breaks := node.Before
		node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 1 {
				return breaks(w, r, n)
			}
			if strange.header != "" {
				w.Header().Set("Content-Range", strange.header)
			}
			if strange.length > 0 {
				w.Header().Set("Content-Length", strconv.Itoa(strange.length))
			}
			w.WriteHeader(strange.status)
			_, _ = w.Write(make([]byte, strange.length))
			return true
		}
		got, err := readAll(t, serve(t, node), node.Add(data), GetOptions{})
		testkit.WantKind(t, err, strange.kind, name)
		if len(got) != 500 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}

	// A part that was not requested.
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		r.Header.Set("Range", "bytes=0-9")
		return false
	}
	_, err := readAll(t, serve(t, node), node.Add(data), GetOptions{})
	testkit.WantKind(t, err, fault.UpstreamFailed, "a part of its own accord")
}

// Whatever the connections do, the bytes are right or the end is an error.
func TestGetOverAnyConnection(t *testing.T) {
	node := NewFakeNode()
	server := httptest.NewServer(node)
	defer server.Close()
	c := dial(t, Options{URL: server.URL, Retry: Retry{First: 1, Cap: 1}})
	rapid.Check(t, func(t *rapid.T) {
		data := pattern(rapid.IntRange(0, 100_000).Draw(t, "size"))
		cuts := rapid.SliceOfN(rapid.IntRange(0, 60_000), 0, 6).Draw(t, "cuts")
		first := len(node.seen())
		breakConnections(node, func(n int) int {
			if n -= first; n > len(cuts) {
				return -1
			}
			return cuts[n-1]
		}, rapid.Bool().Draw(t, "chunked"))
		address := node.Add(data)
		wrong := rapid.Bool().Draw(t, "wrong") && len(data) > 0
		if wrong {
			bad := slices.Clone(data)
			bad[rapid.IntRange(0, len(bad)-1).Draw(t, "where")] ^= 0x80
			node.Corrupt(address, bad)
		}
		r, err := c.Get(context.Background(), address, GetOptions{})
		if err != nil {
			if fault.KindOf(err) != fault.BrokenPipe {
				t.Fatal(err)
			}
			return
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		switch {
		case err == nil && (wrong || !bytes.Equal(got, data)):
			t.Fatalf("a clean end of %d wrong bytes", len(got))
		case err != nil && !wrong && fault.KindOf(err) != fault.BrokenPipe:
			t.Fatal(err)
		}
	})
}

func TestAClosedReader(t *testing.T) {
	node := NewFakeNode()
	address := node.Add(pattern(1 << 20))
	r, err := serve(t, node).Get(t.Context(), address, GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.Read(make([]byte, 10))
	_ = r.Close()
	_ = r.Close()
	n, err := r.Read(make([]byte, 10))
	if testkit.WantKind(t, err, fault.Canceled, "closed"); n != 0 {
		t.Errorf("%d bytes", n)
	}
}

// A Get that is cancelled in the middle returns Canceled without a retry.
func TestGetGivenUp(t *testing.T) {
	data := pattern(10 << 20)
	node := NewFakeNode()
	address := node.Add(data)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := serve(t, node).Get(ctx, address, GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _ = io.ReadFull(r, make([]byte, 1000))
	cancel()
	_, err = io.Copy(io.Discard, r)
	testkit.WantKind(t, err, fault.Canceled, "given up")
	if !errors.Is(err, context.Canceled) || len(node.seen()) != 1 {
		t.Errorf("%v after %d tries", err, len(node.seen()))
	}
}
