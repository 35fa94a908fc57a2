package registry

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// This file is the writes, before and after the committer: everything that can be
// done without it, so that the committer has as little to do as possible.

// Initialise begins a registry with its first signers, if there is none. It returns
// the first version, and the key with which the log signs its checkpoints.
func (r *Registry) Initialise(ctx context.Context, signers ledger.SignerSet) (first commitResult, key string, err error) {
	spec := ledger.GenesisSpec{Signers: signers, At: r.now()}
	_, _ = rand.Read(spec.Nonce[:]) // it never fails
	record, state, err := ledger.Genesis(spec)
	if err != nil {
		return commitResult{}, "", err
	}
	_, err = r.submit(bandProposals, len(record.Payload), newJob(ctx, func(c *committer, j *job) outcome {
		return c.commitGenesis(j.ctx, record, state)
	}))
	if err != nil {
		return commitResult{}, "", err
	}
	signer, err := r.logSigner(state.Registry())
	if err != nil {
		return commitResult{}, "", err
	}
	r.audit(Event{Type: EventInitialised, Detail: state.Registry().String()})
	return commitResult{head: state.Head(), record: record, state: state}, signer.VerifierKey(), nil
}

// Propose makes a proposal for a client, and keeps it until it is committed or
// expires.
func (r *Registry) Propose(ctx context.Context, from netip.Addr, request ledger.Request) (*ledger.Proposal, error) {
	return r.submitProposal(ctx, from, "registry.propose", request.TTL, func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error) {
		return state.Propose(request, id, now, expires)
	})
}

// Supersede makes a proposal for a client to replace what the head did.
func (r *Registry) Supersede(ctx context.Context, from netip.Addr, request ledger.SupersedeRequest) (*ledger.Proposal, error) {
	return r.submitProposal(ctx, from, "registry.supersede", request.TTL, func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error) {
		return state.Supersede(request, id, now, expires)
	})
}

// proposalBuilder makes a proposal from a request, given the state.
type proposalBuilder func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error)

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

// Approve adds an approval to a proposal. It verifies the signature on the goroutine
// of the caller. It returns how many have approved, and the signers.
func (r *Registry) Approve(ctx context.Context, id string, a ledger.Approval) (approvals int, signers ledger.SignerSet, err error) {
	const op = "registry.approve"
	v, err := r.currentView(op)
	if err != nil {
		return 0, ledger.SignerSet{}, err
	}
	now := r.now()
	e, err := r.pending.findOpen(op, id, now)
	if err != nil {
		return 0, ledger.SignerSet{}, err
	}
	if err := e.proposal.Check(v.state, a, now, r.spec.Skew); err != nil {
		return 0, ledger.SignerSet{}, err
	}
	done, err := r.submit(bandApprovals, 1, newJob(ctx, func(c *committer, _ *job) outcome { return c.addApproval(id, a) }))
	if err != nil {
		return 0, ledger.SignerSet{}, err
	}
	r.audit(Event{Type: EventApproved, Proposal: id, Signer: a.SignerID})
	return len(done.pending.approvals), v.state.Signers(), nil
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

// notInitialised is the error of a registry that has no version yet.
func notInitialised(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "this node has no registry yet",
		Next: "Create one with `micronode registry init --m 2 --key alice.pub --key bob.pub --key carol.pub`."}
}

// staleProposal is the error for a proposal that was made before the signers changed.
func staleProposal(op string) error {
	return &fault.Error{Op: op, Kind: fault.Conflict, Detail: "the signers have changed since this was proposed, so that its approvals are void",
		Next: "Propose it again, and have it signed by the current signers."}
}
