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

// Serve keeps the packs in step with the disk, until ctx ends. The kernel
// notifies of changes; because notifications get lost or may not exist,
// everything is also compared periodically. It is the Serve of a
// supervise.Service.
func (m *Mounts) Serve(ctx context.Context) error {
	w := watcher{interval: m.spec.Reconcile}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.err = watchFault(err, w.interval)
		return m.watchLoop(ctx, nil, nil, w.watchFolders)
	}
	defer func() { _ = notify.Close() }() // closing it ends the watches in any case
	w.notify = notify
	return m.watchLoop(ctx, notify.Events, notify.Errors, w.watchFolders)
}

// watchLoop scans the disk now, soon after every notification, whenever a file
// needs another scan, and periodically. follow gets the folders to watch; it
// reports whether a new one is watched, and why some of them are not.
func (m *Mounts) watchLoop(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error, follow func(folders []string) (changed bool, why *fault.Error)) error {
	var due time.Time // when the timer fires
	timer := time.NewTimer(0)
	defer timer.Stop()
	scanWithin := func(in time.Duration) {
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
			scanWithin(debounce)
		case _, open := <-failures: // some notifications were lost, and may have been for our files
			if !open {
				failures = nil
			}
			scanWithin(debounce)
		case <-m.wake:
			scanWithin(debounce)
		case <-timer.C:
			began := time.Now()
			out, err := m.scan(ctx, false)
			if err != nil {
				return nil // ctx ended, or the mounts are closed: both are expected
			}
			wait := nextDelay(out.next, time.Since(began))
			due = time.Now().Add(wait) // after every scan, however long it took: the timer has fired
			timer.Reset(wait)
			changed, why := follow(out.folders)
			if old := m.watchErr.Swap(why); changed || (old == nil) != (why == nil) {
				scanWithin(debounce) // it may have changed before it was watched, and State reports watch errors
			}
		}
	}
}

// nextDelay is how long to wait before the next scan. While there is something
// to hash, half of the processor time is left to others.
func nextDelay(next, took time.Duration) time.Duration {
	if next > 0 {
		return next
	}
	return min(max(took, time.Millisecond), maxPause)
}

// watcher keeps the kernel's watches on the folders of the packs.
type watcher struct {
	notify   *fsnotify.Watcher // nil if the kernel provides none
	interval time.Duration
	watched  []string
	err      *fault.Error
}

// watchFolders watches these folders, and no others. One that does not exist
// cannot be watched; the periodic scan finds it later.
func (w *watcher) watchFolders(folders []string) (changed bool, why *fault.Error) {
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
			changed = changed || !slices.Contains(before, path)
		case !errors.Is(err, fs.ErrNotExist):
			w.err = watchFault(err, w.interval)
		}
	}
	return changed, w.err
}
