package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"micronode/fault"
)

// These tests take the role of the kernel: they send the events, and time is
// faked.
type fakeEvents struct {
	folder   fileWatcher
	events   chan fsnotify.Event
	failures chan error
	changes  []time.Duration // when a change was reported, since the beginning
	ended    chan error
}

// startLoop runs the loop on a file that exists and has been seen.
func startLoop(t *testing.T, changed func() error) (*fakeEvents, context.CancelFunc) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeEvents{folder: newFileWatcher(file, 0, info), events: make(chan fsnotify.Event), failures: make(chan error), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	start := time.Now()
	go func() {
		s.ended <- s.folder.loop(ctx, s.events, s.failures, func() error {
			s.changes = append(s.changes, time.Since(start))
			return changed()
		})
	}()
	return s, cancel
}

// write sends the event of a write to the file.
func (f *fakeEvents) write() { f.events <- fsnotify.Event{Name: f.folder.file, Op: fsnotify.Write} }

func nothing() error { return nil }

func TestChangesAreDebounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := startLoop(t, nothing)
		for range 5 {
			s.write()
			time.Sleep(99 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.changes) != 1 || s.changes[0] != 4*99*time.Millisecond+100*time.Millisecond {
			t.Errorf("told at %v, %v", s.changes, err)
		}
	})
}

func TestDebounceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := startLoop(t, nothing)
		for range 100 {
			s.write()
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
		if err := <-s.ended; err != nil || len(s.changes) != 2 || s.changes[0] != 2*time.Second {
			t.Errorf("told at %v, %v", s.changes, err)
		}
	})
}

func TestEventsOfOtherFilesAreNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := startLoop(t, nothing)
		for _, event := range []fsnotify.Event{
			{Name: s.folder.file + "~", Op: fsnotify.Create},
			{Name: filepath.Dir(s.folder.file), Op: fsnotify.Write},
			{Name: s.folder.file, Op: fsnotify.Chmod},
		} {
			s.events <- event
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.changes) != 0 {
			t.Errorf("told at %v, %v", s.changes, err)
		}
	})
}

func TestLostEventsCountAsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := startLoop(t, nothing)
		s.failures <- fsnotify.ErrEventOverflow
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.changes) != 1 {
			t.Errorf("told at %v, %v", s.changes, err)
		}
	})
}

// A change that comes after the reload and before the new folder is watched
// has no event.
func TestAChangeDuringTheReloadIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeEvents
		s, cancel := startLoop(t, func() error {
			if len(s.changes) > 1 {
				return nil
			}
			return os.WriteFile(s.folder.file, []byte("# more"), 0o600)
		})
		s.write()
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.changes) != 2 {
			t.Errorf("told at %v, %v", s.changes, err)
		}
	})
}

func TestAWatchThatFails(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		s, cancel := startLoop(t, nothing)
		defer cancel()
		s.failures <- broken
		if err := <-s.ended; !errors.Is(err, broken) || fault.KindOf(err) != fault.Degraded {
			t.Error(err)
		}
		s, cancel = startLoop(t, func() error { return broken })
		defer cancel()
		s.write()
		if err := <-s.ended; !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
