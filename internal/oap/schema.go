package oap

import (
	"fmt"
	"math"

	"github.com/fxamacker/cbor/v2"
)

// schema is one row of the contract's table of messages.
type schema struct {
	newMessage func() Message
	fields     []field
}

// schemas are the contract's table of messages, for both decoding and encoding.
var schemas = map[string]schema{
	"hello": {func() Message { return new(Hello) }, []field{
		listField("versions", 1, maxVersions, uintField("", 1)),
		mapField("features", listField("comp", 0, maxVersions, textField("", 1, maxWord)).asOptional(), textField("pq", 0, maxWord).asOptional()),
		uintField("max_frame", 1),
		textField("token", 0, maxToken).asOptional(),
	}},
	"hello_ack": {func() Message { return new(HelloAck) }, []field{
		mapField("chosen", uintField("ver", 1), textField("comp", 0, maxWord).asOptional(), textField("pq", 0, maxWord).asOptional()),
		mapField("limits", uintField("max_frame", 1), uintField("chunk", 1)),
	}},
	"ping": {func() Message { return new(Ping) }, []field{uintField("ts", 0)}},
	"pong": {func() Message { return new(Pong) }, []field{uintField("ts", 0)}},
	"gossip": {func() Message { return new(Gossip) }, []field{
		bytesField("msg", 1, math.MaxInt), bytesField("sig", sigSize, sigSize).asOptional(), uintField("hops", 0), uintField("fanout", 0),
	}},
	"have":  {func() Message { return new(Have) }, []field{listField("ids", 0, MaxIDs, bytesField("", idSize, idSize))}},
	"want":  {func() Message { return new(Want) }, []field{listField("ids", 0, MaxIDs, bytesField("", idSize, idSize))}},
	"start": {func() Message { return new(Start) }, []field{uintField("stream", 0), textField("obj", 1, maxText), uintField("from", 0).asOptional(), uintField("length", 0).asOptional()}},
	"data":  {func() Message { return new(Data) }, []field{uintField("stream", 0), uintField("seq", 0), bytesField("bytes", 0, math.MaxInt)}},
	"ack":   {func() Message { return new(Ack) }, []field{uintField("stream", 0), uintField("up_to", 0)}},
	"end":   {func() Message { return new(End) }, []field{uintField("stream", 0), uintField("seq", 0), textField("status", 1, maxWord)}},
	"find":  {func() Message { return new(Find) }, []field{textField("obj", 1, maxText), uintField("most", 0)}},
	"found": {func() Message { return new(Found) }, []field{
		listField("providers", 0, MaxProviders, mapField("",
			textField("id", 1, MaxProviderText), addrsField("overlay"), addrsField("http"), textField("region", 0, MaxProviderText).asOptional(), uintField("age", 0))),
		bytesField("record", 1, MaxRecord).asOptional(),
	}},
	"introduce": {func() Message { return new(Introduce) }, []field{listField("nodes", 0, MaxIntroductions, bytesField("", sigSize+1, maxIntroduction))}},
	"error":     {func() Message { return new(Error) }, []field{textField("code", 1, maxWord), textField("msg", 0, maxText)}},
	"bye":       {func() Message { return new(Bye) }, []field{textField("reason", 0, maxText)}},
}

// majorType is a major type of CBOR.
type majorType byte

const (
	majorUint  majorType = 0
	majorBytes majorType = 2
	majorText  majorType = 3
	majorArray majorType = 4
	majorMap   majorType = 5
)

var majorTypeNames = map[majorType]string{
	majorUint: "an unsigned number", majorBytes: "a byte string", majorText: "a text", majorArray: "a list", majorMap: "a map",
}

// field says what the value of a key must be. The bounds are of a number's
// value, of the bytes of a text or byte string, of a list's elements.
type field struct {
	name     string
	major    majorType
	min, max uint64
	optional bool
	elements []field // what is in a list (one field) or in a map
}

func uintField(name string, least uint64) field {
	return field{name: name, major: majorUint, min: least, max: math.MaxUint64}
}
func textField(name string, least, most uint64) field {
	return field{name: name, major: majorText, min: least, max: most}
}
func bytesField(name string, least, most uint64) field {
	return field{name: name, major: majorBytes, min: least, max: most}
}
func listField(name string, least, most uint64, of field) field {
	return field{name: name, major: majorArray, min: least, max: most, elements: []field{of}}
}
func mapField(name string, of ...field) field {
	return field{name: name, major: majorMap, max: maxPairs, elements: of}
}
func addrsField(name string) field {
	return listField(name, 0, MaxAddrs, textField("", 1, MaxAddr))
}
func (f field) asOptional() field { f.optional = true; return f }

// checkFields checks a map against its fields. Keys without a field are not
// checked.
func checkFields(path string, fields []field, keys map[string]cbor.RawMessage) error {
	for _, f := range fields {
		value, there := keys[f.name]
		if !there && !f.optional {
			return refuse("oap.message", BadMessage, "%s has no %q", path, f.name)
		}
		if there {
			if err := f.check(path+"."+f.name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks a value against the field. The library accepts null for anything
// and a list of small numbers for a byte string, so the major type, the first
// three bits, is compared first.
func (f field) check(path string, value cbor.RawMessage) error {
	if majorType(value[0]>>5) != f.major {
		return refuse("oap.message", BadMessage, "%s is not %s", path, majorTypeNames[f.major])
	}
	n, err := f.measure(path, value)
	if err != nil {
		return err
	}
	if n < f.min || n > f.max {
		return refuse("oap.message", BadMessage, "%s: %d is not within %d and %d", path, n, f.min, f.max)
	}
	return nil
}

// measure returns the number that the bounds apply to, and checks what is
// inside.
func (f field) measure(path string, value cbor.RawMessage) (n uint64, err error) {
	switch f.major {
	case majorUint:
		err = decMode.Unmarshal(value, &n)
	case majorText:
		var text string
		err = decMode.Unmarshal(value, &text)
		n = uint64(len(text))
	case majorBytes:
		var blob []byte
		err = decMode.Unmarshal(value, &blob)
		n = uint64(len(blob))
	case majorArray:
		var elements []cbor.RawMessage
		err = decMode.Unmarshal(value, &elements)
		for i := 0; i < len(elements) && err == nil; i++ {
			err = f.elements[0].check(fmt.Sprintf("%s[%d]", path, i), elements[i])
		}
		return uint64(len(elements)), err
	case majorMap:
		var keys map[string]cbor.RawMessage
		if err = decMode.Unmarshal(value, &keys); err == nil {
			return uint64(len(keys)), checkFields(path, f.elements, keys)
		}
	}
	if err != nil {
		return 0, refuse("oap.message", BadMessage, "%s: %v", path, err)
	}
	return n, nil
}
