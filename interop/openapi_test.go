package interop

import (
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"micronode/b3"
)

// The OpenAPI document of a node is valid to a validator that we did not write,
// and the answers conform to it: requests and answers are checked against the
// document by the same library.
func TestOpenAPI(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n := startIndexNode(t, binary)
	document := fetchOpenAPI(t, n)
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("described")
	address := b3.Of(data).String()
	absent := b3.Of([]byte("absent")).String()
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/openapi.json", "", 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/version", "", 200},
		{"GET", "/admin/status", "", 200},
		{"POST", "/put", string(data), 201},
		{"POST", "/o", string(data), 200},
		{"GET", "/o/" + address, "", 200},
		{"GET", "/o/" + absent, "", 404},
		{"GET", "/o/b3:short", "", 400},
		{"PUT", "/names/docs", `{"manifest":"` + address + `"}`, 200},
		{"PUT", "/names/docs", `{"manifest":"nothing"}`, 400},
		{"GET", "/resolve/name:docs", "", 200},
		{"GET", "/providers/" + address, "", 200},
		{"GET", "/resolve/" + absent, "", 404},
		{"GET", "/edge/packs", "", 200},
		{"GET", "/overlay/peers", "", 200},
		{"POST", "/overlay/publish/news", "hello", 200},
		{"GET", "/registry/head", "", 404},
		{"DELETE", "/o/" + address, "", 204},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) { checkResponse(t, router, n, c.method, c.path, c.body, c.status) })
	}
}

// fetchOpenAPI reads the document and has it validated.
func fetchOpenAPI(t *testing.T, n *indexNode) *openapi3.T {
	t.Helper()
	answer, err := n.web.Get(n.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	document.Servers = openapi3.Servers{{URL: n.url}}
	return document
}

// checkResponse sends a request and validates the answer against the document.
func checkResponse(t *testing.T, router routers.Router, n *indexNode, method, path, body string, status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		request.Header.Set("Content-Type", "application/json")
	} else if body != "" {
		request.Header.Set("Content-Type", "application/octet-stream")
	}
	route, params, err := router.FindRoute(request)
	if err != nil {
		t.Fatalf("the document does not know it: %v", err)
	}
	answer, err := n.web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		t.Fatalf("answered %s, %v: %s", answer.Status, err, text)
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: route},
		Status:                 answer.StatusCode, Header: answer.Header, Body: io.NopCloser(bytes.NewReader(text)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("the answer is not what was said: %v", err)
	}
}
