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
)

// Small ones go in one piece, others as a stream, and what nobody knows the
// size of is a stream too.
func TestPutRoutes(t *testing.T) {
	big := pattern(putCap + 1)
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
		"memory":         {bytes.NewReader(big[:putCap]), PutOptions{}, big[:putCap], "/put", putCap},
		"a string":       {strings.NewReader("abc"), PutOptions{}, []byte("abc"), "/put", 3},
		"a buffer":       {bytes.NewBufferString("abc"), PutOptions{}, []byte("abc"), "/put", 3},
		"more memory":    {bytes.NewReader(big), PutOptions{}, big, "/o", putCap + 1},
		"a file":         {opened, PutOptions{}, big, "/o", putCap + 1},
		"a stream":       {only{bytes.NewReader(big)}, PutOptions{}, big, "/o", -1},
		"a short stream": {only{strings.NewReader("abc")}, PutOptions{}, []byte("abc"), "/o", -1},
		"a known stream": {only{strings.NewReader("abc")}, PutOptions{Size: 3}, []byte("abc"), "/put", 3},
		"one with EOF":   {only{eager{strings.NewReader("abc")}}, PutOptions{Size: 3}, []byte("abc"), "/put", 3},
		"nothing":        {strings.NewReader(""), PutOptions{}, nil, "/o", -1},
		"no stream":      {only{strings.NewReader("")}, PutOptions{}, nil, "/o", -1},
		"wanted":         {strings.NewReader("abc"), PutOptions{Want: b3.Of([]byte("abc"))}, []byte("abc"), "/put", 3},
	} {
		node := NewFakeNode()
		c := serve(t, node)
		object, err := c.Put(t.Context(), try.src, try.o)
		if want := (Object{b3.Of(try.want), int64(len(try.want)), true}); err != nil || object != want {
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

// eager returns io.EOF together with the last bytes.
type eager struct{ *strings.Reader }

func (e eager) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if e.Len() == 0 {
		err = io.EOF
	}
	return n, err
}

// A source that stands in the middle is put from there, and a second Put of
// the same bytes says that they were there.
func TestPutFromTheMiddleAndAgain(t *testing.T) {
	c := serve(t, NewFakeNode())
	src := strings.NewReader("header|body")
	_, _ = src.Seek(7, io.SeekStart)
	first, err := c.Put(t.Context(), src, PutOptions{})
	if want := (Object{b3.Of([]byte("body")), 4, true}); err != nil || first != want {
		t.Errorf("%+v, %v", first, err)
	}
	second, err := c.Put(t.Context(), strings.NewReader("body"), PutOptions{})
	if err != nil || second.Created || second.Address != first.Address {
		t.Errorf("%+v, %v", second, err)
	}
}

// What is not as promised is not stored.
func TestPutHoldsTheSourceToItsWord(t *testing.T) {
	big := pattern(300_000)
	gone := errors.New("the disk is on fire")
	for name, try := range map[string]struct {
		src  io.Reader
		o    PutOptions
		kind fault.Kind
	}{
		"too short":               {only{bytes.NewReader(big)}, PutOptions{Size: 300_001}, fault.Malformed},
		"too long":                {only{bytes.NewReader(big)}, PutOptions{Size: 299_999}, fault.Malformed},
		"memory that is too long": {strings.NewReader("abcd"), PutOptions{Size: 3}, fault.Malformed},
		"other bytes, a stream":   {only{bytes.NewReader(big)}, PutOptions{Want: b3.Of([]byte("x"))}, fault.IntegrityFail},
		"other bytes, memory":     {bytes.NewReader(big), PutOptions{Want: b3.Of([]byte("x"))}, fault.IntegrityFail},
		"a few other bytes":       {strings.NewReader("abc"), PutOptions{Want: b3.Of([]byte("abd"))}, fault.IntegrityFail},
		"one that breaks":         {io.MultiReader(bytes.NewReader(big), broken{gone}), PutOptions{}, fault.Internal},
		"one that breaks early":   {broken{gone}, PutOptions{Size: 10}, fault.Internal},
		"one that went away":      {broken{io.ErrClosedPipe}, PutOptions{}, fault.BrokenPipe},
		"a negative size":         {strings.NewReader(""), PutOptions{Size: -1}, fault.Malformed},
	} {
		node := NewFakeNode()
		_, err := serve(t, node).Put(t.Context(), try.src, try.o)
		wantKind(t, name, err, try.kind)
		if node.mu.Lock(); len(node.objects) != 0 {
			t.Errorf("%s: it was stored", name)
		}
		node.mu.Unlock()
		if n := len(node.seen()); n > 1 {
			t.Errorf("%s: tried %d times", name, n)
		}
	}
	_, err := serve(t, NewFakeNode()).Put(t.Context(), broken{gone}, PutOptions{})
	if !errors.Is(err, gone) {
		t.Errorf("the source's own error is lost: %v", err)
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// The node's word is held against our own sum.
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
		wantKind(t, name, err, fault.IntegrityFail)
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
		wantKind(t, name, err, fault.UpstreamFailed)
	}
}

// An answer that comes before the object cannot be about it.
func TestPutAnsweredTooEarly(t *testing.T) {
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = r.Body.Read(make([]byte, 2))
		return answer(201, fmt.Sprintf(`{"address":%q,"size":5}`, b3.Of([]byte("hello")))), nil
	})
	c := dial(t, Options{URL: "http://node.example", HTTPClient: &http.Client{Transport: transport}})
	_, err := c.Put(t.Context(), only{strings.NewReader("hello")}, PutOptions{})
	wantKind(t, "too early", err, fault.UpstreamFailed)
}

// A source that can be read again is, from where it stood. One that cannot is
// not, once a byte of it was used.
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
	if want := (Object{b3.Of(data[100:]), int64(len(data) - 100), true}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	seen := node.seen()
	if len(seen) != 3 || seen[0].Header.Get("X-Corr-ID") == "" || seen[0].Header.Get("X-Corr-ID") != seen[2].Header.Get("X-Corr-ID") {
		t.Errorf("%d tries, not of one corr-id", len(seen))
	}

	node = NewFakeNode()
	node.Before = hangUp
	_, err = serve(t, node).Put(t.Context(), only{bytes.NewReader(data)}, PutOptions{})
	wantKind(t, "a stream that was begun", err, fault.BrokenPipe)
	if n := len(node.seen()); n != 1 {
		t.Errorf("a stream was tried %d times", n)
	}
}

// A node that refuses a stream before it takes any of it leaves it whole.
func TestARefusedStreamIsTriedAgain(t *testing.T) {
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n < 3 {
			refuse(w, r, fault.Busy, "full")
		}
		return n < 3
	}
	data := pattern(5_000_000)
	object, err := serve(t, node).Put(t.Context(), only{bytes.NewReader(data)}, PutOptions{})
	if err != nil || object.Address != b3.Of(data) {
		t.Errorf("%+v, %v", object, err)
	}
}

func TestPutTellsItsProgress(t *testing.T) {
	data := pattern(200_000)
	for name, try := range map[string]struct {
		src   io.Reader
		total int64
	}{"memory": {bytes.NewReader(data), 200_000}, "a stream": {only{bytes.NewReader(data)}, -1}} {
		var told []int64
		total := int64(0)
		_, err := serve(t, NewFakeNode()).Put(t.Context(), try.src, PutOptions{Progress: func(done, all int64) {
			told, total = append(told, done), all
		}})
		if err != nil || total != try.total || !slices.IsSorted(told) || len(told) < 2 || told[len(told)-1] != 200_000 {
			t.Errorf("%s: %v of %d, %v", name, told, total, err)
		}
	}
}

// keyboard gives three letters, and then waits for more to be typed.
type keyboard struct {
	given          bool
	waiting, typed chan struct{}
}

func newKeyboard() *keyboard {
	return &keyboard{waiting: make(chan struct{}), typed: make(chan struct{})}
}

func (k *keyboard) Read(p []byte) (int, error) {
	if !k.given {
		k.given = true
		return copy(p, "abc"), nil
	}
	close(k.waiting)
	<-k.typed
	return copy(p, "too late"), nil
}

// Nobody waits for the keyboard to be told that the node refused.
func TestPutDoesNotWaitForASlowSource(t *testing.T) {
	node, src := NewFakeNode(), newKeyboard()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		<-src.waiting
		refuse(w, r, fault.StoreFull, "no room")
		return true
	}
	_, err := serve(t, node).Put(t.Context(), src, PutOptions{})
	wantKind(t, "refused", err, fault.StoreFull)
	close(src.typed)
}

// What such a source gives in the end is for nobody, and nobody is told.
func TestWhatComesTooLate(t *testing.T) {
	src := newKeyboard()
	told := int64(0)
	body := newSending(upload{src: src, size: -1, progress: func(done, _ int64) { told = done }})
	_, body.dog = watch(t.Context(), time.Hour)
	defer body.dog.end()
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
	if err := <-ended; err != nil || told != 3 {
		t.Errorf("%v, told of %d bytes", err, told)
	}
	if n, err := body.Read(make([]byte, 10)); n != 0 || err != errOver {
		t.Errorf("read again: %d, %v", n, err)
	}
}

// Who gives up closes the keyboard, and is told that he gave up.
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
	wantKind(t, "given up", err, fault.Canceled)
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
		body := newSending(up)
		_, body.dog = watch(t.Context(), time.Hour)
		defer body.dog.end()
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

// Seekers that turn out not to be, or not any more.
func TestPutOfAnUnwillingSeeker(t *testing.T) {
	c := serve(t, NewFakeNode())
	for _, at := range []int{1, 2, 3} {
		object, err := c.Put(t.Context(), &stubborn{Reader: strings.NewReader("abc"), at: at}, PutOptions{})
		if err != nil || object.Size != 3 {
			t.Errorf("Seek number %d fails: %+v, %v", at, object, err)
		}
	}
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		refuse(w, r, fault.Busy, "full")
		return true
	}
	_, err := serve(t, node).Put(t.Context(), &stubborn{Reader: strings.NewReader("abc"), at: 4}, PutOptions{})
	wantKind(t, "one that cannot be rewound", err, fault.Internal)
	if n := len(node.seen()); n != 1 || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("%v after %d tries", err, n)
	}
}

// stubborn fails at its nth Seek, without having moved.
type stubborn struct {
	*strings.Reader
	at, n int
}

func (s *stubborn) Seek(offset int64, whence int) (int64, error) {
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
	wantKind(t, "absent", err, fault.NotFound)
	if CorrID(err) == "" || CorrID(err) != node.seen()[1].Header.Get("X-Corr-ID") {
		t.Errorf("corr-id %q", CorrID(err))
	}
	_, err = c.Stat(t.Context(), b3.Address{})
	wantKind(t, "no address", err, fault.Malformed)
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
	wantKind(t, "a second time", c.Delete(t.Context(), address), fault.NotFound)
	wantKind(t, "no address", c.Delete(t.Context(), b3.Address{}), fault.Malformed)
}

// If the answer is lost, the object is gone all the same.
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

	// After a refusal there is nothing to be unsure about.
	node = NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 1 {
			refuse(w, r, fault.Busy, "full")
		}
		return n == 1
	}
	wantKind(t, "refused, then absent", serve(t, node).Delete(t.Context(), address), fault.NotFound)
}
