package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// Small contents go to /put, larger ones and those of unknown size to /o.
func TestPutRoutes(t *testing.T) {
	big := pattern(putMax + 1)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, big, 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for name, try := range map[string]struct {
		src    io.Reader
		o      PutOptions
		want   []byte
		path   string
		length int64
	}{
		"memory":         {bytes.NewReader(big[:putMax]), PutOptions{}, big[:putMax], "/put", putMax},
		"a string":       {strings.NewReader("abc"), PutOptions{}, []byte("abc"), "/put", 3},
		"a buffer":       {bytes.NewBufferString("abc"), PutOptions{}, []byte("abc"), "/put", 3},
		"more memory":    {bytes.NewReader(big), PutOptions{}, big, "/o", putMax + 1},
		"a file":         {opened, PutOptions{}, big, "/o", putMax + 1},
		"a stream":       {onlyReader{bytes.NewReader(big)}, PutOptions{}, big, "/o", -1},
		"a short stream": {onlyReader{strings.NewReader("abc")}, PutOptions{}, []byte("abc"), "/o", -1},
		"a known stream": {onlyReader{strings.NewReader("abc")}, PutOptions{Size: 3}, []byte("abc"), "/put", 3},
		"one with EOF":   {onlyReader{eofReader{strings.NewReader("abc")}}, PutOptions{Size: 3}, []byte("abc"), "/put", 3},
		"nothing":        {strings.NewReader(""), PutOptions{}, nil, "/o", -1},
		"no stream":      {onlyReader{strings.NewReader("")}, PutOptions{}, nil, "/o", -1},
		"wanted":         {strings.NewReader("abc"), PutOptions{Want: b3.Of([]byte("abc"))}, []byte("abc"), "/put", 3},
	} {
		node := NewFakeNode()
		c := serve(t, node)
		object, err := c.Put(t.Context(), try.src, try.o)
		if want := (Object{Address: b3.Of(try.want), Size: int64(len(try.want)), Created: true}); err != nil || object != want {
			t.Errorf("%s: %+v, %v, want %+v", name, object, err, want)
		}
		if data, ok := node.object(b3.Of(try.want)); !ok || !bytes.Equal(data, try.want) {
			t.Errorf("%s: the node has something else", name)
		}
		if r := node.seen()[0]; r.URL.Path != try.path || r.ContentLength != try.length {
			t.Errorf("%s: %d bytes to %s, want %d to %s", name, r.ContentLength, r.URL.Path, try.length, try.path)
		}
	}
}

// eofReader returns io.EOF together with the last bytes.
type eofReader struct{ *strings.Reader }

func (e eofReader) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if e.Len() == 0 {
		err = io.EOF
	}
	return n, err
}

// A source is put from its current offset, and a second Put of the same bytes
// reports that they were there.
func TestPutFromTheMiddleAndAgain(t *testing.T) {
	c := serve(t, NewFakeNode())
	src := strings.NewReader("header|body")
	_, _ = src.Seek(7, io.SeekStart)
	first, err := c.Put(t.Context(), src, PutOptions{})
	if want := (Object{Address: b3.Of([]byte("body")), Size: 4, Created: true}); err != nil || first != want {
		t.Errorf("%+v, %v", first, err)
	}
	second, err := c.Put(t.Context(), strings.NewReader("body"), PutOptions{})
	if err != nil || second.Created || second.Address != first.Address {
		t.Errorf("%+v, %v", second, err)
	}
}

// A source that differs from its declared size or address is not stored.
func TestPutHoldsTheSourceToItsWord(t *testing.T) {
	big := pattern(300_000)
	gone := errors.New("the disk is on fire")
	for name, try := range map[string]struct {
		src  io.Reader
		o    PutOptions
		kind fault.Kind
	}{
		"too short":               {onlyReader{bytes.NewReader(big)}, PutOptions{Size: 300_001}, fault.Malformed},
		"too long":                {onlyReader{bytes.NewReader(big)}, PutOptions{Size: 299_999}, fault.Malformed},
		"memory that is too long": {strings.NewReader("abcd"), PutOptions{Size: 3}, fault.Malformed},
		"other bytes, a stream":   {onlyReader{bytes.NewReader(big)}, PutOptions{Want: b3.Of([]byte("x"))}, fault.IntegrityFail},
		"other bytes, memory":     {bytes.NewReader(big), PutOptions{Want: b3.Of([]byte("x"))}, fault.IntegrityFail},
		"a few other bytes":       {strings.NewReader("abc"), PutOptions{Want: b3.Of([]byte("abd"))}, fault.IntegrityFail},
		"one that breaks":         {io.MultiReader(bytes.NewReader(big), failingReader{gone}), PutOptions{}, fault.Internal},
		"one that breaks early":   {failingReader{gone}, PutOptions{Size: 10}, fault.Internal},
		"one that went away":      {failingReader{io.ErrClosedPipe}, PutOptions{}, fault.BrokenPipe},
		"a negative size":         {strings.NewReader(""), PutOptions{Size: -1}, fault.Malformed},
	} {
		node := NewFakeNode()
		_, err := serve(t, node).Put(t.Context(), try.src, try.o)
		testkit.WantKind(t, err, try.kind, name)
		if node.mu.Lock(); len(node.objects) != 0 {
			t.Errorf("%s: it was stored", name)
		}
		node.mu.Unlock()
		if n := len(node.seen()); n > 1 {
			t.Errorf("%s: tried %d times", name, n)
		}
	}
	_, err := serve(t, NewFakeNode()).Put(t.Context(), failingReader{gone}, PutOptions{})
	if !errors.Is(err, gone) {
		t.Errorf("the source's own error is lost: %v", err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// The node's address is compared with our own.
func TestPutComparesAddresses(t *testing.T) {
	for name, answer := range map[string]string{
		"other bytes": fmt.Sprintf(`{"address":%q,"size":3}`, b3.Of([]byte("abd"))),
		"fewer bytes": fmt.Sprintf(`{"address":%q,"size":2}`, b3.Of([]byte("abc"))),
		"no address":  `{"size":3}`,
	} {
		node := NewFakeNode()
		node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			writeJSON(w, 201, answer)
			return true
		}
		_, err := serve(t, node).Put(t.Context(), strings.NewReader("abc"), PutOptions{})
		testkit.WantKind(t, err, fault.IntegrityFail, name)
		if !errors.Is(err, b3.ErrMismatch) || CorrID(err) == "" || len(node.seen()) != 1 {
			t.Errorf("%s: %v, %d tries", name, err, len(node.seen()))
		}
	}
	for name, answer := range map[string]string{
		"not JSON": "thanks", "another shape": `{"address":7}`, "no b3": `{"address":"sha256:00"}`,
		"much too long": fmt.Sprintf(`{"address":%q,"size":3}`, b3.Of([]byte("abc"))) + strings.Repeat(" ", maxDocument),
	} {
		node := NewFakeNode()
		node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			writeJSON(w, 201, answer)
			return true
		}
		_, err := serve(t, node).Put(t.Context(), strings.NewReader("abc"), PutOptions{})
		testkit.WantKind(t, err, fault.UpstreamFailed, name)
	}
}

// An answer that arrives before the end of the object cannot be about it.
func TestPutAnsweredTooEarly(t *testing.T) {
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = r.Body.Read(make([]byte, 2))
		return answer(201, fmt.Sprintf(`{"address":%q,"size":5}`, b3.Of([]byte("hello")))), nil
	})
	c := dial(t, Options{URL: "http://node.example", HTTPClient: &http.Client{Transport: transport}})
	_, err := c.Put(t.Context(), onlyReader{strings.NewReader("hello")}, PutOptions{})
	testkit.WantKind(t, err, fault.UpstreamFailed, "too early")
}

// A source that can be rewound is read again from its first offset. Any other
// is not retried once a byte of it was read.
func TestPutAgain(t *testing.T) {
	hangUp := func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 3 {
			return false
		}
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		panic(http.ErrAbortHandler)
	}
	data := pattern(200_000)
	node := NewFakeNode()
	node.Before = hangUp
	src := bytes.NewReader(data)
	_, _ = src.Seek(100, io.SeekStart)
	object, err := serve(t, node).Put(t.Context(), src, PutOptions{})
	if want := (Object{Address: b3.Of(data[100:]), Size: int64(len(data) - 100), Created: true}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	seen := node.seen()
	if len(seen) != 3 || seen[0].Header.Get("X-Corr-ID") == "" || seen[0].Header.Get("X-Corr-ID") != seen[2].Header.Get("X-Corr-ID") {
		t.Errorf("%d tries, not of one corr-id", len(seen))
	}

	node = NewFakeNode()
	node.Before = hangUp
	_, err = serve(t, node).Put(t.Context(), onlyReader{bytes.NewReader(data)}, PutOptions{})
	testkit.WantKind(t, err, fault.BrokenPipe, "a stream that was begun")
	if n := len(node.seen()); n != 1 {
		t.Errorf("a stream was tried %d times", n)
	}
}

// A node that refuses a stream before it reads any of it leaves it unread.
func TestARefusedStreamIsTriedAgain(t *testing.T) {
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n < 3 {
			refuse(w, r, fault.Busy, "full")
		}
		return n < 3
	}
	data := pattern(5_000_000)
	object, err := serve(t, node).Put(t.Context(), onlyReader{bytes.NewReader(data)}, PutOptions{})
	if err != nil || object.Address != b3.Of(data) {
		t.Errorf("%+v, %v", object, err)
	}
}

func TestPutTellsItsProgress(t *testing.T) {
	data := pattern(200_000)
	for name, try := range map[string]struct {
		src   io.Reader
		total int64
	}{"memory": {bytes.NewReader(data), 200_000}, "a stream": {onlyReader{bytes.NewReader(data)}, -1}} {
		var reported []int64
		total := int64(0)
		_, err := serve(t, NewFakeNode()).Put(t.Context(), try.src, PutOptions{Progress: func(done, all int64) {
			reported, total = append(reported, done), all
		}})
		if err != nil || total != try.total || !slices.IsSorted(reported) || len(reported) < 2 || reported[len(reported)-1] != 200_000 {
			t.Errorf("%s: %v of %d, %v", name, reported, total, err)
		}
	}
}

// blockingSource returns three bytes, and then blocks.
type blockingSource struct {
	given          bool
	waiting, typed chan struct{}
}

func newKeyboard() *blockingSource {
	return &blockingSource{waiting: make(chan struct{}), typed: make(chan struct{})}
}

func (b *blockingSource) Read(p []byte) (int, error) {
	if !b.given {
		b.given = true
		return copy(p, "abc"), nil
	}
	close(b.waiting)
	<-b.typed
	return copy(p, "too late"), nil
}

// Put returns the refusal of a node without waiting for a blocked source.
func TestPutDoesNotWaitForASlowSource(t *testing.T) {
	node, src := NewFakeNode(), newKeyboard()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		<-src.waiting
		refuse(w, r, fault.StoreFull, "no room")
		return true
	}
	_, err := serve(t, node).Put(t.Context(), src, PutOptions{})
	testkit.WantKind(t, err, fault.StoreFull, "refused")
	close(src.typed)
}

// Bytes that such a source returns later are discarded, without a progress
// call.
func TestWhatComesTooLate(t *testing.T) {
	src := newKeyboard()
	reported := int64(0)
	body := newUploadBody(upload{src: src, size: -1, progress: func(done, _ int64) { reported = done }})
	_, body.watchdog = newWatchdog(t.Context(), time.Hour)
	defer body.watchdog.stop()
	_, _ = body.Read(make([]byte, 10))
	ended := make(chan error)
	go func() {
		_, err := body.Read(make([]byte, 10))
		ended <- err
	}()
	<-src.waiting
	if body.stop() {
		t.Error("a source that is being read is said to be at rest")
	}
	close(src.typed)
	if err := <-ended; err != nil || reported != 3 {
		t.Errorf("%v, told of %d bytes", err, reported)
	}
	if n, err := body.Read(make([]byte, 10)); n != 0 || err != errTryStopped {
		t.Errorf("read again: %d, %v", n, err)
	}
}

// A Put that is cancelled, with its source closed, returns Canceled.
func TestPutGivenUp(t *testing.T) {
	node := NewFakeNode()
	keyboard, typing := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	node.Before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		cancel()
		_ = keyboard.Close()
		_, _ = io.Copy(io.Discard, r.Body)
		return true
	}
	go func() { _, _ = typing.Write([]byte("abc")) }()
	_, err := serve(t, node).Put(ctx, keyboard, PutOptions{})
	testkit.WantKind(t, err, fault.Canceled, "given up")
}

// A source that can be read again is at rest when Put returns, and when it is
// rewound for another try.
func TestPutLeavesTheSourceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := slowFile{strings.NewReader("abc")}
		up, err := newUpload(src, PutOptions{})
		if err != nil || up.size != 3 {
			t.Fatal(up.size, err)
		}
		body := newUploadBody(up)
		_, body.watchdog = newWatchdog(t.Context(), time.Hour)
		defer body.watchdog.stop()
		start := time.Now()
		go func() { _, _ = body.Read(make([]byte, 2)) }()
		synctest.Wait() // it is in the middle of a Read
		if !body.stop() || time.Since(start) != time.Second || src.Len() != 1 {
			t.Errorf("stopped after %s, with %d bytes left", time.Since(start), src.Len())
		}
	})
}

// slowFile takes a second for a Read.
type slowFile struct{ *strings.Reader }

func (f slowFile) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return f.Reader.Read(p)
}

// Sources that implement io.Seeker and fail to seek.
func TestPutOfAnUnwillingSeeker(t *testing.T) {
	c := serve(t, NewFakeNode())
	for _, at := range []int{1, 2, 3} {
		object, err := c.Put(t.Context(), &failingSeeker{Reader: strings.NewReader("abc"), at: at}, PutOptions{})
		if err != nil || object.Size != 3 {
			t.Errorf("Seek number %d fails: %+v, %v", at, object, err)
		}
	}
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		refuse(w, r, fault.Busy, "full")
		return true
	}
	_, err := serve(t, node).Put(t.Context(), &failingSeeker{Reader: strings.NewReader("abc"), at: 4}, PutOptions{})
	testkit.WantKind(t, err, fault.Internal, "one that cannot be rewound")
	if n := len(node.seen()); n != 1 || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("%v after %d tries", err, n)
	}
}

// failingSeeker fails at its nth Seek, without having moved.
type failingSeeker struct {
	*strings.Reader
	at, n int
}

func (s *failingSeeker) Seek(offset int64, whence int) (int64, error) {
	if s.n++; s.n == s.at {
		if s.at == 3 { // the way back: it stands at its end
			_, _ = s.Reader.Seek(offset, whence)
		}
		return 0, errors.New("no")
	}
	return s.Reader.Seek(offset, whence)
}

func TestStat(t *testing.T) {
	node := NewFakeNode()
	address := node.Add(pattern(1234))
	c := serve(t, node)
	object, err := c.Stat(t.Context(), address)
	if want := (Object{Address: address, Size: 1234}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	_, err = c.Stat(t.Context(), b3.Of([]byte("absent")))
	testkit.WantKind(t, err, fault.NotFound, "absent")
	if CorrID(err) == "" || CorrID(err) != node.seen()[1].Header.Get("X-Corr-ID") {
		t.Errorf("corr-id %q", CorrID(err))
	}
	_, err = c.Stat(t.Context(), b3.Address{})
	testkit.WantKind(t, err, fault.Malformed, "no address")
	if len(node.seen()) != 2 {
		t.Error("the zero address was sent")
	}
}

func TestDelete(t *testing.T) {
	node := NewFakeNode()
	address := node.Add([]byte("short-lived"))
	c := serve(t, node)
	if err := c.Delete(t.Context(), address); err != nil {
		t.Error(err)
	}
	testkit.WantKind(t, c.Delete(t.Context(), address), fault.NotFound, "a second time")
	testkit.WantKind(t, c.Delete(t.Context(), b3.Address{}), fault.Malformed, "no address")
}

// If the answer is lost, the object is deleted all the same.
func TestDeleteWithALostAnswer(t *testing.T) {
	node := NewFakeNode()
	address := node.Add([]byte("short-lived"))
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n > 1 {
			return false
		}
		node.one(httptest.NewRecorder(), r, address.String())
		panic(http.ErrAbortHandler)
	}
	if err := serve(t, node).Delete(t.Context(), address); err != nil || len(node.seen()) != 2 {
		t.Errorf("%v after %d tries", err, len(node.seen()))
	}

	// After a refusal, the outcome is certain.
	node = NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 1 {
			refuse(w, r, fault.Busy, "full")
		}
		return n == 1
	}
	testkit.WantKind(t, serve(t, node).Delete(t.Context(), address), fault.NotFound, "refused, then absent")
}
