package approval

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/keyfile"
)

// algorithm is the only one that signers use.
const algorithm = "ed25519"

// Sign signs the message, and returns the request with the signature. signer
// is the ID of the key's owner, empty if it is not known.
func (v Verified) Sign(key ed25519.PrivateKey, signer string, now time.Time) Request {
	r := v.Request
	r.SignerID, r.Public, r.Algo = signer, keyfile.FormatPublic(keyfile.PublicOf(key)), algorithm
	r.Sig, r.SignedAt = ed25519.Sign(key, r.SignThis), now.UTC().Truncate(time.Millisecond)
	return r
}

// Approval is the signature as a node takes it.
func (r Request) Approval() client.Approval {
	return client.Approval{SignerID: r.SignerID, Algo: r.Algo, Sig: r.Sig, SignedAt: r.SignedAt}
}

// SignersAt returns the signers that a version has set.
func SignersAt(ctx context.Context, node *client.Client, version uint64) ([]client.RegistryKey, error) {
	signersVersion, err := node.RegistryVersion(ctx, version, false)
	if err != nil {
		return nil, err
	}
	for _, raw := range signersVersion.Ops {
		var op struct {
			Item struct {
				Kind string               `json:"kind"`
				Keys []client.RegistryKey `json:"keys"`
			} `json:"item"`
		}
		if json.Unmarshal(raw, &op) == nil && op.Item.Kind == "signers" {
			return op.Item.Keys, nil
		}
	}
	return nil, mismatch("version %d did not change the signers", version)
}

// SignerOf finds the signer of a key.
func SignerOf(key ed25519.PrivateKey, signers []client.RegistryKey) (string, error) {
	public := keyfile.FormatPublic(keyfile.PublicOf(key))
	for _, one := range signers {
		if one.Public == public {
			return one.SignerID, nil
		}
	}
	return "", &fault.Error{Op: op, Kind: fault.UnknownSigner, Detail: "the key " + public + " is not that of a signer",
		Next: "Use the key of a signer; micronode registry show lists them. Nothing was signed."}
}

// Signature is a signature that was made elsewhere.
type Signature struct {
	Sig []byte
	At  time.Time // when it was made, or read if it does not say
}

// ParseSignature reads a signature in one of its encodings: the bytes, their
// base64, or a signed request.
func ParseSignature(raw []byte, now time.Time) (Signature, error) {
	if len(raw) == ed25519.SignatureSize {
		return Signature{raw, now}, nil
	}
	if s, ok := ParseBase64Signature(string(bytes.TrimSpace(raw)), now); ok {
		return s, nil
	}
	var r Request
	if json.Unmarshal(raw, &r) == nil && len(r.Sig) == ed25519.SignatureSize {
		if !r.SignedAt.IsZero() {
			now = r.SignedAt
		}
		return Signature{r.Sig, now}, nil
	}
	return Signature{}, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "there is no Ed25519 signature in it",
		Next: "Give 64 bytes, or their base64, or the output of micronode registry approve --print."}
}

// ParseBase64Signature reads a signature as a user types it.
func ParseBase64Signature(text string, now time.Time) (Signature, bool) {
	sig, err := base64.StdEncoding.DecodeString(text)
	return Signature{sig, now}, err == nil && len(sig) == ed25519.SignatureSize
}

// Approval finds the signer of a signature over the message.
func (v Verified) Approval(s Signature, signers []client.RegistryKey) (client.Approval, error) {
	for _, signer := range signers {
		public, err := keyfile.ParsePublic(signer.Public)
		if err == nil && ed25519.Verify(public, v.Request.SignThis, s.Sig) {
			return client.Approval{SignerID: signer.SignerID, Algo: algorithm, Sig: s.Sig, SignedAt: s.At}, nil
		}
	}
	return client.Approval{}, &fault.Error{Op: op, Kind: fault.InvalidSig, Detail: "it is not a signature of this proposal by a signer",
		Next: "Sign exactly the bytes of sign_this, with the key of a signer; micronode registry show lists them."}
}
