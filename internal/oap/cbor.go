package oap

import (
	"bytes"
	"sync"

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

// scratch is what encoding one message needs besides the destination. The
// kinds that come by the thousand have their wire form here, so that sending
// one costs no memory.
type scratch struct {
	out    bytes.Buffer
	gossip struct {
		tag
		Msg    []byte `cbor:"msg"`
		Sig    []byte `cbor:"sig,omitempty"`
		Hops   uint64 `cbor:"hops"`
		Fanout uint64 `cbor:"fanout"`
	}
	data struct {
		tag
		Stream uint64 `cbor:"stream"`
		Seq    uint64 `cbor:"seq"`
		Bytes  []byte `cbor:"bytes"`
	}
	ack struct {
		tag
		Stream uint64 `cbor:"stream"`
		UpTo   uint64 `cbor:"up_to"`
	}
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Encode appends the payload of a message to dst. What would be refused by
// Decode is refused here too, and then dst is as it was.
func Encode(dst []byte, m Message) ([]byte, error) {
	s := scratches.Get().(*scratch)
	s.out = *bytes.NewBuffer(dst)
	wire, sure := s.wireOf(m)
	err := encoding.MarshalToBuffer(wire, &s.out)
	out := s.out.Bytes()
	*s = scratch{} // keep nobody's bytes alive
	scratches.Put(s)
	if err == nil && !sure {
		_, known, wrong := examine(out[len(dst):])
		if err = wrong; err == nil && !known {
			err = refuse("oap.message", BadMessage, "a message of the kind %q cannot be sent", m.kind())
		}
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// tag stands beside the fields of a message and gives them their kind.
type tag struct {
	Kind string `cbor:"kind"`
}

// wireOf finds the form that the library encodes, and tells whether it is sure
// to be a good message. Otherwise the result is examined like one that came.
func (s *scratch) wireOf(m Message) (wire any, sure bool) {
	name := tag{m.kind()}
	switch m := m.(type) {
	case *Gossip:
		s.gossip.tag, s.gossip.Msg, s.gossip.Sig, s.gossip.Hops, s.gossip.Fanout = name, m.Msg, m.Sig, m.Hops, m.Fanout
		return &s.gossip, len(m.Msg) > 0 && (len(m.Sig) == 0 || len(m.Sig) == sigSize)
	case *Data:
		s.data.tag, s.data.Stream, s.data.Seq, s.data.Bytes = name, m.Stream, m.Seq, m.Bytes
		return &s.data, true
	case *Ack:
		s.ack.tag, s.ack.Stream, s.ack.UpTo = name, m.Stream, m.UpTo
		return &s.ack, true
	case *Hello:
		return &struct {
			tag
			*Hello
		}{name, m}, false
	case *HelloAck:
		return &struct {
			tag
			*HelloAck
		}{name, m}, false
	case *Ping:
		return &struct {
			tag
			*Ping
		}{name, m}, false
	case *Pong:
		return &struct {
			tag
			*Pong
		}{name, m}, false
	case *Have:
		return &struct {
			tag
			*Have
		}{name, m}, false
	case *Want:
		return &struct {
			tag
			*Want
		}{name, m}, false
	case *Start:
		return &struct {
			tag
			*Start
		}{name, m}, false
	case *End:
		return &struct {
			tag
			*End
		}{name, m}, false
	case *Error:
		return &struct {
			tag
			*Error
		}{name, m}, false
	case *Bye:
		return &struct {
			tag
			*Bye
		}{name, m}, false
	}
	return name, false // an Unknown
}
