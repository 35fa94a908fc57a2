package ingress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"micronode/fault"
	"micronode/internal/observe"
)

// OpenAPI describes every route of the table as an OpenAPI 3.0 document. All of
// it is derived from the routes, so it cannot promise what the server does not
// do. Version is that of the program.
func (t *Table) OpenAPI(version string) ([]byte, error) {
	schemas := newSchemas()
	schemas.schemaOf(observe.Problem{})
	paths, services := map[string]jsonObject{}, map[string]bool{}
	for _, route := range t.routes {
		services[route.Service] = true
		path := openAPIPath(route.Pattern)
		if paths[path] == nil {
			paths[path] = jsonObject{}
		}
		for _, method := range route.Methods {
			paths[path][strings.ToLower(method)] = route.operation(method, schemas)
		}
	}
	return json.MarshalIndent(jsonObject{
		"openapi": "3.0.3",
		"info": jsonObject{
			"title": "micronode", "version": version,
			"description": "A node of a content network. Every error is a problem document (RFC 9457) whose `code` is the kind of the error and whose `next` is the next step. Every GET route also answers HEAD, without the body.",
			"contact":     jsonObject{"name": "The operator of this node"},
			"license":     jsonObject{"name": "MIT", "url": "https://opensource.org/license/mit"},
		},
		"servers":  []jsonObject{{"url": "/", "description": "The node that served this document."}},
		"security": optionalAuth,
		"tags":     tags(services),
		"paths":    paths,
		"components": jsonObject{
			"schemas": schemas.components,
			"securitySchemes": jsonObject{"capability": jsonObject{"type": "http", "scheme": "bearer", "bearerFormat": "macaroon",
				"description": "A capability, from `micronode token mint`. The local socket needs none."}},
		},
	}, "", " ")
}

// optionalAuth is for reads: open on this machine, with a capability from
// elsewhere; requiredAuth for what changes something.
var (
	optionalAuth = []jsonObject{{}, {"capability": []string{}}}
	requiredAuth = []jsonObject{{"capability": []string{}}}
)

// tags are the services that the routes belong to.
func tags(services map[string]bool) (list []jsonObject) {
	for _, service := range slices.Sorted(maps.Keys(services)) {
		list = append(list, jsonObject{"name": service, "description": "What the service " + service + " answers."})
	}
	return list
}

// jsonObject is an object of the document.
type jsonObject = map[string]any

// openAPIPath is a pattern of the mux as OpenAPI writes it: wildcards have no
// dots, and the rest below a folder has a name.
func openAPIPath(pattern string) string {
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
func (r Route) operation(method string, schemas *schemas) jsonObject {
	path := openAPIPath(r.Pattern)
	op := jsonObject{
		"operationId": operationID(method, path), "tags": []string{r.Service}, "summary": r.Docs.Summary,
		"description": r.description(), "responses": r.responses(schemas), "x-class": r.Class.String(),
	}
	if params := r.parameters(path); len(params) > 0 {
		op["parameters"] = params
	}
	if body := r.requestBody(schemas); body != nil {
		op["requestBody"] = body
	}
	switch {
	case r.Scope != "":
		op["x-scope"] = r.Scope
		op["security"] = requiredAuth
	case slices.Contains(PublicGroups, r.Public):
		op["x-public"] = string(r.Public)
	case r.Open:
		op["security"] = []jsonObject{}
	case r.showsInside():
		op["security"] = requiredAuth
	}
	return op
}

// description is the route's own text, and what a caller needs.
func (r Route) description() string {
	text := r.Docs.Description
	if text == "" {
		text = r.Docs.Summary + "."
	}
	if r.Scope != "" {
		narrowed := ""
		if r.Narrow {
			narrowed = " (`" + r.Scope + ":NAME` for that one only)"
		}
		text += " It needs a capability with the scope `" + r.Scope + "`" + narrowed + ", or the local socket."
	}
	if slices.Contains(PublicGroups, r.Public) {
		text += " Strangers may read it where `http.public` has `" + string(r.Public) + "`."
	}
	if r.showsInside() {
		text += " It needs a capability, of any scope, or the local socket."
	}
	return text
}

// operationID is a name for use in generated clients.
func operationID(method, path string) string {
	words := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune("/{}.-", c) })
	return strings.Join(append([]string{strings.ToLower(method)}, words...), "_")
}

// parameters are those that the route documents, and the wildcards of its path,
// which OpenAPI requires in any case.
func (r Route) parameters(path string) (list []jsonObject) {
	listed := map[string]bool{}
	for _, p := range r.Docs.Params {
		one := jsonObject{"name": p.Name, "in": p.In, "required": p.Required || p.In == "path", "schema": jsonObject{"type": p.Type}}
		if p.Doc != "" {
			one["description"] = p.Doc
		}
		list = append(list, one)
		listed[p.In+p.Name] = true
	}
	for _, name := range wildcards(path) {
		if !listed["path"+name] {
			list = append(list, jsonObject{"name": name, "in": "path", "required": true, "schema": jsonObject{"type": "string"}})
		}
	}
	return list
}

// requestBody describes the body of a request, if it has one.
func (r Route) requestBody(schemas *schemas) jsonObject {
	switch request := r.Docs.Request.(type) {
	case nil:
		return nil
	case Bytes:
		return jsonObject{"content": jsonObject{string(request): jsonObject{"schema": jsonObject{"type": "string", "format": "binary"}}}}
	default:
		return jsonObject{"required": true, "content": jsonObject{"application/json": jsonObject{"schema": schemas.schemaOf(request)}}}
	}
}

// responses are those of success, and for each status of a refusal the kinds
// behind it. An answer may have several media types.
func (r Route) responses(schemas *schemas) jsonObject {
	all := jsonObject{}
	answers := r.Docs.Responses
	if len(answers) == 0 {
		answers = []Response{{Status: http.StatusOK}}
	}
	for _, answer := range slices.Concat(answers, r.contentResponses(answers[0])) {
		doc := answer.Doc
		if doc == "" {
			doc = http.StatusText(answer.Status)
		}
		addResponse(all, answer.key(), doc, answer.content(schemas))
	}
	codes := map[int][]string{}
	for _, kind := range r.refusals() {
		codes[kind.Status()] = append(codes[kind.Status()], kind.Code())
	}
	if r.Docs.Content {
		codes[http.StatusPreconditionFailed] = []string{fault.Conflict.Code()}
	}
	problem := schemas.schemaOf(observe.Problem{})
	for status, kinds := range codes {
		one := addResponse(all, strconv.Itoa(status), strings.Join(kinds, ", "), jsonObject{"application/problem+json": jsonObject{"schema": problem}})
		one["x-codes"] = kinds
	}
	return all
}

// contentResponses are what ServeContent adds to the whole: a part, several
// parts, or 304.
func (r Route) contentResponses(whole Response) []Response {
	if !r.Docs.Content {
		return nil
	}
	part := whole
	part.Status, part.Body, part.Doc = http.StatusPartialContent, nil, "A range of it."
	if part.Type == "" {
		part.Type = "application/json"
	}
	return []Response{part, {Status: http.StatusNotModified, Doc: "The client has the current version."}}
}

// addResponse adds an answer, or another media type of an existing one.
func addResponse(all jsonObject, key, doc string, content jsonObject) jsonObject {
	one, ok := all[key].(jsonObject)
	if !ok {
		one = jsonObject{"description": doc}
		all[key] = one
	} else if one["description"] != doc {
		one["description"] = one["description"].(string) + " " + doc
	}
	if len(content) > 0 {
		types, _ := one["content"].(jsonObject)
		if types == nil {
			types = jsonObject{}
		}
		maps.Copy(types, content)
		one["content"] = types
	}
	return one
}

// key is the key of an answer: its status, or "default".
func (r Response) key() string {
	if r.Status == 0 {
		return "default"
	}
	return strconv.Itoa(r.Status)
}

// content describes the body of an answer, by its media type.
func (r Response) content(schemas *schemas) jsonObject {
	switch {
	case r.Status == http.StatusNotModified || r.Status == http.StatusNoContent:
		return nil
	case r.Body != nil:
		kind := r.Type
		if kind == "" {
			kind = "application/json"
		}
		return jsonObject{kind: jsonObject{"schema": schemas.schemaOf(r.Body)}}
	case strings.HasSuffix(r.Type, "json"):
		return jsonObject{r.Type: jsonObject{"schema": jsonObject{}}} // of a schema that is defined elsewhere
	case r.Type != "":
		return jsonObject{r.Type: jsonObject{"schema": jsonObject{"type": "string", "format": "binary"}}}
	default:
		return nil
	}
}

// refusals are the kinds of error: those of the service, and those of the
// server itself. Any request can have malformed headers, come from a page or
// with a Host that is not allowed here, or have a deadline that has passed.
func (r Route) refusals() []fault.Kind {
	kinds := append(slices.Clone(r.Docs.Kinds), fault.Malformed, fault.RejectPolicy, fault.RateLimited, fault.Internal, fault.Timeout, fault.Canceled, fault.Busy)
	if r.Scope != "" || !r.Open {
		kinds = append(kinds, fault.Unauthorized, fault.Forbidden)
	}
	if r.Docs.Request != nil || slices.ContainsFunc(r.Methods, changesState) {
		kinds = append(kinds, fault.BodyTooLarge, fault.RatioCap, fault.RequestTimeout, fault.UnsupportedMediaType)
	}
	if r.Docs.Content {
		kinds = append(kinds, fault.InvalidRange)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// rootServer is how the document names its server where the client sees the
// node as the request says.
const rootServer = `"url": "/"`

// OpenAPIRoute serves the description of a table, which is made at the first
// request. The route is part of the table that it describes, so the table comes
// later than the route.
func OpenAPIRoute(service, version string, table func() *Table) Route {
	describe := sync.OnceValues(func() ([]byte, error) { return table().OpenAPI(version) })
	return Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/openapi.json", Class: Control, Open: true, Cheap: true,
		Handler: func(w http.ResponseWriter, r *http.Request) error {
			document, err := describe()
			if err != nil {
				return fault.WrapKind("ingress.openapi", fault.Internal, fmt.Errorf("describing the routes: %w", err))
			}
			if base := BaseURL(r); base != requestBase(r) {
				document = bytes.Replace(document, []byte(rootServer), []byte(`"url": "`+base+`/"`), 1)
			}
			w.Header().Set("Content-Type", "application/json")
			_, err = w.Write(document)
			return err
		},
		Docs: Docs{Summary: "This document", Responses: []Response{{Status: http.StatusOK, Type: "application/json"}}},
	}
}
