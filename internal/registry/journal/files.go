package journal

import (
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
)

// FilesSpec says where a journal is and how it is cut into segments.
type FilesSpec struct {
	// Folder is where everything is kept. It is made if it is not there. Nothing
	// else belongs into it, and no other process may write to it at the same
	// time: to see to that is the business of whoever passes it.
	Folder string

	// FS is what files are made with; nil for the real ones.
	FS disk.FS

	// SegmentVersions is after how many versions a new segment is begun, and
	// with it what Prune gives up at a time; zero for 4096.
	SegmentVersions int

	// SegmentBytes is after how many bytes a new segment is begun even if it has
	// fewer versions; zero for 16 MiB.
	SegmentBytes int64

	// ReadOnly opens a journal to look at, and changes nothing in it. A torn
	// tail stays where it is and is not read.
	ReadOnly bool
}

// What is used where a spec says nothing.
const (
	defaultSegmentVersions = 4096
	defaultSegmentBytes    = 16 << 20
)

// openSegments is how many segments are kept open for readers, besides the last.
const openSegments = 16

// maxBatch bounds the bytes of one batch, so that places in a segment fit into
// 32 bits with room to spare.
const maxBatch = 1 << 30

// Report is what was found when a journal was opened.
type Report struct {
	TornBytes int64    // behind the last record: a batch that was never acknowledged. Cut off, unless ReadOnly
	Damaged   []Damage // what is wrong before the end, at most 64; there is no Append while there is any
	ReadOnly  bool     // the journal is only read: by request, or because the disk is
}

// Stats are for metrics.
type Stats struct {
	Segments int
	Bytes    int64 // of segments and checkpoints
	Damaged  int   // places that were found so far
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

	writer  turn         // to append
	keeper  turn         // to change checkpoints, or prune
	written atomic.Int64 // makes the names of temporary files different

	// owned by the writer
	buffer []byte

	mu sync.Mutex

	// guarded by mu
	closed      bool
	refused     error // why nothing is appended
	damaged     []Damage
	head        *ledger.Head
	spans       []span   // the segments, by version
	last        *segment // the one that is appended to; nil if the next is yet to be made
	shelf       shelf
	checkpoints []span // by size
	prune       Prune
}

var _ Journal = (*Files)(nil)

// span is a file that is there: a segment by its first version, or a checkpoint
// by its size.
type span struct {
	first uint64
	bytes int64
}

func byFirst(s span, first uint64) int {
	switch {
	case s.first < first:
		return -1
	case s.first > first:
		return 1
	}
	return 0
}

func (f *Files) segmentName(first uint64) string {
	return filepath.Join(f.folder, "segments", fmt.Sprintf("%020d", first))
}

// Opened reports what was found when the journal was opened.
func (f *Files) Opened() Report { return f.report }

// Stats reports how much there is.
func (f *Files) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Stats{Segments: len(f.spans), Damaged: len(f.damaged)}
	for _, one := range slices.Concat(f.spans, f.checkpoints) {
		s.Bytes += one.bytes
	}
	return s
}

// enter locks the journal for a look, unless it is closed or the caller has
// left.
func (f *Files) enter(ctx context.Context, op string) error {
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

// Head implements Journal. Nobody else writes to the folder, so the head that
// was read when it was opened, and moved by every batch that was synced, is the
// end of the log. After a failed write it stays where it was.
func (f *Files) Head(ctx context.Context) (ledger.Head, error) {
	const op = "journal.head"
	if err := f.enter(ctx, op); err != nil {
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
		at, err := f.reach(ctx, op, version)
		if disk.IsAbsent(err) && f.moved(version) {
			continue // it was pruned between finding and opening it
		}
		if err != nil {
			return ledger.Record{}, f.failedRead(op, version, err)
		}
		r, err := at.read(version)
		f.let(at.segment)
		return r, f.failedRead(op, version, err)
	}
}

// reach finds and opens the segment of a version. The caller lets go of it.
func (f *Files) reach(ctx context.Context, op string, version uint64) (seen, error) {
	if err := f.enter(ctx, op); err != nil {
		return seen{}, err
	}
	where, known, err := f.find(op, version)
	if err != nil {
		f.mu.Unlock()
		return seen{}, err
	}
	if f.last != nil && f.last.first == where.first {
		f.last.users++
		defer f.mu.Unlock()
		return seen{f.last, f.last.offsets, f.last.end}, nil
	}
	found := f.shelf.take(where.first)
	f.mu.Unlock()
	if found != nil {
		return seen{found, found.offsets, found.end}, nil
	}
	opened, err := openSealed(f.fs, f.segmentName(where.first), where.first, known)
	if err != nil {
		return seen{}, err
	}
	f.mu.Lock()
	if f.closed || where.first < f.spans[0].first { // closed or pruned meanwhile: nobody would take it off the shelf again
		opened.users++
		f.mu.Unlock()
		return seen{opened, opened.offsets, opened.end}, nil
	}
	found, spare := f.shelf.put(opened)
	f.mu.Unlock()
	_ = closeAll(spare) // it was only read
	return seen{found, found.offsets, found.end}, nil
}

// find says which segment a version is in, and which versions are in it or in
// one before. The caller holds mu.
func (f *Files) find(op string, version uint64) (span, uint64, error) {
	if f.head == nil || version > f.head.Version {
		return span{}, 0, fault.New(op, fault.NotFound, "there is no version %d yet", version)
	}
	at, there := slices.BinarySearchFunc(f.spans, version, byFirst)
	if !there {
		at--
	}
	switch {
	case at < 0 && version < f.prune.Below:
		return span{}, 0, expired(op, version, f.spans[0].first)
	case at < 0:
		return span{}, 0, &Damage{File: f.segmentName(version), Version: version, Detail: "the segment is not there, and no prune note covers it"}
	case at+1 < len(f.spans):
		return f.spans[at], f.spans[at+1].first, nil
	}
	return f.spans[at], f.head.Version + 1, nil
}

// moved reports whether a version was pruned by now.
func (f *Files) moved(version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.spans) > 0 && version < f.spans[0].first
}

// let gives up the use of a segment.
func (f *Files) let(s *segment) {
	f.mu.Lock()
	spare := leave(s)
	f.mu.Unlock()
	_ = closeAll(spare) // it was only read
}

// failedRead gives an error that a read met its kind. Damage is remembered:
// from then on nothing is appended.
func (f *Files) failedRead(op string, version uint64, err error) error {
	if err == nil {
		return nil
	}
	if disk.IsAbsent(err) {
		err = &Damage{File: f.segmentName(version), Version: version, Detail: "the segment is not there"}
	}
	if d, ok := errors.AsType[*Damage](err); ok {
		f.mu.Lock()
		f.spoilt(*d)
		f.mu.Unlock()
		return damageError(op, d)
	}
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	return fault.WrapKind(op, fault.StorageBusy, err)
}

// mostDamaged is how many places are remembered.
const mostDamaged = 64

// spoilt remembers damage. The caller holds mu.
func (f *Files) spoilt(d Damage) {
	if slices.Contains(f.damaged, d) || len(f.damaged) == mostDamaged {
		return
	}
	f.damaged = append(f.damaged, d)
	if f.refused == nil {
		f.refused = damageError("journal.append", &d)
	}
}

// Scan implements Journal.
func (f *Files) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	const op = "journal.scan"
	head, err := f.Head(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	for version := from; version <= head.Version; version++ {
		r, err := f.Read(ctx, version)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}

// Changed implements Journal. Nobody else writes to the folder.
func (f *Files) Changed(ctx context.Context, since *ledger.Head) error {
	const op = "journal.changed"
	if err := f.enter(ctx, op); err != nil {
		return err
	}
	changed := !same(f.head, since)
	f.mu.Unlock()
	if changed {
		return nil
	}
	return waitForEnd(ctx, op, f.done)
}

// Close implements Journal. It waits for who writes.
func (f *Files) Close() error {
	for _, t := range []turn{f.writer, f.keeper} {
		if err := t.take(context.Background(), "journal.close"); err != nil {
			return err
		}
		defer t.give()
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	close(f.done)
	unused := []*segment{leave(f.last)}
	for first := range f.shelf.open {
		unused = append(unused, f.shelf.drop(first))
	}
	f.mu.Unlock()
	return fault.Wrap("journal.close", closeAll(unused...))
}
