package ledger

import (
	"bytes"

	"micronode/b3"
	"micronode/fault"
)

// Apply verifies a record against the state before it and returns the state
// after it: that it is the next version of this chain, that its bytes are what
// its header says, that the state is what its preconditions say, that its
// proposal was neither expired nor used before, and that enough signers of the
// set in force have signed exactly this. The first record, version 0, is
// applied to a nil state. The state keeps nothing of the record's memory.
//
// What no signature covers (when the version was committed, when each signer
// says to have signed, approvals beyond the quorum) is covered by the version's
// hash: the next record, a checkpoint or a known head tells a change of it.
func (s *State) Apply(r Record) (*State, error) { return s.apply(r, true) }

// Replay is Apply without the verification of signatures, which takes most of
// its time: for records that a checkpoint covers which was verified itself.
func (s *State) Replay(r Record) (*State, error) { return s.apply(r, false) }

func (s *State) apply(r Record, signatures bool) (*State, error) {
	h, ops, err := r.open()
	if err != nil {
		return nil, inRecord(r, err)
	}
	if s == nil {
		return begin(r, &h, ops)
	}
	if err := s.comesNext(&h); err != nil {
		return nil, inRecord(r, err)
	}
	formers, err := s.formersOf(ops)
	if err != nil {
		return nil, inRecord(r, err)
	}
	if !bytes.Equal(encodePreconditions(formers), r.Preconditions) {
		return nil, inRecord(r, fault.New("", fault.Conflict, "its preconditions are not what the state before it says"))
	}
	if err := s.approved(&h, signatures); err != nil {
		return nil, inRecord(r, err)
	}
	return s.advance(r.Head(), &h, ops, formers), nil
}

// open reads a record and holds its parts against each other.
func (r Record) open() (Header, []Op, error) {
	h, err := r.Decode()
	if err != nil {
		return h, nil, err
	}
	switch {
	case h.Version != r.Version:
		return h, nil, damaged("its header says version %d", h.Version)
	case b3.Of(r.Payload) != h.PayloadB3:
		return h, nil, damaged("its payload is not the one of the header")
	case b3.Of(r.Preconditions) != h.PreconditionsB3:
		return h, nil, damaged("its preconditions are not those of the header")
	}
	p, err := DecodePayload(r.Payload)
	if err != nil {
		return h, nil, damaged("its payload: %s", fault.DetailOf(err))
	}
	return h, p.Ops, nil
}

// begin is the state after version 0.
func begin(r Record, h *Header, ops []Op) (*State, error) {
	if r.Version != 0 {
		return nil, inRecord(r, fault.New("", fault.ChainMismatch, "a log begins with version 0"))
	}
	formers := []former{{id: SignersID}}
	if len(ops) != 1 || ops[0].ID != SignersID || !bytes.Equal(encodePreconditions(formers), r.Preconditions) {
		return nil, inRecord(r, damaged("a log begins with a signer set and nothing else"))
	}
	s := empty().advance(r.Head(), h, ops, formers)
	s.registry = s.head.Hash
	return s, nil
}

// comesNext checks what a header says of what was before it.
func (s *State) comesNext(h *Header) error {
	switch {
	case h.Registry != s.registry:
		return fault.New("", fault.ChainMismatch, "it belongs to the registry %s, this is %s", h.Registry, s.registry)
	case h.Version != s.head.Version+1:
		return fault.New("", fault.ChainMismatch, "the version after %d is expected", s.head.Version)
	case h.PrevHash != s.head.Hash:
		return fault.New("", fault.ChainMismatch, "it follows %s, and version %d is %s", h.PrevHash, s.head.Version, s.head.Hash)
	case h.CommittedAt.Before(s.committedAt):
		return damaged("it was committed at %s, before the version before it", h.CommittedAt.Format(layout))
	case h.CommittedAt.After(h.ExpiresAt):
		return fault.New("", fault.Expired, "it was committed at %s and had expired at %s", h.CommittedAt.Format(layout), h.ExpiresAt.Format(layout))
	}
	return s.follows("", &h.Message, h.CommittedAt)
}

// approved checks the approvals of a header. Decode saw to it that no key is
// there twice.
func (s *State) approved(h *Header, signatures bool) error {
	var signThis []byte
	if signatures {
		signThis = h.SignThis()
	}
	for _, c := range h.Approvals {
		seat := s.council.seat(c.Public)
		if seat < 0 {
			return s.noKey(c)
		}
		if id := s.council.set.Keys[seat].ID; id != c.SignerID {
			return damaged("an approval with the key of %s says that it is by %s", quote(id), quote(c.SignerID))
		}
		if signatures && !s.council.verify(seat, signThis, c.Sig) {
			return fault.New("", fault.InvalidSig, "the signature of %s does not verify", quote(c.SignerID))
		}
	}
	return s.quorum("", h.Approvals)
}

// noKey tells a key that was never there from one that went.
func (s *State) noKey(c Counted) error {
	if version, ok := s.Retired(c.Public); ok {
		return fault.New("", fault.RevokedKey, "the key of %s was taken out of the signer set in version %d", quote(c.SignerID), version)
	}
	return fault.New("", fault.UnknownSigner, "the key %s of %s is not in the signer set of version %d", c.Public, quote(c.SignerID), s.SignersVersion())
}

// damaged is for stored bytes that nobody who keeps to the rules has written.
func damaged(format string, args ...any) error {
	return refuse("registry.record", fault.IntegrityFail, nextDamaged, format, args...)
}

// inRecord says in which version something is wrong. What to do about a record
// is the same whatever is wrong with it.
func inRecord(r Record, err error) error {
	return refuse("registry.apply", fault.KindOf(err), nextDamaged, "version %d: %s", r.Version, fault.DetailOf(err))
}
