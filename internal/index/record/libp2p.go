package record

import (
	"bytes"
	"crypto/ed25519"

	"github.com/mr-tron/base58"
)

// libp2pPrefix precedes the 32 bytes of an Ed25519 key in the ID of a libp2p
// host: a multihash of the kind "identity", 36 bytes long, of the protobuf
// message { Type: Ed25519, Data: 32 bytes }.
var libp2pPrefix = []byte{hashIdentity, 0x24, 0x08, 0x01, 0x12, ed25519.PublicKeySize}

// Libp2pID is the ID of the libp2p host with this key: 12D3Koo….
func Libp2pID(public ed25519.PublicKey) string {
	return base58.Encode(append(bytes.Clone(libp2pPrefix), public...))
}

// maxLibp2pID limits what is decoded; no ID that holds an Ed25519 key is longer
// in any base.
const maxLibp2pID = 128

// KeyOfLibp2p returns the public key in a libp2p ID, as Libp2pID writes it or
// as a CID of the codec libp2p-key. Other IDs are hashes of other keys and have
// no corresponding peer ID.
func KeyOfLibp2p(text string) (ed25519.PublicKey, bool) {
	if len(text) > maxLibp2pID {
		return nil, false
	}
	if raw, err := base58.Decode(text); err == nil {
		if key, ok := bytes.CutPrefix(raw, libp2pPrefix); ok && len(key) == ed25519.PublicKeySize {
			return key, true
		}
	}
	raw, _ := decodeMultibase(text)
	if c, ok := splitCID(raw); ok && c.codec == codecLibp2pKey && c.hash == hashIdentity {
		key, ok := bytes.CutPrefix(c.digest, libp2pPrefix[2:])
		return key, ok && len(key) == ed25519.PublicKeySize
	}
	return nil, false
}
