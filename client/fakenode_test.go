package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// FakeNode is as much of a node as the tests need: objects in a map, and the
// documents of the admin plane. It is exported for the examples.
type FakeNode struct {
	// Before is called first; if it returns true, it has answered.
	Before func(w http.ResponseWriter, r *http.Request, n int) bool

	// Overlay answers the routes below /overlay/.
	Overlay FakeOverlay

	mu       sync.Mutex
	objects  map[b3.Address][]byte
	requests []*http.Request
}

func NewFakeNode() *FakeNode { return &FakeNode{objects: map[b3.Address][]byte{}} }

// Add stores an object without a request of the client.
func (f *FakeNode) Add(data []byte) b3.Address {
	address := b3.Of(data)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[address] = data
	return address
}

// Corrupt stores wrong bytes under an address.
func (f *FakeNode) Corrupt(address b3.Address, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[address] = data
}

func (f *FakeNode) object(address b3.Address) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.objects[address]
	return data, ok
}

// seen returns the requests so far.
func (f *FakeNode) seen() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*http.Request(nil), f.requests...)
}

func (f *FakeNode) note(r *http.Request) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Clone(r.Context()))
	return len(f.requests)
}

func (f *FakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := f.note(r)
	w.Header().Set("X-Corr-ID", r.Header.Get("X-Corr-ID"))
	if f.Before != nil && f.Before(w, r, n) {
		return
	}
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && (path == "/put" || path == "/o"):
		f.put(w, r)
	case path == "/o/missing":
		refuse(w, r, fault.MethodNotAllowed, "it is of an earlier version")
	case strings.HasPrefix(path, "/o/"):
		f.one(w, r, strings.TrimPrefix(path, "/o/"))
	case strings.HasPrefix(path, "/overlay/"):
		f.Overlay.serve(f, w, r)
	case path == "/version":
		writeJSON(w, 200, `{"service":"node","version":"1.2.3","commit":"c0ffee","build":"today","go":"go1.26","features":["traces"],"added":"later"}`)
	case path == "/readyz":
		writeJSON(w, 200, `{"ready":true,"write_ready":true,"degraded":false,"missing":[],"reasons":[],"retry_after":0}`)
	case path == "/admin/status":
		writeJSON(w, 200, `{"peer_id":"abc","version":"1.2.3","profile":"micronode","amnesia":true,`+
			`"listen":{"http":"127.0.0.1:8080","admin":"127.0.0.1:9600","overlay":"127.0.0.1:9500"},`+
			`"ready":true,"write_ready":true,"degraded":false,"services":[{"name":"store","state":"running","restarts":2}],`+
			`"queues":[{"service":"node","name":"work","depth":3,"cap":256}]}`)
	default:
		refuse(w, r, fault.NotFound, "no such path")
	}
}

func (f *FakeNode) put(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, r, fault.Malformed, "the body broke off")
		return
	}
	address := b3.Of(data)
	_, had := f.object(address)
	f.Add(data)
	status := http.StatusCreated
	if had {
		status = http.StatusOK
	}
	w.Header().Set("Location", "/o/"+address.String())
	writeJSON(w, status, fmt.Sprintf(`{"address":%q,"size":%d}`, address, len(data)))
}

func (f *FakeNode) one(w http.ResponseWriter, r *http.Request, text string) {
	address, err := b3.Parse(text)
	if err != nil {
		refuse(w, r, fault.Malformed, err.Error())
		return
	}
	data, ok := f.object(address)
	switch {
	case !ok:
		refuse(w, r, fault.NotFound, "there is no such object")
	case r.Method == http.MethodDelete:
		f.mu.Lock()
		delete(f.objects, address)
		f.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("ETag", strconv.Quote(text))
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func writeJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// refuse answers with a problem document, as a node does.
func refuse(w http.ResponseWriter, r *http.Request, kind fault.Kind, detail string) {
	raw, _ := json.Marshal(map[string]any{
		"type": "urn:micronode:fault:" + kind.Code(), "title": kind.Title(), "status": kind.Status(), "code": kind.Code(),
		"op": "fake.op", "detail": detail, "next": "Do as the fake says.", "retryable": kind.Retryable(), "corr_id": r.Header.Get("X-Corr-ID"),
	})
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(kind.Status())
	_, _ = w.Write(raw)
}

// The fixtures that most tests use.

// quick is a policy for tests with real servers.
var quick = Retry{First: time.Millisecond, Cap: 2 * time.Millisecond}

// serve runs a fake node and returns a client of it.
func serve(t testing.TB, node *FakeNode) *Client {
	t.Helper()
	server := httptest.NewServer(node)
	t.Cleanup(server.Close)
	return dial(t, Options{URL: server.URL, Retry: quick})
}

func dial(t testing.TB, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// pattern is data that differs everywhere.
func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	return data
}

const none fault.Kind = 0

// onlyReader hides everything of a reader but Read.
type onlyReader struct{ io.Reader }

func readAll(t testing.TB, c *Client, address b3.Address, o GetOptions) ([]byte, error) {
	t.Helper()
	r, err := c.Get(t.Context(), address, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
