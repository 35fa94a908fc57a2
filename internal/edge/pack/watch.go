package pack

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"micronode/fault"
)

// Serve keeps the packs as the disk has them, until ctx ends. Changes are
// notified by the kernel; because notifications get lost, everything is also
// compared periodically, and where there are none at all, that has to do. It
// is the Serve of a supervise.Service.
func (m *Mounts) Serve(ctx context.Context) error {
	w := watcher{every: m.spec.Reconcile}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.err = blind(err, w.every)
		return m.attend(ctx, nil, nil, w.follow)
	}
	defer func() { _ = notify.Close() }() // the watch ends with it in any case
	w.notify = notify
	return m.attend(ctx, notify.Events, notify.Errors, w.follow)
}

// attend looks at the disk now, soon after every notification, whenever a file
// needs another look, and periodically. follow is told which folders matter; it
// says whether that is news, and why some of them are not watched.
func (m *Mounts) attend(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error, follow func(folders []string) (news bool, why *fault.Error)) error {
	var due time.Time // when the timer fires
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := func(in time.Duration) {
		if at := time.Now().Add(in); at.Before(due) {
			due = at
			timer.Reset(in)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-events:
			if !open {
				events = nil // the watcher is broken; follow will say so
			}
			soon(debounce)
		case _, open := <-failures: // some were lost, and one of them may have been ours
			if !open {
				failures = nil
			}
			soon(debounce)
		case <-m.bell:
			soon(debounce)
		case <-timer.C:
			began := time.Now()
			out, err := m.look(ctx, false)
			if err != nil {
				return nil // the end of ctx, or of the mounts: both in order
			}
			wait := pause(out.next, time.Since(began))
			due = time.Now().Add(wait) // in any case, however long the look took: the timer has fired
			timer.Reset(wait)
			news, why := follow(out.folders)
			if old := m.watch.Swap(why); news || (old == nil) != (why == nil) {
				soon(debounce) // it may have changed before it was watched, and State should say what is not
			}
		}
	}
}

// pause is how long to wait before the next look. While there is something to
// hash, the processor is left to others half of the time.
func pause(next, took time.Duration) time.Duration {
	if next > 0 {
		return next
	}
	return min(max(took, time.Millisecond), longestPause)
}

// watcher keeps the kernel's watches on the folders that matter.
type watcher struct {
	notify  *fsnotify.Watcher // nil if there is none to be had
	every   time.Duration
	watched []string
	err     *fault.Error
}

// follow watches the folders that matter now, and no others. One that does not
// exist cannot be watched; the periodic look finds it when it does.
func (w *watcher) follow(folders []string) (news bool, why *fault.Error) {
	if w.notify == nil {
		return false, w.err
	}
	for _, path := range w.watched {
		if !slices.Contains(folders, path) {
			_ = w.notify.Remove(path) // it may be gone, and its watch with it
		}
	}
	before := w.watched
	w.watched, w.err = nil, nil
	for _, path := range folders {
		err := w.notify.Add(path)
		switch {
		case err == nil:
			w.watched = append(w.watched, path)
			news = news || !slices.Contains(before, path)
		case !errors.Is(err, fs.ErrNotExist):
			w.err = blind(err, w.every)
		}
	}
	return news, w.err
}
