package bleve_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/blevesearch/bleve/v2/index/scorch"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/index/bleve"
)

// occupy puts folders where the next segments would go, so that none can be
// written: what a full disk does too, but one that every machine has.
func occupy(t *testing.T, path string) (free func()) {
	t.Helper()
	var taken []string
	for i := range 64 {
		name := filepath.Join(path, fmt.Sprintf("%012x.zap", i))
		if os.MkdirAll(filepath.Join(name, "x"), 0o700) == nil {
			taken = append(taken, name)
		}
	}
	return func() {
		for _, name := range taken {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	}
}

// What cannot be written can be found, does no harm to who searches, and is
// written as soon as that is possible. Until then nothing more is taken.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	defer bleve.SetRetryPause(time.Millisecond)()
	path := filepath.Join(t.TempDir(), "catalogue")
	c := open(t, path)
	before, during, after := text("an old fox"), text("a new fox"), text("a late fox")
	put(t, c, before)
	free := occupy(t, path)
	for name, err := range map[string]error{"a first batch": c.Put([]index.Document{during}), "a second": c.Put([]index.Document{after}), "a removal": c.Delete([]string{before.ID})} {
		if fault.KindOf(err) != fault.StorageBusy || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 20 {
		same(t, "fox", ids(t, c, "fo*"), before.ID, during.ID)
	}
	free()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		err := c.Put([]index.Document{after})
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	same(t, "fox", ids(t, c, "fox"), before.ID, during.ID, after.ID)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	same(t, "fox, after a restart", ids(t, again, "fox"), before.ID, during.ID, after.ID)
	if again.Rebuilt() {
		t.Error("what was there could not be used")
	}
}

// One that is closed while it cannot be written does not wait, and what was
// acknowledged is there when it is opened again.
func TestClosingAFolderThatCannotBeWritten(t *testing.T) {
	defer bleve.SetRetryPause(time.Hour)()
	path := filepath.Join(t.TempDir(), "catalogue")
	c := open(t, path)
	kept := text("an old fox")
	put(t, c, kept)
	free := occupy(t, path)
	if err := c.Put([]index.Document{text("a new fox")}); fault.KindOf(err) != fault.StorageBusy {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Put([]index.Document{kept}); !errors.Is(err, flow.ErrClosed) {
		t.Error(err)
	}
	free()
	same(t, "fox", ids(t, open(t, path), "fox"), kept.ID)
}

// A full disk is told from others, although Bleve keeps nothing but its words.
func TestAFullDisk(t *testing.T) {
	full := scorch.NewScorchError("persister", fmt.Sprintf("got err persisting snapshot: %v", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}), scorch.ErrPersist)
	for _, err := range []error{full, syscall.EDQUOT} {
		if got := bleve.Unwritable(err); got.Kind != fault.StoreFull || got.Next == "" {
			t.Errorf("%v: %v", err, got)
		}
	}
	if got := bleve.Unwritable(syscall.EIO); got.Kind != fault.StorageBusy || got.Next == "" {
		t.Error(got)
	}
}
