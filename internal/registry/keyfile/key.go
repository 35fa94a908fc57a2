package keyfile

import (
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"strings"

	"micronode/fault"
)

const (
	publicPrefix = "ed25519:"
	seedPrefix   = "ed25519-seed:"
)

// Generate makes a key from 32 random bytes.
func Generate(random io.Reader) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, fault.Wrap("keyfile.generate", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// PublicOf returns the public half of a key.
func PublicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// FormatPublic writes a public key as in a signer set: "ed25519:<base64>",
// without a line end.
func FormatPublic(key ed25519.PublicKey) string {
	return publicPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParsePublic reads what FormatPublic writes, with or without a line end.
func ParsePublic(text string) (ed25519.PublicKey, error) {
	raw, ok := decode(text, publicPrefix, ed25519.PublicKeySize)
	if !ok {
		return nil, fault.New("keyfile.parse public", fault.Malformed, "this is not a public key").
			Advise("Give what is in the .pub file: ed25519: and 44 characters of base64.")
	}
	return raw, nil
}

// FormatPlain writes a private key without any protection.
func FormatPlain(key ed25519.PrivateKey) []byte {
	return []byte(seedPrefix + base64.StdEncoding.EncodeToString(key.Seed()) + "\n")
}

// openPlain reads what FormatPlain writes.
func openPlain(data []byte) (ed25519.PrivateKey, bool) {
	seed, ok := decode(string(data), seedPrefix, ed25519.SeedSize)
	if !ok {
		return nil, false
	}
	return ed25519.NewKeyFromSeed(seed), true
}

// decode reads one line of a prefix and base64 in its canonical encoding.
func decode(line, prefix string, size int) ([]byte, bool) {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	text, found := strings.CutPrefix(line, prefix)
	if !found || len(text) != base64.StdEncoding.EncodedLen(size) {
		return nil, false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	return raw, err == nil && len(raw) == size
}
