package registry

import (
	"fmt"

	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// KeptAuditor verifies the versions that are left of a log whose oldest ones were
// pruned. It begins with the bundle of the first version that is left: that
// proves its position in the log, which signers were in force, and, by the
// hashes beside it, the tree of all versions before it. From there on each
// version is verified by its bytes, and the tree at the end is the signed one.
type KeptAuditor struct {
	// set at construction
	first  BundleReport
	trust  Trust
	signed tree.Checkpoint

	// updated by each version
	previous linkedVersion
	signers  ledger.SignerSet
	since    uint64 // the version that put them in force
	frontier tree.Frontier
}

// NewKeptAuditor begins with the bundle of the first version that is left.
func NewKeptAuditor(bundle []byte, trust Trust) (*KeptAuditor, error) {
	first, err := VerifyBundle(bundle, trust)
	if err != nil {
		return nil, err
	}
	a := &KeptAuditor{first: first, trust: trust, signed: first.Checkpoint, signers: first.Signers, since: first.Header.SignersVersion, frontier: first.Tree}
	a.follow(first.Header, first.Head, first.Ops)
	return a, nil
}

// Size is how many versions the signed checkpoint covers: the last one to add is
// Size-1.
func (a *KeptAuditor) Size() uint64 { return a.signed.Size }

// Head is the last version that was added.
func (a *KeptAuditor) Head() ledger.Head { return a.previous.head }

// Add verifies the next version: the bytes as they are stored.
func (a *KeptAuditor) Add(header, payload, preconditions []byte) error {
	const op = "registry.audit"
	record := ledger.Record{Version: a.previous.head.Version + 1, Header: header, Payload: payload, Preconditions: preconditions}
	h, ops, err := record.Open()
	if err == nil && h.Registry != a.first.Registry {
		err = integrityError("it belongs to the registry %s; this is %s", h.Registry, a.first.Registry)
	}
	if err == nil {
		err = h.Follows(a.previous.header, a.previous.head.Hash, a.signers, a.since)
	}
	if err != nil {
		return fault.WrapKind(op, fault.IntegrityFail, err)
	}
	a.follow(h, record.Head(), ops)
	a.frontier.Append(leafOf(record))
	return nil
}

// follow makes a version that was verified the one that the next must follow.
func (a *KeptAuditor) follow(h ledger.Header, head ledger.Head, ops []ledger.Op) {
	a.previous = linkedVersion{h, head}
	for _, op := range ops {
		if set, ok := op.Item.SignerSet(); ok && !op.Delete {
			a.signers, a.since = set, h.Version
		}
	}
}

// Finish checks the tree against the signed checkpoint.
func (a *KeptAuditor) Finish() (Report, error) {
	const op = "registry.audit"
	if a.frontier.Size() != a.signed.Size || a.frontier.Root() != a.signed.Root {
		return Report{}, fault.New(op, fault.IntegrityFail, "the versions up to %d do not match the signed checkpoint of %d versions", a.previous.head.Version, a.signed.Size).
			Advise("Do not use this log; compare it with another copy of it.")
	}
	from := a.first.Head.Version
	r := Report{Registry: a.first.Registry, Head: a.previous.head, Versions: a.frontier.Size() - from, First: from, Signed: a.signed.Size, Claims: []string{
		"every version follows the one before it",
		"every version was approved by a quorum of the signers of its time",
		"the checkpoint is signed by the log's key, and its tree matches the versions",
	}}
	if a.trust.Registry != nil {
		r.Claims = append(r.Claims, "this is the requested registry")
	} else {
		r.Assumptions = append(r.Assumptions, "that "+r.Registry.String()+" is the intended registry")
	}
	if a.trust.Key == "" {
		r.Assumptions = append(r.Assumptions, "that "+a.first.Key+" is the key of this log: it says so itself")
	}
	r.Assumptions = append(r.Assumptions,
		fmt.Sprintf("the versions before %d: they were pruned; their hashes are in the signed tree", from),
		fmt.Sprintf("that the operations fit the state before version %d, which was pruned", from),
		fmt.Sprintf("that the versions before %d, besides those that the bundle of that version lists, did not change the signers", from))
	return r, nil
}
