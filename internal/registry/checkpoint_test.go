package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// files opens the journal of a folder, in small segments.
func files(t testing.TB, folder string) *journal.Files {
	t.Helper()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, SegmentVersions: 256})
	must(t, err)
	return j
}

// grow commits names until the log has so many versions, without HTTP, many at
// a time, so that they share syncs.
func (h *house) grow(versions uint64) {
	h.t.Helper()
	head, _ := h.Head()
	var all sync.WaitGroup
	for first := range uint64(32) {
		all.Go(func() {
			for n := head.Version + 1 + first; n < versions; n += 32 {
				h.commitDirectly(fmt.Sprintf("n%d", n))
			}
		})
	}
	all.Wait()
	if head, _ := h.Head(); head.Version+1 != versions {
		h.t.Fatalf("grown to %d, want %d versions", head.Version+1, versions)
	}
}

// commitDirectly does what the handlers do.
func (h *house) commitDirectly(id string) {
	h.t.Helper()
	_, err := h.Registry.Commit(h.ctx(), h.approvedDirectly(id))
	must(h.t, err)
}

// A log is opened from its last checkpoint, and is the same one.
func TestReopenedFromACheckpoint(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)))
	begun := h.init()
	h.grow(300)
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	h.grow(320)
	before := h.call("GET", "/registry/300", nil, nil, 200)
	note := h.view.Load().tree.Root()
	h.close()

	counted := &counting{Journal: files(t, folder)}
	again := open(t, on(counted))
	if again.view.Load().tree.Root() != note {
		t.Error("the tree is another after reopening")
	}
	if counted.opening > 300%256+1+20 {
		t.Errorf("opening read %d records", counted.opening)
	}
	if after := again.call("GET", "/registry/300", nil, nil, 200); string(before) != string(after) {
		t.Errorf("version 300 was\n%s\nand is\n%s", before, after)
	}
	if head := again.change(name("more", "1")); head.Version != 320 {
		t.Errorf("the next version is %d", head.Version)
	}
	for _, version := range []int{0, 1, 255, 256, 299, 300, 320} {
		bundle := again.call("GET", fmt.Sprintf("/registry/bundle/%d", version), nil, nil, 200)
		if _, err := VerifyBundle(bundle, Trust{Registry: &begun.Registry, Key: begun.Key}); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
	}
	must(t, again.verifyRound(t.Context()))
}

// counting counts the records that are read.
type counting struct {
	Journal
	scanned atomic.Int64
	opening int64 // of those, before anything ran
}

func (c *counting) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return c.Journal.Scan(ctx, from, func(r ledger.Record) error {
		c.scanned.Add(1)
		return visit(r)
	})
}

// A checkpoint of another key is not believed: the log is read from its
// beginning instead.
func TestACheckpointOfAnotherKeyIsNotUsed(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)), func(s *Spec) { s.Key = alice.key })
	h.init()
	h.grow(20)
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	h.close()

	counted := &counting{Journal: files(t, folder)}
	again := open(t, on(counted))
	if head, _ := again.Head(); head.Version != 19 || counted.opening < 20 {
		t.Errorf("the head is %d, after %d records", head.Version, counted.opening)
	}
}

// What was pruned is gone and said to be; all the rest can still be proved.
func TestPrunedAndStillProved(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)), with(func(c *Config) { c.Storage.Retain = 50 }))
	begun := h.init()
	h.grow(600)
	trust := Trust{Registry: &begun.Registry, Key: begun.Key}
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	h.orderPruning(h.view.Load(), h.settings.Load().Storage)
	var kept uint64 // whole segments go, so some more are kept than was asked for
	waitFor(t, func() bool { _, kept, _ = h.journal.Pruned(t.Context()); return kept > 0 })
	h.refused("GET", "/registry/5", nil, "Expired")
	h.refused("GET", "/registry/bundle/5", nil, "Expired")
	var version client.RegistryVersion
	h.call("GET", "/registry/580", nil, &version, 200)
	bundle := h.call("GET", "/registry/bundle/580", nil, nil, 200)
	if _, err := VerifyBundle(bundle, trust); err != nil {
		t.Error(err)
	}
	must(t, h.verifyRound(t.Context()))
	h.close()

	report, err := VerifyFolder(t.Context(), folder, trust, nil)
	if err != nil || report.First != kept || report.Head.Version != 599 {
		t.Errorf("verified from outside: %+v, %v", report, err)
	}
	again := open(t, on(files(t, folder)))
	if head := again.change(name("more", "1")); head.Version != 600 {
		t.Errorf("the next version is %d", head.Version)
	}
	bundle = again.call("GET", "/registry/bundle/590", nil, nil, 200)
	if _, err := VerifyBundle(bundle, trust); err != nil {
		t.Error(err)
	}
	tile := again.call("GET", "/registry/log/tile/0/000", nil, nil, 200)
	if len(tile) != 256*32 {
		t.Errorf("the tile over what was pruned has %d bytes", len(tile))
	}
}

// A log that says less than what was acknowledged is not written to.
func TestALogThatWentBack(t *testing.T) {
	h := open(t)
	h.init()
	h.change(name("docs", "1"))
	c := &committer{Registry: h.Registry, doubt: true}
	h.journal.(*journal.RAM).Close()
	if err := c.settle(t.Context()); err == nil || errors.Is(err, fault.ChainMismatch) {
		t.Errorf("settled: %v", err)
	}
}
