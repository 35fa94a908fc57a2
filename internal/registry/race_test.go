package registry

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"micronode/client"
)

// Of many commits of one proposal at the same time, one succeeds, and the others are
// refused because it was committed.
func TestCommitsOfOneProposalRace(t *testing.T) {
	for _, storage := range []struct {
		name string
		make func(t *testing.T) Journal
	}{
		{"in memory", func(*testing.T) Journal { return newRAMJournal() }},
		{"in files", func(t *testing.T) Journal { return openFiles(t, t.TempDir()) }},
	} {
		t.Run(storage.name, func(t *testing.T) {
			h := startRegistry(t, withJournal(storage.make(t)))
			h.init()
			for round := range 5 {
				p := h.proposeApproved([]json.RawMessage{putName(fmt.Sprintf("n%d", round), "1")}, alice, bob)
				codes := h.concurrently(16, func(int) (string, string, any) { return "POST", "/registry/commit/" + p.ProposalID, nil })
				if codes["201"] != 1 || codes["Conflict"] != 15 {
					t.Errorf("round %d: %v", round, codes)
				}
			}
			if head, _ := h.Head(); head.Version != 5 {
				t.Errorf("the head is %d", head.Version)
			}
		})
	}
}

// concurrently sends requests at the same time and counts their results: a status, or
// the code of a refusal.
func (r *testRegistry) concurrently(n int, what func(i int) (method, path string, body any)) map[string]int {
	var mu sync.Mutex
	codes, ready := map[string]int{}, make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			method, path, body := what(i)
			<-ready
			status, data := r.send(r.ctx(), method, path, body)
			var problem struct{ Code string }
			_ = json.Unmarshal(data, &problem) // an answer of another shape has no code
			if problem.Code == "" {
				problem.Code = fmt.Sprint(status)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[problem.Code]++
		})
	}
	close(ready)
	all.Wait()
	return codes
}

// Of proposals on the same item one is committed; those on others do not
// disturb it, nor each other.
func TestProposalsOnTheSameItemAndOnOthers(t *testing.T) {
	h := startRegistry(t)
	h.init()
	var same, others []client.Proposed
	for i := range 8 {
		same = append(same, h.proposeApproved([]json.RawMessage{putName("docs", fmt.Sprint(i)), putName(fmt.Sprintf("beside%d", i), "1")}, alice, bob))
		others = append(others, h.proposeApproved([]json.RawMessage{putName(fmt.Sprintf("n%d", i), "1")}, bob, carol))
	}
	codes := h.concurrently(16, func(i int) (string, string, any) {
		return "POST", "/registry/commit/" + append(same, others...)[i].ProposalID, nil
	})
	if codes["201"] != 9 || codes["Conflict"] != 7 {
		t.Errorf("%v", codes)
	}
	var head client.RegistryHead
	h.call("GET", "/registry/head", nil, &head, 200)
	if head.Version != 9 {
		t.Errorf("the head is %d", head.Version)
	}
	for _, p := range same { // those that lost are still open, and stay refused
		var proposal client.Proposal
		if h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &proposal, 200); proposal.Status == client.ProposalOpen {
			h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
		}
	}
}

// Of several requests to begin a registry at the same time, one succeeds.
func TestBeginningsRace(t *testing.T) {
	h := startRegistry(t)
	codes := h.concurrently(8, func(int) (string, string, any) { return "POST", "/registry/init", initRequest(1, alice) })
	if codes["201"] != 1 || codes["Conflict"] != 7 {
		t.Errorf("%v", codes)
	}
	if head, ok := h.Head(); !ok || head.Version != 0 {
		t.Errorf("the head is %d", head.Version)
	}
}

// Approvals that arrive over many connections at the same time all count.
func TestApprovalsRace(t *testing.T) {
	h := startRegistry(t)
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")})
	team := []signer{alice, bob, carol}
	codes := h.concurrently(12, func(i int) (string, string, any) {
		return "POST", "/registry/approvals/" + p.ProposalID, team[i%3].approve(p)
	})
	if codes["200"] != 3 || codes["DuplicateApproval"] != 9 {
		t.Errorf("%v", codes)
	}
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
	var version client.RegistryVersion
	if h.call("GET", "/registry/1", nil, &version, 200); len(version.Approvals) != 3 {
		t.Errorf("%d approvals are kept", len(version.Approvals))
	}
}
