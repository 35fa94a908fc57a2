package registry

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/registry/ledger"
)

// This file is what handlers do before and after the committer: everything that
// can be done without it, so that the committer has as little to do as possible.

// Initialise begins a registry, if there is none.
func (r *Registry) Initialise(req *http.Request) (client.Initialised, error) {
	const op = "registry.init"
	if err := requireLength(op, req); err != nil {
		return client.Initialised{}, err
	}
	var wanted client.InitRequest
	if err := ingress.DecodeJSON(req, &wanted); err != nil {
		return client.Initialised{}, err
	}
	signers, err := signersOf(wanted)
	if err != nil {
		return client.Initialised{}, fault.Wrap(op, err)
	}
	spec := ledger.GenesisSpec{Signers: signers, At: r.now()}
	_, _ = rand.Read(spec.Nonce[:]) // it never fails
	record, state, err := ledger.Genesis(spec)
	if err != nil {
		return client.Initialised{}, err
	}
	_, err = r.submit(bandProposals, len(record.Payload), newJob(req.Context(), func(c *committer, j *job) outcome {
		return c.commitGenesis(j.ctx, record, state)
	}))
	if err != nil {
		return client.Initialised{}, err
	}
	signer, err := r.logSigner(state.Registry())
	if err != nil {
		return client.Initialised{}, err
	}
	r.audit(Event{Type: EventInitialised, Detail: state.Registry().String()})
	return client.Initialised{Registry: state.Registry(), Key: signer.VerifierKey(), Head: headResponse(record, state)}, nil
}

func signersOf(wanted client.InitRequest) (ledger.SignerSet, error) {
	set := ledger.SignerSet{M: wanted.M}
	for _, key := range wanted.Keys {
		public, err := ledger.ParsePublicKey(key.Public)
		if err != nil {
			return ledger.SignerSet{}, err
		}
		set.Keys = append(set.Keys, ledger.Signer{ID: key.SignerID, Public: public})
	}
	return set, nil
}

// propose handles a proposal.
func (r *Registry) propose(req *http.Request) (*ledger.Proposal, error) {
	const op = "registry.propose"
	request, err := decodeBody(op, req, ledger.DecodeRequest, ledger.DecodeRequestCBOR)
	if err != nil {
		return nil, err
	}
	return r.submitProposal(req.Context(), ingress.ShareKey(req), op, request.TTL, proposalFrom(request))
}

// proposalBuilder makes a proposal from a request, given the state.
type proposalBuilder func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error)

func proposalFrom(request ledger.Request) proposalBuilder {
	return func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error) {
		return state.Propose(request, id, now, expires)
	}
}

// supersede handles a proposal to replace what the head did.
func (r *Registry) supersede(req *http.Request) (*ledger.Proposal, error) {
	const op = "registry.supersede"
	request, err := decodeBody(op, req, ledger.DecodeSupersede, ledger.DecodeSupersedeCBOR)
	if err != nil {
		return nil, err
	}
	return r.submitProposal(req.Context(), ingress.ShareKey(req), op, request.TTL, func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error) {
		return state.Supersede(request, id, now, expires)
	})
}

// submitProposal builds a proposal and submits it to the committer.
func (r *Registry) submitProposal(ctx context.Context, from netip.Addr, op string, ttl time.Duration, build proposalBuilder) (*ledger.Proposal, error) {
	v, err := r.currentView(op)
	if err != nil {
		return nil, err
	}
	if ttl == 0 {
		ttl = r.settings.Load().ProposalTTL
	}
	if ttl > maxTTL {
		return nil, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "ttl_s is too long", Next: "Choose at most 30 days: 2592000."}
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	now := r.now()
	p, err := build(v.state, ledger.ProposalID(random), now, expiry(v, now, ttl))
	if err != nil {
		return nil, err
	}
	_, err = r.submit(bandProposals, len(p.Payload), newJob(ctx, func(c *committer, _ *job) outcome { return c.addProposal(p, from) }))
	if err != nil {
		return nil, err
	}
	r.audit(Event{Type: EventProposed, Proposal: p.ID, Diff: p.Diff})
	return p, nil
}

// expiry returns until when a proposal can be committed. The time of the log never
// goes back, so if the clock was ahead once, the log's time is what counts.
func expiry(v *view, now time.Time, ttl time.Duration) time.Time {
	if logged := v.state.CommittedAt(); logged.After(now) {
		now = logged
	}
	return now.Add(ttl)
}

// approve handles an approval. The signature is verified here, on the goroutine of
// the request.
func (r *Registry) approve(req *http.Request, id string) (client.Approved, error) {
	const op = "registry.approve"
	a, err := decodeBody(op, req, ledger.DecodeApproval, ledger.DecodeApprovalCBOR)
	if err != nil {
		return client.Approved{}, err
	}
	v, err := r.currentView(op)
	if err != nil {
		return client.Approved{}, err
	}
	now := r.now()
	e, err := r.pending.findOpen(op, id, now)
	if err != nil {
		return client.Approved{}, err
	}
	if err := e.proposal.Check(v.state, a, now, r.spec.Skew); err != nil {
		return client.Approved{}, err
	}
	done, err := r.submit(bandApprovals, 1, newJob(req.Context(), func(c *committer, _ *job) outcome { return c.addApproval(id, a) }))
	if err != nil {
		return client.Approved{}, err
	}
	r.audit(Event{Type: EventApproved, Proposal: id, Signer: a.SignerID})
	return client.Approved{Status: "accepted", Approvals: len(done.pending.approvals), Quorum: quorumOf(v)}, nil
}

// Commit commits a proposal that has its approvals.
func (r *Registry) Commit(ctx context.Context, id string) (_ commitResult, err error) {
	ctx, span := r.spec.Tracer.Start(ctx, "registry.commit", trace.WithAttributes(attribute.String("proposal", id)))
	defer span.End()
	defer func() { setSpanStatus(span, err) }()
	e, err := r.pending.findOpen("registry.commit", id, r.now())
	if err != nil {
		return commitResult{}, err
	}
	j := newJob(ctx, nil)
	j.proposal = id
	done, err := r.submit(bandCommits, len(e.proposal.Payload), j)
	if err != nil {
		return commitResult{}, err
	}
	return done.commit, nil
}

// setSpanStatus sets the error status of a span.
func setSpanStatus(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, fault.KindOf(err).String())
	}
}

func quorumOf(v *view) client.Quorum {
	set := v.state.Signers()
	return client.Quorum{M: set.M, N: len(set.Keys)}
}

// proposedResponse makes the response to a new proposal.
func proposedResponse(p *ledger.Proposal) client.Proposed {
	response := client.Proposed{ProposalID: p.ID, PayloadB3: p.PayloadB3, SignThis: p.SignThis, ExpiresAt: p.ExpiresAt,
		Diff: []client.Change{}, DiffText: p.Diff.String()}
	for _, change := range p.Diff {
		response.Diff = append(response.Diff, client.Change{ID: change.ID, Kind: string(change.Kind), Change: string(change.Change), Before: change.Before, After: change.After})
	}
	return response
}

// proposalResponse makes the response for a proposal and what became of it.
func proposalResponse(id string, e pendingProposal, finished *finishedProposal, v *view, now time.Time) client.Proposal {
	response := client.Proposal{Status: client.ProposalOpen, Approvals: []string{}, Quorum: quorumOf(v)}
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
