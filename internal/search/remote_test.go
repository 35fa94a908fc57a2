package search

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/ingress/ingresstest"
	"micronode/internal/testkit"
)

// A search in another process learns of changes, and can be searched.
func TestALibraryElsewhere(t *testing.T) {
	s := openTestSearch(t, newFakeEngine(), nil)
	defer s.stop()
	there := ingresstest.Serve(t, s.PartRoutes())
	far := NewRemote(ingresstest.Client(t, there))
	if err := far.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	finds := func(want int64) {
		t.Helper()
		testkit.WaitFor(t, fmt.Sprintf("%d are found", want), func() bool {
			found, err := far.Search(t.Context(), "fox", 20, 0)
			return err == nil && found.Total == want && int64(len(found.Hits)) == want
		})
	}
	fox := s.put("the quick brown fox")
	finds(1)
	if found, err := far.Search(t.Context(), "fox", 20, 0); err != nil || found.Hits[0].Address != fox || found.Query != "fox" {
		t.Errorf("%+v, %v", found, err)
	}
	remove := func() {
		t.Helper()
		if err := s.store.Delete(t.Context(), fox); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	s.ObjectRemoved(fox)
	finds(0)
	s.putQuietly("the quick brown fox")
	s.Rescan() // as when events were dropped
	finds(1)
	remove()
	s.Rescan() // as when a different store comes back
	finds(0)

	for name, ask := range map[string]struct {
		query         string
		limit, offset int
	}{"nothing": {"", 20, 0}, "too long": {strings.Repeat("x", 100<<10), 20, 0}, "too many": {"fox", 101, 0}, "too deep": {"fox", 100, 9950}} {
		if _, err := far.Search(t.Context(), ask.query, ask.limit, ask.offset); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := far.client.Call(t.Context(), "POST", searchPath, 3, nil); fault.KindOf(err) != fault.Malformed {
		t.Errorf("no query: %v", err)
	}
	there.Close()
	if _, err := far.Search(t.Context(), "fox", 20, 0); !fault.KindOf(err).Retryable() {
		t.Error(err)
	}
}

// An index without search says which setting is missing, and where.
func TestAnIndexElsewhereWithoutALibrary(t *testing.T) {
	var off *Search
	far := NewRemote(ingresstest.Client(t, ingresstest.Serve(t, off.PartRoutes())))
	_, searched := far.Search(t.Context(), "fox", 20, 0)
	for _, err := range []error{searched, far.Ready(t.Context())} {
		if fault.KindOf(err) != fault.NotReady || !strings.Contains(fault.NextOf(err), "facets.search.enabled") {
			t.Errorf("%v: %s", err, fault.NextOf(err))
		}
	}
}

// An index that drains is NotReady, not Canceled.
func TestALibraryElsewhereThatDrains(t *testing.T) {
	ending := func(http.ResponseWriter, *http.Request) error { return flow.ErrClosed }
	far := NewRemote(ingresstest.Client(t, ingresstest.Serve(t, []ingress.Route{{
		Service: hostPart, Methods: []string{"POST"}, Pattern: sizePath, Class: ingress.Control, Scope: "admin", BodyCap: 1 << 10, Handler: ending}})))
	if err := far.Ready(t.Context()); fault.KindOf(err) != fault.NotReady || !strings.Contains(fault.NextOf(err), "--only index") {
		t.Error(err)
	}
}
