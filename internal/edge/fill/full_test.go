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
	"micronode/internal/flow"
	"micronode/internal/store"
)

// crammed is a store whose disk is full when somebody says so: it takes the
// beginning of a body, and then no more.
type crammed struct {
	store.Store
	full atomic.Bool
}

func (c *crammed) Put(ctx context.Context, src io.Reader, o store.PutOptions) (store.Info, bool, error) {
	if !c.full.Load() {
		return c.Store.Put(ctx, src, o)
	}
	_, _ = io.CopyN(io.Discard, src, 1)
	return store.Info{}, false, &fault.Error{Op: "store.put", Kind: fault.StoreFull, Detail: "the disk is full", Err: &fs.PathError{Op: "write", Err: syscall.ENOSPC}}
}

// cramped makes worlds that share a store which can be full, and have memory for
// what it does not take.
func cramped(t *testing.T, memory int64) (option, *crammed, *store.RAM, string) {
	place, folder, kept := persistent(t)
	full := &crammed{Store: kept}
	fleeting := store.NewRAM(flow.NewInventory(), store.RAMSpec{Service: "edge", Name: "fleeting", Budget: memory})
	t.Cleanup(func() { _ = fleeting.Close() })
	return func(s *Spec) {
		place(s)
		s.Store, s.Fleeting = full, fleeting
	}, full, fleeting, folder
}

// echo is an origin that says where it was asked, and when.
func echo(when *atomic.Pointer[string]) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		answering(*when.Load()+r.URL.Path, "Cache-Control", "max-age=60")(rw, r)
	}
}

// A full disk costs the cache, and not the answer: what the origin says is given
// out from memory, to everybody who waits for it, and the failure is counted.
func TestAFullDiskCostsTheCacheAndNotTheAnswer(t *testing.T) {
	inTime(t, func(t *testing.T) {
		place, disk, fleeting, folder := cramped(t, 16<<20)
		w := newWorld(t, place)
		var when atomic.Pointer[string]
		early, late := "early ", "late "
		when.Store(&early)
		w.origin(echo(&when))
		want := func(path, body string, hit bool, asked, unwritten int) {
			t.Helper()
			before := len(w.requests())
			if got := w.get(path); got.body != body || got.Hit != hit {
				t.Errorf("%s is %q, hit %v; want %q, %v", path, got.body, got.Hit, body, hit)
			}
			synctest.Wait()
			w.counted(before + asked)
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
		want("/b", "early /b", false, 2, 1) // it is asked for again, because the first body went to the disk
		want("/b", "early /b", false, 1, 1) // and then the disk is left alone for a while

		gate := make(chan struct{})
		w.origin(func(rw http.ResponseWriter, r *http.Request) { <-gate; echo(&when)(rw, r) })
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
		w.counted(before + 1)
		w.origin(echo(&when))

		// What was kept earlier is old now. It is not to be used any more, whether
		// or not what took its place can be kept.
		time.Sleep(61 * time.Second)
		when.Store(&late)
		want("/a", "late /a", false, 2, 2)
		if s := w.Stats(); s.Entries != 0 || len(files(t, folder)) != 0 {
			t.Errorf("%d entries, and on disk %v", s.Entries, files(t, folder))
		}

		disk.full.Store(false)
		time.Sleep(failingFor)
		want("/b", "late /b", false, 1, 2)
		want("/b", "late /b", true, 0, 2)
		w = again(t, w, place)
		w.origin(echo(&when))
		want("/b", "late /b", true, 0, 0)
		want("/a", "late /a", false, 1, 0)
	})
}

// Where there is no memory either, the reason that is told is the disk's.
func TestAFullDiskAndNoMemory(t *testing.T) {
	inTime(t, func(t *testing.T) {
		place, disk, _, _ := cramped(t, 0)
		w := newWorld(t, place)
		w.origin(answering("hello", "Cache-Control", "max-age=60"))
		disk.full.Store(true)
		for range 2 {
			err := w.refuses(request("/"), fault.StoreFull, "")
			if fault.DetailOf(err) != "the disk is full" {
				t.Errorf("the reason is %q", fault.DetailOf(err))
			}
		}
		w.counted(3)
		w.empty()
	})
}

// What the cache cannot note down it serves all the same, counts, and forgets
// with the restart.
func TestARecordThatCannotBeWritten(t *testing.T) {
	inTime(t, func(t *testing.T) {
		place, folder, _ := persistent(t)
		w := newWorld(t, place)
		w.origin(answering("hello", "Cache-Control", "max-age=60"))
		w.get("/")
		synctest.Wait()
		name := files(t, folder)[0]
		if _, err := w.Purge(t.Context(), Purge{URL: "https://origin.test/"}); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(name+recordTemp, "in the way"), 0o700); err != nil {
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
		w = again(t, w, place)
		w.origin(answering("anew", "Cache-Control", "max-age=60"))
		if got := w.get("/"); got.Hit || got.body != "anew" {
			t.Errorf("after a restart it is %q, hit %v", got.body, got.Hit)
		}
	})
}

// TestARealDiskThatIsFull is the same on a disk that really is.
func TestARealDiskThatIsFull(t *testing.T) { disktest.Privately(t, onAFullDisk) }

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
	fleeting := store.NewRAM(flow.NewInventory(), store.RAMSpec{Service: "edge", Name: "fleeting", Budget: 16 << 20})
	open := func() *world {
		t.Helper()
		disk, err := store.OpenDisk(flow.NewInventory(), store.DiskSpec{Service: "edge", Folder: objects, Budget: 64 << 20})
		must(err)
		w := newWorld(t, func(s *Spec) { s.Store, s.Fleeting, s.Folder, s.Amnesia = disk, fleeting, entries, false })
		w.patience = time.Minute
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
	want := func(w *world, path string, hit bool) {
		t.Helper()
		if got := w.get(path); got.body != long(path) || got.Hit != hit {
			t.Errorf("%s: %d bytes, hit %v; want %v", path, len(got.body), got.Hit, hit)
		}
	}

	w := open()
	want(w, "/said/before", false)
	for deadline := time.Now().Add(time.Minute); len(files(t, entries)) == 0; { // it is noted down after it is given out
		if time.Now().After(deadline) {
			t.Fatal("what is kept was never noted down")
		}
		time.Sleep(time.Millisecond)
	}
	must(disktest.Fill(filepath.Join(folder, "filling"), 128<<10)) // room for a part of a body
	for _, path := range []string{"/said/during", "/during"} {
		w.failing.Store(nil) // as if some time had passed
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
	must(disktest.Fill(filepath.Join(folder, "filling"), 0))
	w.failing.Store(nil)
	want(w, "/said/last", false)
	w.stop()

	w = open() // on a disk on which nothing can be written
	want(w, "/said/before", true)
	want(w, "/said/during", false)
	w.stop() // which waits until everything is noted down

	must(os.Remove(filepath.Join(folder, "filling")))
	w = open()
	want(w, "/during", false)
	want(w, "/during", true)
	w.stop() // which waits until everything is noted down
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
