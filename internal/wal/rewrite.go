package wal

import (
	"context"
	"path/filepath"

	"micronode/fault"
)

// Rewrite replaces everything in the log by the records that write adds. They
// are written to a new file, which replaces the old one when the disk has all
// of it: after a crash there is the one or the other. Nothing is committed
// meanwhile; write must not commit. On an error the log is unchanged. It is for
// a state that is small, and whose records are not read back: see Compact for
// the others.
func (l *Log) Rewrite(ctx context.Context, write func(add func(record []byte) error) error) error {
	const op = "wal.rewrite"
	if err := l.rewriteLock.Lock(ctx, op); err != nil {
		return err
	}
	defer l.rewriteLock.Unlock()
	if err := l.lockAndFlush(ctx, op); err != nil {
		return err
	}
	defer l.writeLock.Unlock()
	d, err := l.newDraft()
	if err != nil {
		return diskError(op, err)
	}
	if err := write(func(record []byte) error { _, err := d.add(record); return err }); err != nil {
		return diskError(op, d.discard(err))
	}
	if err := d.finish(); err != nil {
		return diskError(op, d.discard(err))
	}
	return diskError(op, l.replace(d, func() {}))
}

// lockAndFlush takes writeLock, if the log can still be written to. Pending
// entries are written first, so that they do not wait for what follows.
func (l *Log) lockAndFlush(ctx context.Context, op string) error {
	if err := l.writeLock.Lock(ctx, op); err != nil {
		return err
	}
	l.flush()
	if refused := l.Err(); refused != nil {
		l.writeLock.Unlock()
		return fault.Wrap(op, refused)
	}
	return nil
}

// draft is a log that is being written, under another name.
type draft struct {
	log      *Log
	file     *openFile
	end      int64 // behind what is in the file
	unsynced int64 // bytes
	buffer   []byte
}

// draftSyncBytes is after how many bytes a draft is synced, so that the last
// sync, which blocks all writers, has little to do.
const draftSyncBytes = 16 << 20

func (l *Log) newDraft() (*draft, error) {
	file, err := CreateFile(l.fs, l.draftPath(), logFormat, newSalt())
	if err != nil {
		return nil, err
	}
	l.generation++
	return &draft{log: l, file: &openFile{File: file, generation: l.generation}, end: FileHeaderSize}, nil
}

// next is the offset of the next record.
func (d *draft) next() int64 { return d.end + int64(len(d.buffer)) }

// add adds a record. The draft is all one batch.
func (d *draft) add(record []byte) (Position, error) {
	if len(record) == 0 || len(record) > d.log.maxRecord {
		return Position{}, fault.New("wal.rewrite", fault.BodyTooLarge, "a record has %d bytes; one has from 1 to %d", len(record), d.log.maxRecord)
	}
	at := d.file.position(d.next(), len(record))
	d.buffer = d.file.AppendFrame(d.buffer, 0, FileHeaderSize, record)
	if len(d.buffer) < readBuffer {
		return at, nil
	}
	if err := d.flush(); err != nil {
		return at, err
	}
	if d.unsynced < draftSyncBytes {
		return at, nil
	}
	return at, d.sync()
}

func (d *draft) sync() error {
	d.unsynced = 0
	return d.file.Sync()
}

func (d *draft) flush() error {
	_, err := d.file.WriteAt(d.buffer, d.end)
	d.end += int64(len(d.buffer))
	d.unsynced += int64(len(d.buffer))
	d.buffer = d.buffer[:0]
	return err
}

// finish makes sure that the disk has everything. Behind it comes an empty
// frame that is a batch of its own: it says that what is before it is not a
// torn end.
func (d *draft) finish() error {
	if err := d.flush(); err != nil {
		return err
	}
	d.buffer = d.file.AppendFrame(d.buffer, 0, uint64(d.end), nil)
	if err := d.flush(); err != nil {
		return err
	}
	return d.sync()
}

// discard removes a draft.
func (d *draft) discard(cause error) error {
	_ = d.file.Close()
	_ = d.log.fs.Remove(d.log.draftPath()) // if it fails, the next Open removes it
	return cause
}

// replace puts a draft in the place of the log's file. Moved is called while
// the records of both files can be read, just before the old one is retired.
func (l *Log) replace(d *draft, moved func()) error {
	old := l.file
	if err := l.install(d, moved); err != nil {
		return err
	}
	_ = l.retire(old) // nothing in it is needed any more
	return nil
}

// install gives a finished draft the name of the log. If it is unknown whether
// the new name is durable, nothing is written to either file any more.
func (l *Log) install(d *draft, moved func()) error {
	if err := l.fs.Rename(l.draftPath(), l.path); err != nil {
		return d.discard(err)
	}
	if err := l.fs.SyncFolder(filepath.Dir(l.path)); err != nil {
		_ = d.file.Close()
		return l.failWrite("wal.rewrite", err)
	}
	d.file.allocated = d.end
	l.file, l.end = d.file, d.end
	l.size.Store(l.end)
	l.baseSize.Store(l.end)
	l.addOpenFile(d.file)
	moved()
	return nil
}
