package oap

import (
	"crypto/ed25519"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"

	"micronode/b3"
)

// Signing and verifying is most of the cost of signed gossip. The library used
// here accepts exactly what the standard library accepts, which a test checks,
// and takes six tenths of the time. TLS, where a key is used once a session,
// keeps the standard one.

// stdlibRules makes the verification that of crypto/ed25519: without the
// cofactor.
var stdlibRules = &voi.Options{Verify: voi.VerifyOptionsStdLib}

// Verifier is a public key that is prepared for verification: worth keeping for
// a node that writes more than one message. It is read-only.
type Verifier struct {
	key      [keySize]byte
	id       PeerID
	expanded *voi.ExpandedPublicKey // nil if the bytes are no key
}

// NewVerifier prepares a key. An invalid key refuses every signature.
func NewVerifier(key [keySize]byte) *Verifier {
	o := &Verifier{key: key, id: PeerIDOf(key[:])}
	if expanded, err := voi.NewExpandedPublicKey(key[:]); err == nil {
		o.expanded = expanded
	}
	return o
}

// ID is the peer ID of the key.
func (v *Verifier) ID() PeerID { return v.id }

// VerifyWith is Verify with a prepared key. The message must name that key.
func (g *Gossip) VerifyWith(o *Verifier, l *GossipMessage, id b3.Address) error {
	if len(g.Sig) == 0 {
		return refuse("oap.gossip", Unsigned, "the letter on %q is not signed", l.Topic)
	}
	if l.Key != o.key || o.expanded == nil || len(g.Sig) != sigSize || !voi.VerifyExpandedWithOptions(o.expanded, signingInput(id), g.Sig, stdlibRules) {
		return refuse("oap.gossip", BadSig, "the signature of the letter on %q does not verify", l.Topic)
	}
	return nil
}

// Verify checks the signature over the id of a message. An envelope without one
// is refused as Unsigned; the caller decides whether a topic needs one.
func (g *Gossip) Verify(l *GossipMessage, id b3.Address) error {
	return g.VerifyWith(NewVerifier(l.Key), l, id)
}

// sign signs the id of a message. The same key and id give the same signature
// with every library.
func sign(key ed25519.PrivateKey, id b3.Address) []byte {
	return voi.Sign(voi.PrivateKey(key), signingInput(id))
}
