package testkit

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// SameJSON checks that two types have the same JSON: the same members, in the
// same order, of the same types. A service declares what it answers, and the Go
// client, which imports no service, declares it again for its callers.
func SameJSON[Ours, Theirs any](t T) {
	t.Helper()
	ours, theirs := reflect.TypeFor[Ours](), reflect.TypeFor[Theirs]()
	if got, want := jsonShape(ours), jsonShape(theirs); got != want {
		t.Errorf("%s is %s, and %s is %s", ours, got, theirs, want)
	}
}

var textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()

// jsonShape describes the JSON of a type. It panics if it does not know.
func jsonShape(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t.Implements(textMarshaler):
		return "text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "truth"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "text"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + jsonShape(t.Elem()) + "]"
	case reflect.Struct:
		return "{" + strings.Join(members(t), ", ") + "}"
	}
	panic(fmt.Sprintf("testkit: the JSON of %s is not known", t))
}

// members describes the members of a struct, each with its tag.
func members(t reflect.Type) (list []string) {
	for field := range t.Fields() {
		switch tag := field.Tag.Get("json"); {
		case tag == "-" || !field.IsExported():
		case tag == "":
			panic(fmt.Sprintf("testkit: %s of %s has no name in JSON", field.Name, t))
		default:
			list = append(list, tag+" "+jsonShape(field.Type))
		}
	}
	return list
}
