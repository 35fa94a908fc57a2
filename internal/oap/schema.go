package oap

import (
	"fmt"
	"math"

	"github.com/fxamacker/cbor/v2"
)

// schema is one line of the contract's table of messages.
type schema struct {
	fresh  func() Message
	fields []field
}

// schemas are the contract's table of messages. What is in them is what is
// taken and what is sent.
var schemas = map[string]schema{
	"hello": {func() Message { return new(Hello) }, []field{
		list("versions", 1, maxVersions, number("", 1)),
		object("features", list("comp", 0, maxVersions, text("", 1, maxWord)).maybe(), text("pq", 0, maxWord).maybe()),
		number("max_frame", 1),
		text("token", 0, maxToken).maybe(),
	}},
	"hello_ack": {func() Message { return new(HelloAck) }, []field{
		object("chosen", number("ver", 1), text("comp", 0, maxWord).maybe(), text("pq", 0, maxWord).maybe()),
		object("limits", number("max_frame", 1), number("chunk", 1)),
	}},
	"ping": {func() Message { return new(Ping) }, []field{number("ts", 0)}},
	"pong": {func() Message { return new(Pong) }, []field{number("ts", 0)}},
	"gossip": {func() Message { return new(Gossip) }, []field{
		blob("msg", 1, math.MaxInt), blob("sig", sigSize, sigSize).maybe(), number("hops", 0), number("fanout", 0),
	}},
	"have":  {func() Message { return new(Have) }, []field{list("ids", 0, MaxIDs, blob("", idSize, idSize))}},
	"want":  {func() Message { return new(Want) }, []field{list("ids", 0, MaxIDs, blob("", idSize, idSize))}},
	"start": {func() Message { return new(Start) }, []field{number("stream", 0), text("obj", 1, maxText), number("from", 0).maybe()}},
	"data":  {func() Message { return new(Data) }, []field{number("stream", 0), number("seq", 0), blob("bytes", 0, math.MaxInt)}},
	"ack":   {func() Message { return new(Ack) }, []field{number("stream", 0), number("up_to", 0)}},
	"end":   {func() Message { return new(End) }, []field{number("stream", 0), number("seq", 0), text("status", 1, maxWord)}},
	"find":  {func() Message { return new(Find) }, []field{text("obj", 1, maxText), number("most", 0)}},
	"found": {func() Message { return new(Found) }, []field{
		list("providers", 0, MaxProviders, object("",
			text("id", 1, MaxName), addresses("overlay"), addresses("http"), text("region", 0, MaxName).maybe(), number("age", 0))),
		blob("record", 1, MaxRecord).maybe(),
	}},
	"error": {func() Message { return new(Error) }, []field{text("code", 1, maxWord), text("msg", 0, maxText)}},
	"bye":   {func() Message { return new(Bye) }, []field{text("reason", 0, maxText)}},
}

// form is a major type of CBOR.
type form byte

const (
	aNumber  form = 0
	aBlob    form = 2
	aText    form = 3
	aList    form = 4
	anObject form = 5
)

var formNames = map[form]string{
	aNumber: "an unsigned number", aBlob: "a byte string", aText: "a text", aList: "a list", anObject: "a map",
}

// field says what stands under a key. The bounds are of a number's value, of a
// text's or blob's bytes, of a list's elements.
type field struct {
	name        string
	form        form
	least, most uint64
	optional    bool
	of          []field // what is in a list (one field) or in a map
}

func number(name string, least uint64) field {
	return field{name: name, form: aNumber, least: least, most: math.MaxUint64}
}
func text(name string, least, most uint64) field {
	return field{name: name, form: aText, least: least, most: most}
}
func blob(name string, least, most uint64) field {
	return field{name: name, form: aBlob, least: least, most: most}
}
func list(name string, least, most uint64, of field) field {
	return field{name: name, form: aList, least: least, most: most, of: []field{of}}
}
func object(name string, of ...field) field {
	return field{name: name, form: anObject, most: maxPairs, of: of}
}
func addresses(name string) field {
	return list(name, 0, MaxAddresses, text("", 1, MaxAddress))
}
func (f field) maybe() field { f.optional = true; return f }

// holds tells whether a map is as its fields say. Keys without a field are not
// looked at.
func holds(path string, fields []field, keys map[string]cbor.RawMessage) error {
	for _, f := range fields {
		value, there := keys[f.name]
		if !there && !f.optional {
			return refuse("oap.message", BadMessage, "%s has no %q", path, f.name)
		}
		if there {
			if err := f.holds(path+"."+f.name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// holds tells whether a value is as the field says. The library takes null for
// anything and a list of small numbers for a byte string, so the major type,
// the first three bits, is compared first.
func (f field) holds(path string, value cbor.RawMessage) error {
	if form(value[0]>>5) != f.form {
		return refuse("oap.message", BadMessage, "%s is not %s", path, formNames[f.form])
	}
	n, err := f.measure(path, value)
	if err != nil {
		return err
	}
	if n < f.least || n > f.most {
		return refuse("oap.message", BadMessage, "%s: %d is not within %d and %d", path, n, f.least, f.most)
	}
	return nil
}

// measure finds what the bounds are about, and judges what is inside.
func (f field) measure(path string, value cbor.RawMessage) (n uint64, err error) {
	switch f.form {
	case aNumber:
		err = decoding.Unmarshal(value, &n)
	case aText:
		var text string
		err = decoding.Unmarshal(value, &text)
		n = uint64(len(text))
	case aBlob:
		var blob []byte
		err = decoding.Unmarshal(value, &blob)
		n = uint64(len(blob))
	case aList:
		var elements []cbor.RawMessage
		err = decoding.Unmarshal(value, &elements)
		for i := 0; i < len(elements) && err == nil; i++ {
			err = f.of[0].holds(fmt.Sprintf("%s[%d]", path, i), elements[i])
		}
		return uint64(len(elements)), err
	case anObject:
		var keys map[string]cbor.RawMessage
		if err = decoding.Unmarshal(value, &keys); err == nil {
			return uint64(len(keys)), holds(path, f.of, keys)
		}
	}
	if err != nil {
		return 0, refuse("oap.message", BadMessage, "%s: %v", path, err)
	}
	return n, nil
}
