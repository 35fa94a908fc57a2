package registry

import (
	"bytes"
	"context"
	"errors"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/tree"
)

// pruneOrder says below which version to prune, and which checkpoint covers the pruned
// versions.
type pruneOrder struct {
	below uint64
	size  uint64
}

// enqueuePrune orders the pruning of old versions. If the pruner's queue is full, the
// order is skipped: the next checkpoint brings another.
func (r *Registry) enqueuePrune(v *view, storage Storage) {
	retain := uint64(storage.Retain)
	size := v.nextVersion()
	if retain == 0 || size <= retain {
		return
	}
	below := size - retain
	below -= below % tree.TileWidth // the leaves of a partial tile are only in their records
	if below == 0 {
		return
	}
	if r.pruneOrders.TryPush(pruneOrder{below: below, size: size}) != nil {
		r.metrics.pruneSkipped.Inc()
	}
}

// runPruner is the pruner's Serve. It prunes what a signed checkpoint covers, and only
// while no commits are queued.
func (r *Registry) runPruner(ctx context.Context) error {
	for {
		o, err := r.pruneOrders.Pop(ctx)
		if errors.Is(err, flow.ErrClosed) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fault.Wrap("registry.prune", err)
		}
		if r.jobs.Len(bandCommits) > 0 {
			r.metrics.pruneSkipped.Inc()
			continue
		}
		if err := r.pruneTo(ctx, o); err != nil {
			r.metrics.countFailure("write", err)
			r.audit(Event{Type: EventStorageFailed, Detail: err.Error()})
		}
	}
}

// pruneTo signs a note about the versions to prune, and prunes them.
func (r *Registry) pruneTo(ctx context.Context, o pruneOrder) error {
	const op = "registry.prune"
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	defer r.health.trackCall("pruning")()
	if err := r.health.damageFound(); err != nil {
		return err // a damaged log is not pruned: its records may be needed for recovery
	}
	_, first, err := r.journal.Pruned(ctx)
	if err != nil || o.below <= first {
		return err
	}
	v := r.view.Load()
	if err := r.ensureTiles(ctx, v, first, o.below); err != nil {
		return err
	}
	last, err := r.readRecord(ctx, v, o.below-1) // the note names its hash
	if err != nil {
		return fault.Wrap(op, err)
	}
	registry := v.state.Registry()
	signer, err := r.logSigner(registry)
	if err != nil {
		return err
	}
	note, err := tree.FormatPrune(tree.PruneNote{Registry: registry, Below: o.below, Hash: last.Head().Hash, Size: o.size}, signer)
	if err != nil {
		return err
	}
	now, err := r.journal.Prune(ctx, journal.Prune{Below: o.below, Note: note})
	if now > first {
		r.metrics.pruned.Add(float64(now - first))
		r.audit(Event{Type: EventPruned, Version: now})
	}
	return err
}

// ensureTiles makes sure that the tiles over the versions to prune are stored and
// right: afterwards they cannot be rebuilt.
func (r *Registry) ensureTiles(ctx context.Context, v *view, from, below uint64) error {
	for n := from / tree.TileWidth; n < below/tree.TileWidth; n++ {
		right, err := r.verifiedLeaves(ctx, v, n, tree.TileWidth)
		if err != nil {
			return fault.Wrap("registry.prune", err)
		}
		at := journal.TileID(tree.TileID{N: n})
		kept, err := r.journal.LoadTile(ctx, at)
		if err == nil && bytes.Equal(kept, right) {
			continue
		}
		if err := r.journal.SaveTile(ctx, at, right); err != nil {
			return fault.Wrap("registry.prune", err)
		}
	}
	return nil
}
