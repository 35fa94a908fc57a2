package registry

import (
	"context"
	"errors"
	"math"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// deepVerify is the verifier's Serve. Round after round it reads the whole log
// as a stranger would, in small slices, so that damage is found before somebody
// needs what is damaged.
func (r *Registry) deepVerify(ctx context.Context) error {
	for {
		began := time.Now()
		err := r.verifyRound(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			r.metrics.verifyRounds.WithLabelValues("ok").Inc()
			r.metrics.verifySeconds.Observe(time.Since(began).Seconds())
		case errors.Is(err, fault.IntegrityFail):
			r.metrics.verifyRounds.WithLabelValues("damaged").Inc()
			r.gate.harm(err)
			r.audit(Event{Type: Damaged, Detail: err.Error()})
		default:
			r.metrics.failed("read", err) // the storage could not be read; that says nothing of the log
		}
		if r.rest(ctx) != nil {
			return nil
		}
	}
}

// rest waits for the next round. The pause is looked at now and then, because it
// may be changed.
func (r *Registry) rest(ctx context.Context) error {
	for since := time.Now(); ; {
		if err := flow.Sleep(ctx, verifyTick); err != nil {
			return err
		}
		if pause := r.settings.Load().VerifyPause; pause > 0 && time.Since(since) >= pause {
			return nil
		}
	}
}

const (
	verifyTick  = time.Second
	verifySlice = 5 * time.Millisecond
)

// round is one walk over the log.
type round struct {
	state  *ledger.State // nil before the first version, and where records were pruned
	chain  *ledger.Head  // the version before; nil before the first one
	leaves tree.Frontier
	whole  bool // nothing is pruned, so the leaves are all there

	full   uint64     // from this version on everything is verified, before it the chain alone
	pruned tree.Prune // what was said when versions were given up
}

// verifyRound reads the log from its first version to the head of this moment.
func (r *Registry) verifyRound(ctx context.Context) error {
	v := r.view.Load()
	if v.state == nil {
		return nil
	}
	w, from, err := beginRound(ctx, r.journal, r.ownKey)
	if err != nil {
		return err
	}
	slice := time.Now()
	err = r.journal.Scan(ctx, from, func(record ledger.Record) error {
		if err := w.step(record); err != nil {
			return fault.WrapKind("registry.verify", fault.IntegrityFail, err)
		}
		r.metrics.verified.Set(float64(record.Version))
		if record.Version == v.state.Head().Version {
			return errEnough
		}
		return r.breathe(ctx, &slice)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return w.compare(ctx, v)
}

// beginRound finds where to begin: at the first version or, where that is gone,
// at the first that is left. Then the state comes from the checkpoint that
// covers the ones that are gone, and versions before it are only held to their
// chain.
func beginRound(ctx context.Context, from Journal, key verifiers) (*round, uint64, error) {
	const op = "registry.verify"
	pruned, first, err := from.Pruned(ctx)
	if err != nil || first == 0 {
		return &round{whole: true}, 0, err
	}
	newest, err := from.LoadCheckpoint(ctx, math.MaxUint64)
	if err != nil {
		return nil, 0, err
	}
	snap, _, err := openCheckpoint(newest, key)
	if err != nil {
		return nil, 0, fault.WrapKind(op, fault.IntegrityFail, err)
	}
	verifier, err := key(snap.state.Registry())
	if err != nil {
		return nil, 0, err
	}
	note, err := tree.ParsePrune(pruned.Note, verifier)
	if err != nil || note.Registry != snap.state.Registry() || note.Below < first {
		return nil, 0, &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: err, Detail: "versions are gone, and there is no signed note that says so"}
	}
	kept, err := from.LoadCheckpoint(ctx, note.Size)
	if err != nil {
		return nil, 0, err
	}
	if snap, _, err = openCheckpoint(kept, key); err != nil {
		return nil, 0, fault.WrapKind(op, fault.IntegrityFail, err)
	}
	return &round{state: snap.state, full: kept.Size, pruned: note}, first, nil
}

// step verifies one record.
func (w *round) step(record ledger.Record) (err error) {
	if w.whole {
		w.leaves.Append(leafOf(record))
	}
	if record.Version < w.full {
		return w.link(record)
	}
	w.state, err = w.state.Apply(record)
	return err
}

// link holds a record that is older than the state to the chain: it names the
// hash of the one before it, and at the end the state names its own.
func (w *round) link(record ledger.Record) error {
	header, err := record.Decode()
	if err != nil {
		return err
	}
	if w.chain != nil && header.PrevHash != w.chain.Hash {
		return fault.New("registry.verify", fault.IntegrityFail, "version %d does not follow the one before it", record.Version)
	}
	head := record.Head()
	if record.Version+1 == w.pruned.Below && head.Hash != w.pruned.Hash {
		return fault.New("registry.verify", fault.IntegrityFail, "version %d is not the one that was there when older ones were pruned", record.Version)
	}
	if record.Version+1 == w.full && head != w.state.Head() {
		return fault.New("registry.verify", fault.IntegrityFail, "version %d is not the one that the checkpoint covers", record.Version)
	}
	w.chain = &head
	return nil
}

// compare holds the leaves against the tree that is served.
func (w *round) compare(ctx context.Context, v *view) error {
	if !w.whole {
		return nil
	}
	root, err := v.tree.RootAt(ctx, w.leaves.Size())
	if err != nil {
		return err
	}
	if root != w.leaves.Root() {
		return fault.New("registry.verify", fault.IntegrityFail, "the tree that is served is not that of the records")
	}
	return nil
}

// breathe pauses when a slice is used up, for as long as leaves the verifier
// its share of a core.
func (r *Registry) breathe(ctx context.Context, slice *time.Time) error {
	worked := time.Since(*slice)
	if worked < verifySlice {
		return nil
	}
	share := time.Duration(r.settings.Load().VerifyShare)
	err := flow.Sleep(ctx, worked*(100-share)/share)
	*slice = time.Now()
	return err
}
