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

	// maxTries is how many old keys a wrong signature is held against.
	maxTries = 8
)

// GenesisSpec is what a registry begins with.
type GenesisSpec struct {
	Signers SignerSet
	Nonce   [nonceSize]byte // random: it makes the registry's id its own
	At      time.Time
}

// Genesis makes version 0, which nobody approves: whoever knows the registry's
// id knows its hash.
func Genesis(spec GenesisSpec) (Record, *State, error) {
	item, err := spec.Signers.Item()
	if err != nil {
		return Record{}, nil, fault.Wrap("registry.init", err)
	}
	ops := []Op{Put(item)}
	formers := []former{{id: SignersID}}
	r := Record{Payload: encodePayload(ops), Preconditions: encodePreconditions(formers)}
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

// Admit says whether a proposal could be committed at a time if it had its
// approvals: Conflict, ChainMismatch or Expired if not.
func (s *State) Admit(p *Proposal, at time.Time) error {
	const op = "registry.commit"
	if at = s.clock(at); at.After(p.ExpiresAt) {
		return p.expired(op, at)
	}
	if err := s.current(op, p, at); err != nil {
		return err
	}
	for _, f := range p.formers {
		if err := s.unchanged(op, f); err != nil {
			return err
		}
	}
	return nil
}

// Commit makes the next version of a proposal and its approvals, and the state
// after it. It does not verify signatures: every approval given must have
// passed Check. Those that do not count are left out: of signers that are not
// in the set, and all but the first of one signer. The time is raised to that
// of the head if the clock went back.
func (s *State) Commit(p *Proposal, approvals []Approval, at time.Time) (Record, *State, error) {
	if err := s.Admit(p, at); err != nil {
		return Record{}, nil, err
	}
	counted := s.count(approvals)
	if err := s.quorum("registry.commit", counted); err != nil {
		return Record{}, nil, err
	}
	h := Header{Message: p.Message, Version: s.head.Version + 1, PrevHash: s.head.Hash, CommittedAt: s.clock(at), Approvals: counted}
	r := Record{Version: h.Version, Header: h.encode(), Payload: p.Payload, Preconditions: p.Preconditions}
	return r, s.advance(r.Head(), &h, p.ops, p.formers), nil
}

// clock is a time as the log has it: whole milliseconds, never before the head.
func (s *State) clock(at time.Time) time.Time {
	if at = millis(at); at.Before(s.committedAt) {
		return s.committedAt
	}
	return at
}

// count picks the approvals that count, sorted by key.
func (s *State) count(approvals []Approval) []Counted {
	counted := make([]Counted, 0, len(approvals))
	var taken uint64 // one bit a seat
	for _, a := range approvals {
		seat := s.council.seatOf(a.SignerID)
		if seat < 0 || taken&(1<<seat) != 0 || a.Algo != Algorithm || len(a.Sig) != voi.SignatureSize {
			continue
		}
		taken |= 1 << seat
		a.SignedAt = millis(a.SignedAt)
		counted = append(counted, Counted{a, s.council.set.Keys[seat].Public})
	}
	slices.SortFunc(counted, func(a, b Counted) int { return bytes.Compare(a.Public[:], b.Public[:]) })
	return counted
}

// quorum says whether enough keys have approved.
func (s *State) quorum(op string, counted []Counted) error {
	set := s.council.set
	if len(counted) >= set.M {
		return nil
	}
	var have, missing []string
	for _, k := range set.Keys {
		if slices.ContainsFunc(counted, func(c Counted) bool { return c.Public == k.Public }) {
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
	return refuse(op, fault.QuorumFailed, next, "%d of %d signers must approve, and %s", set.M, len(set.Keys), who)
}

// current says whether a proposal is still one for this state: same registry,
// same signer set, the head it insists on, not committed before.
func (s *State) current(op string, p *Proposal, at time.Time) error {
	if p.Registry != s.registry {
		return refuse(op, fault.Conflict, "Send it to the registry that it was made for.", "the proposal belongs to the registry %s, this is %s", p.Registry, s.registry)
	}
	return s.follows(op, &p.Message, at)
}

// follows checks what a message says of the state before it, as of a time.
func (s *State) follows(op string, m *Message, at time.Time) error {
	if m.SignersVersion != s.SignersVersion() {
		return refuse(op, fault.Conflict, nextPropose, "the signer set has changed: it was approved under that of version %d, and that of version %d is in force", m.SignersVersion, s.SignersVersion())
	}
	id, _ := parseProposalID(m.ProposalID)
	if version, used := s.spent.find(id, at); used {
		return refuse(op, fault.Conflict, "Propose the change again if you want to make it a second time.", "the proposal was committed before, as version %d", version)
	}
	if m.Base != nil && *m.Base != s.head {
		return s.moved(op, *m.Base)
	}
	if m.Supersedes != nil && m.Supersedes.Head != s.head {
		return s.moved(op, m.Supersedes.Head)
	}
	return nil
}

// unchanged says whether an item is still what a proposal found.
func (s *State) unchanged(op string, f former) error {
	item, _ := s.items.Get([]byte(f.id))
	if item == f.item || item != nil && f.item != nil && item.Hash == f.item.Hash {
		return nil
	}
	return refuse(op, fault.Conflict, nextPropose, "%s has changed since the proposal was made", quote(f.id))
}

func (p *Proposal) expired(op string, now time.Time) error {
	return refuse(op, fault.Expired, nextPropose, "the proposal expired at %s; it is %s", p.ExpiresAt.Format(layout), now.UTC().Format(layout))
}

func wrongClock(op string, a Approval, format string, args ...any) error {
	return refuse(op, fault.Malformed, "Set the clock of the machine that signs, and approve again.",
		"it says that it was signed at %s, "+format, append([]any{a.SignedAt.UTC().Format(layout)}, args...)...)
}

// noSigner tells a signer that was never there from one that went.
func (s *State) noSigner(op, id string) error {
	for _, r := range s.retired {
		if r.signerID == id {
			return s.revoked(op, r)
		}
	}
	return refuse(op, fault.UnknownSigner, "Approve as one of: "+s.names()+".", "%s is not in the signer set of version %d", quote(id), s.SignersVersion())
}

func (s *State) revoked(op string, r retirement) error {
	return refuse(op, fault.RevokedKey, "Approve with a key of the signer set in force: "+s.names()+".", "the key of %s was taken out of the signer set in version %d", quote(r.signerID), r.version)
}

func (s *State) names() string {
	names := make([]string, 0, len(s.council.set.Keys))
	for _, k := range s.council.set.Keys {
		names = append(names, k.ID)
	}
	return strings.Join(names, ", ")
}

// badSignature tells a wrong signature from one by an old key of the signer.
// Somebody who sends nonsense shall not have many keys tried for it.
func (s *State) badSignature(op string, message []byte, a Approval) error {
	tries := maxTries
	for _, r := range s.retired {
		if r.signerID != a.SignerID || tries == 0 {
			continue
		}
		if tries--; voi.VerifyWithOptions(r.public[:], message, a.Sig, asStandard) {
			return s.revoked(op, r)
		}
	}
	return refuse(op, fault.InvalidSig, "Sign exactly the bytes of sign_this of this proposal, with the key that the signer set has for this signer.",
		"the signature of %s does not verify", quote(a.SignerID))
}
