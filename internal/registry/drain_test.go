package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/supervise"
)

// kindName is the code of an error, and nothing for none.
func kindName(err error) string {
	if err == nil {
		return ""
	}
	return fault.KindOf(err).Code()
}

// Whatever was taken in before the drain is answered, and what is answered is
// in the log.
func TestADrainAnswersWhatWasTaken(t *testing.T) {
	const many = 32
	j, folder := &fickle{}, t.TempDir()
	j.Journal = files(t, folder)
	h := open(t, on(j), with(func(c *Config) { c.Storage.Timeout = time.Minute }))
	h.init()
	var all []client.Proposed
	for i := range many {
		all = append(all, h.proposed([]json.RawMessage{name(fmt.Sprintf("n%d", i), "1")}, alice, bob))
	}
	release := j.hold()
	answers := make(chan map[string]int)
	go func() {
		answers <- h.together(many, func(i int) (string, string, any) { return "POST", "/registry/commit/" + all[i].ProposalID, nil })
	}()
	waitFor(t, func() bool { return j.waiting() && h.handed(many) })
	h.stop()
	waitFor(t, func() bool { return h.supervisor.Phase() == supervise.PhaseDraining })
	release()
	if told := <-answers; told["201"] != many {
		t.Errorf("the drain answered %v", told)
	}
	h.close()
	again := open(t, on(files(t, folder)))
	if head, _ := again.Head(); head.Version != many {
		t.Errorf("the head is %d", head.Version)
	}
}

// handed reports whether so many commits have been given to the committer.
func (h *house) handed(n uint64) bool {
	for _, part := range h.inventory.Read() {
		if part.Service == service && part.Name == "commits" {
			return part.Accepted >= n
		}
	}
	return false
}

// waiting reports whether a write is being held.
func (f *fickle) waiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stuck > 0
}

// A drain has a deadline, also when the storage does not answer. Who waits is
// not told anything that may turn out wrong.
func TestADrainDoesNotWaitForTheStorage(t *testing.T) {
	j := &fickle{Journal: inMemory()}
	h := openFor(t, time.Second, on(j), with(func(c *Config) { c.Storage.Timeout = time.Hour }))
	h.rough = true
	h.init()
	p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
	q := h.proposed([]json.RawMessage{name("maps", "1")}, alice, bob)
	release := j.hold()
	defer release()
	told := make(chan error, 2)
	for _, id := range []string{p.ProposalID, q.ProposalID} {
		go func() {
			_, err := h.Registry.Commit(context.Background(), id)
			told <- err
		}()
		waitFor(t, j.waiting)
	}
	waitFor(t, func() bool { return h.handed(2) })
	report := h.drained()
	if len(report.LeftRunning) > 0 || !slices.Contains(report.Aborted, "registry committer") {
		t.Errorf("the report is\n%s", report)
	}
	for range 2 {
		if err := <-told; err == nil {
			t.Error("a commit that nobody knows of was acknowledged")
		}
	}
}

// A committer that panics answers those who wait, is started again, and finds
// out by itself what it had written.
func TestACommitterThatPanics(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept %t", kept), func(t *testing.T) {
			j := &fickle{Journal: inMemory()}
			h := open(t, on(j))
			h.rough = true
			h.init()
			live := h.listen("0")
			p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
			j.goWrong(mishap{panics: true, kept: kept})
			h.turnedAwayUnknown("/registry/commit/" + p.ProposalID)
			if kept {
				waitFor(t, func() bool { head, _ := h.Head(); return head.Version == 1 }) // and nobody has asked for anything
				h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
			} else {
				h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
			}
			live.want(t, 1, 1)
			if head := h.change(name("more", "1")); head.Version != 2 {
				t.Errorf("the next version is %d", head.Version)
			}
			live.want(t, 2, 2)
			if n := len(h.told(CommittedNow)); n != 2 {
				t.Errorf("%d commits are on the record", n)
			}
			must(t, h.verifyRound(t.Context()))
			if n := h.count("tasks_panicked_total", "kind=registry committer"); n != 1 {
				t.Errorf("%v panics", n)
			}
		})
	}
}

// turnedAwayUnknown sends a commit whose outcome nobody can tell, and holds the
// answer to saying so.
func (h *house) turnedAwayUnknown(path string) {
	h.t.Helper()
	problem := h.refused("POST", path, nil, "Internal")
	if problem["status"] != 500.0 {
		h.t.Errorf("answered with %v", problem)
	}
}

// Whoever asks for a commit and leaves may still have it, and then it is on the
// record.
func TestACommitWhoseCallerLeft(t *testing.T) {
	j := &fickle{Journal: inMemory()}
	h := open(t, on(j), with(func(c *Config) { c.Storage.Timeout = time.Minute }))
	h.init()
	p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
	q := h.proposed([]json.RawMessage{name("maps", "1")}, alice, bob)
	release := j.hold()
	ctx, leave := context.WithCancel(t.Context())
	told := make(chan error, 2)
	commit := func(id string) { _, err := h.Registry.Commit(ctx, id); told <- err }
	go commit(p.ProposalID)
	waitFor(t, j.waiting)
	go commit(q.ProposalID) // is taken, and not begun
	waitFor(t, func() bool { return h.handed(2) })
	leave()
	for range 2 {
		if err := <-told; kindName(err) != "Canceled" || !errors.Is(err, context.Canceled) {
			t.Errorf("told %v", err)
		}
	}
	release()
	waitFor(t, func() bool { return len(h.log.of(CommittedNow)) == 1 })
	e := h.log.of(CommittedNow)[0]
	if e.Proposal != p.ProposalID || e.Version != 1 || len(e.Diff) != 1 {
		t.Errorf("on the record is %+v", e)
	}
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
	if head, _ := h.Head(); head.Version != 1 {
		t.Errorf("the head is %d", head.Version)
	}
	h.call("POST", "/registry/commit/"+q.ProposalID, nil, nil, 201)
}

// A beginning whose answer was lost has happened if it is in the log.
func TestABeginningThatIsNotKnown(t *testing.T) {
	j := &fickle{Journal: inMemory()}
	h := open(t, on(j))
	j.goWrong(mishap{err: lost})
	h.turnedAway("init", "POST", "/registry/init", initRequest(2, alice, bob, carol), "StorageBusy")
	j.goWrong(mishap{err: lost, kept: true})
	begun := h.init()
	if head, _ := h.Head(); head.Hash != begun.Registry {
		t.Errorf("begun as %s, the head is %s", begun.Registry, head.Hash)
	}
	h.change(name("docs", "1"))
}

// Where neither the write nor the look is answered, the caller is told that
// nobody knows. When the storage is back, the head shows what happened, without
// anybody committing.
func TestAnOutcomeThatStaysOpen(t *testing.T) {
	j := &blind{fickle: fickle{Journal: inMemory()}}
	h := open(t, on(j))
	h.init()
	p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
	j.goWrong(mishap{err: lost, kept: true})
	j.closeEyes(true)
	problem := h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
	if problem["detail"] != "the storage failed, and whether the commit is in the log is not known" {
		t.Errorf("told %v", problem)
	}
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
	j.closeEyes(false)
	waitFor(t, func() bool { head, _ := h.Head(); return head.Version == 1 })
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
}

// blind is a fickle journal that cannot be read for a while.
type blind struct {
	fickle
	shut bool // guarded by mu
}

func (b *blind) closeEyes(shut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = shut
}

func (b *blind) Head(ctx context.Context) (ledger.Head, error) {
	b.mu.Lock()
	shut := b.shut
	b.mu.Unlock()
	if shut {
		return ledger.Head{}, fault.New("test.head", fault.StorageBusy, "it does not answer")
	}
	return b.Journal.Head(ctx)
}

func (b *blind) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	if _, err := b.Head(ctx); err != nil && len(batch) == 0 {
		return err
	}
	return b.fickle.Append(ctx, expect, batch)
}
