package journal

import (
	"context"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/registry/ledger"
)

// Append implements Journal. A batch goes into one segment, with one write and
// one sync, and readers see it after that.
func (f *Files) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	const op = "journal.append"
	if err := CheckBatch(op, expect, batch); err != nil {
		return err
	}
	if err := f.writer.take(ctx, op); err != nil {
		return err
	}
	defer f.writer.give()
	if err := f.mayAppend(ctx, op, expect); err != nil || len(batch) == 0 {
		return err
	}
	if err := f.encode(op, batch); err != nil {
		return err
	}
	if err := f.prepare(batch[0].Version); err != nil {
		return f.failedBefore(op, err)
	}
	if err := f.writeBatch(); err != nil {
		return f.failedWrite(op, err)
	}
	f.publish(batch)
	return nil
}

// mayAppend says why nothing is appended, or that the head is another.
func (f *Files) mayAppend(ctx context.Context, op string, expect *ledger.Head) error {
	if err := f.enter(ctx, op); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if f.refused != nil {
		return f.refused
	}
	return checkHead(op, expect, f.head)
}

// encode makes the bytes of a batch.
func (f *Files) encode(op string, batch []ledger.Record) error {
	size := 0
	for _, r := range batch {
		size += frameSize(r)
	}
	if size > maxBatch {
		return fault.New(op, fault.BodyTooLarge, "the batch has %d bytes, more than %d", size, maxBatch)
	}
	if cap(f.buffer) < size || cap(f.buffer) > 4*size+(1<<20) { // a large batch does not keep its memory for ever
		f.buffer = make([]byte, 0, size)
	}
	f.buffer = f.buffer[:0]
	for _, r := range batch {
		f.buffer = appendFrame(f.buffer, r, batch[0].Version)
	}
	return nil
}

// prepare sees to it that there is a segment, and that it has room for what is
// in the buffer. Nothing of the batch is written yet.
func (f *Files) prepare(next uint64) error {
	if f.last != nil && (len(f.last.offsets) >= f.segmentVersions || f.last.end >= f.segmentBytes) {
		if err := f.seal(); err != nil {
			return err
		}
	}
	if f.last == nil {
		if err := f.begin(next); err != nil {
			return err
		}
	}
	return f.makeRoom(f.last, f.last.end+int64(len(f.buffer)))
}

// Room is made in steps. The first is small, because most registries are; each
// is as large as the file was, up to the largest. A segment that is written over
// what was zero syncs faster than one that grows, or whose blocks were only
// reserved: the file system has nothing to note down. See the package comment.
const (
	leastRoom = 256 << 10
	mostRoom  = 4 << 20
)

// zeros is what room is made of.
var zeros = make([]byte, 256<<10)

// makeRoom fills a segment with zeros until it is at least so long, and waits
// until the disk has them. A sync of a batch then has nothing but the batch to
// sync.
func (f *Files) makeRoom(s *segment, size int64) error {
	if size <= s.room {
		return nil
	}
	size = max(size, s.room+min(max(s.room, leastRoom), mostRoom))
	if err := s.file.Allocate(size); err != nil {
		return err
	}
	for at := s.room; at < size; at += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.room = size
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spans[len(f.spans)-1].bytes = size
	return nil
}

// seal writes the index behind the frames of the last segment, cuts off the room
// that was not used, and hands the segment over to the readers' shelf.
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
	f.spans[len(f.spans)-1].bytes = size
	f.last = nil
	_, spare := f.shelf.put(s)
	s.users -= 2 // it is not the last any more, and we do not read it; the shelf has it, with those who do
	f.mu.Unlock()
	_ = closeAll(spare) // it was only read
	return nil
}

// begin makes a new segment. Before the first record goes in, the disk has the
// file and its name.
func (f *Files) begin(first uint64) error {
	name := f.segmentName(first)
	file, err := f.fs.Open(name, disk.Anew)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(appendSegmentHeader(nil, first), 0)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = f.syncSegments()
	}
	if err != nil {
		_, _ = file.Close(), f.fs.Remove(name)
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = &segment{name: name, first: first, file: file, end: segmentHeader, room: segmentHeader, users: 1}
	f.spans = append(f.spans[:len(f.spans):len(f.spans)], span{first: first, bytes: segmentHeader})
	return nil
}

// writeBatch writes the buffer behind the last record, and waits for the disk.
func (f *Files) writeBatch() error {
	if _, err := f.last.file.WriteAt(f.buffer, f.last.end); err != nil {
		return err
	}
	return f.last.file.Sync()
}

// publish shows a batch to readers.
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

// failedBefore is for what failed before anything of the batch was written. A
// full disk may have room again a moment later; anything else is a disk that
// cannot be trusted.
func (f *Files) failedBefore(op string, err error) error {
	if disk.IsFull(err) {
		return fullError(op, err)
	}
	return f.failedWrite(op, err)
}

func fullError(op string, err error) error {
	return &fault.Error{Op: op, Kind: fault.StoreFull, Err: err, Detail: "the disk of the registry's journal is full",
		Next: "Free space on the disk of the --persist folder, or let the registry prune what its checkpoints cover."}
}

// failedWrite refuses all later batches. After a failed sync the kernel may have
// thrown the pages away, and a second sync that succeeds would mean nothing. Only
// reading the file from the start tells what is there.
func (f *Files) failedWrite(op string, err error) error {
	refused := &fault.Error{Op: op, Kind: fault.StorageBusy, Err: err,
		Detail: "a write to the registry's journal failed; whether this batch was kept is known after a restart",
		Next:   "Nothing that was acknowledged is lost, and reads go on. Look at the disk, then restart the node."}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		later := *refused
		later.Detail = "a write to the registry's journal failed earlier; it is read-only until the node is restarted"
		f.refused = &later
	}
	return refused
}
