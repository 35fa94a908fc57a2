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

// These tests play the part of the kernel: they send the events, and time is
// faked.
type stage struct {
	folder   folder
	events   chan fsnotify.Event
	failures chan error
	told     []time.Duration // when a change was told, since the beginning
	ended    chan error
}

// attend runs the loop on a file that exists and has been seen.
func attend(t *testing.T, changed func() error) (*stage, context.CancelFunc) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{folder: newFolder(file, 0, info), events: make(chan fsnotify.Event), failures: make(chan error), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	start := time.Now()
	go func() {
		s.ended <- s.folder.attend(ctx, s.events, s.failures, func() error {
			s.told = append(s.told, time.Since(start))
			return changed()
		})
	}()
	return s, cancel
}

// write sends the event of a write to the file.
func (s *stage) write() { s.events <- fsnotify.Event{Name: s.folder.file, Op: fsnotify.Write} }

func nothing() error { return nil }

func TestAFileMustSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := attend(t, nothing)
		for range 5 {
			s.write()
			time.Sleep(99 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.told) != 1 || s.told[0] != 4*99*time.Millisecond+100*time.Millisecond {
			t.Errorf("told at %v, %v", s.told, err)
		}
	})
}

func TestAFileThatNeverSettlesIsToldAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := attend(t, nothing)
		for range 100 {
			s.write()
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
		if err := <-s.ended; err != nil || len(s.told) != 2 || s.told[0] != 2*time.Second {
			t.Errorf("told at %v, %v", s.told, err)
		}
	})
}

func TestEventsOfOtherFilesAreNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := attend(t, nothing)
		for _, event := range []fsnotify.Event{
			{Name: s.folder.file + "~", Op: fsnotify.Create},
			{Name: filepath.Dir(s.folder.file), Op: fsnotify.Write},
			{Name: s.folder.file, Op: fsnotify.Chmod},
		} {
			s.events <- event
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.told) != 0 {
			t.Errorf("told at %v, %v", s.told, err)
		}
	})
}

func TestLostEventsCountAsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cancel := attend(t, nothing)
		s.failures <- fsnotify.ErrEventOverflow
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.told) != 1 {
			t.Errorf("told at %v, %v", s.told, err)
		}
	})
}

// A change that comes after the reload and before the new folder is watched
// has no event.
func TestAChangeDuringTheReloadIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		s, cancel := attend(t, func() error {
			if len(s.told) > 1 {
				return nil
			}
			return os.WriteFile(s.folder.file, []byte("# more"), 0o600)
		})
		s.write()
		time.Sleep(time.Hour)
		cancel()
		if err := <-s.ended; err != nil || len(s.told) != 2 {
			t.Errorf("told at %v, %v", s.told, err)
		}
	})
}

func TestAWatchThatFails(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		s, cancel := attend(t, nothing)
		defer cancel()
		s.failures <- broken
		if err := <-s.ended; !errors.Is(err, broken) || fault.KindOf(err) != fault.Degraded {
			t.Error(err)
		}
		s, cancel = attend(t, func() error { return broken })
		defer cancel()
		s.write()
		if err := <-s.ended; !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
