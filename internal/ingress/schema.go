package ingress

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schemas turns Go types into the schemas of an OpenAPI document. Structs with
// a name are described once and referred to.
type schemas struct {
	named node
	types map[string]reflect.Type // whose name it is
}

func newSchemas() *schemas {
	return &schemas{named: node{}, types: map[string]reflect.Type{}}
}

// The types that JSON shows as something else than what they are made of.
var (
	timeType      = reflect.TypeFor[time.Time]()
	rawType       = reflect.TypeFor[json.RawMessage]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
)

// of describes the type of a value.
func (s *schemas) of(value any) node { return s.schema(reflect.TypeOf(value)) }

func (s *schemas) schema(t reflect.Type) node {
	switch {
	case t == timeType:
		return node{"type": "string", "format": "date-time"}
	case t == rawType:
		return node{} // whatever it is
	case t.Implements(textType):
		return node{"type": "string"}
	case t.Implements(marshalerType):
		return node{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.schema(t.Elem())
	case reflect.Bool:
		return node{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return node{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return node{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return node{"type": "number"}
	case reflect.String:
		return node{"type": "string"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return node{"type": "string", "format": "byte"}
		}
		return node{"type": "array", "items": s.schema(t.Elem())}
	case reflect.Map:
		return node{"type": "object", "additionalProperties": s.schema(t.Elem())}
	case reflect.Struct:
		return s.reference(t)
	default:
		return node{} // an interface can be anything
	}
}

// reference describes a struct once, under its name, and refers to it. Of two
// with the same name in different packages, the second has its package's name
// too.
func (s *schemas) reference(t reflect.Type) node {
	name := t.Name()
	if name == "" {
		return s.object(t)
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	if other, taken := s.types[name]; taken && other != t {
		name = t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:] + name
	}
	if s.types[name] == nil {
		s.types[name] = t // before its fields, which may lead back to it
		s.named[name] = s.object(t)
	}
	return node{"$ref": "#/components/schemas/" + name}
}

// object describes the fields of a struct as encoding/json sees them.
func (s *schemas) object(t reflect.Type) node {
	properties, required := node{}, []string{}
	s.fields(t, properties, &required)
	object := node{"type": "object", "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	return object
}

func (s *schemas) fields(t reflect.Type, properties node, required *[]string) {
	for field := range t.Fields() {
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && tag == "" && field.Type.Kind() == reflect.Struct:
			s.fields(field.Type, properties, required)
			continue
		case tag == "-" || !field.IsExported():
			continue
		case tag == "":
			tag = field.Name
		}
		properties[tag] = s.schema(field.Type)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, tag)
		}
	}
}
