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

// SignerSet lists the keys that may approve, and how many of them must.
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

// HasKey reports whether a key is in the set.
func (s SignerSet) HasKey(public PublicKey) bool {
	return slices.ContainsFunc(s.Keys, func(k Signer) bool { return k.Public == public })
}

func (o *objectDecoder) signers() SignerSet {
	var s SignerSet
	for i, value := range o.list("keys", 1, maxSigners) {
		inner := newObjectDecoder(o.op, o.pathOf("keys["+strconv.Itoa(i)+"]"), value)
		k := Signer{ID: inner.id("signer_id", maxSignerID), Public: inner.key("public")}
		o.addError(inner.finish())
		if _, taken := s.Find(k.ID); taken {
			o.fail("keys", "names the signer %s twice", quote(k.ID))
		}
		if s.HasKey(k.Public) {
			o.fail("keys", "holds the key of %s twice: one key is one signer", quote(k.ID))
		}
		s.Keys = append(s.Keys, k)
	}
	s.M = int(o.integer("m", 1, int64(max(1, len(s.Keys)))))
	return s
}

// stdlibOptions makes signature verification agree with crypto/ed25519.
var stdlibOptions = &voi.Options{Verify: voi.VerifyOptionsStdLib}

// activeSigners is a signer set in force, with its keys prepared for
// verification. It is read-only.
type activeSigners struct {
	set      SignerSet
	expanded []*voi.ExpandedPublicKey // in the order of set.Keys
}

// newActiveSigners takes a set that was validated, so that every key of it is a
// good one.
func newActiveSigners(item Item) *activeSigners {
	set, _ := item.SignerSet()
	c := &activeSigners{set: set}
	for _, k := range set.Keys {
		expanded, _ := voi.NewExpandedPublicKey(k.Public[:])
		c.expanded = append(c.expanded, expanded)
	}
	return c
}

// indexOfKey returns the index of a key in the set, or -1.
func (a *activeSigners) indexOfKey(public PublicKey) int {
	return slices.IndexFunc(a.set.Keys, func(k Signer) bool { return k.Public == public })
}

// indexOfSigner returns the index of a signer in the set, or -1.
func (a *activeSigners) indexOfSigner(id string) int {
	return slices.IndexFunc(a.set.Keys, func(k Signer) bool { return k.ID == id })
}

func (a *activeSigners) verify(index int, message, sig []byte) bool {
	return len(sig) == voi.SignatureSize && voi.VerifyExpandedWithOptions(a.expanded[index], message, sig, stdlibOptions)
}
