package index

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

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// shelfOfCards plays a searcher: a list, and words by looking at all of it.
type shelfOfCards struct {
	mu      sync.Mutex
	all     map[string]Document
	batches []int // how many documents each put had
	fail    error // of everything that is written
	blind   error // of everything that is read
	weight  int64 // bytes of a document
	closed  int
	late    func(ctx context.Context) // called by Search
}

func newCards() *shelfOfCards { return &shelfOfCards{all: map[string]Document{}, weight: 100} }

func (s *shelfOfCards) Put(documents []Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.batches = append(s.batches, len(documents))
	for _, one := range documents {
		s.all[one.ID] = one
	}
	return nil
}

func (s *shelfOfCards) Delete(ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	maps.DeleteFunc(s.all, func(id string, one Document) bool { return slices.Contains(ids, id) || slices.Contains(ids, one.Of) })
	return nil
}

func (s *shelfOfCards) Search(ctx context.Context, q Query, limit, offset int) (Found, error) {
	if s.late != nil {
		s.late(ctx)
	}
	if err := flow.Ended(ctx, "cards"); err != nil {
		return Found{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found Found
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
	return found, s.blind
}

func (s *shelfOfCards) IDs(prefix, after string, limit int) (ids []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.all)) {
		if strings.HasPrefix(id, prefix) && id > after && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, s.blind
}

func (s *shelfOfCards) Has(id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.all[id]
	return has, s.blind
}

func (s *shelfOfCards) Size() (int64, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.all)), int64(len(s.all)) * s.weight
}

func (s *shelfOfCards) Close() error { s.closed++; return nil }

func (s *shelfOfCards) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.all))
}

func (s *shelfOfCards) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
}

// fickle is a store that fails when it is told to.
type fickle struct {
	store.Store
	mu     sync.Mutex
	fail   error
	opened int
	stats  int
	hold   chan struct{} // nil, or what Open waits for
}

func (f *fickle) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
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

func (f *fickle) Stat(ctx context.Context, a b3.Address) (store.Info, error) {
	f.mu.Lock()
	f.stats++
	f.mu.Unlock()
	return f.Store.Stat(ctx, a)
}

func (f *fickle) List(ctx context.Context, after b3.Address, limit int) ([]store.Info, error) {
	f.mu.Lock()
	err := f.fail
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Store.List(ctx, after, limit)
}

func (f *fickle) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// reading is a library with a real store, and a librarian who is at work.
type reading struct {
	*Library
	t         testing.TB
	cards     *shelfOfCards
	store     *fickle
	named     sync.Mutex
	names     map[string]b3.Address // guarded by named
	readiness *observe.Readiness
	inventory *flow.Inventory
	observed  *observe.Metrics
	stop      func()
}

// openReading makes one. It runs in a bubble, and ends with the test's own call
// of stop.
func openReading(t testing.TB, cards *shelfOfCards, before func(*reading)) *reading {
	t.Helper()
	r := &reading{t: t, cards: cards, names: map[string]b3.Address{}, inventory: flow.NewInventory()}
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state", Drain: time.Second}}, Total: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.observed = observe.NewMetrics(observe.Build{})
	r.readiness = observe.NewReadiness(r.inventory, supervisor)
	ram := store.NewRAM(r.inventory, store.RAMSpec{Service: "store", Budget: 64 << 20, MaxObject: 32 << 20})
	r.store = &fickle{Store: ram}
	r.Library, err = OpenLibrary(r.inventory, LibrarySpec{
		Store: r.store, Searcher: cards, MaxBytes: 1 << 30, Metrics: r.observed, Readiness: r.readiness,
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
	if err := r.Add(supervisor, Stages{State: "state"}); err != nil {
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

// keep puts an object into the store and tells nobody.
func (r *reading) keep(content string) b3.Address {
	r.t.Helper()
	info, _, err := r.store.Put(context.Background(), strings.NewReader(content), store.PutOptions{Size: int64(len(content))})
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Address
}

// put does what a node does: it keeps an object and offers it.
func (r *reading) put(content string) b3.Address {
	address := r.keep(content)
	r.Offer(address)
	return address
}

func (r *reading) folder(paths ...string) b3.Address {
	r.t.Helper()
	var m client.Manifest
	for _, path := range paths {
		m.Entries = append(m.Entries, client.Entry{B3: b3.Of([]byte(path)), Path: path, Size: int64(len(path)), Type: "text/plain"})
	}
	raw, err := m.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	return r.put(string(raw))
}

// name sets what a name means, and tells nobody.
func (r *reading) name(name string, address b3.Address) {
	r.named.Lock()
	defer r.named.Unlock()
	r.names[name] = address
}

// settled waits until the librarian has nothing to do.
func settled() {
	time.Sleep(batchWait + time.Millisecond)
	synctest.Wait()
}

func (r *reading) has(what string, ids ...string) {
	r.t.Helper()
	slices.Sort(ids)
	if got := r.cards.ids(); !slices.Equal(got, ids) {
		r.t.Errorf("%s: the catalogue has %q, want %q", what, got, ids)
	}
}

func (r *reading) find(query string) client.SearchResults {
	r.t.Helper()
	found, err := r.Search(context.Background(), query, 20, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func (r *reading) reasons() (list []string) {
	for _, one := range r.readiness.Evaluate().Reasons {
		list = append(list, one.Dep+": "+one.Reason)
	}
	return list
}

func (r *reading) counted(name, label string) float64 {
	r.t.Helper()
	families, err := r.observed.Gatherer().Gather()
	if err != nil {
		r.t.Fatal(err)
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

func inBubble(t *testing.T, test func(t *testing.T, r *reading)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := openReading(t, newCards(), nil)
		settled()
		test(t, r)
		r.stop()
	})
}

func TestWhatIsPutIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		text := r.put("The quick brown fox.")
		papers := r.folder("a/readme.md", "b/fox.png")
		bytes := r.put("\x00\x01\x02 fox")
		large := r.put(strings.Repeat("fox ", maxText/4+1))
		r.OfferName("fox", papers)
		settled()
		r.has("all", text.String(), papers.String(), bytes.String(), large.String(), papers.String()+"/a/readme.md", papers.String()+"/b/fox.png", "name:fox")
		got := map[string]client.SearchHit{}
		for _, hit := range r.find("fox").Hits {
			got[hit.Kind] = hit
		}
		want := map[string]client.SearchHit{
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
	inBubble(t, func(t *testing.T, r *reading) {
		text, papers := r.put("some words"), r.folder("one", "two")
		r.OfferName("docs", papers)
		settled()
		for _, one := range []b3.Address{text, papers} {
			if err := r.store.Delete(context.Background(), one); err != nil {
				t.Fatal(err)
			}
			r.Forget(one)
		}
		r.OfferName("docs", b3.Address{})
		settled()
		r.has("after it was deleted")
		again := r.put("some words")
		settled()
		r.has("put again", again.String())
	})
}

// TestTheTruthCounts tells of things in the wrong order, twice, and of what
// never was.
func TestTheTruthCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		there, never := r.keep("there"), b3.Of([]byte("never"))
		r.Forget(there)
		r.Offer(never)
		r.Offer(there)
		r.Forget(there)
		r.Forget(never)
		settled()
		r.has("whatever was told", there.String())
		r.OfferName("a", never)
		r.OfferName("a", b3.Address{})
		r.OfferName("a", there)
		settled()
		if found := r.find("a"); found.Total != 1 || found.Hits[0].Address != there {
			t.Errorf("the name leads to %+v", found)
		}
		r.OfferName("a", b3.Address{})
		settled()
		r.has("the name is gone", there.String())
	})
}

func TestNothingIsReadTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		address := r.put("words")
		r.Offer(address)
		settled()
		r.Offer(address)
		settled()
		if r.store.opened != 1 {
			t.Errorf("the object was opened %d times", r.store.opened)
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		var paths []string
		for i := range 600 {
			paths = append(paths, fmt.Sprintf("file%d", i))
		}
		r.folder(paths...)
		settled()
		for i := range 6 {
			r.put(fmt.Sprint(i) + strings.Repeat(" word", maxText/5-1))
		}
		settled()
		r.cards.change(func() {
			if want := []int{256, 256, 89, 4, 2}; !slices.Equal(r.cards.batches, want) { // 600 paths and their folder; then 4 MiB, and what is left
				t.Errorf("the batches are %v, want %v", r.cards.batches, want)
			}
		})
	})
}

func TestABatchWaitsButNotLong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		r.put("one")
		synctest.Wait()
		time.Sleep(batchWait / 2)
		r.put("two")
		synctest.Wait()
		r.has("too early")
		time.Sleep(batchWait/2 + time.Millisecond)
		synctest.Wait()
		if got := len(r.cards.ids()); got != 2 {
			t.Errorf("%d are there, want both at once", got)
		}
		if n := r.counted("search_ingest_lag_seconds", ""); n != 2 {
			t.Errorf("%v lags were seen, want 2", n)
		}
	})
}

// TestAFloodIsCaughtUpWith offers so many at once that most of them are
// dropped, while the librarian is held up.
func TestAFloodIsCaughtUpWith(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		deleted := r.put("goes")
		settled()
		hold := make(chan struct{})
		r.store.mu.Lock()
		r.store.hold = hold
		r.store.mu.Unlock()
		if err := r.store.Delete(context.Background(), deleted); err != nil {
			t.Fatal(err)
		}
		r.put("first")
		synctest.Wait() // he has it in hand
		r.Forget(deleted)
		const many = 3 * mostOffers
		for i := range many {
			r.put(fmt.Sprint("text ", i))
		}
		close(hold)
		settled()
		if got := len(r.cards.ids()); got != many+1 {
			t.Errorf("%d are catalogued, want %d", got, many+1)
		}
		if got := r.counted("search_rounds_total", ""); got != 2 {
			t.Errorf("there were %v rounds, want the first and one more", got)
		}
	})
}

// TestARoundAtTheStart has a catalogue from before, and a store and names that
// have changed since.
func TestARoundAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cards := newCards()
		gone, folder := b3.Of([]byte("gone")).String(), b3.Of([]byte("a folder that is gone")).String()
		old := []Document{{ID: gone}, {ID: folder}, {ID: "name:old", Field: InName, Value: "old"}, {ID: "name:kept", Field: InName, Value: "kept"}}
		for i := range 3 * roundPage {
			old = append(old, Document{ID: fmt.Sprintf("%s/path%03d", folder, i), Of: folder})
		}
		_ = cards.Put(old)
		var want []string
		var known b3.Address
		r := openReading(t, cards, func(r *reading) {
			known = r.keep("known")
			_ = cards.Put([]Document{{ID: known.String()}})
			want = append(want, known.String(), "name:kept", "name:new")
			for i := range 2*roundPage + 3 {
				want = append(want, r.keep(fmt.Sprint("new ", i)).String())
			}
			r.names["kept"], r.names["new"] = known, known
		})
		settled()
		r.has("after the round", want...)
		if r.store.opened != 2*roundPage+3 {
			t.Errorf("%d objects were read, and one was known", r.store.opened)
		}
		if found := r.find("kept"); found.Hits[0].Address != known {
			t.Errorf("a name that has changed leads to %s", found.Hits[0].Address)
		}
		r.stop()
	})
}

// TestWhatIsPutDuringARoundIsNotLate offers something while the first round has
// much to do.
func TestWhatIsPutDuringARoundIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := openReading(t, newCards(), func(r *reading) {
			for i := range 10 * roundPage {
				r.keep(fmt.Sprint("text ", i))
			}
			r.store.hold = hold
		})
		synctest.Wait() // he reads the first object
		late := r.put("late")
		hold <- struct{}{}
		for range roundPage { // the rest of the page, and what was offered
			hold <- struct{}{}
		}
		synctest.Wait()
		if !r.librarian.holds(late.String()) {
			t.Error("it waits for the whole round")
		}
		close(hold)
		r.stop()
	})
}

func TestAFailureIsToldAndMadeGood(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(r *reading, err error)
		err  error
	}{
		"the catalogue cannot be written": {func(r *reading, err error) { r.cards.change(func() { r.cards.fail = err }) }, fault.New("x", fault.StoreFull, "the disk is full")},
		"the catalogue cannot be read":    {func(r *reading, err error) { r.cards.change(func() { r.cards.blind = err }) }, errors.New("blind")},
		"the store cannot be read":        {func(r *reading, err error) { r.store.set(err) }, fault.New("x", fault.Timeout, "it is slow")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *reading) {
				c.fail(r, c.err)
				text := r.put("words")
				r.OfferName("docs", text)
				r.name("docs", text)
				settled()
				if told := r.reasons(); len(told) != 1 || !strings.Contains(told[0], "could not be catalogued") {
					t.Errorf("readiness says %q", told)
				}
				time.Sleep(retryPause) // it is tried again, and fails again
				settled()
				c.fail(r, nil)
				time.Sleep(retryPause)
				settled()
				r.has("in the end", text.String(), "name:docs")
				if told := r.reasons(); len(told) != 0 {
					t.Errorf("readiness still says %q", told)
				}
				if r.counted("search_ingest_total", "failed") < 1 {
					t.Error("the failure is not counted")
				}
			})
		})
	}
}

func TestADeletionThatFailsIsMadeGood(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		text := r.put("words")
		settled()
		_ = r.store.Delete(context.Background(), text)
		r.cards.change(func() { r.cards.fail = errors.New("no") })
		r.Forget(text)
		settled()
		r.cards.change(func() { r.cards.fail = nil })
		time.Sleep(retryPause)
		settled()
		r.has("in the end")
	})
}

func TestADamagedObjectIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		r.store.set(fault.New("store", fault.IntegrityFail, "damaged"))
		r.put("words")
		settled()
		r.has("it is damaged")
		if told := r.reasons(); len(told) != 0 {
			t.Errorf("readiness says %q", told)
		}
		r.store.set(nil)
	})
}

func TestAFullCatalogue(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		first := r.put("first")
		settled()
		r.cards.change(func() { r.cards.weight = r.spec.MaxBytes })
		second := r.put("second")
		r.OfferName("docs", second)
		r.name("docs", second)
		settled()
		r.has("it is full", first.String())
		if told := r.reasons(); len(told) != 1 || !strings.Contains(told[0], "full") || !r.readiness.Evaluate().Ready {
			t.Errorf("readiness says %q", told)
		}
		r.cards.change(func() { r.cards.weight = 1 })
		time.Sleep(retryPause)
		settled()
		r.has("there is room", first.String(), second.String(), "name:docs")
	})
}

func TestTheLibrarianEndsWithTheNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		text := r.put("said at the last moment")
		synctest.Wait()
		r.ingest.Close() // before the end, and he does not run in circles
		synctest.Wait()
		r.has("at the end", text.String())
	})
}

func TestALibrarianThatComesAgainBeginsAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		address := r.keep("nobody was told")
		r.librarian.reset()
		if !r.librarian.empty() || r.librarian.library == nil {
			t.Error("he holds something")
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		other := librarian{library: r.Library}
		if err := other.serve(ctx); err != nil {
			t.Error(err)
		}
		other.lookAtObject(ctx, address, false)
		if other.missed {
			t.Error("what ended with the node counts as missed")
		}
	})
}

func TestSearchesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		for _, c := range [][2]int{{0, 0}, {-1, 0}, {101, 0}, {1, -1}, {100, 9901}, {1, 10_000}, {1, int(^uint(0) >> 1)}} {
			if _, err := r.Search(context.Background(), "words", c[0], c[1]); fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "100 at a time") {
				t.Errorf("%v: %v", c, err)
			}
		}
		if _, err := r.Search(context.Background(), "words", 100, 9900); err != nil {
			t.Error(err)
		}
		if _, err := r.Search(context.Background(), "-words", 1, 0); fault.KindOf(err) != fault.Malformed {
			t.Errorf("a query that finds all: %v", err)
		}
		r.cards.change(func() { r.cards.blind = errors.New("broken") })
		if _, err := r.Search(context.Background(), "words", 1, 0); fault.OpOf(err) != "library.search" {
			t.Errorf("a searcher that fails: %v", err)
		}
		r.cards.change(func() { r.cards.blind = nil })
	})
}

func TestCloseWaitsForSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cards := newCards()
		released := make(chan struct{})
		cards.late = func(context.Context) { <-released }
		r := openReading(t, cards, nil)
		over := make(chan error, 1)
		go func() { _, err := r.Search(context.Background(), "words", 1, 0); over <- err }()
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
		if _, err := r.Search(context.Background(), "words", 1, 0); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		r.Offer(b3.Of(nil))
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
	inBubble(t, func(t *testing.T, r *reading) {
		for i := range 5 {
			r.put(fmt.Sprint("fox ", i))
		}
		settled()
		r.store.mu.Lock()
		r.store.hold = make(chan struct{}) // the store does not answer
		r.store.mu.Unlock()
		begun := time.Now()
		found := r.find("fox")
		if took := time.Since(begun); took != snippetTime || len(found.Hits) != 5 || found.Hits[0].Snippet != "" {
			t.Errorf("after %s: %+v", took, found)
		}
	})
}

// TestWhatIsText looks at objects of all sorts.
func TestWhatIsText(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		var paths []string
		for i := range 12_000 {
			paths = append(paths, fmt.Sprintf("a/rather/long/path/to/file%d", i))
		}
		large := r.folder(paths...) // of more than 1 MiB
		settled()
		r.cards.change(func() {
			if len(r.cards.all) != 12_001 {
				t.Errorf("a large folder has %d documents", len(r.cards.all))
			}
		})
		_ = r.store.Delete(context.Background(), large)
		r.Forget(large)
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
			settled()
			r.cards.change(func() {
				one, known := r.cards.all[address.String()]
				if !known || (one.Field == InText) != want {
					t.Errorf("%.20q of %d bytes: %t, and it looks in %q", content, len(content), known, one.Field)
				}
			})
		}
	})
}

// TestAStoreThatFailsHalfWay gives some of an object.
func TestAStoreThatFailsHalfWay(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int64{10, maxText + 1} {
		if _, err := readable(ctx, &halfHandle{size: size}); err == nil {
			t.Errorf("of %d bytes, half will do", size)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := readable(ended, &halfHandle{size: 10}); !errors.Is(err, context.Canceled) {
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
	if _, err := OpenLibrary(flow.NewInventory(), LibrarySpec{}); err == nil || fault.NextOf(err) == "" {
		t.Errorf("without parts: %v", err)
	}
}

func TestTheGauges(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reading) {
		r.put("words")
		settled()
		if n, b := r.counted("search_documents", ""), r.counted("search_bytes", ""); n != 1 || b != 100 {
			t.Errorf("they show %v documents and %v bytes", n, b)
		}
	})
}
