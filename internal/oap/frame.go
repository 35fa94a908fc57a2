package oap

import (
	"encoding/binary"
	"slices"
)

// Version is the only version of OAP that this package speaks.
const Version = 1

// Sizes of the contract, in bytes.
const (
	MaxPayload = 1 << 20  // of a frame, and of what a compressed one decompresses to
	Chunk      = 64 << 10 // of an object stream
	Window     = 16       // chunks in flight before the first must be acknowledged

	HeaderSize = lenSize + fixedSize // from the length to the payload

	lenSize    = 4
	fixedSize  = 1 + 2 + tenantSize + 8 // version, flags, tenant, corr: what the length counts besides the payload
	tenantSize = 16
)

// Where the fields of a header begin.
const (
	atVersion = lenSize
	atFlags   = atVersion + 1
	atTenant  = atFlags + 2
	atCorr    = atTenant + tenantSize
)

// Flags say what a frame is. Bits without a name are ignored on receipt and
// sent as they were given.
type Flags uint16

// The flags of OAP/1.
const (
	Req Flags = 1 << iota
	Resp
	Event
	Comp // set by Append when it compresses, cleared by Reader when it has decompressed
	AckReq
)

// Frame is one frame of OAP/1. The version is always 1 and the tenant always
// zero, so neither is kept.
type Frame struct {
	Flags   Flags
	Corr    uint64
	Payload []byte
}

// checkHeader checks the beginning of a frame and refuses it as soon as a byte
// allows that: the reader does not wait for, or allocate memory for, the rest
// of an invalid frame. It returns the size of the whole frame, or zero while
// the length is not there yet.
func checkHeader(b []byte, maxPayload int) (size int, err error) {
	if len(b) < lenSize {
		return 0, nil
	}
	length := binary.BigEndian.Uint32(b)
	if length < fixedSize {
		return 0, refuse("oap.frame", TooShort, "a length of %d does not cover the %d bytes of the header", length, fixedSize)
	}
	if length-fixedSize > uint32(maxPayload) {
		return 0, refuse("oap.frame", TooLarge, "a payload of %d bytes is over the cap of %d", length-fixedSize, maxPayload)
	}
	if len(b) > atVersion && b[atVersion] != Version {
		return 0, refuse("oap.frame", WrongVersion, "version %d; this node speaks version %d", b[atVersion], Version)
	}
	if tenant := b[min(len(b), atTenant):min(len(b), atCorr)]; string(tenant) != zeroTenant[:len(tenant)] {
		return 0, refuse("oap.frame", WrongTenant, "a tenant that is not zero; version %d has no other", Version)
	}
	return lenSize + int(length), nil
}

const zeroTenant = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// parse reads a frame that was checked and is complete. The payload is a view.
func parse(b []byte) Frame {
	return Frame{
		Flags:   Flags(binary.BigEndian.Uint16(b[atFlags:])),
		Corr:    binary.BigEndian.Uint64(b[atCorr:]),
		Payload: b[HeaderSize:len(b):len(b)],
	}
}

// Codec is what two peers agreed on. Before the handshake nothing is
// compressed. It is a plain value; replace it when the agreement changes.
type Codec struct {
	Max        int  // the largest payload as it goes over the wire; at most MaxPayload counts
	Compressed bool // both sides understand zstd
}

func (c Codec) maxPayload() int { return max(0, min(c.Max, MaxPayload)) }

// Append appends an uncompressed frame, so that a writer can put many into one
// buffer and write once.
func Append(dst []byte, f Frame) ([]byte, error) {
	return Codec{Max: MaxPayload}.Append(dst, f)
}

// Append appends a frame, compressed where that was agreed on and pays. After
// an error dst is as it was. The payload may not overlap the free part of dst.
func (c Codec) Append(dst []byte, f Frame) ([]byte, error) {
	if len(f.Payload) > c.maxPayload() {
		return dst, c.tooLarge(len(f.Payload))
	}
	whole := slices.Grow(dst, HeaderSize+len(f.Payload))[:len(dst)+HeaderSize]
	return c.finish(append(whole, f.Payload...), len(dst), f.Flags, f.Corr), nil
}

// AppendMessage appends a message as a frame, without a copy in between.
func (c Codec) AppendMessage(dst []byte, flags Flags, corr uint64, m Message) ([]byte, error) {
	start := len(dst)
	whole := slices.Grow(dst, HeaderSize)[:start+HeaderSize]
	whole, err := Encode(whole, m)
	if err != nil {
		return dst, err
	}
	if payload := len(whole) - start - HeaderSize; payload > c.maxPayload() {
		return dst, c.tooLarge(payload)
	}
	return c.finish(whole, start, flags, corr), nil
}

func (c Codec) tooLarge(payload int) error {
	return refuse("oap.append", TooLarge, "a payload of %d bytes is over the cap of %d", payload, c.maxPayload())
}

// finish turns dst[start:], which is room for a header and then the payload,
// into a frame.
func (c Codec) finish(dst []byte, start int, flags Flags, corr uint64) []byte {
	flags &^= Comp
	if c.Compressed {
		if n, paid := compress(dst[start+HeaderSize:]); paid {
			dst = dst[:start+HeaderSize+n]
			flags |= Comp
		}
	}
	b := dst[start:]
	binary.BigEndian.PutUint32(b, uint32(len(b)-lenSize))
	b[atVersion] = Version
	binary.BigEndian.PutUint16(b[atFlags:], uint16(flags))
	clear(b[atTenant:atCorr])
	binary.BigEndian.PutUint64(b[atCorr:], corr)
	return dst
}
