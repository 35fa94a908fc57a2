package ingress

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"micronode/fault"
)

// DecodeJSON reads the body of a request into v, strictly. Unknown fields,
// fields in another case, duplicate keys, trailing data, text that is not
// UTF-8, and numbers with a fraction where integers are meant are Malformed,
// and the detail names the field. What passes means one thing only.
func DecodeJSON(r *http.Request, v any) error {
	const op = "http.json"
	if r.Body == nil {
		return badJSON("a JSON body is needed")
	}
	text, err := io.ReadAll(r.Body) // the chain has bounded it
	if err != nil {
		return fault.Wrap(op, err)
	}
	return decodeJSON(text, v)
}

func decodeJSON(text []byte, v any) error {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return badJSON("a JSON body is needed")
	case !utf8.Valid(text):
		return badJSON("the body is not UTF-8")
	}
	check := checker{decoder: json.NewDecoder(bytes.NewReader(text))}
	check.decoder.UseNumber()
	if err := check.value(reflect.TypeOf(v), "", 0); err != nil {
		return err
	}
	if _, err := check.decoder.Token(); err != io.EOF {
		return badJSON("there is more after the JSON value")
	}
	if err := json.Unmarshal(text, v); err != nil {
		return wrongJSON(err)
	}
	return nil
}

func badJSON(format string, args ...any) error {
	return fault.New("http.json", fault.Malformed, format, args...)
}

// wrongJSON words an error of the decoder.
func wrongJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return badJSON("%s must be %s, not %s", shown(wrong.Field), wanted(wrong.Type), given(wrong.Value))
	}
	if broken, ok := errors.AsType[*json.SyntaxError](err); ok {
		return badJSON("the body is not JSON, at byte %d", broken.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badJSON("the JSON ends in the middle")
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own // of a type that decodes itself
	}
	return &fault.Error{Op: "http.json", Kind: fault.Malformed, Detail: "a value of the JSON is not what it should be", Err: err}
}

// wanted says what a Go type looks like in JSON.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	if whole(t) {
		return "an integer"
	}
	return "something else"
}

// given is the decoder's word for what it found, without the value itself.
func given(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind
}

// maxDepth is deeper than any of our documents.
const maxDepth = 32

// checker walks through a JSON text beside the Go type that it is for, and
// finds what the decoder of the standard library lets pass.
type checker struct{ decoder *json.Decoder }

// value checks one value. A nil type is one that takes anything.
func (c *checker) value(t reflect.Type, path string, depth int) error {
	if depth > maxDepth {
		return badJSON("%s is nested too deeply", shown(path))
	}
	token, err := c.decoder.Token()
	if err != nil {
		return wrongJSON(err)
	}
	t = settle(t)
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return c.object(t, path, depth)
		}
		return c.list(t, path, depth)
	case json.Number:
		if t != nil && whole(t) && strings.ContainsAny(token.String(), ".eE") {
			return badJSON("%s must be an integer", shown(path))
		}
	}
	return nil
}

func (c *checker) object(t reflect.Type, path string, depth int) error {
	seen := map[string]bool{}
	for c.decoder.More() {
		token, err := c.decoder.Token()
		if err != nil {
			return wrongJSON(err)
		}
		key, _ := token.(string) // the decoder lets nothing else be a key
		at := strings.TrimPrefix(path+"."+key, ".")
		if seen[key] {
			return badJSON("%s is there twice", shown(at))
		}
		seen[key] = true
		inner, known := member(t, key)
		if !known {
			return badJSON("%s is not a known field", shown(at))
		}
		if err := c.value(inner, at, depth+1); err != nil {
			return err
		}
	}
	return c.closing()
}

func (c *checker) list(t reflect.Type, path string, depth int) error {
	var element reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		element = t.Elem()
	}
	for i := 0; c.decoder.More(); i++ {
		if err := c.value(element, path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
			return err
		}
	}
	return c.closing()
}

// closing reads the bracket that ends an object or a list.
func (c *checker) closing() error {
	if _, err := c.decoder.Token(); err != nil {
		return wrongJSON(err)
	}
	return nil
}

// shown is a path for a person: short, and harmless in a log.
func shown(path string) string {
	const most = 64
	if path == "" {
		return "the JSON value"
	}
	if len(path) > most {
		path = strings.ToValidUTF8(path[:most], "") + "…"
	}
	return fmt.Sprintf("%q", path)
}

// settle follows pointers to the type that a value is decoded into. Types that
// decode themselves, and interfaces, take anything.
func settle(t reflect.Type) reflect.Type {
	for t != nil {
		if t.Implements(ownJSON) || t.Implements(ownText) || reflect.PointerTo(t).Implements(ownJSON) || reflect.PointerTo(t).Implements(ownText) {
			return nil
		}
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
	}
	if t != nil && t.Kind() == reflect.Interface {
		return nil
	}
	return t
}

var (
	ownJSON = reflect.TypeFor[json.Unmarshaler]()
	ownText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func whole(t reflect.Type) bool { return reflect.Int <= t.Kind() && t.Kind() <= reflect.Uintptr }

// member finds the type of a key's value. Only structs have keys that are not
// known.
func member(t reflect.Type, key string) (inner reflect.Type, known bool) {
	switch {
	case t == nil:
		return nil, true
	case t.Kind() == reflect.Map:
		return t.Elem(), true
	case t.Kind() == reflect.Struct:
		inner, known = fieldsOf(t)[key]
		return inner, known
	default:
		return nil, true // the decoder says what is wrong with the type
	}
}

// fields remembers the names of a struct's fields.
var fields sync.Map // reflect.Type to map[string]reflect.Type

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	names := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() || name == "-":
		case field.Anonymous && name == "":
		case name == "":
			names[field.Name] = field.Type
		default:
			names[name] = field.Type
		}
	}
	fields.Store(t, names)
	return names
}

// WriteJSON answers with a document. Unless the handler has said otherwise,
// nobody should keep it.
func WriteJSON(w http.ResponseWriter, status int, document any) error {
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store")
	}
	text, err := encodeJSON(document)
	if err != nil {
		return fault.WrapKind("http.json", fault.Internal, err)
	}
	return sendJSON(w, status, "application/json", text)
}

// writeJSON is for documents that can always be encoded: our own plain structs.
func writeJSON(w http.ResponseWriter, status int, contentType string, document any) {
	text, err := encodeJSON(document)
	if err != nil {
		panic("ingress: " + err.Error())
	}
	w.Header().Set("Cache-Control", "no-store")
	_ = sendJSON(w, status, contentType, text) // if the client has left, there is nobody to tell
}

func encodeJSON(document any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // it is not HTML, and the content type says so
	err := enc.Encode(document)
	return text.Bytes(), err
}

func sendJSON(w http.ResponseWriter, status int, contentType string, text []byte) error {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(text)
	return fault.Wrap("http.json", err)
}
