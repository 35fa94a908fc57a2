package pack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// fakeNotify replaces the kernel's notifications, in a bubble where time is
// faked.
type fakeNotify struct {
	events   chan fsnotify.Event
	failures chan error
	watchErr *fault.Error
	folders  []string
}

// watchFake runs the loop of Serve with fake notifications.
func (s *fixture) watchFake(t *testing.T) *fakeNotify {
	f := &fakeNotify{events: make(chan fsnotify.Event), failures: make(chan error)}
	s.start(t, func(ctx context.Context) error {
		return s.watchLoop(ctx, f.events, f.failures, func(folders []string) (bool, *fault.Error) {
			changed := !slices.Equal(f.folders, folders)
			f.folders = folders
			return changed, f.watchErr
		})
	})
	return f
}

func withDefaultSpec(spec *Spec) {
	*spec = Spec{Paths: spec.Paths, OnChange: spec.OnChange, DirectoryBytes: 1 << 20}
}

// In a bubble the clock starts in the year 2000, so files are from the future:
// only scans tell how long they have been unchanged.

func TestAFileIsLeftAloneUntilItIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		notify := s.watchFake(t)
		synctest.Wait()
		whole := pmtilesOf(1)
		overwrite(t, s.path("a.pmtiles"), whole[:1000])
		notify.events <- fsnotify.Event{}
		for n := 2000; n < len(whole); n += 1000 {
			time.Sleep(900 * time.Millisecond)
			s.want("a.pmtiles", Waiting, "the writes stop")
			s.refusedOpen("a", fault.NotReady, "the writes stop")
			overwrite(t, s.path("a.pmtiles"), whole[:n])
			notify.events <- fsnotify.Event{}
		}
		overwrite(t, s.path("a.pmtiles"), whole)
		notify.events <- fsnotify.Event{}
		time.Sleep(debounce)
		synctest.Wait()
		s.want("a.pmtiles", Waiting, "the writes stop")
		time.Sleep(990 * time.Millisecond)
		synctest.Wait()
		s.want("a.pmtiles", Waiting, "the writes stop")
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		s.want("a.pmtiles", Serving, "")
		if got := s.Counts(); got.Refusals != 0 || got.Swaps != 1 {
			t.Errorf("the counts are %+v", got)
		}
	})
}

// A file that was last written to long ago has been moved here, and is
// complete.
func TestAnOldFileIsMountedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		notify := s.watchFake(t)
		synctest.Wait()
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		backdate(t, s.path("a.pmtiles"))
		notify.events <- fsnotify.Event{}
		time.Sleep(debounce)
		synctest.Wait()
		s.want("a.pmtiles", Serving, "")
	})
}

// While a new version is being verified, the old one is served and nothing is
// wrong.
func TestTheOldVersionServesWhileTheNewOneSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		s.mount()
		notify := s.watchFake(t)
		synctest.Wait()
		put(t, s.path("a.pmtiles"), pmtilesOf(2))
		notify.events <- fsnotify.Event{}
		time.Sleep(debounce)
		synctest.Wait()
		if got := s.want("a.pmtiles", Serving, ""); !got.Pending || s.served("a") != 1 {
			t.Errorf("the status is %+v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.want("a.pmtiles", Serving, ""); got.Pending || s.served("a") != 2 {
			t.Errorf("the status is %+v", got)
		}
	})
}

// Notifications get lost, and a folder that does not exist has none.
func TestWhatWasNotNotifiedIsFoundAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		folder := s.path("later")
		s.SetPaths([]string{folder})
		s.watchFake(t)
		synctest.Wait()
		s.want("later", Bad, "not there")
		testkit.Must(t, os.Mkdir(folder, 0o700))
		put(t, filepath.Join(folder, "a.pmtiles"), pmtilesOf(1))
		time.Sleep(31*time.Second + debounce)
		synctest.Wait()
		s.want("a.pmtiles", Serving, "")
		testkit.Must(t, os.Remove(filepath.Join(folder, "a.pmtiles")))
		time.Sleep(30*time.Second + debounce)
		synctest.Wait()
		s.refusedOpen("a", fault.NotFound, "")
	})
}

// A burst of notifications leads to one scan; a change in between is not
// missed.
func TestABurstOfNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		notify := s.watchFake(t)
		time.Sleep(time.Second)
		looks := func() uint64 { return scanCount(s) }
		before := looks()
		for range 1000 {
			notify.events <- fsnotify.Event{}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := looks() - before; got != 1 {
			t.Errorf("1000 notifications, %d looks", got)
		}
		// Endless notifications do not delay the scan for ever.
		before = looks() - 1
		for range 20 {
			time.Sleep(debounce / 2)
			notify.events <- fsnotify.Event{}
		}
		synctest.Wait()
		if got := looks() - before - 1; got < 6 || got > 10 {
			t.Errorf("a notification every %s for a second: %d looks", debounce/2, got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before = looks() - 1
		notify.failures <- fsnotify.ErrEventOverflow
		time.Sleep(time.Second)
		synctest.Wait()
		if got := looks() - before; got != 2 {
			t.Errorf("lost notifications: %d looks", got)
		}
	})
}

// scanCount is how often the disk was scanned.
func scanCount(s *fixture) uint64 {
	for _, stat := range s.inv.Read() {
		if stat.Kind == "lane" && stat.Name == "packs" {
			return stat.Delivered
		}
	}
	s.tb.Fatal("the lane is not in the inventory")
	return 0
}

// A reader that finds a changed file requests a scan, without any notification.
func TestAReaderNoticesAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		s.mount()
		s.watchFake(t)
		time.Sleep(time.Second)
		overwrite(t, s.path("a.pmtiles"), pmtilesOf(2))
		if s.served("a") != -1 {
			t.Error("it is served")
		}
		time.Sleep(debounce)
		synctest.Wait()
		s.want("a.pmtiles", Waiting, "the writes stop")
		time.Sleep(time.Second)
		synctest.Wait()
		if s.served("a") != 2 {
			t.Error("it is not served")
		}
	})
}

func TestOtherPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		other := t.TempDir()
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		put(t, filepath.Join(other, "b.pmtiles"), pmtilesOf(2))
		s.mount()
		notify := s.watchFake(t)
		time.Sleep(time.Second)
		s.SetPaths([]string{other})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.refusedOpen("a", fault.NotFound, "")
		if s.served("b") != 2 || !slices.Equal(notify.folders, []string{other}) {
			t.Errorf("%+v, watching %v", s.State(), notify.folders)
		}
		s.SetPaths([]string{other, s.folder})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.served("a") != 1 || s.served("b") != 2 || s.Counts().Swaps != 3 {
			t.Errorf("%+v, %+v", s.State(), s.Counts())
		}
	})
}

// A large file is hashed step by step: others are mounted meanwhile, and the
// hashing can be cancelled.
func TestALargeFileKeepsNobodyWaiting(t *testing.T) {
	big := bigPack(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec, func(spec *Spec) { spec.Expect = map[string]b3.Address{"big.pmtiles": b3.Of(big)} })
		put(t, s.path("big.pmtiles"), big)
		backdate(t, s.path("big.pmtiles"))
		var during, after bool
		s.spec.OnChange = func(now State) {
			big, _ := now.of("big.pmtiles")
			small, seen := now.of("small.pmtiles")
			if big.Condition == Waiting && !seen {
				put(t, s.path("small.pmtiles"), pmtilesOf(1))
				backdate(t, s.path("small.pmtiles"))
			}
			during = during || big.Condition == Waiting && small.Condition == Serving
			after = after || big.Condition == Serving && big.Verified
		}
		s.watchFake(t)
		time.Sleep(time.Second)
		synctest.Wait()
		if !during || !after {
			t.Errorf("served while the large one was hashed: %v; the large one in the end: %v", during, after)
		}
	})
}

func TestALargeFileThatChangesWhileItIsHashed(t *testing.T) {
	big := bigPack(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec, func(spec *Spec) { spec.Expect = map[string]b3.Address{"big.pmtiles": b3.Of(big)} })
		put(t, s.path("big.pmtiles"), big[:9<<20])
		backdate(t, s.path("big.pmtiles"))
		first := true
		s.spec.OnChange = func(now State) {
			if first {
				overwrite(t, s.path("big.pmtiles"), big)
				first = false
			}
		}
		s.watchFake(t)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.want("big.pmtiles", Serving, "")
		if got := s.Counts(); got.Refusals != 0 {
			t.Errorf("the counts are %+v", got)
		}
	})
}

// The same, if it is replaced: the hash of the old file says nothing about the
// new one.
func TestALargeFileThatIsReplacedWhileItIsHashed(t *testing.T) {
	big := bigPack(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec, func(spec *Spec) { spec.Expect = map[string]b3.Address{"big.pmtiles": b3.Of(big)} })
		put(t, s.path("big.pmtiles"), big[:9<<20])
		backdate(t, s.path("big.pmtiles"))
		first := true
		s.spec.OnChange = func(now State) {
			if first {
				put(t, s.path("big.pmtiles"), big)
				backdate(t, s.path("big.pmtiles"))
				first = false
			}
		}
		s.watchFake(t)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.want("big.pmtiles", Serving, "")
		if got := s.Counts(); got.Refusals != 0 {
			t.Errorf("the counts are %+v", got)
		}
	})
}

// A transient failure is retried, but not without a pause.
func TestAPassingFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		backdate(t, s.path("a.pmtiles"))
		tries := 0
		one := newMount(foundFile{path: s.path("a.pmtiles"), file: "a.pmtiles"})
		seen, err := statFile(one.path, one.kind)
		testkit.Must(t, err)
		due := time.Hour
		w := mountDeps{spec: s.spec, retire: func(v *version) { v.release() }, schedule: func(in time.Duration) { due = in },
			open: func(ctx context.Context, trial *candidate) (*version, error) {
				if tries++; tries < 3 {
					return nil, unreadable("a.pmtiles", unix.EMFILE)
				}
				return s.open(ctx, trial)
			}}
		for _, step := range []struct {
			after time.Duration
			tries int
		}{{0, 1}, {time.Second, 1}, {28 * time.Second, 1}, {2 * time.Second, 2}, {time.Second, 2}, {30 * time.Second, 3}} {
			time.Sleep(step.after)
			testkit.Must(t, one.advance(t.Context(), foundFile{state: seen}, w))
			if tries != step.tries || due > 30*time.Second {
				t.Errorf("%d tries, not %d; the next in %s", tries, step.tries, due)
			}
		}
		if one.version == nil || one.err != nil {
			t.Errorf("in the end: %v", one.err)
		}
		one.stopServing(w)
	})
}

// A fault of the file itself is not retried before the file changes.
func TestALastingFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		path, tries := s.path("a.pmtiles"), 0
		one := newMount(foundFile{path: path, file: "a.pmtiles"})
		w := mountDeps{spec: s.spec, schedule: func(time.Duration) {}, open: func(context.Context, *candidate) (*version, error) {
			tries++
			return nil, fault.New("pmtiles.open", fault.Malformed, "it is damaged")
		}}
		for generation := 1; generation < 4; generation++ {
			put(t, path, pmtilesOf(generation))
			backdate(t, path)
			for range 10 {
				seen, err := statFile(path, pmtilesKind)
				testkit.Must(t, err)
				testkit.Must(t, one.advance(t.Context(), foundFile{state: seen}, w))
				time.Sleep(time.Hour)
			}
			if tries != generation || one.err == nil || one.pending {
				t.Errorf("%d files, %d tries, %v", generation, tries, one.err)
			}
		}
		testkit.Must(t, os.Chmod(path, 0o400)) // the mode is part of the file's state
		seen, err := statFile(path, pmtilesKind)
		testkit.Must(t, err)
		testkit.Must(t, one.advance(t.Context(), foundFile{state: seen}, w))
		if tries != 4 {
			t.Errorf("%d tries after its mode was changed", tries)
		}
	})
}

func TestWatchErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		notify := s.watchFake(t)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := s.State().Watch; err != nil {
			t.Errorf("blind from the start: %v", err)
		}
		notify.watchErr = watchFault(unix.ENOSPC, 30*time.Second)
		notify.events <- fsnotify.Event{}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := s.State().Watch; !errors.Is(err, unix.ENOSPC) || fault.KindOf(err) != fault.Degraded || ownNext(err) == "" {
			t.Errorf("blind: %v", err)
		}
		notify.watchErr = nil
		notify.events <- fsnotify.Event{}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := s.State().Watch; err != nil {
			t.Errorf("still blind: %v", err)
		}
	})
}

// A broken watcher does not cause a busy loop; the periodic scan continues.
func TestABrokenWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, withDefaultSpec)
		notify := s.watchFake(t)
		time.Sleep(time.Second)
		before := scanCount(s)
		close(notify.events)
		close(notify.failures)
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		backdate(t, s.path("a.pmtiles"))
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("a.pmtiles", Serving, "")
		if looks := scanCount(s) - before; looks > 5 {
			t.Errorf("%d looks in a minute", looks)
		}
	})
}

// A scan that takes longer than the period does not end the periodic scan.
func TestAScanThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := true
		s := newFixture(t, withDefaultSpec, func(spec *Spec) {
			spec.OnChange = func(State) {
				if slow {
					slow = false
					time.Sleep(time.Hour)
				}
			}
		})
		put(t, s.path("a.pmtiles"), pmtilesOf(1))
		s.watchFake(t)
		time.Sleep(2 * time.Hour)
		s.want("a.pmtiles", Serving, "")
		put(t, s.path("b.pmtiles"), pmtilesOf(1))
		time.Sleep(time.Hour)
		s.want("b.pmtiles", Serving, "")
	})
}

// Without a descriptor for the kernel's notifications, the periodic scan
// remains, and the state says so.
func TestNoNotificationsToBeHad(t *testing.T) {
	s := newFixture(t, func(spec *Spec) { spec.Reconcile = 5 * time.Millisecond })
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	var limit unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	restored := false
	restore := func() {
		if !restored {
			testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
			restored = true
		}
	}
	defer restore()
	s.serve(t)
	now := s.until("blindness", func(now State) bool { return now.Watch != nil })
	if ownNext(now.Watch) == "" || !errors.Is(now.Watch, unix.EMFILE) {
		t.Errorf("%v", now.Watch)
	}
	restore()
	s.untilServed("a.pmtiles", 1)
}

func TestRealNotifications(t *testing.T) {
	s := newFixture(t)
	s.serve(t)

	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	s.untilServed("a.pmtiles", 1)
	put(t, s.path("a.pmtiles"), pmtilesOf(2))
	s.untilServed("a.pmtiles", 2)
	overwrite(t, s.path("a.pmtiles"), pmtilesOf(3))
	s.untilServed("a.pmtiles", 3)

	put(t, s.path("b.mbtiles"), mbtilesOf(t, 4))
	s.untilServed("b.mbtiles", 4)
	overwrite(t, s.path("b.mbtiles"), []byte("bad"))
	s.until("a bad one", func(now State) bool { b, _ := now.of("b.mbtiles"); return b.Condition == Bad })
	if s.served("a") != 3 {
		t.Error("the other one is not served")
	}
	overwrite(t, s.path("b.mbtiles"), mbtilesOf(t, 5))
	s.untilServed("b.mbtiles", 5)

	testkit.Must(t, os.Remove(s.path("a.pmtiles")))
	s.until("one pack", func(now State) bool { return len(now.Packs) == 1 })
	testkit.Must(t, os.Rename(s.path("b.mbtiles"), s.path("c.mbtiles")))
	s.untilServed("c.mbtiles", 5)
	s.refusedOpen("b", fault.NotFound, "")
}

// Links are followed to where the files are, also when they are swapped.
func TestLinks(t *testing.T) {
	there := t.TempDir()
	s := newFixture(t)
	put(t, filepath.Join(there, "real"), pmtilesOf(1))
	testkit.Must(t, os.Symlink(filepath.Join(there, "real"), s.path("a.pmtiles")))
	s.serve(t)
	s.untilServed("a.pmtiles", 1)
	overwrite(t, filepath.Join(there, "real"), pmtilesOf(2))
	s.untilServed("a.pmtiles", 2)
	put(t, filepath.Join(there, "real"), pmtilesOf(3))
	s.untilServed("a.pmtiles", 3)
	put(t, filepath.Join(there, "other"), pmtilesOf(4))
	testkit.Must(t, os.Symlink(filepath.Join(there, "other"), s.path("new")))
	testkit.Must(t, os.Rename(s.path("new"), s.path("a.pmtiles")))
	s.untilServed("a.pmtiles", 4)
}

// The watches follow the paths: folders that are no longer needed are not
// watched, and one that comes back is watched again.
func TestFoldersThatComeAndGo(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "maps"), t.TempDir()
	testkit.Must(t, os.Mkdir(first, 0o700))
	s := newFixture(t, func(spec *Spec) { spec.Paths = []string{first} })
	s.serve(t)
	put(t, filepath.Join(first, "a.pmtiles"), pmtilesOf(1))
	s.untilServed("a.pmtiles", 1)

	testkit.Must(t, os.RemoveAll(first))
	s.until("a missing folder", func(now State) bool { maps, _ := now.of("maps"); return maps.Condition == Bad })
	testkit.Must(t, os.Mkdir(first, 0o700))
	put(t, filepath.Join(first, "a.pmtiles"), pmtilesOf(2))
	s.requestScan() // a new folder is not notified; the periodic scan would find it
	s.untilServed("a.pmtiles", 2)
	put(t, filepath.Join(first, "a.pmtiles"), pmtilesOf(3))
	s.untilServed("a.pmtiles", 3)

	put(t, filepath.Join(second, "b.pmtiles"), pmtilesOf(4))
	s.SetPaths([]string{second})
	s.untilServed("b.pmtiles", 4)
	put(t, filepath.Join(second, "b.pmtiles"), pmtilesOf(5))
	s.untilServed("b.pmtiles", 5)
	s.refusedOpen("a", fault.NotFound, "")
}

// A folder that cannot be watched is reported; the others are watched.
func TestAFolderThatCannotBeWatched(t *testing.T) {
	notify, err := fsnotify.NewWatcher()
	testkit.Must(t, err)
	defer func() { testkit.Must(t, notify.Close()) }()
	folder := t.TempDir()
	loop := filepath.Join(folder, "loop")
	testkit.Must(t, os.Symlink("loop", loop))
	w := watcher{notify: notify, interval: time.Minute}
	changed, why := w.watchFolders([]string{folder, loop, filepath.Join(folder, "missing")})
	if !changed || why == nil || !slices.Equal(notify.WatchList(), []string{folder}) {
		t.Errorf("news %v, %v, watching %v", changed, why, notify.WatchList())
	}
	if changed, why = w.watchFolders([]string{folder}); changed || why != nil {
		t.Errorf("the second time: news %v, %v", changed, why)
	}
	if changed, why = w.watchFolders(nil); changed || why != nil || len(notify.WatchList()) != 0 {
		t.Errorf("nothing to watch: news %v, %v, watching %v", changed, why, notify.WatchList())
	}
}

// OnChange may read everything, and even request another scan; and a panic in
// it does not block the next scan.
func TestOnChangeMayAskForAScan(t *testing.T) {
	s := newFixture(t)
	calls := 0
	s.spec.OnChange = func(State) {
		if calls++; calls == 1 {
			s.mount()
			panic("at the worst moment")
		}
	}
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	func() {
		defer func() { _ = recover() }()
		s.mount()
	}()
	put(t, s.path("a.pmtiles"), pmtilesOf(2))
	s.mount()
	if calls != 2 || s.served("a") != 2 {
		t.Errorf("%d calls, version %d", calls, s.served("a"))
	}
}

// While something is hashed, the processor is free for as long as the step
// took.
func TestThePauseBetweenSteps(t *testing.T) {
	for _, c := range []struct{ next, took, want time.Duration }{
		{time.Minute, time.Second, time.Minute},
		{0, 7 * time.Millisecond, 7 * time.Millisecond},
		{0, 0, time.Millisecond},
		{0, time.Minute, maxPause},
	} {
		if got := nextDelay(c.next, c.took); got != c.want {
			t.Errorf("pause(%s, %s) is %s, not %s", c.next, c.took, got, c.want)
		}
	}
}
