package registry

import (
	"context"
	"errors"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// commitVerifier reads versions back when they have been committed, and verifies
// them: that the storage returns what was signed, and what is served. It continues
// from what was verified last, at the start from what was opened, so its cost is that
// of the new versions. It belongs to the verifier's task.
type commitVerifier struct {
	registry *Registry    // set at construction
	verified *view        // everything up to its head was verified
	seen     flow.Version // of the view that was looked at last
	retryAt  time.Time    // when the storage could not be read; zero otherwise
}

func newCommitVerifier(r *Registry) *commitVerifier {
	c := &commitVerifier{registry: r}
	c.verified, c.seen = r.view.LoadVersion()
	return c
}

// wait waits for a commit, or for a time, and verifies what is new.
func (c *commitVerifier) wait(ctx context.Context, most time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, most)
	_, _, _ = c.registry.view.WaitForChange(limited, c.seen) // a commit or the end of the time: either way, it looks
	cancel()
	if err := flow.Ended(ctx, verifyOp); err != nil {
		return err
	}
	return c.verify(ctx)
}

// verify verifies the versions that were committed since the last call. Damage is
// reported; the error is that of ctx.
func (c *commitVerifier) verify(ctx context.Context) error {
	v, seen := c.registry.view.LoadVersion()
	if seen == c.seen && (c.retryAt.IsZero() || time.Now().Before(c.retryAt)) {
		return nil
	}
	c.seen, c.retryAt = seen, time.Time{}
	if v.nextVersion() <= c.verified.nextVersion() {
		return nil
	}
	err := asIntegrityError(c.verifyUpTo(ctx, v))
	switch {
	case ctx.Err() != nil:
		return flow.Ended(ctx, verifyOp)
	case err == nil:
		c.registry.metrics.verifiedCommits.Add(float64(v.nextVersion() - c.verified.nextVersion()))
	case errors.Is(err, fault.IntegrityFail):
		c.registry.reportDamage(err)
	case errors.Is(err, fault.Expired): // it was pruned before it was read; the next round verifies what is left
	default:
		c.registry.metrics.countFailure("read", err)
		c.retryAt = time.Now().Add(verifyTick)
		return nil
	}
	c.verified = v
	return nil
}

// verifyUpTo verifies the versions up to the head of a view.
func (c *commitVerifier) verifyUpTo(ctx context.Context, v *view) error {
	state, slice := c.verified.state, time.Now()
	err := c.registry.journal.Scan(ctx, c.verified.nextVersion(), func(record ledger.Record) (err error) {
		if state, err = state.Apply(record); err != nil {
			return fault.WrapKind(verifyOp, fault.IntegrityFail, err)
		}
		leaves, err := c.registry.verifiedLeaves(ctx, v, record.Version/tree.TileWidth, int(record.Version%tree.TileWidth)+1)
		if err != nil {
			return err
		}
		if err := checkLeaf(record, leaves); err != nil {
			return err
		}
		if record.Version+1 >= v.nextVersion() {
			return errStopScan
		}
		return c.registry.throttle(ctx, &slice)
	})
	if err != nil && !errors.Is(err, errStopScan) {
		return err
	}
	if state == nil || state.Head() != v.state.Head() {
		return integrityError("the log ends before version %d, or differs from what is served", v.state.Head().Version)
	}
	return nil
}
