package facet

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/ingress"
	"micronode/internal/search"
)

// fakeLibrary is a library that records its arguments.
type fakeLibrary struct {
	mu            sync.Mutex
	limit, offset int // of the last search; guarded by mu
	fail          error
	wait          chan struct{} // nil, or what a search waits for
	within        chan struct{} // sent to when a search has begun
}

func (l *fakeLibrary) Search(ctx context.Context, query string, limit, offset int) (search.Results, error) {
	if l.wait != nil {
		l.within <- struct{}{}
		select {
		case <-l.wait:
		case <-ctx.Done():
			return search.Results{}, ctx.Err()
		}
	}
	l.mu.Lock()
	l.limit, l.offset = limit, offset
	l.mu.Unlock()
	return search.Results{Query: query, Total: 1, Hits: []search.Hit{{ID: "name:docs", Kind: search.FoundName, Name: "docs", Address: b3.Of(nil), Score: 2}}}, l.fail
}

// withLibrary sets the library of the facets.
func withLibrary(l Library) option { return func(s *Spec) { s.Library = l } }

func TestSearch(t *testing.T) {
	played := &fakeLibrary{}
	r := open(t, enable("search"), withLibrary(played))
	told := expectJSON[client.SearchResults](t, r.request(http.MethodGet, "/search?q="+url.QueryEscape(`"red fox" -blue`), ""), http.StatusOK)
	if told.Query != `"red fox" -blue` || told.Total != 1 || len(told.Hits) != 1 || told.Hits[0].Address != b3.Of(nil) {
		t.Errorf("the answer is %+v", told)
	}
	if played.limit != 20 || played.offset != 0 {
		t.Errorf("it asked for %d after %d", played.limit, played.offset)
	}
	expectJSON[client.SearchResults](t, r.request(http.MethodGet, "/search?q=fox&limit=100&offset=9900", ""), http.StatusOK)
	if played.limit != 100 || played.offset != 9900 {
		t.Errorf("it asked for %d after %d", played.limit, played.offset)
	}
	for _, wrong := range []string{"limit=0", "limit=101", "limit=x", "limit=", "offset=-1", "offset=10000", "offset=1e3"} {
		if next := expectRefusal(t, r.request(http.MethodGet, "/search?q=fox&"+wrong, ""), fault.Malformed); !strings.Contains(next, "Write a number") {
			t.Errorf("%s: the next step is %q", wrong, next)
		}
	}
	played.fail = fault.New("library.query", fault.Malformed, "the query contains no word to search for")
	expectRefusal(t, r.request(http.MethodGet, "/search", ""), fault.Malformed)
	played.fail = errors.New("broken")
	expectRefusal(t, r.request(http.MethodGet, "/search?q=fox", ""), fault.Internal)
}

// TestSearchIsSaturated has as many queries under way as may be.
func TestSearchIsSaturated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		played := &fakeLibrary{wait: make(chan struct{}), within: make(chan struct{}, 10)}
		r := build(t, enable("search"), withLibrary(played), func(s *Spec) { s.Config.Search.Queries = config.Auto[int]{Value: 1} })
		r.run()
		first := make(chan int)
		go func() { first <- r.request(http.MethodGet, "/search?q=fox", "").Code }()
		<-played.within
		begun := time.Now()
		expectRefusal(t, r.request(http.MethodGet, "/search?q=fox", "", "Request-Timeout", "0.5"), fault.Backpressure)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the refusal took %s", took)
		}
		close(played.wait)
		if code := <-first; code != http.StatusOK {
			t.Errorf("the first one got %d", code)
		}
		r.end()
	})
}

// TestOneClientSearchesMost has one client with more searches than may run. It
// runs half of them at most, and another client is not behind the rest.
func TestOneClientSearchesMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		played := &fakeLibrary{wait: make(chan struct{}), within: make(chan struct{}, 100)}
		r := build(t, enable("search"), withLibrary(played), func(s *Spec) { s.Config.Search.Queries = config.Auto[int]{Value: 4} })
		r.run()
		var asked sync.WaitGroup
		search := func(client string) {
			asked.Go(func() {
				answer := r.request(http.MethodGet, "/search?q=fox", "", ingress.ClientHeader, client, ingress.VoucherHeader, "of a part")
				if answer.Code != http.StatusOK {
					t.Errorf("%s got %d %s", client, answer.Code, answer.Body)
				}
			})
		}
		for range 20 {
			search("192.0.2.1")
		}
		synctest.Wait()
		if n := len(played.within); n < 1 || n > 2 {
			t.Fatalf("one client alone runs %d of 4", n)
		}
		alone := len(played.within)
		search("192.0.2.9")
		synctest.Wait()
		if len(played.within) != alone+1 {
			t.Error("another client waits for the searches of the first")
		}
		close(played.wait)
		asked.Wait()
		r.end()
	})
}

func TestSearchConfig(t *testing.T) {
	c := DefaultConfig()
	c.Search.MaxBytes = 65 * config.GiB
	if problem, is := errors.AsType[*config.Problem](c.Search.Validate()); !is || problem.Key != "max_bytes" {
		t.Errorf("a catalogue that is too large: %v", problem)
	}
}
