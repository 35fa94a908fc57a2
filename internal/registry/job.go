package registry

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

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
	run  func(c *committer, j *job) outcome
	done chan outcome // has room for the one outcome

	// for commits, which go into a group; run is nil then
	proposal string
}

// outcome is the result of a job.
type outcome struct {
	pending pendingProposal
	commit  commitResult
	err     error
}

// commitResult is the version that a proposal was committed as.
type commitResult struct {
	head   ledger.Head
	record ledger.Record
	state  *ledger.State // after it
}

func newJob(ctx context.Context, do func(*committer, *job) outcome) *job {
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
