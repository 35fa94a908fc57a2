package oap

import (
	"crypto/ed25519"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"

	"micronode/b3"
)

// Signing and checking letters is most of what signed gossip costs. The library
// that does it here is the standard library's equal in what it accepts, which a
// test holds it to, and takes six tenths of the time. TLS, where a key is
// used once a session, keeps the standard one.

// asStandard makes the verdict that of crypto/ed25519: without the cofactor.
var asStandard = &voi.Options{Verify: voi.VerifyOptionsStdLib}

// Origin is a public key that is ready for checking: worth keeping for a node
// that writes more than one letter. It is read-only.
type Origin struct {
	key      [keySize]byte
	id       PeerID
	expanded *voi.ExpandedPublicKey // nil if the bytes are no key
}

// NewOrigin makes a key ready. One that is none refuses every signature.
func NewOrigin(key [keySize]byte) *Origin {
	o := &Origin{key: key, id: PeerIDOf(key[:])}
	if expanded, err := voi.NewExpandedPublicKey(key[:]); err == nil {
		o.expanded = expanded
	}
	return o
}

// ID is the peer that has the key.
func (o *Origin) ID() PeerID { return o.id }

// VerifyBy is Verify with a key that is ready. The letter must name that key.
func (g *Gossip) VerifyBy(o *Origin, l *Letter, id b3.Address) error {
	if len(g.Sig) == 0 {
		return refuse("oap.gossip", Unsigned, "the letter on %q is not signed", l.Topic)
	}
	if l.Key != o.key || o.expanded == nil || len(g.Sig) != sigSize || !voi.VerifyExpandedWithOptions(o.expanded, toSign(id), g.Sig, asStandard) {
		return refuse("oap.gossip", BadSig, "the signature of the letter on %q does not verify", l.Topic)
	}
	return nil
}

// Verify checks the signature over the id of a letter. An envelope without one
// is refused as Unsigned; whether a topic needs one is for the caller to say.
func (g *Gossip) Verify(l *Letter, id b3.Address) error { return g.VerifyBy(NewOrigin(l.Key), l, id) }

// sign signs the id of a letter. The same key and id give the same signature
// with every library.
func sign(key ed25519.PrivateKey, id b3.Address) []byte {
	return voi.Sign(voi.PrivateKey(key), toSign(id))
}
