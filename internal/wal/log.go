package wal

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
)

// Options says how a log is opened.
type Options struct {
	// MaxRecord is the largest record that is accepted, in bytes; zero for 1
	// MiB. It may be raised later. A file with a larger one does not open.
	MaxRecord int

	// Apply is called with every record of the file when it is opened, in
	// order. The bytes are valid until it returns. An error ends the opening.
	Apply func(record []byte) error

	// ApplyAt is Apply for an owner that reads records back: it gets the
	// position of each record, too. It is called instead of Apply.
	ApplyAt func(at Position, record []byte) error

	// FS is the file system; nil for that of the machine.
	FS disk.FS
}

// The bounds of a log.
const (
	defaultMaxRecord = 1 << 20
	recordSizeLimit  = 1 << 30
	maxPendingBytes  = 32 << 20  // bytes of records that wait to be written
	maxAsyncBytes    = 256 << 10 // bytes of async records that wait for the next commit
)

// Log is an open file of records.
type Log struct {
	// set at construction
	fs          disk.FS
	path        string
	maxRecord   int
	writeLock   CtxMutex // held to write
	rewriteLock CtxMutex // held to rewrite the log; taken before writeLock

	size, baseSize atomic.Int64 // read without a lock
	closing        atomic.Bool  // Close has begun: Compact stops

	// owned by the holder of rewriteLock
	generation uint32 // of the last file that was made

	// owned by the holder of writeLock
	file   *openFile
	end    int64 // behind the last frame
	buffer []byte

	mu sync.Mutex

	// guarded by mu
	pending      []*pendingAppend
	pendingBytes int         // of pending
	failure      error       // why nothing is written any more; nil while the log works
	openFiles    []*openFile // from which records are read
	closed       bool
}

// pendingAppend is records that go into the file together, and the callback for
// their outcome.
type pendingAppend struct {
	// set at construction
	records   [][]byte
	bytes     int
	onDone    func(at []Position, err error) // may be nil
	positions []Position                     // of the records, if there is a callback

	finished chan struct{} // closed when err is set; nil if no caller waits
	err      error
}

// Open opens a log, or creates an empty one. What a crash has left behind the
// last whole record was never acknowledged, and is cut off. A log that is
// damaged before its end does not open: fault.IntegrityFail.
func Open(path string, o Options) (*Log, error) {
	b := &Log{fs: o.FS, path: path, maxRecord: o.MaxRecord, writeLock: NewCtxMutex(), rewriteLock: NewCtxMutex()}
	if b.fs == nil {
		b.fs = disk.OS()
	}
	if b.maxRecord <= 0 {
		b.maxRecord = defaultMaxRecord
	}
	b.maxRecord = min(b.maxRecord, recordSizeLimit)
	apply := o.ApplyAt
	switch {
	case apply != nil:
	case o.Apply != nil:
		apply = func(_ Position, record []byte) error { return o.Apply(record) }
	default:
		apply = func(Position, []byte) error { return nil }
	}
	err := b.openExisting(apply)
	if err == nil {
		return b, nil
	}
	if b.file != nil {
		_ = b.file.Close() // nothing acknowledged was written
	}
	return nil, diskError("wal.open", err)
}

func (l *Log) openExisting(apply func(Position, []byte) error) error {
	if err := MakeFolder(l.fs, filepath.Dir(l.path)); err != nil {
		return err
	}
	if err := l.fs.Remove(l.draftPath()); err != nil && !disk.IsNotExist(err) {
		return err
	}
	file, err := OpenFile(l.fs, l.path, logFormat, disk.ForWriting)
	if disk.IsNotExist(err) {
		return l.create()
	}
	if err != nil {
		return err
	}
	l.generation++
	l.file = &openFile{File: file, generation: l.generation}
	if err := l.checkHeader(); err != nil {
		return err
	}
	batch, err := l.replay(apply)
	if err != nil {
		return err
	}
	if err := l.recoverTail(batch); err != nil {
		return err
	}
	l.size.Store(l.end)
	l.addOpenFile(l.file)
	return nil
}

func (l *Log) checkHeader() error {
	_, version, valid, err := l.file.LoadHeader()
	switch known := logFormat.Magic[len(logFormat.Magic)-1]; {
	case err != nil || valid:
		return err
	case version != 0 && version != known:
		return &fault.Error{Op: "wal.open", Kind: fault.RejectPolicy,
			Detail: fmt.Sprintf("%s has format %d; this program supports %d", l.path, version, known),
			Next:   "Run the version of micronode that wrote it: nothing was changed."}
	}
	return newDamage(&Damage{File: l.path, Detail: "it does not have the header of a log"})
}

// replay calls apply for every record, and finds the end. It returns where the
// last batch begins.
func (l *Log) replay(apply func(at Position, record []byte) error) (batch int64, err error) {
	scan := l.file.Scan(FileHeaderSize, l.file.Allocated())
	batch = FileHeaderSize
	for {
		f, body, ok, err := scan.Next(func(f Frame) bool {
			return f.Len() <= l.maxRecord && (f.Batch == uint64(batch) || f.Batch == f.ID)
		})
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		batch = int64(f.Batch)
		if len(body) == 0 {
			continue // the mark behind a rewrite
		}
		if err := apply(l.file.position(f.Offset, len(body)), body); err != nil {
			return 0, err
		}
	}
	l.end = scan.End()
	acknowledged, err := scan.Acknowledged(uint64(l.end))
	if acknowledged {
		return 0, newDamage(&Damage{File: l.path, Offset: l.end, Detail: "an acknowledged record is damaged"})
	}
	return batch, err
}

// recoverTail cuts off what a crash has left behind the last record, and makes
// what is before it durable: the owner has seen it.
func (l *Log) recoverTail(batch int64) error {
	torn, err := l.file.TornBytes(l.end)
	if err != nil {
		return err
	}
	if torn > 0 {
		if err := l.file.CutTail(l.end); err != nil {
			return err
		}
	}
	return l.file.Resync(batch, l.end)
}

// Damage says what is wrong with a log, and where. It is the cause of
// fault.IntegrityFail.
type Damage struct {
	File   string
	Offset int64
	Detail string
}

// Error is for logs.
func (d *Damage) Error() string {
	return fmt.Sprintf("%s at byte %d: %s", d.File, d.Offset, d.Detail)
}

func newDamage(d *Damage) error {
	return &fault.Error{Op: "wal.open", Kind: fault.IntegrityFail, Err: d,
		Detail: "the log is damaged",
		Next: fmt.Sprintf("Nothing is written to a damaged log. Stop the node, keep a copy of %s, and put it back from a backup; "+
			"or move it away to begin with an empty one.", d.File)}
}

// draftPath is the name of a log that is being rewritten.
func (l *Log) draftPath() string { return l.path + ".new" }

// create makes an empty log. It gets its name when it is complete.
func (l *Log) create() error {
	d, err := l.newDraft()
	if err != nil {
		return err
	}
	if err := d.finish(); err != nil {
		return d.discard(err)
	}
	return l.install(d, func() {})
}

// Append writes records, all of them or none, and returns when the disk has
// them. Callers that wait at the same time share one sync.
//
// On an error nothing was acknowledged: fault.StoreFull if there is no room,
// and the log can be written to again when there is; fault.Busy if too much
// waits; fault.StorageBusy if the disk failed, and then nothing is written
// until the log is opened again. If ctx ends while the records are being
// written, whether they are kept is not known.
func (l *Log) Append(ctx context.Context, records ...[]byte) error {
	return l.Commit(ctx, nil, records...)
}

// Commit appends records and calls done exactly once when the outcome is known:
// with nil if the records are kept, before Commit returns, or, if ctx ends
// while they are written, later. Calls with nil come in the order of the
// records in the file, one at a time, and never during a Rewrite: a state that
// is changed only by them agrees with the file. It may lock, but must not wait,
// nor use the log.
func (l *Log) Commit(ctx context.Context, done func(error), records ...[]byte) error {
	if done == nil {
		return l.CommitAt(ctx, nil, records...)
	}
	return l.CommitAt(ctx, func(_ []Position, err error) { done(err) }, records...)
}

// CommitAt is Commit for an owner that reads records back: done gets the
// position of each record, too.
func (l *Log) CommitAt(ctx context.Context, done func(at []Position, err error), records ...[]byte) error {
	const op = "wal.append"
	e := &pendingAppend{records: records, onDone: done, finished: make(chan struct{})}
	err := flow.Ended(ctx, op)
	if err == nil {
		err = l.enqueue(op, e)
	}
	if err != nil {
		e.finish(err)
		return err
	}
	select {
	case l.writeLock <- struct{}{}:
		l.flush()
		l.writeLock.Unlock()
		return e.err // this flush or an earlier one has finished it
	case <-e.finished:
		return e.err
	case <-ctx.Done():
		err := flow.Ended(ctx, op)
		if l.cancel(e) {
			e.finish(err)
		}
		return err
	}
}

// AppendAsync writes records with the next commit, or when the log is closed,
// and does not wait for that. It is for records that may be lost in a crash.
// When many have accumulated, one call commits and waits for all.
func (l *Log) AppendAsync(ctx context.Context, records ...[]byte) error {
	const op = "wal.note"
	if err := l.enqueue(op, &pendingAppend{records: records}); err != nil {
		return err
	}
	l.mu.Lock()
	flush := l.pendingBytes > maxAsyncBytes
	l.mu.Unlock()
	if flush {
		return fault.Wrap(op, l.Commit(ctx, nil))
	}
	return nil
}

// enqueue appends an entry to the pending ones.
func (l *Log) enqueue(op string, e *pendingAppend) error {
	for _, r := range e.records {
		if len(r) == 0 || len(r) > l.maxRecord {
			return fault.New(op, fault.BodyTooLarge, "a record has %d bytes; one has from 1 to %d", len(r), l.maxRecord)
		}
		e.bytes += logFormat.FrameSize(len(r))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return fault.Wrap(op, l.failure)
	}
	if len(l.pending) > 0 && l.pendingBytes+e.bytes > maxPendingBytes {
		return fault.New(op, fault.Busy, "%d bytes wait to be written", l.pendingBytes)
	}
	l.pending, l.pendingBytes = append(l.pending, e), l.pendingBytes+e.bytes
	return nil
}

// cancel removes an entry that is not being written yet, and reports whether it
// could.
func (l *Log) cancel(e *pendingAppend) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.pending {
		if other == e {
			l.pending, l.pendingBytes = append(l.pending[:i:i], l.pending[i+1:]...), l.pendingBytes-e.bytes
			return true
		}
	}
	return false
}

// finish sets the outcome of an entry and calls its callback.
func (p *pendingAppend) finish(err error) {
	p.err = err
	if p.onDone != nil {
		p.onDone(p.positions, err)
	}
	if p.finished != nil {
		close(p.finished)
	}
}

// Size is how many bytes of the file are in use. It never waits.
func (l *Log) Size() int64 { return l.size.Load() }

// GarbageBytes is how many bytes were written since the log was last rewritten,
// or all of them if it was not since it was opened: what a Rewrite may save at
// most, and a hint of when one is worth it. It never waits.
func (l *Log) GarbageBytes() int64 { return l.size.Load() - l.baseSize.Load() }

// Err is why nothing is written any more, or nil. It never waits.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Close writes the async records that wait, and closes the file. It waits for
// writers, not for readers. Closing twice is harmless.
func (l *Log) Close() error {
	const op = "wal.close"
	l.closing.Store(true)
	l.rewriteLock <- struct{}{}
	defer l.rewriteLock.Unlock()
	l.writeLock <- struct{}{}
	defer l.writeLock.Unlock()
	if l.file == nil {
		return nil
	}
	l.flush()
	last := l.fail(fault.Wrap(op, flow.ErrClosed))
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := errors.Join(last, l.retire(l.file))
	l.file = nil
	return fault.WrapKind(op, fault.StorageBusy, err)
}

// fail refuses all writes from now on. The first reason stays, and is returned
// if there was one.
func (l *Log) fail(reason error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return l.failure
	}
	l.failure = reason
	return nil
}

// newSalt makes a salt.
func newSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// CtxMutex is a lock for operations that may take long. Unlike with a
// sync.Mutex, waiting for it ends with the context.
type CtxMutex chan struct{}

// NewCtxMutex returns a lock that is not held.
func NewCtxMutex() CtxMutex { return make(CtxMutex, 1) }

// Lock waits for the lock, or until ctx ends.
func (c CtxMutex) Lock(ctx context.Context, op string) error {
	if err := flow.Ended(ctx, op); err != nil {
		return err
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return flow.Ended(ctx, op)
	}
}

// Unlock releases the lock.
func (c CtxMutex) Unlock() { <-c }

// diskError gives an error of the file system its kind.
func diskError(op string, err error) error {
	var own *fault.Error
	switch {
	case errors.As(err, &own):
		return fault.Wrap(op, err)
	case disk.IsFull(err):
		return &fault.Error{Op: op, Kind: fault.StoreFull, Detail: "the disk is full", Err: err,
			Next: "Free space on the disk of the --persist folder, then try again."}
	}
	return fault.WrapKind(op, fault.StorageBusy, err)
}
