package registry

import (
	"context"
	"errors"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/tree"
)

// order tells the pruner up to where versions may go, and which checkpoint
// covers them.
type order struct {
	below uint64
	size  uint64
}

// orderPruning asks for old versions to be pruned. If the pruner has not got to
// the last orders yet, this one is skipped: the next checkpoint brings another.
func (r *Registry) orderPruning(v *view, storage Storage) {
	retain := uint64(storage.Retain)
	size := v.next()
	if retain == 0 || size <= retain {
		return
	}
	below := size - retain
	below -= below % tree.TileWidth // the leaves of a tile that is cut would be nowhere but in their records
	if below == 0 {
		return
	}
	if r.retention.TryPush(order{below: below, size: size}) != nil {
		r.metrics.pruneSkipped.Inc()
	}
}

// prune is the pruner's Serve. It gives up what a signed checkpoint covers, and
// only while the committer has nothing to do.
func (r *Registry) prune(ctx context.Context) error {
	for {
		o, err := r.retention.Pop(ctx)
		if errors.Is(err, flow.ErrClosed) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fault.Wrap("registry.prune", err)
		}
		if r.busy() {
			r.metrics.pruneSkipped.Inc()
			continue
		}
		if err := r.pruneTo(ctx, o); err != nil {
			r.metrics.failed("write", err)
			r.audit(Event{Type: Failed, Detail: err.Error()})
		}
	}
}

// busy reports whether somebody waits for the committer.
func (r *Registry) busy() bool { return r.jobs.Len(bandCommits) > 0 }

// pruneTo signs what is about to be given up, and gives it up.
func (r *Registry) pruneTo(ctx context.Context, o order) error {
	const op = "registry.prune"
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	_, first, err := r.journal.Pruned(ctx)
	if err != nil || o.below <= first {
		return err
	}
	if err := r.keepTiles(ctx, first, o.below); err != nil {
		return err
	}
	last, err := r.journal.Read(ctx, o.below-1)
	if err != nil {
		return fault.Wrap(op, err)
	}
	registry := r.view.Load().state.Registry()
	signer, err := r.notary(registry)
	if err != nil {
		return err
	}
	note, err := tree.FormatPrune(tree.Prune{Registry: registry, Below: o.below, Hash: last.Head().Hash, Size: o.size}, signer)
	if err != nil {
		return err
	}
	now, err := r.journal.Prune(ctx, journal.Prune{Below: o.below, Note: note})
	if now > first {
		r.metrics.pruned.Add(float64(now - first))
		r.audit(Event{Type: Pruned, Version: now})
	}
	return err
}

// keepTiles makes sure that the tiles over versions that are about to go are
// there: afterwards nothing could make them again.
func (r *Registry) keepTiles(ctx context.Context, from, below uint64) error {
	for n := from / tree.TileWidth; n < below/tree.TileWidth; n++ {
		at := tree.TileID{N: n}
		_, err := r.journal.LoadTile(ctx, tileID(at))
		if err == nil {
			continue
		}
		tile, err := r.loadTile(ctx, at)
		if err == nil {
			err = r.journal.SaveTile(ctx, tileID(at), tile)
		}
		if err != nil {
			return fault.Wrap("registry.prune", err)
		}
	}
	return nil
}
