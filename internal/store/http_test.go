package store

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// httpFixture is a store on a real server.
type httpFixture struct {
	*testing.T
	store  Store
	cache  *ObjectCache
	url    string
	client *http.Client
	hits   atomic.Int64 // answers of the warm lane
}

// countingWarm counts what the warm lane finds.
type countingWarm struct {
	ingress.WarmSource
	hits *atomic.Int64
}

func (c countingWarm) Lookup(target []byte) (*ingress.PreparedResponse, bool) {
	answer, found := c.WarmSource.Lookup(target)
	if found {
		c.hits.Add(1)
	}
	return answer, found
}

func newHTTPFixture(t *testing.T, s Store, warm bool) *httpFixture {
	t.Helper()
	inv := flow.NewInventory()
	cache := NewObjectCache(copyShards*(256<<10), s)
	objects := NewObjectHandler(inv, ObjectHandlerSpec{
		Store: s, Cache: cache, Uploads: 2,
		Submit: func(ctx context.Context, work func(context.Context) error) error { return work(ctx) },
	})
	table, err := ingress.NewTable(objects.Routes()...)
	if err != nil {
		t.Fatal(err)
	}
	f := &httpFixture{T: t, store: s, cache: cache}
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Inventory: inv, Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Warm:      ingress.WarmRoutes{{Prefix: ObjectPrefix, Source: countingWarm{cache, &f.hits}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0", Warm: warm})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- listener.Serve(ctx) }()
	transport := &http.Transport{DisableCompression: true}
	f.url, f.client = "http://"+listener.Addr().String(), &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = listener.Drain(context.Background())
		cancel()
		<-served
	})
	return f
}

// ask makes a request as plain as the warm lane accepts, unless there are more
// headers, on a new connection.
func (f *httpFixture) ask(method, path, body string, headers ...string) (*http.Response, string) {
	f.Helper()
	f.client.CloseIdleConnections()
	var src io.Reader
	if body != "" {
		src = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, f.url+path, src)
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := f.client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		got = append(got, fmt.Sprintf(" (%v)", err)...)
	}
	return response, string(got)
}

// stores are those that the warm lane can answer from.
func stores(t *testing.T) map[string]Store {
	return map[string]Store{
		"RAM":  NewRAM(RAMSpec{Budget: 16 << 20}),
		"disk": testDisk(t, DiskSpec{}),
	}
}

func TestObjectsByHTTP(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			defer s.Close()
			f := newHTTPFixture(t, s, false)
			for _, path := range []string{"/put", "/o"} {
				body := "put by " + path
				address := b3.Of([]byte(body)).String()
				for _, want := range []int{http.StatusCreated, http.StatusOK} {
					response, text := f.ask("POST", path, body)
					var put Put
					if err := json.Unmarshal([]byte(text), &put); err != nil || response.StatusCode != want ||
						put != (Put{Address: address, Size: int64(len(body))}) || response.Header.Get("Location") != "/o/"+address {
						t.Errorf("%s: %d %s, %v", path, response.StatusCode, text, err)
					}
				}
				if response, text := f.ask("GET", "/o/"+address, ""); response.StatusCode != http.StatusOK || text != body ||
					response.Header.Get("Etag") != `"`+address+`"` || response.Header.Get("Cache-Control") != ingress.Immutable {
					t.Errorf("GET: %d %q %v", response.StatusCode, text, response.Header)
				}
				if response, text := f.ask("GET", "/o/"+address, "", "Range", "bytes=4-5"); response.StatusCode != http.StatusPartialContent || text != "by" {
					t.Errorf("a range: %d %q", response.StatusCode, text)
				}
				if response, _ := f.ask("GET", "/o/"+address, "", "If-None-Match", `"`+address+`"`); response.StatusCode != http.StatusNotModified {
					t.Errorf("If-None-Match: %d", response.StatusCode)
				}
				if response, _ := f.ask("DELETE", "/o/"+address, ""); response.StatusCode != http.StatusNoContent {
					t.Errorf("DELETE: %d", response.StatusCode)
				}
				for _, method := range []string{"GET", "DELETE"} {
					if response, text := f.ask(method, "/o/"+address, ""); response.StatusCode != http.StatusNotFound {
						t.Errorf("%s of what is gone: %d %s", method, response.StatusCode, text)
					}
					if response, _ := f.ask(method, "/o/b3:1234", ""); response.StatusCode != http.StatusBadRequest {
						t.Errorf("%s of no address: %d", method, response.StatusCode)
					}
				}
			}
			_ = s.Close()
			for _, path := range []string{"/put", "/o"} {
				if response, text := f.ask("POST", path, "late"); response.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("POST %s to a closed store: %d %s", path, response.StatusCode, text)
				}
			}
		})
	}
}

// comparableHeader is what must not differ between the lanes.
func comparableHeader(header http.Header) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(header)) {
		if key != "Date" && key != "X-Corr-Id" {
			lines = append(lines, fmt.Sprint(key, header[key]))
		}
	}
	return strings.Join(lines, "\n")
}

// Whatever is requested, of whichever class and size: both lanes give the same
// answer, and net/http does not see what the warm lane can answer.
func TestBothLanesSayTheSame(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			defer s.Close()
			warm, cold := newHTTPFixture(t, s, true), newHTTPFixture(t, s, false)
			for _, size := range []int{0, 1, 1000, 16 << 10, ioBufferSize, ioBufferSize + 1, 300_000, ingress.WarmMaxBody, ingress.WarmMaxBody + 1} {
				for _, class := range []Class{Pinned, Cached} {
					data := random(uint64(class), size)
					path := "/o/" + mustPut(t, s, data, class).String()
					for range 3 {
						hits := warm.hits.Load()
						on, onText := warm.ask("GET", path, "")
						off, offText := cold.ask("GET", path, "")
						if on.StatusCode != off.StatusCode || comparableHeader(on.Header) != comparableHeader(off.Header) || onText != offText || offText != string(data) {
							t.Fatalf("%d bytes, %s:\nwarm: %d, %d bytes\n%s\ncold: %d, %d bytes\n%s", size, class,
								on.StatusCode, len(onText), comparableHeader(on.Header), off.StatusCode, len(offText), comparableHeader(off.Header))
						}
						if hit := warm.hits.Load() > hits; hit != (size <= ingress.WarmMaxBody) {
							t.Errorf("%d bytes, %s: the warm lane has answered: %t", size, class, hit)
						}
					}
					if err := s.Delete(context.Background(), b3.Of(data)); err != nil {
						t.Fatal(err)
					}
					warm.cache.Drop(b3.Of(data))
					if response, text := warm.ask("GET", path, ""); response.StatusCode != http.StatusNotFound {
						t.Errorf("%d bytes, %s, deleted: %d %.100s", size, class, response.StatusCode, text)
					}
				}
			}
			if u := s.Usage(); u.Objects != 0 || u.Lingering != 0 || u.Held != 0 {
				t.Errorf("all is deleted, and all answers were sent: %+v", u)
			}
		})
	}
}

// A damaged object is a problem document, in both lanes, and then it is
// removed.
func TestDamageByHTTP(t *testing.T) {
	for _, size := range []int{1000, 300_000, 3 << 20} {
		for _, warm := range []bool{true, false} {
			d := testDisk(t, DiskSpec{})
			f := newHTTPFixture(t, d, warm)
			a := mustPut(t, d, random(1, size), Cached)
			flip(t, fileOf(t, d, a), 500)
			response, text := f.ask("GET", "/o/"+a.String(), "")
			var problem struct{ Code string }
			err := json.Unmarshal([]byte(text), &problem)
			if response.StatusCode != http.StatusBadGateway || problem.Code != fault.IntegrityFail.Code() || err != nil {
				t.Errorf("%d bytes, warm %t: %d %.200s", size, warm, response.StatusCode, text)
			}
			if n := d.Counts().IntegrityFails; n != 1 {
				t.Errorf("%d are counted", n)
			}
			if response, _ := f.ask("GET", "/o/"+a.String(), ""); response.StatusCode != http.StatusNotFound {
				t.Errorf("and then: %d", response.StatusCode)
			}
			_ = d.Close()
		}
	}
}

// An object of a remote store is answered in the warm lane once it was served,
// from a copy.
func TestAColdStoreByHTTP(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 1 << 20})
	defer r.Close()
	f := newHTTPFixture(t, coldStore{r}, true)
	path := "/o/" + mustPut(t, r, []byte("far away"), Pinned).String()
	for asked := 0; f.hits.Load() == 0; asked++ { // it is added to the cache after it was served
		if _, text := f.ask("GET", path, ""); text != "far away" || asked > 1000 {
			t.Fatalf("%q, after %d requests", text, asked)
		}
	}
	if response, _ := f.ask("DELETE", path, ""); response.StatusCode != http.StatusNoContent {
		t.Errorf("%d", response.StatusCode)
	}
	if response, _ := f.ask("GET", path, ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("%d", response.StatusCode)
	}
}

// coldStore hides that a store is local.
type coldStore struct{ Store }
