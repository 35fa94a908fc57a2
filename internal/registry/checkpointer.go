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

// checkpointTick is how often the checkpointer checks whether one is due.
const checkpointTick = 250 * time.Millisecond

// finalCheckpointTimeout is how long the one at shutdown may take.
const finalCheckpointTimeout = 300 * time.Millisecond

// runCheckpointer is the checkpointer's Serve. When one is due it saves a signed
// checkpoint with a snapshot, so that opening the log has to read only what came
// after it, and so that what came before it may be pruned.
func (r *Registry) runCheckpointer(ctx context.Context) error {
	last := time.Now()
	for {
		if flow.Sleep(ctx, checkpointTick) != nil {
			r.saveFinalCheckpoint(ctx)
			return nil
		}
		v, storage := r.view.Load(), r.settings.Load().Storage
		if !r.checkpointDue(v, storage, time.Since(last)) {
			continue
		}
		last = time.Now()
		if err := r.saveCheckpoint(ctx, v); err != nil {
			r.metrics.checkpointsFailed.Inc()
			r.metrics.countFailure("write", err)
			r.audit(Event{Type: EventStorageFailed, Detail: err.Error()})
			continue // the versions are safe without it, and the next one covers them
		}
		r.enqueuePrune(v, storage)
	}
}

// saveFinalCheckpoint covers what came since the last one when the node stops, so
// that the log opens quickly, and so that a truncation of the log while the node is
// down is detected. The drain has little time for it.
func (r *Registry) saveFinalCheckpoint(ctx context.Context) {
	v := r.view.Load()
	if v.state == nil || v.nextVersion() <= r.checkpointSize.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalCheckpointTimeout)
	defer cancel()
	if err := r.saveCheckpoint(ctx, v); err != nil {
		r.metrics.checkpointsFailed.Inc()
	}
}

// checkpointDue reports whether it is time for a checkpoint.
func (r *Registry) checkpointDue(v *view, storage Storage, passed time.Duration) bool {
	if v.state == nil {
		return false
	}
	size, kept := v.nextVersion(), r.checkpointSize.Load()
	return size > kept && (passed >= storage.CheckpointInterval || size-kept >= uint64(storage.CheckpointVersions))
}

// saveCheckpoint signs and saves the checkpoint of a view, with its snapshot.
func (r *Registry) saveCheckpoint(ctx context.Context, v *view) error {
	const op = "registry.checkpoint"
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	body := snapshot{state: v.state, signers: v.signers}.encode()
	note, err := r.signCheckpoint(v, b3.Of(body))
	if err != nil {
		return err
	}
	defer r.health.trackCall("a checkpoint")()
	if err := r.journal.SaveCheckpoint(ctx, journal.Checkpoint{Size: v.nextVersion(), Note: note, Snapshot: body}); err != nil {
		return fault.Wrap(op, err)
	}
	r.checkpointSize.Store(v.nextVersion())
	r.checkpointAt.Store(r.now().UnixNano())
	r.metrics.size.Set(float64(v.nextVersion()))
	r.metrics.checkpoints.Inc()
	r.audit(Event{Type: EventCheckpointed, Version: v.state.Head().Version})
	return nil
}

// signCheckpoint makes the checkpoint of a view. One without a snapshot is only served,
// not saved.
func (r *Registry) signCheckpoint(v *view, of b3.Address) ([]byte, error) {
	signer, err := r.logSigner(v.state.Registry())
	if err != nil {
		return nil, err
	}
	return tree.FormatCheckpoint(tree.Checkpoint{Origin: signer.Name(), Size: v.tree.Size(), Root: v.tree.Root(), Snapshot: of}, signer)
}

// logSigner returns the signer of the log: the log's key under the name of a registry.
func (r *Registry) logSigner(registry b3.Address) (*tree.Signer, error) {
	return tree.NewSigner(r.spec.Key, tree.Origin(registry))
}
