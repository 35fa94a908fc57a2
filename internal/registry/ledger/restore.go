package ledger

import (
	"bytes"
	"encoding/binary"
	"time"

	"micronode/fault"
)

// Keep returns what must be kept of a proposal to make it again after a
// restart: the signed message, the change, and when it was proposed. All the
// rest follows from the state.
func (p *Proposal) Keep() []byte {
	b := make([]byte, 0, 16+len(p.SignThis)+len(p.Payload)+len(p.Preconditions))
	b = binary.BigEndian.AppendUint64(b, uint64(p.ProposedAt.UnixMilli()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.SignThis)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.Payload)))
	b = append(append(b, p.SignThis...), p.Payload...)
	return append(b, p.Preconditions...)
}

// Restore makes a proposal again from what Keep returned. Nothing is believed
// that the signed message does not say, and the proposal must be one that could
// still be committed: Conflict, ChainMismatch or Expired if not.
func (s *State) Restore(kept []byte, now time.Time) (*Proposal, error) {
	const op = "registry.restore"
	const header = 16
	if len(kept) < header {
		return nil, malformed(op, "a kept proposal of %d bytes", len(kept))
	}
	proposedAt := time.UnixMilli(int64(binary.BigEndian.Uint64(kept))).UTC()
	signed, payload := uint64(binary.BigEndian.Uint32(kept[8:])), uint64(binary.BigEndian.Uint32(kept[12:]))
	if kept = kept[header:]; signed+payload > uint64(len(kept)) {
		return nil, malformed(op, "a kept proposal that is cut off")
	}
	p := &Proposal{SignThis: kept[:signed:signed], Payload: kept[signed : signed+payload : signed+payload], Preconditions: kept[signed+payload:], ProposedAt: proposedAt}
	m, err := ParseApprovalMessage(p.SignThis)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if err := m.Covers(p.Payload, p.Preconditions); err != nil {
		return nil, fault.Wrap(op, err)
	}
	change, err := DecodePayload(p.Payload)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	prior, err := s.priorItemsOf(change.Ops)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if !bytes.Equal(encodePreconditions(prior), p.Preconditions) {
		return nil, refuse(op, fault.Conflict, nextPropose, "the items that it changes have changed since the proposal was made")
	}
	p.ApprovalMessage, p.ID, p.ops, p.priorItems = m, m.ProposalID, change.Ops, prior
	p.Diff = diffOf(p.ops, p.priorItems)
	if err := s.Admit(p, now); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return p, nil
}
