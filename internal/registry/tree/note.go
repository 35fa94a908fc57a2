package tree

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"micronode/b3"
	"micronode/fault"
)

// Origin is the name of a registry's log: in its checkpoints, and of its key.
func Origin(registry b3.Address) string {
	return "micronode/registry/" + hex.EncodeToString(registry[:8])
}

// Signer signs the notes of one log.
type Signer struct {
	key      ed25519.PrivateKey
	verifier note.Verifier // the same name and key hash
	text     string
}

// NewSigner returns the signer of a log with this key.
func NewSigner(key ed25519.PrivateKey, origin string) (*Signer, error) {
	const op = "tree.signer"
	if len(key) != ed25519.PrivateKeySize {
		return nil, fault.New(op, fault.Malformed, "an Ed25519 private key has %d bytes, not %d", ed25519.PrivateKeySize, len(key))
	}
	text, err := VerifierKey(key.Public().(ed25519.PublicKey), origin)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	v, err := note.NewVerifier(text)
	if err != nil {
		return nil, fault.WrapKind(op, fault.Malformed, err)
	}
	return &Signer{key, v, text}, nil
}

// Name is part of note.Signer.
func (s *Signer) Name() string { return s.verifier.Name() }

// KeyHash is part of note.Signer.
func (s *Signer) KeyHash() uint32 { return s.verifier.KeyHash() }

// Sign is part of note.Signer.
func (s *Signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// VerifierKey returns the key that verifies this signer's notes.
func (s *Signer) VerifierKey() string { return s.text }

// VerifierKey writes a public key as the signed-note tools read it:
// "<origin>+<key hash>+<base64>".
func VerifierKey(key ed25519.PublicKey, origin string) (string, error) {
	const op = "tree.verifier key"
	if len(key) != ed25519.PublicKeySize {
		return "", fault.New(op, fault.Malformed, "an Ed25519 public key has %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	text, err := note.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return "", fault.WrapKind(op, fault.Malformed, err)
	}
	return text, nil
}

// NewVerifier reads a verifier key in its canonical encoding.
func NewVerifier(key string) (note.Verifier, error) {
	refusal := fault.New("tree.verifier", fault.Malformed, "this is not a verifier key: %.120q", key).
		Advise("Give the whole line that `GET /registry/key` answers: name, +, 8 hex digits, +, base64.")
	v, err := note.NewVerifier(key)
	if err != nil {
		refusal.Err = err
		return nil, refusal
	}

	// The library also accepts other encodings of the same key.
	_, base, _ := strings.Cut(strings.TrimPrefix(key, v.Name()+"+"), "+")
	raw, err := base64.StdEncoding.DecodeString(base)
	if err != nil || len(raw) != 1+ed25519.PublicKeySize {
		return nil, refusal
	}
	if again, err := VerifierKey(raw[1:], v.Name()); err != nil || again != key {
		return nil, refusal
	}
	return v, nil
}

// signNote signs a text.
func signNote(op, text string, s *Signer) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: text}, s)
	if err != nil {
		return nil, fault.WrapKind(op, fault.Malformed, err)
	}
	return signed, nil
}

// openNote returns the text of a note that is signed by the verifier's key and
// by no other. The bytes must be exactly those that signing produces: a note
// with two encodings could be changed unnoticed.
func openNote(op string, signed []byte, v note.Verifier) (string, error) {
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil {
		e := fault.New(op, fault.InvalidSig, "the note is not signed by the key %s", v.Name())
		e.Err = err
		return "", e
	}
	sig := n.Sigs[0].Base64
	_, err = base64.StdEncoding.Strict().DecodeString(sig)
	if err != nil || string(signed) != n.Text+"\n— "+v.Name()+" "+sig+"\n" {
		return "", fault.New(op, fault.Malformed, "the note does not have exactly one signature in canonical form")
	}
	return n.Text, nil
}
