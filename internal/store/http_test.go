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

// face is a store behind a real server.
type face struct {
	*testing.T
	store  Store
	shelf  *Shelf
	url    string
	client *http.Client
	hits   atomic.Int64 // what the warm lane answered
}

// counting counts what the warm lane finds.
type counting struct {
	ingress.Warm
	hits *atomic.Int64
}

func (c counting) Lookup(target []byte) (*ingress.Prepared, bool) {
	answer, found := c.Warm.Lookup(target)
	if found {
		c.hits.Add(1)
	}
	return answer, found
}

func newFace(t *testing.T, s Store, warm bool) *face {
	t.Helper()
	inv := flow.NewInventory()
	shelf := NewShelf(shelfShards*(256<<10), s)
	objects := NewObjects(inv, ObjectsSpec{
		Store: s, Shelf: shelf, Uploads: 2,
		Submit: func(ctx context.Context, work func(context.Context) error) error { return work(ctx) },
	})
	table, err := ingress.NewTable(objects.Routes()...)
	if err != nil {
		t.Fatal(err)
	}
	f := &face{T: t, store: s, shelf: shelf}
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Inventory: inv, Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Warm:      ingress.Shelves{{Prefix: ShelfPrefix, Warm: counting{shelf, &f.hits}}},
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

// ask makes a request as plain as the warm lane likes it, unless there are more
// headers, on a new connection.
func (f *face) ask(method, path, body string, headers ...string) (*http.Response, string) {
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

// stores are those whose answers the warm lane can give.
func stores(t *testing.T) map[string]Store {
	return map[string]Store{
		"RAM":  testRAM(RAMSpec{Budget: 16 << 20}),
		"disk": testDisk(t, DiskSpec{}),
	}
}

func TestObjectsByHTTP(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			defer s.Close()
			f := newFace(t, s, false)
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
					response.Header.Get("Etag") != `"`+address+`"` || response.Header.Get("Cache-Control") != immutable {
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

// steady is what must not differ between the lanes.
func steady(header http.Header) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(header)) {
		if key != "Date" && key != "X-Corr-Id" {
			lines = append(lines, fmt.Sprint(key, header[key]))
		}
	}
	return strings.Join(lines, "\n")
}

// Whatever is asked for, of whichever class and size: both lanes give the same
// answer, and net/http does not see what the warm lane can answer.
func TestBothLanesSayTheSame(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			defer s.Close()
			warm, cold := newFace(t, s, true), newFace(t, s, false)
			for _, size := range []int{0, 1, 1000, 16 << 10, pieceSize, pieceSize + 1, 300_000, ingress.WarmMost, ingress.WarmMost + 1} {
				for _, class := range []Class{Pinned, Cached} {
					data := random(uint64(class), size)
					path := "/o/" + mustPut(t, s, data, class).String()
					for range 3 {
						hits := warm.hits.Load()
						on, onText := warm.ask("GET", path, "")
						off, offText := cold.ask("GET", path, "")
						if on.StatusCode != off.StatusCode || steady(on.Header) != steady(off.Header) || onText != offText || offText != string(data) {
							t.Fatalf("%d bytes, %s:\nwarm: %d, %d bytes\n%s\ncold: %d, %d bytes\n%s", size, class,
								on.StatusCode, len(onText), steady(on.Header), off.StatusCode, len(offText), steady(off.Header))
						}
						if hit := warm.hits.Load() > hits; hit != (size <= ingress.WarmMost) {
							t.Errorf("%d bytes, %s: the warm lane has answered: %t", size, class, hit)
						}
					}
					if err := s.Delete(context.Background(), b3.Of(data)); err != nil {
						t.Fatal(err)
					}
					warm.shelf.Drop(b3.Of(data))
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

// A damaged object is a problem document, in both lanes, and then it is gone.
func TestDamageByHTTP(t *testing.T) {
	for _, size := range []int{1000, 300_000, 3 << 20} {
		for _, warm := range []bool{true, false} {
			d := testDisk(t, DiskSpec{})
			f := newFace(t, d, warm)
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

// What is far is answered in the warm lane once it was served, from a copy.
func TestAFarStoreByHTTP(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 1 << 20})
	defer r.Close()
	f := newFace(t, distant{r}, true)
	path := "/o/" + mustPut(t, r, []byte("far away"), Pinned).String()
	for asked := 0; f.hits.Load() == 0; asked++ { // it is put on the shelf after it was served
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

// distant hides that a store is near.
type distant struct{ Store }
