package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"micronode/client"
	"micronode/internal/testkit"
)

// Whatever is proposed, approved and committed, in any order, and however the
// signers change: versions go up by one, each was approved by enough of those who
// were signers then, and all of it can be verified independently.
func TestAnyHistoryCanBeVerified(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newModelHistory(t, rt)
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

// modelHistory is a registry, and a model of it.
type modelHistory struct {
	*testRegistry
	rt         *rapid.T
	folder     string
	trust      Trust
	allSigners []signer // all who ever sign

	m             int
	signers       []signer // those who may sign now
	since         uint64   // since which version
	openProposals []*modelProposal
	quorums       []int    // how many had to sign each version
	approvers     []string // of those who could, for each version
}

// modelProposal is a proposal in the model.
type modelProposal struct {
	client.Proposed
	since     uint64   // the signers' version when it was made
	m         int      // the quorum that it sets; zero if it sets none
	signers   []signer // the signers that it sets
	approvers []string // who approved, successfully
}

func newModelHistory(t *testing.T, rt *rapid.T) *modelHistory {
	s := &modelHistory{rt: rt, folder: t.TempDir()}
	for i := range 5 {
		s.allSigners = append(s.allSigners, newSigner(fmt.Sprintf("signer-%d", i)))
	}
	s.m, s.signers = s.drawSigners(rt)
	s.testRegistry = startRegistry(t, withJournal(openFiles(t, s.folder)))
	var begun client.Initialised
	s.call("POST", "/registry/init", initRequest(s.m, s.signers...), &begun, 201)
	s.trust = Trust{Registry: &begun.Registry, Key: begun.Key}
	s.quorums, s.approvers = []int{0}, []string{""}
	return s
}

// drawSigners picks who may sign, and how many must.
func (m *modelHistory) drawSigners(rt *rapid.T) (int, []signer) {
	all := rapid.Permutation(m.allSigners).Draw(rt, "team")
	team := all[:rapid.IntRange(1, len(all)).Draw(rt, "n")]
	return rapid.IntRange(1, len(team)).Draw(rt, "m"), team
}

func (m *modelHistory) proposeName(rt *rapid.T) {
	id, value := rapid.IntRange(0, 4).Draw(rt, "item"), rapid.IntRange(0, 1000).Draw(rt, "value")
	m.put(&modelProposal{}, putName(fmt.Sprintf("item%d", id), fmt.Sprint(value)))
}

func (m *modelHistory) proposeSigners(rt *rapid.T) {
	p := &modelProposal{}
	p.m, p.signers = m.drawSigners(rt)
	m.put(p, putSigners(p.m, p.signers...))
}

// put proposes. It may be refused only because nothing would change.
func (m *modelHistory) put(p *modelProposal, op json.RawMessage) {
	status, data := m.send(m.ctx(), "POST", "/registry/proposals", proposalRequest(op))
	if status == 409 {
		return
	}
	testkit.Must(m.t, json.Unmarshal(data, &p.Proposed))
	p.since = m.since
	m.openProposals = append(m.openProposals, p)
}

// pick returns one of the newest proposals.
func (m *modelHistory) pick(rt *rapid.T) *modelProposal {
	if len(m.openProposals) == 0 {
		rt.Skip()
	}
	return m.openProposals[len(m.openProposals)-1-rapid.IntRange(0, min(3, len(m.openProposals)-1)).Draw(rt, "proposal")]
}

// approveSome has some of allSigners sign, whether they may or not.
func (m *modelHistory) approveSome(rt *rapid.T) {
	p := m.pick(rt)
	for _, who := range rapid.Permutation(m.allSigners).Draw(rt, "who")[:rapid.IntRange(1, 5).Draw(rt, "how many")] {
		status, data := m.send(m.ctx(), "POST", "/registry/approvals/"+p.ProposalID, who.approve(p.Proposed))
		may := p.since == m.since && slices.ContainsFunc(m.signers, func(t signer) bool { return t.id == who.id })
		if status == 200 && (!may || slices.Contains(p.approvers, who.id)) {
			rt.Fatalf("%s may not approve, and did: %s", who.id, data)
		}
		if status == 200 {
			p.approvers = append(p.approvers, who.id)
		}
	}
}

func (m *modelHistory) commitSome(rt *rapid.T) {
	p := m.pick(rt)
	before, _ := m.Head()
	status, data := m.send(m.ctx(), "POST", "/registry/commit/"+p.ProposalID, nil)
	if status != 201 {
		if after, _ := m.Head(); after != before {
			rt.Fatalf("refused, and the head went from %d to %d", before.Version, after.Version)
		}
		return
	}
	var head client.RegistryHead
	testkit.Must(m.t, json.Unmarshal(data, &head))
	if head.Version != before.Version+1 || p.since != m.since || len(p.approvers) < m.m {
		rt.Fatalf("version %d after %d, approved by %v under %d of version %d, with %d of version %d in force",
			head.Version, before.Version, p.approvers, len(p.approvers), p.since, m.m, m.since)
	}
	m.quorums, m.approvers = append(m.quorums, m.m), append(m.approvers, fmt.Sprint(p.approvers))
	if p.signers != nil {
		m.m, m.signers, m.since = p.m, p.signers, head.Version
	}
}

func (m *modelHistory) checkpointNow(*rapid.T) {
	testkit.Must(m.t, m.saveCheckpoint(m.ctx(), m.view.Load()))
}

// reopen stops the node and starts it again. Its proposals are gone.
func (m *modelHistory) reopen(*rapid.T) {
	head, _ := m.Head()
	m.close()
	m.testRegistry = startRegistry(m.t, withJournal(openFiles(m.t, m.folder)))
	if again, _ := m.Head(); again != head {
		m.rt.Fatalf("the head was %d and is %d", head.Version, again.Version)
	}
	m.openProposals = nil
}

// audit verifies everything independently: over HTTP, and then in the folder.
func (m *modelHistory) audit() {
	head, _ := m.Head()
	auditor := NewAuditor(m.trust, head.Version+1)
	for number := range head.Version + 1 {
		var v client.RegistryVersion
		m.call("GET", fmt.Sprintf("/registry/%d", number), nil, &v, 200)
		if err := auditor.Add(v.Header, v.Payload, v.Preconditions); err != nil || v.Version != number {
			m.rt.Fatalf("version %d: %v", number, err)
		}
		by := map[string]bool{}
		for _, a := range v.Approvals {
			if !slices.ContainsFunc(v.SignerSet.Keys, func(k client.RegistryKey) bool { return k.Public == a.Public }) {
				m.rt.Fatalf("version %d was approved by %s, who is no signer", number, a.SignerID)
			}
			by[a.Public] = true
		}
		if len(by) != len(v.Approvals) || len(by) < m.quorums[number] {
			m.rt.Fatalf("version %d has the approvals of %d, and needed %d (%s)", number, len(by), m.quorums[number], m.approvers[number])
		}
		bundle := m.call("GET", fmt.Sprintf("/registry/bundle/%d", number), nil, nil, 200)
		if _, err := VerifyBundle(bundle, m.trust); err != nil {
			m.rt.Fatalf("the bundle of version %d: %v", number, err)
		}
	}
	report, err := auditor.Finish(m.testRegistry.call("GET", "/registry/log/checkpoint", nil, nil, 200))
	if err != nil || report.Head != head || report.Signed != head.Version+1 || len(report.Assumptions) > 0 {
		m.rt.Fatalf("audited as %+v, %v", report, err)
	}
	m.testRegistry.close()
	report, err = VerifyFolder(m.ctx(), m.folder, m.trust, nil)
	if err != nil || report.Head != head {
		m.rt.Fatalf("the folder: %+v, %v", report, err)
	}
}
