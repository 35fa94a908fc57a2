package record

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base32"
	"math"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// MaxRecord is how many bytes an encoded name record may have. The longest
// name makes one of less than 500.
const MaxRecord = 4 << 10

// signedPrefix stands before the body in what is signed, so that a signature
// made here is good for nothing else.
const signedPrefix = "micronode name v1\x00"

// Name is the record in which a node says what it means by a name. Whoever
// has it can check it, wherever it came from. Times are in milliseconds.
type Name struct {
	Name     string
	Key      ed25519.PublicKey // of the node that says so
	Manifest b3.Address        // what the name means
	Seq      uint64            // of two records the one with the higher number counts
	Issued   time.Time
	Expires  time.Time // from then on it counts no more
	Sig      []byte
}

// body is what is signed.
type body struct {
	Name     string `cbor:"name"`
	Manifest []byte `cbor:"manifest"`
	Seq      uint64 `cbor:"seq"`
	Issued   uint64 `cbor:"issued"`
	Expires  uint64 `cbor:"expires"`
}

// envelope is what travels.
type envelope struct {
	Body []byte `cbor:"body"`
	Sig  []byte `cbor:"sig"`
	Key  []byte `cbor:"key"`
}

// SignName returns the record with its key, its signature and its times as they
// travel. The caller has checked the name and gives a life that is not empty;
// otherwise DecodeName will refuse what comes of it.
func SignName(key ed25519.PrivateKey, n Name) Name {
	n.Key = key.Public().(ed25519.PublicKey)
	n.Issued = time.UnixMilli(int64(milliseconds(n.Issued))).UTC()
	n.Expires = time.UnixMilli(int64(milliseconds(n.Expires))).UTC()
	n.Sig = ed25519.Sign(key, toSign(n.body()))
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

// DecodeName reads a record and checks its signature. A record has one
// encoding; whatever is not spelt like that is Malformed, and a signature that
// does not fit is InvalidSig. Whose record it is, and whether it still counts,
// is for [Name.Check].
func DecodeName(raw []byte) (Name, error) {
	name, signed, err := read(raw)
	if err == nil && !ed25519.Verify(name.Key, toSign(signed), name.Sig) {
		err = fault.New("index.record", fault.InvalidSig, "the record of the name %q is not signed by the key in it", name.Name)
	}
	if err != nil {
		return Name{}, err
	}
	return name, nil
}

// RecallName reads a record whose signature was checked when it came, such as
// one from a file of this node's own. It does not check it again.
func RecallName(raw []byte) (Name, error) {
	name, _, err := read(raw)
	return name, err
}

// read takes a record apart: what it says, and the bytes that are signed.
func read(raw []byte) (Name, []byte, error) {
	if len(raw) > MaxRecord {
		return Name{}, nil, refuseRecord("a record of %d bytes; the cap is %d", len(raw), MaxRecord)
	}
	var outer envelope
	if err := decode(raw, &outer, "record"); err != nil {
		return Name{}, nil, err
	}
	if len(outer.Key) != ed25519.PublicKeySize || len(outer.Sig) != ed25519.SignatureSize {
		return Name{}, nil, refuseRecord("a key of %d bytes and a signature of %d", len(outer.Key), len(outer.Sig))
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

// check holds the parts of a body against their bounds.
func (b *body) check() error {
	switch {
	case len(b.Manifest) != len(b3.Address{}):
		return refuseRecord("an address of %d bytes", len(b.Manifest))
	case b.Issued > latest || b.Expires > latest:
		return refuseRecord("a time beyond the year 9999")
	case b.Expires <= b.Issued:
		return refuseRecord("a record that expires before it is issued")
	}
	return fault.Wrap("index.record", CheckName(b.Name))
}

// latest is the last millisecond of the year 9999, beyond which times cannot be
// written as text.
const latest = 253_402_300_799_999

// milliseconds is a time as it travels. What lies outside what can be written
// is put to its edge.
func milliseconds(t time.Time) uint64 {
	if t.After(time.UnixMilli(latest)) {
		return latest
	}
	return uint64(max(0, t.UnixMilli()))
}

// Of is the peer whose record it is.
func (n Name) Of() oap.PeerID { return oap.PeerIDOf(n.Key) }

// Check tells whether the record answers the question now. A record of another
// name is Malformed and one of another peer is InvalidSig, because only a liar
// or a fault sends one; a record whose time has passed is Expired; and one that
// was issued later than now, by more than clocks may differ, is Malformed.
func (n Name) Check(q Question, now time.Time, skew time.Duration) error {
	switch {
	case q.Kind != ByName || n.Name != q.Name:
		return refuseRecord("a record of the name %q, where %q was asked for", short(n.Name), short(q.String()))
	case n.Of() != q.Of:
		err := fault.New("index.record", fault.InvalidSig, "the record of the name %q is signed by %s, not by %s", short(n.Name), n.Of(), q.Of)
		err.Next = "Somebody hands out another's record. Ask other peers; only the peer that is named can say what its names mean."
		return err
	case !now.Before(n.Expires):
		err := fault.New("index.record", fault.Expired, "the record of the name %q expired at %s", short(n.Name), n.Expires.Format(time.RFC3339))
		err.Next = "Its owner renews it while it is online. Ask again later, or ask the owner to set the name again."
		return err
	case n.Issued.After(now.Add(skew)):
		err := refuseRecord("the record of the name %q was issued at %s, which is still to come", short(n.Name), n.Issued.Format(time.RFC3339))
		err.Next = "Set the clocks of this node and of its peer; they may differ by " + skew.String() + "."
		return err
	}
	return nil
}

// Newer is the one of two records of a name that counts: the one with the
// higher number. If the numbers are equal it is the one whose bytes are
// greater, which means nothing, but all nodes agree on it. Nil is older than
// any record.
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
// node that forgot everything is still believed, but always higher than what
// was seen.
func NextSeq(now time.Time, seen uint64) uint64 {
	if seen == math.MaxUint64 {
		return seen
	}
	return max(uint64(max(0, now.UnixMilli())), seen+1)
}

// keyText is lower-case base32 without padding, like a peer ID.
var keyText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// RecordKey is where the record of a name lies in the DHT. Peer and name are
// hashed together, so that who keeps the record of a name that it does not know
// cannot read which one it is.
func RecordKey(of oap.PeerID, name string) string {
	sum := b3.Of(append(append(of[:], 0), name...))
	return "/micronode/" + keyText.EncodeToString(sum[:])
}

func toSign(body []byte) []byte { return append([]byte(signedPrefix), body...) }

// encoding is RFC 8949's core deterministic encoding, in which maps are sorted
// and numbers are as short as they can be.
var encoding = must(cbor.CoreDetEncOptions().EncMode())

// decoding refuses all that could be read in two ways, and keys that no record
// has: they would be signed, and nobody here could say what they mean.
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

// decode reads bytes and compares them with what they would be written as, so
// that every record has one spelling.
func decode[T envelope | body](raw []byte, into *T, what string) error {
	if err := decoding.Unmarshal(raw, into); err != nil {
		refusal := refuseRecord("the %s is not a map of CBOR with the keys of one", what)
		refusal.Err = err
		return refusal
	}
	if !bytes.Equal(encode(*into), raw) {
		return refuseRecord("the %s is not in its deterministic encoding, or lacks a key", what)
	}
	return nil
}

func refuseRecord(format string, args ...any) *fault.Error {
	err := fault.New("index.record", fault.Malformed, format, args...)
	err.Next = "Ask another peer: this one hands out what is no name record."
	return err
}

// must is for what cannot fail, because it is fixed at compile time.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
