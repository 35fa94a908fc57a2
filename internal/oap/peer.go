package oap

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base32"

	"micronode/b3"
	"micronode/fault"
)

// PeerID identifies a node: the BLAKE3-256 of its public key in DER. It is
// comparable.
type PeerID [32]byte

// peerIDEncoding is lower-case base32 without padding: 52 characters for an ID.
var peerIDEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// spkiPrefix precedes the 32 bytes of every Ed25519 key in a DER
// SubjectPublicKeyInfo.
var spkiPrefix = [12]byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}

// PeerIDOf is the ID of the node with this public key.
func PeerIDOf(public ed25519.PublicKey) PeerID {
	var der [len(spkiPrefix) + ed25519.PublicKeySize]byte
	copy(der[:], spkiPrefix[:])
	copy(der[len(spkiPrefix):], public)
	return PeerID(b3.Of(der[:]))
}

// ParsePeerID reads an ID from its one spelling.
func ParsePeerID(text string) (PeerID, error) {
	var id PeerID
	if len(text) != peerIDEncoding.EncodedLen(len(id)) {
		return id, notPeerID(text)
	}
	raw, err := peerIDEncoding.DecodeString(text)
	if err != nil || peerIDEncoding.EncodeToString(raw) != text { // the last character has bits to spare
		return id, notPeerID(text)
	}
	return PeerID(raw), nil
}

func notPeerID(text string) error {
	return fault.New("peer.parse", fault.Malformed, "%q is not a peer ID", text).
		Advise("A peer ID has 52 characters of a to z and 2 to 7; `micronode identity show` and the banner of a node print it.")
}

// String is the ID as ParsePeerID reads it.
func (p PeerID) String() string { return peerIDEncoding.EncodeToString(p[:]) }

// MarshalText and UnmarshalText use the same spelling, so that JSON carries it
// as it is.
func (p PeerID) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (p *PeerID) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePeerID(string(text))
	return err
}

// Compare orders IDs by their bytes, not by their text.
func (p PeerID) Compare(other PeerID) int { return bytes.Compare(p[:], other[:]) }
