package ledger

import (
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Proposal is a change that waits for approvals. It is read-only: many
// goroutines may look at one.
type Proposal struct {
	Message              // what is signed, field by field
	ID            string // the same as ProposalID
	SignThis      []byte // what is signed, as it is
	Payload       []byte // canonical
	Preconditions []byte // canonical
	Diff          Diff
	ProposedAt    time.Time

	ops     []Op
	formers []former // what the items were that it touches, sorted by id
}

// Propose holds a request against the state and makes of it what signers sign.
// The id is new (see ProposalID); the proposal can be committed until expires.
func (s *State) Propose(r Request, id string, now, expires time.Time) (*Proposal, error) {
	const op = "registry.propose"
	if r.Base != nil && *r.Base != s.head {
		return nil, s.moved(op, *r.Base)
	}
	m := Message{ProposalID: id}
	if r.Base != nil {
		m.Base = new(s.head)
	}
	return s.propose(op, r.Ops, m, now, expires)
}

// Supersede proposes to replace what the head did: by the inverse of it, if the
// request names no operations. Only the head can be superseded, with a reason.
func (s *State) Supersede(r SupersedeRequest, id string, now, expires time.Time) (*Proposal, error) {
	const op = "registry.supersede"
	if r.Head != s.head {
		return nil, s.moved(op, r.Head)
	}
	if !goodReason(r.Reason) {
		return nil, malformed(op, "a reason of 1 to %d bytes of visible text is needed", MaxReason)
	}
	ops := r.Ops
	if ops == nil {
		if s.head.Version == 0 {
			return nil, refuse(op, fault.Conflict, "Propose a signer set with other keys instead.", "version 0 is the beginning and cannot be undone")
		}
		ops = s.inverse()
	}
	return s.propose(op, ops, Message{ProposalID: id, Supersedes: &Supersession{r.Head, r.Reason}}, now, expires)
}

// inverse is what undoes the head.
func (s *State) inverse() []Op {
	ops := make([]Op, 0, len(s.before))
	for _, f := range s.before {
		if f.item == nil {
			ops = append(ops, Delete(f.id))
		} else {
			ops = append(ops, Put(*f.item))
		}
	}
	return ops
}

// moved says that the head is not what somebody built on.
func (s *State) moved(op string, wanted Head) error {
	return refuse(op, fault.ChainMismatch, "Read /registry/head, look at what came between, and propose again on that version.",
		"it is built on version %d (%s), and the head is version %d (%s)", wanted.Version, wanted.Hash, s.head.Version, s.head.Hash)
}

// propose makes the proposal from a message that says what is special about it.
func (s *State) propose(op string, ops []Op, m Message, now, expires time.Time) (*Proposal, error) {
	if _, ok := parseProposalID(m.ProposalID); !ok {
		return nil, malformed(op, "%s is no proposal id: 26 characters of lower-case base32", quote(m.ProposalID))
	}
	if len(ops) == 0 || len(ops) > MaxOps {
		return nil, malformed(op, "a change has 1 to %d operations, not %d", MaxOps, len(ops))
	}
	if err := eachOnce(op, ops); err != nil {
		return nil, err
	}
	if m.ExpiresAt = millis(expires); m.ExpiresAt.Year() > 9999 {
		return nil, malformed(op, "it would expire after the year 9999, for which there is no spelling")
	}
	if !m.ExpiresAt.After(now) || m.ExpiresAt.Before(s.committedAt) {
		return nil, refuse(op, fault.Expired, "Propose with a longer ttl_s; if that does not help, look at the clock of the node.",
			"it would expire at %s, and it is %s; the head was committed at %s", m.ExpiresAt.Format(layout), now.UTC().Format(layout), s.committedAt.Format(layout))
	}
	formers, err := s.formersOf(ops)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Message: m, ID: m.ProposalID, ProposedAt: millis(now), ops: slices.Clone(ops), formers: formers}
	p.Payload, p.Preconditions = encodePayload(ops), encodePreconditions(formers)
	if len(p.Payload) > MaxPayload {
		return nil, tooLarge(op, len(p.Payload))
	}
	p.Registry, p.SignersVersion = s.registry, s.SignersVersion()
	p.PayloadB3, p.PreconditionsB3 = b3.Of(p.Payload), b3.Of(p.Preconditions)
	p.SignThis = p.Message.SignThis()
	p.Diff = diffOf(ops, formers)
	return p, nil
}

// fits says whether an operation has something to do, given what is there.
func fits(before *Item, op Op) error {
	const operation = "registry.propose"
	switch {
	case op.Delete && before == nil:
		return refuse(operation, fault.Conflict, "Leave the operation out: somebody may have deleted it before.", "there is no item %s to delete", quote(op.ID))
	case op.Delete:
		return nil
	case before != nil && before.Hash == op.Item.Hash:
		return refuse(operation, fault.Conflict, "Leave the operation out: the registry says this already.", "putting %s would change nothing", quote(op.ID))
	}
	return sameKind(before, op.Item)
}

// Check says whether an approval counts for the proposal in a state: that its
// signer is in the set in force, that the proposal can still be committed under
// that set, that its time is right give or take the skew, and that the
// signature is good. It costs one verification of a signature, and any number
// of goroutines may call it at once.
func (p *Proposal) Check(s *State, a Approval, now time.Time, skew time.Duration) error {
	const op = "registry.approve"
	switch {
	case a.Algo != Algorithm:
		return malformed(op, "the algorithm is %s; only %q is known", quote(a.Algo), Algorithm)
	case now.After(p.ExpiresAt):
		return p.expired(op, now)
	case a.SignedAt.After(now.Add(skew)):
		return wrongClock(op, a, "in %s from now", a.SignedAt.Sub(now))
	case a.SignedAt.Before(p.ProposedAt.Add(-skew)):
		return wrongClock(op, a, "%s before the proposal was made", p.ProposedAt.Sub(a.SignedAt))
	}
	seat := s.council.seatOf(a.SignerID)
	if seat < 0 {
		return s.noSigner(op, a.SignerID)
	}
	if err := s.current(op, p, s.clock(now)); err != nil {
		return err
	}
	if !s.council.verify(seat, p.SignThis, a.Sig) {
		return s.badSignature(op, p.SignThis, a)
	}
	return nil
}
