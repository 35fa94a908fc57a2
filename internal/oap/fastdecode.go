package oap

import (
	"encoding/binary"
	"unicode/utf8"
)

// CBOR is decoded by the library, and by nothing else. But a few kinds of
// message come by the thousand, or from each of ten thousand peers, and the
// library spends more on decoding one than the network spends on carrying it.
// So this file knows the deterministic encoding of exactly these messages, byte
// for byte: the same keys, in the same order, with lengths in their shortest
// form and nothing before, between or behind. Bytes that match are decoded
// here. Anything that differs in any way is left to the library, which decides
// what is a message and what is wrong with it; nothing is ever refused here. A
// differential fuzz test holds the two to the same result.

// decodeFast decodes a gossip, data, ack, ping or pong message, or returns nil.
// Byte slices are views of the payload.
func decodeFast(payload []byte) Message {
	var g Gossip
	if g.DecodeFast(payload) {
		found := g
		return &found
	}
	var d Data
	if d.DecodeFast(payload) {
		found := d
		return &found
	}
	var a Ack
	if a.DecodeFast(payload) {
		found := a
		return &found
	}
	var ping Ping
	if ping.DecodeFast(payload) {
		return &Ping{TS: ping.TS}
	}
	var pong Pong
	if pong.DecodeFast(payload) {
		return &Pong{TS: pong.TS}
	}
	return nil
}

// DecodeFast sets g and reports true if the payload is a gossip message in its
// deterministic encoding. It allocates nothing. After false, use Decode.
func (g *Gossip) DecodeFast(payload []byte) bool {
	if g.decodeCommon(payload) {
		return true
	}
	s := scanner{rest: payload}
	signed := len(payload) > 0 && payload[0] == 0xa5
	if signed {
		s.literal("\xa5")
	} else {
		s.literal("\xa4")
	}
	s.literal("\x63msg")
	msg := s.blob()
	var sig []byte
	if signed {
		s.literal("\x63sig\x58\x40")
		sig = s.next(sigSize)
	}
	s.literal("\x64hops")
	hops := s.number()
	s.literal("\x64kind\x66gossip\x66fanout")
	fanout := s.number()
	if !s.done() || len(msg) == 0 {
		return false
	}
	*g = Gossip{Msg: msg, Sig: sig, Hops: hops, Fanout: fanout}
	return true
}

// decodeCommon is DecodeFast for most messages: between 256 bytes and 64 KiB,
// without a signature. Everything in them has a fixed offset, so nothing has to
// be searched.
func (g *Gossip) decodeCommon(payload []byte) bool {
	const (
		before = "\xa4\x63msg\x59"
		middle = "\x64hops"
		behind = "\x64kind\x66gossip\x66fanout"
		begins = len(before) + 2
		around = begins + len(middle) + 1 + len(behind) + 1
	)
	if len(payload) < around || string(payload[:len(before)]) != before {
		return false
	}
	n := int(binary.BigEndian.Uint16(payload[len(before):]))
	if n < 1<<8 || len(payload) != around+n {
		return false
	}
	tail := payload[begins+n:]
	hops, fanout := tail[len(middle)], tail[len(tail)-1]
	if string(tail[:len(middle)]) != middle || string(tail[len(middle)+1:len(tail)-1]) != behind || hops >= 24 || fanout >= 24 {
		return false
	}
	*g = Gossip{Msg: payload[begins : begins+n : begins+n], Hops: uint64(hops), Fanout: uint64(fanout)}
	return true
}

// DecodeFast sets d and reports true if the payload is a data message in its
// deterministic encoding. It allocates nothing. After false, use Decode.
func (d *Data) DecodeFast(payload []byte) bool {
	s := scanner{rest: payload}
	s.literal("\xa4\x63seq")
	seq := s.number()
	s.literal("\x64kind\x64data\x65bytes")
	bytes := s.blob()
	s.literal("\x66stream")
	stream := s.number()
	if !s.done() {
		return false
	}
	*d = Data{Stream: stream, Seq: seq, Bytes: bytes}
	return true
}

// DecodeFast sets a and reports true if the payload is an ack message in its
// deterministic encoding. It allocates nothing. After false, use Decode.
func (a *Ack) DecodeFast(payload []byte) bool {
	s := scanner{rest: payload}
	s.literal("\xa3\x64kind\x63ack\x65up_to")
	upTo := s.number()
	s.literal("\x66stream")
	stream := s.number()
	if !s.done() {
		return false
	}
	*a = Ack{Stream: stream, UpTo: upTo}
	return true
}

// DecodeFast sets p and reports true if the payload is a ping in its
// deterministic encoding. It allocates nothing. After false, use Decode.
func (p *Ping) DecodeFast(payload []byte) bool {
	ts, found := decodePingPong(payload, "\x64kind\x64ping")
	if found {
		p.TS = ts
	}
	return found
}

// DecodeFast sets p and reports true if the payload is a pong in its
// deterministic encoding. It allocates nothing. After false, use Decode.
func (p *Pong) DecodeFast(payload []byte) bool {
	ts, found := decodePingPong(payload, "\x64kind\x64pong")
	if found {
		p.TS = ts
	}
	return found
}

func decodePingPong(payload []byte, kind string) (ts uint64, found bool) {
	s := scanner{rest: payload}
	s.literal("\xa2\x62ts")
	ts = s.number()
	s.literal(kind)
	return ts, s.done()
}

// decodeCommonGossipMessage is decodeGossipMessageFast for most messages:
// written in this century, with sequence numbers as we assign them and data
// between 256 bytes and 64 KiB, on the known topic, if its name is short.
func decodeCommonGossipMessage(l *GossipMessage, msg []byte, knownTopic string) bool {
	const (
		atTS   = len("\xa5\x62ts\x1b")
		atKey  = atTS + 8 + len("\x63key\x58\x20")
		atSeq  = atKey + keySize + len("\x63seq\x1b")
		atSize = atSeq + 8 + len("\x64data\x59")
		atData = atSize + 2
		behind = len("\x65topic\x60")
	)
	if len(msg) < atData+behind {
		return false
	}
	head := msg[:atData]
	if string(head[:atTS]) != "\xa5\x62ts\x1b" || string(head[atTS+8:atKey]) != "\x63key\x58\x20" ||
		string(head[atKey+keySize:atSeq]) != "\x63seq\x1b" || string(head[atSeq+8:atSize]) != "\x64data\x59" {
		return false
	}
	ts, seq, n := binary.BigEndian.Uint64(head[atTS:]), binary.BigEndian.Uint64(head[atSeq:]), int(binary.BigEndian.Uint16(head[atSize:]))
	if ts < 1<<32 || seq < 1<<32 || n < 1<<8 || len(knownTopic) >= 24 || len(msg) != atData+n+behind+len(knownTopic) {
		return false
	}
	tail := msg[atData+n:]
	if string(tail[:behind-1]) != "\x65topic" || tail[behind-1] != 0x60|byte(len(knownTopic)) || string(tail[behind:]) != knownTopic {
		return false
	}
	l.Topic, l.Key, l.Seq, l.TS, l.Data = knownTopic, [keySize]byte(head[atKey:]), seq, ts, msg[atData:atData+n:atData+n]
	return true
}

// decodeGossipMessageFast decodes a message from its one encoding. The topic is
// not checked here; if it equals knownTopic, it shares its memory.
func decodeGossipMessageFast(msg []byte, knownTopic string) (GossipMessage, bool) {
	s := scanner{rest: msg}
	s.literal("\xa5\x62ts")
	ts := s.number()
	s.literal("\x63key\x58\x20")
	key := s.next(keySize)
	s.literal("\x63seq")
	seq := s.number()
	s.literal("\x64data")
	data := s.blob()
	s.literal("\x65topic")
	topic := s.text()
	if !s.done() || len(data) > MaxData {
		return GossipMessage{}, false
	}
	l := GossipMessage{Topic: knownTopic, Key: [keySize]byte(key), Seq: seq, TS: ts, Data: data}
	if string(topic) == knownTopic {
		return l, true
	}
	if len(topic) > MaxTopic || !utf8.Valid(topic) {
		return GossipMessage{}, false
	}
	l.Topic = string(topic)
	return l, true
}

// scanner walks over bytes and compares. The first mismatch ends it: from then
// on nothing is found and done is false.
type scanner struct {
	rest     []byte
	mismatch bool
}

// done reports whether all was as expected, to the last byte.
func (s *scanner) done() bool { return !s.mismatch && len(s.rest) == 0 }

// next is the next n bytes.
func (s *scanner) next(n uint64) []byte {
	if s.mismatch || n > uint64(len(s.rest)) {
		s.mismatch = true
		return nil
	}
	found := s.rest[:n:n]
	s.rest = s.rest[n:]
	return found
}

func (s *scanner) literal(want string) {
	if string(s.next(uint64(len(want)))) != want {
		s.mismatch = true
	}
}

func (s *scanner) number() uint64 { return s.head(majorUint) }
func (s *scanner) blob() []byte   { return s.next(s.head(majorBytes)) }
func (s *scanner) text() []byte   { return s.next(s.head(majorText)) }

// head is the number that an item begins with, in its shortest form.
func (s *scanner) head(want majorType) uint64 {
	first := s.next(1)
	if s.mismatch || majorType(first[0]>>5) != want {
		s.mismatch = true
		return 0
	}
	short := uint64(first[0] & 0x1f)
	if short < 24 {
		return short
	}
	if short > 27 {
		s.mismatch = true
		return 0
	}
	var n uint64
	size := uint64(1) << (short - 24)
	for _, b := range s.next(size) {
		n = n<<8 | uint64(b)
	}
	// The shortest form has nothing to spare: a byte is for 24 and more, and
	// each longer one for what its half cannot hold.
	if size == 1 && n < 24 || size > 1 && n>>(size*4) == 0 {
		s.mismatch = true
	}
	return n
}
