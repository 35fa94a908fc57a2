package index

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/disk"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

func withIdempotencyPath(path string) option { return func(s *Spec) { s.IdempotencyPath = path } }

// A request that is repeated after a restart gets the first answer again,
// whether the node was stopped or killed. The store after the restart is empty,
// so that the request could not be carried out again.
func TestKeysOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "deeds.log")
	pin := `{"b3":"` + address("hello").String() + `"}`
	life := func(do func(r *testIndex)) {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, withIdempotencyPath(path))
			do(r)
			killed, err := os.ReadFile(path)
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, os.WriteFile(path, killed, 0o600)) }) // discards later writes
		})
	}
	says := func(r *testIndex, path, key string, status int, text string) {
		body := pin
		if path == "/admin/reindex" {
			body = ""
		}
		if answer := r.send("POST", path, body, "Idempotency-Key", key); answer.Code != status || !strings.Contains(answer.Body.String(), text) {
			r.t.Errorf("%s with %s: %d %s, want %d %s", path, key, answer.Code, answer.Body, status, text)
		}
	}
	life(func(r *testIndex) {
		r.put("hello")
		says(r, "/admin/unpin", "k1", 200, `"pinned":false`)
		says(r, "/admin/reindex", "k2", 202, `"objects":1`)
	})
	for range 2 {
		life(func(r *testIndex) {
			says(r, "/admin/unpin", "k1", 200, `"pinned":false`)
			says(r, "/admin/reindex", "k2", 202, `"objects":1`)
			if answer := r.send("POST", "/admin/unpin", `{"b3":"`+address("other").String()+`"}`, "Idempotency-Key", "k1"); answer.Code != 409 {
				r.t.Errorf("another request with k1: %d %s", answer.Code, answer.Body)
			}
			says(r, "/admin/unpin", "k3", 404, "NotFound")
		})
	}
	life(func(r *testIndex) {
		time.Sleep(idempotencyTTL)
		says(r, "/admin/unpin", "k1", 404, "NotFound")
		says(r, "/admin/reindex", "k2", 202, `"objects":0`)
	})
}

// A file that cannot be read leaves the node degraded, and requests are carried
// out; the file is left unchanged.
func TestUnreadableKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deeds.log")
	testkit.Must(t, os.WriteFile(path, []byte("this is no book, however long one looks at it"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withIdempotencyPath(path))
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("%+v", verdict)
		}
		for range 2 {
			if answer := r.send("POST", "/admin/reindex", "", "Idempotency-Key", "k"); answer.Code != 202 {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
		}
	})
	if text, _ := os.ReadFile(path); string(text[:4]) != "this" {
		t.Error("the file was written over")
	}
	if err := newIdempotency().replay([]byte("{")); err == nil {
		t.Error("what is no record was taken for one")
	}
}

// A disk that fails is no reason to reject requests, and readiness reports it.
func TestKeysThatAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withIdempotencyPath(filepath.Join(t.TempDir(), "deeds.log")))
		testkit.Must(t, r.idempotency.log.Close())
		if answer := r.send("POST", "/admin/reindex", "", "Idempotency-Key", "k"); answer.Code != 202 {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("%+v", verdict)
		}
		time.Sleep(2 * janitorInterval)
		synctest.Wait()
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("nothing has changed: %+v", verdict)
		}
	})
}

// fullDisk is a disk that is full at times.
type fullDisk struct {
	disk.FS
	full *atomic.Bool
}

func (f fullDisk) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := f.FS.Open(name, mode)
	return fullDiskFile{file, f.full}, err
}

type fullDiskFile struct {
	disk.File
	full *atomic.Bool
}

func (f fullDiskFile) WriteAt(p []byte, at int64) (int, error) {
	if size, err := f.Size(); err != nil || f.full.Load() && at+int64(len(p)) > size {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, at)
}

// Requests that did not fit on the disk are written later, and those that are a
// day old are dropped.
func TestKeysAreWrittenLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deeds.log")
	synctest.Test(t, func(t *testing.T) {
		o, full := newIdempotency(), new(atomic.Bool)
		var err error
		o.log, err = wal.Open(path, wal.Options{MaxRecord: maxStoredRequest, FS: fullDisk{disk.OS(), full}})
		testkit.Must(t, err)
		var troubles atomic.Int32
		o.onPersist = func(err error) {
			if err != nil {
				troubles.Add(1)
			}
		}
		do := func(key string) {
			act := func(context.Context) (any, error) { return "done", nil }
			if got, err := o.do(t.Context(), requestKey{key: key}, requestOne, act); got != "done" || err != nil {
				t.Errorf("%v %v", got, err)
			}
		}
		do("first") // reserves space in the file
		full.Store(true)
		done := 1
		for ; troubles.Load() == 0 && done < 1000; done++ {
			do(fmt.Sprintf("%0250d", done))
		}
		if needed, err := o.compact(t.Context()); !needed || err == nil {
			t.Error(needed, err)
		}
		full.Store(false)
		if needed, err := o.compact(t.Context()); !needed || err != nil {
			t.Error(needed, err)
		}
		if needed, _ := o.compact(t.Context()); needed {
			t.Error("it is tidied for nothing")
		}
		kept := func() int {
			again := newIdempotency()
			book, err := wal.Open(path, wal.Options{MaxRecord: maxStoredRequest, Apply: again.replay})
			testkit.Must(t, err)
			testkit.Must(t, book.Close())
			return len(again.byKey)
		}
		testkit.Equal(t, "keys", kept(), done)
		before := o.log.Size()
		time.Sleep(idempotencyTTL)
		do("late")
		o.incomplete.Store(true)
		if _, err := o.compact(t.Context()); err != nil || o.log.Size() > before/10 {
			t.Errorf("of %d bytes, %d are left: %v", before, o.log.Size(), err)
		}
		testkit.Equal(t, "keys", kept(), 1)
		testkit.Must(t, o.close())
	})
}

// A clock that is set back does not extend the lifetime of keys.
func TestKeysOfTomorrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deeds.log")
	act := func(context.Context) (any, error) { return "done", nil }
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * time.Hour)
		o, err := openIdempotency(path)
		testkit.Must(t, err)
		_, err = o.do(t.Context(), requestKey{key: "k"}, requestOne, act)
		testkit.Must(t, err)
		testkit.Must(t, o.close())
	})
	synctest.Test(t, func(t *testing.T) { // starts at the same time as the other one
		o, err := openIdempotency(path)
		testkit.Must(t, err)
		defer func() { testkit.Must(t, o.close()) }()
		if _, err := o.do(t.Context(), requestKey{key: "k"}, requestTwo, act); err == nil {
			t.Error("forgotten")
		}
		time.Sleep(idempotencyTTL)
		if _, err := o.do(t.Context(), requestKey{key: "k"}, requestTwo, act); err != nil {
			t.Error(err)
		}
	})
}
