package registry

import (
	"context"
	"errors"

	"micronode/fault"
	"micronode/internal/flow"
)

// publish is the publisher's Serve. The committer tells its bus and goes on;
// this task passes the news on to the node and to whoever follows the stream,
// however many there are. If it stalls, commits go on, and it loses the oldest
// news, which is counted.
func (r *Registry) publish(ctx context.Context) error {
	for {
		news, err := r.heard.Recv(ctx)
		switch {
		case errors.Is(err, fault.Lagging):
			continue // those who follow the stream see a gap in the versions, and are told
		case errors.Is(err, flow.ErrClosed), ctx.Err() != nil:
			r.stream.Close()
			return nil
		case err != nil:
			return fault.Wrap("registry.publish", err)
		}
		_ = r.stream.Publish(news) // a closed one has no readers left
		if r.spec.Announce != nil {
			r.spec.Announce(news)
		}
	}
}

// follow is the follower's Serve: it hears of the commits of another registry on
// the same storage, and has the committer take them over.
func (r *Registry) follow(ctx context.Context) error {
	for {
		err := r.journal.Changed(ctx, r.view.Load().expect())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fault.Wrap("registry.follow", err)
		}
		if _, err := r.hand(bandCommits, 1, r.look(ctx)); err != nil && ctx.Err() == nil {
			if err := flow.Sleep(ctx, gateTick); err != nil {
				return nil
			}
		}
	}
}

// look asks the committer to take over what the log has and the view does not.
func (r *Registry) look(ctx context.Context) *job {
	return newJob(ctx, func(c *committer, j *job) outcome {
		c.doubt = true
		return outcome{err: c.settle(j.ctx)}
	})
}

// reload is the reloader's Serve: it puts settings in force, the latest ones
// that were verified.
func (r *Registry) reload(ctx context.Context) error {
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

// Reconfigure takes what can change without a restart. The configuration was
// verified; if the reloader is behind, the latest one wins.
func (r *Registry) Reconfigure(next Config) error {
	if err := r.reloads.TryPush(next); err != nil {
		r.metrics.reloadFailed.WithLabelValues("full").Inc()
		return fault.Wrap("registry.reload", err)
	}
	return nil
}
