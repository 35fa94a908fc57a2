package registry

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"micronode/client"
)

// Of many commits of one proposal at the same time, one is told that it is
// committed, and the others that it was.
func TestCommitsOfOneProposalRace(t *testing.T) {
	for _, storage := range []struct {
		name string
		make func(t *testing.T) Journal
	}{
		{"in memory", func(*testing.T) Journal { return inMemory() }},
		{"in files", func(t *testing.T) Journal { return files(t, t.TempDir()) }},
	} {
		t.Run(storage.name, func(t *testing.T) {
			h := open(t, on(storage.make(t)))
			h.init()
			for round := range 5 {
				p := h.proposed([]json.RawMessage{name(fmt.Sprintf("n%d", round), "1")}, alice, bob)
				told := h.together(16, func(int) (string, string, any) { return "POST", "/registry/commit/" + p.ProposalID, nil })
				if told["201"] != 1 || told["Conflict"] != 15 {
					t.Errorf("round %d: %v", round, told)
				}
			}
			if head, _ := h.Head(); head.Version != 5 {
				t.Errorf("the head is %d", head.Version)
			}
		})
	}
}

// together sends requests at the same time and counts what comes of them: a
// status, or the code of a refusal.
func (h *house) together(n int, what func(i int) (method, path string, body any)) map[string]int {
	var mu sync.Mutex
	told, ready := map[string]int{}, make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			method, path, body := what(i)
			<-ready
			status, data := h.try(h.ctx(), method, path, body)
			var problem struct{ Code string }
			_ = json.Unmarshal(data, &problem) // an answer of another shape has no code
			if problem.Code == "" {
				problem.Code = fmt.Sprint(status)
			}
			mu.Lock()
			defer mu.Unlock()
			told[problem.Code]++
		})
	}
	close(ready)
	all.Wait()
	return told
}

// Of proposals on the same item one is committed; those on others do not
// disturb it, nor each other.
func TestProposalsOnTheSameItemAndOnOthers(t *testing.T) {
	h := open(t)
	h.init()
	var same, others []client.Proposed
	for i := range 8 {
		same = append(same, h.proposed([]json.RawMessage{name("docs", fmt.Sprint(i)), name(fmt.Sprintf("beside%d", i), "1")}, alice, bob))
		others = append(others, h.proposed([]json.RawMessage{name(fmt.Sprintf("n%d", i), "1")}, bob, carol))
	}
	told := h.together(16, func(i int) (string, string, any) {
		return "POST", "/registry/commit/" + append(same, others...)[i].ProposalID, nil
	})
	if told["201"] != 9 || told["Conflict"] != 7 {
		t.Errorf("%v", told)
	}
	var head client.RegistryHead
	h.call("GET", "/registry/head", nil, &head, 200)
	if head.Version != 9 {
		t.Errorf("the head is %d", head.Version)
	}
	for _, p := range same { // those that lost are still open, and stay refused
		var proposal client.Proposal
		if h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &proposal, 200); proposal.Status == client.ProposalOpen {
			h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
		}
	}
}

// Of beginnings at the same time there is one.
func TestBeginningsRace(t *testing.T) {
	h := open(t)
	told := h.together(8, func(int) (string, string, any) { return "POST", "/registry/init", initRequest(1, alice) })
	if told["201"] != 1 || told["Conflict"] != 7 {
		t.Errorf("%v", told)
	}
	if head, ok := h.Head(); !ok || head.Version != 0 {
		t.Errorf("the head is %d", head.Version)
	}
}

// A team that shares its approvals over many connections at the same time loses
// none of them.
func TestApprovalsRace(t *testing.T) {
	h := open(t)
	h.init()
	p := h.proposed([]json.RawMessage{name("docs", "1")})
	team := []signer{alice, bob, carol}
	told := h.together(12, func(i int) (string, string, any) {
		return "POST", "/registry/approvals/" + p.ProposalID, team[i%3].approve(p)
	})
	if told["200"] != 3 || told["DuplicateApproval"] != 9 {
		t.Errorf("%v", told)
	}
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
	var version client.RegistryVersion
	if h.call("GET", "/registry/1", nil, &version, 200); len(version.Approvals) != 3 {
		t.Errorf("%d approvals are kept", len(version.Approvals))
	}
}
