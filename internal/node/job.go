package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// job is a piece of work with a waiting caller. It carries copied values only,
// never a request or a response writer: the caller may have left before it
// runs.
type job struct {
	// set at construction
	caller     context.Context
	idempotent bool
	do         func(ctx context.Context) error

	completed atomic.Bool // the result was delivered
	done      chan error  // buffered for the one result, so that delivering it never blocks
}

// Run does the work for as long as both the caller and the worker live. If a
// worker is killed in the very moment in which it has completed the work, the
// pool runs the job again: then nothing is done, because the caller already
// reads the results of the work.
func (j *job) Run(ctx context.Context) {
	if j.completed.Load() {
		return
	}
	joined, cancel := flow.Join(j.caller, ctx)
	defer cancel()
	if err := flow.Ended(joined, "node.work"); err != nil {
		j.complete(err)
		return
	}
	err := j.do(joined)
	if err != nil && errors.Is(context.Cause(ctx), supervise.ErrKilled) {
		return // the worker was killed: the pool runs the job again, or abandons it
	}
	j.complete(err)
}

// Deadline is the caller's deadline: a worker that takes longer counts as
// stuck.
func (j *job) Deadline() (time.Time, bool) { return j.caller.Deadline() }

// Idempotent reports whether the work may be repeated after its worker died.
func (j *job) Idempotent() bool { return j.idempotent }

// Abandon fails the job: no worker will run it.
func (j *job) Abandon(err error) { j.complete(err) }

// complete delivers the first result; later ones are dropped.
func (j *job) complete(err error) {
	if !j.completed.Swap(true) {
		j.done <- err
	}
}

// submit queues a job and waits for its result until ctx ends. A full queue is
// fault.Busy, at once.
func (n *Node) submit(ctx context.Context, idempotent bool, do func(ctx context.Context) error) error {
	j := &job{caller: ctx, idempotent: idempotent, do: do, done: make(chan error, 1)}
	if err := n.work.TryPush(j); err != nil {
		return err
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return flow.Ended(ctx, "node.work")
	}
}
