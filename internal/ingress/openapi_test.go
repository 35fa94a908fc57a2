package ingress

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// shape is a type with everything that a schema has to distinguish.
type shape struct {
	piece
	Text     string            `json:"text"`
	Bytes    []byte            `json:"bytes,omitempty"`
	Many     []piece           `json:"many"`
	By       map[string]uint32 `json:"by,omitzero"`
	When     time.Time         `json:"when"`
	Address  b3.Address        `json:"address"`
	Raw      json.RawMessage   `json:"raw"`
	Anything any               `json:"anything"`
	Again    *shape            `json:"again,omitempty"`
	Unnamed  struct{ On bool }
	Hidden   string `json:"-"`
	private  string
}

type piece struct {
	Share float64 `json:"share"`
}

// described is the document of a table, decoded.
func described(t *testing.T, routes ...Route) map[string]any {
	t.Helper()
	table, err := NewTable(routes...)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := table.OpenAPI("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// at walks into a document.
func at(t *testing.T, document any, path ...string) any {
	t.Helper()
	for i, step := range path {
		object, ok := document.(map[string]any)
		if !ok || object[step] == nil {
			t.Fatalf("there is no %s", strings.Join(path[:i+1], " > "))
		}
		document = object[step]
	}
	return document
}

func TestOpenAPITellsWhatTheRouteSays(t *testing.T) {
	_ = shape{}.private
	route := Route{
		Service: "edge", Methods: []string{http.MethodPost}, Pattern: "/edge/{name}/{rest...}", Class: Control, Scope: "edge:purge", Handler: respondWith(""), Queued: true,
		Docs: Docs{Summary: "Do it", Description: "With care.", Request: shape{}, Kinds: []fault.Kind{fault.NotFound, fault.NoRoute},
			Params:    []Param{{Name: "name", In: "path", Type: "string", Doc: "Whose."}, {Name: "n", In: "query", Type: "integer"}},
			Responses: []Response{{Status: 201, Body: piece{}, Doc: "Done."}, {Status: 200, Type: "text/plain"}, {Status: 204}}},
	}
	document := described(t, route)
	op := at(t, document, "paths", "/edge/{name}/{rest}", "post")
	for what, want := range map[string]any{"summary": "Do it", "description": "With care. It needs a capability with the scope `edge:purge`, or the local socket.", "x-scope": "edge:purge", "operationId": "post_edge_name_rest", "x-class": "control"} {
		if got := at(t, op, what); got != want {
			t.Errorf("%s is %v", what, got)
		}
	}
	params := at(t, op, "parameters").([]any)
	if len(params) != 3 || at(t, params[0], "required") != true || at(t, params[0], "description") != "Whose." || at(t, params[2], "name") != "rest" {
		t.Errorf("the parameters are %v", params)
	}
	if at(t, op, "responses", "201", "content", "application/json", "schema", "$ref") != "#/components/schemas/Piece" || at(t, op, "responses", "204", "description") != "No Content" {
		t.Errorf("the answers are %v", at(t, op, "responses"))
	}
	at(t, op, "responses", "200", "content", "text/plain")
	at(t, op, "responses", "404", "content", "application/problem+json", "schema")
	if codes := at(t, op, "responses", "429", "x-codes").([]any); !slices.Contains(codes, any("Busy")) || !slices.Contains(codes, any("RateLimited")) {
		t.Errorf("429 is said to be %v", codes)
	}
	if codes := at(t, op, "responses", "503", "x-codes").([]any); !slices.Contains(codes, any("NoRoute")) {
		t.Errorf("503 is said to be %v", codes)
	}
	for _, status := range []string{"400", "401", "403", "408", "413", "415", "500", "503", "504"} {
		at(t, op, "responses", status)
	}
	at(t, document, "components", "schemas", "Problem", "properties", "corr_id")
}

func TestOpenAPISchemas(t *testing.T) {
	properties := newSchemas()
	if properties.schemaOf(shape{})["$ref"] != "#/components/schemas/Shape" {
		t.Fatal("a type with a name is not referred to")
	}
	raw, _ := json.Marshal(properties.components["Shape"])
	var schema any
	_ = json.Unmarshal(raw, &schema)
	for path, want := range map[string]any{
		"share type": "number", "text type": "string", "bytes format": "byte", "many items $ref": "#/components/schemas/Piece",
		"by additionalProperties type": "integer", "when format": "date-time", "address type": "string", "again $ref": "#/components/schemas/Shape",
		"Unnamed properties On type": "boolean",
	} {
		if got := at(t, schema, append([]string{"properties"}, strings.Fields(path)...)...); got != want {
			t.Errorf("%s is %v", path, got)
		}
	}
	if list := at(t, schema, "properties").(map[string]any); len(list) != 11 {
		t.Errorf("there are %d properties: %v", len(list), list)
	}
	required := at(t, schema, "required").([]any)
	if slices.Contains(required, any("bytes")) || slices.Contains(required, any("by")) || !slices.Contains(required, any("when")) {
		t.Errorf("required are %v", required)
	}
}

// Two types of one name are two schemas.
func TestOpenAPINamesakes(t *testing.T) {
	s := newSchemas()
	s.types["Piece"] = timeType
	if ref := s.schemaOf(piece{})["$ref"]; ref != "#/components/schemas/ingressPiece" {
		t.Errorf("the namesake is %v", ref)
	}
}

func TestOpenAPIBodies(t *testing.T) {
	put := Route{Service: "store", Methods: []string{"POST"}, Pattern: "/o", Class: Transfer, Scope: "object:put", Handler: respondWith(""), Docs: Docs{Request: Octets}}
	get := Route{Service: "store", Methods: []string{"GET"}, Pattern: "/below/", Class: Stream, Open: true, Handler: respondWith("")}
	root := Route{Service: "store", Methods: []string{"GET"}, Pattern: "/{$}", Class: Control, Handler: respondWith("")}
	document := described(t, put, get, root)
	if at(t, document, "paths", "/o", "post", "requestBody", "content", "application/octet-stream", "schema", "format") != "binary" {
		t.Error("bytes are not told of")
	}
	below := at(t, document, "paths", "/below/{path}", "get").(map[string]any)
	if open, _ := below["security"].([]any); below["requestBody"] != nil || open == nil || len(open) > 0 || at(t, below, "responses").(map[string]any)["413"] != nil {
		t.Errorf("an open stream is %v", below)
	}
	at(t, below, "responses", "200")
	at(t, document, "paths", "/", "get")
}

// The route is in the document that it answers with, and so are all others.
func TestOpenAPIRoute(t *testing.T) {
	var table *Table
	route := OpenAPIRoute("gateway", "1.2.3", func() *Table { return table })
	table, err := NewTable(route, Route{Service: "edge", Methods: []string{"GET"}, Pattern: "/x", Class: Control, Handler: respondWith("")})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, table.Routes()).listen()
	answer := f.dial().get("/openapi.json")
	var document struct {
		Info  struct{ Version string }
		Paths map[string]any
	}
	if err := json.Unmarshal([]byte(answer.body), &document); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%d, %v", answer.StatusCode, err)
	}
	if document.Info.Version != "1.2.3" || len(document.Paths) != 2 || document.Paths["/openapi.json"] == nil {
		t.Errorf("the document tells of %v", document)
	}
}
