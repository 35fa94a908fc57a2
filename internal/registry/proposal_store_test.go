package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// pendingNames lists what a journal keeps.
func pendingNames(t *testing.T, j Journal) (names []string) {
	t.Helper()
	testkit.Must(t, j.(journal.PendingStore).ScanPending(t.Context(), func(proposal string, isApproval bool, _ []byte) error {
		if isApproval {
			proposal += " approved"
		}
		names = append(names, proposal)
		return nil
	}))
	return names
}

func openFolder(t *testing.T, folder string) Journal {
	t.Helper()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	testkit.Must(t, err)
	return j
}

// An open proposal and its approvals are there after a restart, and can be
// committed; what is finished is not kept.
func TestProposalsSurviveARestart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "registry")
	h := startRegistry(t, withJournal(openFolder(t, folder)))
	h.init()
	first := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	other := h.proposeApproved([]json.RawMessage{putName("other", "2")}, alice)
	done := h.proposeApproved([]json.RawMessage{putName("done", "3")}, alice, bob)
	h.call("POST", "/registry/commit/"+done.ProposalID, nil, nil, 201)
	if lost, _ := h.PendingLoss(); lost != 0 {
		t.Errorf("%d proposals are said to be lost", lost)
	}
	h.close()

	j := openFolder(t, folder)
	h = startRegistry(t, withJournal(j))
	var list client.ProposalList
	h.call("GET", "/registry/proposals", nil, &list, 200)
	if len(list.Proposals) != 2 {
		t.Fatalf("after a restart there are %+v", list.Proposals)
	}
	var shown client.Proposal
	h.call("GET", "/registry/proposals/"+first.ProposalID, nil, &shown, 200)
	if !bytes.Equal(shown.SignThis, first.SignThis) || len(shown.Approvals) != 1 || shown.ExpiresAt != first.ExpiresAt {
		t.Errorf("proposed as %+v, restored as %+v", first, shown)
	}
	h.expectRefusal("POST", "/registry/approvals/"+first.ProposalID, alice.approve(first), "DuplicateApproval")
	h.call("POST", "/registry/approvals/"+first.ProposalID, bob.approve(first), nil, 200)
	h.call("POST", "/registry/commit/"+first.ProposalID, nil, nil, 201)
	h.removeDropped(h.ctx())
	if names := pendingNames(t, j); len(names) != 2 || names[0] != other.ProposalID || names[1] != other.ProposalID+" approved" {
		t.Errorf("the storage keeps %v", names)
	}
	h.close()

	// One that was approved by all is committed after the next restart.
	h = startRegistry(t, withJournal(openFolder(t, folder)))
	h.call("POST", "/registry/approvals/"+other.ProposalID, carol.approve(other), nil, 200)
	h.call("POST", "/registry/commit/"+other.ProposalID, nil, nil, 201)
}

// Of what the storage kept, nothing is believed: an approval that is not one of the
// signer does not count, and what cannot be committed any more is dropped.
func TestRestoredProposalsAreVerified(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "registry")
	j := openFolder(t, folder)
	h := startRegistry(t, withJournal(j))
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	same := h.proposeApproved([]json.RawMessage{putName("docs", "2")}, alice, bob)
	forged := alice.approve(p)
	store := j.(journal.PendingStore)
	text, err := json.Marshal(forged)
	testkit.Must(t, err)
	var approval map[string]any
	testkit.Must(t, json.Unmarshal(text, &approval))
	approval["signer_id"] = "bob"
	text, err = json.Marshal(approval)
	testkit.Must(t, err)
	testkit.Must(t, store.SavePending(t.Context(), journal.PendingKey{Proposal: p.ProposalID, Signer: "bob"}, text))
	testkit.Must(t, store.SavePending(t.Context(), journal.PendingKey{Proposal: "nonsense"}, []byte("nonsense")))
	h.close()

	h = startRegistry(t, withJournal(openFolder(t, folder)))
	var shown client.Proposal
	h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &shown, 200)
	if len(shown.Approvals) != 1 {
		t.Errorf("a forged approval counts: %+v", shown.Approvals)
	}
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "QuorumFailed")
	h.call("POST", "/registry/commit/"+same.ProposalID, nil, nil, 201)
	h.close()

	j = openFolder(t, folder)
	h = startRegistry(t, withJournal(j))
	h.expectRefusal("GET", "/registry/proposals/"+p.ProposalID, nil, "NotFound")
	if dropped := h.flushedEvents(EventDropped); len(dropped) == 0 {
		t.Error("nothing was said about the proposals that were dropped")
	}
	h.removeDropped(h.ctx())
	for _, name := range pendingNames(t, j) {
		if name == p.ProposalID || name == p.ProposalID+" approved" {
			t.Errorf("the storage still keeps %s", name)
		}
	}
}

// fullJournal keeps no proposals: its disk is full.
type fullJournal struct{ *journal.Files }

func (fullJournal) SavePending(context.Context, journal.PendingKey, []byte) error {
	return fault.New("journal.save_pending", fault.StoreFull, "the disk is full")
}

// What cannot be kept is not acknowledged.
func TestAProposalThatCannotBeKeptIsRefused(t *testing.T) {
	h := startRegistry(t, withJournal(fullJournal{openFolder(t, t.TempDir()).(*journal.Files)}))
	h.init()
	h.expectRefusal("POST", "/registry/proposals", map[string]any{"schema_version": "1.0.0", "ops": []json.RawMessage{putName("docs", "1")}}, "StoreFull")
	if open := h.pending.listOpen(time.Now()); len(open) != 0 {
		t.Errorf("%d are open", len(open))
	}
}

// A log in memory keeps nothing, and says how much that is.
func TestWhatIsLostWithALogInMemory(t *testing.T) {
	h := startRegistry(t)
	h.init()
	h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	if proposals, approvals := h.PendingLoss(); proposals != 1 || approvals != 1 {
		t.Errorf("%d proposals and %d approvals are said to be lost", proposals, approvals)
	}
}

// aheadJournal is a journal on which another node has committed since it was read.
type aheadJournal struct {
	*journal.Files
	ahead bool
}

func (a *aheadJournal) Head(ctx context.Context) (ledger.Head, error) {
	head, err := a.Files.Head(ctx)
	if a.ahead {
		head.Version++
	}
	return head, err
}

func (a *aheadJournal) ScanPending(ctx context.Context, visit func(proposal string, isApproval bool, value []byte) error) error {
	a.ahead = true
	return a.Files.ScanPending(ctx, visit)
}

// What another node has proposed on a version that this one has not read is not dropped.
func TestProposalsOfAnotherNodeAreLeft(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "registry")
	j := openFolder(t, folder)
	h := startRegistry(t, withJournal(j))
	h.init()
	testkit.Must(t, j.(journal.PendingStore).SavePending(t.Context(), journal.PendingKey{Proposal: "later"}, []byte("on the next version")))
	h.close()

	h = startRegistry(t, withJournal(&aheadJournal{Files: openFolder(t, folder).(*journal.Files)}))
	h.close()
	j = openFolder(t, folder)
	if names := pendingNames(t, j); len(names) != 1 {
		t.Errorf("the storage keeps %v", names)
	}
	testkit.Must(t, j.Close())
}
