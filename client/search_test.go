package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// The JSON is a promise: programs that we did not write read it.
func TestShapeOfASearch(t *testing.T) {
	address := b3.Of(nil)
	got, err := json.Marshal(SearchResults{Query: "fox", Total: 2, Hits: []SearchHit{
		{ID: address.String() + "/a", Kind: FoundPath, Path: "a", Address: address, Score: 1.5},
		{ID: address.String(), Kind: FoundObject, Address: address, Score: 1, Snippet: "a fox"},
	}})
	a := address.String()
	want := `{"query":"fox","total":2,"hits":[{"id":"` + a + `/a","kind":"path","path":"a","address":"` + a + `","score":1.5},` +
		`{"id":"` + a + `","kind":"object","address":"` + a + `","score":1,"snippet":"a fox"}]}`
	if err != nil || string(got) != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}

func TestSearch(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		if r.URL.Query().Get("q") == "" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"code":"Malformed","status":400,"detail":"it says nothing"}`))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(SearchResults{Query: r.URL.Query().Get("q"), Total: 1, Hits: []SearchHit{{ID: "name:docs", Kind: FoundName, Name: "docs", Address: b3.Of(nil)}}})
	}))
	t.Cleanup(server.Close)
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	found, err := c.Search(t.Context(), `"a b" -c&d`, SearchOptions{})
	if err != nil || found.Query != `"a b" -c&d` || found.Total != 1 || found.Hits[0].Name != "docs" {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := c.Search(t.Context(), "x", SearchOptions{Limit: 5, Offset: 10}); err != nil {
		t.Error(err)
	}
	if asked[0] != "/search?q=%22a+b%22+-c%26d" || asked[1] != "/search?limit=5&offset=10&q=x" {
		t.Errorf("it asked for %q", asked)
	}
	testkit.WantKind(t, errOf(c.Search(t.Context(), "", SearchOptions{})), fault.Malformed, "no words")
}
