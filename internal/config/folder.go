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

// folder notices when a file changes, however that is done: written in place,
// replaced by a rename, or reached through a link that now leads elsewhere. It
// watches the folder that the file is in, because a watch on the file itself
// would be left with the old one.
type folder struct {
	// set at construction
	file   string // absolute; empty if there is nothing to watch
	settle Duration

	// owned by Watch
	seen    fs.FileInfo // what the file looked like; nil if it was not there
	real    string      // where the links lead to; empty if nowhere
	watched []string    // the folders that are watched
}

// patience bounds how long a file that is written again and again can put off
// its reload, in units of settle.
const patience = 20

func newFolder(file string, settle Duration, seen fs.FileInfo) folder {
	if settle == 0 {
		settle = 100 * time.Millisecond
	}
	if absolute, err := filepath.Abs(file); file != "" && err == nil {
		file = absolute
	}
	return folder{file: file, settle: settle, seen: seen}
}

// watch calls changed after every change, until ctx ends.
func (f *folder) watch(ctx context.Context, changed func()) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return blind(err)
	}
	defer func() { _ = notify.Close() }() // the watch ends with it in any case
	f.watched = nil
	if err := f.follow(notify); err != nil {
		if f.look() {
			changed() // most likely it is gone with its folder, and the operator should hear of it
		}
		return err
	}
	return f.attend(ctx, notify.Events, notify.Errors, func() error {
		changed()
		return f.follow(notify)
	})
}

// blind is the error of a watch that cannot be kept.
func blind(err error) error {
	return &fault.Error{
		Op: "config.watch", Kind: fault.Degraded, Err: err,
		Next: "Changes of the file go unnoticed until its folder can be watched: send SIGHUP after a change. If there are too many watches, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches.",
	}
}

// follow watches the folder of the file and, if a link leads to another one,
// that folder too. Links in between are not followed one by one.
func (f *folder) follow(notify *fsnotify.Watcher) error {
	folders := []string{filepath.Dir(f.file)}
	f.real, _ = filepath.EvalSymlinks(f.file) // empty if it leads nowhere
	if f.real != "" && filepath.Dir(f.real) != folders[0] {
		folders = append(folders, filepath.Dir(f.real))
	}
	for _, path := range f.watched {
		if !slices.Contains(folders, path) {
			_ = notify.Remove(path) // it may be gone, and its watch with it
		}
	}
	for _, path := range folders {
		if err := notify.Add(path); err != nil {
			return blind(err)
		}
	}
	f.watched = folders
	return nil
}

// attend waits until the file has been changed and then left alone, calls
// changed, and goes on.
func (f *folder) attend(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error, changed func() error) error {
	var first time.Time // of the changes that are not yet told; zero if there are none
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	note := func() {
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		timer.Reset(min(f.settle, first.Add(patience*f.settle).Sub(now)))
	}
	if f.look() {
		note() // it changed before anybody watched
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			if f.concerns(event) {
				note()
			}
		case err := <-failures:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return blind(err)
			}
			note() // events were lost; one of them may have been ours
		case <-timer.C:
			first = time.Time{}
			if err := changed(); err != nil {
				return err
			}
			if f.look() {
				note() // it changed again before the folder it is in now was watched
			}
		}
	}
}

// concerns tells whether an event may mean that the file has changed. A swap
// of links shows as an event of another name, so the file is looked at, too.
func (f *folder) concerns(event fsnotify.Event) bool {
	moved := f.look()
	named := event.Name == f.file || event.Name == f.real
	return moved || named && event.Op != fsnotify.Chmod
}

// look tells whether the file is another than at the last look.
func (f *folder) look() bool {
	before := f.seen
	f.seen, _ = os.Stat(f.file) // nil if it is not there
	if before == nil || f.seen == nil {
		return before != f.seen
	}
	return !os.SameFile(before, f.seen) || before.Size() != f.seen.Size() || !before.ModTime().Equal(f.seen.ModTime())
}
