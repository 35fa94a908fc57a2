package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"micronode/fault"
	"micronode/internal/disk"
)

func (f *Files) checkpointName(size uint64) string {
	return filepath.Join(f.folder, "checkpoints", fmt.Sprintf("%020d", size))
}

func (f *Files) tileName(at TileID) string {
	return filepath.Join(f.folder, "tiles", strconv.Itoa(at.Level), strconv.FormatUint(at.N, 10))
}

func (f *Files) pruneName() string { return filepath.Join(f.folder, "prune") }

// lockMaintenance takes maintenanceLock for an operation that changes
// something. The caller unlocks it.
func (f *Files) lockMaintenance(ctx context.Context, op string) error {
	if err := f.maintenanceLock.Lock(ctx, op); err != nil {
		return err
	}
	err := f.checkWritable(ctx, op)
	if err != nil {
		f.maintenanceLock.Unlock()
	}
	return err
}

// checkWritable returns why nothing can be changed. After a failed write a
// journal rejects batches but still saves checkpoints and tiles: each is a file
// of its own.
func (f *Files) checkWritable(ctx context.Context, op string) error {
	if err := f.lockOpen(ctx, op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if f.report.ReadOnly {
		return fault.Wrap(op, f.appendErr)
	}
	return nil
}

// SaveCheckpoint implements Journal.
func (f *Files) SaveCheckpoint(ctx context.Context, c Checkpoint) error {
	const op = "journal.save_checkpoint"
	if err := f.lockMaintenance(ctx, op); err != nil {
		return err
	}
	defer f.maintenanceLock.Unlock()
	f.mu.Lock()
	err := checkCovered(op, c.Size, f.head)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	e := envelope{magic: magicCheckpoint, number: c.Size, first: c.Note, second: c.Snapshot}
	if err := f.saveEnvelope(f.checkpointName(c.Size), e, true); err != nil {
		return saveError(op, err)
	}
	added := numberedFile{number: c.Size, bytes: int64(envelopeHeader + len(c.Note) + len(c.Snapshot))}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, there := slices.BinarySearchFunc(f.checkpoints, c.Size, byFirst)
	if there {
		f.checkpoints[at] = added
	} else {
		f.checkpoints = slices.Insert(f.checkpoints, at, added)
	}
	return nil
}

func saveError(op string, err error) error {
	if disk.IsFull(err) {
		return fullError(op, err)
	}
	return fault.WrapKind(op, fault.StorageBusy, err)
}

// LoadCheckpoint implements Journal. A damaged one is IntegrityFail; its size
// is in the *Damage, and a caller that can use an older one asks for less.
func (f *Files) LoadCheckpoint(ctx context.Context, size uint64) (Checkpoint, error) {
	const op = "journal.load_checkpoint"
	for {
		found, err := f.checkpointUpTo(ctx, op, size)
		if err != nil {
			return Checkpoint{}, err
		}
		e, err := f.loadEnvelope(f.checkpointName(found), envelope{magic: magicCheckpoint, number: found})
		if disk.IsNotExist(err) {
			if again, err := f.checkpointUpTo(ctx, op, size); err != nil || again != found {
				continue // it was pruned
			}
			err = &Damage{File: f.checkpointName(found), Version: found, Detail: "the checkpoint is not there"}
		}
		if d, ok := errors.AsType[*Damage](err); ok {
			return Checkpoint{}, &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: d,
				Detail: fmt.Sprintf("the checkpoint of %d versions is damaged: %s", found, d.Detail),
				Next:   fmt.Sprintf("Restore %s from a backup, or remove it: an older checkpoint and the records are sufficient.", d.File)}
		}
		if err != nil {
			return Checkpoint{}, fault.WrapKind(op, fault.StorageBusy, err)
		}
		return Checkpoint{Size: found, Note: e.first, Snapshot: e.second}, nil
	}
}

// checkpointUpTo finds the largest checkpoint of at most a size.
func (f *Files) checkpointUpTo(ctx context.Context, op string, size uint64) (uint64, error) {
	if err := f.lockOpen(ctx, op); err != nil {
		return 0, err
	}
	defer f.mu.Unlock()
	at, there := slices.BinarySearchFunc(f.checkpoints, size, byFirst)
	if !there {
		at--
	}
	if at < 0 {
		return 0, fault.New(op, fault.NotFound, "there is no checkpoint of at most %d versions", size)
	}
	return f.checkpoints[at].number, nil
}

// SaveTile implements Journal. It does not wait for the disk: Prune does.
func (f *Files) SaveTile(ctx context.Context, at TileID, hashes []byte) error {
	const op = "journal.save_tile"
	if err := f.checkWritable(ctx, op); err != nil {
		return err
	}
	if at.Level < 0 || at.Level > maxTileLevel {
		return fault.New(op, fault.Malformed, "there is no level %d", at.Level)
	}
	name := f.tileName(at)
	if err := f.fs.MkdirAll(filepath.Dir(name)); err != nil {
		return saveError(op, err)
	}
	e := envelope{magic: magicTile, number: at.N, level: uint32(at.Level), first: hashes}
	if err := f.saveEnvelope(name, e, false); err != nil {
		return saveError(op, err)
	}
	return nil
}

// LoadTile implements Journal. A tile that a power cut has left half-written
// counts as not saved while it can be rebuilt, and as damaged afterwards.
func (f *Files) LoadTile(ctx context.Context, at TileID) ([]byte, error) {
	const op = "journal.load_tile"
	if err := f.lockOpen(ctx, op); err != nil {
		return nil, err
	}
	var first uint64
	if len(f.segments) > 0 {
		first = f.segments[0].number
	}
	f.mu.Unlock()
	e, err := f.loadEnvelope(f.tileName(at), envelope{magic: magicTile, number: at.N, level: uint32(at.Level)})
	d, damaged := errors.AsType[*Damage](err)
	switch {
	case err == nil:
		return e.first, nil
	case disk.IsNotExist(err), damaged && tileStart(at) >= first:
		return nil, fault.New(op, fault.NotFound, "tile %d of level %d was not saved", at.N, at.Level)
	case damaged:
		return nil, &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: d, Detail: fmt.Sprintf("tile %d of level %d is damaged", at.N, at.Level),
			Next: fmt.Sprintf("Its records were pruned. Restore %s from a backup.", d.File)}
	}
	return nil, fault.WrapKind(op, fault.StorageBusy, err)
}

// maxTileLevel is the highest level that a tile of whole hashes can have: eight
// levels of the tree in each, and versions of 64 bits.
const maxTileLevel = 7

// tileSpan is how many versions a tile of a level covers.
func tileSpan(level int) uint64 {
	if level >= maxTileLevel {
		return 1<<64 - 1
	}
	return 1 << (8 * (level + 1))
}

// tileStart is the first version that a tile covers.
func tileStart(at TileID) uint64 { return at.N * tileSpan(at.Level) }
