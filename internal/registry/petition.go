package registry

import (
	"context"
	"crypto/rand"
	"net/http"
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
// can be found out without it, so that it has as little to do as possible.

// Initialise begins a registry, if there is none.
func (r *Registry) Initialise(req *http.Request) (client.Initialised, error) {
	const op = "registry.init"
	if err := sized(op, req); err != nil {
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
	_, err = r.hand(bandProposals, len(record.Payload), newJob(req.Context(), func(c *committer, j *job) outcome {
		return c.begin(j.ctx, record, state)
	}))
	if err != nil {
		return client.Initialised{}, err
	}
	signer, err := r.notary(state.Registry())
	if err != nil {
		return client.Initialised{}, err
	}
	r.audit(Event{Type: Initialised, Detail: state.Registry().String()})
	return client.Initialised{Registry: state.Registry(), Key: signer.VerifierKey(), Head: headOf(record, state)}, nil
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

// proposed takes a proposal.
func (r *Registry) proposed(req *http.Request) (*ledger.Proposal, error) {
	const op = "registry.propose"
	wanted, err := decoded(op, req, ledger.DecodeRequest, ledger.DecodeRequestCBOR)
	if err != nil {
		return nil, err
	}
	return r.lodge(req.Context(), op, wanted.TTL, proposing(wanted))
}

// maker makes a proposal of what somebody asks for, given the state.
type maker func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error)

func proposing(wanted ledger.Request) maker {
	return func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error) {
		return state.Propose(wanted, id, now, expires)
	}
}

// superseded takes a proposal to replace what the head did.
func (r *Registry) superseded(req *http.Request) (*ledger.Proposal, error) {
	const op = "registry.supersede"
	wanted, err := decoded(op, req, ledger.DecodeSupersede, ledger.DecodeSupersedeCBOR)
	if err != nil {
		return nil, err
	}
	return r.lodge(req.Context(), op, wanted.TTL, func(state *ledger.State, id string, now, expires time.Time) (*ledger.Proposal, error) {
		return state.Supersede(wanted, id, now, expires)
	})
}

// lodge makes a proposal and has it put on the docket.
func (r *Registry) lodge(ctx context.Context, op string, ttl time.Duration, made maker) (*ledger.Proposal, error) {
	v, err := r.current(op)
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
	p, err := made(v.state, ledger.ProposalID(random), now, expiry(v, now, ttl))
	if err != nil {
		return nil, err
	}
	_, err = r.hand(bandProposals, len(p.Payload), newJob(ctx, func(c *committer, _ *job) outcome { return c.propose(p) }))
	if err != nil {
		return nil, err
	}
	r.audit(Event{Type: Proposed, Proposal: p.ID, Diff: p.Diff})
	return p, nil
}

// expiry is until when a proposal can be committed. The time of the log never
// goes back, so if the clock was ahead once, the log's time is what counts.
func expiry(v *view, now time.Time, ttl time.Duration) time.Time {
	if logged := v.state.CommittedAt(); logged.After(now) {
		now = logged
	}
	return now.Add(ttl)
}

// approved takes an approval. The signature is verified here, on the goroutine
// of the one who brings it.
func (r *Registry) approved(req *http.Request, id string) (client.Approved, error) {
	const op = "registry.approve"
	a, err := decoded(op, req, ledger.DecodeApproval, ledger.DecodeApprovalCBOR)
	if err != nil {
		return client.Approved{}, err
	}
	v, err := r.current(op)
	if err != nil {
		return client.Approved{}, err
	}
	now := r.now()
	e, err := r.docket.find(op, id, now)
	if err != nil {
		return client.Approved{}, err
	}
	if err := e.proposal.Check(v.state, a, now, r.spec.Skew); err != nil {
		return client.Approved{}, err
	}
	done, err := r.hand(bandApprovals, 1, newJob(req.Context(), func(c *committer, _ *job) outcome { return c.approve(id, a) }))
	if err != nil {
		return client.Approved{}, err
	}
	r.audit(Event{Type: Approved, Proposal: id, Signer: a.SignerID})
	return client.Approved{Status: "accepted", Approvals: len(done.entry.approvals), Quorum: quorumOf(v)}, nil
}

// Commit commits a proposal that has its approvals.
func (r *Registry) Commit(ctx context.Context, id string) (_ commitment, err error) {
	ctx, span := r.spec.Tracer.Start(ctx, "registry.commit", trace.WithAttributes(attribute.String("proposal", id)))
	defer span.End()
	defer func() { marked(span, err) }()
	e, err := r.docket.find("registry.commit", id, r.now())
	if err != nil {
		return commitment{}, err
	}
	j := newJob(ctx, nil)
	j.proposal = id
	done, err := r.hand(bandCommits, len(e.proposal.Payload), j)
	if err != nil {
		return commitment{}, err
	}
	return done.commit, nil
}

// marked says on a span how it went.
func marked(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, fault.KindOf(err).String())
	}
}

func quorumOf(v *view) client.Quorum {
	set := v.state.Signers()
	return client.Quorum{M: set.M, N: len(set.Keys)}
}

// tellProposed is a proposal as its author gets it back.
func tellProposed(p *ledger.Proposal) client.Proposed {
	told := client.Proposed{ProposalID: p.ID, PayloadB3: p.PayloadB3, SignThis: p.SignThis, ExpiresAt: p.ExpiresAt,
		Diff: []client.Change{}, DiffText: p.Diff.String()}
	for _, change := range p.Diff {
		told.Diff = append(told.Diff, client.Change{ID: change.ID, Kind: string(change.Kind), Change: string(change.Change), Before: change.Before, After: change.After})
	}
	return told
}

// tellProposal is a proposal and what has become of it.
func tellProposal(id string, e entry, end *ending, v *view, now time.Time) client.Proposal {
	told := client.Proposal{Status: client.ProposalOpen, Approvals: []string{}, Quorum: quorumOf(v)}
	if e.proposal != nil {
		told.Proposed = tellProposed(e.proposal)
		told.Ops = opsOf(e.proposal.Payload)
		told.Supersedes = tellSupersession(e.proposal.Supersedes)
	}
	for _, a := range e.approvals {
		told.Approvals = append(told.Approvals, a.SignerID)
	}
	if end == nil {
		tellWaiting(&told, e.proposal, v.state, now)
		return told
	}
	told.ProposalID, told.PayloadB3, told.ExpiresAt = id, end.payload, end.expiresAt
	told.Status = client.ProposalExpired
	if !end.expired {
		told.Status, told.Version = client.ProposalCommitted, &end.version
	}
	return told
}

// tellWaiting says of a proposal on the docket whether it waits in vain, and why.
// In the moment in which it is committed it is still there, and in the log.
func tellWaiting(told *client.Proposal, p *ledger.Proposal, state *ledger.State, now time.Time) {
	if version, done := state.Committed(p.ID, now); done {
		told.Status, told.Version = client.ProposalCommitted, &version
		return
	}
	refusal := state.Admit(p, now)
	switch fault.KindOf(refusal) {
	case 0:
	case fault.Expired:
		told.Status = client.ProposalExpired
	default:
		told.Status, told.Reason, told.Next = client.ProposalStale, fault.DetailOf(refusal), fault.NextOf(refusal)
	}
}

func tellSupersession(s *ledger.Supersession) *client.Superseded {
	if s == nil {
		return nil
	}
	return &client.Superseded{Version: s.Version, Hash: s.Hash, Reason: s.Reason}
}
