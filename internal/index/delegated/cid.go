package delegated

import (
	"encoding/hex"
	"math/big"
	"strings"

	"github.com/mr-tron/base58"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
)

// CID is a parsed CID, as far as this node needs it.
type CID struct {
	Address b3.Address // if Ours
	Ours    bool       // a raw block under BLAKE3, in any base
	Empty   bool       // the empty block with the identity hash, which clients use as a probe
}

const maxCID = 256 // bytes of a text

// ParseCID parses a CID of any version, codec and hash, in the common bases.
// Any other text is Malformed.
func ParseCID(text string) (CID, error) {
	var c CID
	raw, version0 := decodeCID(text)
	if version0 {
		return c, nil // always SHA-256
	}
	parts, ok := record.SplitCID(raw)
	if !ok {
		return CID{}, fault.New("index.cid", fault.Malformed, "the request is not for a CID").
			Advise("Write a CID of version 1, such as " + b3.Of(nil).CID() + ".")
	}
	switch {
	case parts.Codec != record.CodecRaw:
	case parts.Hash == record.HashBLAKE3 && len(parts.Digest) == len(c.Address):
		c.Address, c.Ours = b3.Address(parts.Digest), true
	case parts.Hash == record.HashIdentity && len(parts.Digest) == 0:
		c.Empty = true
	}
	return c, nil
}

// decodeCID decodes the bytes of a CID, or reports that it is one of version 0.
// An invalid text yields nil.
func decodeCID(text string) (raw []byte, version0 bool) {
	if len(text) < 2 || len(text) > maxCID || strings.ContainsAny(text, "\r\n") { // decoders skip line breaks
		return nil, false
	}
	payload := text[1:]
	switch text[0] {
	case 'b':
		raw, _ = record.Base32.DecodeString(payload)
	case 'B':
		raw, _ = record.Base32.DecodeString(strings.ToLower(payload))
	case 'f', 'F':
		raw, _ = hex.DecodeString(payload)
	case 'k', 'K':
		if n, ok := new(big.Int).SetString(strings.ToLower(payload), 36); ok && payload[0] != '-' && payload[0] != '+' {
			raw = n.Bytes()
		}
	case 'z':
		raw, _ = base58.Decode(payload)
	case 'Q':
		raw, _ = base58.Decode(text)
		return nil, len(raw) == 34 && raw[0] == record.HashSHA256 && raw[1] == 32
	}
	return raw, false
}
