package node

import (
	"context"
	"errors"
	"sync/atomic"

	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// job is a piece of work that somebody waits for. It carries copied values
// only, never a request or a response writer: the one who waits may be gone
// before it runs.
type job struct {
	// set at construction
	caller     context.Context
	idempotent bool
	do         func(ctx context.Context) error

	settled atomic.Bool // the result was delivered
	done    chan error  // has room for the one result, so that nobody waits to deliver it
}

// Run does the work for as long as both the one who waits and the worker live.
// A worker that is killed in the very moment in which it had done the work makes
// the pool try again: then nothing is done, because the one who waited reads by
// now what the work has left for it.
func (j *job) Run(ctx context.Context) {
	if j.settled.Load() {
		return
	}
	joined, cancel := flow.Join(j.caller, ctx)
	defer cancel()
	if err := flow.Ended(joined, "node.work"); err != nil {
		j.settle(err)
		return
	}
	err := j.do(joined)
	if err != nil && errors.Is(context.Cause(ctx), supervise.ErrKilled) {
		return // the worker died, not the work: the pool tries it again, or abandons it
	}
	j.settle(err)
}

// Idempotent reports whether the work may be tried again after its worker died.
func (j *job) Idempotent() bool { return j.idempotent }

// Abandon tells the one who waits that nobody will do the work.
func (j *job) Abandon(err error) { j.settle(err) }

// settle delivers the first result; later ones are of no interest.
func (j *job) settle(err error) {
	if !j.settled.Swap(true) {
		j.done <- err
	}
}

// submit queues a piece of work and waits for its result until ctx ends. A
// full queue is fault.Busy, at once.
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
