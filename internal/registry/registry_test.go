package registry

import (
	"encoding/json"
	"testing"

	"micronode/client"
)

// A small team governs a list: what a stranger sees of it.
func TestATeamOfTwoOutOfThree(t *testing.T) {
	h := open(t)
	h.refused("GET", "/registry/head", nil, "NotFound")
	begun := h.init()
	if begun.Registry != begun.Head.Hash || begun.Head.Version != 0 {
		t.Fatalf("begun as %+v", begun)
	}
	h.refused("POST", "/registry/init", initRequest(1, alice), "Conflict")

	p := h.proposed([]json.RawMessage{name("docs", "1")}, alice)
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "QuorumFailed")
	h.refused("POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), "DuplicateApproval")
	var approved client.Approved
	h.call("POST", "/registry/approvals/"+p.ProposalID, carol.approve(p), &approved, 200)
	if approved.Status != "accepted" || approved.Approvals != 2 || approved.Quorum != (client.Quorum{M: 2, N: 3}) {
		t.Fatalf("approved as %+v", approved)
	}
	var committed, head client.RegistryHead
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, &committed, 201)
	h.call("GET", "/registry/head", nil, &head, 200)
	if committed != head || head.Version != 1 || head.PayloadB3 != p.PayloadB3 {
		t.Fatalf("committed %+v, the head is %+v", committed, head)
	}
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
	h.refused("POST", "/registry/approvals/"+p.ProposalID, bob.approve(p), "Conflict")

	var version client.RegistryVersion
	h.call("GET", "/registry/1", nil, &version, 200)
	if version.Hash != head.Hash || version.PrevHash != begun.Head.Hash || len(version.Items) != 2 || len(version.Ops) != 1 || len(version.Approvals) != 2 {
		t.Fatalf("version 1 is %+v", version)
	}
	h.refused("GET", "/registry/2", nil, "NotFound")
	h.refused("GET", "/registry/01", nil, "Malformed")

	bundle := h.call("GET", "/registry/bundle/1", nil, nil, 200)
	if _, err := VerifyBundle(bundle, Trust{Registry: &begun.Registry, Key: begun.Key}); err != nil {
		t.Fatal(err)
	}
}
