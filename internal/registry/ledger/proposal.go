package ledger

import (
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Proposal is a change that waits for approvals. It is read-only and safe for
// concurrent use.
type Proposal struct {
	ApprovalMessage        // what is signed, field by field
	ID              string // the same as ProposalID
	SignThis        []byte // the bytes that are signed
	Payload         []byte // canonical
	Preconditions   []byte // canonical
	Diff            Diff
	ProposedAt      time.Time

	ops        []Op
	priorItems []priorItem // the items that it touches as they were, sorted by id
}

// Manifests lists what the names that it sets would stand for.
func (p *Proposal) Manifests() (list []b3.Address) {
	for _, op := range p.ops {
		if manifest, ok := op.Item.Manifest(); ok && !op.Delete {
			list = append(list, manifest)
		}
	}
	return list
}

// Propose checks a request against the state and makes the message that signers
// sign. The id is new (see ProposalID); the proposal can be committed until
// expires.
func (s *State) Propose(r Request, id string, now, expires time.Time) (*Proposal, error) {
	const op = "registry.propose"
	if r.Base != nil && *r.Base != s.head {
		return nil, s.headMismatch(op, *r.Base)
	}
	m := ApprovalMessage{ProposalID: id}
	if r.Base != nil {
		m.Base = new(s.head)
	}
	return s.propose(op, r.Ops, m, now, expires)
}

// Supersede proposes to replace what the head did: by its inverse, if the
// request names no operations. Only the head can be superseded, with a reason.
func (s *State) Supersede(r SupersedeRequest, id string, now, expires time.Time) (*Proposal, error) {
	const op = "registry.supersede"
	if r.Head != s.head {
		return nil, s.headMismatch(op, r.Head)
	}
	if !isReason(r.Reason) {
		return nil, malformed(op, "a reason of 1 to %d bytes of visible text is needed", MaxReason)
	}
	ops := r.Ops
	if ops == nil {
		if s.head.Version == 0 {
			return nil, refuse(op, fault.Conflict, "Propose a signer set with other keys instead.", "version 0 is the beginning and cannot be undone")
		}
		ops = s.inverse()
	}
	return s.propose(op, ops, ApprovalMessage{ProposalID: id, Supersedes: &Supersession{r.Head, r.Reason}}, now, expires)
}

// inverse returns the operations that undo the head.
func (s *State) inverse() []Op {
	ops := make([]Op, 0, len(s.headPriorItems))
	for _, f := range s.headPriorItems {
		if f.item == nil {
			ops = append(ops, Delete(f.id))
		} else {
			ops = append(ops, Put(*f.item))
		}
	}
	return ops
}

// headMismatch is the error for a request whose base is not the head.
func (s *State) headMismatch(op string, wanted Head) error {
	return refuse(op, fault.ChainMismatch, "Read /registry/head, check the versions in between, and propose again on that version.",
		"it is based on version %d (%s), but the head is version %d (%s)", wanted.Version, wanted.Hash, s.head.Version, s.head.Hash)
}

// propose makes the proposal from a message in which the caller has set the
// special fields.
func (s *State) propose(op string, ops []Op, m ApprovalMessage, now, expires time.Time) (*Proposal, error) {
	if _, ok := parseProposalID(m.ProposalID); !ok {
		return nil, malformed(op, "%s is not a proposal id: 26 characters of lower-case base32", quote(m.ProposalID))
	}
	if len(ops) == 0 || len(ops) > MaxOps {
		return nil, malformed(op, "a change has 1 to %d operations, not %d", MaxOps, len(ops))
	}
	if err := checkOps(op, ops); err != nil {
		return nil, err
	}
	if m.ExpiresAt = millis(expires); m.ExpiresAt.Year() > 9999 {
		return nil, malformed(op, "it would expire after the year 9999")
	}
	if !m.ExpiresAt.After(now) || m.ExpiresAt.Before(s.committedAt) {
		return nil, refuse(op, fault.Expired, "Propose with a longer ttl_s; if that does not help, check the clock of the node.",
			"it would expire at %s, but it is %s; the head was committed at %s", m.ExpiresAt.Format(timeLayout), now.UTC().Format(timeLayout), s.committedAt.Format(timeLayout))
	}
	prior, err := s.priorItemsOf(ops)
	if err != nil {
		return nil, err
	}
	p := &Proposal{ApprovalMessage: m, ID: m.ProposalID, ProposedAt: millis(now), ops: slices.Clone(ops), priorItems: prior}
	p.Payload, p.Preconditions = encodePayload(ops), encodePreconditions(prior)
	if len(p.Payload) > MaxPayload {
		return nil, tooLarge(op, len(p.Payload))
	}
	p.Registry, p.SignersVersion = s.registry, s.SignersVersion()
	p.PayloadB3, p.PreconditionsB3 = b3.Of(p.Payload), b3.Of(p.Preconditions)
	p.SignThis = p.ApprovalMessage.SignThis()
	p.Diff = diffOf(ops, prior)
	return p, nil
}

// checkOp checks that an operation changes something, given the item before it.
func checkOp(before *Item, op Op) error {
	const operation = "registry.propose"
	switch {
	case op.Delete && before == nil:
		return refuse(operation, fault.Conflict, "Leave out the operation: the item may have been deleted already.", "there is no item %s to delete", quote(op.ID))
	case op.Delete:
		return nil
	case before != nil && before.Hash == op.Item.Hash:
		return refuse(operation, fault.Conflict, "Leave out the operation: the registry already has this value.", "putting %s would change nothing", quote(op.ID))
	}
	return checkSameKind(before, op.Item)
}

// Check verifies an approval of the proposal in a state: its signer is in the
// set in force, the proposal can still be committed under that set, its time is
// right give or take the skew, and the signature is valid. It costs one
// signature verification and is safe for concurrent use.
func (p *Proposal) Check(s *State, a Approval, now time.Time, skew time.Duration) error {
	const op = "registry.approve"
	switch {
	case a.Algo != Algorithm:
		return malformed(op, "the algorithm is %s; only %q is known", quote(a.Algo), Algorithm)
	case now.After(p.ExpiresAt):
		return p.expiredError(op, now)
	case a.SignedAt.After(now.Add(skew)):
		return clockError(op, a, "in %s from now", a.SignedAt.Sub(now))
	case a.SignedAt.Before(p.ProposedAt.Add(-skew)):
		return clockError(op, a, "%s before the proposal was made", p.ProposedAt.Sub(a.SignedAt))
	}
	index := s.signers.indexOfSigner(a.SignerID)
	if index < 0 {
		return s.unknownSignerError(op, a.SignerID)
	}
	if err := s.checkMessage(op, &p.ApprovalMessage, s.clampTime(now)); err != nil {
		return err
	}
	if !s.signers.verify(index, p.SignThis, a.Sig) {
		return s.badSignatureError(op, p.SignThis, a)
	}
	return nil
}
