package oap

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// This file is the counterpart of fastdecode.go: it writes the deterministic
// encoding of the most frequent messages, byte for byte. Everything else is
// written by the library. A differential test holds the two to the same bytes.

// encodeFast appends a gossip, data, ack, ping, pong or bye message. It reports
// false for any other, and for one that the receiver would refuse: the library
// says what is wrong with it.
func encodeFast(dst []byte, m Message) ([]byte, bool) {
	switch m := m.(type) {
	case *Gossip:
		if len(m.Msg) == 0 || len(m.Sig) != 0 && len(m.Sig) != sigSize {
			return dst, false
		}
		return m.appendTo(dst), true
	case *Data:
		dst = appendHead(append(dst, "\xa4\x63seq"...), majorUint, m.Seq)
		dst = appendBlob(append(dst, "\x64kind\x64data\x65bytes"...), m.Bytes)
		return appendHead(append(dst, "\x66stream"...), majorUint, m.Stream), true
	case *Ack:
		dst = appendHead(append(dst, "\xa3\x64kind\x63ack\x65up_to"...), majorUint, m.UpTo)
		return appendHead(append(dst, "\x66stream"...), majorUint, m.Stream), true
	case *Ping:
		return append(appendHead(append(dst, "\xa2\x62ts"...), majorUint, m.TS), "\x64kind\x64ping"...), true
	case *Pong:
		return append(appendHead(append(dst, "\xa2\x62ts"...), majorUint, m.TS), "\x64kind\x64pong"...), true
	case *Bye: // a node that drains sends it to all of its peers at once
		if len(m.Reason) > maxText || !utf8.ValidString(m.Reason) {
			return dst, false
		}
		return append(appendHead(append(dst, "\xa2\x64kind\x63bye\x66reason"...), majorText, uint64(len(m.Reason))), m.Reason...), true
	}
	return dst, false
}

func (g *Gossip) appendTo(dst []byte) []byte {
	pairs := byte(0xa4)
	if len(g.Sig) > 0 {
		pairs = 0xa5
	}
	dst = appendBlob(append(append(dst, pairs), "\x63msg"...), g.Msg)
	if len(g.Sig) > 0 {
		dst = appendBlob(append(dst, "\x63sig"...), g.Sig)
	}
	dst = appendHead(append(dst, "\x64hops"...), majorUint, g.Hops)
	return appendHead(append(dst, "\x64kind\x66gossip\x66fanout"...), majorUint, g.Fanout)
}

// encodeGossipMessage encodes a message in its one encoding, into buf if that
// is large enough.
func encodeGossipMessage(buf []byte, l *GossipMessage) []byte {
	dst := slices.Grow(buf[:0], l.MaxEncodedSize())
	dst = appendHead(append(dst, "\xa5\x62ts"...), majorUint, l.TS)
	dst = appendBlob(append(dst, "\x63key"...), l.Key[:])
	dst = appendHead(append(dst, "\x63seq"...), majorUint, l.Seq)
	dst = appendBlob(append(dst, "\x64data"...), l.Data)
	dst = appendHead(append(dst, "\x65topic"...), majorText, uint64(len(l.Topic)))
	return append(dst, l.Topic...)
}

// MaxEncodedSize is how much memory the encoding of a message takes at most.
func (m *GossipMessage) MaxEncodedSize() int {
	const around = 1 + 3 + 9 + 4 + 2 + keySize + 4 + 9 + 5 + 9 + 6 + 9 // keys and heads at their longest
	return around + len(m.Data) + len(m.Topic)
}

func appendBlob(dst, bytes []byte) []byte {
	return append(appendHead(dst, majorBytes, uint64(len(bytes))), bytes...)
}

// appendHead appends the number that an item begins with, in its shortest form.
func appendHead(dst []byte, f majorType, n uint64) []byte {
	major := byte(f) << 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, major|27), n)
	}
}
