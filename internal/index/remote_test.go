package index

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"log/slog"
	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/store"
)

// seen is an index as another process of its node has it. Where is the URL, for
// one that comes back.
func (r *rig) seen(t *testing.T) (*Remote, *httptest.Server) {
	t.Helper()
	there := served(t, append(r.Routes(), r.Seams()...))
	return NewRemote(flow.NewInventory(), caller(t, there)), there
}

// served is a process that has these routes.
func served(t *testing.T, routes []ingress.Route) *httptest.Server {
	t.Helper()
	table, err := ingress.NewTable(routes...)
	must(t, err)
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	there := httptest.NewServer(server)
	t.Cleanup(there.Close)
	return there
}

// caller is a client of it.
func caller(t *testing.T, there *httptest.Server) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: there.URL, Retry: client.Retry{Tries: 1}})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// The overlay, the edge and the store in other processes get the same answers.
func TestAnIndexElsewhere(t *testing.T) {
	r := open(t)
	far, there := r.seen(t)
	address := r.put("hello")
	named, err := r.SetName(t.Context(), "docs", address)
	must(t, err)

	id, err := ParseID(address.String())
	must(t, err)
	answer, err := far.Answer(t.Context(), id)
	must(t, err)
	direct := r.Answer(id.Question(r.self))
	if len(answer.Providers) != 1 || answer.Providers[0].ID != direct.Providers[0].ID || !slices.Equal(answer.Providers[0].Overlay, direct.Providers[0].Overlay) || answer.Name != nil {
		t.Errorf("%+v", answer)
	}
	if id, err = ParseID("name:docs@" + r.selfText); err != nil {
		t.Fatal(err)
	}
	answer, err = far.Answer(t.Context(), id)
	if err != nil || answer.Name == nil || answer.Name.Manifest != address || answer.Name.Seq != named.Seq {
		t.Errorf("%+v, %v", answer, err)
	}
	for _, find := range []func(context.Context, string) (b3.Address, error){far.Manifest, r.Manifest} {
		if manifest, err := find(t.Context(), "name:docs"); err != nil || manifest != address {
			t.Error(manifest, err)
		}
		if _, err := find(t.Context(), "name:nothing"); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
		if _, err := find(t.Context(), "b3:x"); fault.KindOf(err) != fault.Malformed {
			t.Error(err)
		}
	}
	if info, created, err := far.Fetch(t.Context(), address); err != nil || created || info.Size != 5 {
		t.Error(info, created, err)
	}
	there.Close()
	_, answered := far.Answer(t.Context(), id)
	_, found := far.Manifest(t.Context(), "name:docs")
	_, _, fetched := far.Fetch(t.Context(), address)
	for _, err := range []error{answered, found, fetched} {
		if !fault.KindOf(err).Retryable() {
			t.Error(err)
		}
	}
}

// What was put while the index was away is told when it is back.
func TestNewsWaitForAnIndexElsewhere(t *testing.T) {
	net := newNetwork()
	r := open(t, over(net))
	far, there := r.seen(t)
	info, _, err := r.ram.Put(t.Context(), strings.NewReader("quiet"), store.PutOptions{Size: 5})
	must(t, err)
	there.CloseClientConnections()
	for range 2 * mostToldObjects {
		far.Has(info.Address)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- far.Serve(ctx) }()
	waitUntil(t, func() bool { return slices.Contains(net.announced(), info.Address) && far.news.Len() == 0 })
	stop()
	must(t, <-done)
	far.Close()
	must(t, far.Serve(t.Context()))
}

// waitUntil waits for something that other tasks bring about.
func waitUntil(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came to pass")
		}
	}
}

// More than can be kept, and the index is asked to look for itself.
func TestTooMuchNewsForAnIndexElsewhere(t *testing.T) {
	r := open(t)
	far, there := r.seen(t)
	for range mostProvide + 10 {
		far.Has(b3.Of([]byte("x")))
	}
	if !far.lost.Load() {
		t.Error("it did not notice")
	}
	must(t, far.tell(t.Context(), []tidings{{address: b3.Of([]byte("x"))}}))
	if far.lost.Load() || len(r.log.of(Reindexed)) == 0 {
		waitUntil(t, func() bool { return len(r.log.of(Reindexed)) > 0 })
	}
	there.Close()
	if err := far.tell(t.Context(), nil); err == nil {
		t.Error("nobody was there, and it was told")
	}
}

// The seam is strict about what it is asked.
func TestTheSeamOfTheIndexIsStrict(t *testing.T) {
	r := open(t)
	far, _ := r.seen(t)
	for name, c := range map[string]struct {
		path string
		in   any
	}{
		"no id":       {seamAnswer, toldQuestion{}},
		"not json":    {seamAnswer, 3},
		"no list":     {seamHas, 3},
		"no query":    {seamSearch, 3},
		"a long list": {seamHas, toldObjects{Gone: make([]b3.Address, mostToldObjects+1)}},
	} {
		if err := far.client.Call(t.Context(), "POST", c.path, c.in, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (toldAnswer{Record: []byte("x")}).answer(); err == nil {
		t.Error("a record that nobody signed was believed")
	}
}

// deaf is a registry elsewhere that has not been heard yet.
type deaf struct{ decided }

func (deaf) Known() error { return fault.New("test", fault.NotReady, "not heard") }

// A name is not given away before it is known whose it is.
func TestANameWaitsForTheRegistry(t *testing.T) {
	r := open(t, func(s *Spec) { s.Registry = deaf{} })
	if _, err := r.SetName(t.Context(), "docs", b3.Of(nil)); fault.KindOf(err) != fault.NotReady {
		t.Error(err)
	}
}

// A graph in another process says the same, in pages and for many at once.
func TestAGraphElsewhere(t *testing.T) {
	g := openGraph(t, "")
	defer func() { must(t, g.Close()) }()
	for i := range 1500 {
		follow(t, g, fmt.Sprintf("fan<%04d>", i), "star", true)
	}
	follow(t, g, "star", "fan<0007>", true)
	there := served(t, g.Seams())
	far := NewRemoteGraph(caller(t, there))
	var all []string
	for after := ""; ; {
		page, err := far.Followers(t.Context(), "star", after, 512)
		must(t, err)
		all = append(all, page...)
		if len(page) < 512 {
			break
		}
		after = page[511]
	}
	if want := followers(t, g, "star", "", 2000); !slices.Equal(all, want) || len(all) != 1500 {
		t.Errorf("%d followers, want %d", len(all), len(want))
	}
	others := []string{"fan<0007>", "fan<0008>", "nobody", "star"}
	near, err := g.Ties(t.Context(), "star", others)
	must(t, err)
	ties, err := far.Ties(t.Context(), "star", others)
	if want := []Tie{{true, true}, {false, true}, {}, {}}; err != nil || !slices.Equal(ties, want) || !slices.Equal(near, want) {
		t.Errorf("%v and %v, %v", near, ties, err)
	}
	if none, err := far.Ties(t.Context(), "star", nil); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
	for _, limit := range []int{0, mostToldFollowers + 1} {
		if _, err := far.Followers(t.Context(), "star", "", limit); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%d at once: %v", limit, err)
		}
	}
	if _, err := far.Ties(t.Context(), "star", make([]string, mostToldTies+1)); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	for _, path := range []string{seamFollowers, seamTies} {
		if err := far.client.Call(t.Context(), "POST", path, 3, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", path, err)
		}
	}
	there.Close()
	if _, err := far.Followers(t.Context(), "star", "", 10); !fault.KindOf(err).Retryable() {
		t.Error(err)
	}
	if _, err := far.Ties(t.Context(), "star", others); !fault.KindOf(err).Retryable() {
		t.Error(err)
	}
}

// The largest page of the longest names is no longer than any answer may be.
func TestTheLargestPageOfAGraphElsewhere(t *testing.T) {
	g := openGraph(t, "")
	defer func() { must(t, g.Close()) }()
	var names []string
	for i := range mostToldFollowers {
		names = append(names, fmt.Sprintf("%s%04d", strings.Repeat("<", mostNode-4), i))
		follow(t, g, names[i], "star", true)
	}
	far := NewRemoteGraph(caller(t, served(t, g.Seams())))
	if page, err := far.Followers(t.Context(), "star", "", mostToldFollowers); err != nil || !slices.Equal(page, names) {
		t.Errorf("%d followers, %v", len(page), err)
	}
	if ties, err := far.Ties(t.Context(), "star", names); err != nil || len(ties) != len(names) || !ties[9].Followed {
		t.Errorf("%d ties, %v", len(ties), err)
	}
}

// A graph of another version that answers something else is not believed, and
// one that ends is away, which is not our end.
func TestAGraphElsewhereThatIsNone(t *testing.T) {
	says := func(handler ingress.Handler) *RemoteGraph {
		return NewRemoteGraph(caller(t, served(t, []ingress.Route{{Service: "graph", Methods: []string{"POST"}, Pattern: seamTies, Class: ingress.Control, Scope: "admin", BodyCap: 1 << 10, Handler: handler}})))
	}
	short := says(func(w http.ResponseWriter, _ *http.Request) error {
		return ingress.WriteJSON(w, http.StatusOK, toldTies{})
	})
	if _, err := short.Ties(t.Context(), "ann", []string{"bob"}); fault.KindOf(err) != fault.UpstreamFailed {
		t.Error(err)
	}
	ending := says(func(http.ResponseWriter, *http.Request) error { return flow.ErrClosed })
	if _, err := ending.Ties(t.Context(), "ann", []string{"bob"}); fault.KindOf(err) != fault.NotReady || !strings.Contains(fault.NextOf(err), "--only graph") {
		t.Error(err)
	}
}

// The library of an index elsewhere is told what comes and goes, and searched.
func TestALibraryElsewhere(t *testing.T) {
	cards := newCards()
	r := open(t, func(s *Spec) {
		var err error
		s.Library, err = OpenLibrary(flow.NewInventory(), LibrarySpec{Store: s.Store, Searcher: cards, MaxBytes: 1 << 30, Metrics: s.Metrics, Readiness: s.Readiness})
		must(t, err)
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- r.spec.Library.librarian.serve(ctx) }()
	far, there := r.seen(t)
	go func() { done <- far.Serve(ctx) }()
	must(t, far.Searchable(t.Context()))

	fox := r.put("the quick brown fox") // nobody here tells the library
	far.Has(fox)
	finds := func(want int64) func() bool {
		return func() bool {
			found, err := far.Search(t.Context(), "fox", 20, 0)
			return err == nil && found.Total == want && int64(len(found.Hits)) == want
		}
	}
	waitUntil(t, finds(1))
	if found, err := far.Search(t.Context(), "fox", 20, 0); err != nil || found.Hits[0].Address != fox || found.Query != "fox" {
		t.Errorf("%+v, %v", found, err)
	}
	must(t, r.ram.Delete(t.Context(), fox))
	far.Gone(fox)
	waitUntil(t, finds(0))

	hidden := r.put("another fox")
	far.lost.Store(true) // there was more than could be told
	far.Gone(fox)
	waitUntil(t, finds(1))
	must(t, r.ram.Delete(t.Context(), hidden))
	r.spec.Library.LookAround() // as when a store comes back that is another one now
	waitUntil(t, finds(0))

	for name, ask := range map[string]struct {
		query         string
		limit, offset int
	}{"nothing": {"", 20, 0}, "too long": {strings.Repeat("x", 100<<10), 20, 0}, "too many": {"fox", 101, 0}, "too deep": {"fox", 100, 9950}} {
		if _, err := far.Search(t.Context(), ask.query, ask.limit, ask.offset); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	there.Close()
	if _, err := far.Search(t.Context(), "fox", 20, 0); !fault.KindOf(err).Retryable() {
		t.Error(err)
	}
	stop()
	must(t, <-done)
	must(t, <-done)
	must(t, r.spec.Library.Close())
}

// An index that catalogues nothing says which setting is missing, and where.
func TestAnIndexElsewhereWithoutALibrary(t *testing.T) {
	far, _ := open(t).seen(t)
	_, searched := far.Search(t.Context(), "fox", 20, 0)
	for _, err := range []error{searched, far.Searchable(t.Context())} {
		if fault.KindOf(err) != fault.NotReady || !strings.Contains(fault.NextOf(err), "facets.search.enabled") {
			t.Errorf("%v: %s", err, fault.NextOf(err))
		}
	}
}

// What is lost while the index is told of something else, it hears of with the
// next news.
func TestNewsThatAreLostWhileOthersAreTold(t *testing.T) {
	var far *Remote
	var missed []bool
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == seamHas {
			var told toldObjects
			if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
				t.Error(err)
			}
			if missed = append(missed, told.Missed); len(missed) == 1 {
				for range mostProvide + 1 {
					far.Has(address("x"))
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	defer there.Close()
	far = NewRemote(flow.NewInventory(), caller(t, there))
	defer far.Close()
	for range 3 {
		must(t, far.tell(t.Context(), []tidings{{address: address("x")}}))
	}
	if want := []bool{false, true, false}; !slices.Equal(missed, want) {
		t.Errorf("told that some were missed: %v, want %v", missed, want)
	}
}

// Many push at the same moment. None of what is dropped then is overlooked.
func TestTheLastPlacesForNewsAreWatched(t *testing.T) {
	far := NewRemote(flow.NewInventory(), nil)
	defer far.Close()
	for range mostProvide - 100 {
		far.Has(address("x"))
	}
	if !far.lost.Load() {
		t.Error("a hundred who push at once would not see that there was no room")
	}
}
