package logbook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
)

// Options says how a book is opened.
type Options struct {
	// MaxRecord is the largest record that is taken, in bytes; zero for 1 MiB.
	// It may be raised later. A file with a larger one does not open.
	MaxRecord int

	// Apply is told every record of the file when it is opened, in order. The
	// bytes are the reader's again when it returns. An error ends the opening.
	Apply func(record []byte) error

	// FS is what files are made with; nil for the real ones.
	FS disk.FS
}

// The bounds of a book.
const (
	defaultRecord = 1 << 20
	mostRecord    = 1 << 30
	mostWaiting   = 32 << 20  // bytes of records that wait to be written
	mostNoted     = 256 << 10 // bytes of notes that wait for somebody who commits
)

// Book is an open file of records.
type Book struct {
	// set at construction
	fs   disk.FS
	path string
	most int
	turn turn // to write

	size, live atomic.Int64 // for those who only look

	// owned by whoever has the turn
	file   disk.File
	salt   uint64
	end    int64 // behind the last frame
	room   int64 // up to where the file has been filled with zeros
	buffer []byte

	mu sync.Mutex

	// guarded by mu
	waiting []*entry
	bytes   int   // of those who wait
	refused error // why nothing is written any more
}

// entry is records that go into the file together, and who is to be told.
type entry struct {
	// set at construction
	records [][]byte
	bytes   int
	done    func(error) // may be nil

	settled chan struct{} // closed when err is set; nil if nobody waits
	err     error
}

// Open opens a book, or makes an empty one. What a crash has left behind the
// last record that is whole was never acknowledged, and is cut off. A book that
// is damaged before its end does not open: fault.IntegrityFail.
func Open(path string, o Options) (*Book, error) {
	b := &Book{fs: o.FS, path: path, most: o.MaxRecord, turn: newTurn()}
	if b.fs == nil {
		b.fs = disk.Real()
	}
	if b.most <= 0 {
		b.most = defaultRecord
	}
	b.most = min(b.most, mostRecord)
	apply := o.Apply
	if apply == nil {
		apply = func([]byte) error { return nil }
	}
	err := b.open(apply)
	if err == nil {
		return b, nil
	}
	if b.file != nil {
		_ = b.file.Close() // nothing was written that anybody relies on
	}
	return nil, failed("logbook.open", err)
}

func (b *Book) open(apply func([]byte) error) error {
	if err := b.fs.MkdirAll(filepath.Dir(b.path)); err != nil {
		return err
	}
	if err := b.fs.Remove(b.draft()); err != nil && !disk.IsAbsent(err) {
		return err
	}
	file, err := b.fs.Open(b.path, disk.ForWriting)
	if disk.IsAbsent(err) {
		return b.begin()
	}
	if err != nil {
		return err
	}
	b.file = file
	r := reading{path: b.path, file: file, most: b.most}
	if err := r.replay(apply); err != nil {
		return err
	}
	b.salt, b.end = r.salt, r.end
	b.size.Store(b.end)
	return b.cutTail()
}

// draft is the name of a book that is being written anew.
func (b *Book) draft() string { return b.path + ".new" }

// begin makes an empty book. It gets its name when it is whole.
func (b *Book) begin() error {
	d, err := b.newDraft()
	if err != nil {
		return err
	}
	if err := d.finish(); err != nil {
		return d.drop(err)
	}
	return b.adopt(d)
}

// cutTail takes away what a crash has left behind the last record, and finds
// out how much room there is. Zeros are room.
func (b *Book) cutTail() error {
	size, err := b.file.Size()
	if err != nil {
		return err
	}
	b.room = size
	clean, err := zeroFrom(b.file, b.end)
	if err != nil || clean {
		return err
	}
	if err := b.file.Truncate(b.end); err != nil {
		return err
	}
	b.room = b.end
	return b.file.Sync()
}

// zeroFrom reports whether a file has nothing but zeros from a place on.
func zeroFrom(f disk.File, at int64) (bool, error) {
	buffer := make([]byte, readBuffer)
	for {
		n, err := f.ReadAt(buffer, at)
		if bytes.Count(buffer[:n], []byte{0}) < n {
			return false, nil
		}
		if isEnd(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		at += int64(n)
	}
}

// Append writes records, all of them or none, and returns when the disk has
// them. Those who wait at the same time share one sync.
//
// On an error nothing was acknowledged: fault.StoreFull if there is no room,
// and the book can be written to again when there is; fault.Busy if too much
// waits; fault.StorageBusy if the disk failed, and then nothing is written
// until the book is opened again. If ctx ends while the records are being
// written, whether they are kept is not known.
func (b *Book) Append(ctx context.Context, records ...[]byte) error {
	return b.Commit(ctx, nil, records...)
}

// Commit is Append for who has something to do when it is settled. Done is
// called exactly once, with nil if the records are kept, before Commit returns,
// or, if ctx ends while they are written, later. Calls with nil come in the
// order of the records in the file, one at a time, and never during a Rewrite:
// a state that is changed only by them is what the file says. It may lock, but
// must not wait, nor use the book.
func (b *Book) Commit(ctx context.Context, done func(error), records ...[]byte) error {
	const op = "logbook.append"
	e := &entry{records: records, done: done, settled: make(chan struct{})}
	err := flow.Ended(ctx, op)
	if err == nil {
		err = b.queue(op, e)
	}
	if err != nil {
		e.settle(err)
		return err
	}
	select {
	case b.turn <- struct{}{}:
		b.writeWaiting()
		b.turn.give()
		return e.err // with the turn, nothing is left to wait for
	case <-e.settled:
		return e.err
	case <-ctx.Done():
		err := flow.Ended(ctx, op)
		if b.withdraw(e) {
			e.settle(err)
		}
		return err
	}
}

// Note writes records with the next ones that somebody commits, or when the
// book is closed, and does not wait for that. It is for what may be forgotten
// in a crash. When many notes have come together, one of them waits for all.
func (b *Book) Note(ctx context.Context, records ...[]byte) error {
	const op = "logbook.note"
	if err := b.queue(op, &entry{records: records}); err != nil {
		return err
	}
	b.mu.Lock()
	many := b.bytes > mostNoted
	b.mu.Unlock()
	if many {
		return fault.Wrap(op, b.Commit(ctx, nil))
	}
	return nil
}

// queue puts an entry behind those who wait.
func (b *Book) queue(op string, e *entry) error {
	for _, r := range e.records {
		if len(r) == 0 || len(r) > b.most {
			return fault.New(op, fault.BodyTooLarge, "a record has %d bytes; one has from 1 to %d", len(r), b.most)
		}
		e.bytes += frameSize(len(r))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused != nil {
		return fault.Wrap(op, b.refused)
	}
	if len(b.waiting) > 0 && b.bytes+e.bytes > mostWaiting {
		return fault.New(op, fault.Busy, "%d bytes wait to be written", b.bytes)
	}
	b.waiting, b.bytes = append(b.waiting, e), b.bytes+e.bytes
	return nil
}

// withdraw takes an entry back that nobody has begun to write, and reports
// whether it could.
func (b *Book) withdraw(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == e {
			b.waiting, b.bytes = append(b.waiting[:i:i], b.waiting[i+1:]...), b.bytes-e.bytes
			return true
		}
	}
	return false
}

// settle says what came of an entry.
func (e *entry) settle(err error) {
	e.err = err
	if e.done != nil {
		e.done(err)
	}
	if e.settled != nil {
		close(e.settled)
	}
}

// Size is how many bytes of the file are in use. It never waits.
func (b *Book) Size() int64 { return b.size.Load() }

// Garbage is how many bytes were written since the book was last rewritten, or
// all of them if it was not since it was opened: what a Rewrite may save at
// most, and a hint of when one is worth it. It never waits.
func (b *Book) Garbage() int64 { return b.size.Load() - b.live.Load() }

// Refused is why nothing is written any more, or nil. It never waits.
func (b *Book) Refused() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// Close writes what was noted, and lets go of the file. It waits for who writes.
// Closing twice is harmless.
func (b *Book) Close() error {
	const op = "logbook.close"
	b.turn <- struct{}{}
	defer b.turn.give()
	if b.file == nil {
		return nil
	}
	b.writeWaiting()
	last := b.refuse(fault.Wrap(op, flow.ErrClosed))
	err := errors.Join(last, b.file.Close())
	b.file = nil
	return fault.WrapKind(op, fault.StorageBusy, err)
}

// refuse lets nothing be written from now on. The first reason stays, and is
// returned if there was one.
func (b *Book) refuse(reason error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused != nil {
		return b.refused
	}
	b.refused = reason
	return nil
}

// newSalt makes a salt.
func newSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// turn lets one caller at a time do something that may take long. It is not a
// mutex: who waits for it can be called away.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context, op string) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return flow.Ended(ctx, op)
	}
}

func (t turn) give() { <-t }

// failed gives an error of the file system its kind.
func failed(op string, err error) error {
	var own *fault.Error
	switch {
	case errors.As(err, &own):
		return fault.Wrap(op, err)
	case disk.IsFull(err):
		return &fault.Error{Op: op, Kind: fault.StoreFull, Detail: "the disk is full", Err: err,
			Next: "Make room on the disk of the --persist folder, then try again."}
	}
	return fault.WrapKind(op, fault.StorageBusy, err)
}
