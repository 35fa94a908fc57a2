package oap

import (
	"bytes"
	"crypto/ed25519"
	"time"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
)

// introductionContext comes before the hash in what is signed.
const introductionContext = "oap1 introduction\x00"

// MaxIntroductionLife is for how long a node may let itself be introduced. It signs
// anew before.
const MaxIntroductionLife = 48 * time.Hour

// Introduction is what a node signs about itself for one other node, its
// introducer: that this one may tell its peers of it, and where it is. It is worth
// nothing in the mouth of anybody else.
type Introduction struct {
	Key   [keySize]byte `cbor:"key"` // its Ed25519 public key
	Via   [idSize]byte  `cbor:"via"` // the peer ID of the introducer
	Seq   uint64        `cbor:"seq"` // of two that a node has signed, the greater holds
	Until uint64        `cbor:"until"`
	Addrs []string      `cbor:"addrs"` // IP:PORT of its overlay, the best first; none if it only dials
}

// introductionFields are the fields of an introduction. It may have no others.
var introductionFields = []field{
	bytesField("key", keySize, keySize), bytesField("via", idSize, idSize), uintField("seq", 0), uintField("until", 0),
	listField("addrs", 0, MaxAddrs, textField("", 1, maxWord)),
}

// Seal encodes an introduction behind its signature. The key must be the one that
// it names.
func (i *Introduction) Seal(key ed25519.PrivateKey) ([]byte, error) {
	body, err := i.encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(key.Public().(ed25519.PublicKey), i.Key[:]) {
		return nil, refuse("oap.seal", BadSig, "the introduction names another key than the one that signs")
	}
	return append(voi.Sign(voi.PrivateKey(key), introductionInput(body)), body...), nil
}

func (i *Introduction) encode() ([]byte, error) {
	var out bytes.Buffer
	if err := encMode.MarshalToBuffer(i, &out); err != nil {
		return nil, refuse("oap.introduction", BadMessage, "%v", err)
	}
	return out.Bytes(), checkIntroduction(out.Bytes())
}

func introductionInput(body []byte) []byte {
	id := b3.Of(body)
	return append([]byte(introductionContext), id[:]...)
}

func checkIntroduction(body []byte) error {
	var keys map[string]cbor.RawMessage
	if err := decMode.Unmarshal(body, &keys); err != nil {
		return refuse("oap.introduction", BadMessage, "not a map with text keys: %v", err)
	}
	return checkFields("introduction", introductionFields, keys)
}

// OpenIntroduction decodes an introduction and checks its signature, and returns
// the ID of the node that signed it. Its time is for the caller to check, and
// whether Via is who passed it on.
func OpenIntroduction(raw []byte) (i Introduction, id PeerID, err error) {
	if len(raw) <= sigSize {
		return i, id, refuse("oap.introduction", BadMessage, "an introduction of %d bytes", len(raw))
	}
	sig, body := raw[:sigSize], raw[sigSize:]
	if err := checkIntroduction(body); err != nil {
		return i, id, err
	}
	if err := decMode.Unmarshal(body, &i); err != nil {
		return Introduction{}, id, refuse("oap.introduction", BadMessage, "%v", err)
	}
	if again, err := i.encode(); err != nil || !bytes.Equal(again, body) {
		return Introduction{}, id, refuse("oap.introduction", BadMessage, "an introduction that is not in its deterministic encoding, or has other keys")
	}
	if !voi.VerifyWithOptions(i.Key[:], introductionInput(body), sig, stdlibRules) {
		return Introduction{}, id, refuse("oap.introduction", BadSig, "the signature of the introduction does not verify")
	}
	return i, PeerIDOf(i.Key[:]), nil
}

// CheckTime refuses an introduction that has ended, or that is for longer than it
// may be.
func (i *Introduction) CheckTime(now time.Time, skew time.Duration) error {
	clock := uint64(max(0, now.UnixMilli()))
	switch most := uint64((MaxIntroductionLife + skew).Milliseconds()); {
	case i.Until <= clock:
		return fault.New("oap.introduction", fault.Expired, "the introduction has ended")
	case i.Until-clock > most:
		return fault.New("oap.introduction", fault.Malformed, "the introduction is for more than %s", MaxIntroductionLife)
	}
	return nil
}
