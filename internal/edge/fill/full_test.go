package fill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/disk/disktest"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// fullStore is a store whose disk can be made full: it accepts the beginning of
// a body, and then no more.
type fullStore struct {
	store.Store
	full atomic.Bool
}

func (f *fullStore) Put(ctx context.Context, src io.Reader, o store.PutOptions) (store.Info, bool, error) {
	if !f.full.Load() {
		return f.Store.Put(ctx, src, o)
	}
	_, _ = io.CopyN(io.Discard, src, 1)
	return store.Info{}, false, &fault.Error{Op: "store.put", Kind: fault.StoreFull, Detail: "the disk is full", Err: &fs.PathError{Op: "write", Err: syscall.ENOSPC}}
}

// withFullStore makes fixtures that share a store that can be full, and have
// memory for what it does not accept.
func withFullStore(t *testing.T, memory int64) (option, *fullStore, *store.RAM, string) {
	folderOption, folder, kept := withFolder(t)
	full := &fullStore{Store: kept}
	fleeting := store.NewRAM(store.RAMSpec{Budget: memory})
	t.Cleanup(func() { _ = fleeting.Close() })
	return func(s *Spec) {
		folderOption(s)
		s.Store, s.Transient = full, fleeting
	}, full, fleeting, folder
}

// answerEcho is an origin that answers with the path, and with a text of the
// test.
func answerEcho(when *atomic.Pointer[string]) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		answerWith(*when.Load()+r.URL.Path, "Cache-Control", "max-age=60")(rw, r)
	}
}

// A full disk costs the cache, and not the answer: the origin's answer is
// served from memory, to every waiter, and the failure is counted.
func TestAFullDiskCostsTheCacheAndNotTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, disk, fleeting, folder := withFullStore(t, 16<<20)
		w := newFixture(t, option)
		var when atomic.Pointer[string]
		early, late := "early ", "late "
		when.Store(&early)
		w.origin(answerEcho(&when))
		want := func(path, body string, hit bool, asked, unwritten int) {
			t.Helper()
			before := len(w.requests())
			if got := w.get(path); got.body != body || got.Hit != hit {
				t.Errorf("%s is %q, hit %v; want %q, %v", path, got.body, got.Hit, body, hit)
			}
			synctest.Wait()
			w.wantAsked(before + asked)
			if w.unwritten != unwritten {
				t.Errorf("%s: %d failures were counted, want %d", path, w.unwritten, unwritten)
			}
			if u := fleeting.Usage(); u.Objects != 0 || u.Lingering != 0 {
				t.Errorf("%s: memory still holds %+v", path, u)
			}
		}
		want("/a", "early /a", false, 1, 0)
		disk.full.Store(true)
		want("/a", "early /a", true, 0, 0)
		want("/b", "early /b", false, 1, 1) // what went to the disk is served from memory
		want("/b", "early /b", false, 1, 1) // and then the disk is not tried for a while

		gate := make(chan struct{})
		w.origin(func(rw http.ResponseWriter, r *http.Request) { <-gate; answerEcho(&when)(rw, r) })
		before := len(w.requests())
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if got, err := w.ask(request("/c")); err != nil || got.body != "early /c" {
					t.Errorf("one of those who wait got %q, %v", got.body, err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		all.Wait()
		w.wantAsked(before + 1)
		w.origin(answerEcho(&when))

		// The stored entry is old now. It must not be used any more, whether or
		// not its successor can be stored.
		time.Sleep(61 * time.Second)
		when.Store(&late)
		want("/a", "late /a", false, 1, 2)
		if s := w.Stats(); s.Entries != 0 || len(files(t, folder)) != 0 {
			t.Errorf("%d entries, and on disk %v", s.Entries, files(t, folder))
		}

		disk.full.Store(false)
		time.Sleep(storeBackoff)
		want("/b", "late /b", false, 1, 2)
		want("/b", "late /b", true, 0, 2)
		w = restart(t, w, option)
		w.origin(answerEcho(&when))
		want("/b", "late /b", true, 0, 0)
		want("/a", "late /a", false, 1, 0)
	})
}

// Without memory either, the error is that of the disk.
func TestAFullDiskAndNoMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, disk, _, _ := withFullStore(t, 0)
		w := newFixture(t, option)
		w.origin(answerWith("hello", "Cache-Control", "max-age=60"))
		disk.full.Store(true)
		for range 2 {
			err := w.wantRefused(request("/"), fault.StoreFull, "")
			if fault.DetailOf(err) != "the disk is full" {
				t.Errorf("the reason is %q", fault.DetailOf(err))
			}
		}
		w.wantAsked(2)
		w.wantEmpty()
	})
}

// An entry that cannot be written is served all the same, counted, and lost at
// the restart.
func TestARecordThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, folder, _ := withFolder(t)
		w := newFixture(t, option)
		w.origin(answerWith("hello", "Cache-Control", "max-age=60"))
		w.get("/")
		synctest.Wait()
		name := files(t, folder)[0]
		if _, err := w.Purge(t.Context(), PurgeRequest{URL: "https://origin.test/"}); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(name+entryTempSuffix, "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		w.get("/")
		if got := w.get("/"); !got.Hit || got.body != "hello" {
			t.Errorf("%q, hit %v", got.body, got.Hit)
		}
		synctest.Wait()
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) || w.unwritten != 1 {
			t.Errorf("the record is there: %v; %d failures were counted", err, w.unwritten)
		}
		w = restart(t, w, option)
		w.origin(answerWith("anew", "Cache-Control", "max-age=60"))
		if got := w.get("/"); got.Hit || got.body != "anew" {
			t.Errorf("after a restart it is %q, hit %v", got.body, got.Hit)
		}
	})
}

// TestARealDiskThatIsFull is the same on a disk that really is.
func TestARealDiskThatIsFull(t *testing.T) { disktest.RunInMountNamespace(t, onAFullDisk) }

func onAFullDisk(t *testing.T) {
	folder := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unmount, err := disktest.Mount(folder, 2048)
	must(err)
	t.Cleanup(func() { must(unmount()) })
	entries, objects := filepath.Join(folder, "entries"), filepath.Join(folder, "objects")
	fleeting := store.NewRAM(store.RAMSpec{Budget: 16 << 20})
	open := func() *fixture {
		t.Helper()
		disk, err := store.OpenDisk(store.DiskSpec{Folder: objects, Budget: 64 << 20})
		must(err)
		w := newFixture(t, func(s *Spec) { s.Store, s.Transient, s.Folder, s.Amnesia = disk, fleeting, entries, false })
		w.timeout = time.Minute
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Cache-Control", "max-age=3600")
			body := long(r.URL.Path)
			if strings.HasPrefix(r.URL.Path, "/said") {
				rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
			}
			_, _ = io.WriteString(rw, body)
		})
		return w
	}
	await := func(otherwise string, done func() bool) {
		t.Helper()
		if !testkit.Poll(done) {
			t.Fatal(otherwise)
		}
	}
	want := func(w *fixture, path string, hit bool) {
		t.Helper()
		if got := w.get(path); got.body != long(path) || got.Hit != hit {
			t.Errorf("%s: %d bytes, hit %v; want %v", path, len(got.body), got.Hit, hit)
		}
		await("the fill does not end", func() bool { return w.Stats().Flights == 0 }) // a large body reaches its reader before it is stored
	}

	w := open()
	want(w, "/said/before", false)
	await("what is kept was never noted down", func() bool { return len(files(t, entries)) > 0 }) // the entry is written after the answer is served
	must(disktest.FillDisk(filepath.Join(folder, "filling"), 128<<10))                            // space for a part of a body
	for _, path := range []string{"/said/during", "/during"} {
		w.storeFailed.Store(nil) // as if some time had passed
		want(w, path, false)
		want(w, path, false)
	}
	want(w, "/said/before", true)
	if n := w.failures(); n != 2 {
		t.Errorf("%d failures were counted", n)
	}
	if left := append(files(t, filepath.Join(objects, "tmp")), files(t, entries)[1:]...); len(left) != 0 {
		t.Errorf("what did not fit is still there: %v", left)
	}
	must(disktest.FillDisk(filepath.Join(folder, "filling"), 0))
	w.storeFailed.Store(nil)
	want(w, "/said/last", false)
	w.stop()

	w = open() // on a disk that accepts no writes
	want(w, "/said/before", true)
	want(w, "/said/during", false)
	w.stop() // which waits until all entries are written

	must(os.Remove(filepath.Join(folder, "filling")))
	w = open()
	want(w, "/during", false)
	want(w, "/during", true)
	w.stop() // which waits until all entries are written
	w = open()
	want(w, "/during", true)
	want(w, "/said/before", true)
}

// long is a body of 300 KB that is another for each path.
func long(path string) string {
	return string(bytes.Repeat([]byte(fmt.Sprintf("%-30s", path)), 10_000))
}

// failures is how many were counted so far.
func (c *tally) failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unwritten
}
