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
	"micronode/internal/logbook"
)

func remembering(path string) setting { return func(s *Spec) { s.Deeds = path } }

// A request that is repeated after a restart gets the first answer again, be the
// node stopped or killed. The store of the next life is empty, so that nothing
// could be done anew.
func TestKeysOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "deeds.log")
	pin := `{"b3":"` + address("hello").String() + `"}`
	life := func(do func(r *rig)) {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, remembering(path))
			do(r)
			killed, err := os.ReadFile(path)
			must(t, err)
			t.Cleanup(func() { must(t, os.WriteFile(path, killed, 0o600)) }) // nothing that was written later is there
		})
	}
	says := func(r *rig, path, key string, status int, text string) {
		body := pin
		if path == "/admin/reindex" {
			body = ""
		}
		if answer := r.send("POST", path, body, "Idempotency-Key", key); answer.Code != status || !strings.Contains(answer.Body.String(), text) {
			r.t.Errorf("%s with %s: %d %s, want %d %s", path, key, answer.Code, answer.Body, status, text)
		}
	}
	life(func(r *rig) {
		r.put("hello")
		says(r, "/admin/unpin", "k1", 200, `"pinned":false`)
		says(r, "/admin/reindex", "k2", 202, `"objects":1`)
	})
	for range 2 {
		life(func(r *rig) {
			says(r, "/admin/unpin", "k1", 200, `"pinned":false`)
			says(r, "/admin/reindex", "k2", 202, `"objects":1`)
			says(r, "/admin/pin", "k1", 409, "another request")
			says(r, "/admin/unpin", "k3", 404, "NotFound")
		})
	}
	life(func(r *rig) {
		time.Sleep(onceLife)
		says(r, "/admin/unpin", "k1", 404, "NotFound")
		says(r, "/admin/reindex", "k2", 202, `"objects":0`)
	})
}

// A file that cannot be read leaves the node degraded, and requests are carried
// out; the file is left as it is.
func TestUnreadableKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deeds.log")
	must(t, os.WriteFile(path, []byte("this is no book, however long one looks at it"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		r := open(t, remembering(path))
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
	if err := newOnce().recall([]byte("{")); err == nil {
		t.Error("what is no record was taken for one")
	}
}

// A disk that takes nothing is no reason to refuse, and readiness tells of it.
func TestKeysThatAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, remembering(filepath.Join(t.TempDir(), "deeds.log")))
		must(t, r.deeds.book.Close())
		if answer := r.send("POST", "/admin/reindex", "", "Idempotency-Key", "k"); answer.Code != 202 {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("%+v", verdict)
		}
		time.Sleep(2 * janitorPause)
		synctest.Wait()
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("nothing has changed: %+v", verdict)
		}
	})
}

// crammed is a disk that is full from time to time.
type crammed struct {
	disk.FS
	full *atomic.Bool
}

func (c crammed) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := c.FS.Open(name, mode)
	return crammedFile{file, c.full}, err
}

type crammedFile struct {
	disk.File
	full *atomic.Bool
}

func (f crammedFile) WriteAt(p []byte, at int64) (int, error) {
	if size, err := f.Size(); err != nil || f.full.Load() && at+int64(len(p)) > size {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, at)
}

// What there was no room for is written later, and what is a day old goes.
func TestKeysAreWrittenLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deeds.log")
	synctest.Test(t, func(t *testing.T) {
		o, full := newOnce(), new(atomic.Bool)
		var err error
		o.book, err = logbook.Open(path, logbook.Options{MaxRecord: longestDeed, FS: crammed{disk.Real(), full}})
		must(t, err)
		var troubles atomic.Int32
		o.told = func(err error) {
			if err != nil {
				troubles.Add(1)
			}
		}
		do := func(key string) {
			act := func(context.Context) (any, error) { return "done", nil }
			if got, err := o.do(t.Context(), key, pinOne, act); got != "done" || err != nil {
				t.Errorf("%v %v", got, err)
			}
		}
		do("first") // makes room in the file
		full.Store(true)
		done := 1
		for ; troubles.Load() == 0 && done < 1000; done++ {
			do(fmt.Sprintf("%0250d", done))
		}
		if needed, err := o.tidy(t.Context()); !needed || err == nil {
			t.Error(needed, err)
		}
		full.Store(false)
		if needed, err := o.tidy(t.Context()); !needed || err != nil {
			t.Error(needed, err)
		}
		if needed, _ := o.tidy(t.Context()); needed {
			t.Error("it is tidied for nothing")
		}
		kept := func() int {
			again := newOnce()
			book, err := logbook.Open(path, logbook.Options{MaxRecord: longestDeed, Apply: again.recall})
			must(t, err)
			must(t, book.Close())
			return len(again.deeds)
		}
		equal(t, "keys", kept(), done)
		before := o.book.Size()
		time.Sleep(onceLife)
		do("late")
		o.behind.Store(true)
		if _, err := o.tidy(t.Context()); err != nil || o.book.Size() > before/10 {
			t.Errorf("of %d bytes, %d are left: %v", before, o.book.Size(), err)
		}
		equal(t, "keys", kept(), 1)
		must(t, o.close())
	})
}

// A clock that is put back does not make keys live for longer.
func TestKeysOfTomorrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deeds.log")
	act := func(context.Context) (any, error) { return "done", nil }
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * time.Hour)
		o, err := openOnce(path)
		must(t, err)
		_, err = o.do(t.Context(), "k", pinOne, act)
		must(t, err)
		must(t, o.close())
	})
	synctest.Test(t, func(t *testing.T) { // begins where the other one began
		o, err := openOnce(path)
		must(t, err)
		defer func() { must(t, o.close()) }()
		if _, err := o.do(t.Context(), "k", pinTwo, act); err == nil {
			t.Error("forgotten")
		}
		time.Sleep(onceLife)
		if _, err := o.do(t.Context(), "k", pinTwo, act); err != nil {
			t.Error(err)
		}
	})
}
