package oap

import (
	"encoding/binary"
	"unicode/utf8"
)

// CBOR is read by the library, and by nothing else. But a few kinds of message
// come by the thousand, or from each of ten thousand peers, and the library
// spends more on finding out what one is than the network spends on carrying
// it. So this file knows what the
// deterministic encoding of exactly these shapes looks like, byte for byte:
// the same keys, in the same order, with lengths in their shortest form and
// nothing before, between or behind. Bytes that look like that are recognised.
// Whatever looks different in any way is left to the library, which is the
// judge of what is a message and what is wrong with it; nothing is ever
// refused here. A differential fuzz test holds the two to the same answer.

// recognise finds a gossip, data, ack, ping or pong message in a payload, or
// nothing. The parts are views of the payload.
func recognise(payload []byte) Message {
	var g Gossip
	if g.Recognise(payload) {
		found := g
		return &found
	}
	var d Data
	if d.Recognise(payload) {
		found := d
		return &found
	}
	var a Ack
	if a.Recognise(payload) {
		found := a
		return &found
	}
	var ping Ping
	if ping.Recognise(payload) {
		return &Ping{TS: ping.TS}
	}
	var pong Pong
	if pong.Recognise(payload) {
		return &Pong{TS: pong.TS}
	}
	return nil
}

// Recognise sets g and reports true if the payload is a gossip message in its
// deterministic encoding. It allocates nothing. After false, ask Decode.
func (g *Gossip) Recognise(payload []byte) bool {
	if g.recogniseUsual(payload) {
		return true
	}
	s := scan{rest: payload}
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

// recogniseUsual is Recognise for most of what comes: letters between 256 bytes
// and 64 KiB, without a signature. Everything in them has its place, so nothing
// has to be looked for.
func (g *Gossip) recogniseUsual(payload []byte) bool {
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

// Recognise sets d and reports true if the payload is a data message in its
// deterministic encoding. It allocates nothing. After false, ask Decode.
func (d *Data) Recognise(payload []byte) bool {
	s := scan{rest: payload}
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

// Recognise sets a and reports true if the payload is an ack message in its
// deterministic encoding. It allocates nothing. After false, ask Decode.
func (a *Ack) Recognise(payload []byte) bool {
	s := scan{rest: payload}
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

// Recognise sets p and reports true if the payload is a ping in its
// deterministic encoding. It allocates nothing. After false, ask Decode.
func (p *Ping) Recognise(payload []byte) bool {
	ts, found := recogniseTime(payload, "\x64kind\x64ping")
	if found {
		p.TS = ts
	}
	return found
}

// Recognise sets p and reports true if the payload is a pong in its
// deterministic encoding. It allocates nothing. After false, ask Decode.
func (p *Pong) Recognise(payload []byte) bool {
	ts, found := recogniseTime(payload, "\x64kind\x64pong")
	if found {
		p.TS = ts
	}
	return found
}

func recogniseTime(payload []byte, kind string) (ts uint64, found bool) {
	s := scan{rest: payload}
	s.literal("\xa2\x62ts")
	ts = s.number()
	s.literal(kind)
	return ts, s.done()
}

// recogniseUsual is recogniseLetter for most of what comes: letters of this
// century, with numbers as we give them and data between 256 bytes and 64 KiB, on
// the topic that is known, if its name is short.
func recogniseUsual(l *Letter, msg []byte, known string) bool {
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
	if ts < 1<<32 || seq < 1<<32 || n < 1<<8 || len(known) >= 24 || len(msg) != atData+n+behind+len(known) {
		return false
	}
	tail := msg[atData+n:]
	if string(tail[:behind-1]) != "\x65topic" || tail[behind-1] != 0x60|byte(len(known)) || string(tail[behind:]) != known {
		return false
	}
	l.Topic, l.Key, l.Seq, l.TS, l.Data = known, [keySize]byte(head[atKey:]), seq, ts, msg[atData:atData+n:atData+n]
	return true
}

// recogniseLetter finds the letter in the bytes that are its one encoding. The
// topic is not judged here; if it is the one that is known, it shares its memory.
func recogniseLetter(msg []byte, known string) (Letter, bool) {
	s := scan{rest: msg}
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
		return Letter{}, false
	}
	l := Letter{Topic: known, Key: [keySize]byte(key), Seq: seq, TS: ts, Data: data}
	if string(topic) == known {
		return l, true
	}
	if len(topic) > MaxTopic || !utf8.Valid(topic) {
		return Letter{}, false
	}
	l.Topic = string(topic)
	return l, true
}

// scan walks over bytes and compares. The first difference ends it: from then
// on nothing is found and done is false.
type scan struct {
	rest   []byte
	differ bool
}

// done tells whether all was as expected, to the last byte.
func (s *scan) done() bool { return !s.differ && len(s.rest) == 0 }

// next is the next n bytes.
func (s *scan) next(n uint64) []byte {
	if s.differ || n > uint64(len(s.rest)) {
		s.differ = true
		return nil
	}
	found := s.rest[:n:n]
	s.rest = s.rest[n:]
	return found
}

func (s *scan) literal(want string) {
	if string(s.next(uint64(len(want)))) != want {
		s.differ = true
	}
}

func (s *scan) number() uint64 { return s.head(aNumber) }
func (s *scan) blob() []byte   { return s.next(s.head(aBlob)) }
func (s *scan) text() []byte   { return s.next(s.head(aText)) }

// head is the number that an item begins with, in its shortest form.
func (s *scan) head(want form) uint64 {
	first := s.next(1)
	if s.differ || form(first[0]>>5) != want {
		s.differ = true
		return 0
	}
	short := uint64(first[0] & 0x1f)
	if short < 24 {
		return short
	}
	if short > 27 {
		s.differ = true
		return 0
	}
	var n uint64
	size := uint64(1) << (short - 24)
	for _, b := range s.next(size) {
		n = n<<8 | uint64(b)
	}
	// The shortest form has no room to spare: a byte is for 24 and more, and
	// each longer one for what its half cannot hold.
	if size == 1 && n < 24 || size > 1 && n>>(size*4) == 0 {
		s.differ = true
	}
	return n
}
