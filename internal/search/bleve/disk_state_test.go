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
	"micronode/internal/search"
	"micronode/internal/search/bleve"
	"micronode/internal/testkit"
)

// blockWrites creates folders in place of the next segments, so that none can
// be written: like a full disk, but reproducible on every machine.
func blockWrites(t *testing.T, path string) (free func()) {
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

// A batch that cannot be written can be found, does not break searches, and is
// written as soon as possible. Until then further batches are rejected.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	defer bleve.SetRetryPause(time.Millisecond)()
	path := filepath.Join(t.TempDir(), "catalogue")
	c := open(t, path)
	before, during, after := textDocument("an old fox"), textDocument("a new fox"), textDocument("a late fox")
	put(t, c, before)
	free := blockWrites(t, path)
	for name, err := range map[string]error{"a first batch": c.Put([]search.Document{during}), "a second": c.Put([]search.Document{after}), "a removal": c.Delete([]string{before.ID})} {
		if fault.KindOf(err) != fault.StorageBusy || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 20 {
		wantIDs(t, "fox", ids(t, c, "fo*"), before.ID, during.ID)
	}
	free()
	testkit.WaitFor(t, "it can be written", func() bool { return c.Put([]search.Document{after}) == nil })
	wantIDs(t, "fox", ids(t, c, "fox"), before.ID, during.ID, after.ID)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	wantIDs(t, "fox, after a restart", ids(t, again, "fox"), before.ID, during.ID, after.ID)
	if again.Rebuilt() {
		t.Error("what was there could not be used")
	}
}

// An engine that is closed while it cannot write does not wait, and what was
// acknowledged is there when it is opened again.
func TestClosingAFolderThatCannotBeWritten(t *testing.T) {
	defer bleve.SetRetryPause(time.Hour)()
	path := filepath.Join(t.TempDir(), "catalogue")
	c := open(t, path)
	kept := textDocument("an old fox")
	put(t, c, kept)
	free := blockWrites(t, path)
	if err := c.Put([]search.Document{textDocument("a new fox")}); fault.KindOf(err) != fault.StorageBusy {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Put([]search.Document{kept}); !errors.Is(err, flow.ErrClosed) {
		t.Error(err)
	}
	free()
	wantIDs(t, "fox", ids(t, open(t, path), "fox"), kept.ID)
}

// A full disk is distinguished from other errors, although Bleve keeps only the
// text.
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
