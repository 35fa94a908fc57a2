package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// gate tells the truth about whether the registry can take writes. Reads go on
// whatever the storage does, so they have a line of their own.
type gate struct {
	// set at construction
	writes *observe.Dependency
	reads  *observe.Dependency

	mu     sync.Mutex
	since  time.Time // when the storage was given what it is working on; zero if nothing
	failed error     // what the last write came to
	ended  uint64    // how many writes have ended
	damage error     // what is wrong with the log itself; that does not mend by itself
}

// begin says that the storage was given something, and returns when.
func (g *gate) begin() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since = time.Now()
	return g.since
}

// end says how it went. To have lost a race is no failure.
func (g *gate) end(err error) {
	g.mu.Lock()
	g.since = time.Time{}
	if errors.Is(err, fault.ChainMismatch) {
		err = nil
	}
	g.failed = err
	g.ended++
	g.mu.Unlock()
	g.tell(0)
}

// harm says that the log is damaged.
func (g *gate) harm(err error) {
	g.mu.Lock()
	g.damage = err
	g.mu.Unlock()
	g.tell(0)
}

// harmed is the damage that was found, if there is any.
func (g *gate) harmed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.damage
}

// trouble is which write was the last, and what it came to.
func (g *gate) trouble() (last uint64, failed error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended, g.failed
}

// better says that the storage answers again, unless a write has ended since
// somebody went to ask: what came of that one is newer.
func (g *gate) better(last uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == last {
		g.failed = nil
	}
}

// tell brings readiness up to date. With slow above zero, a write that has
// waited for so long counts as trouble.
func (g *gate) tell(slow time.Duration) {
	g.mu.Lock()
	since, failed, damage := g.since, g.failed, g.damage
	g.mu.Unlock()
	switch {
	case damage != nil:
		g.reads.UpBut(fault.DetailOf(damage), "Compare with another copy, then restore the folder from it; docs/registry.md says how.")
		g.writes.Down(fault.DetailOf(damage), "Reads go on. Restore the log before anything is written to it.")
	case failed != nil:
		g.reads.Up()
		g.writes.Down("the storage failed: "+fault.DetailOf(failed), fault.NextOf(failed))
	case slow > 0 && !since.IsZero() && time.Since(since) > slow:
		g.reads.Up()
		g.writes.Down(fmt.Sprintf("the storage has been working on a commit for %s", time.Since(since).Round(100*time.Millisecond)),
			"Look at the disk, or at the etcd cluster. Reads go on.")
	case since.IsZero():
		g.reads.Up()
		g.writes.Up()
	}
}

// gateTick is how often the gate looks.
const gateTick = 100 * time.Millisecond

// watchGate is the gate's Serve: it notices writes that take long, asks a
// storage that failed whether it is back, and lets proposals expire.
func (r *Registry) watchGate(ctx context.Context) error {
	for probe := 0; ; probe++ {
		if flow.Sleep(ctx, gateTick) != nil {
			return nil
		}
		if probe%10 == 0 {
			r.probe(ctx)
			r.metrics.openProposals.Set(float64(r.docket.expire(r.now())))
		}
		r.gate.tell(r.settings.Load().Storage.Slow)
	}
}

// probe asks a storage that failed whether it works again: whether it would take
// a write is told by one of nothing, which leaves no trace. One that refuses for
// good does so here, too. When it is back, the committer looks what became of the
// write that failed, so that readers see it without waiting for the next commit.
func (r *Registry) probe(ctx context.Context) {
	last, failed := r.gate.trouble()
	if failed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	err := r.journal.Append(ctx, r.view.Load().expect(), nil)
	if err != nil && !errors.Is(err, fault.ChainMismatch) {
		return
	}
	r.gate.better(last)
	_, _ = r.hand(bandCommits, 1, r.look(ctx)) // if there is no room for it, there are commits that look themselves
}
