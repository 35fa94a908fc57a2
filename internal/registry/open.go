package registry

import (
	"context"
	"errors"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// opening is a log on its way from the storage into a view.
type opening struct {
	state   *ledger.State
	last    ledger.Record
	signers []ledger.Record
	tree    *tree.Tree
	recent  []*ledger.State
}

// open reads the log: the newest checkpoint that is ours, and what came after
// it. So it costs by what came after it, and by how many items there are.
// Records are held to everything but their signatures; the deep verifier holds
// them to those, too.
func (r *Registry) open(ctx context.Context) error {
	const op = "registry.open"
	r.tree = tree.New(r.loadTile)
	if files, ok := r.journal.(interface{ Opened() journal.Report }); ok {
		found := files.Opened()
		r.metrics.tornBytes.Add(float64(found.TornBytes))
		if found.TornBytes > 0 {
			r.metrics.recoveries.Inc()
		}
		if len(found.Damaged) > 0 {
			r.gate.harm(fault.New(op, fault.IntegrityFail, "%s", found.Damaged[0].Error()))
		}
	}
	head, err := r.journal.Head(ctx)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	o, err := r.beginOpening(ctx, head)
	if err != nil {
		return fault.Wrap(op, err)
	}
	err = o.read(ctx, r.journal)
	if errors.Is(err, fault.IntegrityFail) && o.state != nil {
		r.gate.harm(err) // what was read is right, and can be read by others
		err = nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	return r.opened(ctx, o)
}

// opened shows what was read.
func (r *Registry) opened(ctx context.Context, o *opening) error {
	if o.last.Header == nil {
		last, err := r.journal.Read(ctx, o.state.Head().Version)
		if err != nil {
			return fault.Wrap("registry.open", err)
		}
		o.last = last
	}
	r.tree = o.tree
	v := newView(&view{signers: o.signers, recent: o.recent}, []ledger.Record{o.last}, []*ledger.State{o.state}, o.tree.View())
	v.signers = o.signers
	r.view.Store(v)
	r.metrics.version.Set(float64(v.state.Head().Version))
	r.metrics.items.Set(float64(v.state.Len()))
	return nil
}

// beginOpening opens the newest checkpoint, if there is one that is ours;
// otherwise it begins at the beginning.
func (r *Registry) beginOpening(ctx context.Context, head ledger.Head) (*opening, error) {
	found, wrong, err := r.usable(ctx, head.Version+1)
	if err != nil {
		return nil, err
	}
	var o *opening
	if found != nil {
		o = &opening{state: found.state, signers: found.signers}
		if err := o.growTree(ctx, r, found.size, found.root); err != nil {
			o, wrong = nil, errors.Join(wrong, err)
		}
	}
	if wrong != nil {
		r.audit(Event{Type: Damaged, Detail: "the last checkpoint is not used: " + wrong.Error()})
	}
	if o != nil {
		r.kept.Store(found.size)
		return o, nil
	}
	if _, first, err := r.journal.Pruned(ctx); wrong != nil && (err != nil || first > 0) {
		return nil, errors.Join(wrong, err) // without the checkpoint there is nothing to begin with
	}
	return &opening{tree: r.tree}, nil
}

// growTree opens the tree at the size of a checkpoint and holds its root
// against the one that was signed.
func (o *opening) growTree(ctx context.Context, r *Registry, size uint64, root tree.Hash) error {
	var leaves []tree.Hash
	err := r.journal.Scan(ctx, size-size%tree.TileWidth, func(record ledger.Record) error {
		if record.Version >= size {
			return errEnough
		}
		leaves = append(leaves, leafOf(record))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	o.tree, err = tree.Open(ctx, size, leaves, r.loadTile)
	if err != nil {
		return err
	}
	if o.tree.View().Root() != root {
		return fault.New("registry.open", fault.IntegrityFail, "the tree of %d versions is not the one that was signed", size)
	}
	return nil
}

// read goes on from where the opening is to the end of the log.
func (o *opening) read(ctx context.Context, from Journal) error {
	next := uint64(0)
	if o.state != nil {
		next = o.state.Head().Version + 1
	}
	return from.Scan(ctx, next, func(record ledger.Record) error {
		state, err := o.state.Replay(record)
		if err != nil {
			return fault.WrapKind("registry.open", fault.IntegrityFail, err)
		}
		o.state, o.last = state, own(record)
		o.tree.Append(leafOf(record))
		if state.SignersVersion() == record.Version {
			o.signers = append(o.signers, o.last)
		}
		return nil
	})
}

// loadTile finds a full tile: kept, or made again from what it stands for.
func (r *Registry) loadTile(ctx context.Context, at tree.TileID) ([]byte, error) {
	kept, err := r.journal.LoadTile(ctx, tileID(at))
	if err == nil || !errors.Is(err, fault.NotFound) {
		return kept, err
	}
	tile := make([]byte, 0, tree.TileSize)
	if at.Level > 0 {
		for n := at.N * tree.TileWidth; n < (at.N+1)*tree.TileWidth; n++ {
			below, err := r.loadTile(ctx, tree.TileID{Level: at.Level - 1, N: n})
			if err != nil {
				return nil, err
			}
			hash, err := tree.Fold(below)
			if err != nil {
				return nil, err
			}
			tile = append(tile, hash[:]...)
		}
		return tile, nil
	}
	err = r.journal.Scan(ctx, at.N*tree.TileWidth, func(record ledger.Record) error {
		hash := leafOf(record)
		tile = append(tile, hash[:]...)
		if len(tile) == tree.TileSize {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return tile, nil
	}
	if err == nil {
		err = fault.New("registry.tile", fault.NotFound, "tile %d is not full yet", at.N)
	}
	return nil, err
}
