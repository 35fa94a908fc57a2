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
	components jsonObject
	types      map[string]reflect.Type // by schema name
}

func newSchemas() *schemas {
	return &schemas{components: jsonObject{}, types: map[string]reflect.Type{}}
}

// The types whose JSON differs from their Go fields.
var (
	timeType      = reflect.TypeFor[time.Time]()
	rawType       = reflect.TypeFor[json.RawMessage]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
)

// schemaOf describes the type of a value.
func (s *schemas) schemaOf(value any) jsonObject { return s.schema(reflect.TypeOf(value)) }

func (s *schemas) schema(t reflect.Type) jsonObject {
	switch {
	case t == timeType:
		return jsonObject{"type": "string", "format": "date-time"}
	case t == rawType:
		return jsonObject{} // any JSON
	case t.Implements(textType):
		return jsonObject{"type": "string"}
	case t.Implements(marshalerType):
		return jsonObject{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.schema(t.Elem())
	case reflect.Bool:
		return jsonObject{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return jsonObject{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return jsonObject{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return jsonObject{"type": "number"}
	case reflect.String:
		return jsonObject{"type": "string"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return jsonObject{"type": "string", "format": "byte"}
		}
		return jsonObject{"type": "array", "items": s.schema(t.Elem())}
	case reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": s.schema(t.Elem())}
	case reflect.Struct:
		return s.reference(t)
	default:
		return jsonObject{} // an interface can be anything
	}
}

// reference describes a struct once, under its name, and refers to it. Of two
// with the same name in different packages, the second has its package's name
// too.
func (s *schemas) reference(t reflect.Type) jsonObject {
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
		s.components[name] = s.object(t)
	}
	return jsonObject{"$ref": "#/components/schemas/" + name}
}

// object describes the fields of a struct as encoding/json sees them.
func (s *schemas) object(t reflect.Type) jsonObject {
	properties, required := jsonObject{}, []string{}
	s.fields(t, properties, &required)
	object := jsonObject{"type": "object", "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	return object
}

func (s *schemas) fields(t reflect.Type, properties jsonObject, required *[]string) {
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
