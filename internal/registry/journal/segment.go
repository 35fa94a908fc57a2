package journal

import (
	"errors"
	"fmt"
	"slices"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/registry/ledger"
	"micronode/internal/wal"
)

// segment is an open segment file.
type segment struct {
	// set when it is opened
	name  string
	first uint64
	file  *wal.File

	// of the last segment, guarded by the journal's mu; of others, set when they
	// are opened
	offsets []uint32 // the offset of each version; zero where it is damaged
	end     int64    // the end of the last frame

	// set by scanFrames
	lastBatch uint64 // the first version of the last batch

	// guarded by the journal's mu
	users int   // readers, and one for being the last or in openSegments
	used  int64 // when it was last used
}

// segmentView is a reader's copy of a segment's state, made under the lock.
type segmentView struct {
	*segment
	offsets []uint32
	end     int64
}

// Damage describes what is wrong, and where. It is the cause of IntegrityFail.
type Damage struct {
	File    string
	Offset  int64
	Version uint64 // of the record, or the size of the checkpoint
	Detail  string
}

// Error is for logs.
func (d *Damage) Error() string {
	return fmt.Sprintf("%s at byte %d (version %d): %s", d.File, d.Offset, d.Version, d.Detail)
}

// damageError is the error that a caller gets for damaged data.
func damageError(op string, d *Damage) error {
	return &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: d,
		Detail: fmt.Sprintf("the journal is damaged at version %d: %s", d.Version, d.Detail),
		Next: fmt.Sprintf("Nothing is written to a damaged journal. Stop the node, keep a copy of its folder, "+
			"put %s back from a backup (or the registry's folder from one), and check with `micronode registry verify`.", d.File)}
}

// read reads the record of a version, which is between the first and the last of
// the segment.
func (s segmentView) read(version uint64) (ledger.Record, error) {
	i := version - s.first
	if i >= uint64(len(s.offsets)) || s.offsets[i] == 0 {
		return ledger.Record{}, &Damage{File: s.name, Version: version, Detail: "the record is not there"}
	}
	at, end := int64(s.offsets[i]), s.frameEnd(i)
	if end <= at {
		return ledger.Record{}, &Damage{File: s.name, Offset: at, Version: version, Detail: "the index is out of order"}
	}
	frame, body, err := s.file.ReadFrame(at, int(end-at))
	switch {
	case errors.Is(err, wal.ErrShort):
		return ledger.Record{}, &Damage{File: s.name, Offset: at, Version: version, Detail: "the file is too short"}
	case errors.Is(err, wal.ErrChecksum) || err == nil && frame.ID != version:
		return ledger.Record{}, &Damage{File: s.name, Offset: at, Version: version, Detail: "the checksum is wrong"}
	case err != nil:
		return ledger.Record{}, err
	}
	return toRecord(frame, body), nil
}

// frameEnd returns the end of a frame: where the next valid one begins.
func (s segmentView) frameEnd(i uint64) int64 {
	for _, offset := range s.offsets[i+1:] {
		if offset != 0 {
			return int64(offset)
		}
	}
	return s.end
}

// openSealed opens a segment that is not the last. Its records are found by its
// index or, if it has no valid one, by its frames. The versions below known are
// in it or in one before.
func openSealed(fsys disk.FS, name string, first, known uint64) (*segment, error) {
	file, err := wal.OpenFile(fsys, name, segmentFormat, disk.ForReading)
	if err != nil {
		return nil, err
	}
	s := &segment{name: name, first: first, file: file}
	ok, err := s.loadIndex()
	if err == nil && !ok {
		_, err = s.scanFrames(known)
		s.offsets = slices.Clip(s.offsets)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// loadIndex reads the index at the end of the file, if there is one.
func (s *segment) loadIndex() (bool, error) {
	size := s.file.Allocated()
	if size < wal.FileHeaderSize+indexTrailer {
		return false, nil
	}
	trailer := make([]byte, indexTrailer)
	if err := wal.ReadFull(s.file, trailer, size-indexTrailer); err != nil {
		return false, err
	}
	span, ok := indexSize(trailer, s.first, size)
	if !ok {
		return false, nil
	}
	b := make([]byte, span)
	if err := wal.ReadFull(s.file, b, size-span); err != nil {
		return false, err
	}
	s.offsets, s.end, ok = parseIndex(b)
	return ok, nil
}

// readAll reads a file.
func readAll(f disk.File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	return b, wal.ReadFull(f, b, 0)
}
