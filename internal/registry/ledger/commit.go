package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"

	"micronode/b3"
	"micronode/fault"
)

const (
	nonceSize = 16

	// maxRetiredKeysTried bounds the old keys that an invalid signature is
	// checked against.
	maxRetiredKeysTried = 8
)

// GenesisSpec is the content of version 0.
type GenesisSpec struct {
	Signers SignerSet
	Nonce   [nonceSize]byte // random: it makes the registry's id unique
	At      time.Time
}

// Genesis makes version 0. It needs no approvals: the registry's id is its
// hash.
func Genesis(spec GenesisSpec) (Record, *State, error) {
	item, err := spec.Signers.Item()
	if err != nil {
		return Record{}, nil, fault.Wrap("registry.init", err)
	}
	ops := []Op{Put(item)}
	prior := []priorItem{{id: SignersID}}
	r := Record{Payload: encodePayload(ops), Preconditions: encodePreconditions(prior)}
	h := Header{Nonce: spec.Nonce[:], CommittedAt: millis(spec.At)}
	h.ExpiresAt = h.CommittedAt
	h.PayloadB3, h.PreconditionsB3 = b3.Of(r.Payload), b3.Of(r.Preconditions)
	r.Header = h.encode()
	var before *State
	s, err := before.Apply(r)
	if err != nil {
		return Record{}, nil, fault.Wrap("registry.init", err)
	}
	return r, s, nil
}

// Admit checks whether a proposal could be committed at a time if it had its
// approvals: Conflict, ChainMismatch or Expired if not.
func (s *State) Admit(p *Proposal, at time.Time) error {
	const op = "registry.commit"
	if at = s.clampTime(at); at.After(p.ExpiresAt) {
		return p.expiredError(op, at)
	}
	if err := s.checkMessage(op, &p.ApprovalMessage, at); err != nil {
		return err
	}
	for _, f := range p.priorItems {
		item, _ := s.items.Get([]byte(f.id))
		if item != f.item && (item == nil || f.item == nil || item.Hash != f.item.Hash) {
			return refuse(op, fault.Conflict, nextPropose, "%s has changed since the proposal was made", quote(f.id))
		}
	}
	return nil
}

// Commit makes the next version from a proposal and its approvals, and the
// state after it. It does not verify signatures: every approval given must have
// passed Check. It leaves out approvals that do not count: those of signers
// that are not in the set, and all but the first of each signer. The time is
// raised to that of the head if the clock went back.
func (s *State) Commit(p *Proposal, approvals []Approval, at time.Time) (Record, *State, error) {
	if err := s.Admit(p, at); err != nil {
		return Record{}, nil, err
	}
	counted := make([]CountedApproval, 0, len(approvals))
	var taken uint64 // one bit per signer
	for _, a := range approvals {
		index := s.signers.indexOfSigner(a.SignerID)
		if index < 0 || taken&(1<<index) != 0 || a.Algo != Algorithm || len(a.Sig) != voi.SignatureSize {
			continue
		}
		taken |= 1 << index
		a.SignedAt = millis(a.SignedAt)
		counted = append(counted, CountedApproval{a, s.signers.set.Keys[index].Public})
	}
	if len(counted) < s.signers.set.M {
		return Record{}, nil, s.quorumError("registry.commit", counted)
	}
	slices.SortFunc(counted, func(a, b CountedApproval) int { return bytes.Compare(a.Public[:], b.Public[:]) })
	h := Header{ApprovalMessage: p.ApprovalMessage, Version: s.head.Version + 1, PrevHash: s.head.Hash, CommittedAt: s.clampTime(at), Approvals: counted}
	r := Record{Version: h.Version, Header: h.encode(), Payload: p.Payload, Preconditions: p.Preconditions}
	return r, s.advance(r.Head(), &h, p.ops, p.priorItems), nil
}

// clampTime converts a time to the log's form: whole milliseconds, never before
// the head.
func (s *State) clampTime(at time.Time) time.Time {
	if at = millis(at); at.Before(s.committedAt) {
		return s.committedAt
	}
	return at
}

// quorumError says who has approved and who has not.
func (s *State) quorumError(op string, counted []CountedApproval) error {
	set := s.signers.set
	var have, missing []string
	for _, k := range set.Keys {
		if slices.ContainsFunc(counted, func(c CountedApproval) bool { return c.Public == k.Public }) {
			have = append(have, k.ID)
		} else {
			missing = append(missing, k.ID)
		}
	}
	next := fmt.Sprintf("Have %d more of these approve, then commit again: %s.", set.M-len(counted), strings.Join(missing, ", "))
	who := "nobody did"
	if len(have) > 0 {
		who = fmt.Sprintf("%d did (%s)", len(have), strings.Join(have, ", "))
	}
	return refuse(op, fault.QuorumFailed, next, "%d of %d signers must approve; %s", set.M, len(set.Keys), who)
}

// checkMessage checks that what was approved still fits this state, as of a time:
// same registry, same signer set, the head that it requires, not committed
// before.
func (s *State) checkMessage(op string, m *ApprovalMessage, at time.Time) error {
	if m.Registry != s.registry {
		return refuse(op, fault.Conflict, "Send it to the registry that it was made for.", "the proposal belongs to the registry %s, this is %s", m.Registry, s.registry)
	}
	if m.SignersVersion != s.SignersVersion() {
		return refuse(op, fault.Conflict, nextPropose, "the signer set has changed: it was approved under that of version %d; that of version %d is in force", m.SignersVersion, s.SignersVersion())
	}
	id, _ := parseProposalID(m.ProposalID)
	if version, used := s.used.find(id, at); used {
		return refuse(op, fault.Conflict, "Propose the change again if you want to make it a second time.", "the proposal is already committed, as version %d", version)
	}
	if m.Base != nil && *m.Base != s.head {
		return s.headMismatch(op, *m.Base)
	}
	if m.Supersedes != nil && m.Supersedes.Head != s.head {
		return s.headMismatch(op, m.Supersedes.Head)
	}
	return nil
}

func (p *Proposal) expiredError(op string, now time.Time) error {
	return refuse(op, fault.Expired, nextPropose, "the proposal expired at %s; it is %s", p.ExpiresAt.Format(timeLayout), now.UTC().Format(timeLayout))
}

func clockError(op string, a Approval, format string, args ...any) error {
	return refuse(op, fault.Malformed, "Set the clock of the machine that signs, and approve again.",
		"it says that it was signed at %s, "+format, append([]any{a.SignedAt.UTC().Format(timeLayout)}, args...)...)
}

// unknownSignerError distinguishes a signer that was never in the set from a
// removed one.
func (s *State) unknownSignerError(op, id string) error {
	for _, r := range s.retired {
		if r.signerID == id {
			return s.revokedKeyError(op, r)
		}
	}
	return refuse(op, fault.UnknownSigner, "Approve as one of: "+s.signerNames()+".", "%s is not in the signer set of version %d", quote(id), s.SignersVersion())
}

func (s *State) revokedKeyError(op string, r retiredKey) error {
	return refuse(op, fault.RevokedKey, "Approve with a key of the signer set in force: "+s.signerNames()+".", "the key of %s was taken out of the signer set in version %d", quote(r.signerID), r.version)
}

func (s *State) signerNames() string {
	names := make([]string, 0, len(s.signers.set.Keys))
	for _, k := range s.signers.set.Keys {
		names = append(names, k.ID)
	}
	return strings.Join(names, ", ")
}

// badSignatureError distinguishes an invalid signature from one by an old key
// of the signer. It tries few keys, so that invalid requests stay cheap.
func (s *State) badSignatureError(op string, message []byte, a Approval) error {
	tries := maxRetiredKeysTried
	for _, r := range s.retired {
		if r.signerID != a.SignerID || tries == 0 {
			continue
		}
		if tries--; voi.VerifyWithOptions(r.public[:], message, a.Sig, stdlibOptions) {
			return s.revokedKeyError(op, r)
		}
	}
	return refuse(op, fault.InvalidSig, "Sign exactly the bytes of sign_this of this proposal, with the key that the signer set has for this signer.",
		"the signature of %s does not verify", quote(a.SignerID))
}
