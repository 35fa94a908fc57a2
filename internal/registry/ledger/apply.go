package ledger

import (
	"bytes"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"

	"micronode/b3"
	"micronode/fault"
)

// Apply verifies a record against the state before it and returns the state
// after it. It checks that the record is the next version of this chain, that
// its bytes match its header, that the state meets its preconditions, that its
// proposal was neither expired nor used before, and that enough signers of the
// set in force have signed exactly this. The first record, version 0, is
// applied to a nil state. The state keeps nothing of the record's memory.
//
// What no signature covers (when the version was committed, when each signer
// claims to have signed, approvals beyond the quorum) is covered by the
// version's hash: the next record, a checkpoint or a known head reveals a
// change of it.
func (s *State) Apply(r Record) (*State, error) { return s.apply(r, true) }

// Replay is Apply without the verification of signatures, which takes most of
// its time. It is for records covered by a checkpoint that was verified itself.
func (s *State) Replay(r Record) (*State, error) { return s.apply(r, false) }

func (s *State) apply(r Record, signatures bool) (*State, error) {
	h, ops, err := r.Open()
	if err != nil {
		return nil, recordError(r, err)
	}
	if s == nil {
		return applyGenesis(r, &h, ops)
	}
	if err := s.checkNext(&h); err != nil {
		return nil, recordError(r, err)
	}
	prior, err := s.priorItemsOf(ops)
	if err != nil {
		return nil, recordError(r, err)
	}
	if !bytes.Equal(encodePreconditions(prior), r.Preconditions) {
		return nil, recordError(r, fault.New("", fault.Conflict, "its preconditions are not what the state before it says"))
	}
	if err := s.checkApprovals(&h, signatures); err != nil {
		return nil, recordError(r, err)
	}
	return s.advance(r.Head(), &h, ops, prior), nil
}

// Open reads a record and checks its parts against each other: the header is of
// this version, and the payload and the preconditions match the hashes in it.
// What the record was applied to is checked by [State.Apply].
func (r Record) Open() (Header, []Op, error) {
	h, err := r.VerifyHashes()
	if err != nil {
		return h, nil, err
	}
	p, err := DecodePayload(r.Payload)
	if err != nil {
		return h, nil, damagedRecord("its payload: %s", fault.DetailOf(err))
	}
	return h, p.Ops, nil
}

// VerifyHashes reads the header and checks the payload and the preconditions
// against its hashes. It is for callers that know by other means that the
// header was committed: then so was the payload, and it need not be parsed.
func (r Record) VerifyHashes() (Header, error) {
	h, err := r.DecodeHeader()
	switch {
	case err != nil:
		return h, err
	case h.Version != r.Version:
		return h, damagedRecord("its header says version %d", h.Version)
	case b3.Of(r.Payload) != h.PayloadB3:
		return h, damagedRecord("its payload is not the one of the header")
	case b3.Of(r.Preconditions) != h.PreconditionsB3:
		return h, damagedRecord("its preconditions are not those of the header")
	}
	return h, nil
}

// applyGenesis returns the state after version 0.
func applyGenesis(r Record, h *Header, ops []Op) (*State, error) {
	if r.Version != 0 {
		return nil, recordError(r, fault.New("", fault.ChainMismatch, "a log begins with version 0"))
	}
	prior := []priorItem{{id: SignersID}}
	if len(ops) != 1 || ops[0].ID != SignersID || !bytes.Equal(encodePreconditions(prior), r.Preconditions) {
		return nil, recordError(r, damagedRecord("a log begins with a signer set and nothing else"))
	}
	s := emptyState().advance(r.Head(), h, ops, prior)
	s.registry = s.head.Hash
	return s, nil
}

// checkNext checks what a header says of the version before it.
func (s *State) checkNext(h *Header) error {
	switch {
	case h.Registry != s.registry:
		return fault.New("", fault.ChainMismatch, "it belongs to the registry %s, this is %s", h.Registry, s.registry)
	case h.Version != s.head.Version+1:
		return fault.New("", fault.ChainMismatch, "the version after %d is expected", s.head.Version)
	case h.PrevHash != s.head.Hash:
		return fault.New("", fault.ChainMismatch, "it follows %s, but version %d is %s", h.PrevHash, s.head.Version, s.head.Hash)
	case h.CommittedAt.Before(s.committedAt):
		return damagedRecord("it was committed at %s, before the version before it", h.CommittedAt.Format(timeLayout))
	case h.CommittedAt.After(h.ExpiresAt):
		return fault.New("", fault.Expired, "it was committed at %s and had expired at %s", h.CommittedAt.Format(timeLayout), h.ExpiresAt.Format(timeLayout))
	}
	return s.checkMessage("", &h.ApprovalMessage, h.CommittedAt)
}

// checkApprovals checks the approvals of a header. DecodeHeader has rejected
// duplicate keys.
func (s *State) checkApprovals(h *Header, signatures bool) error {
	var signThis []byte
	if signatures {
		signThis = h.SignThis()
	}
	for _, c := range h.Approvals {
		index := s.signers.indexOfKey(c.Public)
		if index < 0 {
			return s.unknownKeyError(c)
		}
		if id := s.signers.set.Keys[index].ID; id != c.SignerID {
			return damagedRecord("an approval with the key of %s says that it is by %s", quote(id), quote(c.SignerID))
		}
		if signatures && !s.signers.verify(index, signThis, c.Sig) {
			return fault.New("", fault.InvalidSig, "the signature of %s does not verify", quote(c.SignerID))
		}
	}
	if len(h.Approvals) < s.signers.set.M {
		return s.quorumError("", h.Approvals)
	}
	return nil
}

// unknownKeyError distinguishes a key that was never in the set from a removed
// one.
func (s *State) unknownKeyError(c CountedApproval) error {
	if version, ok := s.Retired(c.Public); ok {
		return fault.New("", fault.RevokedKey, "the key of %s was taken out of the signer set in version %d", quote(c.SignerID), version)
	}
	return fault.New("", fault.UnknownSigner, "the key %s of %s is not in the signer set of version %d", c.Public, quote(c.SignerID), s.SignersVersion())
}

// damagedRecord is the error for stored bytes that no correct writer produces.
func damagedRecord(format string, args ...any) error {
	return refuse("registry.record", fault.IntegrityFail, nextDamaged, format, args...)
}

// recordError adds the version to an error. The next step for a bad record is
// the same, whatever is wrong with it.
func recordError(r Record, err error) error {
	return refuse("registry.apply", fault.KindOf(err), nextDamaged, "version %d: %s", r.Version, fault.DetailOf(err))
}

// Follows checks what a header says of the one before it, as far as that can be
// seen without the state in between, and that enough of the signers in force
// then have signed it. It is for records of a pruned log, which are older than
// any remaining state. The set is the one that was put in force last before the
// header, in the version since.
func (h Header) Follows(before Header, hash b3.Address, set SignerSet, since uint64) error {
	last := Head{Version: before.Version, Hash: hash}
	switch {
	case h.Version != before.Version+1 || h.PrevHash != hash:
		return fault.New("", fault.ChainMismatch, "it follows %s, but version %d is %s", h.PrevHash, before.Version, hash)
	case h.Base != nil && *h.Base != last, h.Supersedes != nil && h.Supersedes.Head != last:
		return fault.New("", fault.ChainMismatch, "it does not follow the version of its base")
	case h.CommittedAt.Before(before.CommittedAt):
		return damagedRecord("it was committed at %s, before the version before it", h.CommittedAt.Format(timeLayout))
	}
	return h.ApprovedBy(set, since)
}

// ApprovedBy checks that the approvals of a header are those of a signer set
// that a version put in force: each is by a key of the set and valid, and there
// are enough. DecodeHeader has rejected duplicate keys.
func (h Header) ApprovedBy(set SignerSet, since uint64) error {
	switch {
	case h.SignersVersion != since:
		return fault.New("", fault.Conflict, "it was approved under the signer set of version %d, but that of version %d was in force", h.SignersVersion, since)
	case h.CommittedAt.After(h.ExpiresAt):
		return fault.New("", fault.Expired, "it was committed at %s and had expired at %s", h.CommittedAt.Format(timeLayout), h.ExpiresAt.Format(timeLayout))
	}
	message := h.SignThis()
	for _, a := range h.Approvals {
		signer, known := set.Find(a.SignerID)
		if !known || signer.Public != a.Public {
			return fault.New("", fault.UnknownSigner, "the key %s of %s is not in the signer set of version %d", a.Public, quote(a.SignerID), since)
		}
		if len(a.Sig) != voi.SignatureSize || !voi.VerifyWithOptions(a.Public[:], message, a.Sig, stdlibOptions) {
			return fault.New("", fault.InvalidSig, "the signature of %s does not verify", quote(a.SignerID))
		}
	}
	if len(h.Approvals) < set.M {
		return fault.New("", fault.QuorumFailed, "it has %d approvals; the signer set of version %d needs %d", len(h.Approvals), since, set.M)
	}
	return nil
}
