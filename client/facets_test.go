package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

// fakeFacets is a fake of the feed and the graph of a node.
type fakeFacets struct {
	mu     sync.Mutex
	lose   int // answers that get lost
	asked  []string
	edges  map[string]bool
	posts  map[string]Posted // by key
	keys   []string
	answer any // instead of the right one
}

func serveFacets(t testing.TB) (*fakeFacets, *Client) {
	t.Helper()
	f := &fakeFacets{edges: map[string]bool{}, posts: map[string]Posted{}}
	mux := http.NewServeMux()
	for pattern, route := range map[string]func(r *http.Request) (int, any){
		"PUT /graph/{a}/follows/{b}": f.follow, "DELETE /graph/{a}/follows/{b}": f.unfollow, "GET /graph/{node}": f.around,
		"POST /feed/{user}": f.post, "GET /feed/{user}": f.read,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			status, document, lost := f.do(r, route)
			if lost {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if document != nil {
				_ = json.NewEncoder(w).Encode(document)
			}
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return f, dial(t, Options{URL: server.URL, Retry: quick})
}

// do answers a request, and reports whether the answer gets lost.
func (f *fakeFacets) do(r *http.Request, route func(r *http.Request) (int, any)) (status int, document any, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+r.URL.String())
	status, document = route(r)
	if f.answer != nil {
		document = f.answer
	}
	lost = f.lose > 0
	f.lose--
	return status, document, lost
}

func (f *fakeFacets) follow(r *http.Request) (int, any) {
	edge := r.PathValue("a") + " " + r.PathValue("b")
	if f.edges[edge] {
		return http.StatusNoContent, nil
	}
	f.edges[edge] = true
	return http.StatusCreated, nil
}

func (f *fakeFacets) unfollow(r *http.Request) (int, any) {
	delete(f.edges, r.PathValue("a")+" "+r.PathValue("b"))
	return http.StatusNoContent, nil
}

func (f *fakeFacets) around(r *http.Request) (int, any) {
	return http.StatusOK, Neighbourhood{Node: r.PathValue("node"), Neighbors: []Near{{ID: "bob", Hops: 1}}, Truncated: true}
}

func (f *fakeFacets) post(r *http.Request) (int, any) {
	var wanted PostRequest
	_ = json.NewDecoder(r.Body).Decode(&wanted)
	key := r.Header.Get("Idempotency-Key")
	f.keys = append(f.keys, key)
	if before, done := f.posts[key]; done {
		return http.StatusOK, before
	}
	f.posts[key] = Posted{ID: fmt.Sprint("id", len(f.posts)), Author: r.PathValue("user"), At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return http.StatusCreated, f.posts[key]
}

func (f *fakeFacets) read(r *http.Request) (int, any) {
	return http.StatusOK, Feed{User: r.PathValue("user"), Items: []FeedItem{{ID: "id0", Author: "ann", Body: "hello", Score: 1}}, Next: 1}
}

// The JSON is a promise: programs that we did not write read it.
func TestShapesOfTheFacets(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, shape := range map[string]any{
		`{"body":"hello"}`: PostRequest{"hello"},
		`{"id":"x","author":"ann","at":"2026-01-02T03:04:05Z"}`:                                                     Posted{"x", "ann", at},
		`{"user":"bob","items":[{"id":"x","author":"ann","body":"hello","at":"2026-01-02T03:04:05Z","score":0.5}]}`: Feed{User: "bob", Items: []FeedItem{{"x", "ann", "hello", at, 0.5}}},
		`{"node":"ann","neighbors":[{"id":"bob","hops":1}],"truncated":false}`:                                      Neighbourhood{Node: "ann", Neighbors: []Near{{"bob", 1}}},
		`{"user":"bob","items":[],"next":20}`:                                                                       Feed{User: "bob", Items: []FeedItem{}, Next: 20},
	} {
		got, err := json.Marshal(shape)
		if err != nil || string(got) != want {
			t.Errorf("%T: %v\n%s\n%s", shape, err, got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	f, c := serveFacets(t)
	for _, want := range []bool{true, false} {
		if created, err := c.Follow(t.Context(), "ann b", "c?é"); err != nil || created != want {
			t.Errorf("created %v, %v; want %v", created, err, want)
		}
	}
	if !f.edges["ann b c?é"] {
		t.Errorf("the edges are %v", f.edges)
	}
	f.lose = 1
	if err := c.Unfollow(t.Context(), "ann b", "c?é"); err != nil || len(f.edges) != 0 {
		t.Errorf("%v, %v", err, f.edges)
	}
	found, err := c.Neighbours(t.Context(), "ann", NeighboursOptions{})
	if err != nil || !found.Truncated || !slices.Equal(found.Neighbors, []Near{{"bob", 1}}) {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = c.Neighbours(t.Context(), "ann", NeighboursOptions{Hops: 2, Max: 7, Direction: DirectionFollowers})
	if last := f.asked[len(f.asked)-1]; err != nil || last != "GET /graph/ann?direction=followers&hops=2&max_neighbors=7" {
		t.Errorf("%v, %s", err, last)
	}
	f.answer = Neighbourhood{Node: "eve"}
	testkit.WantKind(t, errOf(c.Neighbours(t.Context(), "ann", NeighboursOptions{})), fault.UpstreamFailed, "another's")
	for _, name := range []string{"", ".", ".."} {
		testkit.WantKind(t, errOf(c.Follow(t.Context(), name, "bob")), fault.Malformed, name)
		testkit.WantKind(t, c.Unfollow(t.Context(), "ann", name), fault.Malformed, name)
		testkit.WantKind(t, errOf(c.Neighbours(t.Context(), name, NeighboursOptions{})), fault.Malformed, name)
		testkit.WantKind(t, errOf(c.Post(t.Context(), name, "x", PostOptions{})), fault.Malformed, name)
		testkit.WantKind(t, errOf(c.Feed(t.Context(), name, FeedOptions{})), fault.Malformed, name)
	}
}

// TestPost loses answers: the post is made once all the same.
func TestPost(t *testing.T) {
	f, c := serveFacets(t)
	f.lose = 2
	posted, err := c.Post(t.Context(), "ann", "hello", PostOptions{})
	if err != nil || posted.ID != "id0" || posted.Author != "ann" || len(f.posts) != 1 || len(f.keys) != 3 || f.keys[0] == "" {
		t.Errorf("%+v, %v; %d posts, keys %q", posted, err, len(f.posts), f.keys)
	}
	if other, err := c.Post(t.Context(), "ann", "hello", PostOptions{}); err != nil || other.ID == posted.ID {
		t.Errorf("%+v, %v", other, err)
	}
	for range 2 {
		if mine, err := c.Post(t.Context(), "ann", "hello", PostOptions{Key: "mine"}); err != nil || mine.ID != "id2" {
			t.Errorf("%+v, %v", mine, err)
		}
	}
	f.answer = Posted{}
	testkit.WantKind(t, errOf(c.Post(t.Context(), "ann", "hello", PostOptions{})), fault.UpstreamFailed, "no ID")
	f.lose = 100
	if _, err := c.Post(t.Context(), "ann", "hello", PostOptions{}); err == nil {
		t.Error("a post of which nobody was heard again is taken for one")
	}
}

func TestFeed(t *testing.T) {
	f, c := serveFacets(t)
	page, err := c.Feed(t.Context(), "bob", FeedOptions{})
	if err != nil || page.User != "bob" || page.Next != 1 || len(page.Items) != 1 || page.Items[0].Body != "hello" {
		t.Errorf("%+v, %v", page, err)
	}
	_, err = c.Feed(t.Context(), "bob", FeedOptions{Limit: 5, Offset: 10})
	if last := f.asked[len(f.asked)-1]; err != nil || last != "GET /feed/bob?limit=5&offset=10" {
		t.Errorf("%v, %s", err, last)
	}
	f.answer = Feed{User: "eve"}
	testkit.WantKind(t, errOf(c.Feed(t.Context(), "bob", FeedOptions{})), fault.UpstreamFailed, "another's")
	f.lose = 100
	if _, err := c.Feed(t.Context(), "bob", FeedOptions{}); err == nil {
		t.Error("a feed of which nobody was heard is there")
	}
	if _, err := c.Neighbours(t.Context(), "bob", NeighboursOptions{}); err == nil {
		t.Error("a graph of which nobody was heard is there")
	}
}
