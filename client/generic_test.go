package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

// serveGeneric is a node with routes that have no method in this package.
func serveGeneric(t *testing.T) *Client {
	t.Helper()
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		switch r.URL.Path {
		case "/new":
			raw, _ := io.ReadAll(r.Body)
			writeJSON(w, 200, fmt.Sprintf(`{"method":%q,"body":%q}`, r.Method, raw))
		case "/bytes":
			_, _ = io.WriteString(w, "some bytes")
		case "/half":
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, strings.Repeat("half", 10_000))
			panic(http.ErrAbortHandler)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: other\ndata: {}\n\nevent: lagged\ndata: {\"missed\":3}\n\nevent: mine\ndata: {\"n\":7}\n\nevent: mine\ndata: x\n\n")
		default:
			return false
		}
		return true
	}
	return serve(t, node)
}

func TestCallsWithoutAMethod(t *testing.T) {
	c := serveGeneric(t)
	var answer struct{ Method, Body string }
	if err := c.Call(t.Context(), http.MethodPut, "/new", map[string]int{"a": 1}, &answer); err != nil || answer.Method != "PUT" || answer.Body != `{"a":1}` {
		t.Error(answer, err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/new", nil, nil); err != nil {
		t.Error(err)
	}
	testkit.WantKind(t, c.Call(t.Context(), http.MethodGet, "/nowhere", nil, nil), fault.NotFound, "nowhere")
}

func TestBytesWithoutAMethod(t *testing.T) {
	c := serveGeneric(t)
	body, err := c.Open(t.Context(), "/bytes")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(body); err != nil || string(got) != "some bytes" {
		t.Errorf("%q %v", got, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	_, err = c.Open(t.Context(), "/nowhere")
	testkit.WantKind(t, err, fault.NotFound, "nowhere")
	if body, err = c.Open(t.Context(), "/half"); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(body)
	testkit.WantKind(t, err, fault.BrokenPipe, "half")
	_ = body.Close()
}

func TestEventsWithoutAMethod(t *testing.T) {
	c := serveGeneric(t)
	events, err := c.Hear(t.Context(), "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	var one struct{ N int }
	if err := events.Next(t.Context(), "mine", &one); !errors.Is(err, fault.Lagging) {
		t.Error(err)
	}
	if err := events.Next(t.Context(), "mine", &one); err != nil || one.N != 7 {
		t.Error(one, err)
	}
	testkit.WantKind(t, events.Next(t.Context(), "mine", &one), fault.UpstreamFailed, "not JSON")
	_, err = c.Hear(t.Context(), "/nowhere")
	testkit.WantKind(t, err, fault.NotFound, "nowhere")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Hear(ended, "/events")
	testkit.WantKind(t, err, fault.Canceled, "ended")
}
