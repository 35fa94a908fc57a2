package registry

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// The bands of the committer's queue, in the order of its spec. They share its
// turns evenly, so that a flood of proposals does not keep approvals out.
const (
	bandProposals = iota + 1
	bandApprovals
	bandCommits
)

// job is something that the committer is asked to do. It carries values, never
// a request or an answer's writer.
type job struct {
	ctx  context.Context // of the one who waits; when it has ended, nothing is begun for it
	do   func(c *committer, j *job) outcome
	done chan outcome // has room for the one outcome

	// for those that go into a group; do is nil then
	proposal string
}

// outcome is what the committer says of a job.
type outcome struct {
	entry  entry
	commit commitment
	err    error
}

// commitment is where a proposal has its place in the log.
type commitment struct {
	head   ledger.Head
	record ledger.Record
	state  *ledger.State // after it
}

func newJob(ctx context.Context, do func(*committer, *job) outcome) *job {
	return &job{ctx: ctx, do: do, done: make(chan outcome, 1)}
}

// answer gives the outcome to the one who waits. The first one counts.
func (j *job) answer(o outcome) {
	select {
	case j.done <- o:
	default:
	}
}

// hand gives a job to the committer and waits for its outcome. When the caller's
// time is over first, a job that has not begun never will; what became of one
// that had is told by the proposal's own page.
func (r *Registry) hand(band, cost int, j *job) (outcome, error) {
	if err := r.jobs.TryPush(band, flow.Parcel[*job]{Cost: cost, Item: j}); err != nil {
		return outcome{}, fault.Wrap("registry.queue", err)
	}
	select {
	case o := <-j.done:
		return o, o.err
	case <-j.ctx.Done():
		return outcome{}, &fault.Error{Op: "registry.wait", Kind: fault.KindOf(flow.Ended(j.ctx, "registry.wait")), Err: j.ctx.Err(),
			Detail: "there was no answer in time; what was asked for may still happen",
			Next:   "Look at GET /registry/head and at the proposal before you try again."}
	}
}
