package registry

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"micronode/client"
)

// dial is a clock that somebody turns.
type dial struct{ off atomic.Int64 }

func (d *dial) now() time.Time        { return time.Now().Add(time.Duration(d.off.Load())) }
func (d *dial) turn(by time.Duration) { d.off.Add(int64(by)) }
func (d *dial) setting() setting      { return func(s *Spec) { s.clock = d.now } }
func (d *dial) approve(s signer, p client.Proposed) client.Approval {
	a := s.approve(p)
	a.SignedAt = d.now().UTC().Truncate(time.Millisecond)
	return a
}

// What has expired can be neither approved nor committed, and says so.
func TestExpired(t *testing.T) {
	var clock dial
	h := open(t, clock.setting())
	h.init()
	asked := request(name("docs", "1"))
	asked.TTL = 600
	var p client.Proposed
	h.call("POST", "/registry/proposals", asked, &p, 202)
	h.call("POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), nil, 200)
	h.call("POST", "/registry/approvals/"+p.ProposalID, bob.approve(p), nil, 200)
	clock.turn(10 * time.Minute)
	h.turnedAway("approve", "POST", "/registry/approvals/"+p.ProposalID, clock.approve(carol, p), "Expired")
	h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Expired")
	var told client.Proposal
	h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &told, 200)
	if told.Status != client.ProposalExpired || told.ProposalID != p.ProposalID {
		t.Errorf("the proposal is %+v", told)
	}
	var list client.ProposalList
	if h.call("GET", "/registry/proposals", nil, &list, 200); len(list.Proposals) != 0 {
		t.Errorf("it is listed as %+v", list.Proposals)
	}
	h.docket.expire(h.now()) // as the gate does
	h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Expired")
	if h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &told, 200); told.Status != client.ProposalExpired || told.PayloadB3 != p.PayloadB3 {
		t.Errorf("then it is %+v", told)
	}
	clock.turn(-10 * time.Minute) // it stays so, whatever the clock does
	h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Expired")
}

// A proposal whose time ends while the storage is at it was committed in time,
// and everybody is told so: who asked for it, who looks at it, and the record.
func TestWhatExpiresWhileItIsWrittenIsCommitted(t *testing.T) {
	for what, wrong := range map[string]mishap{"all goes well": {}, "the answer is lost": {err: lost, kept: true}} {
		t.Run(what, func(t *testing.T) {
			var clock dial
			j := &fickle{Journal: inMemory()}
			h := open(t, on(j), clock.setting(), with(func(c *Config) { c.Storage.Timeout = time.Minute }))
			h.init()
			p := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
			j.goWrong(wrong)
			release := j.hold()
			ended := make(chan error, 1)
			go func() {
				_, err := h.Commit(t.Context(), p.ProposalID)
				ended <- err
			}()
			waitFor(t, j.waiting)
			clock.turn(2 * time.Hour)
			h.docket.expire(h.now()) // as the gate does
			release()
			if err := <-ended; err != nil {
				t.Errorf("who asked for it is told %v", err)
			}
			var told client.Proposal
			h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &told, 200)
			if told.Status != client.ProposalCommitted || told.Version == nil || *told.Version != 1 {
				t.Errorf("it is shown as %s, %v", told.Status, told.Version)
			}
			if n, events := h.count("registry_updates_total", "result=committed"), h.told(CommittedNow); n != 1 || len(events) != 1 || events[0].Version != 1 {
				t.Errorf("counted %v times, told as %+v", n, events)
			}
			h.turnedAway("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
		})
	}
}

// The time in the log never goes back, however the clock of the node jumps.
func TestAClockThatJumps(t *testing.T) {
	var clock dial
	h := open(t, clock.setting())
	h.init()
	commit := func(id string) (client.RegistryHead, time.Time) {
		var p client.Proposed
		asked := request(name(id, "1"))
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
	clock.turn(20 * time.Minute)
	forward, _ := commit("b")
	if forward.CommittedAt.Before(first.CommittedAt.Add(19 * time.Minute)) {
		t.Errorf("the clock went forward, and the log from %s to %s", first.CommittedAt, forward.CommittedAt)
	}
	clock.turn(-40 * time.Minute)
	back, expires := commit("c")
	if back.CommittedAt.Before(forward.CommittedAt) || back.CommittedAt.After(expires) {
		t.Errorf("the clock went back, and the log from %s to %s", forward.CommittedAt, back.CommittedAt)
	}
	must(t, h.verifyRound(t.Context()))
}
