package oap

import (
	"bytes"

	"github.com/fxamacker/cbor/v2"
)

// maxNesting is how many maps and lists may stand inside each other, the
// message itself included.
const maxNesting = 8

// maxPairs is how many keys a map may have: ours, and as many again that a
// later version may add.
const maxPairs = 64

// decoding is how the library reads. Everything that could be read in two ways
// is refused. Names match exactly, or "TS" would be taken for "ts". Tags are
// refused because no message has one, and the library would see through them.
var decoding = must(cbor.DecOptions{
	DupMapKey:         cbor.DupMapKeyEnforcedAPF,
	IndefLength:       cbor.IndefLengthForbidden,
	MaxNestedLevels:   maxNesting,
	MaxArrayElements:  MaxIDs,
	MaxMapPairs:       maxPairs,
	TagsMd:            cbor.TagsForbidden,
	UTF8:              cbor.UTF8RejectInvalid,
	FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
}.DecMode())

// encoding is RFC 8949's core deterministic encoding. A list without elements
// is an empty list, not null.
var encoding = must(func() (cbor.UserBufferEncMode, error) {
	options := cbor.CoreDetEncOptions()
	options.NilContainers = cbor.NilContainerAsEmpty
	return options.UserBufferEncMode()
}())

// Decode reads a payload. A kind that is not of this version comes back as
// *[Unknown]; whatever is not a message is Malformed, with what is wrong. Parts
// of a gossip or data message may be views of the payload.
func Decode(payload []byte) (Message, error) {
	if m := recognise(payload); m != nil {
		return m, nil
	}
	return decode(payload)
}

// decode is Decode by the library alone.
func decode(payload []byte) (Message, error) {
	kind, known, err := examine(payload)
	if err != nil {
		return nil, err
	}
	if !known {
		return &Unknown{Kind: kind}, nil
	}
	m := schemas[kind].fresh()
	if err := decoding.Unmarshal(payload, m); err != nil {
		return nil, refuse("oap.message", BadMessage, "%s: %v", kind, err)
	}
	return m, nil
}

// examine holds a payload against the schema of its kind.
func examine(payload []byte) (kind string, known bool, err error) {
	var keys map[string]cbor.RawMessage
	if err := decoding.Unmarshal(payload, &keys); err != nil {
		return "", false, refuse("oap.message", BadMessage, "not a map with text keys as OAP/1 has it: %v", err)
	}
	if kind, err = kindOf(keys); err != nil {
		return "", false, err
	}
	schema, known := schemas[kind]
	if err := holds(kind, schema.fields, keys); err != nil {
		return kind, known, err
	}
	return kind, known, nil
}

func kindOf(keys map[string]cbor.RawMessage) (kind string, err error) {
	if err := holds("message", []field{text("kind", 1, maxWord)}, keys); err != nil {
		return "", err
	}
	return kind, decoding.Unmarshal(keys["kind"], &kind)
}

// Encode appends the payload of a message to dst. What would be refused by
// Decode is refused here too, and then dst is as it was.
func Encode(dst []byte, m Message) ([]byte, error) {
	if out, ok := spell(dst, m); ok {
		return out, nil
	}
	return marshal(dst, m)
}

// marshal has the library write a message, and examines it like one that came.
func marshal(dst []byte, m Message) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	err := encoding.MarshalToBuffer(wireOf(m), out)
	if err == nil {
		_, known, wrong := examine(out.Bytes()[len(dst):])
		if err = wrong; err == nil && !known {
			err = refuse("oap.message", BadMessage, "a message of the kind %q cannot be sent", m.kind())
		}
	}
	if err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}

// tag stands beside the fields of a message and gives them their kind.
type tag struct {
	Kind string `cbor:"kind"`
}

// wireOf finds the form that the library encodes.
func wireOf(m Message) any {
	name := tag{m.kind()}
	switch m := m.(type) {
	case *Gossip:
		return &struct {
			tag
			*Gossip
		}{name, m}
	case *Data:
		return &struct {
			tag
			*Data
		}{name, m}
	case *Ack:
		return &struct {
			tag
			*Ack
		}{name, m}
	case *Hello:
		return &struct {
			tag
			*Hello
		}{name, m}
	case *HelloAck:
		return &struct {
			tag
			*HelloAck
		}{name, m}
	case *Ping:
		return &struct {
			tag
			*Ping
		}{name, m}
	case *Pong:
		return &struct {
			tag
			*Pong
		}{name, m}
	case *Have:
		return &struct {
			tag
			*Have
		}{name, m}
	case *Want:
		return &struct {
			tag
			*Want
		}{name, m}
	case *Start:
		return &struct {
			tag
			*Start
		}{name, m}
	case *End:
		return &struct {
			tag
			*End
		}{name, m}
	case *Find:
		return &struct {
			tag
			*Find
		}{name, m}
	case *Found:
		return &struct {
			tag
			*Found
		}{name, m}
	case *Error:
		return &struct {
			tag
			*Error
		}{name, m}
	case *Bye:
		return &struct {
			tag
			*Bye
		}{name, m}
	}
	return name // an Unknown
}
