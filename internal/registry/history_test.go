package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"micronode/client"
)

// Whatever people propose, approve and commit, in whatever order, and however
// the signers change: versions go up by one, none was committed without enough
// of those who were signers then, and a stranger can verify all of it.
func TestAnyHistoryCanBeVerified(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStory(t, rt)
		defer s.close()
		rt.Repeat(map[string]func(*rapid.T){
			"name":       s.proposeName,
			"signers":    s.proposeSigners,
			"approve":    s.approveSome,
			"commit":     s.commitSome,
			"commit too": s.commitSome,
			"checkpoint": s.checkpointNow,
			"reopen":     s.reopen,
		})
		s.audit()
	})
}

// story is a registry, and what a careful observer knows of it.
type story struct {
	*house
	rt     *rapid.T
	folder string
	trust  Trust
	crowd  []signer // all who ever sign

	m     int
	team  []signer // those who may sign now
	since uint64   // since which version
	open  []*plan
	teams []int    // how many had to sign each version
	names []string // of those who could, for each version
}

// plan is a proposal as the observer has it.
type plan struct {
	client.Proposed
	since uint64   // the signers' version when it was made
	m     int      // what it makes of the quorum; zero if it is about something else
	team  []signer // and of the signers
	by    []string // who approved, successfully
}

func newStory(t *testing.T, rt *rapid.T) *story {
	s := &story{rt: rt, folder: t.TempDir()}
	for i := range 5 {
		s.crowd = append(s.crowd, newSigner(fmt.Sprintf("signer-%d", i)))
	}
	s.m, s.team = s.drawTeam(rt)
	s.house = open(t, on(files(t, s.folder)))
	var begun client.Initialised
	s.call("POST", "/registry/init", initRequest(s.m, s.team...), &begun, 201)
	s.trust = Trust{Registry: &begun.Registry, Key: begun.Key}
	s.teams, s.names = []int{0}, []string{""}
	return s
}

// drawTeam picks who may sign, and how many must.
func (s *story) drawTeam(rt *rapid.T) (int, []signer) {
	all := rapid.Permutation(s.crowd).Draw(rt, "team")
	team := all[:rapid.IntRange(1, len(all)).Draw(rt, "n")]
	return rapid.IntRange(1, len(team)).Draw(rt, "m"), team
}

func (s *story) proposeName(rt *rapid.T) {
	id, value := rapid.IntRange(0, 4).Draw(rt, "item"), rapid.IntRange(0, 1000).Draw(rt, "value")
	s.put(&plan{}, name(fmt.Sprintf("item%d", id), fmt.Sprint(value)))
}

func (s *story) proposeSigners(rt *rapid.T) {
	p := &plan{}
	p.m, p.team = s.drawTeam(rt)
	s.put(p, signers(p.m, p.team...))
}

// put proposes. Only that nothing would change is a reason to refuse.
func (s *story) put(p *plan, op json.RawMessage) {
	status, data := s.try(s.ctx(), "POST", "/registry/proposals", request(op))
	if status == 409 {
		return
	}
	must(s.t, json.Unmarshal(data, &p.Proposed))
	p.since = s.since
	s.open = append(s.open, p)
}

// pick is one of the newest proposals.
func (s *story) pick(rt *rapid.T) *plan {
	if len(s.open) == 0 {
		rt.Skip()
	}
	return s.open[len(s.open)-1-rapid.IntRange(0, min(3, len(s.open)-1)).Draw(rt, "proposal")]
}

// approveSome has some of the crowd sign, whether they may or not.
func (s *story) approveSome(rt *rapid.T) {
	p := s.pick(rt)
	for _, who := range rapid.Permutation(s.crowd).Draw(rt, "who")[:rapid.IntRange(1, 5).Draw(rt, "how many")] {
		status, data := s.try(s.ctx(), "POST", "/registry/approvals/"+p.ProposalID, who.approve(p.Proposed))
		may := p.since == s.since && slices.ContainsFunc(s.team, func(t signer) bool { return t.id == who.id })
		if status == 200 && (!may || slices.Contains(p.by, who.id)) {
			rt.Fatalf("%s may not approve, and did: %s", who.id, data)
		}
		if status == 200 {
			p.by = append(p.by, who.id)
		}
	}
}

func (s *story) commitSome(rt *rapid.T) {
	p := s.pick(rt)
	before, _ := s.Head()
	status, data := s.try(s.ctx(), "POST", "/registry/commit/"+p.ProposalID, nil)
	if status != 201 {
		if after, _ := s.Head(); after != before {
			rt.Fatalf("refused, and the head went from %d to %d", before.Version, after.Version)
		}
		return
	}
	var head client.RegistryHead
	must(s.t, json.Unmarshal(data, &head))
	if head.Version != before.Version+1 || p.since != s.since || len(p.by) < s.m {
		rt.Fatalf("version %d after %d, approved by %v under %d of version %d, with %d of version %d in force",
			head.Version, before.Version, p.by, len(p.by), p.since, s.m, s.since)
	}
	s.teams, s.names = append(s.teams, s.m), append(s.names, fmt.Sprint(p.by))
	if p.team != nil {
		s.m, s.team, s.since = p.m, p.team, head.Version
	}
}

func (s *story) checkpointNow(*rapid.T) { must(s.t, s.keepCheckpoint(s.ctx(), s.view.Load())) }

// reopen stops the node and starts it again. Its proposals are gone.
func (s *story) reopen(*rapid.T) {
	head, _ := s.Head()
	s.close()
	s.house = open(s.t, on(files(s.t, s.folder)))
	if again, _ := s.Head(); again != head {
		s.rt.Fatalf("the head was %d and is %d", head.Version, again.Version)
	}
	s.open = nil
}

// audit is a stranger who reads everything over HTTP, and then looks into the
// folder.
func (s *story) audit() {
	head, _ := s.Head()
	auditor := NewAuditor(s.trust, head.Version+1)
	for number := range head.Version + 1 {
		var v client.RegistryVersion
		s.call("GET", fmt.Sprintf("/registry/%d", number), nil, &v, 200)
		if err := auditor.Add(v.Header, v.Payload, v.Preconditions); err != nil || v.Version != number {
			s.rt.Fatalf("version %d: %v", number, err)
		}
		by := map[string]bool{}
		for _, a := range v.Approvals {
			if !slices.ContainsFunc(v.SignerSet.Keys, func(k client.RegistryKey) bool { return k.Public == a.Public }) {
				s.rt.Fatalf("version %d was approved by %s, who is no signer", number, a.SignerID)
			}
			by[a.Public] = true
		}
		if len(by) != len(v.Approvals) || len(by) < s.teams[number] {
			s.rt.Fatalf("version %d has the approvals of %d, and needed %d (%s)", number, len(by), s.teams[number], s.names[number])
		}
		bundle := s.call("GET", fmt.Sprintf("/registry/bundle/%d", number), nil, nil, 200)
		if _, err := VerifyBundle(bundle, s.trust); err != nil {
			s.rt.Fatalf("the bundle of version %d: %v", number, err)
		}
	}
	report, err := auditor.Finish(s.house.call("GET", "/registry/log/checkpoint", nil, nil, 200))
	if err != nil || report.Head != head || report.Signed != head.Version+1 || len(report.OnTrust) > 0 {
		s.rt.Fatalf("audited as %+v, %v", report, err)
	}
	s.house.close()
	report, err = VerifyFolder(s.ctx(), s.folder, s.trust, nil)
	if err != nil || report.Head != head {
		s.rt.Fatalf("the folder: %+v, %v", report, err)
	}
}
