package journal

import (
	"context"
	"math"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/registry/ledger"
	"micronode/internal/wal"
)

// Append implements Journal. A batch goes into one segment, with one write and
// one sync, and readers see it after that.
func (f *Files) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	const op = "journal.append"
	if err := CheckBatch(op, expect, batch); err != nil {
		return err
	}
	if err := f.appendLock.Lock(ctx, op); err != nil {
		return err
	}
	defer f.appendLock.Unlock()
	if err := f.lockOpen(ctx, op); err != nil {
		return err
	}
	err := f.appendErr
	if err == nil && !SameHead(expect, f.head) {
		err = headMismatch(op, expect, f.head)
	}
	f.mu.Unlock()
	if err != nil || len(batch) == 0 {
		return err
	}
	size := 0
	for _, r := range batch {
		size += frameSize(r)
	}
	if size > maxBatch {
		return fault.New(op, fault.BodyTooLarge, "the batch has %d bytes, more than %d", size, maxBatch)
	}
	if f.last == nil || len(f.last.offsets) >= f.segmentVersions || f.last.end >= f.segmentBytes {
		err = f.nextSegment(batch[0].Version)
	}
	if err == nil {
		err = f.last.file.Reserve(f.last.end + int64(size))
	}
	if disk.IsFull(err) {
		return fullError(op, err) // nothing of the batch was written, and a moment later there may be space again
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.failWrites(op, err)
	}

	if cap(f.buffer) < size || cap(f.buffer) > 4*size+(1<<20) { // a large batch does not keep its memory forever
		f.buffer = make([]byte, 0, size)
	}
	f.buffer = f.buffer[:0]
	for _, r := range batch {
		f.buffer = f.last.file.AppendFrame(f.buffer, r.Version, batch[0].Version, r.Header, r.Payload, r.Preconditions)
	}
	err = f.last.file.WriteBatch(f.buffer, f.last.end)

	head := batch[len(batch)-1].Head()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.segments[len(f.segments)-1].bytes = f.last.file.Allocated()
	if err != nil {
		return f.failWrites(op, err)
	}
	for _, r := range batch {
		f.last.offsets = append(f.last.offsets, uint32(f.last.end))
		f.last.end += int64(frameSize(r))
	}
	f.head = &head
	return nil
}

// nextSegment begins a segment with a version, and seals the one before it.
func (f *Files) nextSegment(first uint64) error {
	if f.last != nil {
		if err := f.seal(); err != nil {
			return err
		}
	}
	return f.createSegment(first)
}

// seal writes the index after the frames of the last segment, truncates the
// unused space, and moves the segment to openSegments.
func (f *Files) seal() error {
	s := f.last
	index := appendIndex(nil, s.first, s.offsets, s.end)
	if _, err := s.file.WriteAt(index, s.end); err != nil {
		return err
	}
	size := s.end + int64(len(index))
	if err := s.file.Truncate(size); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	f.mu.Lock()
	f.segments[len(f.segments)-1].bytes = size
	f.last = nil
	_, spare := f.openSegments.add(s)
	s.users -= 2 // it is no longer the last, and the writer does not read it; openSegments and its readers keep theirs
	f.mu.Unlock()
	_ = closeAll(spare) // it was only read
	return nil
}

// createSegment creates a new segment. The disk has the file and its name
// before the first record is written.
func (f *Files) createSegment(first uint64) error {
	name := f.segmentName(first)
	file, err := wal.CreateFile(f.fs, name, segmentFormat, first)
	if err != nil {
		return err
	}
	err = file.Sync()
	if err == nil {
		err = f.syncSegments()
	}
	if err != nil {
		_, _ = file.Close(), f.fs.Remove(name)
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = &segment{name: name, first: first, file: file, end: wal.FileHeaderSize, users: 1}
	f.segments = append(f.segments[:len(f.segments):len(f.segments)], numberedFile{number: first, bytes: wal.FileHeaderSize})
	return nil
}

func fullError(op string, err error) error {
	return &fault.Error{Op: op, Kind: fault.StoreFull, Err: err, Detail: "the disk of the registry's journal is full",
		Next: "Free space on the disk of the --persist folder, or let the registry prune what its checkpoints cover."}
}

// failWrites rejects all later batches. After a failed sync the kernel may have
// dropped the pages, and a second sync that succeeds would mean nothing. Only
// reading the file from the start shows what is there. The caller holds mu.
func (f *Files) failWrites(op string, err error) error {
	refused := &fault.Error{Op: op, Kind: fault.StorageBusy, Err: err,
		Detail: "a write to the registry's journal failed; a restart shows whether this batch was stored",
		Next:   "No acknowledged data is lost, and reads continue. Check the disk, then restart the node."}
	if f.appendErr == nil {
		later := *refused
		later.Detail = "a write to the registry's journal failed earlier; it is read-only until the node is restarted"
		f.appendErr = &later
	}
	return refused
}

// MaxRecord is the maximum size of the three parts of a record together. A
// header is below 64 KiB, a payload at most 1 MiB, preconditions are smaller
// than the payload they belong to: what is larger is a mistake, and a length
// field that says more is damage.
const MaxRecord = 4 << 20

// CheckBatch is what every journal requires of a batch before it looks at the
// log: versions that go up by one from expect on, and records of a sane size.
// The result does not depend on the head, so a batch that fails here is
// permanently wrong: Malformed or BodyTooLarge, and nothing was written.
func CheckBatch(op string, expect *ledger.Head, batch []ledger.Record) error {
	var next uint64
	if expect != nil {
		if expect.Version == math.MaxUint64 {
			return fault.New(op, fault.Malformed, "there is no version after %d", expect.Version)
		}
		next = expect.Version + 1
	}
	for i, r := range batch {
		if r.Version != next+uint64(i) || r.Version < next {
			return fault.New(op, fault.Malformed, "record %d of the batch has version %d, want %d", i, r.Version, next+uint64(i))
		}
		if size := recordSize(r); size > MaxRecord {
			return fault.New(op, fault.BodyTooLarge, "version %d has %d bytes, more than %d", r.Version, size, MaxRecord)
		}
	}
	return nil
}

// recordSize is how many bytes the parts of a record have together.
func recordSize(r ledger.Record) int { return len(r.Header) + len(r.Payload) + len(r.Preconditions) }

// headMismatch is the error when the head is not the one that a writer expects.
func headMismatch(op string, expect, head *ledger.Head) error {
	switch {
	case expect == nil:
		return fault.New(op, fault.ChainMismatch, "the log is not empty, it ends with version %d", head.Version)
	case head == nil:
		return fault.New(op, fault.ChainMismatch, "the log is empty, version %d is not there", expect.Version)
	}
	return fault.New(op, fault.ChainMismatch, "the log ends with version %d, %s", head.Version, head.Hash)
}

// SameHead reports whether two heads are the same. That of an empty log is nil.
func SameHead(a, b *ledger.Head) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// checkCovered rejects a checkpoint or a prune note for versions that do not
// exist: later on, a log that has lost them would look right.
func checkCovered(op string, below uint64, head *ledger.Head) error {
	if below == 0 || head != nil && below-1 <= head.Version {
		return nil
	}
	return fault.New(op, fault.Malformed, "it covers %d versions, but there are fewer", below)
}
