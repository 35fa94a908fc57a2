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

// Verify checks all of a bundle and returns what it shows. The error names the
// first thing that is wrong.
func Verify(data []byte, trust Trust) (Report, error) {
	d, err := decode(data)
	if err != nil {
		return Report{}, err
	}
	c := bundleVerifier{bundle: d, trust: trust}
	for _, step := range []func() error{c.checkCheckpoint, c.checkPosition, c.checkGenesis, c.checkSignerChanges, c.checkVersion} {
		if err := step(); err != nil {
			return Report{}, err
		}
	}
	c.caveat("A bundle proves only what it contains. To prove that it omits no change of the signer set, verify the whole log.")
	return c.report, nil
}

// bundleVerifier verifies one bundle.
type bundleVerifier struct {
	bundle Document
	trust  Trust
	report Report

	// The signer set in force, followed from version 0 on, and the version that
	// put it in force.
	set       ledger.SignerSet
	setItem   b3.Address
	setHead   ledger.Head
	setHeader ledger.Header
}

func (v *bundleVerifier) claim(format string, args ...any) {
	v.report.Claims = append(v.report.Claims, fmt.Sprintf(format, args...))
}

func (v *bundleVerifier) caveat(format string, args ...any) {
	v.report.Caveats = append(v.report.Caveats, fmt.Sprintf(format, args...))
}

// checkCheckpoint checks which registry the bundle is of, and the signature.
func (v *bundleVerifier) checkCheckpoint() error {
	b, trust := &v.bundle, v.trust
	if trust.Registry != nil && *trust.Registry != b.Registry {
		return refuse(fault.IntegrityFail, "the bundle is of the registry %s, not of %s", b.Registry, trust.Registry)
	}
	if trust.Key != "" && trust.Key != b.Key {
		return refuse(fault.InvalidSig, "the bundle is of a log with the key %.120q, not %.120q", b.Key, trust.Key)
	}
	verifier, err := tree.NewVerifier(b.Key)
	if err != nil {
		return partError("the key", err)
	}
	if verifier.Name() != tree.Origin(b.Registry) {
		return refuse(fault.Malformed, "the key is named %s, and that of this registry %s", verifier.Name(), tree.Origin(b.Registry))
	}
	checkpoint, err := tree.ParseCheckpoint([]byte(b.Checkpoint), verifier)
	if err != nil {
		return partError("the checkpoint", err)
	}
	v.report.Registry, v.report.Key, v.report.Checkpoint = b.Registry, b.Key, checkpoint
	if trust.Key == "" {
		v.claim("The checkpoint of %d versions is signed by the key that is in the bundle.", checkpoint.Size)
		v.caveat("The key is the bundle's own. Compare it with one that you have from elsewhere: %s", b.Key)
	} else {
		v.claim("The checkpoint of %d versions is signed by the key that you trust.", checkpoint.Size)
	}
	if trust.Registry == nil {
		v.caveat("The registry is the one that the bundle names. Compare it with one that you have from elsewhere: %s", b.Registry)
	}
	return nil
}

// checkPosition checks where the version is in the log.
func (v *bundleVerifier) checkPosition() error {
	b, at := &v.bundle, v.report.Checkpoint
	if err := v.checkInclusion(b.Version, b.Record.Header, b.Inclusion); err != nil {
		return err
	}
	v.claim("Version %d is in that log, at its index.", b.Version)

	v.report.Tree = tree.FrontierAfter(b.Inclusion, at.Size, b.Version, tree.LeafHash(b.Record.Header))
	if err := tree.CheckConsistency(b.Consistency, at.Size, at.Root, b.Version+1, v.report.Tree.Root()); err != nil {
		return partError("the consistency proof", err)
	}
	v.claim("The log of %d versions begins with the log of %d versions that ended with version %d.", at.Size, b.Version+1, b.Version)
	return nil
}

func (v *bundleVerifier) checkInclusion(version uint64, header []byte, proof []tree.Hash) error {
	at := v.report.Checkpoint
	if err := tree.CheckInclusion(proof, at.Size, at.Root, version, tree.LeafHash(header)); err != nil {
		return versionError(version, err)
	}
	return nil
}

// checkGenesis checks version 0, which defines the registry.
func (v *bundleVerifier) checkGenesis() error {
	all := v.bundle.Signers
	if len(all) == 0 || all[0].Version != 0 {
		return refuse(fault.Malformed, "the versions that changed the signer set do not begin with version 0")
	}
	first := all[0].Record.toRecord(0)
	state, err := (*ledger.State)(nil).Apply(first)
	if err != nil {
		return partError("the beginning", err)
	}
	if state.Registry() != v.bundle.Registry {
		return refuse(fault.IntegrityFail, "version 0 is the beginning of the registry %s, not of %s", state.Registry(), v.bundle.Registry)
	}
	if err := v.checkInclusion(0, first.Header, all[0].Inclusion); err != nil {
		return err
	}
	item, _ := state.Item(ledger.SignersID)
	header, err := first.DecodeHeader()
	if err != nil {
		return versionError(0, err)
	}
	v.setSigners(first, header, item)
	which := "that the bundle names"
	if v.trust.Registry != nil {
		which = "that you trust"
	}
	v.claim("Version 0 is in that log, and its hash is the registry's id, %s.", which)
	return nil
}

func (v *bundleVerifier) setSigners(r ledger.Record, h ledger.Header, signers ledger.Item) {
	v.set, _ = signers.SignerSet()
	v.setItem, v.setHead, v.setHeader = signers.Hash, r.Head(), h
}

// checkSignerChanges follows the signer set from version 0 to the one that the
// version was approved under.
func (v *bundleVerifier) checkSignerChanges() error {
	for _, s := range v.bundle.Signers[1:] {
		if s.Version <= v.setHead.Version || s.Version >= v.bundle.Version {
			return refuse(fault.Malformed, "version %d is not between version %d and version %d, and stands there in the list of signer sets", s.Version, v.setHead.Version, v.bundle.Version)
		}
		r := s.Record.toRecord(s.Version)
		if err := v.checkInclusion(s.Version, r.Header, s.Inclusion); err != nil {
			return err
		}
		o, err := openRecord(r)
		if err == nil {
			err = v.checkFollows(o)
		}
		if err != nil {
			return versionError(s.Version, err)
		}
		i := slices.IndexFunc(o.ops, func(op ledger.Op) bool { return op.ID == ledger.SignersID && !op.Delete })
		if i < 0 {
			return refuse(fault.IntegrityFail, "version %d does not change the signer set", s.Version)
		}
		v.claim("Version %d is in that log, changed the signer set, and was %s.", s.Version, v.approversText(o.header))
		v.setSigners(r, o.header, o.ops[i].Item)
	}
	return nil
}

// checkVersion checks the version that the bundle is about.
func (v *bundleVerifier) checkVersion() error {
	r := v.bundle.Record.toRecord(v.bundle.Version)
	o, err := openRecord(r)
	if err != nil {
		return versionError(r.Version, err)
	}
	if r.Version == 0 { // the same header as that of the genesis, since both are at one index of the log
		v.claim("Version 0 is the first version, which needs no approval.")
	} else {
		if err := v.checkFollows(o); err != nil {
			return versionError(r.Version, err)
		}
		v.claim("Version %d was %s.", r.Version, v.approversText(o.header))
	}
	v.claim("The operations and preconditions of version %d are those of its header.", r.Version)
	v.report.Head, v.report.Header = r.Head(), o.header
	v.report.Ops, v.report.Preconditions = o.ops, o.preconditions
	v.report.Signers = v.set
	return nil
}

// checkFollows checks what a header says of what was before it, as far as a
// bundle shows that, and the approvals.
func (v *bundleVerifier) checkFollows(o openedRecord) error {
	h := o.header
	before := ledger.Head{Version: h.Version - 1, Hash: h.PrevHash}
	switch {
	case h.Registry != v.bundle.Registry:
		return refuse(fault.IntegrityFail, "it belongs to the registry %s", h.Registry)
	case h.SignersVersion != v.setHead.Version:
		return refuse(fault.IntegrityFail, "it was approved under the signer set of version %d, and the one before it here is that of version %d", h.SignersVersion, v.setHead.Version)
	case before.Version == v.setHead.Version && before != v.setHead:
		return refuse(fault.ChainMismatch, "it follows %s, but version %d is %s", before.Hash, v.setHead.Version, v.setHead.Hash)
	case h.Base != nil && *h.Base != before, h.Supersedes != nil && h.Supersedes.Head != before:
		return refuse(fault.ChainMismatch, "it does not follow the version of its base")
	case h.CommittedAt.Before(v.setHeader.CommittedAt):
		return refuse(fault.IntegrityFail, "it was committed before version %d", v.setHead.Version)
	case h.CommittedAt.After(h.ExpiresAt):
		return refuse(fault.Expired, "it was committed after it had expired")
	}
	for _, p := range o.preconditions {
		if p.ID == ledger.SignersID && (p.Hash == nil || *p.Hash != v.setItem) {
			return refuse(fault.Conflict, "it changes another signer set than that of version %d", v.setHead.Version)
		}
	}
	return v.checkApprovals(h)
}

// checkApprovals checks that a quorum of the set in force has signed. Decoding
// has rejected duplicate keys.
func (v *bundleVerifier) checkApprovals(h ledger.Header) error {
	message := h.SignThis()
	for _, a := range h.Approvals {
		signer, known := v.set.Find(a.SignerID)
		if !known || signer.Public != a.Public {
			return refuse(fault.UnknownSigner, "%q with the key %s is not in the signer set of version %d", a.SignerID, a.Public, v.setHead.Version)
		}
		if !ed25519.Verify(a.Public[:], message, a.Sig) {
			return refuse(fault.InvalidSig, "the signature of %q does not verify", a.SignerID)
		}
	}
	if len(h.Approvals) < v.set.M {
		return refuse(fault.QuorumFailed, "it has %d approvals; the signer set of version %d needs %d", len(h.Approvals), v.setHead.Version, v.set.M)
	}
	return nil
}

// approversText names the approvers, for a claim.
func (v *bundleVerifier) approversText(h ledger.Header) string {
	var names []string
	for _, a := range h.Approvals {
		names = append(names, a.SignerID)
	}
	slices.Sort(names)
	return fmt.Sprintf("approved by %s: %d were needed of the %d signers of version %d",
		strings.Join(names, ", "), v.set.M, len(v.set.Keys), v.setHead.Version)
}

// openedRecord is a record whose parts were checked against each other.
type openedRecord struct {
	header        ledger.Header
	ops           []ledger.Op
	preconditions []ledger.Precondition
}

func openRecord(r ledger.Record) (openedRecord, error) {
	h, err := r.DecodeHeader()
	if err != nil {
		return openedRecord{}, err
	}
	switch {
	case h.Version != r.Version:
		return openedRecord{}, refuse(fault.IntegrityFail, "its header says version %d", h.Version)
	case b3.Of(r.Payload) != h.PayloadB3:
		return openedRecord{}, refuse(fault.IntegrityFail, "its payload is not the one of the header")
	case b3.Of(r.Preconditions) != h.PreconditionsB3:
		return openedRecord{}, refuse(fault.IntegrityFail, "its preconditions are not those of the header")
	}
	payload, err := ledger.DecodePayload(r.Payload)
	if err != nil {
		return openedRecord{}, err
	}
	preconditions, err := ledger.DecodePreconditions(r.Preconditions)
	if err != nil {
		return openedRecord{}, err
	}
	return openedRecord{h, payload.Ops, preconditions}, sameItems(payload.Ops, preconditions)
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

// versionError adds the version to an error, partError the part of the bundle.
func versionError(version uint64, err error) error {
	return partError(fmt.Sprintf("version %d", version), err)
}

func partError(part string, err error) error {
	return refuse(fault.KindOf(err), "%s: %s", part, fault.DetailOf(err))
}

// Report is the result of verifying a valid bundle.
type Report struct {
	Claims  []string // what was checked and found right, a sentence each
	Caveats []string // what the reader has to know or check elsewhere

	Registry   b3.Address
	Key        string
	Checkpoint tree.Checkpoint

	Tree          tree.Frontier // of the versions up to it
	Head          ledger.Head   // the version and its hash
	Header        ledger.Header
	Ops           []ledger.Op
	Preconditions []ledger.Precondition
	Signers       ledger.SignerSet // the set in force when the version was approved; that of version 0 for itself
}

// String is the report for people: a line for each claim and caveat.
func (r Report) String() string {
	var b strings.Builder
	for _, c := range r.Claims {
		b.WriteString("ok    " + c + "\n")
	}
	for _, c := range r.Caveats {
		b.WriteString("note  " + c + "\n")
	}
	return b.String()
}
