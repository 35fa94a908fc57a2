package config

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"micronode/fault"
)

// fileWatcher notices when a file changes, in whatever way: written in place,
// replaced by a rename, or reached through a link that now leads elsewhere. It
// watches the folder that the file is in, because a watch on the file itself
// would stay with the old one.
type fileWatcher struct {
	// set at construction
	file     string // absolute; empty if there is nothing to watch
	debounce Duration

	// owned by Watch
	seen    fs.FileInfo // of the file; nil if it did not exist
	target  string      // where the links lead; empty if nowhere
	watched []string    // the folders that are watched
}

// maxDebounces bounds how long a file that is written again and again can delay
// its reload, in units of Debounce.
const maxDebounces = 20

func newFileWatcher(file string, settle Duration, seen fs.FileInfo) fileWatcher {
	if settle == 0 {
		settle = 100 * time.Millisecond
	}
	if absolute, err := filepath.Abs(file); file != "" && err == nil {
		file = absolute
	}
	return fileWatcher{file: file, debounce: settle, seen: seen}
}

// watch calls changed after every change, until ctx ends.
func (f *fileWatcher) watch(ctx context.Context, changed func()) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return watchError(err)
	}
	defer func() { _ = notify.Close() }() // the watch ends with it in any case
	f.watched = nil
	if err := f.updateWatches(notify); err != nil {
		if f.statChanged() {
			changed() // most likely it was removed with its folder, and a reload reports that
		}
		return err
	}
	return f.loop(ctx, notify.Events, notify.Errors, func() error {
		changed()
		return f.updateWatches(notify)
	})
}

// watchError is the error of a watch that failed.
func watchError(err error) error {
	return &fault.Error{
		Op: "config.watch", Kind: fault.Degraded, Err: err,
		Next: "Changes of the file go unnoticed until its folder can be watched: send SIGHUP after a change. If there are too many watches, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches.",
	}
}

// updateWatches watches the folder of the file and, if a link leads to another one,
// that folder too. Links in between are not followed one by one.
func (f *fileWatcher) updateWatches(notify *fsnotify.Watcher) error {
	folders := []string{filepath.Dir(f.file)}
	f.target, _ = filepath.EvalSymlinks(f.file) // empty if it leads nowhere
	if f.target != "" && filepath.Dir(f.target) != folders[0] {
		folders = append(folders, filepath.Dir(f.target))
	}
	for _, path := range f.watched {
		if !slices.Contains(folders, path) {
			_ = notify.Remove(path) // it may be removed, and its watch with it
		}
	}
	for _, path := range folders {
		if err := notify.Add(path); err != nil {
			return watchError(err)
		}
	}
	f.watched = folders
	return nil
}

// loop waits until the file has changed and then stayed unchanged for a while,
// calls changed, and repeats.
func (f *fileWatcher) loop(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error, changed func() error) error {
	var first time.Time // of the changes that are not yet reported; zero if there are none
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	note := func() {
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		timer.Reset(min(f.debounce, first.Add(maxDebounces*f.debounce).Sub(now)))
	}
	if f.statChanged() {
		note() // it changed before the watch began
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			if f.isRelevant(event) {
				note()
			}
		case err := <-failures:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return watchError(err)
			}
			note() // events were lost; one of them may have been for the file
		case <-timer.C:
			first = time.Time{}
			if err := changed(); err != nil {
				return err
			}
			if f.statChanged() {
				note() // it changed again before its new folder was watched
			}
		}
	}
}

// isRelevant reports whether an event may mean that the file has changed. A
// swap of links shows as an event of another name, so the file is checked, too.
// A folder that is gone takes its watch with it: without a look at what there is
// now, nothing would ever be noticed again.
func (f *fileWatcher) isRelevant(event fsnotify.Event) bool {
	moved := f.statChanged()
	named := event.Name == f.file || event.Name == f.target
	gone := event.Has(fsnotify.Remove|fsnotify.Rename) && slices.Contains(f.watched, event.Name)
	return moved || gone || named && event.Op != fsnotify.Chmod
}

// statChanged reports whether the file has changed since the last check.
func (f *fileWatcher) statChanged() bool {
	before := f.seen
	f.seen, _ = os.Stat(f.file) // nil if it does not exist
	if before == nil || f.seen == nil {
		return before != f.seen
	}
	return !os.SameFile(before, f.seen) || before.Size() != f.seen.Size() || !before.ModTime().Equal(f.seen.ModTime())
}
