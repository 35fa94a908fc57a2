package wal

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
)

// Compaction is what the owner of a log does while it is compacted.
type Compaction struct {
	// Snapshot captures the state of this moment. Nothing is committed
	// meanwhile, so it must be short.
	Snapshot func()

	// Write adds the records of the snapshot, and gets the position that each
	// is going to have. It may read from the log. Others commit meanwhile.
	Write func(add func(record []byte) (Position, error)) error

	// Moved is called when the new file is in use. What Write has added is at
	// the positions that it got, and since leaves those unchanged; what was
	// committed since the snapshot is where since says. Nothing is committed
	// meanwhile; old positions stay valid until it returns.
	Moved func(since func(Position) Position)
}

// What is copied while others write, until they are blocked for the rest.
const (
	maxCatchUps      = 16
	catchUpThreshold = 256 << 10 // bytes
)

// Compact replaces what is in the log by the records that Write adds, and those
// that were committed after the snapshot. It is Rewrite for a log that is too
// large to block all writers until it is copied: others commit and read all the
// time, except for two moments. On an error the log is unchanged, and Moved was
// not called.
func (l *Log) Compact(ctx context.Context, c Compaction) error {
	const op = "wal.compact"
	if err := l.rewriteLock.Lock(ctx, op); err != nil {
		return err
	}
	defer l.rewriteLock.Unlock()
	if err := l.lockAndFlush(ctx, op); err != nil {
		return err
	}
	old, from := l.file, l.end
	c.Snapshot()
	l.writeLock.Unlock()

	d, err := l.newDraft()
	if err != nil {
		return diskError(op, err)
	}
	t := tailCopier{log: l, old: old, copied: from, draft: d}
	if err := t.fillAndCatchUp(ctx, op, c.Write); err != nil {
		return diskError(op, d.discard(err))
	}
	if err := l.lockAndFlush(ctx, op); err != nil {
		return d.discard(err)
	}
	defer l.writeLock.Unlock()
	if err := t.copyTo(l.end); err != nil {
		return diskError(op, d.discard(err))
	}
	if err := d.finish(); err != nil {
		return diskError(op, d.discard(err))
	}
	return diskError(op, l.replace(d, func() { c.Moved(t.relocate) }))
}

// tailCopier copies what was committed since the snapshot behind the snapshot.
type tailCopier struct {
	log   *Log
	draft *draft

	// It is not closed meanwhile: that takes rewriteLock.
	old    *openFile
	copied int64 // offset up to which it was copied

	shift int64 // by how much records move
}

// fillAndCatchUp writes the snapshot, and then what was committed meanwhile,
// until little of that is left.
func (t *tailCopier) fillAndCatchUp(ctx context.Context, op string, write func(add func([]byte) (Position, error)) error) error {
	err := write(func(record []byte) (Position, error) {
		if err := t.log.checkInterrupted(ctx, op); err != nil {
			return Position{}, err
		}
		return t.draft.add(record)
	})
	if err != nil {
		return err
	}
	t.shift = t.draft.next() - t.copied
	for range maxCatchUps {
		if err := t.log.checkInterrupted(ctx, op); err != nil {
			return err
		}
		to := t.log.Size()
		if to-t.copied <= catchUpThreshold {
			break
		}
		if err := t.copyTo(to); err != nil {
			return err
		}
	}
	if err := t.draft.flush(); err != nil {
		return err
	}
	return t.draft.sync()
}

// checkInterrupted says why a compaction must stop; nil if it may continue.
func (l *Log) checkInterrupted(ctx context.Context, op string) error {
	if l.closing.Load() {
		return fault.Wrap(op, flow.ErrClosed)
	}
	return flow.Ended(ctx, op)
}

// copyTo copies the records up to an offset. All of them were synced.
func (t *tailCopier) copyTo(to int64) error {
	scan := t.old.Scan(t.copied, to)
	for t.copied < to {
		_, body, ok, err := scan.Next(func(Frame) bool { return true })
		if err != nil {
			return err
		}
		if !ok {
			return t.damage()
		}
		if _, err := t.draft.add(body); err != nil {
			return err
		}
		t.copied = scan.End()
	}
	return nil
}

func (t *tailCopier) damage() error {
	return t.log.damagedRecord(Position{offset: t.copied}, "a record that was just written is damaged")
}

// relocate is the new position of a record that was committed after the
// snapshot. Frames are as long in the one file as in the other. A position that
// is not in the old file is returned unchanged.
func (t *tailCopier) relocate(at Position) Position {
	if at.generation != t.old.generation {
		return at
	}
	at.generation, at.offset = t.draft.file.generation, at.offset+t.shift
	return at
}
