package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

func TestSearching(t *testing.T) {
	var queries []string
	address := b3.Of([]byte("fox"))
	hits := []client.SearchHit{
		{ID: "name:fox", Kind: client.FoundName, Name: "fox", Address: address, Score: 2},
		{ID: address.String() + "/a/fox.txt", Kind: client.FoundPath, Path: "a/fox.txt", Address: address, Score: 1.25},
		{ID: address.String(), Kind: client.FoundObject, Address: address, Score: 0.5, Snippet: "a red fox\x1b"},
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /search": func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		found := client.SearchResults{Query: r.URL.Query().Get("q"), Hits: []client.SearchHit{}}
		switch found.Query {
		case "a*":
			reply(w, 0, fault.New("library.query", fault.Malformed, "too many words begin so"))
			return
		case "nothing":
		default:
			found.Total, found.Hits = 9, hits
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	}})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"search", "red", `"a fox"`, "--offset", "2", "--limit", "3"}, "4 more; see them with --offset 5")
	want := "score what address 2.00 name:fox " + address.String() + " 1.25 a/fox.txt " + address.String() + " 0.50 text " + address.String() + ` a red fox\x1b`
	if got := strings.Join(strings.Fields(s.stdout.String()), " "); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	newTestConsole(t).expect(t, t.Context(), 0, []string{"search", "nothing"}, "no hits")
	if got := mustRun(t, "search", "nothing", "--json"); got != `{"query":"nothing","total":0,"hits":[]}`+"\n" {
		t.Errorf("it prints %q", got)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"search", "a*"}, "too many words begin so")
	mustRun(t, "search", "fox -draft")
	if queries[0] != "limit=3&offset=2&q=red+%22a+fox%22" || queries[len(queries)-1] != "limit=20&q=fox+-draft" {
		t.Errorf("it asked for %q", queries)
	}
}
