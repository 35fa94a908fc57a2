package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// fickle is a journal whose next writes go wrong, each in a way of its own.
type fickle struct {
	Journal

	mu    sync.Mutex
	next  []mishap
	held  chan struct{} // while it is not nil, writes wait until it is closed
	stuck int           // how many do
}

// mishap is how a write goes wrong: the error that the caller gets, or a panic,
// and whether the records are there all the same.
type mishap struct {
	err    error
	kept   bool
	panics bool
}

func (f *fickle) goWrong(how ...mishap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, how...)
}

// hold makes writes wait until release is called.
func (f *fickle) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.held = held
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = nil
		close(held)
	}
}

func (f *fickle) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck += n
}

func (f *fickle) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	f.mu.Lock()
	held := f.held
	if len(batch) == 0 { // the gate asks whether the storage is back
		f.mu.Unlock()
		if held != nil {
			return fault.New("test.append", fault.Timeout, "held")
		}
		return f.Journal.Append(ctx, expect, batch)
	}
	var how mishap
	if len(f.next) > 0 {
		how, f.next = f.next[0], f.next[1:]
	}
	f.mu.Unlock()
	if held != nil {
		f.count(1)
		defer f.count(-1)
		select {
		case <-held:
		case <-ctx.Done():
			return fault.New("test.append", fault.Timeout, "held for too long")
		}
	}
	if how == (mishap{}) || how.kept {
		if err := f.Journal.Append(ctx, expect, batch); err != nil {
			return err
		}
	}
	if how.panics {
		panic("the storage has a mistake")
	}
	return how.err
}

var lost = fault.New("test.append", fault.StorageBusy, "the answer was lost")

// Whether a write that failed is in the log is looked up, never guessed.
func TestAnOutcomeThatIsNotKnownIsLookedUp(t *testing.T) {
	j := &fickle{Journal: inMemory()}
	h := open(t, on(j))
	h.init()

	p := h.proposed([]json.RawMessage{name("kept", "1")}, alice, bob)
	j.goWrong(mishap{err: lost, kept: true})
	var head client.RegistryHead
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, &head, 201)
	if head.Version != 1 {
		t.Fatalf("committed as %d", head.Version)
	}

	q := h.proposed([]json.RawMessage{name("lost", "1")}, alice, bob)
	j.goWrong(mishap{err: lost})
	h.refused("POST", "/registry/commit/"+q.ProposalID, nil, "StorageBusy")
	h.call("GET", "/registry/head", nil, &head, 200)
	if head.Version != 1 {
		t.Fatalf("the head is %d, though nothing was written", head.Version)
	}
	h.call("POST", "/registry/commit/"+q.ProposalID, nil, &head, 201)
	if head.Version != 2 {
		t.Fatalf("then committed as %d", head.Version)
	}
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
}

// Whoever is refused because of another commit that waits for the same sync is
// told so only if that one is kept: otherwise it would hear of a version that
// never was.
func TestARefusalBecauseOfWhatCameToNothing(t *testing.T) {
	for _, kept := range []bool{false, true} {
		j := &fickle{Journal: inMemory()}
		h := open(t, on(j), with(func(c *Config) { c.Storage.Timeout = time.Minute }))
		h.init()
		first := h.proposed([]json.RawMessage{name("first", "1")}, alice, bob)
		p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
		q := h.proposed([]json.RawMessage{name("docs", "2")}, alice, bob)
		release := j.hold()
		told := make(chan map[string]int, 2)
		commit := func(ids ...string) {
			told <- h.together(len(ids), func(i int) (string, string, any) { return "POST", "/registry/commit/" + ids[i], nil })
		}
		go commit(first.ProposalID)
		waitFor(t, j.waiting)
		go commit(p.ProposalID, p.ProposalID, q.ProposalID)
		waitFor(t, func() bool { return h.handed(4) }) // these go into one group
		j.goWrong(mishap{err: lost, kept: kept})
		release()
		all := <-told
		for code, n := range <-told {
			all[code] += n
		}
		head, _ := h.Head()
		if !kept && (all["201"] != 1 || all["StorageBusy"] != 3 || head.Version != 1) {
			t.Errorf("nothing was kept, and they were told %v", all)
		}
		if kept && (all["201"] != 2 || all["Conflict"] != 2 || head.Version != 2) {
			t.Errorf("it was kept, and they were told %v", all)
		}
	}
}

// Two registries on one storage take turns without being told to, and each
// shows what the other wrote.
func TestTwoRegistriesOnOneStorage(t *testing.T) {
	j := inMemory()
	a := open(t, on(common{j}), shared)
	begun := a.init()
	b := open(t, on(common{j}), shared)
	for i := range 10 {
		a.change(name(fmt.Sprintf("a%d", i), "1"))
		b.change(name(fmt.Sprintf("b%d", i), "1"))
	}
	last := a.change(name("last", "1"))
	if last.Version != 21 {
		t.Fatalf("the last version is %d", last.Version)
	}
	waitFor(t, func() bool { head, _ := b.Head(); return head.Version == last.Version })
	var version client.RegistryVersion
	b.call("GET", "/registry/21", nil, &version, 200)
	if version.Hash != last.Hash || len(version.Items) != 22 {
		t.Fatalf("the other registry shows %d items at %s", len(version.Items), version.Hash)
	}
	bundle := b.call("GET", "/registry/bundle/3", nil, nil, 200)
	if _, err := VerifyBundle(bundle, Trust{Registry: &begun.Registry, Key: begun.Key}); err != nil {
		t.Fatal(err)
	}
}

// common is a journal in memory that several registries write to, as they would
// to an etcd. Somebody else closes it.
type common struct{ Journal }

func (common) Close() error { return nil }

func (c common) Changed(ctx context.Context, since *ledger.Head) error {
	for {
		if head, err := c.Head(ctx); err == nil && (since == nil || head != *since) {
			return nil
		}
		if err := flow.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// forgetful is a journal that keeps records and, for a while, nothing else.
type forgetful struct {
	Journal
	fails atomic.Bool
}

func (f *forgetful) refusal() error {
	if f.fails.Load() {
		return fault.New("test.keep", fault.StorageBusy, "it does not answer")
	}
	return nil
}

func (f *forgetful) SaveCheckpoint(ctx context.Context, c journal.Checkpoint) error {
	if err := f.refusal(); err != nil {
		return err
	}
	return f.Journal.SaveCheckpoint(ctx, c)
}

func (f *forgetful) SaveTile(ctx context.Context, at journal.TileID, hashes []byte) error {
	if err := f.refusal(); err != nil {
		return err
	}
	return f.Journal.SaveTile(ctx, at, hashes)
}

func (f *forgetful) Prune(ctx context.Context, p journal.Prune) (uint64, error) {
	if err := f.refusal(); err != nil {
		return 0, err
	}
	return f.Journal.Prune(ctx, p)
}

// A write that fails while the storage is asked whether it is back is newer than
// the answer: the node stays not ready for writes.
func TestAFailureThatCameWhileItWasAskedStays(t *testing.T) {
	readiness := observe.NewReadiness(flow.NewInventory(), nil)
	g := &gate{writes: readiness.Dependency(service, "storage", observe.ForWrites), reads: readiness.Dependency(service, "log", observe.ForReads)}
	g.end(lost)
	asked, _ := g.trouble()
	g.end(lost)
	g.better(asked)
	g.tell(0)
	if now := readiness.Evaluate(); now.WriteReady || !now.Ready {
		t.Errorf("the last write failed, and the node says %+v", now)
	}
	asked, _ = g.trouble()
	g.better(asked)
	g.tell(0)
	if now := readiness.Evaluate(); !now.WriteReady {
		t.Errorf("the storage is back, and the node says %+v", now)
	}
}
