package node

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"micronode/internal/config"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// promisedRoutes are the routes that the contract names, as the document writes
// them.
var promisedRoutes = []string{
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

// The document has every promised route, and every route in it exists.
func TestTheDocumentIsTrue(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
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
	var documented []string
	for path, methods := range document.Paths {
		for method := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	for _, route := range promisedRoutes {
		if !slices.Contains(documented, route) {
			t.Errorf("the document does not tell of %s", route)
		}
	}
	for _, route := range documented {
		method, path, _ := strings.Cut(route, " ")
		if !n.hasRoute(t, web, method, path) {
			t.Errorf("the document tells of %s, and the node knows nothing of it", route)
		}
	}
	if n.hasRoute(t, web, http.MethodGet, "/nowhere") || n.hasRoute(t, web, http.MethodPatch, "/put") {
		t.Error("the node knows what there is not, so the test cannot fail")
	}
	n.stopAndWait(t)
}

// operation is one operation of the document.
type operation struct {
	ID          string `json:"operationId"`
	Summary     string
	Description string
	Tags        []string
	Security    *[]map[string][]string
	Parameters  []struct{ Name, In string }
	Responses   map[string]struct {
		Description string
		Content     map[string]any
		Codes       []string `json:"x-codes"`
	}
}

// document is the part of an OpenAPI document that the tests use.
type document struct {
	Info struct {
		Title, Version, Description string
		License                     struct{ Name, URL string }
		Contact                     map[string]any
	}
	Servers    []struct{ URL string }
	Security   []map[string][]string
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]operation
	Components struct {
		Schemas         map[string]any
		SecuritySchemes map[string]any
	}
}

func (n *runningNode) document(t *testing.T, web *http.Client) (read document, text string) {
	t.Helper()
	answer, err := web.Get(n.Info().HTTP + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(raw, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read, string(raw)
}

// The recommended rules of redocly and of spectral, as far as they demand more
// than validity. (interop has it validated.)
func TestTheDocumentKeepsTheRules(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	d, text := n.document(t, web)
	if d.Info.Title == "" || d.Info.Version == "" || d.Info.Description == "" || d.Info.License.Name == "" || d.Info.License.URL == "" || len(d.Info.Contact) == 0 {
		t.Errorf("info is %+v", d.Info)
	}
	if len(d.Servers) == 0 || len(d.Security) == 0 || len(d.Components.SecuritySchemes) == 0 {
		t.Errorf("servers %v, security %v, schemes %v", d.Servers, d.Security, d.Components.SecuritySchemes)
	}
	tags, ids := map[string]bool{}, map[string]bool{}
	for _, tag := range d.Tags {
		tags[tag.Name] = tag.Description != ""
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			at := strings.ToUpper(method) + " " + path
			if op.ID == "" || ids[op.ID] || op.Summary == "" || op.Description == "" || len(op.Tags) == 0 || !tags[op.Tags[0]] {
				t.Errorf("%s: operation %q, summary %q, description %q, tags %v", at, op.ID, op.Summary, op.Description, op.Tags)
			}
			ids[op.ID] = true
			success, refusal := false, false
			for status, response := range op.Responses {
				success = success || status < "4"
				refusal = refusal || strings.HasPrefix(status, "4")
				if response.Description == "" {
					t.Errorf("%s: %s is not described", at, status)
				}
			}
			if !success || !refusal {
				t.Errorf("%s: answers %v", at, op.Responses)
			}
			given := map[string]bool{}
			for _, p := range op.Parameters {
				given[p.In+" "+p.Name] = true
				if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s: there is no %s in the path", at, p.Name)
				}
			}
			for _, part := range strings.Split(path, "{")[1:] {
				if name, _, _ := strings.Cut(part, "}"); !given["path "+name] {
					t.Errorf("%s: the parameter %s is not defined", at, name)
				}
			}
		}
	}
	for name := range d.Components.Schemas {
		if !strings.Contains(text, `"#/components/schemas/`+name+`"`) {
			t.Errorf("the schema %s is never used", name)
		}
	}
	n.stopAndWait(t)
}

// Every answer is in the document: its status, and its media type.
func TestTheDocumentTellsWhatIsSent(t *testing.T) {
	n := start(t, 2, config.Flag{Key: "facets.media.enabled", Value: "true", Name: "test"})
	n.waitReady(t)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	d, _ := n.document(t, web)
	kept, _, err := n.store.Put(t.Context(), strings.NewReader("described"), store.PutOptions{Size: store.Unknown})
	if err != nil {
		t.Fatal(err)
	}
	object := kept.Address.String()
	for _, c := range []struct {
		method, path, of string
		headers          []string
		status           int
	}{
		{"GET", "/healthz", "/healthz", nil, 200},
		{"GET", "/readyz?for=read", "/readyz", nil, 200},
		{"GET", "/readyz?for=nothing", "/readyz", nil, 400},
		{"GET", "/version", "/version", nil, 200},
		{"GET", "/version", "/version", []string{"Deadline", "soon"}, 400},
		{"GET", "/version", "/version", []string{"Origin", "https://elsewhere.example"}, 403},
		{"GET", "/version", "/version", []string{"Deadline", "2001-01-01T00:00:00Z"}, 504},
		{"GET", "/openapi.json", "/openapi.json", nil, 200},
		{"GET", "/metrics", "/metrics", nil, 401},
		{"GET", "/admin/status", "/admin/status", nil, 401},
		{"GET", "/o/" + object, "/o/{b3}", nil, 200},
		{"GET", "/o/" + object, "/o/{b3}", []string{"Range", "bytes=0-3"}, 206},
		{"GET", "/o/" + object, "/o/{b3}", []string{"Range", "bytes=99-"}, 416},
		{"GET", "/o/" + object, "/o/{b3}", []string{"If-None-Match", `"` + object + `"`}, 304},
		{"GET", "/o/" + object, "/o/{b3}", []string{"If-Match", `"another"`}, 412},
		{"GET", "/media/" + object, "/media/{b3}", nil, 200},
		{"GET", "/media/" + object, "/media/{b3}", []string{"Range", "bytes=0-3"}, 206},
		{"GET", "/resolve/" + object, "/resolve/{id}", nil, 200},
		{"GET", "/resolve/" + object, "/resolve/{id}", []string{"If-Match", `"another"`}, 412},
		{"GET", "/edge/tiles/absent.json", "/edge/tiles/{pack}", nil, 404},
		{"GET", "/edge/assets/" + object, "/edge/assets/{path}", nil, 200},
		{"GET", "/edge/assets/" + object, "/edge/assets/{path}", []string{"Range", "bytes=0-3"}, 206},
		{"GET", "/edge/assets/elsewhere.example/x", "/edge/assets/{path}", nil, 403},
		{"GET", "/registry/head", "/registry/head", nil, 404},
		{"GET", "/registry/1", "/registry/{version}", nil, 404},
		{"GET", "/registry/bundle/1", "/registry/bundle/{version}", nil, 404},
		{"POST", "/overlay/fetch/" + object, "/overlay/fetch/{b3}", nil, 401},
		{"GET", "/registry/stream", "/registry/stream", []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "x"}, 400},
		{"POST", "/put", "/put", []string{"Content-Encoding", "br"}, 415},
		{"POST", "/mbox/send", "/mbox/send", nil, 401},
		{"POST", "/admin/reindex", "/admin/reindex", nil, 401},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, n.Info().HTTP+c.path, strings.NewReader(map[bool]string{true: "x"}[c.method == "POST"]))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.headers); i += 2 {
			request.Header.Set(c.headers[i], c.headers[i+1])
		}
		answer, err := web.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var problem struct{ Code string }
		_ = json.NewDecoder(answer.Body).Decode(&problem) // what has no code is no problem
		answer.Body.Close()
		kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
		if answer.StatusCode != c.status {
			t.Errorf("%s %s %v: %s", c.method, c.path, c.headers, answer.Status)
		}
		documented, ok := d.Paths[c.of][strings.ToLower(c.method)].Responses[strconv.Itoa(answer.StatusCode)]
		if !ok {
			t.Errorf("%s %s %v: the document does not say %d", c.method, c.path, c.headers, answer.StatusCode)
			continue
		}
		if documented.Content[kind] == nil && documented.Content["*/*"] == nil && kind != "" {
			t.Errorf("%s %s %v: %d is %s, and the document says %v", c.method, c.path, c.headers, answer.StatusCode, kind, slices.Collect(maps.Keys(documented.Content)))
		}
		if kind == "application/problem+json" && !slices.Contains(documented.Codes, problem.Code) {
			t.Errorf("%s %s %v: %d is %s, and the document says %v", c.method, c.path, c.headers, answer.StatusCode, problem.Code, documented.Codes)
		}
	}
	n.stopAndWait(t)
}

// A fetch from a peer is refused while the memory is used up, and the document
// says so.
func TestTheDocumentTellsOfARefusedFetch(t *testing.T) {
	a := start(t, 2)
	b := start(t, 2, config.Flag{Key: "overlay.peers", Value: a.Info().Overlay, Name: "test"})
	if _, err := a.overlay.AddPeer(overlay.Contact{ID: b.overlay.ID(), Addrs: []string{b.overlay.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	a.waitReady(t)
	d, _ := a.document(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	documented := d.Paths["/overlay/fetch/{b3}"]["post"].Responses["503"].Codes
	try := 0
	testkit.WaitFor(t, "a refusal", func() bool {
		try++
		object := b.put(t, fmt.Sprint("not for a node without memory ", try))
		a.memory.usedFraction.Store(math.Float64bits(1)) // until it is measured the next time
		got := a.localHTTP().do(t, http.MethodPost, "/overlay/fetch/"+object.String(), nil)
		if got.status != http.StatusServiceUnavailable {
			return false
		}
		if code := got.code(t); code != "Backpressure" || !slices.Contains(documented, code) {
			t.Errorf("it is %s, and the document says %v", code, documented)
		}
		return true
	})
	b.stopAndWait(t)
	a.stopAndWait(t)
}

// A bundle is described as it is written.
func TestTheDocumentDescribesABundle(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	_, text := n.document(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	var d struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
		Components struct {
			Schemas map[string]struct{ Required []string }
		}
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(d.Paths["/registry/bundle/{version}"]["get"].Responses["200"].Content["application/json"].Schema.Ref, "#/components/schemas/")
	want := []string{"checkpoint", "consistency", "format", "inclusion", "key", "record", "registry", "signers", "version"}
	if got := slices.Sorted(slices.Values(d.Components.Schemas[name].Required)); !slices.Equal(got, want) {
		t.Errorf("a bundle is %q, which needs %v", name, got)
	}
	n.stopAndWait(t)
}

// promtool accepts a scrape, except for names that are promised.
func TestMetricsKeepTheRulesOfPrometheus(t *testing.T) {
	allowed := map[string]string{"index_dht_lookup_ms": "the contract promises the name, with its unit"}
	n := start(t, 2)
	n.waitReady(t)
	answer, err := http.Get(n.Info().Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	problems, err := promlint.New(answer.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if allowed[p.Metric] == "" {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if len(problems) < len(allowed) {
		t.Errorf("an exception that excuses nothing: %v", allowed)
	}
	http.DefaultClient.CloseIdleConnections()
	n.stopAndWait(t)
}

// hasRoute reports whether a node has a route. Any answer counts, except that
// the path or the method does not exist.
func (n *runningNode) hasRoute(t *testing.T, web *http.Client, method, path string) bool {
	t.Helper()
	concrete := strings.NewReplacer("{", "", "}", "").Replace(path)
	request, err := http.NewRequestWithContext(t.Context(), method, n.Info().HTTP+concrete, http.NoBody)
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
