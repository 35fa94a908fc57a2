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
// last the checkpoints that no record needs any more. Whatever comes between,
// the next prune or the next opening goes on from there.
func (f *Files) Prune(ctx context.Context, p Prune) (uint64, error) {
	const op = "journal.prune"
	if err := f.keep(ctx, op); err != nil {
		return 0, err
	}
	defer f.keeper.give()
	since, err := f.mayPrune(op, p)
	if err != nil {
		return 0, err
	}
	if p.Below < since {
		return f.firstKept(), nil // more was given up before, and its note stays
	}
	if err := f.save(f.pruneName(), envelope{magic: holdsPrune, number: p.Below, a: p.Note}, true); err != nil {
		return f.firstKept(), failedKeep(op, err)
	}
	f.mu.Lock()
	f.prune = Prune{Below: p.Below, Note: slices.Clone(p.Note)}
	f.mu.Unlock()
	if err := f.syncTiles(f.firstKept(), p.Below); err != nil {
		return f.firstKept(), failedTiles(op, err)
	}
	segments, checkpoints, unused := f.giveUp()
	_ = closeAll(unused...) // they were only read
	if err := f.removeAll(segments, checkpoints); err != nil {
		return f.firstKept(), failedKeep(op, err)
	}
	return f.firstKept(), nil
}

// mayPrune says up to where the log was given up before.
func (f *Files) mayPrune(op string, p Prune) (since uint64, err error) {
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

// firstKept is the first version that is still there.
func (f *Files) firstKept() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spans) == 0 {
		return 0
	}
	return f.spans[0].first
}

// Pruned implements Journal.
func (f *Files) Pruned(ctx context.Context) (Prune, uint64, error) {
	if err := f.enter(ctx, "journal.pruned"); err != nil {
		return Prune{}, 0, err
	}
	p := Prune{Below: f.prune.Below, Note: slices.Clone(f.prune.Note)}
	f.mu.Unlock()
	return p, f.firstKept(), nil
}

// syncTiles makes the tiles last that cover a version below one. Those of
// versions that are gone are done already. After this, they are all that is left
// of these versions, so one that is damaged stops the prune.
func (f *Files) syncTiles(since, below uint64) error {
	for level := range mostLevel {
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

// syncTile syncs a tile, if it is there. It writes it again before: the kernel
// may have failed to write it and told nobody.
func (f *Files) syncTile(at TileID) (there bool, err error) {
	name := f.tileName(at)
	e, err := f.load(name, envelope{magic: holdsTile, number: at.N, level: uint32(at.Level)})
	if disk.IsAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	file, err := f.fs.Open(name, disk.ForWriting)
	if err != nil {
		return false, err
	}
	_, err = file.WriteAt(e.encode(), 0)
	if err == nil {
		err = file.Sync()
	}
	return true, errors.Join(err, file.Close())
}

func failedTiles(op string, err error) error {
	if d, ok := errors.AsType[*Damage](err); ok {
		return &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: d, Detail: "a tile of what is to be pruned is damaged: " + d.File,
			Next: "Nothing was removed. Restart the node: it makes the tile again from the records."}
	}
	return failedKeep(op, err)
}

// giveUp takes what the prune note covers out of the readers' sight. The segment
// of the head stays.
func (f *Files) giveUp() (segments, checkpoints []span, unused []*segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := covered(f.spans, min(f.prune.Below, f.head.Version))
	segments, f.spans = f.spans[:gone], slices.Clone(f.spans[gone:])
	for _, s := range segments {
		unused = append(unused, f.shelf.drop(s.first))
	}
	gone = covered(f.checkpoints, f.spans[0].first)
	checkpoints, f.checkpoints = f.checkpoints[:gone], slices.Clone(f.checkpoints[gone:])
	return segments, checkpoints, unused
}

// removeAll removes files, and makes their absence last.
func (f *Files) removeAll(segments, checkpoints []span) error {
	for _, s := range segments {
		if err := f.fs.Remove(f.segmentName(s.first)); err != nil && !disk.IsAbsent(err) {
			return err
		}
	}
	if err := f.syncSegments(); err != nil {
		return err
	}
	for _, c := range checkpoints {
		if err := f.fs.Remove(f.checkpointName(c.first)); err != nil && !disk.IsAbsent(err) {
			return err
		}
	}
	return nil
}
