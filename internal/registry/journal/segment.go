package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/registry/ledger"
)

// segment is an open segment file.
type segment struct {
	// set when it is opened
	name  string
	first uint64
	file  disk.File

	// of the last segment, guarded by the journal's mu; of others, set when they
	// are opened
	offsets []uint32 // where each version is; zero where it is damaged
	end     int64    // behind the last frame

	// owned by the writer
	room int64 // up to where the file has been filled with zeros

	// guarded by the journal's mu
	users int   // who reads it, and one for being the last or being shelved
	used  int64 // when it was last asked for
}

// seen is what a reader takes of a segment under the lock.
type seen struct {
	*segment
	offsets []uint32
	end     int64
}

// Damage says what is wrong, and where. It is the cause of IntegrityFail.
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

// damageError is what who meets damage is told.
func damageError(op string, d *Damage) error {
	return &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: d,
		Detail: fmt.Sprintf("the journal is damaged at version %d: %s", d.Version, d.Detail),
		Next: fmt.Sprintf("Nothing is written to a damaged journal. Stop the node, keep a copy of its folder, "+
			"put %s back from a backup (or the registry's folder from one), and check with `micronode registry verify`.", d.File)}
}

// read reads the record of a version, which is between the first and the last of
// the segment.
func (s seen) read(version uint64) (ledger.Record, error) {
	i := version - s.first
	if i >= uint64(len(s.offsets)) || s.offsets[i] == 0 {
		return ledger.Record{}, &Damage{File: s.name, Version: version, Detail: "the record is not there"}
	}
	at, end := int64(s.offsets[i]), s.behind(i)
	if end <= at {
		return ledger.Record{}, &Damage{File: s.name, Offset: at, Version: version, Detail: "the index is out of order"}
	}
	b := make([]byte, end-at)
	if n, err := s.file.ReadAt(b, at); err != nil && (!errors.Is(err, io.EOF) || n < len(b)) {
		if errors.Is(err, io.EOF) {
			return ledger.Record{}, &Damage{File: s.name, Offset: at, Version: version, Detail: "the file is too short"}
		}
		return ledger.Record{}, err
	}
	f, ok := frameAt(b)
	if !ok || f.version != version || !f.whole(b) {
		return ledger.Record{}, &Damage{File: s.name, Offset: at, Version: version, Detail: "the checksum is wrong"}
	}
	return f.record(b), nil
}

// behind is the end of a frame: where the next one begins that is right.
func (s seen) behind(i uint64) int64 {
	for _, offset := range s.offsets[i+1:] {
		if offset != 0 {
			return int64(offset)
		}
	}
	return s.end
}

// openSealed opens a segment that is not the last. Its index says where its
// records are; if it has none that is right, its frames do. The versions below
// known are in it or in one before.
func openSealed(fsys disk.FS, name string, first, known uint64) (*segment, error) {
	file, err := fsys.Open(name, disk.ForReading)
	if err != nil {
		return nil, err
	}
	s := &segment{name: name, first: first, file: file}
	ok, err := s.loadIndex()
	if err == nil && !ok {
		err = s.rebuildIndex(known)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// loadIndex reads the index at the end of the file, if there is one.
func (s *segment) loadIndex() (bool, error) {
	size, err := s.file.Size()
	if err != nil || size < segmentHeader+indexTrailer {
		return false, err
	}
	trailer := make([]byte, indexTrailer)
	if err := readFull(s.file, trailer, size-indexTrailer); err != nil {
		return false, err
	}
	span, ok := indexSpan(trailer, s.first, size)
	if !ok {
		return false, nil
	}
	b := make([]byte, span)
	if err := readFull(s.file, b, size-span); err != nil {
		return false, err
	}
	s.offsets, s.end, ok = parseIndex(b)
	s.room = size
	return ok, nil
}

// rebuildIndex finds the records by reading everything.
func (s *segment) rebuildIndex(known uint64) error {
	b, err := readAll(s.file)
	if err != nil {
		return err
	}
	found := lookThrough(b, s.first, known)
	s.offsets, s.end = slices.Clip(found.offsets), int64(found.end)
	return nil
}

// readAll reads a file.
func readAll(f disk.File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	return b, readFull(f, b, 0)
}

// readFull fills b from a place in a file on.
func readFull(f disk.File, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
