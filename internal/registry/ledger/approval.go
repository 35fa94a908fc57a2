package ledger

import (
	"crypto/ed25519"
	"encoding/base64"
	"time"
)

// Algorithm is the signature algorithm.
const Algorithm = "ed25519"

// Approval is a signer's signature over the message of a proposal.
type Approval struct {
	SignerID string
	Algo     string
	Sig      []byte
	SignedAt time.Time
}

// Approve signs the message of a proposal. Check it with ParseApprovalMessage
// first.
func Approve(signThis []byte, key ed25519.PrivateKey, signerID string, at time.Time) Approval {
	return Approval{SignerID: signerID, Algo: Algorithm, Sig: ed25519.Sign(key, signThis), SignedAt: millis(at)}
}

// DecodeApproval reads
// {"signer_id","algo":"ed25519","sig":"base64","signed_at"} in any valid JSON
// encoding.
func DecodeApproval(data []byte) (Approval, error) {
	value, err := readBody("registry.approve", data, readJSON)
	if err != nil {
		return Approval{}, err
	}
	return approvalOf(value)
}

// DecodeApprovalCBOR reads the same shape from CBOR.
func DecodeApprovalCBOR(data []byte) (Approval, error) {
	value, err := readBody("registry.approve", data, readCBOR)
	if err != nil {
		return Approval{}, err
	}
	return approvalOf(value)
}

func approvalOf(value any) (Approval, error) {
	f := newObjectDecoder("registry.approve", "", value)
	a := f.approval(f.rfc3339Time("signed_at"))
	if err := f.finish(); err != nil {
		return Approval{}, err
	}
	return a, nil
}

func (o *objectDecoder) approval(signedAt time.Time) Approval {
	a := Approval{
		SignerID: o.id("signer_id", maxSignerID),
		Algo:     o.text("algo"),
		Sig:      o.bytes("sig", ed25519.SignatureSize),
		SignedAt: signedAt,
	}
	if a.Algo != Algorithm {
		o.fail("algo", "must be %q", Algorithm)
	}
	return a
}

// MarshalJSON writes the approval as DecodeApproval reads it.
func (a Approval) MarshalJSON() ([]byte, error) {
	b := appendText([]byte(`{"algo":`), a.Algo)
	b = appendSignature(append(b, ','), a)
	return append(b, '}'), nil
}

// appendSignature writes the fields from sig on.
func appendSignature(b []byte, a Approval) []byte {
	b = append(b, `"sig":"`...)
	b = base64.StdEncoding.AppendEncode(b, a.Sig)
	b = append(b, `","signed_at":`...)
	b = appendTime(b, a.SignedAt)
	b = append(b, `,"signer_id":`...)
	return appendText(b, a.SignerID)
}

// CountedApproval is an approval in a header, with the key that it was made
// with.
type CountedApproval struct {
	Approval
	Public PublicKey
}

// MarshalJSON writes the approval as in a header.
func (c CountedApproval) MarshalJSON() ([]byte, error) { return c.appendTo(nil), nil }

func (c CountedApproval) appendTo(b []byte) []byte {
	b = append(b, `{"algo":"ed25519","public":"`...)
	b = append(c.Public.appendTo(b), `",`...)
	return append(appendSignature(b, c.Approval), '}')
}

// millis is a time as it is written: UTC, whole milliseconds.
func millis(at time.Time) time.Time { return at.UTC().Truncate(time.Millisecond) }

func appendTime(b []byte, at time.Time) []byte {
	b = append(b, '"')
	return append(at.UTC().AppendFormat(b, timeLayout), '"')
}
