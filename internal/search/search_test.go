package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine is a search engine over a plain list, without an index.
type fakeEngine struct {
	mu       sync.Mutex
	all      map[string]Document
	batches  []int // how many documents each put had
	writeErr error // of everything that is written
	readErr  error // of everything that is read
	weight   int64 // bytes of a document
	closed   int
	onSearch func(ctx context.Context) // called by Search
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{all: map[string]Document{}, weight: 100}
}

func (s *fakeEngine) Put(documents []Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		return s.writeErr
	}
	s.batches = append(s.batches, len(documents))
	for _, one := range documents {
		s.all[one.ID] = one
	}
	return nil
}

func (s *fakeEngine) Delete(ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		return s.writeErr
	}
	maps.DeleteFunc(s.all, func(id string, one Document) bool { return slices.Contains(ids, id) || slices.Contains(ids, one.Of) })
	return nil
}

func (s *fakeEngine) Search(ctx context.Context, q Query, limit, offset int) (Page, error) {
	if s.onSearch != nil {
		s.onSearch(ctx)
	}
	if err := flow.Ended(ctx, "cards"); err != nil {
		return Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found Page
	for _, one := range s.all {
		words := map[string]bool{}
		EachWord(one.Value, func(word string, _, _ int) bool { words[word] = true; return true })
		if !slices.ContainsFunc(q.Clauses, func(c Clause) bool { return words[c.Words[0]] == c.Not }) {
			found.Matches = append(found.Matches, Match{ID: one.ID, Address: one.Address, Score: 1})
		}
	}
	slices.SortFunc(found.Matches, func(a, b Match) int { return cmp.Compare(a.ID, b.ID) })
	found.Total = int64(len(found.Matches))
	found.Matches = found.Matches[min(offset, len(found.Matches)):min(offset+limit, len(found.Matches))]
	return found, s.readErr
}

func (s *fakeEngine) IDs(prefix, after string, limit int) (ids []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.all)) {
		if strings.HasPrefix(id, prefix) && id > after && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, s.readErr
}

func (s *fakeEngine) Has(id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.all[id]
	return has, s.readErr
}

func (s *fakeEngine) Size() (int64, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.all)), int64(len(s.all)) * s.weight
}

func (s *fakeEngine) Close() error { s.closed++; return nil }

func (s *fakeEngine) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.all))
}

func (s *fakeEngine) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
}

// flakyStore is a store that fails on demand.
type flakyStore struct {
	store.Store
	mu     sync.Mutex
	fail   error
	opened int
	stats  int
	hold   chan struct{} // nil, or what Open waits for
}

func (f *flakyStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	f.mu.Lock()
	f.opened++
	err, hold := f.fail, f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, flow.Ended(ctx, "fickle")
		}
	}
	if err != nil {
		return nil, err
	}
	return f.Store.Open(ctx, a)
}

func (f *flakyStore) Stat(ctx context.Context, a b3.Address) (store.Info, error) {
	f.mu.Lock()
	f.stats++
	f.mu.Unlock()
	return f.Store.Stat(ctx, a)
}

func (f *flakyStore) List(ctx context.Context, after b3.Address, limit int) ([]store.Info, error) {
	f.mu.Lock()
	err := f.fail
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Store.List(ctx, after, limit)
}

func (f *flakyStore) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// testSearch is a Search with a real store, and a running ingester.
type testSearch struct {
	*Search
	t         testing.TB
	engine    *fakeEngine
	store     *flakyStore
	named     sync.Mutex
	names     map[string]b3.Address // guarded by named
	readiness *observe.Readiness
	inventory *flow.Inventory
	observed  *observe.Metrics
	stop      func()
}

// openTestSearch makes a testSearch. It runs in a bubble; the test must call
// stop.
func openTestSearch(t testing.TB, cards *fakeEngine, before func(*testSearch)) *testSearch {
	t.Helper()
	r := &testSearch{t: t, engine: cards, names: map[string]b3.Address{}, inventory: flow.NewInventory()}
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state", DrainTimeout: time.Second}}, DrainTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.observed = observe.NewMetrics(observe.Build{})
	r.readiness = observe.NewReadiness(r.inventory, supervisor)
	ram := store.NewRAM(store.RAMSpec{Budget: 64 << 20, MaxObject: 32 << 20})
	r.store = &flakyStore{Store: ram}
	r.Search, err = Open(r.inventory, Spec{
		Store: r.store, Engine: cards, MaxBytes: 1 << 30, Metrics: r.observed, Readiness: r.readiness,
		Names: func() iter.Seq2[string, b3.Address] {
			r.named.Lock()
			defer r.named.Unlock()
			return maps.All(maps.Clone(r.names))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(r)
	}
	if err := r.Add(supervisor, "state"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _, _ = supervisor.Run(ctx); close(done) }()
	r.stop = func() {
		cancel()
		<-done
		if err := errors.Join(r.Close(), ram.Close()); err != nil {
			t.Error(err)
		}
	}
	return r
}

// putQuietly puts an object into the store without a notification.
func (s *testSearch) putQuietly(content string) b3.Address {
	s.t.Helper()
	info, _, err := s.store.Put(context.Background(), strings.NewReader(content), store.PutOptions{Size: int64(len(content))})
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Address
}

// put does what a node does: it stores an object and notifies the search.
func (s *testSearch) put(content string) b3.Address {
	address := s.putQuietly(content)
	s.ObjectAdded(address)
	return address
}

func (s *testSearch) folder(paths ...string) b3.Address {
	s.t.Helper()
	var m client.Manifest
	for _, path := range paths {
		m.Entries = append(m.Entries, client.Entry{B3: b3.Of([]byte(path)), Path: path, Size: int64(len(path)), Type: "text/plain"})
	}
	raw, err := m.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.put(string(raw))
}

// name sets the manifest of a name, without a notification.
func (s *testSearch) name(name string, address b3.Address) {
	s.named.Lock()
	defer s.named.Unlock()
	s.names[name] = address
}

// waitIngested waits until the ingester is idle.
func waitIngested() {
	time.Sleep(batchWait + time.Millisecond)
	synctest.Wait()
}

func (s *testSearch) wantIDs(what string, ids ...string) {
	s.t.Helper()
	slices.Sort(ids)
	if got := s.engine.ids(); !slices.Equal(got, ids) {
		s.t.Errorf("%s: the catalogue has %q, want %q", what, got, ids)
	}
}

func (s *testSearch) find(query string) Results {
	s.t.Helper()
	found, err := s.Search.Search(context.Background(), query, 20, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

func (s *testSearch) reasons() (list []string) {
	for _, one := range s.readiness.Evaluate().Reasons {
		list = append(list, one.Dep+": "+one.Reason)
	}
	return list
}

func (s *testSearch) metric(name, label string) float64 {
	s.t.Helper()
	families, err := s.observed.Gatherer().Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			for _, l := range one.GetLabel() {
				if family.GetName() == name && (label == "" || l.GetValue() == label) {
					return one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return -1
}

func withTestSearch(t *testing.T, test func(t *testing.T, r *testSearch)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := openTestSearch(t, newFakeEngine(), nil)
		waitIngested()
		test(t, r)
		r.stop()
	})
}

func TestWhatIsPutIsFound(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		text := r.put("The quick brown fox.")
		papers := r.folder("a/readme.md", "b/fox.png")
		bytes := r.put("\x00\x01\x02 fox")
		large := r.put(strings.Repeat("fox ", maxText/4+1))
		r.NameChanged("fox", papers)
		waitIngested()
		r.wantIDs("all", text.String(), papers.String(), bytes.String(), large.String(), papers.String()+"/a/readme.md", papers.String()+"/b/fox.png", "name:fox")
		got := map[string]Hit{}
		for _, hit := range r.find("fox").Hits {
			got[hit.Kind] = hit
		}
		want := map[string]Hit{
			"name":   {ID: "name:fox", Kind: "name", Name: "fox", Address: papers, Score: 1},
			"path":   {ID: papers.String() + "/b/fox.png", Kind: "path", Path: "b/fox.png", Address: b3.Of([]byte("b/fox.png")), Score: 1},
			"object": {ID: text.String(), Kind: "object", Address: text, Score: 1, Snippet: "The quick brown fox."},
		}
		if !maps.Equal(got, want) {
			t.Errorf("found %+v, want %+v", got, want)
		}
		if total := r.find("fox").Total; total != 3 {
			t.Errorf("%d are found; what is no text, or too long, is not looked into", total)
		}
	})
}

func TestWhatIsDeletedVanishes(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		text, papers := r.put("some words"), r.folder("one", "two")
		r.NameChanged("docs", papers)
		waitIngested()
		for _, one := range []b3.Address{text, papers} {
			if err := r.store.Delete(context.Background(), one); err != nil {
				t.Fatal(err)
			}
			r.ObjectRemoved(one)
		}
		r.NameChanged("docs", b3.Address{})
		waitIngested()
		r.wantIDs("after it was deleted")
		again := r.put("some words")
		waitIngested()
		r.wantIDs("put again", again.String())
	})
}

// TestTheTruthCounts sends notifications in the wrong order, twice, and for
// objects that never existed.
func TestTheTruthCounts(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		there, never := r.putQuietly("there"), b3.Of([]byte("never"))
		r.ObjectRemoved(there)
		r.ObjectAdded(never)
		r.ObjectAdded(there)
		r.ObjectRemoved(there)
		r.ObjectRemoved(never)
		waitIngested()
		r.wantIDs("whatever was told", there.String())
		r.NameChanged("a", never)
		r.NameChanged("a", b3.Address{})
		r.NameChanged("a", there)
		waitIngested()
		if found := r.find("a"); found.Total != 1 || found.Hits[0].Address != there {
			t.Errorf("the name leads to %+v", found)
		}
		r.NameChanged("a", b3.Address{})
		waitIngested()
		r.wantIDs("the name is gone", there.String())
	})
}

func TestNothingIsReadTwice(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		address := r.put("words")
		r.ObjectAdded(address)
		waitIngested()
		r.ObjectAdded(address)
		waitIngested()
		if r.store.opened != 1 {
			t.Errorf("the object was opened %d times", r.store.opened)
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		var paths []string
		for i := range 600 {
			paths = append(paths, fmt.Sprintf("file%d", i))
		}
		r.folder(paths...)
		waitIngested()
		for i := range 6 {
			r.put(fmt.Sprint(i) + strings.Repeat(" word", maxText/5-1))
		}
		waitIngested()
		r.engine.change(func() {
			if want := []int{256, 256, 89, 4, 2}; !slices.Equal(r.engine.batches, want) { // 600 paths and their folder; then 4 MiB, and the rest
				t.Errorf("the batches are %v, want %v", r.engine.batches, want)
			}
		})
	})
}

func TestABatchWaitsButNotLong(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		r.put("one")
		synctest.Wait()
		time.Sleep(batchWait / 2)
		r.put("two")
		synctest.Wait()
		r.wantIDs("too early")
		time.Sleep(batchWait/2 + time.Millisecond)
		synctest.Wait()
		if got := len(r.engine.ids()); got != 2 {
			t.Errorf("%d are there, want both at once", got)
		}
		if n := r.metric("search_ingest_lag_seconds", ""); n != 2 {
			t.Errorf("%v lags were seen, want 2", n)
		}
	})
}

// TestAFloodIsCaughtUpWith adds so many objects at once that most are dropped,
// while the ingester is blocked.
func TestAFloodIsCaughtUpWith(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		deleted := r.put("goes")
		waitIngested()
		hold := make(chan struct{})
		r.store.mu.Lock()
		r.store.hold = hold
		r.store.mu.Unlock()
		if err := r.store.Delete(context.Background(), deleted); err != nil {
			t.Fatal(err)
		}
		r.put("first")
		synctest.Wait() // the ingester has dequeued it
		r.ObjectRemoved(deleted)
		const many = 3 * maxIngestQueued
		for i := range many {
			r.put(fmt.Sprint("text ", i))
		}
		close(hold)
		waitIngested()
		if got := len(r.engine.ids()); got != many+1 {
			t.Errorf("%d are catalogued, want %d", got, many+1)
		}
		if got := r.metric("search_rounds_total", ""); got != 2 {
			t.Errorf("there were %v rounds, want the first and one more", got)
		}
	})
}

// TestARoundAtTheStart has a search index from before, and a store and names
// that have changed since.
func TestARoundAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cards := newFakeEngine()
		gone, folder := b3.Of([]byte("gone")).String(), b3.Of([]byte("a folder that is gone")).String()
		old := []Document{{ID: gone}, {ID: folder}, {ID: "name:old", Field: InName, Value: "old"}, {ID: "name:kept", Field: InName, Value: "kept"}}
		for i := range 3 * reconcilePage {
			old = append(old, Document{ID: fmt.Sprintf("%s/path%03d", folder, i), Of: folder})
		}
		_ = cards.Put(old)
		var want []string
		var known b3.Address
		r := openTestSearch(t, cards, func(r *testSearch) {
			known = r.putQuietly("known")
			_ = cards.Put([]Document{{ID: known.String()}})
			want = append(want, known.String(), "name:kept", "name:new")
			for i := range 2*reconcilePage + 3 {
				want = append(want, r.putQuietly(fmt.Sprint("new ", i)).String())
			}
			r.names["kept"], r.names["new"] = known, known
		})
		waitIngested()
		r.wantIDs("after the round", want...)
		if r.store.opened != 2*reconcilePage+3 {
			t.Errorf("%d objects were read, and one was known", r.store.opened)
		}
		if found := r.find("kept"); found.Hits[0].Address != known {
			t.Errorf("a name that has changed leads to %s", found.Hits[0].Address)
		}
		r.stop()
	})
}

// TestWhatIsPutDuringARoundIsNotLate adds an object while the first
// reconciliation has much to do.
func TestWhatIsPutDuringARoundIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := openTestSearch(t, newFakeEngine(), func(r *testSearch) {
			for i := range 10 * reconcilePage {
				r.putQuietly(fmt.Sprint("text ", i))
			}
			r.store.hold = hold
		})
		synctest.Wait() // the ingester reads the first object
		late := r.put("late")
		hold <- struct{}{}
		for range reconcilePage { // the rest of the page, and the new object
			hold <- struct{}{}
		}
		synctest.Wait()
		if !r.ingester.inBatch(late.String()) {
			t.Error("it waits for the whole round")
		}
		close(hold)
		r.stop()
	})
}

func TestAFailureIsToldAndMadeGood(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(r *testSearch, err error)
		err  error
	}{
		"the catalogue cannot be written": {func(r *testSearch, err error) { r.engine.change(func() { r.engine.writeErr = err }) }, fault.New("x", fault.StoreFull, "the disk is full")},
		"the catalogue cannot be read":    {func(r *testSearch, err error) { r.engine.change(func() { r.engine.readErr = err }) }, errors.New("blind")},
		"the store cannot be read":        {func(r *testSearch, err error) { r.store.set(err) }, fault.New("x", fault.Timeout, "it is slow")},
	} {
		t.Run(name, func(t *testing.T) {
			withTestSearch(t, func(t *testing.T, r *testSearch) {
				c.fail(r, c.err)
				text := r.put("words")
				r.NameChanged("docs", text)
				r.name("docs", text)
				waitIngested()
				if reasons := r.reasons(); len(reasons) != 1 || !strings.Contains(reasons[0], "could not be catalogued") {
					t.Errorf("readiness says %q", reasons)
				}
				time.Sleep(reconcileRetryInterval) // it is retried, and fails again
				waitIngested()
				c.fail(r, nil)
				time.Sleep(reconcileRetryInterval)
				waitIngested()
				r.wantIDs("in the end", text.String(), "name:docs")
				if reasons := r.reasons(); len(reasons) != 0 {
					t.Errorf("readiness still says %q", reasons)
				}
				if r.metric("search_ingest_total", "failed") < 1 {
					t.Error("the failure is not counted")
				}
			})
		})
	}
}

func TestADeletionThatFailsIsMadeGood(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		text := r.put("words")
		waitIngested()
		_ = r.store.Delete(context.Background(), text)
		r.engine.change(func() { r.engine.writeErr = errors.New("no") })
		r.ObjectRemoved(text)
		waitIngested()
		r.engine.change(func() { r.engine.writeErr = nil })
		time.Sleep(reconcileRetryInterval)
		waitIngested()
		r.wantIDs("in the end")
	})
}

func TestADamagedObjectIsLeftOut(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		r.store.set(fault.New("store", fault.IntegrityFail, "damaged"))
		r.put("words")
		waitIngested()
		r.wantIDs("it is damaged")
		if reasons := r.reasons(); len(reasons) != 0 {
			t.Errorf("readiness says %q", reasons)
		}
		r.store.set(nil)
	})
}

func TestAFullCatalogue(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		first := r.put("first")
		waitIngested()
		r.engine.change(func() { r.engine.weight = r.spec.MaxBytes })
		second := r.put("second")
		r.NameChanged("docs", second)
		r.name("docs", second)
		waitIngested()
		r.wantIDs("it is full", first.String())
		if reasons := r.reasons(); len(reasons) != 1 || !strings.Contains(reasons[0], "full") || !r.readiness.Evaluate().Ready {
			t.Errorf("readiness says %q", reasons)
		}
		r.engine.change(func() { r.engine.weight = 1 })
		time.Sleep(reconcileRetryInterval)
		waitIngested()
		r.wantIDs("there is room", first.String(), second.String(), "name:docs")
	})
}

func TestTheLibrarianEndsWithTheNode(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		text := r.put("said at the last moment")
		synctest.Wait()
		r.ingest.Close() // before the end: the ingester must not spin
		synctest.Wait()
		r.wantIDs("at the end", text.String())
	})
}

func TestALibrarianThatComesAgainBeginsAnew(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		address := r.putQuietly("nobody was told")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		other := ingester{search: r.Search, documents: []Document{{ID: "of an earlier run"}}}
		if err := other.run(ctx); err != nil {
			t.Error(err)
		}
		r.wantIDs("the batch of an earlier run is discarded")
		other.processObject(ctx, address, false)
		if other.reconcileDue {
			t.Error("what ended with the node counts as missed")
		}
	})
}

func TestSearchesAreBounded(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		for _, c := range [][2]int{{0, 0}, {-1, 0}, {101, 0}, {1, -1}, {100, 9901}, {1, 10_000}, {1, int(^uint(0) >> 1)}} {
			if _, err := r.Search.Search(context.Background(), "words", c[0], c[1]); fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "100 at a time") {
				t.Errorf("%v: %v", c, err)
			}
		}
		if _, err := r.Search.Search(context.Background(), "words", 100, 9900); err != nil {
			t.Error(err)
		}
		if _, err := r.Search.Search(context.Background(), "-words", 1, 0); fault.KindOf(err) != fault.Malformed {
			t.Errorf("a query that finds all: %v", err)
		}
		r.engine.change(func() { r.engine.readErr = errors.New("broken") })
		if _, err := r.Search.Search(context.Background(), "words", 1, 0); fault.OpOf(err) != "library.search" {
			t.Errorf("a searcher that fails: %v", err)
		}
		r.engine.change(func() { r.engine.readErr = nil })
	})
}

func TestCloseWaitsForSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cards := newFakeEngine()
		released := make(chan struct{})
		cards.onSearch = func(context.Context) { <-released }
		r := openTestSearch(t, cards, nil)
		over := make(chan error, 1)
		go func() { _, err := r.Search.Search(context.Background(), "words", 1, 0); over <- err }()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { r.stop(); close(stopped) }()
		synctest.Wait()
		if cards.closed != 0 {
			t.Error("the catalogue was closed while somebody searched it")
		}
		close(released)
		<-stopped
		if err := <-over; err != nil || cards.closed != 1 {
			t.Errorf("the search ended with %v, and the catalogue was closed %d times", err, cards.closed)
		}
		if _, err := r.Search.Search(context.Background(), "words", 1, 0); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		r.ObjectAdded(b3.Of(nil))
	})
}

func TestSnippets(t *testing.T) {
	far := strings.Repeat("before ", 40) + "the fox" + strings.Repeat(" after", 60)
	for name, c := range map[string]struct{ text, query, want string }{
		"short":         {"a red fox\n\tsleeps", "fox", "a red fox sleeps"},
		"a beginning":   {"a red foxtail", "fo*", "a red foxtail"},
		"far away":      {far, "fox", "…efore " + strings.TrimSpace(strings.Repeat("before ", 10)) + " the fox" + strings.Repeat(" after", 26) + "…"},
		"not the blue":  {strings.Repeat("blue ", 100) + "fox", "fox -blue", "…" + strings.Repeat("blue ", 16) + "fox"},
		"somewhere":     {"it is in the name", "name:docs text:fox", "it is in the name"},
		"signs":         {"a\x01b\u202ec fox", "fox", "a b c fox"},
		"cut in a rune": {strings.Repeat("é", 100) + " fox", "fox", "…" + strings.Repeat("é", 40) + " fox"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			if got := snippet(c.text, q); got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}

func TestSnippetsTakeNoLongerThanTheyAreWorth(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		for i := range 5 {
			r.put(fmt.Sprint("fox ", i))
		}
		waitIngested()
		r.store.mu.Lock()
		r.store.hold = make(chan struct{}) // the store does not answer
		r.store.mu.Unlock()
		begun := time.Now()
		found := r.find("fox")
		if took := time.Since(begun); took != snippetTimeout || len(found.Hits) != 5 || found.Hits[0].Snippet != "" {
			t.Errorf("after %s: %+v", took, found)
		}
	})
}

// TestWhatIsText tests objects of all kinds.
func TestWhatIsText(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		var paths []string
		for i := range 12_000 {
			paths = append(paths, fmt.Sprintf("a/rather/long/path/to/file%d", i))
		}
		large := r.folder(paths...) // of more than 1 MiB
		waitIngested()
		r.engine.change(func() {
			if len(r.engine.all) != 12_001 {
				t.Errorf("a large folder has %d documents", len(r.engine.all))
			}
		})
		_ = r.store.Delete(context.Background(), large)
		r.ObjectRemoved(large)
		for content, want := range map[string]bool{
			"words\twith\r\nlines\f":                 true,
			"":                                       false,
			"words\x00":                              false,
			"words\xff":                              false,
			"\x01\x02\x03 words":                     false,
			"\x1b[1m" + strings.Repeat("bold ", 100): true,
			strings.Repeat("x", maxText):             true,
			strings.Repeat("x", maxText+1):           false,
			strings.Repeat("x", client.MaxManifest+1):           false,
			string(manifestHead) + strings.Repeat("x", maxText): false,
		} {
			address := r.put(content)
			waitIngested()
			r.engine.change(func() {
				one, known := r.engine.all[address.String()]
				if !known || (one.Field == InText) != want {
					t.Errorf("%.20q of %d bytes: %t, and it looks in %q", content, len(content), known, one.Field)
				}
			})
		}
	})
}

// TestAStoreThatFailsHalfWay returns a part of an object.
func TestAStoreThatFailsHalfWay(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int64{10, maxText + 1} {
		if _, err := readIndexable(ctx, &halfHandle{size: size}); err == nil {
			t.Errorf("of %d bytes, half will do", size)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := readIndexable(ended, &halfHandle{size: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("for nobody: %v", err)
	}
}

type halfHandle struct {
	store.Handle
	size int64
}

func (h *halfHandle) Size() int64                       { return h.size }
func (h *halfHandle) ReadAt([]byte, int64) (int, error) { return 0, errors.New("no more") }

func TestALibraryNeedsItsParts(t *testing.T) {
	if _, err := Open(flow.NewInventory(), Spec{}); err == nil || fault.NextOf(err) == "" {
		t.Errorf("without parts: %v", err)
	}
}

func TestTheGauges(t *testing.T) {
	withTestSearch(t, func(t *testing.T, r *testSearch) {
		r.put("words")
		waitIngested()
		if n, b := r.metric("search_documents", ""), r.metric("search_bytes", ""); n != 1 || b != 100 {
			t.Errorf("they show %v documents and %v bytes", n, b)
		}
	})
}
