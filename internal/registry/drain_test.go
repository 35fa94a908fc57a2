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
	"micronode/internal/testkit"
)

// codeOf returns the code of an error, and nothing for none.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.KindOf(err).Code()
}

// Everything accepted before the drain is answered, and what is acknowledged is in
// the log.
func TestADrainAnswersWhatWasTaken(t *testing.T) {
	const many = 32
	j, folder := &faultyJournal{}, t.TempDir()
	j.Journal = openFiles(t, folder)
	h := startRegistry(t, withJournal(j), withConfig(func(c *Config) { c.Storage.Timeout = time.Minute }))
	h.init()
	var all []client.Proposed
	for i := range many {
		all = append(all, h.proposeApproved([]json.RawMessage{putName(fmt.Sprintf("n%d", i), "1")}, alice, bob))
	}
	release := j.blockWrites()
	answers := make(chan map[string]int)
	go func() {
		answers <- h.concurrently(many, func(i int) (string, string, any) { return "POST", "/registry/commit/" + all[i].ProposalID, nil })
	}()
	testkit.WaitFor(t, "the storage blocks and the commits are queued", func() bool { return j.isBlocking() && h.hasQueuedCommits(many) })
	h.stop()
	testkit.WaitFor(t, "the drain has begun", func() bool { return h.supervisor.Phase() == supervise.PhaseDraining })
	release()
	if codes := <-answers; codes["201"] != many {
		t.Errorf("the drain answered %v", codes)
	}
	h.close()
	again := startRegistry(t, withJournal(openFiles(t, folder)))
	if head, _ := again.Head(); head.Version != many {
		t.Errorf("the head is %d", head.Version)
	}
}

// hasQueuedCommits reports whether n commits have been queued for the committer.
func (r *testRegistry) hasQueuedCommits(n uint64) bool {
	for _, part := range r.inventory.Read() {
		if part.Service == service && part.Name == "commits" {
			return part.Accepted >= n
		}
	}
	return false
}

// isBlocking reports whether a write is blocked.
func (f *faultyJournal) isBlocking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blockedWrites > 0
}

// A drain has a deadline, also when the storage does not answer. Waiting clients get
// no answer that may turn out wrong.
func TestADrainDoesNotWaitForTheStorage(t *testing.T) {
	j := &faultyJournal{Journal: newRAMJournal()}
	h := startRegistryDraining(t, time.Second, withJournal(j), withConfig(func(c *Config) { c.Storage.Timeout = time.Hour }))
	h.allowAborts = true
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	q := h.proposeApproved([]json.RawMessage{putName("maps", "1")}, alice, bob)
	release := j.blockWrites()
	defer release()
	results := make(chan error, 2)
	for _, id := range []string{p.ProposalID, q.ProposalID} {
		go func() {
			_, err := h.Registry.Commit(context.Background(), id)
			results <- err
		}()
		testkit.WaitFor(t, "the storage blocks", j.isBlocking)
	}
	testkit.WaitFor(t, "the commits are queued", func() bool { return h.hasQueuedCommits(2) })
	report := h.drain()
	if len(report.LeftRunning) > 0 || !slices.Contains(report.Aborted, "registry committer") {
		t.Errorf("the report is\n%s", report)
	}
	for range 2 {
		if err := <-results; err == nil {
			t.Error("a commit that nobody knows of was acknowledged")
		}
	}
}

// A committer that panics fails its open jobs, is restarted, and reads from the log
// what it had written.
func TestACommitterThatPanics(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept %t", kept), func(t *testing.T) {
			j := &faultyJournal{Journal: newRAMJournal()}
			h := startRegistry(t, withJournal(j))
			h.allowAborts = true
			h.init()
			live := h.subscribeSSE("0")
			p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
			j.failNext(writeFault{panics: true, persisted: kept})
			h.expectUnknownOutcome("/registry/commit/" + p.ProposalID)
			if kept {
				testkit.WaitFor(t, "the commit is seen", func() bool { head, _ := h.Head(); return head.Version == 1 }) // without any request
				h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
			} else {
				h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
			}
			live.expectVersions(t, 1, 1)
			if head := h.commitChange(putName("more", "1")); head.Version != 2 {
				t.Errorf("the next version is %d", head.Version)
			}
			live.expectVersions(t, 2, 2)
			if n := len(h.flushedEvents(EventCommitted)); n != 2 {
				t.Errorf("%d commits are on the record", n)
			}
			h.mustVerify()
			if n := h.metricSum("tasks_panicked_total", "kind=registry committer"); n != 1 {
				t.Errorf("%v panics", n)
			}
		})
	}
}

// expectUnknownOutcome sends a commit whose outcome is unknown, and checks that the
// answer says so.
func (r *testRegistry) expectUnknownOutcome(path string) {
	r.t.Helper()
	problem := r.expectRefusal("POST", path, nil, "Internal")
	if problem["status"] != 500.0 {
		r.t.Errorf("answered with %v", problem)
	}
}

// A commit whose client has gone may still happen, and then it is in the audit log.
func TestACommitWhoseCallerLeft(t *testing.T) {
	j := &faultyJournal{Journal: newRAMJournal()}
	h := startRegistry(t, withJournal(j), withConfig(func(c *Config) { c.Storage.Timeout = time.Minute }))
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	q := h.proposeApproved([]json.RawMessage{putName("maps", "1")}, alice, bob)
	release := j.blockWrites()
	ctx, leave := context.WithCancel(t.Context())
	results := make(chan error, 2)
	commit := func(id string) { _, err := h.Registry.Commit(ctx, id); results <- err }
	go commit(p.ProposalID)
	testkit.WaitFor(t, "the storage blocks", j.isBlocking)
	go commit(q.ProposalID) // is queued, and not begun
	testkit.WaitFor(t, "the second commit is queued", func() bool { return h.hasQueuedCommits(2) })
	leave()
	for range 2 {
		if err := <-results; codeOf(err) != "Canceled" || !errors.Is(err, context.Canceled) {
			t.Errorf("told %v", err)
		}
	}
	release()
	testkit.WaitFor(t, "the commit is audited", func() bool { return len(h.log.ofType(EventCommitted)) == 1 })
	e := h.log.ofType(EventCommitted)[0]
	if e.Proposal != p.ProposalID || e.Version != 1 || len(e.Diff) != 1 {
		t.Errorf("on the record is %+v", e)
	}
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
	if head, _ := h.Head(); head.Version != 1 {
		t.Errorf("the head is %d", head.Version)
	}
	h.call("POST", "/registry/commit/"+q.ProposalID, nil, nil, 201)
}

// A genesis whose answer was lost has happened if it is in the log.
func TestABeginningThatIsNotKnown(t *testing.T) {
	j := &faultyJournal{Journal: newRAMJournal()}
	h := startRegistry(t, withJournal(j))
	j.failNext(writeFault{err: errAnswerLost})
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(2, alice, bob, carol), "StorageBusy")
	j.failNext(writeFault{err: errAnswerLost, persisted: true})
	begun := h.init()
	if head, _ := h.Head(); head.Hash != begun.Registry {
		t.Errorf("begun as %s, the head is %s", begun.Registry, head.Hash)
	}
	h.commitChange(putName("docs", "1"))
}

// If neither the write nor the read of the log is answered, the caller gets an error
// that the outcome is unknown. When the storage is back, the head shows what
// happened, without another commit.
func TestAnOutcomeThatStaysOpen(t *testing.T) {
	j := &unreadableJournal{faultyJournal: faultyJournal{Journal: newRAMJournal()}}
	h := startRegistry(t, withJournal(j))
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	j.failNext(writeFault{err: errAnswerLost, persisted: true})
	j.setUnreadable(true)
	problem := h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
	if problem["detail"] != "the storage failed; it is unknown whether the commit is in the log" {
		t.Errorf("told %v", problem)
	}
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "StorageBusy")
	j.setUnreadable(false)
	testkit.WaitFor(t, "the commit is seen", func() bool { head, _ := h.Head(); return head.Version == 1 })
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
}

// unreadableJournal is a faultyJournal that cannot be read for a while.
type unreadableJournal struct {
	faultyJournal
	unreadable bool // guarded by mu
}

func (u *unreadableJournal) setUnreadable(shut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unreadable = shut
}

func (u *unreadableJournal) Head(ctx context.Context) (ledger.Head, error) {
	u.mu.Lock()
	shut := u.unreadable
	u.mu.Unlock()
	if shut {
		return ledger.Head{}, fault.New("test.head", fault.StorageBusy, "it does not answer")
	}
	return u.Journal.Head(ctx)
}

func (u *unreadableJournal) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	if _, err := u.Head(ctx); err != nil && len(batch) == 0 {
		return err
	}
	return u.faultyJournal.Append(ctx, expect, batch)
}
