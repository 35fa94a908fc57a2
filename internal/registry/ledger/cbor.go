package ledger

import (
	"slices"

	"github.com/fxamacker/cbor/v2"
)

// cborMode is how the library decodes: it rejects everything ambiguous. The
// library rejects numbers that do not fit, fromCBOR all others that are not
// whole. The options are constants; a package that cannot make them panics when
// the program starts.
var cborMode = func() cbor.DecMode {
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
	if err := cborMode.Unmarshal(data, &value); err != nil {
		return nil, malformed(op, "not valid CBOR: %v", err)
	}
	return fromCBOR(op, value)
}

// fromCBOR turns what the library decoded into a document, or names the value
// that a document cannot hold.
func fromCBOR(op string, value any) (any, error) {
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
			inner, err := fromCBOR(op, element)
			if err != nil {
				return nil, err
			}
			list = append(list, inner)
		}
		return list, nil
	case map[any]any:
		return mapFromCBOR(op, v)
	}
	return nil, malformed(op, "a request may not contain a %T; it may contain maps, lists, text, whole numbers, true, false and null", value)
}

func mapFromCBOR(op string, pairs map[any]any) (any, error) {
	o := make(object, 0, len(pairs))
	for key, value := range pairs {
		name, ok := key.(string)
		if !ok || !isASCII(name) {
			return nil, malformed(op, "a field name must be text in plain ASCII")
		}
		inner, err := fromCBOR(op, value)
		if err != nil {
			return nil, err
		}
		o = append(o, member{name, inner})
	}
	o.sortFields()
	return slices.Clip(o), nil
}
