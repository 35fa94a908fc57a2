package registry

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// newStorageHealth makes a storageHealth with a readiness of its own.
func newStorageHealth() (*storageHealth, *observe.Readiness) {
	readiness := observe.NewReadiness(flow.NewInventory(), nil)
	g := &storageHealth{writes: readiness.Dependency(service, "storage", observe.ForWrites), reads: readiness.Dependency(service, "log", observe.ForReads)}
	g.update(0, 0)
	return g, readiness
}

// However many updates happen at the same moment, readiness shows the latest state:
// damage is not overwritten by an update that began before it was found.
func TestTheLastWordOnReadiness(t *testing.T) {
	damage := fault.New("test", fault.IntegrityFail, "it is damaged")
	for range 50 {
		g, readiness := newStorageHealth()
		var all sync.WaitGroup
		var stop atomic.Bool
		var said atomic.Int64
		for range 16 {
			all.Go(func() {
				for !stop.Load() {
					g.writeEnded(nil)
					said.Add(1)
				}
			})
		}
		for said.Load() < 1000 { // all are running
			runtime.Gosched()
		}
		stop.Store(true)
		g.setDamage(damage)
		all.Wait()
		if v := readiness.Evaluate(); v.WriteReady || !v.Ready {
			t.Fatalf("the log is damaged, and the verdict is %+v", v)
		}
	}
}

// Damage to derived data is reported, stops nothing, and is cleared when the data is
// right again.
func TestDerivedDamageIsReported(t *testing.T) {
	g, readiness := newStorageHealth()
	g.setDerivedDamage(fault.New("test", fault.IntegrityFail, "a tile is wrong"))
	if v := readiness.Evaluate(); !v.WriteReady || !v.Ready || len(v.Reasons) != 1 || v.Reasons[0].Reason != "a tile is wrong" || v.Reasons[0].Next == "" {
		t.Errorf("the verdict is %+v", v)
	}
	g.setDerivedDamage(nil)
	if v := readiness.Evaluate(); !v.Whole() || len(v.Reasons) != 0 {
		t.Errorf("the verdict is %+v", v)
	}
}

// frozenJournal is a storage that stops in the middle of a call, as on a frozen file
// system: it ignores deadlines.
type frozenJournal struct {
	Journal
	mu      sync.Mutex
	what    string        // which call stops
	reached chan struct{} // gets something when it has
	thawed  chan struct{} // until this is closed
}

func (f *frozenJournal) freeze(what string) (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.what, f.reached, f.thawed = what, make(chan struct{}, 64), make(chan struct{})
	return sync.OnceFunc(func() { f.mu.Lock(); defer f.mu.Unlock(); f.what = ""; close(f.thawed) })
}

func (f *frozenJournal) waitIfFrozen(what string) {
	f.mu.Lock()
	stops, reached, held := f.what == what, f.reached, f.thawed
	f.mu.Unlock()
	if stops {
		reached <- struct{}{}
		<-held
	}
}

func (f *frozenJournal) SaveTile(ctx context.Context, at journal.TileID, hashes []byte) error {
	f.waitIfFrozen("tile")
	return f.Journal.SaveTile(ctx, at, hashes)
}

func (f *frozenJournal) SaveCheckpoint(ctx context.Context, c journal.Checkpoint) error {
	f.waitIfFrozen("checkpoint")
	return f.Journal.SaveCheckpoint(ctx, c)
}

func (f *frozenJournal) Head(ctx context.Context) (ledger.Head, error) {
	f.waitIfFrozen("head")
	return f.Journal.Head(ctx)
}

// In whichever call the storage stops, the node becomes not ready for writes, and ready
// again when the storage goes on. Requests are answered at their deadline.
func TestAStorageThatIsFrozen(t *testing.T) {
	for what, reach := range map[string]func(h *testRegistry, c *Registry){
		"tile":       func(h *testRegistry, _ *Registry) { h.grow(256) },
		"checkpoint": func(h *testRegistry, r *Registry) { _ = r.saveCheckpoint(t.Context(), r.view.Load()) },
		"head":       func(_ *testRegistry, r *Registry) { _, _ = r.submit(bandCommits, 1, r.catchUpJob(t.Context())) },
	} {
		t.Run(what, func(t *testing.T) {
			j := &frozenJournal{Journal: newRAMJournal()}
			h := startRegistry(t, withJournal(j))
			h.initOne()
			testkit.WaitFor(t, "everything is ready", func() bool { return h.readiness.Evaluate().Whole() })
			if what == "tile" {
				h.grow(255)
			}
			thaw := j.freeze(what)
			defer thaw()
			var all sync.WaitGroup
			all.Go(func() { reach(h, h.Registry) })
			<-j.reached // a short time-out is for this call alone
			impatient := h.spec.Config
			impatient.Storage.Slow, impatient.Storage.Timeout = 10*time.Millisecond, 20*time.Millisecond
			testkit.Must(t, h.Reconfigure(impatient))
			testkit.WaitFor(t, "writes are not ready", func() bool {
				v := h.readiness.Evaluate()
				return v.Ready && !v.WriteReady && len(v.Reasons) == 1 && strings.HasPrefix(v.Reasons[0].Reason, "the storage call ") && v.Reasons[0].Next != ""
			})
			if what != "checkpoint" { // the committer is stuck
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if _, err := h.submit(bandCommits, 1, h.catchUpJob(ctx)); fault.KindOf(err) != fault.Timeout {
					t.Errorf("who waits is told %v", err)
				}
			}
			testkit.Must(t, h.Reconfigure(h.spec.Config))
			testkit.WaitFor(t, "the settings are as before", func() bool { return h.settings.Load().Storage.Timeout == h.spec.Config.Storage.Timeout })
			thaw()
			all.Wait()
			testkit.WaitFor(t, "everything is ready", func() bool { return h.readiness.Evaluate().Whole() })
		})
	}
}
