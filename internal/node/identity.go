package node

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"slices"
	"strings"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/oap"
)

// Identity is the key by which a node is known to others. The key is an
// ordinary heap value, since the standard library cannot sign with one in foreign
// memory: it may be swapped out, and it is wiped when the node is closed.
type Identity struct {
	private ed25519.PrivateKey
	peerID  string
	source  string
}

// NewIdentity generates a new key.
func NewIdentity() (*Identity, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fault.Wrap("identity.new", err)
	}
	return newIdentity(private, "ephemeral"), nil
}

func newIdentity(private ed25519.PrivateKey, source string) *Identity {
	id := oap.PeerIDOf(private.Public().(ed25519.PublicKey))
	return &Identity{private: private, peerID: id.String(), source: source}
}

// wipe zeroes the key. All signers share this copy, and have stopped.
func (i *Identity) wipe() { clear(i.private) }

// PeerID is the node's ID for other nodes: the BLAKE3 of its public key, 52
// characters.
func (i *Identity) PeerID() string { return i.peerID }

// Ephemeral reports whether the key is lost with the process.
func (i *Identity) Ephemeral() bool { return i.source == "ephemeral" }

// pemType is what OpenSSL calls such a key too.
const pemType = "PRIVATE KEY"

// WritePEM writes the key as PKCS #8, which other tools can read.
func (i *Identity) WritePEM(w io.Writer) error {
	der, err := x509.MarshalPKCS8PrivateKey(i.private)
	if err != nil {
		return fault.Wrap("identity.write", err)
	}
	return fault.Wrap("identity.write", pem.Encode(w, &pem.Block{Type: pemType, Bytes: der}))
}

// checkIdentity checks the syntax of an identity setting, not what it names.
func checkIdentity(spec string) error {
	scheme, rest, _ := strings.Cut(spec, ":")
	if spec == "ephemeral" || rest != "" && slices.Contains([]string{"file", "env", "fd"}, scheme) {
		return nil
	}
	return fault.New("identity.load", fault.Malformed, "%q is not an identity", spec).
		Advise("Use ephemeral, file:PATH, env:VARIABLE or fd:NUMBER.")
}

// LoadIdentity loads the key that a setting names.
func LoadIdentity(spec string) (*Identity, error) {
	if err := checkIdentity(spec); err != nil {
		return nil, err
	}
	if spec == "ephemeral" {
		return NewIdentity()
	}
	const howToMake = "Make a key with `micronode identity new --out FILE`, and name it as file:FILE."
	text, err := capability.SecretText(spec)
	if err != nil {
		return nil, &fault.Error{Op: "identity.load", Kind: fault.KindOf(err), Detail: "the identity cannot be read", Next: howToMake, Err: err}
	}
	private, err := parsePEM(text)
	clear(text)
	if err != nil {
		return nil, &fault.Error{Op: "identity.load", Kind: fault.Malformed, Err: err,
			Detail: spec + " does not hold an Ed25519 key in PKCS #8 PEM",
			Next:   howToMake}
	}
	return newIdentity(private, spec), nil
}

func parsePEM(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, fault.New("identity.load", fault.Malformed, "there is no %s block", pemType)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	clear(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fault.New("identity.load", fault.Malformed, "the key is not an Ed25519 key")
	}
	return private, nil
}
