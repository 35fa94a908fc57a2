package node

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"micronode/internal/observe"
)

// promised are the routes that the contract names, as the document writes them.
var promised = []string{
	"POST /put", "POST /o", "GET /o/{b3}", "DELETE /o/{b3}",
	"GET /resolve/{id}", "GET /providers/{b3}", "PUT /names/{name}", "POST /admin/reindex", "POST /admin/pin", "POST /admin/unpin", "GET /routing/v1/providers/{cid}",
	"GET /edge/assets/{path}", "GET /edge/tiles/{pack}/{z}/{x}/{y}", "GET /edge/packs", "POST /admin/edge/purge",
	"GET /registry/head", "GET /registry/{version}", "GET /registry/stream", "POST /registry/proposals", "GET /registry/proposals/{id}", "POST /registry/approvals/{id}",
	"POST /registry/commit/{id}", "POST /registry/supersede", "GET /registry/bundle/{version}", "GET /registry/log/checkpoint", "GET /registry/key",
	"GET /overlay/peers", "POST /overlay/publish/{topic}", "GET /overlay/subscribe/{topic}",
	"POST /mbox/send", "POST /mbox/recv", "POST /mbox/ack", "POST /mbox/nack", "GET /mbox/dlq",
	"POST /feed/{user}", "GET /feed/{user}", "PUT /graph/{a}/follows/{b}", "DELETE /graph/{a}/follows/{b}", "GET /graph/{node}", "GET /search", "GET /media/{b3}",
	"GET /healthz", "GET /readyz", "GET /version", "GET /openapi.json",
}

// The document tells of every route that is promised, and every route that it
// tells of is there.
func TestTheDocumentIsTrue(t *testing.T) {
	n := start(t, 2)
	n.whenReady(t)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	answer, err := web.Get(n.Info().HTTP + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	var told []string
	for path, methods := range document.Paths {
		for method := range methods {
			told = append(told, strings.ToUpper(method)+" "+path)
		}
	}
	for _, route := range promised {
		if !slices.Contains(told, route) {
			t.Errorf("the document does not tell of %s", route)
		}
	}
	for _, route := range told {
		method, path, _ := strings.Cut(route, " ")
		if !n.knows(t, web, method, path) {
			t.Errorf("the document tells of %s, and the node knows nothing of it", route)
		}
	}
	if n.knows(t, web, http.MethodGet, "/nowhere") || n.knows(t, web, http.MethodPatch, "/put") {
		t.Error("the node knows what there is not, so the test cannot fail")
	}
	n.end(t)
}

// knows reports whether a node has a route. What it answers does not matter, as
// long as it is not that there is no such path, or no such method.
func (s *started) knows(t *testing.T, web *http.Client, method, path string) bool {
	t.Helper()
	concrete := strings.NewReplacer("{", "", "}", "").Replace(path)
	request, err := http.NewRequestWithContext(t.Context(), method, s.Info().HTTP+concrete, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Request-Timeout", "1")
	answer, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound && answer.StatusCode != http.StatusMethodNotAllowed {
		return true
	}
	var problem observe.Problem
	if err := json.NewDecoder(answer.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	return problem.Op != "http.route"
}
