package journal

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/wal"
)

// OpenFiles opens a journal, or creates an empty one. It reads the last
// segment, and of the others only their names. A journal that is damaged opens,
// too, as does one on a disk that is read-only: valid records can be read,
// Opened returns what is wrong, and Append is rejected.
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
	case disk.IsNotExist(err):
		return nil, fault.WrapKind(op, fault.NotFound, err)
	}
	return nil, fault.WrapKind(op, fault.StorageBusy, err)
}

func newFiles(spec FilesSpec) *Files {
	f := &Files{fs: spec.FS, folder: spec.Folder, segmentVersions: spec.SegmentVersions, segmentBytes: spec.SegmentBytes,
		report: Report{ReadOnly: spec.ReadOnly}, done: make(chan struct{}), appendLock: wal.NewCtxMutex(), maintenanceLock: wal.NewCtxMutex(),
		openSegments: openSegments{limit: maxOpenSegments, segments: map[uint64]*segment{}}}
	if f.fs == nil {
		f.fs = disk.OS()
	}
	if f.segmentVersions <= 0 {
		f.segmentVersions = defaultSegmentVersions
	}
	if f.segmentBytes <= 0 {
		f.segmentBytes = defaultSegmentBytes
	}
	f.segmentBytes = min(f.segmentBytes, maxBatch)
	if spec.ReadOnly {
		f.appendErr = &fault.Error{Op: "journal.append", Kind: fault.StorageBusy, Detail: "the registry's journal is open for reading only",
			Next: "Make the --persist folder writable, then restart the node."}
	}
	return f
}

// open reads the folder. The journal is not shared yet.
func (f *Files) open() error {
	for _, step := range []func() error{f.makeFolders, f.findPrune, f.findCheckpoints, f.findSegments, f.findHead, f.finishPrune, f.truncateTornTail, f.resyncLastBatch} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) makeFolders() error {
	folders := []string{f.folder, filepath.Join(f.folder, "segments"), filepath.Join(f.folder, "checkpoints"), filepath.Join(f.folder, "tiles"), f.pendingFolder()}
	if f.report.ReadOnly {
		_, err := f.fs.List(folders[1])
		return err
	}
	for _, folder := range folders[1:] {
		if err := f.fs.MkdirAll(folder); err != nil {
			return err
		}
	}
	if err := wal.MakeFolder(f.fs, f.folder); err != nil {
		return err
	}
	return errors.Join(f.removeTemporary(folders[0]), f.removeTemporary(folders[2]), f.removeTemporary(f.pendingFolder()))
}

// findPrune reads the prune note. An invalid one is damage: without it, pruned
// and lost look the same.
func (f *Files) findPrune() error {
	e, err := f.loadEnvelope(f.pruneName(), envelope{magic: magicPrune, number: anyNumber})
	if d, ok := errors.AsType[*Damage](err); ok {
		d.Version = 0
		f.addDamage(*d)
		return nil
	}
	if disk.IsNotExist(err) {
		return nil
	}
	f.prune = Prune{Below: e.number, Note: e.first}
	return err
}

func (f *Files) findCheckpoints() (err error) {
	f.checkpoints, err = f.listNumbered("checkpoints")
	return err
}

func (f *Files) findSegments() (err error) {
	f.segments, err = f.listNumbered("segments")
	return err
}

// listNumbered lists the files of a folder whose names are numbers, in order.
func (f *Files) listNumbered(folder string) (all []numberedFile, err error) {
	entries, err := f.fs.List(filepath.Join(f.folder, folder))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(e.Name, 10, 64)
		if err == nil && len(e.Name) == 20 {
			all = append(all, numberedFile{number: number, bytes: e.Size})
		}
	}
	slices.SortFunc(all, func(a, b numberedFile) int { return byFirst(a, b.number) })
	return all, nil
}

// finishPrune removes the segments that an earlier prune left because of a
// crash, and looks for a hole at the beginning.
func (f *Files) finishPrune() error {
	if len(f.segments) == 0 {
		return nil
	}
	gone := 0
	if f.head != nil {
		gone = countCovered(f.segments, min(f.prune.Below, f.head.Version))
	}
	if !f.report.ReadOnly {
		for _, s := range f.segments[:gone] {
			if err := f.fs.Remove(f.segmentName(s.number)); err != nil {
				return err
			}
		}
	}
	f.segments = f.segments[gone:]
	if f.segments[0].number > f.prune.Below || f.segments[0].number > 0 && f.head == nil {
		f.addDamage(Damage{File: f.segmentName(f.prune.Below), Version: f.prune.Below, Detail: "the segment is not there, and no prune note covers it"})
	}
	return nil
}

// countCovered returns how many segments at the beginning hold only versions
// below one. The last segment is never among them.
func countCovered(files []numberedFile, below uint64) int {
	n := 0
	for n+1 < len(files) && files[n+1].number <= below {
		n++
	}
	return n
}

// findHead goes back from the last segment to the last record. That is one
// step, unless a crash came while a segment was created. What a checkpoint
// covers was acknowledged, so a log that ends before it is damaged.
func (f *Files) findHead() error {
	known := uint64(0)
	if n := len(f.checkpoints); n > 0 {
		known = f.checkpoints[n-1].number
	}
	covers := known
	for at := len(f.segments) - 1; at >= 0 && f.head == nil; at-- {
		keep, err := f.scanSegment(f.segments[at], known)
		if err != nil {
			return err
		}
		if keep {
			known = max(known, f.segments[at].number)
		} else {
			f.segments = f.segments[:at]
		}
	}
	if len(f.damaged) == 0 && (f.head == nil && covers > 0 || f.head != nil && covers > f.head.Version+1) {
		f.addDamage(Damage{File: f.segmentName(covers - 1), Version: covers - 1, Detail: "a checkpoint covers this version, and the log ends before it"})
	}
	return nil
}

// scanSegment reads a segment at the end of the log and finds the head, if it
// is there. It reports whether the file belongs to the log: one whose creation
// was interrupted does not.
func (f *Files) scanSegment(at numberedFile, known uint64) (keep bool, err error) {
	s, err := f.openTail(at)
	if err != nil {
		return false, err
	}
	sealed, err := s.loadIndex()
	if err == nil && sealed {
		sealed, err = f.loadHead(s)
	}
	if err != nil || sealed {
		f.addOpenSegment(s)
		return true, err
	}
	damaged, sound, err := f.scanTail(s, known)
	if err != nil {
		f.addOpenSegment(s)
		return true, err
	}
	if !sound && len(s.offsets) == 0 && len(damaged) == 0 {
		return false, f.discard(s)
	}
	if !sound {
		f.addDamage(Damage{File: s.name, Version: s.first, Detail: "the header of the segment is wrong"})
	}
	for _, h := range damaged {
		f.addDamage(Damage{File: s.name, Offset: h.offset, Version: h.version, Detail: "the record is damaged"})
	}
	_, err = f.loadHead(s)
	if err != nil || f.last != nil || f.report.ReadOnly {
		f.addOpenSegment(s)
	} else {
		f.last, s.users = s, 1
	}
	return true, err
}

// scanTail reads a segment at the end of the log, with what is after its last
// record. It reports whether its header is valid.
func (f *Files) scanTail(s *segment, known uint64) (damaged []hole, sound bool, err error) {
	first, _, valid, err := s.file.LoadHeader()
	if err != nil {
		return nil, false, err
	}
	s.offsets = nil // of an index whose last record was not valid
	damaged, err = s.scanFrames(known)
	if err != nil || f.last != nil {
		return damaged, valid && first == s.first, err
	}
	torn, err := s.file.TornBytes(s.end)
	f.report.TornBytes += torn
	return damaged, valid && first == s.first, err
}

// openTail opens a segment, for appending unless the last one is open already.
func (f *Files) openTail(at numberedFile) (*segment, error) {
	mode := disk.ForWriting
	if f.report.ReadOnly || f.last != nil {
		mode = disk.ForReading
	}
	name := f.segmentName(at.number)
	file, err := wal.OpenFile(f.fs, name, segmentFormat, mode)
	if err != nil {
		return nil, err
	}
	return &segment{name: name, first: at.number, file: file}, nil
}

// loadHead reads the last record of a segment and makes it the head. It reports
// whether there is a valid one. A read error is an error: treating it as
// absence would lose the record.
func (f *Files) loadHead(s *segment) (bool, error) {
	at := len(s.offsets) - 1
	for at >= 0 && s.offsets[at] == 0 {
		at--
	}
	if at < 0 {
		return false, nil
	}
	r, err := segmentView{s, s.offsets, s.end}.read(s.first + uint64(at))
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

// addOpenSegment adds a segment that is not appended to to openSegments.
func (f *Files) addOpenSegment(s *segment) {
	_, spare := f.openSegments.add(s)
	unused := release(s)
	_ = closeAll(spare, unused)
}

// discard removes a segment whose creation was interrupted.
func (f *Files) discard(s *segment) error {
	err := s.file.Close()
	if err != nil || f.report.ReadOnly {
		return err
	}
	return f.fs.Remove(s.name)
}

// truncateTornTail cuts off what a torn batch has left after the last record,
// so that it is not mistaken for something later on. Nothing is cut where there
// is damage: it may be needed for recovery.
func (f *Files) truncateTornTail() error {
	if f.report.ReadOnly || f.last == nil || len(f.damaged) > 0 || f.report.TornBytes == 0 {
		return nil
	}
	if err := f.last.file.CutTail(f.last.end); err != nil {
		return err
	}
	f.segments[len(f.segments)-1].bytes = f.last.end
	return nil
}

// resyncLastBatch makes the last batch, and the name of its segment, durable
// before readers see it.
func (f *Files) resyncLastBatch() error {
	if f.report.ReadOnly || f.last == nil || len(f.damaged) > 0 {
		return nil
	}
	begin := f.last.end
	if len(f.last.offsets) > 0 {
		begin = wal.FileHeaderSize // if in doubt, all of it
		if i := f.last.lastBatch - f.last.first; i < uint64(len(f.last.offsets)) {
			begin = int64(f.last.offsets[i])
		}
	}
	if err := f.last.file.Resync(begin, f.last.end); err != nil {
		return err
	}
	return f.syncSegments()
}

// syncSegments makes the names of segments durable.
func (f *Files) syncSegments() error { return f.fs.SyncFolder(filepath.Join(f.folder, "segments")) }
