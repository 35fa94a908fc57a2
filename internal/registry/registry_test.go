package registry

import (
	"encoding/json"
	"testing"

	"micronode/client"
)

// Two out of three signers govern a list: the whole course over HTTP.
func TestATeamOfTwoOutOfThree(t *testing.T) {
	h := startRegistry(t)
	h.expectRefusal("GET", "/registry/head", nil, "NotFound")
	begun := h.init()
	if begun.Registry != begun.Head.Hash || begun.Head.Version != 0 {
		t.Fatalf("begun as %+v", begun)
	}
	h.expectRefusal("POST", "/registry/init", initRequest(1, alice), "Conflict")

	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "QuorumFailed")
	h.expectRefusal("POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), "DuplicateApproval")
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
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "Conflict")
	h.expectRefusal("POST", "/registry/approvals/"+p.ProposalID, bob.approve(p), "Conflict")

	var version client.RegistryVersion
	h.call("GET", "/registry/1", nil, &version, 200)
	if version.Hash != head.Hash || version.PrevHash != begun.Head.Hash || len(version.Items) != 2 || len(version.Ops) != 1 || len(version.Approvals) != 2 {
		t.Fatalf("version 1 is %+v", version)
	}
	h.expectRefusal("GET", "/registry/2", nil, "NotFound")
	h.expectRefusal("GET", "/registry/01", nil, "Malformed")

	bundle := h.call("GET", "/registry/bundle/1", nil, nil, 200)
	if _, err := VerifyBundle(bundle, Trust{Registry: &begun.Registry, Key: begun.Key}); err != nil {
		t.Fatal(err)
	}
}
