package ingress

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"micronode/fault"
	"micronode/internal/observe"
)

// OpenAPI describes every route of the table as an OpenAPI 3.0 document. All
// that it says is read from the routes, so it cannot promise what the server
// does not do. Version is that of the program.
func (t *Table) OpenAPI(version string) ([]byte, error) {
	schemas := newSchemas()
	schemas.of(observe.Problem{})
	paths := map[string]node{}
	for _, route := range t.routes {
		path := documented(route.Pattern)
		if paths[path] == nil {
			paths[path] = node{}
		}
		for _, method := range route.Methods {
			paths[path][strings.ToLower(method)] = route.operation(method, schemas)
		}
	}
	return json.MarshalIndent(node{
		"openapi": "3.0.3",
		"info": node{
			"title": "micronode", "version": version,
			"description": "A node of a content network. Every error is a problem document (RFC 9457) whose `code` says what kind it is and whose `next` says what to do.",
		},
		"paths": paths,
		"components": node{
			"schemas": schemas.named,
			"securitySchemes": node{"capability": node{"type": "http", "scheme": "bearer", "bearerFormat": "macaroon",
				"description": "A capability, from `micronode token mint`. The local socket needs none."}},
		},
	}, "", " ")
}

// node is an object of the document.
type node = map[string]any

// documented is a pattern of the mux as OpenAPI writes it: wildcards have no
// dots, and what stands below a folder has a name.
func documented(pattern string) string {
	path := strings.ReplaceAll(strings.TrimSuffix(pattern, "{$}"), "...}", "}")
	if path != "/" && strings.HasSuffix(path, "/") && !strings.HasSuffix(pattern, "{$}") {
		path += "{path}"
	}
	return path
}

// wildcards are the names in the braces of a path.
func wildcards(path string) (names []string) {
	for _, part := range strings.Split(path, "{")[1:] {
		name, _, _ := strings.Cut(part, "}")
		names = append(names, name)
	}
	return names
}

// operation describes one method of a route.
func (r Route) operation(method string, schemas *schemas) node {
	path := documented(r.Pattern)
	op := node{
		"operationId": operationID(method, path), "tags": []string{r.Service}, "summary": r.Docs.Summary,
		"responses": r.responses(schemas), "x-class": r.Class.String(),
	}
	if r.Docs.Description != "" {
		op["description"] = r.Docs.Description
	}
	if params := r.parameters(path); len(params) > 0 {
		op["parameters"] = params
	}
	if body := r.requestBody(schemas); body != nil {
		op["requestBody"] = body
	}
	if r.Scope != "" {
		op["x-scope"] = r.Scope
		op["security"] = []node{{"capability": []string{}}}
	}
	return op
}

// operationID is a name that programs made from the document can use.
func operationID(method, path string) string {
	words := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune("/{}.-", c) })
	return strings.Join(append([]string{strings.ToLower(method)}, words...), "_")
}

// parameters are those that the route tells of, and the wildcards of its path,
// which the document wants to have in any case.
func (r Route) parameters(path string) (list []node) {
	told := map[string]bool{}
	for _, p := range r.Docs.Params {
		one := node{"name": p.Name, "in": p.In, "required": p.Required || p.In == "path", "schema": node{"type": p.Type}}
		if p.Doc != "" {
			one["description"] = p.Doc
		}
		list = append(list, one)
		told[p.In+p.Name] = true
	}
	for _, name := range wildcards(path) {
		if !told["path"+name] {
			list = append(list, node{"name": name, "in": "path", "required": true, "schema": node{"type": "string"}})
		}
	}
	return list
}

// requestBody is what a request carries, if it carries anything.
func (r Route) requestBody(schemas *schemas) node {
	switch request := r.Docs.Request.(type) {
	case nil:
		return nil
	case Bytes:
		return node{"content": node{string(request): node{"schema": node{"type": "string", "format": "binary"}}}}
	default:
		return node{"required": true, "content": node{"application/json": node{"schema": schemas.of(request)}}}
	}
}

// responses are those of success, and a line for each status that a refusal can
// have, with the kinds behind it.
func (r Route) responses(schemas *schemas) node {
	all := node{}
	for _, answer := range r.Docs.Responses {
		one := node{"description": answer.Doc}
		if answer.Doc == "" {
			one["description"] = http.StatusText(answer.Status)
		}
		if content := answer.content(schemas); content != nil {
			one["content"] = content
		}
		all[strconv.Itoa(answer.Status)] = one
	}
	if len(r.Docs.Responses) == 0 {
		all["200"] = node{"description": http.StatusText(http.StatusOK)}
	}
	codes := map[int][]string{}
	for _, kind := range r.refusals() {
		codes[kind.Status()] = append(codes[kind.Status()], kind.Code())
	}
	problem := node{"application/problem+json": node{"schema": schemas.of(observe.Problem{})}}
	for status, kinds := range codes {
		all[strconv.Itoa(status)] = node{"description": strings.Join(kinds, ", "), "content": problem, "x-codes": kinds}
	}
	return all
}

// content is what an answer carries, by its media type.
func (a Response) content(schemas *schemas) node {
	switch {
	case a.Body != nil:
		kind := a.Type
		if kind == "" {
			kind = "application/json"
		}
		return node{kind: node{"schema": schemas.of(a.Body)}}
	case strings.HasSuffix(a.Type, "json"):
		return node{a.Type: node{"schema": node{}}} // of a shape that others define
	case a.Type != "":
		return node{a.Type: node{"schema": node{"type": "string", "format": "binary"}}}
	default:
		return nil
	}
}

// refusals is what can go wrong: what the service says, and what the server
// itself may have against a request.
func (r Route) refusals() []fault.Kind {
	kinds := append(slices.Clone(r.Docs.Kinds), fault.RateLimited, fault.Internal)
	if r.Scope != "" || !r.Open {
		kinds = append(kinds, fault.Unauthorized, fault.Forbidden)
	}
	if r.Concurrency > 0 || r.Queued || r.Lane != nil {
		kinds = append(kinds, fault.Busy)
	}
	if r.Class != Stream {
		kinds = append(kinds, fault.Timeout)
	}
	if r.Docs.Request != nil {
		kinds = append(kinds, fault.BodyTooLarge, fault.RatioCap)
	}
	if r.Docs.Request != nil || len(r.parameters(documented(r.Pattern))) > 0 {
		kinds = append(kinds, fault.Malformed)
	}
	kinds = append(kinds, fault.Canceled)
	slices.Sort(kinds)
	return slices.DeleteFunc(slices.Compact(kinds), func(k fault.Kind) bool { return !k.HasStatus() })
}

// OpenAPIRoute answers with the description of a table, which is made when
// somebody first asks for it. The route is part of the table that it tells of,
// so the table comes later than the route.
func OpenAPIRoute(service, version string, table func() *Table) Route {
	describe := sync.OnceValues(func() ([]byte, error) { return table().OpenAPI(version) })
	return Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/openapi.json", Class: Control, Open: true,
		Handler: func(w http.ResponseWriter, _ *http.Request) error {
			document, err := describe()
			if err != nil {
				return fault.WrapKind("ingress.openapi", fault.Internal, fmt.Errorf("describing the routes: %w", err))
			}
			w.Header().Set("Content-Type", "application/json")
			_, err = w.Write(document)
			return err
		},
		Docs: Docs{Summary: "This document", Responses: []Response{{Status: http.StatusOK, Type: "application/json"}}},
	}
}
