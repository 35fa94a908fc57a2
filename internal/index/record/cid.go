package record

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/mr-tron/base58"

	"micronode/b3"
)

// foreignCID is a CID that is not in our spelling: what it is, and what to do
// about it.
type foreignCID struct{ description, next string }

// maxCID limits what is decoded, in bytes.
const maxCID = 160

// recogniseForeignCID reports whether a text is a CID of any kind, base, codec
// or hash. Only a complete and well-formed one counts, so that few words are
// mistaken for one.
func recogniseForeignCID(text string) (foreignCID, bool) {
	if len(text) > maxCID {
		return foreignCID{}, false
	}
	if raw, err := base58.Decode(text); err == nil && strings.HasPrefix(text, "Qm") && len(raw) == 34 {
		return foreignCID{"a CID of version 0, whose hash is always SHA-256", nextFetchElsewhere}, true
	}
	raw, base := decodeMultibase(text)
	c, ok := SplitCID(raw)
	switch {
	case !ok:
		return foreignCID{}, false
	case c.Codec == CodecRaw && c.Hash == HashBLAKE3 && len(c.Digest) == len(b3.Address{}):
		ours := b3.Address(c.Digest)
		return foreignCID{"a CID of ours in " + base, fmt.Sprintf("Write it as %s or as %s.", ours.CID(), ours)}, true
	case c.Codec == codecLibp2pKey:
		return foreignCID{"the name of a libp2p key and not of an object", "Ask for b3:… or for name:docs@<peer-id>."}, true
	default:
		return foreignCID{fmt.Sprintf("a CID with the codec %s and the hash %s (%d bytes)", nameOf(codecs, c.Codec), nameOf(hashes, c.Hash), len(c.Digest)), nextFetchElsewhere}, true
	}
}

const nextFetchElsewhere = "Only raw blocks hashed with BLAKE3 (32 bytes) have an address here. Fetch it with IPFS software, then `micronode put` it and use the address that this prints."

// Common codes of the multicodec table.
const (
	CodecRaw       = 0x55
	codecLibp2pKey = 0x72

	HashIdentity = 0x00
	HashSHA256   = 0x12
	HashBLAKE3   = 0x1e
)

var (
	codecs = map[uint64]string{CodecRaw: "raw", 0x70: "dag-pb", 0x71: "dag-cbor", codecLibp2pKey: "libp2p-key", 0x0129: "dag-json", 0x0202: "car"}
	hashes = map[uint64]string{HashIdentity: "identity", 0x11: "SHA-1", HashSHA256: "SHA-256", 0x13: "SHA-512", 0x1b: "Keccak-256", HashBLAKE3: "BLAKE3", 0xb220: "BLAKE2b-256"}
)

func nameOf(table map[uint64]string, code uint64) string {
	if name, ok := table[code]; ok {
		return name
	}
	return fmt.Sprintf("%#x", code)
}

// CIDParts are the parts of a CID of version 1.
type CIDParts struct {
	Codec, Hash uint64
	Digest      []byte
}

// SplitCID splits a CID of version 1. Nothing may be missing or left over.
func SplitCID(raw []byte) (CIDParts, bool) {
	var numbers [4]uint64 // version, codec, hash, length of the digest
	for i := range numbers {
		n, size := binary.Uvarint(raw)
		if size <= 0 {
			return CIDParts{}, false
		}
		numbers[i], raw = n, raw[size:]
	}
	return CIDParts{numbers[1], numbers[2], raw}, numbers[0] == 1 && numbers[3] == uint64(len(raw))
}

// Base32 is lower-case base32 without padding, in which CIDs and peer IDs are
// written.
var Base32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// decodeMultibase decodes a multibase text, for the common bases. An invalid
// text yields nil.
func decodeMultibase(text string) (raw []byte, base string) {
	if text == "" {
		return nil, ""
	}
	var err error
	rest := text[1:]
	switch text[0] {
	case 'b':
		base = "a spelling that is not canonical"
		raw, err = Base32.DecodeString(rest)
	case 'B':
		base = "upper-case base32"
		raw, err = base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(rest)
	case 'f', 'F':
		base = "base16"
		raw, err = hex.DecodeString(rest)
	case 'k', 'K':
		base = "base36"
		raw, err = base36(rest)
	case 'm':
		base = "base64"
		raw, err = base64.RawStdEncoding.DecodeString(rest)
	case 'u':
		base = "base64url"
		raw, err = base64.RawURLEncoding.DecodeString(rest)
	case 'z':
		base = "base58"
		raw, err = base58.Decode(rest)
	}
	if err != nil {
		return nil, ""
	}
	return raw, base
}

// base36 decodes base36. A leading zero is a zero byte, as in base58.
func base36(text string) ([]byte, error) {
	letters := strings.ToLower(text)
	if strings.Trim(letters, "0123456789abcdefghijklmnopqrstuvwxyz") != "" || text == "" {
		return nil, fmt.Errorf("not base36")
	}
	n, _ := new(big.Int).SetString(letters, 36)
	zeros := len(letters) - len(strings.TrimLeft(letters, "0"))
	return slices.Concat(make([]byte, zeros), n.Bytes()), nil
}
