package graph

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/ingress/ingresstest"
)

// A graph in another process returns the same, in pages and in bulk.
func TestAGraphElsewhere(t *testing.T) {
	g := open(t, "")
	defer func() { must(t, g.Close()) }()
	for i := range 1500 {
		follow(t, g, fmt.Sprintf("fan<%04d>", i), "star", true)
	}
	follow(t, g, "star", "fan<0007>", true)
	there := ingresstest.Serve(t, g.PartRoutes())
	far := NewRemote(ingresstest.Client(t, there))
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
	near, err := g.Relations(t.Context(), "star", others)
	must(t, err)
	ties, err := far.Relations(t.Context(), "star", others)
	if want := []Relation{{true, true}, {false, true}, {}, {}}; err != nil || !slices.Equal(ties, want) || !slices.Equal(near, want) {
		t.Errorf("%v and %v, %v", near, ties, err)
	}
	if none, err := far.Relations(t.Context(), "star", nil); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
	for _, limit := range []int{0, maxFollowersPerPage + 1} {
		if _, err := far.Followers(t.Context(), "star", "", limit); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%d at once: %v", limit, err)
		}
	}
	if _, err := far.Relations(t.Context(), "star", make([]string, maxRelationsPerRequest+1)); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	for _, path := range []string{followersPath, relationsPath} {
		if err := far.client.Call(t.Context(), "POST", path, 3, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", path, err)
		}
	}
	there.Close()
	if _, err := far.Followers(t.Context(), "star", "", 10); !fault.KindOf(err).Retryable() {
		t.Error(err)
	}
	if _, err := far.Relations(t.Context(), "star", others); !fault.KindOf(err).Retryable() {
		t.Error(err)
	}
}

// The largest page of the longest names fits into an answer.
func TestTheLargestPageOfAGraphElsewhere(t *testing.T) {
	g := open(t, "")
	defer func() { must(t, g.Close()) }()
	var names []string
	for i := range maxFollowersPerPage {
		names = append(names, fmt.Sprintf("%s%04d", strings.Repeat("<", maxNode-4), i))
		follow(t, g, names[i], "star", true)
	}
	far := NewRemote(ingresstest.Client(t, ingresstest.Serve(t, g.PartRoutes())))
	if page, err := far.Followers(t.Context(), "star", "", maxFollowersPerPage); err != nil || !slices.Equal(page, names) {
		t.Errorf("%d followers, %v", len(page), err)
	}
	if ties, err := far.Relations(t.Context(), "star", names); err != nil || len(ties) != len(names) || !ties[9].Followed {
		t.Errorf("%d ties, %v", len(ties), err)
	}
}

// An answer of a graph of another version is rejected, and one that drains is
// NotReady, not Canceled.
func TestAGraphElsewhereThatIsNone(t *testing.T) {
	says := func(handler ingress.Handler) *Remote {
		return NewRemote(ingresstest.Client(t, ingresstest.Serve(t, []ingress.Route{{Service: "graph", Methods: []string{"POST"}, Pattern: relationsPath, Class: ingress.Control, Scope: "admin", BodyCap: 1 << 10, Handler: handler}})))
	}
	short := says(func(w http.ResponseWriter, _ *http.Request) error {
		return ingress.WriteJSON(w, http.StatusOK, relationsResponse{})
	})
	if _, err := short.Relations(t.Context(), "ann", []string{"bob"}); fault.KindOf(err) != fault.UpstreamFailed {
		t.Error(err)
	}
	ending := says(func(http.ResponseWriter, *http.Request) error { return flow.ErrClosed })
	if _, err := ending.Relations(t.Context(), "ann", []string{"bob"}); fault.KindOf(err) != fault.NotReady || !strings.Contains(fault.NextOf(err), "--only graph") {
		t.Error(err)
	}
}
