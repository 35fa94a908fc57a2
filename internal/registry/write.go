package registry

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// This file is the writes, before and after the committer: everything that can be
// done without it, so that the committer has as little to do as possible.

// Initialise begins a registry with its first signers, if there is none. It returns
// the first version, and the key with which the log signs its checkpoints.
func (r *Registry) Initialise(ctx context.Context, signers ledger.SignerSet) (client.Initialised, error) {
	spec := ledger.GenesisSpec{Signers: signers, At: r.now()}
	_, _ = rand.Read(spec.Nonce[:]) // it never fails
	record, state, err := ledger.Genesis(spec)
	if err != nil {
		return client.Initialised{}, err
	}
	_, err = r.submit(bandProposals, len(record.Payload), newJob(ctx, func(c *committer) outcome { return c.commitGenesis(ctx, record, state) }))
	if err != nil {
		return client.Initialised{}, err
	}
	signer, err := r.logSigner(state.Registry())
	if err != nil {
		return client.Initialised{}, err
	}
	r.audit(Event{Type: EventInitialised, Detail: state.Registry().String()})
	return client.Initialised{Registry: state.Registry(), Key: signer.VerifierKey(), Head: headResponse(state, b3.Of(record.Payload))}, nil
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
	_, err = r.submit(bandProposals, len(p.Payload), newJob(ctx, func(c *committer) outcome { return c.addProposal(p, from) }))
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
	done, err := r.submit(bandApprovals, 1, newJob(ctx, func(c *committer) outcome { return c.addApproval(id, a) }))
	if err != nil {
		return 0, ledger.SignerSet{}, err
	}
	r.audit(Event{Type: EventApproved, Proposal: id, Signer: a.SignerID})
	return done.approvals, v.state.Signers(), nil
}

// Commit commits a proposal that has its approvals, and returns the new head.
func (r *Registry) Commit(ctx context.Context, id string) (_ client.RegistryHead, err error) {
	ctx, span := r.spec.Tracer.Start(ctx, "registry.commit", trace.WithAttributes(attribute.String("proposal", id)))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, fault.KindOf(err).String())
		}
		span.End()
	}()
	e, err := r.pending.findOpen("registry.commit", id, r.now())
	if err != nil {
		return client.RegistryHead{}, err
	}
	j := newJob(ctx, nil)
	j.proposal = id
	done, err := r.submit(bandCommits, len(e.proposal.Payload), j)
	if err != nil {
		return client.RegistryHead{}, err
	}
	return headResponse(done.state, e.proposal.PayloadB3), nil
}

// The bands of the committer's queue, in the order of its spec. They share the queue
// evenly, so that a flood of proposals does not block approvals.
const (
	bandProposals = iota + 1
	bandApprovals
	bandCommits
)

// job is a unit of work for the committer. It carries values, never a request or a
// ResponseWriter.
type job struct {
	ctx  context.Context // of the caller; a job whose ctx has ended is not begun
	run  func(c *committer) outcome
	done chan outcome // has room for the one outcome

	// for commits, which go into a group; run is nil then
	proposal string
}

// outcome is the result of a job.
type outcome struct {
	approvals int           // of the proposal, after another one
	state     *ledger.State // after the version that was committed
	err       error
}

func newJob(ctx context.Context, do func(*committer) outcome) *job {
	return &job{ctx: ctx, run: do, done: make(chan outcome, 1)}
}

// complete sends the outcome to the caller. The first one counts.
func (j *job) complete(o outcome) {
	select {
	case j.done <- o:
	default:
	}
}

// submit enqueues a job for the committer and waits for its outcome. If the caller's
// ctx ends first, a job that has not begun is never begun; the outcome of one that
// has begun is shown by GET /registry/proposals/{id}.
func (r *Registry) submit(band, cost int, j *job) (outcome, error) {
	if err := r.jobs.TryPush(band, flow.FairItem[*job]{Cost: cost, Item: j}); err != nil {
		return outcome{}, fault.Wrap("registry.queue", err)
	}
	select {
	case o := <-j.done:
		return o, o.err
	case <-j.ctx.Done():
		return outcome{}, &fault.Error{Op: "registry.wait", Kind: fault.KindOf(flow.Ended(j.ctx, "registry.wait")), Err: j.ctx.Err(),
			Detail: "the deadline passed before the answer; the request may still take effect",
			Next:   "Check GET /registry/head and the proposal before you retry."}
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
