package journal

import (
	"context"

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
	if err := f.checkAppend(ctx, op, expect); err != nil || len(batch) == 0 {
		return err
	}
	size, err := batchSize(op, batch)
	if err != nil {
		return err
	}
	if err := f.prepareSegment(batch[0].Version, size); err != nil {
		return f.prepareError(op, err)
	}
	f.encode(batch, size)
	if err := f.last.file.WriteBatch(f.buffer, f.last.end); err != nil {
		return f.failWrites(op, err)
	}
	f.publish(batch)
	return nil
}

// checkAppend returns why nothing can be appended, or that the head is another.
func (f *Files) checkAppend(ctx context.Context, op string, expect *ledger.Head) error {
	if err := f.lockOpen(ctx, op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if f.appendErr != nil {
		return f.appendErr
	}
	return checkHead(op, expect, f.head)
}

// batchSize is how many bytes the frames of a batch have.
func batchSize(op string, batch []ledger.Record) (size int, err error) {
	for _, r := range batch {
		size += frameSize(r)
	}
	if size > maxBatch {
		return 0, fault.New(op, fault.BodyTooLarge, "the batch has %d bytes, more than %d", size, maxBatch)
	}
	return size, nil
}

// encode makes the bytes of a batch, for the last segment.
func (f *Files) encode(batch []ledger.Record, size int) {
	if cap(f.buffer) < size || cap(f.buffer) > 4*size+(1<<20) { // a large batch does not keep its memory forever
		f.buffer = make([]byte, 0, size)
	}
	f.buffer = f.buffer[:0]
	for _, r := range batch {
		f.buffer = f.last.file.AppendFrame(f.buffer, r.Version, batch[0].Version, r.Header, r.Payload, r.Preconditions)
	}
}

// prepareSegment ensures that there is a segment with space for a batch.
// Nothing of the batch is written yet.
func (f *Files) prepareSegment(next uint64, size int) error {
	if f.last != nil && (len(f.last.offsets) >= f.segmentVersions || f.last.end >= f.segmentBytes) {
		if err := f.seal(); err != nil {
			return err
		}
	}
	if f.last == nil {
		if err := f.createSegment(next); err != nil {
			return err
		}
	}
	if err := f.last.file.Reserve(f.last.end + int64(size)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.segments[len(f.segments)-1].bytes = f.last.file.Allocated()
	return nil
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

// publish makes a batch visible to readers.
func (f *Files) publish(batch []ledger.Record) {
	head := batch[len(batch)-1].Head()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range batch {
		f.last.offsets = append(f.last.offsets, uint32(f.last.end))
		f.last.end += int64(frameSize(r))
	}
	f.head = &head
}

// prepareError is the error if something failed before any of the batch was
// written. A full disk may have space again a moment later; after any other
// failure the disk is not trusted.
func (f *Files) prepareError(op string, err error) error {
	if disk.IsFull(err) {
		return fullError(op, err)
	}
	return f.failWrites(op, err)
}

func fullError(op string, err error) error {
	return &fault.Error{Op: op, Kind: fault.StoreFull, Err: err, Detail: "the disk of the registry's journal is full",
		Next: "Free space on the disk of the --persist folder, or let the registry prune what its checkpoints cover."}
}

// failWrites rejects all later batches. After a failed sync the kernel may have
// dropped the pages, and a second sync that succeeds would mean nothing. Only
// reading the file from the start shows what is there.
func (f *Files) failWrites(op string, err error) error {
	refused := &fault.Error{Op: op, Kind: fault.StorageBusy, Err: err,
		Detail: "a write to the registry's journal failed; a restart shows whether this batch was stored",
		Next:   "No acknowledged data is lost, and reads continue. Check the disk, then restart the node."}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.appendErr == nil {
		later := *refused
		later.Detail = "a write to the registry's journal failed earlier; it is read-only until the node is restarted"
		f.appendErr = &later
	}
	return refused
}
