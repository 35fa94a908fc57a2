package ledger

import (
	"slices"

	"github.com/fxamacker/cbor/v2"
)

// decoding is how the library reads: nothing that could be read in two ways.
// Numbers that do not fit are refused by the library, all others that are not
// whole by plain. The options are constants; a package that cannot make them
// stops at its first start.
var decoding = func() cbor.DecMode {
	noUndefined, err := cbor.NewSimpleValueRegistryFromDefaults(cbor.WithRejectedSimpleValue(23))
	if err != nil {
		panic(err)
	}
	mode, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		IntDec:           cbor.IntDecConvertSignedOrFail,
		MaxNestedLevels:  maxDepth,
		MaxArrayElements: 4096,
		MaxMapPairs:      maxFields,
		TagsMd:           cbor.TagsForbidden,
		SimpleValues:     noUndefined,
		UTF8:             cbor.UTF8RejectInvalid,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// readCBOR reads one document, as readJSON does.
func readCBOR(op string, data []byte) (any, error) {
	var value any
	if err := decoding.Unmarshal(data, &value); err != nil {
		return nil, malformed(op, "not CBOR as it is accepted here: %v", err)
	}
	return plain(op, value)
}

// plain turns what the library read into a document, or says what has no place
// in one.
func plain(op string, value any) (any, error) {
	switch v := value.(type) {
	case nil, bool, string:
		return v, nil
	case int64:
		if v > maxInteger || v < -maxInteger {
			return nil, malformed(op, "%d has more than 53 bits", v)
		}
		return v, nil
	case []any:
		list := make([]any, 0, len(v))
		for _, element := range v {
			inner, err := plain(op, element)
			if err != nil {
				return nil, err
			}
			list = append(list, inner)
		}
		return list, nil
	case map[any]any:
		return plainMap(op, v)
	}
	return nil, malformed(op, "a %T has no place in a request: only maps, lists, text, whole numbers, true, false and null have", value)
}

func plainMap(op string, pairs map[any]any) (any, error) {
	o := make(object, 0, len(pairs))
	for key, value := range pairs {
		name, ok := key.(string)
		if !ok || !plainName(name) {
			return nil, malformed(op, "a field name must be text in plain ASCII")
		}
		inner, err := plain(op, value)
		if err != nil {
			return nil, err
		}
		o = append(o, member{name, inner})
	}
	o.sorted()
	return slices.Clip(o), nil
}
