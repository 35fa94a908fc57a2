package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// verification reads everything that a storage holds of a log and checks it against
// what was signed: each header against its payload, all headers against the tree,
// the tree against every checkpoint, the checkpoints against their snapshots, and
// missing versions against the note that says they were pruned. Whether older
// versions were pruned makes no difference to those that are left.
//
// For versions that are older than any state that is left, it cannot be verified
// whether their operations fitted what they were applied to. Everything else is
// verified as for the others, their approvals included.
type verification struct {
	// set at construction
	journal   Journal
	registry  b3.Address
	verifier  note.Verifier       // of the log's key; nil if it is not known, and then no note proves anything
	first     uint64              // the first version that is left
	pruneNote *tree.PruneNote     // the signed note about pruned versions; nil if there is none
	roots     []signedRoot        // the checkpoints, by size
	base      *verifiedCheckpoint // the checkpoint that the states begin with; nil where nothing was pruned

	// updated by each record
	state      *ledger.State      // nil before the first version, or before the one that base ends with
	previous   *linkedVersion     // the version before, while there is no state
	signerSets []signerSetInForce // the signer sets so far
	tree       *tree.Tree
	nextRoot   int // in roots

	// derivedDamage is damage that can be repaired from the records, and so is
	// harmless: to a checkpoint or a tile of a log that is complete.
	derivedDamage error
}

// signedRoot is the content of a signed checkpoint.
type signedRoot struct {
	size     uint64
	root     tree.Hash
	snapshot b3.Address // of its snapshot
}

// linkedVersion is the version before the current one.
type linkedVersion struct {
	header ledger.Header
	head   ledger.Head
}

// signerSetInForce is a signer set and the version that put it in force.
type signerSetInForce struct {
	since  uint64
	set    ledger.SignerSet
	record ledger.Record
}

const verifyOp = "registry.verify"

// integrityError makes the error for data that is not what was signed.
func integrityError(format string, args ...any) *fault.Error {
	return fault.New(verifyOp, fault.IntegrityFail, format, args...).
		Advise("Keep a copy of the folder and write nothing to it. Compare with another copy or a backup; docs/registry.md says how to recover.")
}

// asIntegrityError turns an error into a finding of the verification. Errors that prove
// nothing stay as they are: a storage that does not answer, a version that was pruned
// meanwhile.
func asIntegrityError(err error) error {
	switch fault.KindOf(err) {
	case 0, fault.Timeout, fault.Canceled, fault.StorageBusy, fault.UpstreamFailed, fault.NotReady, fault.Expired:
		return err
	}
	return fault.WrapKind(verifyOp, fault.IntegrityFail, err)
}

// newVerification reads everything except the records. The key may be nil if nothing
// was pruned: then signed notes are not checked.
func newVerification(ctx context.Context, from Journal, key verifierLookup) (*verification, error) {
	pruned, first, err := from.Pruned(ctx)
	if err != nil {
		return nil, asIntegrityError(err)
	}
	w := &verification{journal: from, first: first, tree: tree.New(tileLoader(from))}
	if w.registry, err = registryOf(ctx, from, first); err != nil {
		return nil, err
	}
	if key == nil && first == 0 {
		return w, nil
	}
	if w.verifier, err = key(w.registry); err != nil {
		return nil, err
	}
	if err := w.readCheckpoints(ctx); err != nil {
		return nil, err
	}
	if err := w.readPruneNote(pruned); err != nil {
		return nil, err
	}
	if first > 0 {
		return w, w.startAfterPruned(ctx)
	}
	return w, nil
}

// registryOf returns the ID of the registry: the hash of its first version. If that is
// pruned, it is taken from a snapshot, which is verified later.
func registryOf(ctx context.Context, from Journal, first uint64) (b3.Address, error) {
	if first == 0 {
		record, err := from.Read(ctx, 0)
		return record.Head().Hash, asIntegrityError(err)
	}
	kept, err := from.LoadCheckpoint(ctx, math.MaxUint64)
	if errors.Is(err, fault.NotFound) {
		return b3.Address{}, missingCheckpoint(first)
	}
	if err != nil {
		return b3.Address{}, asIntegrityError(err)
	}
	snap, err := parseSnapshot(kept.Snapshot)
	if err != nil {
		return b3.Address{}, asIntegrityError(err)
	}
	return snap.state.Registry(), nil
}

func missingCheckpoint(first uint64) *fault.Error {
	return integrityError("the versions below %d are missing, and no checkpoint covers them", first)
}

// keepDerivedDamage records an error that can be repaired from the records, and returns
// nil. If records were pruned, it cannot be repaired, and is returned.
func (w *verification) keepDerivedDamage(err error) error {
	if err = asIntegrityError(err); w.first > 0 || !errors.Is(err, fault.IntegrityFail) {
		return err
	}
	if w.derivedDamage == nil {
		w.derivedDamage = err
	}
	return nil
}

// readCheckpoints reads and checks all checkpoints.
func (w *verification) readCheckpoints(ctx context.Context) error {
	for size := uint64(math.MaxUint64); ; {
		kept, err := w.journal.LoadCheckpoint(ctx, size)
		if errors.Is(err, fault.NotFound) {
			break
		}
		var checkpoint tree.Checkpoint
		if damage, ok := errors.AsType[*journal.Damage](err); ok {
			kept.Size = damage.Version
		} else if err != nil {
			return asIntegrityError(err)
		} else {
			checkpoint, err = readCheckpoint(kept, w.verifier)
		}
		if err != nil {
			if err := w.keepDerivedDamage(err); err != nil {
				return err
			}
		} else {
			w.roots = append(w.roots, signedRoot{kept.Size, checkpoint.Root, checkpoint.Snapshot})
		}
		if kept.Size == 0 {
			break
		}
		size = kept.Size - 1
	}
	slices.Reverse(w.roots)
	return nil
}

// readPruneNote reads and checks the signed note about pruned versions.
func (w *verification) readPruneNote(pruned journal.Prune) error {
	if pruned.Note == nil && w.first == 0 {
		return nil
	}
	p, err := tree.ParsePrune(pruned.Note, w.verifier)
	if err != nil {
		e := integrityError("versions are missing, and there is no signed note of their pruning")
		e.Err = err
		return e
	}
	switch {
	case p.Registry != w.registry:
		return integrityError("the note of pruned versions belongs to the registry %s; this is %s", p.Registry, w.registry)
	case p.Below != pruned.Below || p.Below < w.first:
		return integrityError("the versions below %d are missing, but the signed note covers only those below %d", max(w.first, pruned.Below), p.Below)
	case len(w.roots) == 0 || w.roots[len(w.roots)-1].size < p.Size:
		return integrityError("the note of pruned versions refers to a checkpoint of %d versions, which is missing", p.Size)
	}
	w.pruneNote = &p
	return nil
}

// startAfterPruned begins with the first version that is left: the tree comes from
// the tiles, and the state from the first checkpoint that covers all pruned
// versions.
func (w *verification) startAfterPruned(ctx context.Context) error {
	at := slices.IndexFunc(w.roots, func(s signedRoot) bool { return s.size >= w.first })
	if at < 0 {
		return missingCheckpoint(w.first)
	}
	w.nextRoot = at // the checkpoints before it cover nothing that is left
	kept, err := w.journal.LoadCheckpoint(ctx, w.roots[at].size)
	if err != nil {
		return asIntegrityError(err)
	}
	snap, root, err := openCheckpoint(kept, func(b3.Address) (note.Verifier, error) { return w.verifier, nil })
	if err != nil {
		return asIntegrityError(err)
	}
	w.base = &verifiedCheckpoint{snap, kept.Size, root}
	if w.base.size == w.first {
		w.state = snap.state
	}
	if err := w.readSignerSets(snap); err != nil {
		return err
	}
	var leaves []tree.Hash
	if within := int(w.first % tree.TileWidth); within > 0 {
		tile, err := w.journal.LoadTile(ctx, journal.TileID{N: w.first / tree.TileWidth})
		if err != nil || len(tile) != tree.TileSize {
			return missingTile(w.first/tree.TileWidth, err)
		}
		for i := range within {
			leaves = append(leaves, tree.Hash(tile[i*tree.HashSize:]))
		}
	}
	w.tree, err = tree.Open(ctx, w.first, leaves, tileLoader(w.journal))
	if fault.KindOf(err) == fault.Expired { // it cannot be rebuilt, because its versions are pruned
		return missingTile(w.first/tree.TileWidth, err)
	}
	return asIntegrityError(err)
}

func missingTile(n uint64, err error) error {
	if kind := fault.KindOf(err); kind != 0 && kind != fault.NotFound && kind != fault.Expired {
		return asIntegrityError(err)
	}
	return integrityError("a tile of the tree over pruned versions is missing, at or before tile %d", n)
}

// readSignerSets reads the versions that changed the signers from a snapshot: the
// first is the genesis, each was approved by the set before it, and they are those
// that the state lists. Whether they are in the log is checked by finish.
func (w *verification) readSignerSets(snap snapshot) error {
	for i, record := range snap.signers {
		header, ops, err := record.Open()
		if err == nil && i == 0 {
			_, err = (*ledger.State)(nil).Apply(record)
		} else if err == nil {
			err = header.ApprovedBy(w.signerSets[i-1].set, w.signerSets[i-1].since)
		}
		if err != nil {
			return fault.WrapKind(verifyOp, fault.IntegrityFail, err)
		}
		w.addSignerSet(record, ops)
	}
	known := snap.state.SignerVersions()
	if !slices.EqualFunc(w.signerSets, known, func(t signerSetInForce, version uint64) bool { return t.since == version }) || snap.signers[0].Head().Hash != w.registry {
		return integrityError("the versions that changed the signers, in the snapshot of the checkpoint of %d versions, are not those of this registry", snap.state.Head().Version+1)
	}
	return nil
}

// addSignerSet adds the signer set that a version put in force.
func (w *verification) addSignerSet(record ledger.Record, ops []ledger.Op) {
	for _, op := range ops {
		if set, ok := op.Item.SignerSet(); ok && !op.Delete {
			w.signerSets = append(w.signerSets, signerSetInForce{record.Version, set, record.Clone()})
		}
	}
}

// step verifies the next record.
func (w *verification) step(ctx context.Context, record ledger.Record) error {
	header, ops, err := record.Open()
	if err != nil {
		return fault.WrapKind(verifyOp, fault.IntegrityFail, err)
	}
	if w.pruneNote != nil && record.Version == w.pruneNote.Below && header.PrevHash != w.pruneNote.Hash {
		return integrityError("version %d follows %s, but the last pruned version is %s", record.Version, header.PrevHash, w.pruneNote.Hash)
	}
	if w.base != nil && record.Version < w.base.size {
		err = w.checkLink(record, header)
	} else if w.state, err = w.state.Apply(record); err == nil && w.state.SignersVersion() == record.Version {
		w.addSignerSet(record, ops)
	}
	if err != nil {
		return fault.WrapKind(verifyOp, fault.IntegrityFail, err)
	}
	w.tree.Append(leafOf(record))
	if err := w.checkTiles(ctx); err != nil {
		return err
	}
	return w.checkSignedRoot(record.Head())
}

// checkLink verifies a record that is older than any state that is left.
func (w *verification) checkLink(record ledger.Record, header ledger.Header) error {
	signers := w.signerSetBefore(record.Version)
	switch {
	case header.Registry != w.registry:
		return integrityError("version %d belongs to the registry %s; this is %s", record.Version, header.Registry, w.registry)
	case w.previous != nil:
		if err := header.Follows(w.previous.header, w.previous.head.Hash, signers.set, signers.since); err != nil {
			return integrityError("version %d: %s", record.Version, fault.DetailOf(err))
		}
	default:
		if err := header.ApprovedBy(signers.set, signers.since); err != nil {
			return integrityError("version %d: %s", record.Version, fault.DetailOf(err))
		}
	}
	w.previous = &linkedVersion{header, record.Head()}
	if record.Version+1 < w.base.size {
		return nil
	}
	if w.previous.head != w.base.state.Head() {
		return integrityError("version %d is not the last one of the checkpoint of %d versions", record.Version, w.base.size)
	}
	w.state = w.base.state
	return nil
}

// signerSetBefore returns the signer set that was in force before a version.
func (w *verification) signerSetBefore(version uint64) signerSetInForce {
	at, _ := slices.BinarySearchFunc(w.signerSets, version, func(t signerSetInForce, version uint64) int { return cmp.Compare(t.since, version) })
	return w.signerSets[max(at-1, 0)]
}

// checkTiles compares the tiles that are full with the stored ones. One that is not
// stored is rebuilt when it is needed.
func (w *verification) checkTiles(ctx context.Context) error {
	unsaved := w.tree.Unsaved()
	for _, tile := range unsaved {
		kept, err := w.journal.LoadTile(ctx, journal.TileID(tile.ID))
		switch {
		case errors.Is(err, fault.NotFound):
			err = nil
		case err == nil && !bytes.Equal(kept, tile.Data):
			err = tileMismatch(tile.ID)
		}
		if err != nil {
			if err := w.keepDerivedDamage(err); err != nil {
				return err
			}
		}
	}
	w.tree.MarkSaved(len(unsaved))
	return nil
}

func tileMismatch(at tree.TileID) error {
	e := integrityError("the stored %s does not match the versions", tree.TilePath(at, tree.TileWidth))
	e.Next = "If all versions exist, stop the node and remove the tile: the node creates it again. If it covers pruned versions, restore it from a backup."
	return e
}

// checkSignedRoot checks the tree against a checkpoint that ends here. The snapshot of
// the last one, from which the log is opened, is checked against the state, too.
func (w *verification) checkSignedRoot(head ledger.Head) error {
	if w.nextRoot == len(w.roots) || w.roots[w.nextRoot].size != w.tree.Size() {
		return nil
	}
	signed := w.roots[w.nextRoot]
	if w.nextRoot++; w.tree.Root() != signed.root {
		return integrityError("the versions up to %d do not match the signed checkpoint of %d versions", head.Version, signed.size)
	}
	if w.nextRoot < len(w.roots) || w.base != nil && w.base.size == signed.size {
		return nil
	}
	body := snapshot{state: w.state}
	for _, signers := range w.signerSets {
		body.signers = append(body.signers, signers.record)
	}
	if b3.Of(body.encode()) != signed.snapshot {
		return integrityError("the snapshot of the checkpoint of %d versions does not match the versions", signed.size)
	}
	return nil
}

// finish checks the data that covers pruned versions, and that the log does not end
// before a checkpoint.
func (w *verification) finish(ctx context.Context, pause func() error) error {
	if w.nextRoot < len(w.roots) {
		return integrityError("a checkpoint covers %d versions, but the log ends with %d", w.roots[len(w.roots)-1].size, w.tree.Size())
	}
	if w.first == 0 {
		return nil // everything was computed from the records themselves
	}
	view := w.tree.View()
	for _, signers := range w.signerSets {
		leaf, err := view.Leaf(ctx, signers.since)
		if err != nil {
			return missingTile(signers.since/tree.TileWidth, err)
		}
		if leaf != leafOf(signers.record) {
			return integrityError("version %d, which changed the signers, differs between the snapshots and the log", signers.since)
		}
	}
	for level, n := 0, w.first/tree.TileWidth; n > 0; level, n = level+1, n/tree.TileWidth {
		for i := range n {
			if err := w.checkSavedTile(ctx, view, tree.TileID{Level: level, N: i}); err != nil {
				return err
			}
			if err := pause(); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSavedTile compares a tile over pruned versions with the tree. Tiles of the lowest
// level must be stored; the others can be rebuilt from them.
func (w *verification) checkSavedTile(ctx context.Context, view *tree.View, at tree.TileID) error {
	kept, err := w.journal.LoadTile(ctx, journal.TileID(at))
	if errors.Is(err, fault.NotFound) && at.Level > 0 {
		return nil
	}
	if err != nil {
		return missingTile(at.N, err)
	}
	right, err := view.Tile(ctx, at, tree.TileWidth)
	if err != nil {
		return missingTile(at.N, err)
	}
	if !bytes.Equal(kept, right) {
		return tileMismatch(at)
	}
	return nil
}
