package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// openFiles opens the journal of a folder, in small segments.
func openFiles(t testing.TB, folder string) *journal.Files {
	t.Helper()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, SegmentVersions: 256})
	testkit.Must(t, err)
	return j
}

// grow commits names until the log has the given number of versions, without HTTP,
// many at a time, so that they share syncs.
func (r *testRegistry) grow(versions uint64) {
	r.t.Helper()
	head, _ := r.Head()
	var all sync.WaitGroup
	for first := range uint64(32) {
		all.Go(func() {
			for n := head.Version + 1 + first; n < versions; n += 32 {
				r.commitDirectly(fmt.Sprintf("n%d", n))
			}
		})
	}
	all.Wait()
	if head, _ := r.Head(); head.Version+1 != versions {
		r.t.Fatalf("grown to %d, want %d versions", head.Version+1, versions)
	}
}

// commitDirectly commits a name without HTTP, as the handlers do.
func (r *testRegistry) commitDirectly(id string) {
	r.t.Helper()
	_, err := r.Registry.Commit(r.ctx(), r.approveDirectly(id))
	testkit.Must(r.t, err)
}

// A log is opened from its last checkpoint, and is the same one.
func TestReopenedFromACheckpoint(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	begun := h.init()
	h.grow(300)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.grow(320)
	before := h.call("GET", "/registry/300", nil, nil, 200)
	note := h.view.Load().tree.Root()
	h.close()

	counted := &countingJournal{Journal: openFiles(t, folder)}
	again := startRegistry(t, withJournal(counted))
	if again.view.Load().tree.Root() != note {
		t.Error("the tree is another after reopening")
	}
	if counted.scannedAtOpen > 300%256+1+20 {
		t.Errorf("opening read %d records", counted.scannedAtOpen)
	}
	if after := again.call("GET", "/registry/300", nil, nil, 200); string(before) != string(after) {
		t.Errorf("version 300 was\n%s\nand is\n%s", before, after)
	}
	if head := again.commitChange(putName("more", "1")); head.Version != 320 {
		t.Errorf("the next version is %d", head.Version)
	}
	for _, version := range []int{0, 1, 255, 256, 299, 300, 320} {
		bundle := again.call("GET", fmt.Sprintf("/registry/bundle/%d", version), nil, nil, 200)
		if _, err := VerifyBundle(bundle, Trust{Registry: &begun.Registry, Key: begun.Key}); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
	}
	again.mustVerify()
}

// countingJournal counts the records that are read.
type countingJournal struct {
	Journal
	scanned       atomic.Int64
	scannedAtOpen int64 // read before anything ran
}

func (c *countingJournal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return c.Journal.Scan(ctx, from, func(r ledger.Record) error {
		c.scanned.Add(1)
		return visit(r)
	})
}

// A checkpoint of another key is not used: the log is read from version 0 instead.
func TestACheckpointOfAnotherKeyIsNotUsed(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)), func(s *Spec) { s.Key = alice.key })
	h.init()
	h.grow(20)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.close()

	counted := &countingJournal{Journal: openFiles(t, folder)}
	again := startRegistry(t, withJournal(counted))
	if head, _ := again.Head(); head.Version != 19 || counted.scannedAtOpen < 20 {
		t.Errorf("the head is %d, after %d records", head.Version, counted.scannedAtOpen)
	}
}

// What was pruned is reported as such; everything else can still be proved.
func TestPrunedAndStillProved(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of versions, one after the other: make race")
	}
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)), withConfig(func(c *Config) { c.Storage.Retain = 50 }))
	begun := h.init()
	h.grow(600)
	trust := Trust{Registry: &begun.Registry, Key: begun.Key}
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.enqueuePrune(h.view.Load(), h.settings.Load().Storage)
	var kept uint64 // whole segments are pruned, so more versions stay than retain says
	testkit.WaitFor(t, "versions are pruned", func() bool { _, kept, _ = h.journal.Pruned(t.Context()); return kept > 0 })
	h.expectRefusal("GET", "/registry/5", nil, "Expired")
	h.expectRefusal("GET", "/registry/bundle/5", nil, "Expired")
	var version client.RegistryVersion
	h.call("GET", "/registry/580", nil, &version, 200)
	bundle := h.call("GET", "/registry/bundle/580", nil, nil, 200)
	if _, err := VerifyBundle(bundle, trust); err != nil {
		t.Error(err)
	}
	h.mustVerify()
	auditKept := func(skip uint64) (Report, error) {
		a, err := NewKeptAuditor(h.call("GET", fmt.Sprintf("/registry/bundle/%d", kept), nil, nil, 200), trust)
		testkit.Must(t, err)
		for number := kept + 1; number < a.Size()-skip; number++ {
			r, err := h.journal.Read(t.Context(), number)
			testkit.Must(t, err)
			testkit.Must(t, a.Add(r.Header, r.Payload, r.Preconditions))
		}
		return a.Finish()
	}
	if report, err := auditKept(0); err != nil || report.First != kept || report.Head.Version != 599 || report.Versions != 600-kept || report.Signed != 600 {
		t.Errorf("what is left, verified over the network: %+v, %v", report, err)
	}
	if _, err := auditKept(1); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("without the last version: %v", err)
	}
	h.close()

	report, err := VerifyFolder(t.Context(), folder, trust, nil)
	if err != nil || report.First != kept || report.Head.Version != 599 {
		t.Errorf("verified from outside: %+v, %v", report, err)
	}
	again := startRegistry(t, withJournal(openFiles(t, folder)))
	if head := again.commitChange(putName("more", "1")); head.Version != 600 {
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

// A log that ends before an acknowledged version is not written to.
func TestALogThatWentBack(t *testing.T) {
	h := startRegistry(t)
	h.init()
	h.commitChange(putName("docs", "1"))
	c := &committer{Registry: h.Registry, mustCatchUp: true}
	h.journal.(*journal.RAM).Close()
	if err := c.ensureCaughtUp(t.Context()); err == nil || errors.Is(err, fault.ChainMismatch) {
		t.Errorf("it caught up: %v", err)
	}
}

// forgingJournal is a journal that returns one version with another payload.
type forgingJournal struct {
	Journal
	version atomic.Uint64 // zero for none
}

func (f *forgingJournal) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	r, err := f.Journal.Read(ctx, version)
	if version > 0 && version == f.version.Load() {
		r.Payload = bytes.Replace(r.Payload, []byte("b3:"), []byte("b3:ff"), 1)
	}
	return r, err
}

// What is pruned cannot be checked again. So nothing is pruned while the log is
// damaged, the note is signed only over the version that was committed, and the
// tiles that stay are right.
func TestPruningLooksTwice(t *testing.T) {
	folder := t.TempDir()
	j := &forgingJournal{Journal: openFiles(t, folder)}
	h := startRegistry(t, withJournal(j))
	begun := h.initOne()
	h.grow(560)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	refused := func(why string) {
		t.Helper()
		err := h.pruneTo(t.Context(), pruneOrder{below: 512, size: 560})
		if _, first, _ := h.journal.Pruned(t.Context()); first > 0 || fault.KindOf(err) != fault.IntegrityFail {
			t.Errorf("%s: pruned to %d, %v", why, first, err)
		}
	}
	j.version.Store(511)
	refused("the last version that would go is not the one that was committed")
	j.version.Store(0)

	h.health.setDamage(fault.New("test", fault.IntegrityFail, "it is damaged"))
	refused("the log is damaged")
	h.health.setDamage(nil)

	at := journal.TileID{}
	right, err := h.journal.LoadTile(t.Context(), at)
	testkit.Must(t, err)
	damaged := slices.Clone(right)
	damaged[100] ^= 1
	testkit.Must(t, h.journal.SaveTile(t.Context(), at, damaged))
	testkit.Must(t, h.pruneTo(t.Context(), pruneOrder{below: 512, size: 560}))
	if _, first, _ := h.journal.Pruned(t.Context()); first == 0 {
		t.Errorf("pruned to %d", first)
	}
	if kept, err := h.journal.LoadTile(t.Context(), at); err != nil || !bytes.Equal(kept, right) {
		t.Errorf("a wrong tile was left behind: %v", err)
	}
	h.mustVerify()
	h.close()
	_, err = VerifyFolder(t.Context(), folder, Trust{&begun.Registry, begun.Key}, nil)
	testkit.Must(t, err)
}
