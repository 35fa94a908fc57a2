package b3

import (
	"encoding/base32"
	"fmt"
)

// The first bytes of our CIDs. Each is a varint of one byte.
const (
	cidVersion   = 0x01
	cidRaw       = 0x55 // the content is bytes and nothing more
	cidBlake3    = 0x1e
	cidDigestLen = 0x20 // 32 bytes of hash follow
)

// cidEncoding is multibase's "base32": the prefix b, then RFC 4648 in lower
// case without padding.
var cidEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// maxCID bounds the input of ParseCID. The longest CID in common use, one of a
// 64-byte hash, is shorter.
const maxCID = 128

// CID returns the address as a CIDv1: codec raw, multihash BLAKE3, lower-case
// base32.
func (a Address) CID() string {
	return "b" + cidEncoding.EncodeToString(append([]byte{cidVersion, cidRaw, cidBlake3, cidDigestLen}, a[:]...))
}

// ParseCID reads what [Address.CID] writes, and nothing else: a CID with
// another base, codec or hash cannot be one of our addresses, and the
// [Malformed] error says which of these differs.
func ParseCID(s string) (Address, error) {
	if len(s) > 0 && s[0] == 'Q' {
		return Address{}, notCID(s, "it looks like a CIDv0, which is always SHA-256")
	}
	if len(s) == 0 || s[0] != 'b' {
		return Address{}, notCID(s, "it does not start with b, the mark of lower-case base32")
	}
	if len(s) > maxCID {
		return Address{}, notCID(s, fmt.Sprintf("it is %d bytes long", len(s)))
	}
	raw, err := cidEncoding.DecodeString(s[1:])
	if err != nil {
		return Address{}, notCID(s, "it is not lower-case base32")
	}
	if reason := foreignCID(raw); reason != "" {
		return Address{}, notCID(s, reason)
	}
	a := Address(raw[4:])
	// The decoder skips line breaks and ignores spare bits at the end, so
	// several texts would decode to one address. Only one spelling is
	// accepted.
	if a.CID() != s {
		return Address{}, notCID(s, "it is not spelt canonically")
	}
	return a, nil
}

// foreignCID describes how a decoded CID differs from ours, or returns "".
func foreignCID(raw []byte) string {
	switch {
	case len(raw) < 4:
		return "it is too short"
	case raw[0] != cidVersion:
		return fmt.Sprintf("its version is %d, not 1", raw[0])
	case raw[1] != cidRaw:
		return fmt.Sprintf("its codec is %#x, not raw (%#x)", raw[1], cidRaw)
	case raw[2] != cidBlake3:
		return fmt.Sprintf("its hash is %#x, not BLAKE3 (%#x)", raw[2], cidBlake3)
	case raw[3] != cidDigestLen || len(raw) != 4+len(Address{}):
		return fmt.Sprintf("its hash is %d bytes long, not 32", len(raw)-4)
	}
	return ""
}
