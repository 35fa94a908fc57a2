package oap

import (
	"bytes"

	"github.com/fxamacker/cbor/v2"
)

// maxNesting is how many levels of maps and lists there may be, the message
// itself included.
const maxNesting = 8

// maxPairs is how many keys a map may have: ours, and as many again that a
// later version may add.
const maxPairs = 64

// decMode is how the library decodes. Everything that could be read in two ways
// is refused. Names match exactly, or "TS" would match "ts". Tags are refused
// because no message has one, and the library would skip them.
var decMode = must(cbor.DecOptions{
	DupMapKey:         cbor.DupMapKeyEnforcedAPF,
	IndefLength:       cbor.IndefLengthForbidden,
	MaxNestedLevels:   maxNesting,
	MaxArrayElements:  MaxIDs,
	MaxMapPairs:       maxPairs,
	TagsMd:            cbor.TagsForbidden,
	UTF8:              cbor.UTF8RejectInvalid,
	FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
}.DecMode())

// encMode is RFC 8949's core deterministic encoding. A list without elements
// is an empty list, not null.
var encMode = must(func() (cbor.UserBufferEncMode, error) {
	options := cbor.CoreDetEncOptions()
	options.NilContainers = cbor.NilContainerAsEmpty
	return options.UserBufferEncMode()
}())

// Decode reads a payload. A kind that is not of this version is returned as
// *[Unknown]; anything that is not a message is Malformed, with what is wrong.
// Fields of a gossip or data message may be views of the payload.
func Decode(payload []byte) (Message, error) {
	if m := decodeFast(payload); m != nil {
		return m, nil
	}
	return decode(payload)
}

// decode is Decode by the library alone.
func decode(payload []byte) (Message, error) {
	kind, known, err := checkSchema(payload)
	if err != nil {
		return nil, err
	}
	if !known {
		return &Unknown{Kind: kind}, nil
	}
	m := schemas[kind].newMessage()
	if err := decMode.Unmarshal(payload, m); err != nil {
		return nil, refuse("oap.message", BadMessage, "%s: %v", kind, err)
	}
	return m, nil
}

// checkSchema checks a payload against the schema of its kind.
func checkSchema(payload []byte) (kind string, known bool, err error) {
	var keys map[string]cbor.RawMessage
	if err := decMode.Unmarshal(payload, &keys); err != nil {
		return "", false, refuse("oap.message", BadMessage, "not a map with text keys as OAP/1 has it: %v", err)
	}
	if kind, err = kindOf(keys); err != nil {
		return "", false, err
	}
	schema, known := schemas[kind]
	if err := checkFields(kind, schema.fields, keys); err != nil {
		return kind, known, err
	}
	return kind, known, nil
}

func kindOf(keys map[string]cbor.RawMessage) (kind string, err error) {
	if err := checkFields("message", []field{textField("kind", 1, maxWord)}, keys); err != nil {
		return "", err
	}
	return kind, decMode.Unmarshal(keys["kind"], &kind)
}

// Encode appends the payload of a message to dst. What would be refused by
// Decode is refused here too, and then dst is as it was.
func Encode(dst []byte, m Message) ([]byte, error) {
	if out, ok := encodeFast(dst, m); ok {
		return out, nil
	}
	return marshal(dst, m)
}

// marshal encodes a message with the library, and checks it like a received
// one.
func marshal(dst []byte, m Message) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	err := encMode.MarshalToBuffer(withKind(m), out)
	if err == nil {
		_, known, wrong := checkSchema(out.Bytes()[len(dst):])
		if err = wrong; err == nil && !known {
			err = refuse("oap.message", BadMessage, "a message of the kind %q cannot be sent", m.kind())
		}
	}
	if err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}

// kindField adds the kind to the fields of a message.
type kindField struct {
	Kind string `cbor:"kind"`
}

// withKind returns the value that the library encodes.
func withKind(m Message) any {
	name := kindField{m.kind()}
	switch m := m.(type) {
	case *Gossip:
		return &struct {
			kindField
			*Gossip
		}{name, m}
	case *Data:
		return &struct {
			kindField
			*Data
		}{name, m}
	case *Ack:
		return &struct {
			kindField
			*Ack
		}{name, m}
	case *Hello:
		return &struct {
			kindField
			*Hello
		}{name, m}
	case *HelloAck:
		return &struct {
			kindField
			*HelloAck
		}{name, m}
	case *Ping:
		return &struct {
			kindField
			*Ping
		}{name, m}
	case *Pong:
		return &struct {
			kindField
			*Pong
		}{name, m}
	case *Have:
		return &struct {
			kindField
			*Have
		}{name, m}
	case *Want:
		return &struct {
			kindField
			*Want
		}{name, m}
	case *Start:
		return &struct {
			kindField
			*Start
		}{name, m}
	case *End:
		return &struct {
			kindField
			*End
		}{name, m}
	case *Find:
		return &struct {
			kindField
			*Find
		}{name, m}
	case *Found:
		return &struct {
			kindField
			*Found
		}{name, m}
	case *Introduce:
		return &struct {
			kindField
			*Introduce
		}{name, m}
	case *Error:
		return &struct {
			kindField
			*Error
		}{name, m}
	case *Bye:
		return &struct {
			kindField
			*Bye
		}{name, m}
	}
	return name // an Unknown
}
