package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
	"micronode/internal/wal"
)

// FilesSpec configures a journal in a folder.
type FilesSpec struct {
	// Folder is where everything is kept. It is created if it does not exist.
	// Nothing else belongs into it, and no other process may write to it at the
	// same time: the caller has to ensure that.
	Folder string

	// FS is what files are made with; nil for the real ones.
	FS disk.FS

	// SegmentVersions is after how many versions a new segment is begun, and
	// with it the granularity of Prune; zero for 4096.
	SegmentVersions int

	// SegmentBytes is after how many bytes a new segment is begun even if it has
	// fewer versions; zero for 16 MiB.
	SegmentBytes int64

	// ReadOnly opens a journal for reading, and changes nothing in it. A torn
	// tail stays where it is and is not read.
	ReadOnly bool
}

// Defaults of a spec.
const (
	defaultSegmentVersions = 4096
	defaultSegmentBytes    = 16 << 20
)

// maxOpenSegments is how many segments are kept open for readers, besides the last.
const maxOpenSegments = 16

// maxBatch bounds the bytes of one batch, so that offsets in a segment fit into
// 32 bits with room to spare.
const maxBatch = 1 << 30

// Report is the result of opening a journal.
type Report struct {
	TornBytes int64    // after the last record: a batch that was never acknowledged. Truncated, unless ReadOnly
	Damaged   []Damage // what is invalid before the end, at most 64; while there is any, Append is rejected
	ReadOnly  bool     // the journal is only read: by request, or because the disk is read-only
}

// Stats are for metrics.
type Stats struct {
	Segments int
	Bytes    int64 // of segments and checkpoints
	Damaged  int   // damage found so far
}

// Files is a Journal in a folder.
type Files struct {
	// set at construction
	fs              disk.FS
	folder          string
	segmentVersions int
	segmentBytes    int64
	report          Report
	done            chan struct{} // closed by Close

	appendLock      wal.CtxMutex // held to append
	maintenanceLock wal.CtxMutex // held to change checkpoints, or prune
	tmpCounter      atomic.Int64 // makes the names of temporary files unique

	// owned by the writer
	buffer []byte

	mu sync.Mutex

	// guarded by mu
	closed       bool
	appendErr    error // why Append is rejected
	damaged      []Damage
	head         *ledger.Head
	segments     []numberedFile // the segments, by version
	last         *segment       // the one that is appended to; nil if the next does not exist yet
	openSegments openSegments
	checkpoints  []numberedFile // by size
	prune        Prune
}

var _ Journal = (*Files)(nil)

// numberedFile is an existing file: a segment by its first version, or a
// checkpoint by its size.
type numberedFile struct {
	number uint64
	bytes  int64
}

func byFirst(s numberedFile, first uint64) int { return cmp.Compare(s.number, first) }

func (f *Files) segmentName(first uint64) string {
	return filepath.Join(f.folder, "segments", fmt.Sprintf("%020d", first))
}

// Opened reports what was found when the journal was opened.
func (f *Files) Opened() Report { return f.report }

// Stats reports the size of the journal.
func (f *Files) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Stats{Segments: len(f.segments), Damaged: len(f.damaged)}
	for _, one := range slices.Concat(f.segments, f.checkpoints) {
		s.Bytes += one.bytes
	}
	return s
}

// lockOpen locks mu for a short operation, unless the journal is closed or ctx
// has ended.
func (f *Files) lockOpen(ctx context.Context, op string) error {
	if err := flow.Ended(ctx, op); err != nil {
		return err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return fault.Wrap(op, flow.ErrClosed)
	}
	return nil
}

// Head implements Journal. No other process writes to the folder, so the head
// that was read when it was opened, and moved by every batch that was synced,
// is the end of the log. After a failed write it stays where it was.
func (f *Files) Head(ctx context.Context) (ledger.Head, error) {
	const op = "journal.head"
	if err := f.lockOpen(ctx, op); err != nil {
		return ledger.Head{}, err
	}
	defer f.mu.Unlock()
	if f.head == nil {
		return ledger.Head{}, fault.New(op, fault.NotFound, "the log is empty")
	}
	return *f.head, nil
}

// Read implements Journal.
func (f *Files) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	const op = "journal.read"
	for {
		at, err := f.acquireSegment(ctx, op, version)
		if disk.IsNotExist(err) && f.wasPruned(version) {
			continue // it was pruned between finding and opening it
		}
		if err != nil {
			return ledger.Record{}, f.readError(op, version, err)
		}
		r, err := at.read(version)
		f.releaseSegment(at.segment)
		return r, f.readError(op, version, err)
	}
}

// acquireSegment finds and opens the segment of a version. The caller releases
// it.
func (f *Files) acquireSegment(ctx context.Context, op string, version uint64) (segmentView, error) {
	if err := f.lockOpen(ctx, op); err != nil {
		return segmentView{}, err
	}
	where, known, err := f.findSegment(op, version)
	if err != nil {
		f.mu.Unlock()
		return segmentView{}, err
	}
	if f.last != nil && f.last.first == where.number {
		f.last.users++
		defer f.mu.Unlock()
		return segmentView{f.last, f.last.offsets, f.last.end}, nil
	}
	found := f.openSegments.acquire(where.number)
	f.mu.Unlock()
	if found != nil {
		return segmentView{found, found.offsets, found.end}, nil
	}
	opened, err := openSealed(f.fs, f.segmentName(where.number), where.number, known)
	if err != nil {
		return segmentView{}, err
	}
	f.mu.Lock()
	if f.closed || where.number < f.segments[0].number { // closed or pruned meanwhile: it would never be removed from openSegments again
		opened.users++
		f.mu.Unlock()
		return segmentView{opened, opened.offsets, opened.end}, nil
	}
	found, spare := f.openSegments.add(opened)
	f.mu.Unlock()
	_ = closeAll(spare) // it was only read
	return segmentView{found, found.offsets, found.end}, nil
}

// findSegment returns the segment of a version, and which versions are in it or
// in one before. The caller holds mu.
func (f *Files) findSegment(op string, version uint64) (numberedFile, uint64, error) {
	if f.head == nil || version > f.head.Version {
		return numberedFile{}, 0, fault.New(op, fault.NotFound, "there is no version %d yet", version)
	}
	at, there := slices.BinarySearchFunc(f.segments, version, byFirst)
	if !there {
		at--
	}
	switch {
	case at < 0 && version < f.prune.Below:
		return numberedFile{}, 0, prunedError(op, version, f.segments[0].number)
	case at < 0:
		return numberedFile{}, 0, &Damage{File: f.segmentName(version), Version: version, Detail: "the segment is not there, and no prune note covers it"}
	case at+1 < len(f.segments):
		return f.segments[at], f.segments[at+1].number, nil
	}
	return f.segments[at], f.head.Version + 1, nil
}

// wasPruned reports whether a version has been pruned.
func (f *Files) wasPruned(version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.segments) > 0 && version < f.segments[0].number
}

// releaseSegment releases the use of a segment.
func (f *Files) releaseSegment(s *segment) {
	f.mu.Lock()
	spare := release(s)
	f.mu.Unlock()
	_ = closeAll(spare) // it was only read
}

// readError converts the error of a read to a fault. Damage is remembered: from
// then on nothing is appended.
func (f *Files) readError(op string, version uint64, err error) error {
	if err == nil {
		return nil
	}
	if disk.IsNotExist(err) {
		err = &Damage{File: f.segmentName(version), Version: version, Detail: "the segment is not there"}
	}
	if d, ok := errors.AsType[*Damage](err); ok {
		f.mu.Lock()
		f.addDamage(*d)
		f.mu.Unlock()
		return damageError(op, d)
	}
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	return fault.WrapKind(op, fault.StorageBusy, err)
}

// maxDamaged is how much damage is remembered.
const maxDamaged = 64

// addDamage remembers damage. The caller holds mu.
func (f *Files) addDamage(d Damage) {
	if slices.Contains(f.damaged, d) || len(f.damaged) == maxDamaged {
		return
	}
	f.damaged = append(f.damaged, d)
	if f.appendErr == nil {
		f.appendErr = damageError("journal.append", &d)
	}
}

// Scan implements Journal.
func (f *Files) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return scan(ctx, f, from, visit)
}

// Changed implements Journal. No other process writes to the folder.
func (f *Files) Changed(ctx context.Context, since *ledger.Head) error {
	const op = "journal.changed"
	if err := f.lockOpen(ctx, op); err != nil {
		return err
	}
	changed := !SameHead(f.head, since)
	f.mu.Unlock()
	if changed {
		return nil
	}
	return waitForClose(ctx, op, f.done)
}

// Close implements Journal. It waits for writers.
func (f *Files) Close() error {
	for _, t := range []wal.CtxMutex{f.appendLock, f.maintenanceLock} {
		if err := t.Lock(context.Background(), "journal.close"); err != nil {
			return err
		}
		defer t.Unlock()
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	close(f.done)
	unused := []*segment{release(f.last)}
	for first := range f.openSegments.segments {
		unused = append(unused, f.openSegments.remove(first))
	}
	f.mu.Unlock()
	return fault.Wrap("journal.close", closeAll(unused...))
}
