package registry

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// Every invalid request is refused with a code of its own, audited and counted, and
// has no other effect.
func TestRequestsThatCannotBeMeant(t *testing.T) {
	h := startRegistry(t)
	h.init()
	op := string(putName("docs", "1"))
	body := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	for what, text := range map[string]string{
		"no body":                "",
		"no JSON":                "propose, please",
		"more than one document": body(`{"schema_version":"1.0.0","ops":[%s]} {}`, op),
		"not UTF-8":              body(`{"schema_version":"1.0.0","ops":[%s],"\xff":1}`, op),
		"an unknown field":       body(`{"schema_version":"1.0.0","ops":[%s],"force":true}`, op),
		"a field in capitals":    body(`{"SCHEMA_VERSION":"1.0.0","ops":[%s]}`, op),
		"a key twice":            body(`{"schema_version":"1.0.0","schema_version":"1.0.0","ops":[%s]}`, op),
		"a key twice, deep":      `{"schema_version":"1.0.0","ops":[{"op":"delete","id":"a","id":"b"}]}`,
		"a fraction":             body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":1.5}`, op),
		"an exponent":            body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":1e2}`, op),
		"another schema":         body(`{"schema_version":"2.0.0","ops":[%s]}`, op),
		"no operations":          `{"schema_version":"1.0.0","ops":[]}`,
		"an item twice":          body(`{"schema_version":"1.0.0","ops":[%s,%s]}`, op, op),
		"a word for a number":    body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":"60"}`, op),
		"no time at all":         body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":0}`, op),
		"less than no time":      body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":-1}`, op),
		"more than thirty days":  body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":2592001}`, op),
		"more than a number":     body(`{"schema_version":"1.0.0","ops":[%s],"ttl_s":9007199254740993}`, op),
		"an id in capitals":      `{"schema_version":"1.0.0","ops":[{"op":"delete","id":"Docs"}]}`,
		"no signers any more":    `{"schema_version":"1.0.0","ops":[{"op":"delete","id":"signers"}]}`,
	} {
		t.Run(what, func(t *testing.T) {
			h.expectWriteRefused("propose", "POST", "/registry/proposals", text, "Malformed")
		})
	}
	h.expectWriteRefused("supersede", "POST", "/registry/supersede", `{"schema_version":"1.0.0"}`, "Malformed")
	h.expectWriteRefused("supersede", "POST", "/registry/supersede", client.SupersedeRequest{SchemaVersion: "1.0.0", Reason: "a mistake"}, "ChainMismatch")
	h.expectWriteRefused("propose", "POST", "/registry/proposals", proposalRequest(json.RawMessage(`{"op":"delete","id":"nothing"}`)), "Conflict")
	h.expectWriteRefused("commit", "POST", "/registry/commit/aaaaaaaaaaaaaaaaaaaaaaaaaa", nil, "NotFound")
	h.expectWriteRefused("approve", "POST", "/registry/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa", alice.approve(client.Proposed{}), "NotFound")
	h.expectWriteRefused("approve", "POST", "/registry/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa", `{"signer_id":"alice"}`, "Malformed")
}

// Before there is a registry, proposals are refused; and a signer set whose quorum can
// never be reached does not begin one.
func TestBeginnings(t *testing.T) {
	h := startRegistry(t)
	h.expectWriteRefused("propose", "POST", "/registry/proposals", proposalRequest(putName("docs", "1")), "NotFound")
	h.expectWriteRefused("approve", "POST", "/registry/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa", alice.approve(client.Proposed{}), "NotFound")
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(0, alice, bob), "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(-1, alice, bob), "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(3, alice, bob), "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(1, alice, alice), "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(1), "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", client.InitRequest{M: 1, Keys: []client.RegistryKey{{SignerID: "alice", Public: "ed25519:AAAA"}}}, "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", `{"m":1,"m":2,"keys":[]}`, "Malformed")
	h.expectWriteRefused("init", "POST", "/registry/init", rawBody{data: []byte(`{}`), chunked: true}, "LengthRequired")
	for _, path := range []string{"/registry/head", "/registry/0", "/registry/bundle/0", "/registry/key", "/registry/log/checkpoint", "/registry/log/tile/0/000"} {
		h.expectRefusal("GET", path, nil, "NotFound")
	}
	var none client.ProposalList
	if h.call("GET", "/registry/proposals", nil, &none, 200); len(none.Proposals) != 0 {
		t.Errorf("there are proposals: %+v", none)
	}
	h.init()
	h.expectWriteRefused("init", "POST", "/registry/init", initRequest(1, alice), "Conflict")
	for _, m := range []int{0, 4} {
		h.expectWriteRefused("propose", "POST", "/registry/proposals", proposalRequest(putSigners(m, alice, bob, carol)), "Malformed")
	}
	h.expectWriteRefused("propose", "POST", "/registry/proposals", proposalRequest(putSigners(1, alice, signer{"also-alice", alice.key})), "Malformed")
	h.commitChange(putName("docs", "1"))
}

// putSigners is the operation that puts a set of signers.
func putSigners(m int, all ...signer) json.RawMessage {
	keys, _ := json.Marshal(initRequest(m, all...).Keys)
	return json.RawMessage(fmt.Sprintf(`{"op":"put","item":{"kind":"signers","id":"signers","m":%d,"keys":%s}}`, m, keys))
}

// A body that is too large, or has no Content-Length, is not read.
func TestBodiesOfTheWrongSize(t *testing.T) {
	h := startRegistry(t)
	h.init()
	large := []byte(`{"schema_version":"1.0.0","ops":[` + string(putName("docs", "1")) + `]` + strings.Repeat(" ", 1<<20) + `}`)
	h.expectRefusal("POST", "/registry/proposals", large, "BodyTooLarge") // refused before it reaches the registry
	if n := h.metricSum("rejected_total", "reason=body_cap"); n != 1 {
		t.Errorf("counted %v times", n)
	}
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	small, _ := json.Marshal(proposalRequest(putName("more", "1")))
	h.expectWriteRefused("propose", "POST", "/registry/proposals", rawBody{data: small, chunked: true}, "LengthRequired")
	h.expectWriteRefused("approve", "POST", "/registry/approvals/"+p.ProposalID, rawBody{data: small, chunked: true}, "LengthRequired")
	h.expectWriteRefused("supersede", "POST", "/registry/supersede", rawBody{data: small, chunked: true}, "LengthRequired")
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, rawBody{data: small, chunked: true}, "LengthRequired")
}

// A request in CBOR is equivalent to one in JSON: it has the same payload, and
// signatures count the same.
func TestCBORIsAnotherSpelling(t *testing.T) {
	h := startRegistry(t)
	h.init()
	encode := func(text []byte) rawBody {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		testkit.Must(t, decoder.Decode(&value))
		data, err := cbor.Marshal(wholeNumbers(value))
		testkit.Must(t, err)
		return rawBody{header: http.Header{"Content-Type": {"application/cbor; charset=binary"}}, data: data}
	}
	asked := proposalRequest(putName("docs", "1"), putName("maps", "2"))
	asked.TTL = 60
	text, _ := json.Marshal(asked)
	var one, other client.Proposed
	h.call("POST", "/registry/proposals", text, &one, 202)
	h.call("POST", "/registry/proposals", encode(text), &other, 202)
	if one.PayloadB3 != other.PayloadB3 || one.ProposalID == other.ProposalID {
		t.Fatalf("in JSON %s, in CBOR %s", one.PayloadB3, other.PayloadB3)
	}
	for _, s := range []signer{alice, bob} {
		approval, _ := json.Marshal(s.approve(other))
		h.call("POST", "/registry/approvals/"+other.ProposalID, encode(approval), nil, 200)
	}
	var head client.RegistryHead
	h.call("POST", "/registry/commit/"+other.ProposalID, nil, &head, 201)
	back, _ := json.Marshal(client.SupersedeRequest{SchemaVersion: "1.0.0", Version: head.Version, Hash: head.Hash, Reason: "a mistake"})
	h.call("POST", "/registry/supersede", encode(back), nil, 202)
	header := http.Header{"Content-Type": {"application/cbor"}}
	for _, data := range []string{"", "\xff", "\xa1\x61a\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00", "\xa2\x61a\x01\x61a\x01", string(text)} {
		h.expectWriteRefused("propose", "POST", "/registry/proposals", rawBody{header: header, data: []byte(data)}, "Malformed")
	}
}

// wholeNumbers makes the numbers of a document whole ones.
func wholeNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		n, _ := v.Int64()
		return n
	case []any:
		for i := range v {
			v[i] = wholeNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = wholeNumbers(v[key])
		}
	}
	return value
}

// A signature counts for what it was made for, by whom it was made, and once.
func TestSignaturesThatDoNotCount(t *testing.T) {
	h := startRegistry(t)
	h.init()
	other := startRegistry(t)
	other.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")})
	q := h.proposeApproved([]json.RawMessage{putName("maps", "1")}, alice)
	foreign := other.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	path := "/registry/approvals/" + p.ProposalID
	refused := func(a client.Approval, code string) {
		t.Helper()
		h.expectWriteRefused("approve", "POST", path, a, code)
	}
	wrong := alice.approve(p)
	wrong.Sig[7] ^= 1
	refused(wrong, "InvalidSig")
	refused(alice.approve(q), "InvalidSig")       // replayed from another proposal
	refused(alice.approve(foreign), "InvalidSig") // and from another registry
	refused(signer{"alice", bob.key}.approve(p), "InvalidSig")
	refused(client.Approval{SignerID: "alice", Algo: "ed25519", Sig: ed25519.Sign(alice.key, []byte(p.PayloadB3.String())), SignedAt: time.Now()}, "InvalidSig")
	refused(newSigner("mallory").approve(p), "UnknownSigner")
	weak := alice.approve(p)
	weak.Algo = "rsa"
	refused(weak, "Malformed")
	short := alice.approve(p)
	short.Sig = short.Sig[:63]
	refused(short, "Malformed")
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		late := alice.approve(p)
		late.SignedAt = late.SignedAt.Add(off)
		refused(late, "Malformed")
	}
	h.call("POST", path, alice.approve(p), nil, 200)
	refused(alice.approve(p), "DuplicateApproval")
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "QuorumFailed")
	var proposal client.Proposal
	h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &proposal, 200)
	if proposal.Status != client.ProposalOpen || len(proposal.Approvals) != 1 || proposal.Approvals[0] != "alice" {
		t.Errorf("the proposal is %+v", proposal)
	}
	var list client.ProposalList
	if h.call("GET", "/registry/proposals", nil, &list, 200); len(list.Proposals) != 2 || list.Proposals[0].ExpiresAt.After(list.Proposals[1].ExpiresAt) {
		t.Errorf("the list is %+v", list)
	}
}

// A change of the signers makes what was proposed before it stale, and a key that was
// removed never counts again.
func TestSignersComeAndGo(t *testing.T) {
	h := startRegistry(t)
	h.init()
	dave := newSigner("dave")
	before := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	full := h.proposeApproved([]json.RawMessage{putName("maps", "1")}, alice, bob)
	h.commitChange(putSigners(2, alice, bob, dave))
	h.expectWriteRefused("approve", "POST", "/registry/approvals/"+before.ProposalID, bob.approve(before), "Conflict")
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+full.ProposalID, nil, "Conflict")

	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")})
	h.expectWriteRefused("approve", "POST", "/registry/approvals/"+p.ProposalID, carol.approve(p), "RevokedKey")
	h.call("POST", "/registry/approvals/"+p.ProposalID, dave.approve(p), nil, 200)
	h.call("POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), nil, 200)
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)

	// Alice's key is lost, and she gets another one: the old one is known as hers.
	renewed := signer{"alice", newSigner("alice-2").key}
	change := h.proposeApproved([]json.RawMessage{putSigners(2, renewed, bob, dave)}, bob, dave)
	h.call("POST", "/registry/commit/"+change.ProposalID, nil, nil, 201)
	p = h.proposeApproved([]json.RawMessage{putName("docs", "2")})
	h.expectWriteRefused("approve", "POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), "RevokedKey")
	h.call("POST", "/registry/approvals/"+p.ProposalID, renewed.approve(p), nil, 200)
	h.call("POST", "/registry/approvals/"+p.ProposalID, bob.approve(p), nil, 200)
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
	var version client.RegistryVersion
	h.call("GET", "/registry/2", nil, &version, 200)
	if version.SignerSet.Version != 1 || len(version.SignerSet.Keys) != 3 || version.SignerSet.Keys[2].SignerID != "dave" {
		t.Errorf("version 2 was approved under %+v", version.SignerSet)
	}
}

// listPending returns the pending proposals by ID, and checks that the list and the
// page of each agree.
func (r *testRegistry) listPending() map[string]client.Proposal {
	r.t.Helper()
	var list client.ProposalList
	r.call("GET", "/registry/proposals", nil, &list, 200)
	all := map[string]client.Proposal{}
	for _, one := range list.Proposals {
		all[one.ProposalID] = one
		var page client.Proposal
		r.call("GET", "/registry/proposals/"+one.ProposalID, nil, &page, 200)
		if page.Status != one.Status || page.Reason != one.Reason || page.Next != one.Next {
			r.t.Errorf("listed as %s (%s; %s), and by itself %s (%s; %s)", one.Status, one.Reason, one.Next, page.Status, page.Reason, page.Next)
		}
	}
	return all
}

// A proposal that can no longer be committed shows as stale everywhere, with the reason
// and the next step; others do not.
func TestAStaleProposalSaysSo(t *testing.T) {
	h := startRegistry(t)
	h.init()
	h.commitChange(putName("old", "1"))
	other := h.proposeApproved([]json.RawMessage{putName("old", "2")}, alice)
	insists := proposalRequest(putName("maps", "1"))
	head, _ := h.Head()
	insists.Base = &client.RegistryBase{Version: head.Version, Hash: head.Hash}
	var based client.Proposed
	h.call("POST", "/registry/proposals", insists, &based, 202)
	apart := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice)
	for id, one := range h.listPending() {
		if one.Status != client.ProposalOpen || one.Reason+one.Next != "" {
			t.Errorf("nothing has changed, and %s is %s: %s", id, one.Status, one.Reason)
		}
	}

	h.commitChange(putName("old", "3"))
	now := h.listPending()
	for id, why := range map[string]string{other.ProposalID: `"old" has changed`, based.ProposalID: "the head is version 2"} {
		if one := now[id]; one.Status != client.ProposalStale || !strings.Contains(one.Reason, why) || !strings.Contains(one.Next, "ropose") {
			t.Errorf("it is %s: %s. %s", one.Status, one.Reason, one.Next)
		}
	}
	if one := now[apart.ProposalID]; one.Status != client.ProposalOpen {
		t.Errorf("a proposal on another item is %s: %s", one.Status, one.Reason)
	}

	h.commitChange(putSigners(2, alice, bob, newSigner("dave")))
	now = h.listPending()
	if len(now) != 3 {
		t.Errorf("%d wait", len(now))
	}
	for id, one := range now {
		if one.Status != client.ProposalStale || !strings.Contains(one.Reason, "the signer set has changed") || !strings.Contains(one.Next, "Propose the change again") {
			t.Errorf("%s is %s: %s. %s", id, one.Status, one.Reason, one.Next)
		}
	}
	for action, path := range map[string]string{"approve": "/registry/approvals/", "commit": "/registry/commit/"} {
		problem := h.expectRefusal("POST", path+apart.ProposalID, bob.approve(apart), "Conflict")
		if next, _ := problem["next"].(string); !strings.Contains(next, "ropose") {
			t.Errorf("%s: the next step is %q", action, next)
		}
	}
}

// A proposal that is in the log but not yet removed from the pending ones is shown as
// committed, not stale.
func TestCommittedAMomentAgo(t *testing.T) {
	h := startRegistry(t)
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	e, err := h.pending.findOpen("test", p.ProposalID, h.now())
	testkit.Must(t, err)
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
	proposal := proposalResponse(p.ProposalID, e, nil, h.view.Load(), h.now())
	if proposal.Status != client.ProposalCommitted || proposal.Version == nil || *proposal.Version != 1 {
		t.Errorf("it is %s, %v: %s", proposal.Status, proposal.Version, proposal.Reason)
	}
}

// The signers may change between the check by the handler and that by the committer.
// The committer's counts.
func TestTheCommitterLooksAgain(t *testing.T) {
	h := startRegistry(t)
	h.init()
	p := h.proposeApproved([]json.RawMessage{putName("docs", "1")})
	a := ledger.Approve(p.SignThis, alice.key, alice.id, h.now())
	h.commitChange(putSigners(1, alice, bob))
	late := func(c *committer) outcome { return c.addApproval(p.ProposalID, a) }
	if _, err := h.submit(bandApprovals, 1, newJob(t.Context(), late)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("approved under another set: %v", err)
	}
	gone := func(c *committer) outcome { return c.addApproval("nobody", a) }
	if _, err := h.submit(bandApprovals, 1, newJob(t.Context(), gone)); fault.KindOf(err) != fault.NotFound {
		t.Errorf("approved what is not there: %v", err)
	}
}

// A proposal that names a head is committed directly after it or not at all.
func TestAStaleBase(t *testing.T) {
	h := startRegistry(t)
	h.init()
	head := h.commitChange(putName("docs", "1"))
	asked := proposalRequest(putName("maps", "1"))
	asked.Base = &client.RegistryBase{Version: head.Version, Hash: head.Hash}
	var p client.Proposed
	h.call("POST", "/registry/proposals", asked, &p, 202)
	h.call("POST", "/registry/approvals/"+p.ProposalID, alice.approve(p), nil, 200)
	h.commitChange(putName("other", "1"))
	h.expectWriteRefused("approve", "POST", "/registry/approvals/"+p.ProposalID, bob.approve(p), "ChainMismatch")
	h.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "ChainMismatch")
	h.expectWriteRefused("propose", "POST", "/registry/proposals", asked, "ChainMismatch")
}

// Only the head can be superseded, with a reason that is recorded.
func TestSuperseded(t *testing.T) {
	h := startRegistry(t)
	h.init()
	head := h.commitChange(putName("docs", "1"))
	back := client.SupersedeRequest{SchemaVersion: "1.0.0", Version: head.Version, Hash: head.Hash, Reason: "the wrong manifest"}
	var p client.Proposed
	h.call("POST", "/registry/supersede", back, &p, 202)
	for _, s := range []signer{bob, carol} {
		h.call("POST", "/registry/approvals/"+p.ProposalID, s.approve(p), nil, 200)
	}
	var open client.Proposal
	if h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &open, 200); open.Supersedes == nil || open.Supersedes.Reason != back.Reason {
		t.Errorf("the proposal is %+v", open)
	}
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, nil, 201)
	var version client.RegistryVersion
	h.call("GET", "/registry/2", nil, &version, 200)
	if version.Supersedes == nil || version.Supersedes.Reason != back.Reason || len(version.Items) != 1 {
		t.Errorf("version 2 is %+v", version)
	}
	h.expectWriteRefused("supersede", "POST", "/registry/supersede", back, "ChainMismatch")
	h.call("GET", "/registry/proposals/"+p.ProposalID, nil, &open, 200)
	if open.Status != client.ProposalCommitted || open.Version == nil || *open.Version != 2 {
		t.Errorf("then it is %+v", open)
	}
}

// Ten thousand proposals fill the bound and no more, and those that were accepted can
// still be committed.
func TestAFloodOfProposals(t *testing.T) {
	h := startRegistry(t, withConfig(func(c *Config) { c.MaxProposals = 200 }))
	h.init()
	mine := h.proposeApproved([]json.RawMessage{putName("mine", "1")}, alice)
	payload := func(i int) ledger.Request {
		wanted, err := ledger.DecodeRequest(fmt.Appendf(nil, `{"schema_version":"1.0.0","ops":[%s]}`, putName(fmt.Sprintf("n%d", i), "1")))
		testkit.Must(t, err)
		return wanted
	}
	memory, taken, refused := testkit.WatchMemory(), 0, 0
	for i := range 10_000 {
		_, err := h.Propose(t.Context(), netip.Addr{}, payload(i))
		switch {
		case err == nil:
			taken++
		case fault.KindOf(err) == fault.QuotaExceeded:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if taken != 199 || refused != 10_000-199 {
		t.Errorf("%d were taken and %d refused", taken, refused)
	}
	if grown := memory.Grown(); grown > 32<<20 {
		t.Errorf("they took %d bytes", grown)
	}
	h.expectWriteRefused("propose", "POST", "/registry/proposals", proposalRequest(putName("more", "1")), "QuotaExceeded")
	h.call("POST", "/registry/approvals/"+mine.ProposalID, bob.approve(mine), nil, 200)
	h.call("POST", "/registry/commit/"+mine.ProposalID, nil, nil, 201)
	h.proposeApproved([]json.RawMessage{putName("more", "1")})
}

// pendingProposals is bounded in bytes, too, and in the finished ones that it remembers.
func TestPendingProposalsAreBounded(t *testing.T) {
	d, now := newPendingProposals(false), time.Unix(1e9, 0)
	for i := range maxFinished + 10 {
		p := &ledger.Proposal{ID: fmt.Sprint(i), ApprovalMessage: ledger.ApprovalMessage{ExpiresAt: now.Add(time.Second)}}
		testkit.Must(t, d.add(p, netip.Addr{}, 1, now))
		d.markCommitted(p.ID, uint64(i))
	}
	if len(d.finished) != maxFinished || len(d.finishedOrder) != maxFinished {
		t.Errorf("%d are remembered", len(d.finished))
	}
	if _, err := d.findOpen("test", "0", now); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the oldest: %v", err)
	}
	if _, err := d.findOpen("test", fmt.Sprint(maxFinished), now); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a new one: %v", err)
	}
	half := make([]byte, maxPendingBytes/2)
	large := func(id string) *ledger.Proposal {
		return &ledger.Proposal{ID: id, Payload: half, ApprovalMessage: ledger.ApprovalMessage{ExpiresAt: now.Add(time.Second)}}
	}
	testkit.Must(t, d.add(large("a"), netip.Addr{}, 100, now))
	testkit.Must(t, d.add(large("b"), netip.Addr{}, 100, now))
	if err := d.add(large("c"), netip.Addr{}, 100, now); fault.KindOf(err) != fault.QuotaExceeded {
		t.Errorf("a third: %v", err)
	}
	testkit.Must(t, d.add(large("c"), netip.Addr{}, 100, now.Add(time.Second))) // the others have expired
	if d.bytes != len(half) || len(d.open) != 1 {
		t.Errorf("%d bytes in %d", d.bytes, len(d.open))
	}
	if _, err := d.findOpen("test", "a", now); fault.KindOf(err) != fault.Expired {
		t.Errorf("one that was swept: %v", err)
	}
}

// One client cannot use up the bound on proposals, neither by number nor by bytes;
// what was committed or has expired is no longer counted.
func TestPendingProposalsAreShared(t *testing.T) {
	d, now := newPendingProposals(false), time.Unix(1e9, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	next := 0
	add := func(from netip.Addr, bytes int) error {
		next++
		return d.add(&ledger.Proposal{ID: fmt.Sprint(next), Payload: make([]byte, bytes), ApprovalMessage: ledger.ApprovalMessage{ExpiresAt: now.Add(time.Second)}}, from, 10, now)
	}
	fill := func(from netip.Addr, bytes int) (n int) {
		for ; add(from, bytes) == nil; n++ {
		}
		return n
	}
	if n := fill(a, 1); n != 5 {
		t.Errorf("one client has %d of 10 open", n)
	}
	if n := fill(b, 1); n != 3 {
		t.Errorf("a second one has %d of 10 open", n)
	}
	d.markCommitted("1", 1)
	d.markCommitted("2", 2)
	if n := fill(a, 1); n != 1 {
		t.Errorf("after two were committed, there is room for %d more", n)
	}
	d.expire(now.Add(time.Second))
	if len(d.byClient) != 0 {
		t.Errorf("of those that expired, %v is left", d.byClient)
	}
	if n := fill(a, maxPendingBytes/8); n != 4 {
		t.Errorf("one client has %d eighths of the bytes", n)
	}
	testkit.Must(t, add(b, maxPendingBytes/8))
}
