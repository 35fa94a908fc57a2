package journal

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"

	"micronode/fault"
	"micronode/internal/disk"
)

// Prune implements Journal: the note, then the tiles, then the segments, and at
// last the checkpoints that are no longer needed. If it is interrupted, the
// next prune or the next opening continues from there.
func (f *Files) Prune(ctx context.Context, p Prune) (uint64, error) {
	const op = "journal.prune"
	if err := f.lockMaintenance(ctx, op); err != nil {
		return 0, err
	}
	defer f.maintenanceLock.Unlock()
	since, err := f.checkPrune(op, p)
	if err != nil {
		return 0, err
	}
	if p.Below < since {
		return f.firstVersion(), nil // more was pruned before, and its note stays
	}
	if err := f.saveEnvelope(f.pruneName(), envelope{magic: magicPrune, number: p.Below, first: p.Note}, true); err != nil {
		return f.firstVersion(), saveError(op, err)
	}
	f.mu.Lock()
	f.prune = Prune{Below: p.Below, Note: slices.Clone(p.Note)}
	f.mu.Unlock()
	if err := f.syncTiles(f.firstVersion(), p.Below); err != nil {
		return f.firstVersion(), tileError(op, err)
	}
	segments, checkpoints, unused := f.detachPruned()
	_ = closeAll(unused...) // they were only read
	if err := f.removeAll(segments, checkpoints); err != nil {
		return f.firstVersion(), saveError(op, err)
	}
	return f.firstVersion(), nil
}

// checkPrune returns up to where the log was pruned before.
func (f *Files) checkPrune(op string, p Prune) (since uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(f.damaged) > 0:
		return 0, damageError(op, &f.damaged[0])
	case f.head == nil:
		return 0, fault.New(op, fault.NotFound, "the log is empty")
	}
	return f.prune.Below, checkCovered(op, p.Below, f.head)
}

// firstVersion returns the first version that remains.
func (f *Files) firstVersion() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.segments) == 0 {
		return 0
	}
	return f.segments[0].number
}

// Pruned implements Journal.
func (f *Files) Pruned(ctx context.Context) (Prune, uint64, error) {
	if err := f.lockOpen(ctx, "journal.pruned"); err != nil {
		return Prune{}, 0, err
	}
	p := Prune{Below: f.prune.Below, Note: slices.Clone(f.prune.Note)}
	f.mu.Unlock()
	return p, f.firstVersion(), nil
}

// syncTiles makes the tiles durable that cover a version below one. Those of
// pruned versions are durable already. After this, they are all that is left of
// these versions, so a damaged one stops the prune.
func (f *Files) syncTiles(since, below uint64) error {
	for level := range maxTileLevel {
		span := tileSpan(level)
		any := false
		for n := since / span; n*span < below; n++ {
			there, err := f.syncTile(TileID{Level: level, N: n})
			if err != nil {
				return err
			}
			any = any || there
		}
		if !any {
			continue
		}
		if err := f.fs.SyncFolder(filepath.Join(f.folder, "tiles", strconv.Itoa(level))); err != nil {
			return err
		}
	}
	return f.fs.SyncFolder(filepath.Join(f.folder, "tiles"))
}

// syncTile syncs a tile, if it exists. It writes it again before: the kernel
// may have failed to write it and not reported that. It is replaced, not
// overwritten: an earlier prune may have left nothing else of some versions.
func (f *Files) syncTile(at TileID) (there bool, err error) {
	name := f.tileName(at)
	e, err := f.loadEnvelope(name, envelope{magic: magicTile, number: at.N, level: uint32(at.Level)})
	if disk.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.replaceFile(name, e.encode(), true)
}

func tileError(op string, err error) error {
	if d, ok := errors.AsType[*Damage](err); ok {
		return &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: d, Detail: "a tile of what is to be pruned is damaged: " + d.File,
			Next: "Nothing was removed. Restart the node: it makes the tile again from the records."}
	}
	return saveError(op, err)
}

// detachPruned hides what the prune note covers from readers. The segment of
// the head stays.
func (f *Files) detachPruned() (segments, checkpoints []numberedFile, unused []*segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := countCovered(f.segments, min(f.prune.Below, f.head.Version))
	segments, f.segments = f.segments[:gone], slices.Clone(f.segments[gone:])
	for _, s := range segments {
		unused = append(unused, f.openSegments.remove(s.number))
	}
	gone = countCovered(f.checkpoints, f.segments[0].number)
	checkpoints, f.checkpoints = f.checkpoints[:gone], slices.Clone(f.checkpoints[gone:])
	return segments, checkpoints, unused
}

// removeAll removes files, and makes their removal durable.
func (f *Files) removeAll(segments, checkpoints []numberedFile) error {
	for _, s := range segments {
		if err := f.fs.Remove(f.segmentName(s.number)); err != nil && !disk.IsNotExist(err) {
			return err
		}
	}
	if err := f.syncSegments(); err != nil {
		return err
	}
	for _, c := range checkpoints {
		if err := f.fs.Remove(f.checkpointName(c.number)); err != nil && !disk.IsNotExist(err) {
			return err
		}
	}
	return nil
}
