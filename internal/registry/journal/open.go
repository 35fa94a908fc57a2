package journal

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"

	"micronode/fault"
	"micronode/internal/disk"
)

// OpenFiles opens a journal, or makes an empty one. It reads the last segment,
// and of the others only their names. A journal that is damaged opens, too, as
// does one on a disk that is read-only: what is right can be read, Opened says
// what is wrong, and Append is refused.
func OpenFiles(spec FilesSpec) (*Files, error) {
	f, err := openFiles(spec)
	if err == nil || spec.ReadOnly || !disk.IsReadOnly(err) {
		return f, err
	}
	spec.ReadOnly = true
	if f, again := openFiles(spec); again == nil {
		return f, nil
	}
	return nil, err
}

func openFiles(spec FilesSpec) (*Files, error) {
	const op = "journal.open"
	f := newFiles(spec)
	err := f.open()
	if err == nil {
		f.report.Damaged = slices.Clone(f.damaged)
		return f, nil
	}
	_ = f.Close()
	switch {
	case disk.IsFull(err):
		return nil, fullError(op, err)
	case disk.IsAbsent(err):
		return nil, fault.WrapKind(op, fault.NotFound, err)
	}
	return nil, fault.WrapKind(op, fault.StorageBusy, err)
}

func newFiles(spec FilesSpec) *Files {
	f := &Files{fs: spec.FS, folder: spec.Folder, segmentVersions: spec.SegmentVersions, segmentBytes: spec.SegmentBytes,
		report: Report{ReadOnly: spec.ReadOnly}, done: make(chan struct{}), writer: newTurn(), keeper: newTurn(),
		shelf: shelf{most: openSegments, open: map[uint64]*segment{}}}
	if f.fs == nil {
		f.fs = disk.Real()
	}
	if f.segmentVersions <= 0 {
		f.segmentVersions = defaultSegmentVersions
	}
	if f.segmentBytes <= 0 {
		f.segmentBytes = defaultSegmentBytes
	}
	f.segmentBytes = min(f.segmentBytes, maxBatch)
	if spec.ReadOnly {
		f.refused = &fault.Error{Op: "journal.append", Kind: fault.StorageBusy, Detail: "the registry's journal is open for reading only",
			Next: "Make the --persist folder writable, then restart the node."}
	}
	return f
}

// open reads the folder. Nobody else has the journal yet.
func (f *Files) open() error {
	for _, step := range []func() error{f.makeFolders, f.findPrune, f.findCheckpoints, f.findSegments, f.findHead, f.finishPrune, f.cutTail, f.settle} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) makeFolders() error {
	folders := []string{f.folder, filepath.Join(f.folder, "segments"), filepath.Join(f.folder, "checkpoints"), filepath.Join(f.folder, "tiles")}
	if f.report.ReadOnly {
		_, err := f.fs.List(folders[1])
		return err
	}
	for _, folder := range folders {
		if err := f.fs.MkdirAll(folder); err != nil {
			return err
		}
	}
	// Who owns our folder need not be allowed to look into the one around it.
	if err := f.fs.SyncFolder(filepath.Dir(f.folder)); err != nil && !disk.IsReadOnly(err) {
		return err
	}
	if err := f.fs.SyncFolder(f.folder); err != nil {
		return err
	}
	return errors.Join(f.tidy(folders[0]), f.tidy(folders[2]))
}

// findPrune reads the prune note. One that is damaged is damage: without it,
// pruned and lost look the same.
func (f *Files) findPrune() error {
	e, err := f.load(f.pruneName(), envelope{magic: holdsPrune, number: anyNumber})
	if d, ok := errors.AsType[*Damage](err); ok {
		d.Version = 0
		f.spoilt(*d)
		return nil
	}
	if disk.IsAbsent(err) {
		return nil
	}
	f.prune = Prune{Below: e.number, Note: e.a}
	return err
}

func (f *Files) findCheckpoints() (err error) {
	f.checkpoints, err = f.numbered("checkpoints")
	return err
}

func (f *Files) findSegments() (err error) {
	f.spans, err = f.numbered("segments")
	return err
}

// numbered lists the files of a folder whose names are numbers, in order.
func (f *Files) numbered(folder string) (all []span, err error) {
	entries, err := f.fs.List(filepath.Join(f.folder, folder))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(e.Name, 10, 64)
		if err == nil && len(e.Name) == 20 {
			all = append(all, span{first: number, bytes: e.Size})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return byFirst(a, b.first) })
	return all, nil
}

// finishPrune removes the segments that an earlier prune gave up and a crash has
// left, and looks for a hole at the beginning.
func (f *Files) finishPrune() error {
	if len(f.spans) == 0 {
		return nil
	}
	gone := 0
	if f.head != nil {
		gone = covered(f.spans, min(f.prune.Below, f.head.Version))
	}
	if !f.report.ReadOnly {
		for _, s := range f.spans[:gone] {
			if err := f.fs.Remove(f.segmentName(s.first)); err != nil {
				return err
			}
		}
	}
	f.spans = f.spans[gone:]
	if f.spans[0].first > f.prune.Below || f.spans[0].first > 0 && f.head == nil {
		f.spoilt(Damage{File: f.segmentName(f.prune.Below), Version: f.prune.Below, Detail: "the segment is not there, and no prune note covers it"})
	}
	return nil
}

// covered is how many segments at the beginning hold only versions below one.
// The last segment is never among them.
func covered(spans []span, below uint64) int {
	n := 0
	for n+1 < len(spans) && spans[n+1].first <= below {
		n++
	}
	return n
}

// findHead goes back from the last segment to the last record. That is one
// step, unless a crash came while a segment was made. What a checkpoint covers
// was acknowledged, so a log that ends before it is damaged.
func (f *Files) findHead() error {
	known := uint64(0)
	if n := len(f.checkpoints); n > 0 {
		known = f.checkpoints[n-1].first
	}
	covers := known
	for at := len(f.spans) - 1; at >= 0 && f.head == nil; at-- {
		keep, err := f.lookInto(f.spans[at], known)
		if err != nil {
			return err
		}
		if keep {
			known = max(known, f.spans[at].first)
		} else {
			f.spans = f.spans[:at]
		}
	}
	if len(f.damaged) == 0 && (f.head == nil && covers > 0 || f.head != nil && covers > f.head.Version+1) {
		f.spoilt(Damage{File: f.segmentName(covers - 1), Version: covers - 1, Detail: "a checkpoint covers this version, and the log ends before it"})
	}
	return nil
}

// lookInto reads a segment at the end of the log and finds the head, if it is
// there. It reports whether the file belongs to the log at all: one whose making
// was cut off does not.
func (f *Files) lookInto(at span, known uint64) (keep bool, err error) {
	s, err := f.openLast(at)
	if err != nil {
		return false, err
	}
	sealed, err := s.loadIndex()
	if err == nil && sealed {
		sealed, err = f.endsWell(s)
	}
	if err != nil || sealed {
		f.shelve(s)
		return true, err
	}
	b, err := readAll(s.file)
	if err != nil {
		f.shelve(s)
		return true, err
	}
	found := lookThrough(b, s.first, known)
	s.offsets, s.end, s.room = found.offsets, int64(found.end), int64(len(b))
	sound := isSegment(b, s.first)
	if f.last == nil {
		f.report.TornBytes += int64(max(found.torn, 0))
	}
	if !sound && len(found.offsets) == 0 && len(found.damaged) == 0 {
		return false, f.discard(s)
	}
	if !sound {
		f.spoilt(Damage{File: s.name, Version: s.first, Detail: "the header of the segment is wrong"})
	}
	for _, h := range found.damaged {
		f.spoilt(Damage{File: s.name, Offset: int64(h.offset), Version: h.version, Detail: "the record is damaged"})
	}
	_, err = f.endsWell(s)
	if err != nil || f.last != nil || f.report.ReadOnly {
		f.shelve(s)
	} else {
		f.last, s.users = s, 1
	}
	return true, err
}

// openLast opens a segment; the first that is asked for, to append to.
func (f *Files) openLast(at span) (*segment, error) {
	mode := disk.ForWriting
	if f.report.ReadOnly || f.last != nil {
		mode = disk.ForReading
	}
	name := f.segmentName(at.first)
	file, err := f.fs.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &segment{name: name, first: at.first, file: file}, nil
}

// endsWell reads the last record of a segment and makes it the head. It reports
// whether there is one that is right. A disk that cannot be read is an error: to
// take what cannot be read for not there would lose it.
func (f *Files) endsWell(s *segment) (bool, error) {
	at := len(s.offsets) - 1
	for at >= 0 && s.offsets[at] == 0 {
		at--
	}
	if at < 0 {
		return false, nil
	}
	r, err := seen{s, s.offsets, s.end}.read(s.first + uint64(at))
	if _, damaged := errors.AsType[*Damage](err); damaged {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	head := r.Head()
	f.head = &head
	return true, nil
}

// shelve puts a segment that is not appended to onto the shelf.
func (f *Files) shelve(s *segment) {
	_, spare := f.shelf.put(s)
	unused := leave(s)
	_ = closeAll(spare, unused)
}

// discard removes a segment whose making was cut off.
func (f *Files) discard(s *segment) error {
	err := s.file.Close()
	if err != nil || f.report.ReadOnly {
		return err
	}
	return f.fs.Remove(s.name)
}

// cutTail cuts off what a torn batch has left behind the last record, so that
// it is not taken for something later on. Nothing is cut where there is damage:
// somebody may be able to make more of it than we are.
func (f *Files) cutTail() error {
	if f.report.ReadOnly || f.last == nil || len(f.damaged) > 0 || f.report.TornBytes == 0 {
		return nil
	}
	if err := f.last.file.Truncate(f.last.end); err != nil {
		return err
	}
	if err := f.last.file.Sync(); err != nil {
		return err
	}
	f.last.room = f.last.end
	f.spans[len(f.spans)-1].bytes = f.last.end
	return nil
}

// settle makes what was found last. A process that was killed may have left a
// batch that is in the memory of the kernel only, and after a failed sync the
// kernel takes such memory for written when it is not. Before anybody sees this
// batch it is written again and synced. Earlier ones were synced before it was
// begun.
func (f *Files) settle() error {
	if f.report.ReadOnly || f.last == nil || len(f.damaged) > 0 {
		return nil
	}
	for _, part := range [][2]int64{{0, segmentHeader}, {f.lastBatch(), f.last.end}} {
		b := make([]byte, part[1]-part[0])
		if err := readFull(f.last.file, b, part[0]); err != nil {
			return err
		}
		if _, err := f.last.file.WriteAt(b, part[0]); err != nil {
			return err
		}
	}
	if err := f.last.file.Sync(); err != nil {
		return err
	}
	return f.syncSegments()
}

// lastBatch is where the last batch of the last segment begins.
func (f *Files) lastBatch() int64 {
	n := len(f.last.offsets)
	if n == 0 {
		return f.last.end
	}
	b := make([]byte, frameHeader)
	if err := readFull(f.last.file, b, int64(f.last.offsets[n-1])); err == nil {
		if at, ok := frameAt(b); ok && at.batch >= f.last.first && at.batch <= at.version {
			return int64(f.last.offsets[at.batch-f.last.first])
		}
	}
	return segmentHeader // it was read a moment ago; if in doubt, all of it
}

// syncSegments makes the names of segments last.
func (f *Files) syncSegments() error { return f.fs.SyncFolder(filepath.Join(f.folder, "segments")) }
