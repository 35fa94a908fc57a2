package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// This file makes the answers of the routes, in the shapes that clients read.

// headResponse makes the response for the head of a state.
func headResponse(state *ledger.State, payload b3.Address) client.RegistryHead {
	head := state.Head()
	return client.RegistryHead{Version: head.Version, Hash: head.Hash, PayloadB3: payload, CommittedAt: state.CommittedAt()}
}

// headHeader returns the header of a response with the head. A cache may store it, and
// must revalidate it.
func headHeader(hash b3.Address) http.Header {
	return http.Header{
		"Content-Type":  {"application/json"},
		"Etag":          {`"` + hash.String() + `"`},
		"Cache-Control": {"no-cache"},
	}
}

// versionResponse makes the response for a version.
func (r *Registry) versionResponse(ctx context.Context, v *view, record ledger.Record, items bool) (client.RegistryVersion, error) {
	header, err := record.DecodeHeader()
	if err != nil {
		return client.RegistryVersion{}, err
	}
	response := client.RegistryVersion{
		SchemaVersion: ledger.SchemaVersion, Version: record.Version, Ops: opsOf(record.Payload), Items: []json.RawMessage{},
		PayloadB3: header.PayloadB3, PrevHash: header.PrevHash, Hash: record.Head().Hash, CommittedAt: header.CommittedAt,
		ProposalID: header.ProposalID, Supersedes: supersededResponse(header.Supersedes), Header: record.Header, Payload: record.Payload, Preconditions: record.Preconditions,
		Approvals: []client.VersionApproval{},
		SignerSet: signerSetResponse(v.signersAt(header.SignersVersion), header.SignersVersion),
	}
	for _, a := range header.Approvals {
		response.Approvals = append(response.Approvals, client.VersionApproval{Public: a.Public.String(),
			Approval: client.Approval{SignerID: a.SignerID, Algo: a.Algo, Sig: a.Sig, SignedAt: a.SignedAt}})
	}
	if !items {
		return response, nil
	}
	state, err := r.stateAt(ctx, v, record.Head())
	if err != nil {
		return client.RegistryVersion{}, err
	}
	for item := range state.Items() {
		response.Items = append(response.Items, json.RawMessage(item.JSON))
	}
	return response, nil
}

func signerSetResponse(set ledger.SignerSet, since uint64) client.SignerSet {
	response := client.SignerSet{Version: since, M: set.M, Keys: []client.RegistryKey{}}
	for _, key := range set.Keys {
		response.Keys = append(response.Keys, client.RegistryKey{SignerID: key.ID, Public: key.Public.String()})
	}
	return response
}

func quorumResponse(signers ledger.SignerSet) client.Quorum {
	return client.Quorum{M: signers.M, N: len(signers.Keys)}
}

// proposedResponse makes the response to a new proposal.
func proposedResponse(p *ledger.Proposal) client.Proposed {
	response := client.Proposed{ProposalID: p.ID, PayloadB3: p.PayloadB3, SignThis: p.SignThis, ExpiresAt: p.ExpiresAt,
		Diff: []client.Change{}, DiffText: p.Diff.String()}
	for _, change := range p.Diff {
		response.Diff = append(response.Diff, client.Change(change))
	}
	return response
}

// proposalResponse makes the response for a proposal and what became of it.
func proposalResponse(id string, e pendingProposal, finished *finishedProposal, v *view, now time.Time) client.Proposal {
	response := client.Proposal{Status: client.ProposalOpen, Approvals: []string{}, Quorum: quorumResponse(v.state.Signers())}
	if e.proposal != nil {
		response.Proposed = proposedResponse(e.proposal)
		response.Ops = opsOf(e.proposal.Payload)
		response.Supersedes = supersededResponse(e.proposal.Supersedes)
	}
	for _, a := range e.approvals {
		response.Approvals = append(response.Approvals, a.SignerID)
	}
	if finished == nil {
		setPendingStatus(&response, e.proposal, v.state, now)
		return response
	}
	response.ProposalID, response.PayloadB3, response.ExpiresAt = id, finished.payload, finished.expiresAt
	response.Status = client.ProposalExpired
	if !finished.expired {
		response.Status, response.Version = client.ProposalCommitted, &finished.version
	}
	return response
}

// setPendingStatus sets whether a pending proposal is stale, and why. While it is being
// committed, a proposal is for a moment both pending and in the log.
func setPendingStatus(response *client.Proposal, p *ledger.Proposal, state *ledger.State, now time.Time) {
	if version, done := state.Committed(p.ID, now); done {
		response.Status, response.Version = client.ProposalCommitted, &version
		return
	}
	refusal := state.Admit(p, now)
	switch fault.KindOf(refusal) {
	case 0:
	case fault.Expired:
		response.Status = client.ProposalExpired
	default:
		response.Status, response.Reason, response.Next = client.ProposalStale, fault.DetailOf(refusal), fault.NextOf(refusal)
	}
}

func supersededResponse(s *ledger.Supersession) *client.Superseded {
	if s == nil {
		return nil
	}
	return &client.Superseded{Version: s.Version, Hash: s.Hash, Reason: s.Reason}
}

// opsOf returns the operations of a payload, each as it is stored.
func opsOf(payload []byte) []json.RawMessage {
	var stored struct {
		Ops []json.RawMessage `json:"ops"`
	}
	if json.Unmarshal(payload, &stored) != nil {
		return []json.RawMessage{}
	}
	return stored.Ops
}
