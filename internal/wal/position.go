package wal

import (
	"cmp"
	"errors"
	"slices"

	"micronode/fault"
	"micronode/internal/flow"
)

// Position is where a record is in a log. It is valid until the log is
// rewritten, or closed. The zero value is no position.
type Position struct {
	generation uint32 // of the file
	length     uint32 // of the record
	offset     int64  // of its frame
}

// Compare orders positions by where they are in the file.
func (p Position) Compare(other Position) int { return cmp.Compare(p.offset, other.offset) }

// ErrMoved says that a position is no longer valid: the log was rewritten. Its
// owner got the new one.
var ErrMoved = &fault.Error{Op: "wal.read", Kind: fault.Conflict, Detail: "the record was moved", Next: "Ask for its new position, and read again."}

// Read reads the record at a position, and checks that it is what was written.
// One that is not is fault.IntegrityFail; a disk that cannot read is
// fault.StorageBusy; a position that is no longer valid is ErrMoved.
//
// It waits only for the disk: writers do not block it, nor it them. A disk that
// does not answer blocks the caller.
func (l *Log) Read(at Position) ([]byte, error) {
	const op = "wal.read"
	f, err := l.acquireFile(at.generation)
	if err != nil {
		return nil, err
	}
	defer l.releaseFile(f)
	_, body, err := f.ReadFrame(at.offset, f.RecordSize(int(at.length)))
	if err == nil && len(body) != int(at.length) {
		err = ErrChecksum
	}
	if errors.Is(err, ErrShort) || errors.Is(err, ErrChecksum) {
		return nil, l.damagedRecord(at, err.Error())
	}
	return body, diskError(op, err)
}

// damagedRecord is the error when the disk does not have what was written.
func (l *Log) damagedRecord(at Position, detail string) error {
	return &fault.Error{Op: "wal.read", Kind: fault.IntegrityFail, Err: &Damage{File: l.path, Offset: at.offset, Detail: detail}, Detail: "a record of the log is damaged",
		Next: "Check the disk of the --persist folder: it has changed stored data. Keep a copy of " + l.path + "."}
}

// openFile is a file of records. It is closed when it has been retired and has
// no readers left.
type openFile struct {
	*File
	generation uint32 // set at construction

	// guarded by Log.mu
	readers int
	retired bool
}

// position is where a record is in the file.
func (f *openFile) position(offset int64, length int) Position {
	return Position{generation: f.generation, length: uint32(length), offset: offset}
}

// addOpenFile makes a file available for reading.
func (l *Log) addOpenFile(f *openFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.openFiles = append(l.openFiles, f)
}

// retire closes a file, now or when its last reader has released it.
func (l *Log) retire(f *openFile) error {
	l.mu.Lock()
	f.retired = true
	l.openFiles = slices.DeleteFunc(l.openFiles, func(other *openFile) bool { return other == f })
	unused := f.readers == 0
	l.mu.Unlock()
	if !unused {
		return nil
	}
	return f.Close()
}

// acquireFile keeps a file open until it is released.
func (l *Log) acquireFile(generation uint32) (*openFile, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.openFiles {
		if f.generation == generation {
			f.readers++
			return f, nil
		}
	}
	if l.closed {
		return nil, fault.Wrap("wal.read", flow.ErrClosed)
	}
	return nil, ErrMoved
}

func (l *Log) releaseFile(f *openFile) {
	l.mu.Lock()
	f.readers--
	unused := f.retired && f.readers == 0
	l.mu.Unlock()
	if unused {
		_ = f.Close() // it was only read
	}
}
