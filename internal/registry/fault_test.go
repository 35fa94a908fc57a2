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
	"micronode/internal/testkit"
)

// faultyJournal is a journal whose next writes fail, each in its own way.
type faultyJournal struct {
	Journal

	mu            sync.Mutex
	faults        []writeFault
	blocked       chan struct{} // while it is not nil, writes wait until it is closed
	blockedWrites int           // how many writes wait
}

// writeFault is how a write fails: the error that the caller gets, or a panic, and
// whether the records are stored all the same.
type writeFault struct {
	err       error
	persisted bool
	panics    bool
}

func (f *faultyJournal) failNext(how ...writeFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, how...)
}

// blockWrites makes writes wait until release is called.
func (f *faultyJournal) blockWrites() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.blocked = held
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.blocked = nil
		close(held)
	}
}

func (f *faultyJournal) addBlocked(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blockedWrites += n
}

func (f *faultyJournal) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	f.mu.Lock()
	held := f.blocked
	if len(batch) == 0 { // a probe
		f.mu.Unlock()
		if held != nil {
			return fault.New("test.append", fault.Timeout, "held")
		}
		return f.Journal.Append(ctx, expect, batch)
	}
	var how writeFault
	if len(f.faults) > 0 {
		how, f.faults = f.faults[0], f.faults[1:]
	}
	f.mu.Unlock()
	if held != nil {
		f.addBlocked(1)
		defer f.addBlocked(-1)
		select {
		case <-held:
		case <-ctx.Done():
			return fault.New("test.append", fault.Timeout, "held for too long")
		}
	}
	if how == (writeFault{}) || how.persisted {
		if err := f.Journal.Append(ctx, expect, batch); err != nil {
			return err
		}
	}
	if how.panics {
		panic("the storage has a mistake")
	}
	return how.err
}

var errAnswerLost = fault.New("test.append", fault.StorageBusy, "the answer was lost")

// Whether a failed write is in the log is read from the log, never guessed.
func TestAnOutcomeThatIsNotKnownIsLookedUp(t *testing.T) {
	j := &faultyJournal{Journal: newRAMJournal()}
	h := startRegistry(t, withJournal(j))
	h.init()

	p := h.proposeApproved([]json.RawMessage{putName("kept", "1")}, alice, bob)
	j.failNext(writeFault{err: errAnswerLost, persisted: true})
	var head client.RegistryHead
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, &head, 201)
	if head.Version != 1 {
		t.Fatalf("committed as %d", head.Version)
	}

	q := h.proposeApproved([]json.RawMessage{putName("lost", "1")}, alice, bob)
	j.failNext(writeFault{err: errAnswerLost})
	h.expectRefusal("POST", "/registry/commit/"+q.ProposalID, nil, "StorageBusy")
	h.call("GET", "/registry/head", nil, &head, 200)
	if head.Version != 1 {
		t.Fatalf("the head is %d, though nothing was written", head.Version)
	}
	h.call("POST", "/registry/commit/"+q.ProposalID, nil, &head, 201)
	if head.Version != 2 {
		t.Fatalf("then committed as %d", head.Version)
	}
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
}

// A commit that is refused because of another one in the same group gets that refusal
// only if the other one is written: otherwise the refusal would name a version that
// never existed.
func TestARefusalBecauseOfWhatCameToNothing(t *testing.T) {
	for _, kept := range []bool{false, true} {
		j := &faultyJournal{Journal: newRAMJournal()}
		h := startRegistry(t, withJournal(j), withConfig(func(c *Config) { c.Storage.Timeout = time.Minute }))
		h.init()
		first := h.proposeApproved([]json.RawMessage{putName("first", "1")}, alice, bob)
		p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
		q := h.proposeApproved([]json.RawMessage{putName("docs", "2")}, alice, bob)
		release := j.blockWrites()
		answers := make(chan map[string]int, 2)
		commit := func(ids ...string) {
			answers <- h.concurrently(len(ids), func(i int) (string, string, any) { return "POST", "/registry/commit/" + ids[i], nil })
		}
		go commit(first.ProposalID)
		testkit.WaitFor(t, "the storage blocks", j.isBlocking)
		go commit(p.ProposalID, p.ProposalID, q.ProposalID)
		testkit.WaitFor(t, "the commits are queued", func() bool { return h.hasQueuedCommits(4) }) // these go into one group
		j.failNext(writeFault{err: errAnswerLost, persisted: kept})
		release()
		all := <-answers
		for code, n := range <-answers {
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

// Two registries on one storage commit alternately without coordination, and each
// shows what the other wrote.
func TestTwoRegistriesOnOneStorage(t *testing.T) {
	j := newRAMJournal()
	a := startRegistry(t, withJournal(sharedJournal{j}), withSharedStorage)
	begun := a.init()
	b := startRegistry(t, withJournal(sharedJournal{j}), withSharedStorage)
	for i := range 10 {
		a.commitChange(putName(fmt.Sprintf("a%d", i), "1"))
		b.commitChange(putName(fmt.Sprintf("b%d", i), "1"))
	}
	last := a.commitChange(putName("last", "1"))
	if last.Version != 21 {
		t.Fatalf("the last version is %d", last.Version)
	}
	testkit.WaitFor(t, "the other registry has the last version", func() bool { head, _ := b.Head(); return head.Version == last.Version })
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

// sharedJournal is a journal in memory that several registries write to, as they would
// to an etcd. Its Close does nothing.
type sharedJournal struct{ Journal }

func (sharedJournal) Close() error { return nil }

func (s sharedJournal) Changed(ctx context.Context, since *ledger.Head) error {
	for {
		if head, err := s.Head(ctx); err == nil && (since == nil || head != *since) {
			return nil
		}
		if err := flow.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// recordsOnlyJournal is a journal that stores records and, for a while, nothing else.
type recordsOnlyJournal struct {
	Journal
	fails atomic.Bool
}

func (r *recordsOnlyJournal) refusal() error {
	if r.fails.Load() {
		return fault.New("test.keep", fault.StorageBusy, "it does not answer")
	}
	return nil
}

func (r *recordsOnlyJournal) SaveCheckpoint(ctx context.Context, c journal.Checkpoint) error {
	if err := r.refusal(); err != nil {
		return err
	}
	return r.Journal.SaveCheckpoint(ctx, c)
}

func (r *recordsOnlyJournal) SaveTile(ctx context.Context, at journal.TileID, hashes []byte) error {
	if err := r.refusal(); err != nil {
		return err
	}
	return r.Journal.SaveTile(ctx, at, hashes)
}

func (r *recordsOnlyJournal) Prune(ctx context.Context, p journal.Prune) (uint64, error) {
	if err := r.refusal(); err != nil {
		return 0, err
	}
	return r.Journal.Prune(ctx, p)
}

// A write that fails during a probe is newer than the result of the probe: the node
// stays not ready for writes.
func TestAFailureThatCameWhileItWasAskedStays(t *testing.T) {
	readiness := observe.NewReadiness(flow.NewInventory(), nil)
	g := &storageHealth{writes: readiness.Dependency(service, "storage", observe.ForWrites), reads: readiness.Dependency(service, "log", observe.ForReads)}
	g.writeEnded(errAnswerLost)
	asked, _ := g.lastWrite()
	g.writeEnded(errAnswerLost)
	g.clearFailure(asked)
	g.update(0, 0)
	if now := readiness.Evaluate(); now.WriteReady || !now.Ready {
		t.Errorf("the last write failed, and the node says %+v", now)
	}
	asked, _ = g.lastWrite()
	g.clearFailure(asked)
	g.update(0, 0)
	if now := readiness.Evaluate(); !now.WriteReady {
		t.Errorf("the storage is back, and the node says %+v", now)
	}
}
