package record

import (
	"bytes"
	"crypto/ed25519"
	"math"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// MaxRecord is the maximum size of an encoded name record, in bytes. The
// longest name makes one of less than 500.
const MaxRecord = 4 << 10

// signedPrefix precedes the body in the signed bytes, so that the signature is
// valid for nothing else.
const signedPrefix = "micronode name v1\x00"

// Name is the signed record of a name. It can be verified wherever it came
// from. Times are in milliseconds.
type Name struct {
	Name     string
	Key      ed25519.PublicKey // of the owner
	Manifest b3.Address        // the value of the name
	Seq      uint64            // of two records the one with the higher number counts
	Issued   time.Time
	Expires  time.Time // from then on it is invalid
	Sig      []byte
}

// body is the signed part.
type body struct {
	Name     string `cbor:"name"`
	Manifest []byte `cbor:"manifest"`
	Seq      uint64 `cbor:"seq"`
	Issued   uint64 `cbor:"issued"`
	Expires  uint64 `cbor:"expires"`
}

// envelope is the encoded record.
type envelope struct {
	Body []byte `cbor:"body"`
	Sig  []byte `cbor:"sig"`
	Key  []byte `cbor:"key"`
}

// SignName returns the record with its key, its signature and its times as they
// are encoded. The caller has checked the name, and Expires must be after
// Issued; otherwise DecodeName rejects the record.
func SignName(key ed25519.PrivateKey, n Name) Name {
	n.Key = key.Public().(ed25519.PublicKey)
	n.Issued = time.UnixMilli(int64(milliseconds(n.Issued))).UTC()
	n.Expires = time.UnixMilli(int64(milliseconds(n.Expires))).UTC()
	n.Sig = ed25519.Sign(key, signedBytes(n.body()))
	return n
}

// Encode is the one encoding of the record.
func (n Name) Encode() []byte {
	return encode(envelope{Body: n.body(), Sig: n.Sig, Key: n.Key})
}

func (n Name) body() []byte {
	return encode(body{
		Name: n.Name, Manifest: n.Manifest[:], Seq: n.Seq,
		Issued: milliseconds(n.Issued), Expires: milliseconds(n.Expires),
	})
}

// DecodeName decodes a record and verifies its signature. A record has one
// encoding; any other is Malformed, and a signature that does not match is
// InvalidSig. [Name.Check] verifies its owner and its validity.
func DecodeName(raw []byte) (Name, error) {
	name, signed, err := parseRecord(raw)
	if err == nil && !ed25519.Verify(name.Key, signedBytes(signed), name.Sig) {
		err = fault.New("index.record", fault.InvalidSig, "the record of the name %q is not signed by the key in it", name.Name)
	}
	if err != nil {
		return Name{}, err
	}
	return name, nil
}

// DecodeNameUnverified decodes a record whose signature was verified before,
// such as one from a file of this node's own. It does not verify it again.
func DecodeNameUnverified(raw []byte) (Name, error) {
	name, _, err := parseRecord(raw)
	return name, err
}

// parseRecord decodes a record, and returns its signed bytes, too.
func parseRecord(raw []byte) (Name, []byte, error) {
	if len(raw) > MaxRecord {
		return Name{}, nil, recordError("a record of %d bytes; the cap is %d", len(raw), MaxRecord)
	}
	var outer envelope
	if err := decode(raw, &outer, "record"); err != nil {
		return Name{}, nil, err
	}
	if len(outer.Key) != ed25519.PublicKeySize || len(outer.Sig) != ed25519.SignatureSize {
		return Name{}, nil, recordError("a key of %d bytes and a signature of %d", len(outer.Key), len(outer.Sig))
	}
	var inner body
	if err := decode(outer.Body, &inner, "body"); err != nil {
		return Name{}, nil, err
	}
	if err := inner.check(); err != nil {
		return Name{}, nil, err
	}
	return Name{
		Name: inner.Name, Key: outer.Key, Manifest: b3.Address(inner.Manifest), Seq: inner.Seq,
		Issued: time.UnixMilli(int64(inner.Issued)).UTC(), Expires: time.UnixMilli(int64(inner.Expires)).UTC(), Sig: outer.Sig,
	}, outer.Body, nil
}

// check checks the fields of a body.
func (b *body) check() error {
	switch {
	case len(b.Manifest) != len(b3.Address{}):
		return recordError("an address of %d bytes", len(b.Manifest))
	case b.Issued > maxMillis || b.Expires > maxMillis:
		return recordError("a time beyond the year 9999")
	case b.Expires <= b.Issued:
		return recordError("a record that expires before it is issued")
	}
	return fault.Wrap("index.record", CheckName(b.Name))
}

// maxMillis is the last millisecond of the year 9999, beyond which times cannot
// be formatted as text.
const maxMillis = 253_402_300_799_999

// milliseconds is the encoded form of a time, clamped to the valid range.
func milliseconds(t time.Time) uint64 {
	if t.After(time.UnixMilli(maxMillis)) {
		return maxMillis
	}
	return uint64(max(0, t.UnixMilli()))
}

// Owner is the peer that signed the record.
func (n Name) Owner() oap.PeerID { return oap.PeerIDOf(n.Key) }

// MaxAhead is how far the clock of the owner of a name may be ahead, at least. It
// is more than what messages allow: only the owner can sign a record, and one that
// is dated ahead lives longer by no more than that.
const MaxAhead = time.Hour

// Check reports whether the record answers the question now. A record of
// another name is Malformed and one of another peer is InvalidSig, because only
// a malicious or faulty peer sends one; an expired one is Expired; and one that
// was issued later than now, by more than skew and MaxAhead, is Malformed.
func (n Name) Check(q Question, now time.Time, skew time.Duration) error {
	switch {
	case q.Kind != ByName || n.Name != q.Name:
		return recordError("a record of the name %q, where %q was asked for", truncate(n.Name), truncate(q.String()))
	case n.Owner() != q.Owner:
		return fault.New("index.record", fault.InvalidSig, "the record of the name %q is signed by %s, not by %s", truncate(n.Name), n.Owner(), q.Owner).
			Advise("The peer sent a record of another owner. Ask other peers; only the named peer can sign its names.")
	case !now.Before(n.Expires):
		return fault.New("index.record", fault.Expired, "the record of the name %q expired at %s", truncate(n.Name), n.Expires.Format(time.RFC3339)).
			Advise("Its owner renews it while it is online. Ask again later, or ask the owner to set the name again.")
	case n.Issued.After(now.Add(max(skew, MaxAhead))):
		err := recordError("the record of the name %q was issued at %s: the clock of its owner is %s ahead of this node's", truncate(n.Name), n.Issued.UTC().Format(time.RFC3339), n.Issued.Sub(now).Round(time.Second))
		err.Next = "One of the two clocks is wrong: compare them with `date -u`, and set that one. For names they may differ by " + max(skew, MaxAhead).String() + "."
		return err
	}
	return nil
}

// Newer returns the one of two records of a name that counts: the one with the
// higher number. If the numbers are equal it is the one whose bytes are
// greater, which is arbitrary, but the same on all nodes. Nil is older than any
// record.
func Newer(a, b *Name) *Name {
	switch {
	case a == nil:
		return b
	case b == nil || a.Seq > b.Seq:
		return a
	case a.Seq < b.Seq || bytes.Compare(a.Encode(), b.Encode()) < 0:
		return b
	}
	return a
}

// NextSeq is the number of the next record: the time in milliseconds, so that a
// node that lost its state is still accepted, but always higher than what was
// seen.
func NextSeq(now time.Time, seen uint64) uint64 {
	if seen == math.MaxUint64 {
		return seen
	}
	return max(uint64(max(0, now.UnixMilli())), seen+1)
}

// RecordKey is the DHT key of the record of a name. Peer and name are hashed
// together, so that a peer that stores the record of an unknown name cannot
// tell from the key which one it is.
func RecordKey(of oap.PeerID, name string) string {
	sum := b3.Of(append(append(of[:], 0), name...))
	return "/micronode/" + Base32.EncodeToString(sum[:])
}

func signedBytes(body []byte) []byte { return append([]byte(signedPrefix), body...) }

// encoding is RFC 8949's core deterministic encoding, in which maps are sorted
// and numbers are as short as they can be.
var encoding = must(cbor.CoreDetEncOptions().EncMode())

// decoding rejects everything ambiguous, and unknown keys: they would be
// signed, but have no meaning here.
var decoding = must(cbor.DecOptions{
	DupMapKey:         cbor.DupMapKeyEnforcedAPF,
	IndefLength:       cbor.IndefLengthForbidden,
	MaxNestedLevels:   4,
	TagsMd:            cbor.TagsForbidden,
	UTF8:              cbor.UTF8RejectInvalid,
	ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
}.DecMode())

func encode(v any) []byte { return must(encoding.Marshal(v)) }

// decode decodes bytes and compares them with their re-encoding, so that every
// record has one spelling.
func decode[T envelope | body](raw []byte, into *T, what string) error {
	if err := decoding.Unmarshal(raw, into); err != nil {
		refusal := recordError("the %s is not a map of CBOR with the keys of one", what)
		refusal.Err = err
		return refusal
	}
	if !bytes.Equal(encode(*into), raw) {
		return recordError("the %s is not in its deterministic encoding, or lacks a key", what)
	}
	return nil
}

func recordError(format string, args ...any) *fault.Error {
	return fault.New("index.record", fault.Malformed, format, args...).
		Advise("Ask another peer: this one sent an invalid name record.")
}

// must is for what cannot fail, because it is fixed at compile time.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
