package registry

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/testkit"
)

// fakeClock is a clock that a test advances.
type fakeClock struct{ off atomic.Int64 }

func (f *fakeClock) now() time.Time           { return time.Now().Add(time.Duration(f.off.Load())) }
func (f *fakeClock) advance(by time.Duration) { f.off.Add(int64(by)) }
func (f *fakeClock) option() option           { return func(s *Spec) { s.clock = f.now } }
func (f *fakeClock) approve(s signer, p client.Proposed) client.Approval {
	a := s.approve(p)
	a.SignedAt = f.now().UTC().Truncate(time.Millisecond)
	return a
}

// An expired proposal can be neither approved nor committed, and shows as expired.
func TestExpired(t *testing.T) {
	var clock fakeClock
	h := startRegistry(t, clock.option())
	h.init()
	asked := proposalRequest(putName("docs", "1"))
	asked.TTL = 600
	var p client.Proposed
	h.call("POST", "/registry/proposals", asked, &p, 202)
	h.call("POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), nil, 200)
	h.call("POST", "/registry/approvals/"+p.ProposalID, bob.approve(p), nil, 200)
	clock.advance(10 * time.Minute)
	h.expectWriteRefused("approve", "POST", "/registry/approvals/"+p.ProposalID, clock.approve(carol, p), "Expired")
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Expired")
	var proposal client.Proposal
	h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &proposal, 200)
	if proposal.Status != client.ProposalExpired || proposal.ProposalID != p.ProposalID {
		t.Errorf("the proposal is %+v", proposal)
	}
	var list client.ProposalList
	if h.call("GET", "/registry/proposals", nil, &list, 200); len(list.Proposals) != 0 {
		t.Errorf("it is listed as %+v", list.Proposals)
	}
	h.pending.expire(h.now()) // as runStorageHealth does
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Expired")
	if h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &proposal, 200); proposal.Status != client.ProposalExpired || proposal.PayloadB3 != p.PayloadB3 {
		t.Errorf("then it is %+v", proposal)
	}
	clock.advance(-10 * time.Minute) // it stays so, whatever the clock does
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Expired")
}

// A proposal that expires while it is being written was committed in time, and shows
// as committed everywhere: to the client, on its page, and in the audit log.
func TestWhatExpiresWhileItIsWrittenIsCommitted(t *testing.T) {
	for what, wrong := range map[string]writeFault{"all goes well": {}, "the answer is lost": {err: errAnswerLost, persisted: true}} {
		t.Run(what, func(t *testing.T) {
			var clock fakeClock
			j := &faultyJournal{Journal: newRAMJournal()}
			h := startRegistry(t, withJournal(j), clock.option(), withConfig(func(c *Config) { c.Storage.Timeout = time.Minute }))
			h.init()
			p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
			j.failNext(wrong)
			release := j.blockWrites()
			ended := make(chan error, 1)
			go func() {
				_, err := h.Commit(t.Context(), p.ProposalID)
				ended <- err
			}()
			testkit.WaitFor(t, "the storage blocks", j.isBlocking)
			clock.advance(2 * time.Hour)
			h.pending.expire(h.now()) // as runStorageHealth does
			release()
			if err := <-ended; err != nil {
				t.Errorf("who asked for it is told %v", err)
			}
			var proposal client.Proposal
			h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &proposal, 200)
			if proposal.Status != client.ProposalCommitted || proposal.Version == nil || *proposal.Version != 1 {
				t.Errorf("it is shown as %s, %v", proposal.Status, proposal.Version)
			}
			if n, events := h.metricSum("registry_updates_total", "result=committed"), h.flushedEvents(EventCommitted); n != 1 || len(events) != 1 || events[0].Version != 1 {
				t.Errorf("counted %v times, told as %+v", n, events)
			}
			h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
		})
	}
}

// The time in the log never goes back, however the clock of the node jumps.
func TestAClockThatJumps(t *testing.T) {
	var clock fakeClock
	h := startRegistry(t, clock.option())
	h.init()
	commit := func(id string) (client.RegistryHead, time.Time) {
		var p client.Proposed
		asked := proposalRequest(putName(id, "1"))
		asked.TTL = 60
		h.call("POST", "/registry/proposals", asked, &p, 202)
		for _, s := range []signer{alice, bob} {
			h.call("POST", "/registry/approvals/"+p.ProposalID, clock.approve(s, p), nil, 200)
		}
		var head client.RegistryHead
		h.call("POST", "/registry/commit/"+p.ProposalID, nil, &head, 201)
		return head, p.ExpiresAt
	}
	first, _ := commit("a")
	clock.advance(20 * time.Minute)
	forward, _ := commit("b")
	if forward.CommittedAt.Before(first.CommittedAt.Add(19 * time.Minute)) {
		t.Errorf("the clock went forward, and the log from %s to %s", first.CommittedAt, forward.CommittedAt)
	}
	clock.advance(-40 * time.Minute)
	back, expires := commit("c")
	if back.CommittedAt.Before(forward.CommittedAt) || back.CommittedAt.After(expires) {
		t.Errorf("the clock went back, and the log from %s to %s", forward.CommittedAt, back.CommittedAt)
	}
	h.mustVerify()
}
