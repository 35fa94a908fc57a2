package ledger

import (
	"slices"
	"strconv"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"
)

const (
	maxSigners  = 64
	maxSignerID = 64
)

// SignerSet says who may approve, and how many of them must.
type SignerSet struct {
	M    int      `json:"m"`
	Keys []Signer `json:"keys"`
}

// Signer is one key and the name that people know it by.
type Signer struct {
	ID     string    `json:"signer_id"`
	Public PublicKey `json:"public"`
}

// Item is the signer set as an item of the registry: Malformed if it cannot be
// one.
func (s SignerSet) Item() (Item, error) {
	b := []byte(`{"id":"signers","keys":[`)
	for i, k := range s.Keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"public":"`...)
		b = append(k.Public.appendTo(b), `","signer_id":`...)
		b = append(appendText(b, k.ID), '}')
	}
	b = append(b, `],"kind":"signers","m":`...)
	b = append(strconv.AppendInt(b, int64(s.M), 10), '}')
	return ParseItem(b)
}

// Find returns the signer with this name.
func (s SignerSet) Find(id string) (Signer, bool) {
	for _, k := range s.Keys {
		if k.ID == id {
			return k, true
		}
	}
	return Signer{}, false
}

// Holds says whether a key is in the set.
func (s SignerSet) Holds(public PublicKey) bool {
	return slices.ContainsFunc(s.Keys, func(k Signer) bool { return k.Public == public })
}

func (f *form) signers() SignerSet {
	var s SignerSet
	for i, value := range f.list("keys", 1, maxSigners) {
		inner := openForm(f.op, f.at("keys["+strconv.Itoa(i)+"]"), value)
		k := Signer{ID: inner.id("signer_id", maxSignerID), Public: inner.key("public")}
		f.keep(inner.end())
		if _, taken := s.Find(k.ID); taken {
			f.fail("keys", "names the signer %s twice", quote(k.ID))
		}
		if s.Holds(k.Public) {
			f.fail("keys", "holds the key of %s twice: one key is one signer", quote(k.ID))
		}
		s.Keys = append(s.Keys, k)
	}
	s.M = int(f.integer("m", 1, int64(max(1, len(s.Keys)))))
	return s
}

// asStandard makes the verdict on a signature that of crypto/ed25519.
var asStandard = &voi.Options{Verify: voi.VerifyOptionsStdLib}

// council is a signer set in force, with its keys made ready for checking. It
// is read-only.
type council struct {
	set   SignerSet
	ready []*voi.ExpandedPublicKey // in the order of set.Keys
}

// newCouncil takes a set that was held against the schema, so that every key
// of it is a good one.
func newCouncil(item Item) *council {
	set, _ := item.SignerSet()
	c := &council{set: set}
	for _, k := range set.Keys {
		expanded, _ := voi.NewExpandedPublicKey(k.Public[:])
		c.ready = append(c.ready, expanded)
	}
	return c
}

// seat is the place of a key in the set, or -1.
func (c *council) seat(public PublicKey) int {
	return slices.IndexFunc(c.set.Keys, func(k Signer) bool { return k.Public == public })
}

// seatOf is the place of a signer in the set, or -1.
func (c *council) seatOf(id string) int {
	return slices.IndexFunc(c.set.Keys, func(k Signer) bool { return k.ID == id })
}

func (c *council) verify(seat int, message, sig []byte) bool {
	return len(sig) == voi.SignatureSize && voi.VerifyExpandedWithOptions(c.ready[seat], message, sig, asStandard)
}
