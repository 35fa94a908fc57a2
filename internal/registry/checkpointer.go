package registry

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/tree"
)

// checkpointTick is how often the checkpointer looks whether one is due.
const checkpointTick = 250 * time.Millisecond

// lastCheckpoint is how long the one at the end may take.
const lastCheckpoint = 300 * time.Millisecond

// keepCheckpoints is the checkpointer's Serve. Now and then it keeps a signed
// checkpoint with a snapshot, so that opening the log costs by what came after
// it, and so that what came before it may be pruned.
func (r *Registry) keepCheckpoints(ctx context.Context) error {
	last := time.Now()
	for {
		if flow.Sleep(ctx, checkpointTick) != nil {
			r.keepLastCheckpoint(ctx)
			return nil
		}
		v, storage := r.view.Load(), r.settings.Load().Storage
		if !r.due(v, storage, time.Since(last)) {
			continue
		}
		last = time.Now()
		if err := r.keepCheckpoint(ctx, v); err != nil {
			r.metrics.checkpointsFailed.Inc()
			r.metrics.failed("write", err)
			r.audit(Event{Type: Failed, Detail: err.Error()})
			continue // the versions are safe without it, and the next one covers them
		}
		r.orderPruning(v, storage)
	}
}

// keepLastCheckpoint covers what came since the last one when the node stops, so
// that it opens quickly, and so that nobody can cut off the end of the log
// meanwhile without its being seen. The drain has little time for it.
func (r *Registry) keepLastCheckpoint(ctx context.Context) {
	v := r.view.Load()
	if v.state == nil || v.next() <= r.kept.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCheckpoint)
	defer cancel()
	if err := r.keepCheckpoint(ctx, v); err != nil {
		r.metrics.checkpointsFailed.Inc()
	}
}

// due reports whether it is time for a checkpoint.
func (r *Registry) due(v *view, storage Storage, passed time.Duration) bool {
	if v.state == nil {
		return false
	}
	size, kept := v.next(), r.kept.Load()
	return size > kept && (passed >= storage.CheckpointInterval || size-kept >= uint64(storage.CheckpointVersions))
}

// keepCheckpoint signs what a view shows and keeps it.
func (r *Registry) keepCheckpoint(ctx context.Context, v *view) error {
	const op = "registry.checkpoint"
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	body := snapshot{state: v.state, signers: v.signers}.bytes()
	note, err := r.sign(v, b3.Of(body))
	if err != nil {
		return err
	}
	if err := r.journal.SaveCheckpoint(ctx, journal.Checkpoint{Size: v.next(), Note: note, Snapshot: body}); err != nil {
		return fault.Wrap(op, err)
	}
	r.kept.Store(v.next())
	r.keptAt.Store(r.now().UnixNano())
	r.metrics.size.Set(float64(v.next()))
	r.metrics.checkpoints.Inc()
	r.audit(Event{Type: Checkpointed, Version: v.state.Head().Version})
	return nil
}

// sign makes the checkpoint of a view. Without a snapshot it is one that is
// only shown.
func (r *Registry) sign(v *view, of b3.Address) ([]byte, error) {
	signer, err := r.notary(v.state.Registry())
	if err != nil {
		return nil, err
	}
	return tree.FormatCheckpoint(tree.Checkpoint{Origin: signer.Name(), Size: v.tree.Size(), Root: v.tree.Root(), Snapshot: of}, signer)
}

// notary is who signs for the log: the log's key under the name of a registry.
func (r *Registry) notary(registry b3.Address) (*tree.Signer, error) {
	return tree.NewSigner(r.spec.Key, tree.Origin(registry))
}
