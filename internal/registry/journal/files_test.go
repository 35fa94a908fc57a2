package journal_test

import (
	"bytes"
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
	"micronode/internal/disk/disktest"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// openOn opens a journal on a crashDisk.
func openOn(t *testing.T, disk *crashDisk, options ...func(*journal.FilesSpec)) *journal.Files {
	t.Helper()
	spec := journal.FilesSpec{Folder: folder, FS: disk, SegmentVersions: 10}
	for _, c := range options {
		c(&spec)
	}
	j, err := journal.OpenFiles(spec)
	testkit.Must(t, err)
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
		testkit.Must(t, j.Append(t.Context(), head, batch))
		head = headOf(batch)
	}
}

// unreadableVersions reads every version and returns those that cannot be read, all of which
// must be damaged.
func unreadableVersions(t *testing.T, j *journal.Files, end uint64) (all []uint64) {
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

// appendTo tries to append one record.
func appendTo(t *testing.T, j *journal.Files, version uint64) error {
	t.Helper()
	before := victimRecord(version - 1).Head()
	return j.Append(t.Context(), &before, []ledger.Record{victimRecord(version)})
}

// crashDisk is a disk that fails and loses power, with a journal on it.
type crashDisk struct{ *disktest.CrashDisk }

func newCrashDisk() *crashDisk { return &crashDisk{disktest.NewCrashDisk()} }

func (c *crashDisk) powerCut(random *rand.Rand) *crashDisk { return &crashDisk{c.PowerCut(random)} }

// segmentFiles are the names of the segments.
func (c *crashDisk) segmentFiles() (all []string) {
	for _, name := range c.Names() {
		if strings.Contains(name, "segments") {
			all = append(all, name)
		}
	}
	return all
}

// offsetOf is where a text of a record is in a segment.
func (c *crashDisk) offsetOf(t *testing.T, name string, version uint64) int {
	t.Helper()
	at := strings.Index(string(c.Data(name)), fmt.Sprintf("version %d ", version))
	if at < 0 {
		t.Fatalf("version %d is not in %s", version, name)
	}
	return at
}

func TestATornTailIsCutOffAndCounted(t *testing.T) {
	disk := newCrashDisk()
	write(t, openOn(t, disk), 0, 4, 2)
	last := disk.Data(disk.segmentFiles()[0])
	at := disk.offsetOf(t, disk.segmentFiles()[0], 3)
	last[at+5] ^= 1 // in the last batch, which may never have been acknowledged

	look := openOn(t, disk, readOnly)
	if r := look.Opened(); r.TornBytes == 0 || !r.ReadOnly || len(r.Damaged) > 0 {
		t.Errorf("a look: %+v", r)
	}
	testkit.WantKind(t, appendTo(t, look, 3), fault.StorageBusy)
	testkit.WantKind(t, look.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 1}), fault.StorageBusy)
	testkit.WantKind(t, look.SaveTile(t.Context(), journal.TileID{}, nil), fault.StorageBusy)

	j := openOn(t, disk)
	if r := j.Opened(); r.TornBytes < 1000 || r.TornBytes > 2000 || len(r.Damaged) > 0 {
		t.Errorf("%+v", r)
	}
	testkit.Must(t, appendTo(t, j, 3))
	if again := openOn(t, disk); again.Opened().TornBytes != 0 || len(unreadableVersions(t, again, 4)) > 0 {
		t.Errorf("after going on: %+v", again.Opened())
	}
}

// Anything invalid in a batch that is not the last is damage, wherever in the
// frame it is.
func TestDamageInTheMiddle(t *testing.T) {
	for _, at := range []int{-40, -30, -20, -1, 0, 700} { // seen from where the record's header begins
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			disk := newCrashDisk()
			write(t, openOn(t, disk), 0, 8, 2)
			name := disk.segmentFiles()[0]
			disk.Data(name)[disk.offsetOf(t, name, 2)+at] ^= 4
			before := string(disk.Data(name))
			j := openOn(t, disk)
			found := j.Opened().Damaged
			if len(found) != 1 || found[0].Version != 2 || found[0].File != name || found[0].Offset == 0 {
				t.Errorf("damage: %v", found)
			}
			err := appendTo(t, j, 8)
			testkit.WantKind(t, err, fault.IntegrityFail)
			if next := fault.NextOf(err); !strings.Contains(next, name) || !strings.Contains(next, "registry verify") {
				t.Errorf("the next step is %q", next)
			}
			if got := unreadableVersions(t, j, 8); len(got) != 1 || got[0] != 2 {
				t.Errorf("versions %v cannot be read", got)
			}
			_, err = j.Prune(t.Context(), journal.Prune{Below: 1})
			testkit.WantKind(t, err, fault.IntegrityFail)
			testkit.WantKind(t, j.Scan(t.Context(), 0, func(ledger.Record) error { return nil }), fault.IntegrityFail)
			if string(disk.Data(name)) != before {
				t.Error("a damaged segment was changed")
			}
		})
	}
}

func TestWhatACheckpointCoversIsNotTorn(t *testing.T) {
	for name, versions := range map[string]uint64{"in the last segment": 4, "all of the last segment": 11, "of the only record": 1} {
		t.Run(name, func(t *testing.T) {
			disk := newCrashDisk()
			j := openOn(t, disk)
			write(t, j, 0, versions, 1)
			testkit.Must(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: versions}))
			last := disk.segmentFiles()[len(disk.segmentFiles())-1]
			disk.Data(last)[disk.offsetOf(t, last, versions-1)] ^= 1
			j = openOn(t, disk)
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
	disk := newCrashDisk()
	write(t, openOn(t, disk), 0, 35, 3)
	names := disk.segmentFiles()
	disk.Data(names[1])[disk.offsetOf(t, names[1], 15)] ^= 1
	j := openOn(t, disk)
	if found := j.Opened(); len(found.Damaged) > 0 {
		t.Fatalf("opening reads more than the last segment: %v", found)
	}
	write(t, j, 35, 36, 1)
	if got := unreadableVersions(t, j, 36); len(got) != 1 || got[0] != 15 {
		t.Errorf("versions %v cannot be read", got)
	}
	testkit.WantKind(t, appendTo(t, j, 36), fault.IntegrityFail) // from now on
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
			disk := newCrashDisk()
			write(t, openOn(t, disk), 0, 35, 3)
			at := disk.segmentFiles()[1]
			disk.SetData(at, spoil(disk.Data(at)))
			j := openOn(t, disk)
			if got := unreadableVersions(t, j, 35); len(got) > 0 {
				t.Errorf("versions %v cannot be read", got)
			}
			write(t, j, 35, 36, 1)
		})
	}
}

func TestASegmentThatIsGone(t *testing.T) {
	for at, lost := range map[int]int{0: 12, 1: 12, 3: 0} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			disk := newCrashDisk()
			j := openOn(t, disk)
			write(t, j, 0, 48, 3) // segments of 12
			if at == 3 {
				_ = j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 48})
			}
			disk.Lose(disk.segmentFiles()[at])
			j = openOn(t, disk)
			if (at != 1) != (len(j.Opened().Damaged) == 1) {
				t.Errorf("opened: %+v", j.Opened())
			}
			if got := unreadableVersions(t, j, 36); len(got) != lost {
				t.Errorf("versions %v cannot be read", got)
			}
			testkit.WantKind(t, appendTo(t, j, 36), fault.IntegrityFail)
		})
	}
}

func TestASegmentWithAWrongHeader(t *testing.T) {
	disk := newCrashDisk()
	write(t, openOn(t, disk), 0, 4, 2)
	disk.Data(disk.segmentFiles()[0])[3] ^= 1
	j := openOn(t, disk)
	if len(j.Opened().Damaged) != 1 || len(unreadableVersions(t, j, 4)) != 0 {
		t.Errorf("%+v", j.Opened())
	}
}

func TestADamagedPruneNote(t *testing.T) {
	disk := newCrashDisk()
	j := openOn(t, disk)
	write(t, j, 0, 25, 1)
	if first, err := j.Prune(t.Context(), journal.Prune{Below: 12, Note: []byte("note")}); err != nil || first != 10 {
		t.Fatal(first, err)
	}
	disk.Data(folder + "/prune")[30] ^= 1
	j = openOn(t, disk)
	if len(j.Opened().Damaged) == 0 {
		t.Error("not noticed")
	}
	_, err := j.Read(t.Context(), 3)
	testkit.WantKind(t, err, fault.IntegrityFail)
}

func TestDamagedCheckpointsAndTiles(t *testing.T) {
	disk, ctx := newCrashDisk(), t.Context()
	j := openOn(t, disk)
	write(t, j, 0, 35, 1)
	for _, size := range []uint64{5, 30} {
		testkit.Must(t, j.SaveCheckpoint(ctx, journal.Checkpoint{Size: size, Note: []byte("note"), Snapshot: []byte("snapshot")}))
	}
	testkit.Must(t, j.SaveTile(ctx, journal.TileID{}, []byte("hashes")))
	testkit.WantKind(t, j.SaveTile(ctx, journal.TileID{Level: 9}, nil), fault.Malformed)
	disk.Data(folder + "/checkpoints/00000000000000000030")[29] ^= 1
	_, err := j.LoadCheckpoint(ctx, 100)
	testkit.WantKind(t, err, fault.IntegrityFail)
	damage, ok := errors.AsType[*journal.Damage](err)
	if !ok || damage.Version != 30 || !strings.Contains(damage.Error(), "00000000000000000030") {
		t.Fatalf("%v", err)
	}
	if c, err := j.LoadCheckpoint(ctx, damage.Version-1); err != nil || c.Size != 5 {
		t.Errorf("the one before: %d, %v", c.Size, err)
	}
	disk.Lose(damage.File)
	_, err = j.LoadCheckpoint(ctx, 100)
	testkit.WantKind(t, err, fault.IntegrityFail)

	tile := folder + "/tiles/0/0"
	disk.SetData(tile, disk.Data(tile)[:20]) // as a power cut leaves it
	_, err = j.LoadTile(ctx, journal.TileID{})
	testkit.WantKind(t, err, fault.NotFound)
	_, err = j.Prune(ctx, journal.Prune{Below: 20})
	testkit.WantKind(t, err, fault.IntegrityFail)
	if len(unreadableVersions(t, j, 35)) > 0 {
		t.Error("records went before their tile was kept")
	}
	testkit.Must(t, j.SaveTile(ctx, journal.TileID{}, []byte("hashes")))
	if first, err := j.Prune(ctx, journal.Prune{Below: 20}); err != nil || first != 20 {
		t.Fatal(first, err)
	}
	disk.Data(tile)[30] ^= 1
	_, err = j.LoadTile(ctx, journal.TileID{})
	testkit.WantKind(t, err, fault.IntegrityFail)
}

func TestAFullDisk(t *testing.T) {
	for _, step := range []string{"create", "allocate"} {
		t.Run(step, func(t *testing.T) {
			disk := newCrashDisk()
			j := openOn(t, disk)
			write(t, j, 0, 10, 1)
			disk.FailOnce(step, disktest.ErrNoRoom)
			testkit.WantKind(t, appendTo(t, j, 10), fault.StoreFull)
			if err := appendTo(t, j, 10); err != nil { // there is room again
				t.Fatal(err)
			}
			disk.FailOnce("create", disktest.ErrNoRoom)
			testkit.WantKind(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 5}), fault.StoreFull)
			disk.FailOnce("create", disktest.ErrNoRoom)
			testkit.WantKind(t, j.SaveTile(t.Context(), journal.TileID{}, nil), fault.StoreFull)
			disk.FailOnce("create", disktest.ErrNoRoom)
			_, err := j.Prune(t.Context(), journal.Prune{Below: 5})
			testkit.WantKind(t, err, fault.StoreFull)
			if len(unreadableVersions(t, j, 11)) > 0 || len(unreadableVersions(t, openOn(t, disk), 11)) > 0 {
				t.Error("something is lost")
			}
		})
	}
}

func TestAFailedWriteStopsWritesUntilReopened(t *testing.T) {
	for name, fail := range map[string]struct {
		step string
		err  error
	}{"write": {"write", disktest.ErrIO}, "short": {"write", disktest.ErrShort}, "no room": {"write", disktest.ErrNoRoom}, "lost": {"sync", disktest.ErrLost}, "kept": {"sync", disktest.ErrKept}} {
		t.Run(name, func(t *testing.T) {
			disk := newCrashDisk()
			j := openOn(t, disk)
			write(t, j, 0, 5, 1)
			disk.FailOnce(fail.step, fail.err)
			err := appendTo(t, j, 5)
			testkit.WantKind(t, err, fault.StorageBusy)
			if !errors.Is(err, fail.err) || !strings.Contains(fault.NextOf(err), "restart") {
				t.Errorf("%v; next: %s", err, fault.NextOf(err))
			}
			testkit.WantKind(t, appendTo(t, j, 5), fault.StorageBusy)
			if head, err := j.Head(t.Context()); err != nil || head.Version != 4 || len(unreadableVersions(t, j, 5)) > 0 {
				t.Errorf("reads do not go on: %v, %v", head, err)
			}
			again := openOn(t, disk)
			head, err := again.Head(t.Context())
			if err != nil || head.Version < 4 {
				t.Fatal(head, err)
			}
			testkit.Must(t, appendTo(t, again, head.Version+1))
		})
	}
}

func TestAReadOnlyDisk(t *testing.T) {
	disk := newCrashDisk()
	write(t, openOn(t, disk), 0, 5, 1)
	disk.Inject = func(step, _ string) error {
		switch step {
		case "open", "read", "size", "list", "close":
			return nil
		}
		return disktest.ErrReadOnly
	}
	j := openOn(t, disk)
	if !j.Opened().ReadOnly || len(unreadableVersions(t, j, 5)) > 0 {
		t.Errorf("%+v", j.Opened())
	}
	testkit.WantKind(t, appendTo(t, j, 5), fault.StorageBusy)
	_, err := journal.OpenFiles(journal.FilesSpec{Folder: "/elsewhere", FS: disk})
	testkit.WantKind(t, err, fault.StorageBusy)
	_, err = journal.OpenFiles(journal.FilesSpec{Folder: "/elsewhere", FS: disk, ReadOnly: true})
	testkit.WantKind(t, err, fault.NotFound)
}

// Whatever fails while a journal is opened is reported, or makes no difference.
func TestFaultsWhileOpening(t *testing.T) {
	made := newCrashDisk()
	j := openOn(t, made)
	write(t, j, 0, 14, 1)
	_, _ = j.Prune(t.Context(), journal.Prune{Below: 2})
	_ = j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 3})
	for _, fail := range []error{disktest.ErrIO, disktest.ErrNoRoom, disktest.ErrLost} {
		for step := 1; ; step++ {
			disk, steps := made.powerCut(rand.New(rand.NewPCG(1, 1))), 0 // all of it was synced
			disk.Inject = func(string, string) error {
				if steps++; steps == step {
					return fail
				}
				return nil
			}
			again, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk, SegmentVersions: 10})
			disk.Inject = nil
			if steps < step {
				_ = again.Close()
				break
			}
			if err != nil {
				if k := fault.KindOf(err); k != fault.StorageBusy && k != fault.StoreFull {
					t.Fatalf("step %d: %v", step, err)
				}
				again = openOn(t, disk)
			}
			if len(unreadableVersions(t, again, 14)) > 0 {
				t.Fatalf("step %d: records are lost", step)
			}
			_ = again.Close()
		}
	}
}

// A read that fails is neither damage nor absence.
func TestAFailedRead(t *testing.T) {
	disk := newCrashDisk()
	write(t, openOn(t, disk), 0, 25, 1)
	j := openOn(t, disk)
	for _, step := range []string{"open", "size", "read"} {
		disk.FailOnce(step, disktest.ErrIO)
		_, err := j.Read(t.Context(), 3)
		testkit.WantKind(t, err, fault.StorageBusy)
	}
	disk.FailOnce("read", disktest.ErrIO)
	_, err := j.LoadTile(t.Context(), journal.TileID{})
	testkit.WantKind(t, err, fault.NotFound)
	_ = j.SaveTile(t.Context(), journal.TileID{}, nil)
	_ = j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 1})
	disk.FailOnce("read", disktest.ErrIO)
	_, err = j.LoadTile(t.Context(), journal.TileID{})
	testkit.WantKind(t, err, fault.StorageBusy)
	disk.FailOnce("read", disktest.ErrIO)
	_, err = j.LoadCheckpoint(t.Context(), 1)
	testkit.WantKind(t, err, fault.StorageBusy)
	for _, step := range []string{"rename", "sync", "sync folder", "write"} {
		disk.FailOnce(step, disktest.ErrIO)
		testkit.WantKind(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 2}), fault.StorageBusy)
	}
	for _, step := range []string{"remove", "sync folder"} {
		disk.FailOnce(step, disktest.ErrIO)
		_, err := j.Prune(t.Context(), journal.Prune{Below: 12})
		testkit.WantKind(t, err, fault.StorageBusy)
	}
	disk.FailOnce("mkdir", disktest.ErrIO)
	testkit.WantKind(t, j.SaveTile(t.Context(), journal.TileID{}, nil), fault.StorageBusy)
	disk.Inject = nil
	write(t, j, 25, 26, 1)
}

// A disk that hangs blocks writers, but no readers; a waiting writer can
// cancel.
func TestASlowDisk(t *testing.T) {
	disk := newCrashDisk()
	j := openOn(t, disk)
	write(t, j, 0, 5, 1)
	slow, fast := make(chan struct{}), make(chan struct{})
	disk.Inject = func(step, _ string) error {
		if step == "sync" {
			close(slow)
			<-fast
		}
		return nil
	}
	goOn := sync.OnceFunc(func() { close(fast) })
	t.Cleanup(goOn) // before the journal is closed, which waits for writers
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
	if head, err := j.Head(t.Context()); err != nil || head.Version != 4 || len(unreadableVersions(t, j, 5)) > 0 {
		t.Errorf("while a sync hangs: %v, %v", head, err)
	}
	_, err := j.Read(t.Context(), 5)
	testkit.WantKind(t, err, fault.NotFound) // not before it is synced
	ctx, leave := context.WithCancel(t.Context())
	writing.Go(func() { leave() })
	before := victimRecord(4).Head()
	testkit.WantKind(t, j.Append(ctx, &before, []ledger.Record{victimRecord(5)}), fault.Canceled)
	goOn()
	writing.Wait()
	if len(unreadableVersions(t, j, 6)) > 0 {
		t.Error("the slow one is lost")
	}
}

// However many segments are read, few are open; and a segment can be read by one
// while it is closed by another.
func TestFewSegmentsAreOpen(t *testing.T) {
	spec := journal.FilesSpec{Folder: t.TempDir(), SegmentVersions: 2}
	var mu sync.Mutex
	open, most := 0, 0
	spec.FS = countingFS{disk.OS(), func(n int) {
		mu.Lock()
		defer mu.Unlock()
		open += n
		most = max(most, open)
	}}
	j, err := journal.OpenFiles(spec)
	testkit.Must(t, err)
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

// countingFS counts open files.
type countingFS struct {
	disk.FS
	count func(int)
}

type countedFile struct {
	disk.File
	count func(int)
}

func (c countingFS) Open(name string, mode disk.Mode) (disk.File, error) {
	f, err := c.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	c.count(1)
	return countedFile{f, c.count}, nil
}

func (f countedFile) Close() error { f.count(-1); return f.File.Close() }

// A segment that is opened for a reader while the journal is closed, or while
// the segment is pruned, is closed by that reader: openSegments does not keep
// it.
func TestASegmentThatIsOpenedTooLate(t *testing.T) {
	for what, meanwhile := range map[string]func(*journal.Files) error{
		"closed": func(j *journal.Files) error { return j.Close() },
		"pruned": func(j *journal.Files) error {
			_, err := j.Prune(context.Background(), journal.Prune{Below: 20, Note: []byte("note")})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			platter := newCrashDisk()
			write(t, openOn(t, platter), 0, 25, 1)
			files := watchedFS{crashDisk: platter, open: map[string]int{}, opened: map[string]func(){}}
			j := openOn(t, platter, func(s *journal.FilesSpec) { s.FS = files })
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

// watchedFS counts which files are open, and lets something happen when one of
// them has been opened. It is used by one goroutine.
type watchedFS struct {
	*crashDisk
	open   map[string]int
	opened map[string]func()
}

func (w watchedFS) Open(name string, mode disk.Mode) (disk.File, error) {
	f, err := w.crashDisk.Open(name, mode)
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
	testkit.Must(t, err)
	write(t, j, 0, 3, 1)
	_ = j.Close()
	for _, name := range []string{"segments/notes.txt", "segments/7", "checkpoints/00000000000000000002.1.tmp", "prune.1.tmp"} {
		testkit.Must(t, os.WriteFile(filepath.Join(spec.Folder, name), []byte("x"), 0o600))
	}
	if j, err = journal.OpenFiles(spec); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	if len(unreadableVersions(t, j, 3)) > 0 || len(j.Opened().Damaged) > 0 {
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
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	_, err := journal.OpenFiles(journal.FilesSpec{Folder: file})
	testkit.WantKind(t, err, fault.StorageBusy)
	_, err = journal.OpenFiles(journal.FilesSpec{Folder: file + "-is-not-there", ReadOnly: true})
	testkit.WantKind(t, err, fault.NotFound)
}

// The rest of a torn batch must not come back after a record that overwrites
// its beginning.
func TestATornBatchStaysAway(t *testing.T) {
	disk := newCrashDisk()
	j := openOn(t, disk)
	write(t, j, 0, 2, 1)
	write(t, j, 2, 4, 2)
	name := disk.segmentFiles()[0]
	disk.Data(name)[disk.offsetOf(t, name, 2)] ^= 1
	j = openOn(t, disk)
	if head, err := j.Head(t.Context()); err != nil || head.Version != 1 {
		t.Fatal(head, err)
	}
	write(t, j, 2, 3, 1) // as long as what was there
	again := openOn(t, disk)
	if head, err := again.Head(t.Context()); err != nil || head.Version != 2 || again.Opened().TornBytes != 0 {
		t.Errorf("%v, %v, %+v", head, err, again.Opened())
	}
}

// A tile whose first write the disk has lost is written again as a whole: its
// length is among what was lost.
func TestPruneWritesALostTileAgain(t *testing.T) {
	disk := newCrashDisk()
	j := openOn(t, disk)
	write(t, j, 0, 30, 5)
	at, hashes := journal.TileID{}, bytes.Repeat([]byte{7}, 4096)
	testkit.Must(t, j.SaveTile(t.Context(), at, hashes))
	failed := false
	disk.Inject = func(step, name string) error {
		if step == "sync" && strings.Contains(name, "/tiles/") && !failed {
			failed = true
			return disktest.ErrLost
		}
		return nil
	}
	if _, err := j.Prune(t.Context(), journal.Prune{Below: 20}); fault.KindOf(err) != fault.StorageBusy {
		t.Fatalf("Prune while the disk loses the tile: %v, want StorageBusy", err)
	}
	_, err := j.Prune(t.Context(), journal.Prune{Below: 20})
	testkit.Must(t, err)
	for seed := range uint64(20) {
		after := openOn(t, disk.powerCut(rand.New(rand.NewPCG(seed, 0))))
		if got, err := after.LoadTile(t.Context(), at); err != nil || !bytes.Equal(got, hashes) {
			t.Fatalf("the tile after a prune and a power cut: %v; want what was saved", err)
		}
	}
}
