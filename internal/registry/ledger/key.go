package ledger

import (
	"encoding/base64"
	"strings"

	"github.com/oasisprotocol/curve25519-voi/curve"

	"micronode/fault"
)

// keyPrefix names the algorithm in the text of a public key.
const keyPrefix = "ed25519:"

// PublicKey is a signer's Ed25519 key. It is comparable; as text it is
// "ed25519:" and the base64 of its 32 bytes.
type PublicKey [32]byte

// ParsePublicKey reads a key from its canonical text. It rejects bytes that are
// no point of the curve, another encoding of one, or a point of small order
// (for which signatures can be forged).
func ParsePublicKey(text string) (PublicKey, error) {
	key, ok := decodeKey(text)
	if !ok {
		return key, notKey("%s is not a public key", quote(text))
	}
	return key, key.check()
}

// decodeKey reads the bytes of a key without checking that it is a valid one.
func decodeKey(text string) (key PublicKey, ok bool) {
	encoded, found := strings.CutPrefix(text, keyPrefix)
	if !found || len(encoded) != base64.StdEncoding.EncodedLen(len(key)) {
		return key, false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != len(key) {
		return key, false
	}
	return PublicKey(raw), true
}

// check rejects keys for which a signature would prove nothing.
func (k PublicKey) check() error {
	var (
		compressed = curve.CompressedEdwardsY(k)
		point      curve.EdwardsPoint
	)
	if !compressed.IsCanonicalVartime() {
		return notKey("%s is not the canonical encoding of a key", k)
	}
	if _, err := point.SetCompressedY(&compressed); err != nil {
		return notKey("%s is not a point of the curve", k)
	}
	if point.IsSmallOrder() {
		return notKey("%s is a point of small order: anyone could sign for it", k)
	}
	return nil
}

func notKey(format string, args ...any) error {
	return refuse("registry.key", fault.Malformed,
		"A public key is the line that `micronode registry keygen` writes beside the key file: ed25519:<base64 of 32 bytes>.", format, args...)
}

// String returns the key as ParsePublicKey reads it.
func (k PublicKey) String() string { return string(k.appendTo(nil)) }

// MarshalText is String, for encoders.
func (k PublicKey) MarshalText() ([]byte, error) { return k.appendTo(nil), nil }

// UnmarshalText is ParsePublicKey, for decoders.
func (k *PublicKey) UnmarshalText(text []byte) error {
	parsed, err := ParsePublicKey(string(text))
	if err == nil {
		*k = parsed
	}
	return err
}

func (k PublicKey) appendTo(b []byte) []byte {
	return base64.StdEncoding.AppendEncode(append(b, keyPrefix...), k[:])
}
