package registry

import (
	"context"
	"errors"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// logLoader loads a log from the storage into a view.
type logLoader struct {
	base            *verifiedCheckpoint // the checkpoint that it began with; nil if it began at version 0
	mismatchedRoots []signedRoot        // checkpoints of ours, the largest first, that did not match the records
	state           *ledger.State
	last            ledger.Record
	signers         []ledger.Record
	tree            *tree.Tree
	recent          []*ledger.State
}

// open reads the log: the newest checkpoint that is ours, and what came after
// it. So its cost depends on what came after it, and on the number of items.
// Records that no checkpoint covers are verified in full, signatures included;
// the rest is left to the verifier.
func (r *Registry) open(ctx context.Context) error {
	const op = "registry.open"
	r.tree = tree.New(tileLoader(r.journal))
	if files, ok := r.journal.(interface{ Opened() journal.Report }); ok {
		found := files.Opened()
		r.metrics.tornBytes.Add(float64(found.TornBytes))
		if found.TornBytes > 0 {
			r.metrics.recoveries.Inc()
		}
		if len(found.Damaged) > 0 {
			r.reportDamage(fault.New(op, fault.IntegrityFail, "%s", found.Damaged[0].Error()))
		}
	}
	head, err := r.journal.Head(ctx)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	o, err := r.startLoader(ctx, head)
	if err != nil {
		return fault.Wrap(op, err)
	}
	err = o.read(ctx, r.journal)
	if fault.KindOf(err) == fault.IntegrityFail && o.state != nil {
		r.reportDamage(err)
		o, err = o.fallBack(ctx, r, err)
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	return r.installLoaded(ctx, o)
}

// fallBack returns what a damaged log can still serve: the state of our last signed
// checkpoint, because it is unknown where after it the damage begins. Without a
// checkpoint, it is everything that could be read.
func (l *logLoader) fallBack(ctx context.Context, r *Registry, damage error) (*logLoader, error) {
	switch {
	case l.base != nil:
		return r.loadFrom(ctx, l.base)
	case len(l.mismatchedRoots) > 0:
		return nil, damage
	}
	return l, nil
}

// reportDamage sets the damage in storageHealth and writes it to the audit log.
func (r *Registry) reportDamage(err error) {
	r.health.setDamage(err)
	r.audit(Event{Type: EventDamaged, Detail: err.Error()})
}

// installLoaded makes the view of what was read.
func (r *Registry) installLoaded(ctx context.Context, o *logLoader) error {
	r.tree = o.tree
	payload := b3.Of(o.last.Payload)
	if o.last.Header == nil { // the checkpoint covers everything
		var err error
		if payload, err = o.readHeadRecord(ctx, r); err != nil {
			return fault.Wrap("registry.open", err)
		}
	}
	v := newView(&view{recent: o.recent}, []ledger.Record{o.last}, []*ledger.State{o.state}, o.tree.View(), payload)
	v.signers = o.signers
	r.view.Store(v)
	r.metrics.version.Set(float64(v.state.Head().Version))
	r.metrics.items.Set(float64(v.state.Len()))
	return nil
}

// readHeadRecord reads the record of the head, if no record was read after the
// checkpoint. If its contents are damaged it is left out: readers get an error, and
// the hash of the payload is taken from the header.
func (l *logLoader) readHeadRecord(ctx context.Context, r *Registry) (payload b3.Address, err error) {
	record, err := r.journal.Read(ctx, l.state.Head().Version)
	if err != nil {
		return b3.Address{}, err
	}
	header, err := record.DecodeHeader()
	if err != nil {
		return b3.Address{}, err
	}
	if _, _, err := record.Open(); err != nil {
		r.reportDamage(fault.WrapKind("registry.open", fault.IntegrityFail, err))
		return header.PayloadB3, nil
	}
	l.last = record
	return header.PayloadB3, nil
}

// startLoader begins at the newest checkpoint that is ours and matches the records;
// if there is none, at version 0.
func (r *Registry) startLoader(ctx context.Context, head ledger.Head) (*logLoader, error) {
	var mismatched []signedRoot
	var skipped error
	for size := head.Version + 1; ; {
		found, unusable, err := r.newestUsableCheckpoint(ctx, size)
		if err != nil {
			return nil, err
		}
		skipped = errors.Join(skipped, unusable)
		if found == nil {
			break
		}
		o, err := r.loadFrom(ctx, found)
		if err == nil && found.size == head.Version+1 && head != found.state.Head() {
			err = integrityError("the stored version %d is not the last one of the checkpoint", head.Version)
		}
		if err == nil {
			r.auditSkippedCheckpoint(skipped)
			r.checkpointSize.Store(found.size)
			o.mismatchedRoots = mismatched
			return o, nil
		}
		skipped = errors.Join(skipped, err)
		mismatched = append(mismatched, signedRoot{size: found.size, root: found.root})
		size = found.size - 1
	}
	r.auditSkippedCheckpoint(skipped)
	_, first, err := r.journal.Pruned(ctx)
	if err != nil {
		return nil, errors.Join(skipped, err)
	}
	if first > 0 { // without a checkpoint there is nothing to begin with
		e := missingCheckpoint(first)
		e.Err = skipped
		return nil, e
	}
	return &logLoader{tree: r.tree, mismatchedRoots: mismatched}, nil
}

// auditSkippedCheckpoint writes to the audit log that a checkpoint was not used.
func (r *Registry) auditSkippedCheckpoint(skipped error) {
	if skipped != nil {
		r.audit(Event{Type: EventDamaged, Detail: "the last checkpoint is not used: " + skipped.Error()})
	}
}

// loadFrom starts a loader at a checkpoint. The root of its tree must be the one that
// was signed.
func (r *Registry) loadFrom(ctx context.Context, base *verifiedCheckpoint) (*logLoader, error) {
	var leaves []tree.Hash // of the unfinished tile
	err := r.journal.Scan(ctx, base.size-base.size%tree.TileWidth, func(record ledger.Record) error {
		if record.Version >= base.size {
			return errStopScan
		}
		leaves = append(leaves, leafOf(record))
		return nil
	})
	if err != nil && !errors.Is(err, errStopScan) {
		return nil, err
	}
	opened, err := tree.Open(ctx, base.size, leaves, tileLoader(r.journal))
	if err != nil {
		return nil, err
	}
	if opened.Root() != base.root {
		return nil, fault.New("registry.open", fault.IntegrityFail, "the tree of %d versions does not match the signed one", base.size)
	}
	return &logLoader{base: base, state: base.state, signers: base.signers, tree: opened}, nil
}

// read applies the records from the loader's state to the end of the log.
func (l *logLoader) read(ctx context.Context, from Journal) error {
	next := uint64(0)
	if l.state != nil {
		next = l.state.Head().Version + 1
	}
	return from.Scan(ctx, next, func(record ledger.Record) error {
		state, err := l.state.Apply(record)
		if err != nil {
			return fault.WrapKind("registry.open", fault.IntegrityFail, err)
		}
		l.state, l.last = state, record.Clone()
		l.tree.Append(leafOf(record))
		if state.SignersVersion() == record.Version {
			l.signers = append(l.signers, l.last)
		}
		return l.checkSignedRoots()
	})
}

// checkSignedRoots checks what was read against the checkpoints that end here.
func (l *logLoader) checkSignedRoots() error {
	for _, signed := range l.mismatchedRoots {
		if signed.size == l.tree.Size() && signed.root != l.tree.Root() {
			return integrityError("the versions up to %d do not match the signed checkpoint of %d versions", signed.size-1, signed.size)
		}
	}
	return nil
}

// tileLoader loads the full tiles of a log, or rebuilds them.
func tileLoader(from Journal) tree.Loader {
	return func(ctx context.Context, at tree.TileID) ([]byte, error) {
		kept, err := from.LoadTile(ctx, journal.TileID(at))
		if err == nil || !errors.Is(err, fault.NotFound) {
			return kept, err
		}
		return rebuildTile(ctx, from, at)
	}
}

// rebuildTile rebuilds a tile from those below it, and one of the lowest level from
// the records.
func rebuildTile(ctx context.Context, from Journal, at tree.TileID) ([]byte, error) {
	tile := make([]byte, 0, tree.TileSize)
	if at.Level > 0 {
		for n := at.N * tree.TileWidth; n < (at.N+1)*tree.TileWidth; n++ {
			below, err := tileLoader(from)(ctx, tree.TileID{Level: at.Level - 1, N: n})
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
	err := from.Scan(ctx, at.N*tree.TileWidth, func(record ledger.Record) error {
		hash := leafOf(record)
		tile = append(tile, hash[:]...)
		if len(tile) == tree.TileSize {
			return errStopScan
		}
		return nil
	})
	if errors.Is(err, errStopScan) {
		return tile, nil
	}
	if err == nil {
		err = fault.New("registry.tile", fault.NotFound, "tile %d is not full yet", at.N)
	}
	return nil, err
}
