package delegated

import (
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"strings"

	"github.com/mr-tron/base58"

	"micronode/b3"
	"micronode/fault"
)

// CID is what somebody asks for by the name that IPFS gives it.
type CID struct {
	Address b3.Address // if Ours
	Ours    bool       // a raw block under BLAKE3, in whatever base it is written
	Empty   bool       // the block of no bytes that is its own hash: what others ask for to see who is there
}

// Codes of the multicodec table.
const (
	codecRaw   = 0x55
	hashBLAKE3 = 0x1e
)

const mostCID = 256 // bytes of a text

// ParseCID reads a CID of any version, codec and hash, in the bases that are in
// use. What is none is Malformed.
func ParseCID(text string) (CID, error) {
	var c CID
	raw, version0 := decodeCID(text)
	if version0 {
		return c, nil // always SHA-256
	}
	version, raw, _ := varint(raw)
	codec, raw, _ := varint(raw)
	hash, raw, _ := varint(raw)
	size, digest, ok := varint(raw)
	if !ok || version != 1 || size != uint64(len(digest)) {
		err := fault.New("index.cid", fault.Malformed, "what is asked for is no CID")
		err.Next = "Write a CID of version 1, such as " + b3.Of(nil).CID() + "."
		return CID{}, err
	}
	switch {
	case codec != codecRaw:
	case hash == hashBLAKE3 && len(digest) == len(c.Address):
		c.Address, c.Ours = b3.Address(digest), true
	case hash == hashIdentity && size == 0:
		c.Empty = true
	}
	return c, nil
}

// decodeCID reads the bytes of a CID, or finds that it is one of version 0. What
// cannot be read is nothing.
func decodeCID(text string) (raw []byte, version0 bool) {
	if len(text) < 2 || len(text) > mostCID || strings.ContainsAny(text, "\r\n") { // decoders skip line breaks
		return nil, false
	}
	rest := text[1:]
	switch text[0] {
	case 'b':
		raw, _ = lower32.DecodeString(rest)
	case 'B':
		raw, _ = lower32.DecodeString(strings.ToLower(rest))
	case 'f', 'F':
		raw, _ = hex.DecodeString(rest)
	case 'k', 'K':
		if n, ok := new(big.Int).SetString(strings.ToLower(rest), 36); ok && rest[0] != '-' && rest[0] != '+' {
			raw = n.Bytes()
		}
	case 'z':
		raw, _ = base58.Decode(rest)
	case 'Q':
		raw, _ = base58.Decode(text)
		return nil, len(raw) == 34 && raw[0] == hashSHA256 && raw[1] == 32
	}
	return raw, false
}

var lower32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func varint(raw []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(raw)
	if size <= 0 {
		return 0, nil, false
	}
	return n, raw[size:], true
}
