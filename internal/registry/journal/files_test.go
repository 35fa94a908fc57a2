package journal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// on opens a journal on a platter.
func on(t *testing.T, disk *platter, change ...func(*journal.FilesSpec)) *journal.Files {
	t.Helper()
	spec := journal.FilesSpec{Folder: folder, FS: disk, SegmentVersions: 10}
	for _, c := range change {
		c(&spec)
	}
	j, err := journal.OpenFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func readOnly(s *journal.FilesSpec) { s.ReadOnly = true }

// write appends records up to a version, a few at a time.
func write(t *testing.T, j *journal.Files, from, to, each uint64) {
	t.Helper()
	var head *ledger.Head
	if from > 0 {
		before := victimRecord(from - 1).Head()
		head = &before
	}
	for next := from; next < to; {
		var batch []ledger.Record
		for range min(each, to-next) {
			batch = append(batch, victimRecord(next))
			next++
		}
		if err := j.Append(t.Context(), head, batch); err != nil {
			t.Fatal(err)
		}
		head = headOf(batch)
	}
}

// wrong reads every version and returns those that cannot be read, all of which
// must be damaged.
func wrong(t *testing.T, j *journal.Files, end uint64) (all []uint64) {
	t.Helper()
	for v := range end {
		r, err := j.Read(t.Context(), v)
		switch {
		case err == nil && !sameRecord(r, victimRecord(v)):
			t.Fatalf("Read(%d) gives something else", v)
		case err != nil && fault.KindOf(err) != fault.IntegrityFail:
			t.Fatalf("Read(%d): %v", v, err)
		case err != nil:
			all = append(all, v)
		}
	}
	return all
}

func kind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Fatalf("%v (%v), want %v", err, fault.KindOf(err), want)
	}
}

// appendTo tries to append one record.
func appendTo(t *testing.T, j *journal.Files, version uint64) error {
	t.Helper()
	before := victimRecord(version - 1).Head()
	return j.Append(t.Context(), &before, []ledger.Record{victimRecord(version)})
}

// find is where a text of a record is in a segment.
func (p *platter) find(t *testing.T, name string, version uint64) int {
	t.Helper()
	at := strings.Index(string(p.names[name].data), fmt.Sprintf("version %d ", version))
	if at < 0 {
		t.Fatalf("version %d is not in %s", version, name)
	}
	return at
}

func TestATornTailIsCutOffAndCounted(t *testing.T) {
	disk := newPlatter()
	write(t, on(t, disk), 0, 4, 2)
	last := disk.names[disk.segmentFiles()[0]]
	at := disk.find(t, disk.segmentFiles()[0], 3)
	last.data[at+5] ^= 1 // in the last batch, which may never have been acknowledged

	look := on(t, disk, readOnly)
	if r := look.Opened(); r.TornBytes == 0 || !r.ReadOnly || len(r.Damaged) > 0 {
		t.Errorf("a look: %+v", r)
	}
	kind(t, appendTo(t, look, 3), fault.StorageBusy)
	kind(t, look.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 1}), fault.StorageBusy)
	kind(t, look.SaveTile(t.Context(), journal.TileID{}, nil), fault.StorageBusy)

	j := on(t, disk)
	if r := j.Opened(); r.TornBytes < 1000 || r.TornBytes > 2000 || len(r.Damaged) > 0 {
		t.Errorf("%+v", r)
	}
	if err := appendTo(t, j, 3); err != nil {
		t.Fatal(err)
	}
	if again := on(t, disk); again.Opened().TornBytes != 0 || len(wrong(t, again, 4)) > 0 {
		t.Errorf("after going on: %+v", again.Opened())
	}
}

// What is not right in a batch that is not the last is damage, wherever in the
// frame it is.
func TestDamageInTheMiddle(t *testing.T) {
	for _, at := range []int{-40, -30, -20, -1, 0, 700} { // seen from where the record's header begins
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			disk := newPlatter()
			write(t, on(t, disk), 0, 8, 2)
			name := disk.segmentFiles()[0]
			disk.names[name].data[disk.find(t, name, 2)+at] ^= 4
			before := string(disk.names[name].data)
			j := on(t, disk)
			found := j.Opened().Damaged
			if len(found) != 1 || found[0].Version != 2 || found[0].File != name || found[0].Offset == 0 {
				t.Errorf("damage: %v", found)
			}
			err := appendTo(t, j, 8)
			kind(t, err, fault.IntegrityFail)
			if next := fault.NextOf(err); !strings.Contains(next, name) || !strings.Contains(next, "registry verify") {
				t.Errorf("the next step is %q", next)
			}
			if got := wrong(t, j, 8); len(got) != 1 || got[0] != 2 {
				t.Errorf("versions %v cannot be read", got)
			}
			_, err = j.Prune(t.Context(), journal.Prune{Below: 1})
			kind(t, err, fault.IntegrityFail)
			kind(t, j.Scan(t.Context(), 0, func(ledger.Record) error { return nil }), fault.IntegrityFail)
			if string(disk.names[name].data) != before {
				t.Error("a damaged segment was changed")
			}
		})
	}
}

func TestWhatACheckpointCoversIsNotTorn(t *testing.T) {
	for name, versions := range map[string]uint64{"in the last segment": 4, "all of the last segment": 11, "of the only record": 1} {
		t.Run(name, func(t *testing.T) {
			disk := newPlatter()
			j := on(t, disk)
			write(t, j, 0, versions, 1)
			if err := j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: versions}); err != nil {
				t.Fatal(err)
			}
			last := disk.segmentFiles()[len(disk.segmentFiles())-1]
			disk.names[last].data[disk.find(t, last, versions-1)] ^= 1
			j = on(t, disk)
			if found := j.Opened().Damaged; len(found) != 1 || found[0].Version != versions-1 {
				t.Errorf("damage: %v", found)
			}
			if _, err := j.Read(t.Context(), versions-1); err == nil {
				t.Error("it was read")
			}
		})
	}
}

func TestDamageInSealedSegments(t *testing.T) {
	disk := newPlatter()
	write(t, on(t, disk), 0, 35, 3)
	names := disk.segmentFiles()
	disk.names[names[1]].data[disk.find(t, names[1], 15)] ^= 1
	j := on(t, disk)
	if found := j.Opened(); len(found.Damaged) > 0 {
		t.Fatalf("opening reads more than the last segment: %v", found)
	}
	write(t, j, 35, 36, 1)
	if got := wrong(t, j, 36); len(got) != 1 || got[0] != 15 {
		t.Errorf("versions %v cannot be read", got)
	}
	kind(t, appendTo(t, j, 36), fault.IntegrityFail) // from now on
	if s := j.Stats(); s.Damaged != 1 || s.Segments != len(names)+1 || s.Bytes < 36*1000 {
		t.Errorf("%+v", s)
	}
}

func TestAnIndexIsRebuilt(t *testing.T) {
	for name, spoil := range map[string]func(data []byte) []byte{
		"cut off":         func(b []byte) []byte { return b[:len(b)-40] },
		"wrong trailer":   func(b []byte) []byte { b[len(b)-32] ^= 1; return b },
		"wrong offset":    func(b []byte) []byte { b[len(b)-36] ^= 1; return b },
		"wrong length":    func(b []byte) []byte { b[len(b)-16] ^= 1; return b },
		"something added": func(b []byte) []byte { return append(b, "more"...) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := newPlatter()
			write(t, on(t, disk), 0, 35, 3)
			at := disk.names[disk.segmentFiles()[1]]
			at.data = spoil(at.data)
			j := on(t, disk)
			if got := wrong(t, j, 35); len(got) > 0 {
				t.Errorf("versions %v cannot be read", got)
			}
			write(t, j, 35, 36, 1)
		})
	}
}

func TestASegmentThatIsGone(t *testing.T) {
	for at, lost := range map[int]int{0: 12, 1: 12, 3: 0} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			disk := newPlatter()
			j := on(t, disk)
			write(t, j, 0, 48, 3) // segments of 12
			if at == 3 {
				_ = j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 48})
			}
			delete(disk.names, disk.segmentFiles()[at])
			j = on(t, disk)
			if (at != 1) != (len(j.Opened().Damaged) == 1) {
				t.Errorf("opened: %+v", j.Opened())
			}
			if got := wrong(t, j, 36); len(got) != lost {
				t.Errorf("versions %v cannot be read", got)
			}
			kind(t, appendTo(t, j, 36), fault.IntegrityFail)
		})
	}
}

func TestASegmentWithAWrongHeader(t *testing.T) {
	disk := newPlatter()
	write(t, on(t, disk), 0, 4, 2)
	disk.names[disk.segmentFiles()[0]].data[3] ^= 1
	j := on(t, disk)
	if len(j.Opened().Damaged) != 1 || len(wrong(t, j, 4)) != 0 {
		t.Errorf("%+v", j.Opened())
	}
}

func TestADamagedPruneNote(t *testing.T) {
	disk := newPlatter()
	j := on(t, disk)
	write(t, j, 0, 25, 1)
	if first, err := j.Prune(t.Context(), journal.Prune{Below: 12, Note: []byte("note")}); err != nil || first != 10 {
		t.Fatal(first, err)
	}
	disk.names[folder+"/prune"].data[30] ^= 1
	j = on(t, disk)
	if len(j.Opened().Damaged) == 0 {
		t.Error("not noticed")
	}
	_, err := j.Read(t.Context(), 3)
	kind(t, err, fault.IntegrityFail)
}

func TestDamagedCheckpointsAndTiles(t *testing.T) {
	disk, ctx := newPlatter(), t.Context()
	j := on(t, disk)
	write(t, j, 0, 35, 1)
	for _, size := range []uint64{5, 30} {
		if err := j.SaveCheckpoint(ctx, journal.Checkpoint{Size: size, Note: []byte("note"), Snapshot: []byte("snapshot")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.SaveTile(ctx, journal.TileID{}, []byte("hashes")); err != nil {
		t.Fatal(err)
	}
	kind(t, j.SaveTile(ctx, journal.TileID{Level: 9}, nil), fault.Malformed)
	disk.names[folder+"/checkpoints/00000000000000000030"].data[29] ^= 1
	_, err := j.LoadCheckpoint(ctx, 100)
	kind(t, err, fault.IntegrityFail)
	damage, ok := errors.AsType[*journal.Damage](err)
	if !ok || damage.Version != 30 || !strings.Contains(damage.Error(), "00000000000000000030") {
		t.Fatalf("%v", err)
	}
	if c, err := j.LoadCheckpoint(ctx, damage.Version-1); err != nil || c.Size != 5 {
		t.Errorf("the one before: %d, %v", c.Size, err)
	}
	delete(disk.names, damage.File)
	_, err = j.LoadCheckpoint(ctx, 100)
	kind(t, err, fault.IntegrityFail)

	tile := disk.names[folder+"/tiles/0/0"]
	tile.data = tile.data[:20] // as a power cut leaves it
	_, err = j.LoadTile(ctx, journal.TileID{})
	kind(t, err, fault.NotFound)
	_, err = j.Prune(ctx, journal.Prune{Below: 20})
	kind(t, err, fault.IntegrityFail)
	if len(wrong(t, j, 35)) > 0 {
		t.Error("records went before their tile was kept")
	}
	if err := j.SaveTile(ctx, journal.TileID{}, []byte("hashes")); err != nil {
		t.Fatal(err)
	}
	if first, err := j.Prune(ctx, journal.Prune{Below: 20}); err != nil || first != 20 {
		t.Fatal(first, err)
	}
	tile = disk.names[folder+"/tiles/0/0"]
	tile.data[30] ^= 1
	_, err = j.LoadTile(ctx, journal.TileID{})
	kind(t, err, fault.IntegrityFail)
}

// once fails the first operation of a sort from now on.
func (p *platter) once(step string, err error) {
	done := false
	p.trip = func(now, _ string) error {
		if done || now != step {
			return nil
		}
		done = true
		return err
	}
}

func TestAFullDisk(t *testing.T) {
	for _, step := range []string{"create", "allocate"} {
		t.Run(step, func(t *testing.T) {
			disk := newPlatter()
			j := on(t, disk)
			write(t, j, 0, 10, 1)
			disk.once(step, errNoRoom)
			kind(t, appendTo(t, j, 10), fault.StoreFull)
			if err := appendTo(t, j, 10); err != nil { // there is room again
				t.Fatal(err)
			}
			disk.once("create", errNoRoom)
			kind(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 5}), fault.StoreFull)
			disk.once("create", errNoRoom)
			kind(t, j.SaveTile(t.Context(), journal.TileID{}, nil), fault.StoreFull)
			disk.once("create", errNoRoom)
			_, err := j.Prune(t.Context(), journal.Prune{Below: 5})
			kind(t, err, fault.StoreFull)
			if len(wrong(t, j, 11)) > 0 || len(wrong(t, on(t, disk), 11)) > 0 {
				t.Error("something is lost")
			}
		})
	}
}

func TestAFailedWriteStopsWritesUntilReopened(t *testing.T) {
	for name, fail := range map[string]struct {
		step string
		err  error
	}{"write": {"write", errIO}, "short": {"write", errShort}, "no room": {"write", errNoRoom}, "lost": {"sync", errLost}, "kept": {"sync", errKept}} {
		t.Run(name, func(t *testing.T) {
			disk := newPlatter()
			j := on(t, disk)
			write(t, j, 0, 5, 1)
			disk.once(fail.step, fail.err)
			err := appendTo(t, j, 5)
			kind(t, err, fault.StorageBusy)
			if !errors.Is(err, fail.err) || !strings.Contains(fault.NextOf(err), "restart") {
				t.Errorf("%v; next: %s", err, fault.NextOf(err))
			}
			kind(t, appendTo(t, j, 5), fault.StorageBusy)
			if head, err := j.Head(t.Context()); err != nil || head.Version != 4 || len(wrong(t, j, 5)) > 0 {
				t.Errorf("reads do not go on: %v, %v", head, err)
			}
			again := on(t, disk)
			head, err := again.Head(t.Context())
			if err != nil || head.Version < 4 {
				t.Fatal(head, err)
			}
			if err := appendTo(t, again, head.Version+1); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAReadOnlyDisk(t *testing.T) {
	disk := newPlatter()
	write(t, on(t, disk), 0, 5, 1)
	disk.trip = func(step, _ string) error {
		switch step {
		case "open", "read", "size", "list", "close":
			return nil
		}
		return errDiskReads
	}
	j := on(t, disk)
	if !j.Opened().ReadOnly || len(wrong(t, j, 5)) > 0 {
		t.Errorf("%+v", j.Opened())
	}
	kind(t, appendTo(t, j, 5), fault.StorageBusy)
	_, err := journal.OpenFiles(journal.FilesSpec{Folder: "/elsewhere", FS: disk})
	kind(t, err, fault.StorageBusy)
	_, err = journal.OpenFiles(journal.FilesSpec{Folder: "/elsewhere", FS: disk, ReadOnly: true})
	kind(t, err, fault.NotFound)
}

// Whatever fails while a journal is opened is said, or makes no difference.
func TestFaultsWhileOpening(t *testing.T) {
	made := newPlatter()
	j := on(t, made)
	write(t, j, 0, 14, 1)
	_, _ = j.Prune(t.Context(), journal.Prune{Below: 2})
	_ = j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 3})
	for _, fail := range []error{errIO, errNoRoom, errLost} {
		for step := 1; ; step++ {
			disk, steps := made.cut(rand.New(rand.NewPCG(1, 1))), 0 // all of it was synced
			disk.trip = func(string, string) error {
				if steps++; steps == step {
					return fail
				}
				return nil
			}
			again, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk, SegmentVersions: 10})
			disk.trip = nil
			if steps < step {
				_ = again.Close()
				break
			}
			if err != nil {
				if k := fault.KindOf(err); k != fault.StorageBusy && k != fault.StoreFull {
					t.Fatalf("step %d: %v", step, err)
				}
				again = on(t, disk)
			}
			if len(wrong(t, again, 14)) > 0 {
				t.Fatalf("step %d: records are lost", step)
			}
			_ = again.Close()
		}
	}
}

// A read that fails is neither damage nor absence.
func TestAFailedRead(t *testing.T) {
	disk := newPlatter()
	write(t, on(t, disk), 0, 25, 1)
	j := on(t, disk)
	for _, step := range []string{"open", "size", "read"} {
		disk.once(step, errIO)
		_, err := j.Read(t.Context(), 3)
		kind(t, err, fault.StorageBusy)
	}
	disk.once("read", errIO)
	_, err := j.LoadTile(t.Context(), journal.TileID{})
	kind(t, err, fault.NotFound)
	_ = j.SaveTile(t.Context(), journal.TileID{}, nil)
	_ = j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 1})
	disk.once("read", errIO)
	_, err = j.LoadTile(t.Context(), journal.TileID{})
	kind(t, err, fault.StorageBusy)
	disk.once("read", errIO)
	_, err = j.LoadCheckpoint(t.Context(), 1)
	kind(t, err, fault.StorageBusy)
	for _, step := range []string{"rename", "sync", "sync folder", "write"} {
		disk.once(step, errIO)
		kind(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 2}), fault.StorageBusy)
	}
	for _, step := range []string{"remove", "sync folder"} {
		disk.once(step, errIO)
		_, err := j.Prune(t.Context(), journal.Prune{Below: 12})
		kind(t, err, fault.StorageBusy)
	}
	disk.once("mkdir", errIO)
	kind(t, j.SaveTile(t.Context(), journal.TileID{}, nil), fault.StorageBusy)
	disk.trip = nil
	write(t, j, 25, 26, 1)
}

// A disk that hangs holds up who writes, and nobody who reads; who waits to
// write can leave.
func TestASlowDisk(t *testing.T) {
	disk := newPlatter()
	j := on(t, disk)
	write(t, j, 0, 5, 1)
	slow, fast := make(chan struct{}), make(chan struct{})
	disk.trip = func(step, _ string) error {
		if step == "sync" {
			close(slow)
			<-fast
		}
		return nil
	}
	goOn := sync.OnceFunc(func() { close(fast) })
	t.Cleanup(goOn) // before the journal is closed, which waits for who writes
	var writing sync.WaitGroup
	done := make(chan struct{})
	writing.Go(func() {
		defer close(done)
		if err := appendTo(t, j, 5); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-slow:
	case <-done:
		t.Fatal("it was acknowledged without a sync")
	}
	if head, err := j.Head(t.Context()); err != nil || head.Version != 4 || len(wrong(t, j, 5)) > 0 {
		t.Errorf("while a sync hangs: %v, %v", head, err)
	}
	_, err := j.Read(t.Context(), 5)
	kind(t, err, fault.NotFound) // not before it is synced
	ctx, leave := context.WithCancel(t.Context())
	writing.Go(func() { leave() })
	before := victimRecord(4).Head()
	kind(t, j.Append(ctx, &before, []ledger.Record{victimRecord(5)}), fault.Canceled)
	goOn()
	writing.Wait()
	if len(wrong(t, j, 6)) > 0 {
		t.Error("the slow one is lost")
	}
}

// However many segments are read, few are open; and a segment can be read by one
// while it is closed by another.
func TestFewSegmentsAreOpen(t *testing.T) {
	spec := journal.FilesSpec{Folder: t.TempDir(), SegmentVersions: 2}
	var mu sync.Mutex
	open, most := 0, 0
	spec.FS = counting{disk.Real(), func(n int) {
		mu.Lock()
		defer mu.Unlock()
		open += n
		most = max(most, open)
	}}
	j, err := journal.OpenFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	write(t, j, 0, 120, 2)
	var readers sync.WaitGroup
	for i := range uint64(4) {
		readers.Go(func() {
			for v := range uint64(240) {
				if _, err := j.Read(t.Context(), (v*7+i*31)%120); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if most > 16+1+2*4 || open != 0 {
		t.Errorf("%d files were open at a time, and %d at the end", most, open)
	}
}

// counting counts open files.
type counting struct {
	disk.FS
	count func(int)
}

type countedFile struct {
	disk.File
	count func(int)
}

func (c counting) Open(name string, mode disk.Mode) (disk.File, error) {
	f, err := c.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	c.count(1)
	return countedFile{f, c.count}, nil
}

func (f countedFile) Close() error { f.count(-1); return f.File.Close() }

// A segment that is opened for a reader while the journal is closed, or while
// the segment is pruned, is closed by that reader: the shelf does not keep it.
func TestASegmentThatIsOpenedTooLate(t *testing.T) {
	for what, meanwhile := range map[string]func(*journal.Files) error{
		"closed": func(j *journal.Files) error { return j.Close() },
		"pruned": func(j *journal.Files) error {
			_, err := j.Prune(context.Background(), journal.Prune{Below: 20, Note: []byte("note")})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			platter := newPlatter()
			write(t, on(t, platter), 0, 25, 1)
			files := watched{platter: platter, open: map[string]int{}, opened: map[string]func(){}}
			j := on(t, platter, func(s *journal.FilesSpec) { s.FS = files })
			first := filepath.Join(folder, "segments", fmt.Sprintf("%020d", 0))
			files.opened[first] = func() {
				if err := meanwhile(j); err != nil {
					t.Error(err)
				}
			}
			if r, err := j.Read(t.Context(), 3); err != nil || r.Version != 3 {
				t.Errorf("the reader got version %d, %v", r.Version, err)
			}
			if n := files.open[first]; n != 0 {
				t.Errorf("the segment is open %d times after its reader has left", n)
			}
		})
	}
}

// watched counts which files are open, and lets something happen when one of
// them has been opened. It is used by one goroutine.
type watched struct {
	*platter
	open   map[string]int
	opened map[string]func()
}

func (w watched) Open(name string, mode disk.Mode) (disk.File, error) {
	f, err := w.platter.Open(name, mode)
	if err != nil {
		return nil, err
	}
	w.open[name]++
	if then := w.opened[name]; then != nil {
		then()
	}
	return watchedFile{f, func() { w.open[name]-- }}, nil
}

type watchedFile struct {
	disk.File
	closed func()
}

func (f watchedFile) Close() error { f.closed(); return f.File.Close() }

// Foreign files are left alone, and what was being written is removed.
func TestWhatElseIsInTheFolder(t *testing.T) {
	spec := journal.FilesSpec{Folder: filepath.Join(t.TempDir(), "registry")}
	j, err := journal.OpenFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	write(t, j, 0, 3, 1)
	_ = j.Close()
	for _, name := range []string{"segments/notes.txt", "segments/7", "checkpoints/00000000000000000002.1.tmp", "prune.1.tmp"} {
		if err := os.WriteFile(filepath.Join(spec.Folder, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if j, err = journal.OpenFiles(spec); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	if len(wrong(t, j, 3)) > 0 || len(j.Opened().Damaged) > 0 {
		t.Errorf("%+v", j.Opened())
	}
	for name, stays := range map[string]bool{"segments/notes.txt": true, "checkpoints/00000000000000000002.1.tmp": false, "prune.1.tmp": false} {
		if _, err := os.Stat(filepath.Join(spec.Folder, name)); errors.Is(err, fs.ErrNotExist) == stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.OpenFiles(journal.FilesSpec{Folder: file})
	kind(t, err, fault.StorageBusy)
	_, err = journal.OpenFiles(journal.FilesSpec{Folder: file + "-is-not-there", ReadOnly: true})
	kind(t, err, fault.NotFound)
}

// The rest of a torn batch must not come back behind a record that takes the
// place of its beginning.
func TestATornBatchStaysAway(t *testing.T) {
	disk := newPlatter()
	j := on(t, disk)
	write(t, j, 0, 2, 1)
	write(t, j, 2, 4, 2)
	name := disk.segmentFiles()[0]
	disk.names[name].data[disk.find(t, name, 2)] ^= 1
	j = on(t, disk)
	if head, err := j.Head(t.Context()); err != nil || head.Version != 1 {
		t.Fatal(head, err)
	}
	write(t, j, 2, 3, 1) // as long as what was there
	again := on(t, disk)
	if head, err := again.Head(t.Context()); err != nil || head.Version != 2 || again.Opened().TornBytes != 0 {
		t.Errorf("%v, %v, %+v", head, err, again.Opened())
	}
}
