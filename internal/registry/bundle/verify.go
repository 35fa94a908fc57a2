package bundle

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// Trust is what the reader of a bundle knows from elsewhere.
type Trust struct {
	Registry *b3.Address // nil if it is not known
	Key      string      // the verifier key of the log; empty if it is not known
}

// Verify checks a bundle, all of it, and returns what it says. The error names
// the first thing that is wrong.
func Verify(data []byte, trust Trust) (Report, error) {
	d, err := decode(data)
	if err != nil {
		return Report{}, err
	}
	c := check{bundle: d, trust: trust}
	for _, step := range []func() error{c.checkpoint, c.placed, c.beginning, c.changes, c.version} {
		if err := step(); err != nil {
			return Report{}, err
		}
	}
	c.caveat("A bundle shows what is in it. That no change of the signer set was left out of it, only a verification of the whole log can show.")
	return c.report, nil
}

// check goes through one bundle.
type check struct {
	bundle document
	trust  Trust
	report Report

	// The signer set in force, followed from version 0 on, and the version that
	// put it in force.
	set     ledger.SignerSet
	setItem b3.Address
	setHead ledger.Head
	setSeen ledger.Header
}

func (c *check) claim(format string, args ...any) {
	c.report.Claims = append(c.report.Claims, fmt.Sprintf(format, args...))
}

func (c *check) caveat(format string, args ...any) {
	c.report.Caveats = append(c.report.Caveats, fmt.Sprintf(format, args...))
}

// checkpoint checks whose bundle it is, and the signature.
func (c *check) checkpoint() error {
	b, trust := &c.bundle, c.trust
	if trust.Registry != nil && *trust.Registry != b.Registry {
		return refuse(fault.IntegrityFail, "the bundle is of the registry %s, not of %s", b.Registry, trust.Registry)
	}
	if trust.Key != "" && trust.Key != b.Key {
		return refuse(fault.InvalidSig, "the bundle is of a log with the key %.120q, not %.120q", b.Key, trust.Key)
	}
	verifier, err := tree.NewVerifier(b.Key)
	if err != nil {
		return within("the key", err)
	}
	if verifier.Name() != tree.Origin(b.Registry) {
		return refuse(fault.Malformed, "the key is named %s, and that of this registry %s", verifier.Name(), tree.Origin(b.Registry))
	}
	checkpoint, err := tree.ParseCheckpoint([]byte(b.Checkpoint), verifier)
	if err != nil {
		return within("the checkpoint", err)
	}
	c.report.Registry, c.report.Key, c.report.Checkpoint = b.Registry, b.Key, checkpoint
	if trust.Key == "" {
		c.claim("The checkpoint of %d versions is signed by the key that is in the bundle.", checkpoint.Size)
		c.caveat("The key is the bundle's own. Compare it with one that you have from elsewhere: %s", b.Key)
	} else {
		c.claim("The checkpoint of %d versions is signed by the key that you trust.", checkpoint.Size)
	}
	if trust.Registry == nil {
		c.caveat("The registry is the one that the bundle names. Compare it with one that you have from elsewhere: %s", b.Registry)
	}
	return nil
}

// placed checks where the version is in the log.
func (c *check) placed() error {
	b, at := &c.bundle, c.report.Checkpoint
	if err := c.included(b.Version, b.Record.Header, b.Inclusion); err != nil {
		return err
	}
	c.claim("Version %d is in that log, at its place.", b.Version)

	before := tree.RootAfter(b.Inclusion, at.Size, b.Version, tree.LeafHash(b.Record.Header))
	if err := tree.CheckConsistency(b.Consistency, at.Size, at.Root, b.Version+1, before); err != nil {
		return within("the consistency proof", err)
	}
	c.claim("The log of %d versions begins with the log of %d versions that ended with version %d.", at.Size, b.Version+1, b.Version)
	return nil
}

func (c *check) included(version uint64, header []byte, proof []tree.Hash) error {
	at := c.report.Checkpoint
	if err := tree.CheckInclusion(proof, at.Size, at.Root, version, tree.LeafHash(header)); err != nil {
		return inVersion(version, err)
	}
	return nil
}

// beginning checks version 0, which makes the registry what it is.
func (c *check) beginning() error {
	all := c.bundle.Signers
	if len(all) == 0 || all[0].Version != 0 {
		return refuse(fault.Malformed, "the versions that changed the signer set do not begin with version 0")
	}
	first := all[0].Record.of(0)
	state, err := (*ledger.State)(nil).Apply(first)
	if err != nil {
		return within("the beginning", err)
	}
	if state.Registry() != c.bundle.Registry {
		return refuse(fault.IntegrityFail, "version 0 is the beginning of the registry %s, not of %s", state.Registry(), c.bundle.Registry)
	}
	if err := c.included(0, first.Header, all[0].Inclusion); err != nil {
		return err
	}
	item, _ := state.Item(ledger.SignersID)
	header, err := first.Decode()
	if err != nil {
		return inVersion(0, err)
	}
	c.putInForce(first, header, item)
	which := "that the bundle names"
	if c.trust.Registry != nil {
		which = "that you trust"
	}
	c.claim("Version 0 is in that log, and its hash is the registry's id, %s.", which)
	return nil
}

func (c *check) putInForce(r ledger.Record, h ledger.Header, signers ledger.Item) {
	c.set, _ = signers.SignerSet()
	c.setItem, c.setHead, c.setSeen = signers.Hash, r.Head(), h
}

// changes follows the signer set from version 0 to the one that the version was
// approved under.
func (c *check) changes() error {
	for _, s := range c.bundle.Signers[1:] {
		if s.Version <= c.setHead.Version || s.Version >= c.bundle.Version {
			return refuse(fault.Malformed, "version %d is not between version %d and version %d, and stands there in the list of signer sets", s.Version, c.setHead.Version, c.bundle.Version)
		}
		r := s.Record.of(s.Version)
		if err := c.included(s.Version, r.Header, s.Inclusion); err != nil {
			return err
		}
		o, err := open(r)
		if err == nil {
			err = c.follows(o)
		}
		if err != nil {
			return inVersion(s.Version, err)
		}
		i := slices.IndexFunc(o.ops, func(op ledger.Op) bool { return op.ID == ledger.SignersID && !op.Delete })
		if i < 0 {
			return refuse(fault.IntegrityFail, "version %d does not change the signer set", s.Version)
		}
		c.claim("Version %d is in that log, changed the signer set, and was %s.", s.Version, c.approvedBy(o.header))
		c.putInForce(r, o.header, o.ops[i].Item)
	}
	return nil
}

// version checks the version that the bundle is about.
func (c *check) version() error {
	r := c.bundle.Record.of(c.bundle.Version)
	o, err := open(r)
	if err != nil {
		return inVersion(r.Version, err)
	}
	if r.Version == 0 { // the same header as that of the beginning, since both are at one place in the log
		c.claim("Version 0 is the beginning, which nobody approves.")
	} else {
		if err := c.follows(o); err != nil {
			return inVersion(r.Version, err)
		}
		c.claim("Version %d was %s.", r.Version, c.approvedBy(o.header))
	}
	c.claim("The operations and preconditions of version %d are those of its header.", r.Version)
	c.report.Head, c.report.Header = r.Head(), o.header
	c.report.Ops, c.report.Preconditions = o.ops, o.preconditions
	c.report.Signers = c.set
	return nil
}

// follows checks what a header says of what was before it, as far as a bundle
// shows that, and the approvals.
func (c *check) follows(o opened) error {
	h := o.header
	before := ledger.Head{Version: h.Version - 1, Hash: h.PrevHash}
	switch {
	case h.Registry != c.bundle.Registry:
		return refuse(fault.IntegrityFail, "it belongs to the registry %s", h.Registry)
	case h.SignersVersion != c.setHead.Version:
		return refuse(fault.IntegrityFail, "it was approved under the signer set of version %d, and the one before it here is that of version %d", h.SignersVersion, c.setHead.Version)
	case before.Version == c.setHead.Version && before != c.setHead:
		return refuse(fault.ChainMismatch, "it follows %s, and version %d is %s", before.Hash, c.setHead.Version, c.setHead.Hash)
	case h.Base != nil && *h.Base != before, h.Supersedes != nil && h.Supersedes.Head != before:
		return refuse(fault.ChainMismatch, "it was to follow another version than it does")
	case h.CommittedAt.Before(c.setSeen.CommittedAt):
		return refuse(fault.IntegrityFail, "it was committed before version %d", c.setHead.Version)
	case h.CommittedAt.After(h.ExpiresAt):
		return refuse(fault.Expired, "it was committed after it had expired")
	}
	for _, p := range o.preconditions {
		if p.ID == ledger.SignersID && (p.Hash == nil || *p.Hash != c.setItem) {
			return refuse(fault.Conflict, "it changes another signer set than that of version %d", c.setHead.Version)
		}
	}
	return c.approved(h)
}

// approved checks that a quorum of the set in force has signed. Decoding saw to
// it that no key is there twice.
func (c *check) approved(h ledger.Header) error {
	message := h.SignThis()
	for _, a := range h.Approvals {
		signer, known := c.set.Find(a.SignerID)
		if !known || signer.Public != a.Public {
			return refuse(fault.UnknownSigner, "%q with the key %s is not in the signer set of version %d", a.SignerID, a.Public, c.setHead.Version)
		}
		if !ed25519.Verify(a.Public[:], message, a.Sig) {
			return refuse(fault.InvalidSig, "the signature of %q does not verify", a.SignerID)
		}
	}
	if len(h.Approvals) < c.set.M {
		return refuse(fault.QuorumFailed, "it has %d approvals, and the signer set of version %d asks for %d", len(h.Approvals), c.setHead.Version, c.set.M)
	}
	return nil
}

// approvedBy names those who approved, for a claim.
func (c *check) approvedBy(h ledger.Header) string {
	var names []string
	for _, a := range h.Approvals {
		names = append(names, a.SignerID)
	}
	slices.Sort(names)
	return fmt.Sprintf("approved by %s: %d were needed of the %d signers of version %d",
		strings.Join(names, ", "), c.set.M, len(c.set.Keys), c.setHead.Version)
}

// opened is a record whose parts were held against each other.
type opened struct {
	header        ledger.Header
	ops           []ledger.Op
	preconditions []ledger.Precondition
}

func open(r ledger.Record) (opened, error) {
	h, err := r.Decode()
	if err != nil {
		return opened{}, err
	}
	switch {
	case h.Version != r.Version:
		return opened{}, refuse(fault.IntegrityFail, "its header says version %d", h.Version)
	case b3.Of(r.Payload) != h.PayloadB3:
		return opened{}, refuse(fault.IntegrityFail, "its payload is not the one of the header")
	case b3.Of(r.Preconditions) != h.PreconditionsB3:
		return opened{}, refuse(fault.IntegrityFail, "its preconditions are not those of the header")
	}
	payload, err := ledger.DecodePayload(r.Payload)
	if err != nil {
		return opened{}, err
	}
	preconditions, err := ledger.DecodePreconditions(r.Preconditions)
	if err != nil {
		return opened{}, err
	}
	return opened{h, payload.Ops, preconditions}, sameItems(payload.Ops, preconditions)
}

// sameItems checks that there is a precondition for every item that is touched,
// and for no other.
func sameItems(ops []ledger.Op, preconditions []ledger.Precondition) error {
	touched := make([]string, 0, len(ops))
	for _, op := range ops {
		touched = append(touched, op.ID)
	}
	slices.Sort(touched)
	if !slices.EqualFunc(touched, preconditions, func(id string, p ledger.Precondition) bool { return id == p.ID }) {
		return refuse(fault.IntegrityFail, "its preconditions are not about the items that it touches")
	}
	return nil
}

// inVersion says in which version something is wrong, within in which part.
func inVersion(version uint64, err error) error {
	return within(fmt.Sprintf("version %d", version), err)
}

func within(part string, err error) error {
	return refuse(fault.KindOf(err), "%s: %s", part, fault.DetailOf(err))
}
