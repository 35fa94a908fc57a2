package registry

import (
	"context"
	"errors"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Committed is a version that was just added, as it is announced to other nodes and to
// the subscribers of the stream.
type Committed struct {
	Version uint64     `json:"version"`
	Hash    b3.Address `json:"b3"`
	At      time.Time  `json:"committed_at"`
}

// runPublisher is the publisher's Serve. The committer publishes to its bus and goes
// on; this task passes commits on to the node and to all subscribers of the stream.
// If it stalls, commits go on, and the bus drops the oldest, which is counted.
func (r *Registry) runPublisher(ctx context.Context) error {
	for {
		committed, err := r.publisherReader.Recv(ctx)
		switch {
		case errors.Is(err, fault.Lagging):
			continue // subscribers of the stream detect the gap in the versions, and report a lag
		case errors.Is(err, flow.ErrClosed), ctx.Err() != nil:
			r.stream.Close()
			return nil
		case err != nil:
			return fault.Wrap("registry.publish", err)
		}
		_ = r.stream.Publish(committed) // a closed bus has no readers left
		if r.spec.Announce != nil {
			r.spec.Announce(committed)
		}
	}
}

// followPause is how long the follower waits when the storage is away.
const followPause = 500 * time.Millisecond

// isAway reports whether an error means that the storage does not answer now.
func isAway(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.UpstreamFailed, fault.StorageBusy:
		return err != nil
	}
	return false
}

// runFollower is the follower's Serve: it watches for commits of another registry on
// the same storage, and makes the committer catch up.
func (r *Registry) runFollower(ctx context.Context) error {
	for {
		err := r.journal.Changed(ctx, r.view.Load().expectedHead())
		if ctx.Err() != nil {
			return nil
		}
		if isAway(err) { // the gate says so in readiness, and the follower goes on when it is back
			if flow.Sleep(ctx, followPause) != nil {
				return nil
			}
			continue
		}
		if err != nil {
			return fault.Wrap("registry.follow", err)
		}
		if _, err := r.submit(bandCommits, 1, r.catchUpJob(ctx)); err != nil && ctx.Err() == nil {
			if err := flow.Sleep(ctx, healthTick); err != nil {
				return nil
			}
		}
	}
}

// catchUpJob makes the committer apply what the log has and the view has not.
func (r *Registry) catchUpJob(ctx context.Context) *job {
	return newJob(ctx, func(c *committer) outcome {
		c.mustCatchUp = true
		return outcome{err: c.ensureCaughtUp(ctx)}
	})
}

// runReloader is the reloader's Serve: it applies the latest settings that were
// validated.
func (r *Registry) runReloader(ctx context.Context) error {
	for {
		next, err := r.reloads.Pop(ctx)
		if errors.Is(err, flow.ErrClosed) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fault.Wrap("registry.reload", err)
		}
		r.settings.Store(next)
		r.metrics.reloaded.WithLabelValues("config").Inc()
	}
}

// Reconfigure enqueues settings that can change without a restart. They were validated
// before; if the reloader is behind, the latest ones win. So they are refused only
// while the node drains.
func (r *Registry) Reconfigure(next Config) error {
	if err := r.reloads.TryPush(next); err != nil {
		r.metrics.reloadFailed.WithLabelValues(reloadDraining).Inc()
		return fault.Wrap("registry.reload", err)
	}
	return nil
}

// CountRejectedConfig counts a configuration that was rejected before Reconfigure: the
// settings in force stay.
func (r *Registry) CountRejectedConfig() {
	r.metrics.reloadFailed.WithLabelValues(reloadRejected).Inc()
}
