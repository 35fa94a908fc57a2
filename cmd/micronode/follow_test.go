package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
)

// fakeFacets is a fake of the feed and the graph of a node.
func fakeFacets(t *testing.T) *[]string {
	requests := &[]string{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	respond := func(status int, document any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			*requests = append(*requests, r.Method+" "+r.URL.String())
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if document != nil {
				_ = json.NewEncoder(w).Encode(document)
			}
		}
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"PUT /graph/ann/follows/bob":    respond(http.StatusCreated, nil),
		"PUT /graph/ann/follows/cem":    respond(http.StatusNoContent, nil),
		"DELETE /graph/ann/follows/bob": respond(http.StatusNoContent, nil),
		"GET /graph/ann":                respond(http.StatusOK, client.Neighbourhood{Node: "ann", Neighbors: []client.Near{{ID: "bob", Hops: 1}, {ID: "c\x1b", Hops: 2}}, Truncated: true}),
		"GET /graph/eve":                respond(http.StatusOK, client.Neighbourhood{Node: "eve"}),
		"GET /feed/bob":                 respond(http.StatusOK, client.Feed{User: "bob", Items: []client.FeedItem{{ID: "x", Author: "ann", Body: "hello\nworld", At: at, Score: 0.5}}, Next: 1}),
		"GET /feed/eve":                 respond(http.StatusOK, client.Feed{User: "eve"}),
		"POST /feed/ann": func(w http.ResponseWriter, r *http.Request) {
			var wanted client.PostRequest
			_ = json.NewDecoder(r.Body).Decode(&wanted)
			respond(http.StatusCreated, client.Posted{ID: wanted.Body + "/" + r.Header.Get("Idempotency-Key"), Author: "ann", At: at})(w, r)
		},
		"/": func(w http.ResponseWriter, r *http.Request) {
			reply(w, 0, fault.New("fake", fault.NotFound, "the facet is off on this node"))
		},
	})
	return requests
}

func TestFollowing(t *testing.T) {
	asked := fakeFacets(t)
	for _, c := range []struct {
		args string
		want string
	}{
		{"follow ann bob", ""},
		{"follow ann bob --json", `{"who":"ann","whom":"bob","follows":true,"new":true}` + "\n"},
		{"follow ann cem --json", `{"who":"ann","whom":"cem","follows":true}` + "\n"},
		{"unfollow ann bob", ""},
		{"unfollow ann bob --json", `{"who":"ann","whom":"bob","follows":false}` + "\n"},
		{"neighbours ann --json", `{"node":"ann","neighbors":[{"id":"bob","hops":1},{"id":"c\u001b","hops":2}],"truncated":true}` + "\n"},
		{"neighbours eve --json", `{"node":"eve","neighbors":[],"truncated":false}` + "\n"},
	} {
		if got := mustRun(t, strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s: %q", c.args, got)
		}
	}
	newTestConsole(t).expect(t, t.Context(), 0, []string{"follow", "ann", "cem"}, "ann already follows cem")
	newTestConsole(t).expect(t, t.Context(), 0, []string{"neighbours", "eve"}, "eve has no neighbours")
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"neighbours", "ann", "--hops", "2", "--max", "9", "--direction", "followers"}, "there may be more")
	if got := strings.Join(strings.Fields(s.stdout.String()), " "); got != `steps name 1 bob 2 c\x1b` {
		t.Errorf("%q", got)
	}
	if last := (*asked)[len(*asked)-1]; last != "GET /graph/ann?direction=followers&hops=2&max_neighbors=9" {
		t.Errorf("it asked for %s", last)
	}
	for _, args := range []string{"follow off bob", "unfollow off bob", "neighbours off", "feed read off", "feed post off x"} {
		newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), strings.Fields(args), "the facet is off")
	}
	newTestConsole(t).expect(t, t.Context(), 2, []string{"neighbours", "ann", "--direction", "up"}, "follows")
}

func TestFeeds(t *testing.T) {
	fakeFacets(t)
	if got := mustRun(t, "feed", "post", "ann", "hello", "--key", "k"); got != "hello/k\n" {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "feed", "post", "ann", "hello", "--key", "k", "--json"); got != `{"id":"hello/k","author":"ann","at":"2026-01-02T03:04:05Z"}`+"\n" {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"feed", "post", "ann", "--key", "k"}, {"feed", "post", "ann", "-", "--key", "k"}} {
		s := newTestConsole(t)
		s.console.in, s.console.inTerminal, s.console.errTerminal = strings.NewReader("typed"), true, true
		if s.expect(t, t.Context(), 0, args, "type the post"); s.stdout.String() != "typed/k\n" {
			t.Errorf("%q", &s.stdout)
		}
	}
	s := newTestConsole(t)
	s.console.in = strings.NewReader(strings.Repeat("a", client.MaxMessage+1))
	s.expect(t, t.Context(), fault.BodyTooLarge.Exit(), []string{"feed", "post", "ann"}, "bytes")
	s = newTestConsole(t)
	if s.expect(t, t.Context(), 0, []string{"feed", "read", "bob"}, "there is more: micronode feed read bob --offset 1"); s.stdout.String() != `2026-01-02T03:04:05Z  ann  hello\nworld`+"\n" {
		t.Errorf("%q", &s.stdout)
	}
	if got := mustRun(t, "feed", "read", "bob", "--json", "--limit", "5", "--offset", "1"); got != `{"user":"bob","items":[{"id":"x","author":"ann","body":"hello\nworld","at":"2026-01-02T03:04:05Z","score":0.5}],"next":1}`+"\n" {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "feed", "read", "eve", "--json"); got != `{"user":"eve","items":[]}`+"\n" {
		t.Errorf("%q", got)
	}
	newTestConsole(t).expect(t, t.Context(), 0, []string{"feed", "read", "eve"}, "the feed of eve is empty\nFollow another user: micronode follow eve NAME")
}

// TestNoNodeForFacets runs all of the commands without a node.
func TestNoNodeForFacets(t *testing.T) {
	t.Setenv("MICRO_URL", "ftp://nowhere")
	for _, args := range []string{"follow ann bob", "unfollow ann bob", "neighbours ann", "feed read ann", "feed post ann x"} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), strings.Fields(args), "does not begin with http")
	}
}
