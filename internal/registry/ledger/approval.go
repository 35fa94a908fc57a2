package ledger

import (
	"crypto/ed25519"
	"encoding/base64"
	"time"
)

// Algorithm is the one that signatures are made with.
const Algorithm = "ed25519"

// Approval is a signer's signature over what a proposal gives to sign.
type Approval struct {
	SignerID string
	Algo     string
	Sig      []byte
	SignedAt time.Time
}

// Approve signs what a proposal gives to sign. Look at it with Inspect first.
func Approve(signThis []byte, key ed25519.PrivateKey, signerID string, at time.Time) Approval {
	return Approval{SignerID: signerID, Algo: Algorithm, Sig: ed25519.Sign(key, signThis), SignedAt: millis(at)}
}

// DecodeApproval reads {"signer_id","algo":"ed25519","sig":"base64","signed_at"}
// in any spelling of JSON.
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
	f := openForm("registry.approve", "", value)
	a := f.approval(f.moment("signed_at"))
	if err := f.end(); err != nil {
		return Approval{}, err
	}
	return a, nil
}

func (f *form) approval(signedAt time.Time) Approval {
	a := Approval{
		SignerID: f.id("signer_id", maxSignerID),
		Algo:     f.text("algo"),
		Sig:      f.bytes("sig", ed25519.SignatureSize),
		SignedAt: signedAt,
	}
	if a.Algo != Algorithm {
		f.fail("algo", "must be %q", Algorithm)
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

// Counted is an approval that stands in a header, with the key that it was
// made with.
type Counted struct {
	Approval
	Public PublicKey
}

// MarshalJSON writes the approval as it stands in a header.
func (c Counted) MarshalJSON() ([]byte, error) { return c.appendTo(nil), nil }

func (c Counted) appendTo(b []byte) []byte {
	b = append(b, `{"algo":"ed25519","public":"`...)
	b = append(c.Public.appendTo(b), `",`...)
	return append(appendSignature(b, c.Approval), '}')
}

// millis is a time as it is written: UTC, whole milliseconds.
func millis(at time.Time) time.Time { return at.UTC().Truncate(time.Millisecond) }

func appendTime(b []byte, at time.Time) []byte {
	b = append(b, '"')
	return append(at.UTC().AppendFormat(b, layout), '"')
}
