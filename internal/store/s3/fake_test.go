package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake implements as much of S3 as this package needs, in memory, and fails in
// the ways that a test sets. The tests of the module interop check that real
// servers behave the same.
type fake struct {
	mu      sync.Mutex
	missing bool // the bucket does not exist
	keys    map[string]*fakeObject
	sorted  []string // the keys in order; nil if they have changed
	uploads map[string]*fakeUpload
	serial  int
	calls   []string // method and key of each request, in order
	conns   int      // connections that are open

	// intercept is called before each request, with no lock held. If it returns
	// true, the request was handled.
	intercept func(w http.ResponseWriter, r *http.Request) bool
}

type fakeObject struct {
	data     []byte
	etag     string
	putID    string
	modified time.Time
}

type fakeUpload struct {
	key   string
	begun time.Time
	parts map[int][]byte
}

const fakeBucket = "bucket"

func newFake() *fake {
	return &fake{keys: map[string]*fakeObject{}, uploads: map[string]*fakeUpload{}}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+fakeBucket), "/")
	f.mu.Lock()
	f.calls = append(f.calls, r.Method+" "+key)
	meddle := f.intercept
	f.mu.Unlock()
	if meddle != nil && meddle(w, r) {
		return
	}
	f.answer(w, r, key)
}

// answer serves a request correctly.
func (f *fake) answer(w http.ResponseWriter, r *http.Request, key string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	if sum := sha256.Sum256(body); r.Method == http.MethodPut && hex.EncodeToString(sum[:]) != r.Header.Get("X-Amz-Content-Sha256") && len(body) > 0 {
		status(http.StatusBadRequest, "XAmzContentSHA256Mismatch")(w, r)
		return
	}
	answer := &recordedResponse{header: http.Header{}, status: http.StatusOK}
	if it := f.serve(answer, r, key, body); it != nil {
		http.ServeContent(answer, r, "", it.modified, bytes.NewReader(it.data)) // it supports ranges
	}
	answer.send(w) // with no lock held: the client may be busy with another request
}

// serve executes a request. What is to be sent besides, if anything, is
// returned.
func (f *fake) serve(w *recordedResponse, r *http.Request, key string, body []byte) *fakeObject {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	switch {
	case f.missing && !(r.Method == http.MethodPut && key == ""):
		w.refuse(http.StatusNotFound, "NoSuchBucket")
	case key == "" && r.Method == http.MethodPut:
		f.missing = false
	case key == "" && q.Has("uploads"):
		f.listUploads(w)
	case key == "":
		f.list(w, q)
	case q.Has("uploads"):
		f.begin(w, key)
	case q.Has("uploadId"):
		f.inUpload(w, r, q, key, body)
	case r.Method == http.MethodPut:
		f.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		f.forget(key)
		w.status = http.StatusNoContent
	default:
		return f.get(w, r, key)
	}
	return nil
}

func (f *fake) listUploads(w *recordedResponse) {
	w.print("<ListMultipartUploadsResult>")
	for _, id := range slices.Sorted(maps.Keys(f.uploads)) {
		up := f.uploads[id]
		w.print("<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", up.key, id, up.begun.UTC().Format(time.RFC3339))
	}
	w.print("</ListMultipartUploadsResult>")
}

func (f *fake) list(w *recordedResponse, q url.Values) {
	most, _ := strconv.Atoi(q.Get("max-keys"))
	if most == 0 {
		most = 1000
	}
	if f.sorted == nil {
		f.sorted = slices.Sorted(maps.Keys(f.keys))
	}
	prefix := q.Get("prefix")
	first, _ := slices.BinarySearch(f.sorted, max(prefix, q.Get("start-after")+"\x00", q.Get("continuation-token")+"\x00"))
	var page []string
	more := false
	for _, key := range f.sorted[first:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if more = len(page) == most; more {
			break
		}
		page = append(page, key)
	}
	w.print("<ListBucketResult><IsTruncated>%t</IsTruncated>", more)
	if more {
		w.print("<NextContinuationToken>%s</NextContinuationToken>", page[len(page)-1])
	}
	for _, key := range page {
		it := f.keys[key]
		w.print("<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&#34;%s&#34;</ETag><Size>%d</Size></Contents>",
			key, it.modified.UTC().Format(time.RFC3339), it.etag, len(it.data))
	}
	w.print("</ListBucketResult>")
}

func (f *fake) begin(w *recordedResponse, key string) {
	f.serial++
	id := strconv.Itoa(f.serial)
	f.uploads[id] = &fakeUpload{key: key, begun: time.Now(), parts: map[int][]byte{}}
	w.print("<InitiateMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", fakeBucket, key, id)
}

func (f *fake) inUpload(w *recordedResponse, r *http.Request, q url.Values, key string, body []byte) {
	id := q.Get("uploadId")
	up := f.uploads[id]
	if up == nil {
		w.refuse(http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		delete(f.uploads, id)
		w.status = http.StatusNoContent
	case http.MethodPut:
		number, _ := strconv.Atoi(q.Get("partNumber"))
		if from := r.Header.Get("X-Amz-Copy-Source"); from != "" {
			body = f.keys[strings.TrimPrefix(from, fakeBucket+"/")].data
			w.print("<CopyPartResult><ETag>&#34;part&#34;</ETag></CopyPartResult>")
		}
		up.parts[number] = body
		w.header.Set("ETag", `"part"`)
	default:
		if f.keys[key] != nil && r.Header.Get("If-None-Match") == "*" {
			w.refuse(http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		var data []byte
		for _, number := range slices.Sorted(maps.Keys(up.parts)) {
			data = append(data, up.parts[number]...)
		}
		f.store(key, data, "")
		delete(f.uploads, id)
		w.print("<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key></CompleteMultipartUploadResult>", fakeBucket, key)
	}
}

// store writes a key. The lock is held.
func (f *fake) store(key string, data []byte, putID string) *fakeObject {
	sum := md5.Sum(data)
	it := &fakeObject{data: data, etag: hex.EncodeToString(sum[:]), putID: putID, modified: time.Now()}
	f.keys[key], f.sorted = it, nil
	return it
}

// forget removes a key. The lock is held.
func (f *fake) forget(key string) {
	delete(f.keys, key)
	f.sorted = nil
}

func (f *fake) put(w *recordedResponse, r *http.Request, key string, body []byte) {
	if f.keys[key] != nil && r.Header.Get("If-None-Match") == "*" {
		w.refuse(http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	from := r.Header.Get("X-Amz-Copy-Source")
	if from == "" {
		it := f.store(key, body, r.Header.Get("X-Amz-Meta-"+putIDKey))
		w.header.Set("ETag", `"`+it.etag+`"`)
		return
	}
	source := f.keys[strings.TrimPrefix(from, fakeBucket+"/")]
	switch {
	case source == nil:
		w.refuse(http.StatusNotFound, "NoSuchKey")
	case r.Header.Get("X-Amz-Copy-Source-If-Match") != `"`+source.etag+`"`:
		w.refuse(http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		it := f.store(key, source.data, "")
		w.print("<CopyObjectResult><ETag>&#34;%s&#34;</ETag><LastModified>%s</LastModified></CopyObjectResult>", it.etag, it.modified.UTC().Format(time.RFC3339))
	}
}

func (f *fake) get(w *recordedResponse, r *http.Request, key string) *fakeObject {
	it := f.keys[key]
	switch {
	case it == nil:
		w.refuse(http.StatusNotFound, "NoSuchKey")
		return nil
	case r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != `"`+it.etag+`"`:
		w.refuse(http.StatusPreconditionFailed, "PreconditionFailed")
		return nil
	}
	w.header.Set("ETag", `"`+it.etag+`"`)
	w.header.Set("X-Amz-Meta-"+putIDKey, it.putID)
	same := *it
	return &same
}

// putDirectly writes a key from outside.
func (f *fake) putDirectly(key string, data []byte, age time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store(key, data, "").modified = time.Now().Add(-age)
}

// corrupt changes a byte in place: the server does not notice.
func (f *fake) corrupt(key string, at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[key].data = bytes.Clone(f.keys[key].data)
	f.keys[key].data[at] ^= 1
}

func (f *fake) drop(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(key)
}

// bytes is what a key holds; nil if it does not exist.
func (f *fake) bytes(key string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if it := f.keys[key]; it != nil {
		return bytes.Clone(it.data)
	}
	return nil
}

// under lists the keys of a folder.
func (f *fake) under(folder string) (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.keys {
		if strings.HasPrefix(key, folder) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (f *fake) unfinished() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.uploads)
}

// called counts the requests that begin like this, and resets the list.
func (f *fake) called(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, call := range f.calls {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	f.calls = nil
	return n
}

func (f *fake) setIntercept(do func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.intercept = do
}

// interceptTimes intercepts the first n requests that match, and lets others
// pass.
func (f *fake) interceptTimes(n int, match string, do http.HandlerFunc) {
	var mu sync.Mutex
	f.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		hit := n > 0 && strings.Contains(r.Method+" "+r.URL.RequestURI(), match)
		if hit {
			n--
		}
		mu.Unlock()
		if hit {
			do(w, r)
		}
		return hit
	})
}

// Kinds of failures.

// status answers with an error.
func status(code int, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer := &recordedResponse{header: http.Header{}}
		answer.refuse(code, name)
		answer.send(w)
	}
}

// cutConnection closes the connection without an answer.
func cutConnection(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// hangForever does not answer until the client disconnects.
func hangForever(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// answerHalf answers, but stops in the middle of the body: by closing the
// connection, or by stalling.
func (f *fake) answerHalf(stop func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := f.recorded(r)
		answer.body.Truncate(answer.body.Len() / 2)
		answer.send(w)
		_ = http.NewResponseController(w).Flush()
		stop(w, r)
	}
}

// answerLost executes the request, and then closes the connection before the
// answer.
func (f *fake) answerLost(_ http.ResponseWriter, r *http.Request) {
	f.recorded(r)
	panic(http.ErrAbortHandler)
}

// answerGarbled answers with a byte changed in transit.
func (f *fake) answerGarbled(w http.ResponseWriter, r *http.Request) {
	answer := f.recorded(r)
	answer.body.Bytes()[answer.body.Len()/2] ^= 1
	answer.send(w)
}

// recorded is the correct answer to a request.
func (f *fake) recorded(r *http.Request) *recordedResponse {
	answer := &recordedResponse{header: http.Header{}, status: http.StatusOK}
	f.answer(answer, r, strings.TrimPrefix(r.URL.Path, "/"+fakeBucket+"/"))
	return answer
}

// recordedResponse is an answer that was not sent.
type recordedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recordedResponse) Header() http.Header         { return r.header }
func (r *recordedResponse) WriteHeader(status int)      { r.status = status }
func (r *recordedResponse) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *recordedResponse) print(format string, args ...any) {
	r.body.WriteString(fmt.Sprintf(format, args...))
}

func (r *recordedResponse) refuse(status int, code string) {
	r.status = status
	r.header.Set("Content-Type", "application/xml")
	r.print("<Error><Code>%s</Code><Message>as the test asked</Message></Error>", code)
}

func (r *recordedResponse) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes())
}

// pipeListener carries requests to a fake without a network, so that time can be faked.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run serves the fake until the test is over.
func (f *fake) run(t testing.TB) *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: f, ConnState: f.watch}
	go server.Serve(l)
	t.Cleanup(func() {
		close(l.closed)
		_ = server.Close()
	})
	return l
}

// watch counts the connections.
func (f *fake) watch(_ net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch state {
	case http.StateNew:
		f.conns++
	case http.StateClosed:
		f.conns--
	}
}

func (l *pipeListener) spec() Spec {
	return Spec{
		Service: "store", URL: "s3+http://127.0.0.1:1/" + fakeBucket, AccessKey: "access", SecretKey: "secret",
		MaxObject: 64 << 20, Timeout: 10 * time.Second, dial: l.dial,
	}
}

// subject is a store over a fake, in a bubble where time is faked.
type subject struct {
	*testing.T
	fake     *fake
	listener *pipeListener
	store    *Store
}

func bubble(t *testing.T, test func(t *subject)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := &subject{T: t, fake: f, listener: f.run(t)}
		s.store = s.open(s.listener.spec())
		f.called("")
		test(s)
	})
}

func (s *subject) open(spec Spec) *Store {
	s.Helper()
	opened, err := Open(s.Context(), flow.NewInventory(), spec)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = opened.Close() })
	return opened
}

// put puts an object that must be new.
func (s *subject) put(data []byte, class store.Class) b3.Address {
	s.Helper()
	info, created, err := s.store.Put(s.Context(), bytes.NewReader(data), store.PutOptions{Size: int64(len(data)), Class: class})
	if err != nil || !created || info != (store.Info{Address: b3.Of(data), Size: int64(len(data)), Class: class}) {
		s.Fatalf("put of %d bytes: %+v, created %t, %v", len(data), info, created, err)
	}
	return info.Address
}

// wantHeld checks that an object can be read.
func (s *subject) wantHeld(data []byte) {
	s.Helper()
	h, err := s.store.Open(s.Context(), b3.Of(data))
	if err != nil {
		s.Fatalf("open: %v", err)
	}
	defer h.Close()
	var got bytes.Buffer
	if _, err := h.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), data) {
		s.Fatalf("read: %d bytes, %v", got.Len(), err)
	}
}

// wantRefused checks the kind of an error, and that it has a next step.
func (s *subject) wantRefused(err error, want fault.Kind, next string) {
	s.Helper()
	if fault.KindOf(err) != want {
		s.Errorf("error %v, want %v", err, want)
	}
	if !strings.Contains(fault.NextOf(err), next) || fault.NextOf(err) == "" {
		s.Errorf("the next step of %v is %q, want %q in it", err, fault.NextOf(err), next)
	}
}

// key is the key of an object in a folder.
func key(folder string, a b3.Address) string {
	return folder + strings.TrimPrefix(a.String(), b3.Prefix)
}

// sampleBody makes bytes that are the same for the same size.
func sampleBody(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)}).Read(data)
	return data
}
