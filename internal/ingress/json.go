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
// UTF-8, and numbers with a fraction for an integer are Malformed, and the
// detail names the field. An accepted text has one meaning only.
func DecodeJSON(r *http.Request, v any) error {
	const op = "http.json"
	if r.Body == nil {
		return malformedJSON("a JSON body is needed")
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
		return malformedJSON("a JSON body is needed")
	case !utf8.Valid(text):
		return malformedJSON("the body is not UTF-8")
	}
	check := jsonChecker{decoder: json.NewDecoder(bytes.NewReader(text))}
	check.decoder.UseNumber()
	if err := check.value(reflect.TypeOf(v), "", 0); err != nil {
		return err
	}
	if _, err := check.decoder.Token(); err != io.EOF {
		return malformedJSON("data follows the JSON value")
	}
	if err := json.Unmarshal(text, v); err != nil {
		return decodeError(err)
	}
	return nil
}

func malformedJSON(format string, args ...any) error {
	return fault.New("http.json", fault.Malformed, format, args...)
}

// decodeError turns an error of the decoder into a fault.
func decodeError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return malformedJSON("%s must be %s, not %s", quotePath(wrong.Field), jsonTypeName(wrong.Type), jsonValueKind(wrong.Value))
	}
	if broken, ok := errors.AsType[*json.SyntaxError](err); ok {
		return malformedJSON("the body is not JSON, at byte %d", broken.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformedJSON("the JSON is incomplete")
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own // of a type that decodes itself
	}
	return &fault.Error{Op: "http.json", Kind: fault.Malformed, Detail: "a value of the JSON has the wrong type", Err: err}
}

// jsonTypeName is the JSON name of a Go type.
func jsonTypeName(t reflect.Type) string {
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
	if isInteger(t) {
		return "an integer"
	}
	return "something else"
}

// jsonValueKind is the decoder's word for the kind of a value, without the
// value itself.
func jsonValueKind(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind
}

// maxDepth is deeper than any of our documents.
const maxDepth = 32

// jsonChecker walks through a JSON text beside the Go type that it is for, and
// finds what the decoder of the standard library accepts too easily.
type jsonChecker struct{ decoder *json.Decoder }

// value checks one value. A nil type accepts anything.
func (c *jsonChecker) value(t reflect.Type, path string, depth int) error {
	if depth > maxDepth {
		return malformedJSON("%s is nested too deeply", quotePath(path))
	}
	token, err := c.decoder.Token()
	if err != nil {
		return decodeError(err)
	}
	t = decodedType(t)
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return c.object(t, path, depth)
		}
		return c.list(t, path, depth)
	case json.Number:
		if t != nil && isInteger(t) && strings.ContainsAny(token.String(), ".eE") {
			return malformedJSON("%s must be an integer", quotePath(path))
		}
	}
	return nil
}

func (c *jsonChecker) object(t reflect.Type, path string, depth int) error {
	seen := map[string]bool{}
	for c.decoder.More() {
		token, err := c.decoder.Token()
		if err != nil {
			return decodeError(err)
		}
		key, _ := token.(string) // the decoder accepts no other key
		at := strings.TrimPrefix(path+"."+key, ".")
		if seen[key] {
			return malformedJSON("%s is there twice", quotePath(at))
		}
		seen[key] = true
		inner, known := memberType(t, key)
		if !known {
			return malformedJSON("%s is not a known field", quotePath(at))
		}
		if err := c.value(inner, at, depth+1); err != nil {
			return err
		}
	}
	return c.closing()
}

func (c *jsonChecker) list(t reflect.Type, path string, depth int) error {
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
func (c *jsonChecker) closing() error {
	if _, err := c.decoder.Token(); err != nil {
		return decodeError(err)
	}
	return nil
}

// quotePath is a path for an error message: short, and safe in a log.
func quotePath(path string) string {
	const most = 64
	if path == "" {
		return "the JSON value"
	}
	if len(path) > most {
		path = strings.ToValidUTF8(path[:most], "") + "…"
	}
	return fmt.Sprintf("%q", path)
}

// decodedType follows pointers to the type that a value is decoded into. It is
// nil for types that decode themselves, and for interfaces: they accept
// anything.
func decodedType(t reflect.Type) reflect.Type {
	for t != nil {
		if t.Implements(unmarshalerType) || t.Implements(textUnmarshalerType) || reflect.PointerTo(t).Implements(unmarshalerType) || reflect.PointerTo(t).Implements(textUnmarshalerType) {
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
	unmarshalerType     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func isInteger(t reflect.Type) bool { return reflect.Int <= t.Kind() && t.Kind() <= reflect.Uintptr }

// memberType finds the type of a key's value. Only structs have unknown keys.
func memberType(t reflect.Type, key string) (inner reflect.Type, known bool) {
	switch {
	case t == nil:
		return nil, true
	case t.Kind() == reflect.Map:
		return t.Elem(), true
	case t.Kind() == reflect.Struct:
		inner, known = fieldsOf(t)[key]
		return inner, known
	default:
		return nil, true // the decoder reports the wrong type
	}
}

// fieldCache caches the names of a struct's fields.
var fieldCache sync.Map // reflect.Type to map[string]reflect.Type

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldCache.Load(t); ok {
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
	fieldCache.Store(t, names)
	return names
}

// WriteJSON answers with a document. Unless the handler has set Cache-Control,
// it is not to be stored.
func WriteJSON(w http.ResponseWriter, status int, document any) error {
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store")
	}
	text, err := encodeJSON(document)
	if err != nil {
		return fault.WrapKind("http.json", fault.Internal, err)
	}
	if c, own := w.(*call); own && len(text) > freeText {
		if err := c.hold(int64(len(text))); err != nil {
			return err
		}
	}
	return writeBody(w, status, "application/json", text)
}

// mustWriteJSON is for documents that can always be encoded: our own plain structs.
func mustWriteJSON(w http.ResponseWriter, status int, contentType string, document any) {
	text, err := encodeJSON(document)
	if err != nil {
		panic("ingress: " + err.Error())
	}
	w.Header().Set("Cache-Control", "no-store")
	_ = writeBody(w, status, contentType, text) // if the client has left, there is nothing to report
}

func encodeJSON(document any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // it is not HTML, and the content type says so
	err := enc.Encode(document)
	return text.Bytes(), err
}

func writeBody(w http.ResponseWriter, status int, contentType string, text []byte) error {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(text)
	return fault.Wrap("http.json", err)
}
