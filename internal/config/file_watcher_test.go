package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

// fileFixture is a real folder with a file that is watched.
type fileFixture struct {
	t       *testing.T
	watcher *config.Watcher[testConfig]
	results chan config.Result
	ended   chan error
	cancel  context.CancelFunc
}

// watch starts a watcher on a file that exists already.
func watch(t *testing.T, file string) *fileFixture {
	t.Helper()
	s := &fileFixture{t: t, ended: make(chan error, 2)}
	s.watcher, s.results = watcherOf(t, file)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	serving := make(chan error, 1)
	go func() { serving <- s.watcher.Serve(ctx) }()
	go func() { s.ended <- s.watcher.Watch(ctx) }()
	t.Cleanup(func() {
		s.cancel()
		if err := <-serving; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// waitResult waits for the expected result. An editor that writes in several
// steps may be seen in the middle, so results before it are skipped.
func (f *fileFixture) waitResult(what string, ok func(config.Result) bool) config.Result {
	f.t.Helper()
	patience := time.After(time.Minute) // only a failing test waits for it
	for {
		select {
		case r := <-f.results:
			if ok(r) {
				return r
			}
		case <-patience:
			f.t.Fatalf("never seen: %s", what)
		}
	}
}

// untilConns waits until a number of connections is in force.
func (f *fileFixture) untilConns(n int) {
	f.t.Helper()
	f.waitResult("the new value", func(r config.Result) bool {
		return r.Outcome != config.Rejected && f.watcher.Current().Value.HTTP.MaxConns == n
	})
}

// end stops the watch and demands that it returns no error.
func (f *fileFixture) end() {
	f.t.Helper()
	f.cancel()
	if err := <-f.ended; err != nil {
		f.t.Errorf("Watch: %v", err)
	}
}

func conns(n string) string { return "http.max_conns = " + n + "\n" }

func TestAFileWrittenInPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.toml")
	testkit.WriteFile(t, file, conns("1"))
	s := watch(t, file)
	for i, n := range []string{"2", "3", "4"} {
		testkit.WriteFile(t, file, conns(n))
		s.untilConns(i + 2)
	}
	s.end()
}

func TestAFileReplacedByARename(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.toml")
	testkit.WriteFile(t, file, conns("1"))
	s := watch(t, file)
	for i, n := range []string{"2", "3", "4"} {
		testkit.WriteFile(t, file+".new", conns(n))
		move(t, file+".new", file)
		s.untilConns(i + 2)
	}
	// Another way of editors: the old one is kept as a backup.
	move(t, file, file+"~")
	testkit.WriteFile(t, file, conns("5"))
	s.untilConns(5)
	s.end()
}

// Kubernetes mounts files as links into a folder that is itself a link, and
// swaps that one. No event ever names the file.
func TestLinksThatAreSwapped(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "m.toml")
	generation := func(name, n string) {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
		testkit.WriteFile(t, filepath.Join(folder, name, "m.toml"), conns(n))
		link(t, name, filepath.Join(folder, "..data.new"))
		move(t, filepath.Join(folder, "..data.new"), filepath.Join(folder, "..data"))
	}
	generation("..1", "1")
	link(t, "..data/m.toml", file)
	s := watch(t, file)
	for i, n := range []string{"2", "3", "4"} {
		generation(".."+n, n)
		s.untilConns(i + 2)
		if err := os.RemoveAll(filepath.Join(folder, ".."+string(rune('1'+i)))); err != nil {
			t.Fatal(err)
		}
	}
	// The folder that the links lead to now is watched, too.
	testkit.WriteFile(t, filepath.Join(folder, "..4", "m.toml"), conns("5"))
	s.untilConns(5)
	s.end()
}

func TestALinkIntoAnotherFolder(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	file, target := filepath.Join(here, "m.toml"), filepath.Join(there, "real.toml")
	testkit.WriteFile(t, target, conns("1"))
	link(t, target, file)
	s := watch(t, file)
	testkit.WriteFile(t, target, conns("2"))
	s.untilConns(2)
	testkit.WriteFile(t, target+".new", conns("3"))
	move(t, target+".new", target)
	s.untilConns(3)
	s.end()
}

func TestAFolderReachedThroughALink(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	link(t, "real", filepath.Join(root, "link"))
	file := filepath.Join(root, "link", "m.toml")
	testkit.WriteFile(t, file, conns("1"))
	s := watch(t, file)
	testkit.WriteFile(t, file, conns("2"))
	s.untilConns(2)
	testkit.WriteFile(t, filepath.Join(root, "real", "new"), conns("3"))
	move(t, filepath.Join(root, "real", "new"), filepath.Join(root, "real", "m.toml"))
	s.untilConns(3)
	s.end()
}

func TestAFileThatVanishesIsARefusedReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.toml")
	testkit.WriteFile(t, file, conns("1"))
	s := watch(t, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r := s.waitResult("a refusal", func(r config.Result) bool { return r.Outcome == config.Rejected })
	if !errors.Is(r.Err, fault.NotFound) || s.watcher.Current().Value.HTTP.MaxConns != 1 {
		t.Errorf("%+v", r)
	}
	testkit.WriteFile(t, file, conns("2"))
	s.untilConns(2)
	s.end()
}

// Without its folder, a file cannot be watched. The watch fails, and the
// supervisor starts it again until the folder is back.
func TestAFolderThatVanishes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "etc")
	file := filepath.Join(folder, "m.toml")
	make := func(n string) {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		testkit.WriteFile(t, file, conns(n))
	}
	make("1")
	s := watch(t, file)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	s.waitResult("a refusal", func(r config.Result) bool { return r.Outcome == config.Rejected })
	for range 2 {
		err := <-s.ended
		if fault.KindOf(err) != fault.Degraded || fault.NextOf(err) == fault.Degraded.Next() {
			t.Errorf("Watch: %v, next %s", err, fault.NextOf(err))
		}
		go func() { s.ended <- s.watcher.Watch(t.Context()) }()
		if t.Failed() {
			return
		}
	}
	if err := <-s.ended; err == nil {
		t.Error("a folder that is not there was watched")
	}
	make("2")
	ctx, cancel := context.WithCancel(context.Background())
	go func() { s.ended <- s.watcher.Watch(ctx) }()
	s.untilConns(2)
	cancel()
	s.end()
}

// A folder that vanishes after its file was missed is noticed, too: its watch is
// gone, and would never say that it is back.
func TestAFolderThatVanishesAfterItsFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "etc")
	file := filepath.Join(folder, "m.toml")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, file, conns("1"))
	s := watch(t, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.waitResult("a refusal", func(r config.Result) bool { return r.Outcome == config.Rejected })
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	testkit.WantKind(t, <-s.ended, fault.Degraded, "the watch of a folder that is gone")
}

// Even if the folder is removed before it is watched, the operator gets an
// error.
func TestAFolderThatIsGoneBeforeAnyoneWatches(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "etc")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "m.toml")
	testkit.WriteFile(t, file, conns("1"))
	w, results := watcherOf(t, file)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Watch(t.Context()); fault.KindOf(err) != fault.Degraded {
			t.Errorf("Watch: %v", err)
		}
	}
	w.Close()
	if err := w.Serve(t.Context()); err != nil {
		t.Error(err)
	}
	if r := <-results; r.Outcome != config.Rejected || r.Coalesced != 0 {
		t.Errorf("%+v", r)
	}
}

// watcherOf loads a file and makes a watcher of it that does not run yet.
func watcherOf(t *testing.T, file string) (*config.Watcher[testConfig], chan config.Result) {
	t.Helper()
	results := make(chan config.Result, 1000)
	load := func() (*config.Loaded[testConfig], error) { return config.Load(defaults(), config.Sources{File: file}) }
	first, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return config.NewWatcher(flow.NewInventory(), load, first, config.Options{
		File: file, Debounce: time.Millisecond, OnResult: func(r config.Result) { results <- r },
	}), results
}

// A change between the first load and the first check is noticed.
func TestAChangeBeforeAnyoneWatches(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.toml")
	testkit.WriteFile(t, file, conns("1"))
	w, results := watcherOf(t, file)
	testkit.WriteFile(t, file, conns("22"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- w.Serve(ctx) }()
	go func() { ended <- w.Watch(ctx) }()
	if r := <-results; r.Outcome != config.Applied || r.Causes[0] != "file" {
		t.Errorf("%+v", r)
	}
	cancel()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
}

func TestWithoutAFileThereIsNothingToWatch(t *testing.T) {
	if err := newWatcherFixture(t).watcher.Watch(t.Context()); err != nil {
		t.Error(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
