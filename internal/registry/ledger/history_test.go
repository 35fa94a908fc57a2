package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// modelHistory drives a registry with the requests of signers, thieves and slow
// people, and keeps its own record of what each may do.
type modelHistory struct {
	t         *rapid.T
	state     *ledger.State
	now       time.Time
	log       []ledger.Record
	snapshots [][]byte        // the snapshot of every state, taken when it was new
	states    []*ledger.State // and the states themselves

	set          ledger.SignerSet // in force, by the model
	signersSince uint64           // when the set was changed
	open         []*ledger.Proposal
	accepted     map[*ledger.Proposal][]ledger.Approval // that passed Check
	seen         []ledger.Approval                      // all that were ever made
	count        int
}

var allSigners = []testSigner{alice, bob, carol, dave, newTestSigner("erin", 5), newTestSigner("frank", 6)}

func newModelHistory(t *rapid.T) *modelHistory {
	h := &modelHistory{t: t, now: start, accepted: map[*ledger.Proposal][]ledger.Approval{}}
	h.set = h.drawSet()
	r, s := genesis(t, 9, h.set)
	h.add(r, s)
	return h
}

func (h *modelHistory) drawSet() ledger.SignerSet {
	keepers := slices.Clone(rapid.Permutation(allSigners).Draw(h.t, "order"))[:rapid.IntRange(1, 4).Draw(h.t, "n")]
	return signersOf(rapid.IntRange(1, len(keepers)).Draw(h.t, "m"), keepers...)
}

func (h *modelHistory) add(r ledger.Record, s *ledger.State) {
	h.log, h.state = append(h.log, r), s
	h.states, h.snapshots = append(h.states, s), append(h.snapshots, s.Snapshot())
}

func (h *modelHistory) tick() {
	h.now = h.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(h.t, "seconds")) * time.Second)
}

func (h *modelHistory) propose() {
	var ops []ledger.Op
	switch id := rapid.SampledFrom([]string{"a", "b", "signers"}).Draw(h.t, "id"); {
	case id == "signers":
		ops = []ledger.Op{ledger.Put(signersItem(h.t, h.drawSet()))}
	case rapid.Bool().Draw(h.t, "delete"):
		ops = []ledger.Op{ledger.Delete(id)}
	default:
		ops = []ledger.Op{ledger.Put(name(h.t, id, rapid.SampledFrom([]string{"x", "y"}).Draw(h.t, "text")))}
	}
	r := ledger.Request{Ops: ops}
	if rapid.Bool().Draw(h.t, "base") {
		r.Base = new(h.state.Head())
	}
	h.count++
	expires := h.now.Add(time.Duration(rapid.IntRange(1, 900).Draw(h.t, "ttl")) * time.Second)
	p, err := h.state.Propose(r, proposalID(h.count), h.now, expires)
	if err == nil {
		h.open = append(h.open, p)
	} else if kind := fault.KindOf(err); kind != fault.Conflict && kind != fault.Expired {
		h.t.Fatalf("propose: %v", err)
	}
}

func (h *modelHistory) supersede() {
	h.count++
	r := ledger.SupersedeRequest{Head: h.state.Head(), Reason: "it was wrong"}
	p, err := h.state.Supersede(r, proposalID(h.count), h.now, h.now.Add(10*time.Minute))
	if err == nil {
		h.open = append(h.open, p)
	}
}

func (h *modelHistory) drawProposal() *ledger.Proposal {
	if len(h.open) == 0 {
		h.t.Skip("nothing is proposed")
	}
	return rapid.SampledFrom(h.open).Draw(h.t, "proposal")
}

// approve sends one approval, valid or not, and compares the verdict with the
// model.
func (h *modelHistory) approve() {
	p := h.drawProposal()
	who := rapid.SampledFrom(allSigners).Draw(h.t, "who")
	a := who.approve(p, h.now)
	switch rapid.IntRange(0, 5).Draw(h.t, "trick") {
	case 0: // an approval of another proposal, or of this one again
		if len(h.seen) > 0 {
			a = rapid.SampledFrom(h.seen).Draw(h.t, "replayed")
			a.SignedAt = h.now
		}
	case 1: // under the name of another signer
		a.SignerID = rapid.SampledFrom(allSigners).Draw(h.t, "name").id
	case 2: // of the same change to another registry
		m := p.ApprovalMessage
		m.Registry[0] ^= 1
		a.Sig = ed25519.Sign(who.key, m.SignThis())
	case 3: // damaged
		a.Sig[rapid.IntRange(0, 63).Draw(h.t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(h.t, "bit")
	}
	h.seen = append(h.seen, a)
	signer, in := h.set.Find(a.SignerID)
	right := in && ed25519.Verify(signer.Public[:], p.SignThis, a.Sig) && !h.now.After(p.ExpiresAt) &&
		p.SignersVersion == h.signersSince && !h.committed(p.ID)
	err := p.Check(h.state, a, h.now, skew)
	if err == nil && !right {
		h.t.Fatalf("an approval of %s was accepted that does not count", a.SignerID)
	}
	if err != nil && right && p.Base == nil && p.Supersedes == nil {
		h.t.Fatalf("a good approval of %s was refused: %v", a.SignerID, err)
	}
	if err == nil {
		h.accepted[p] = append(h.accepted[p], a)
	}
}

// approveAndCommit has all signers of the set approve one proposal.
func (h *modelHistory) approveAndCommit() {
	p := h.drawProposal()
	for _, k := range allSigners {
		a := k.approve(p, h.now)
		if p.Check(h.state, a, h.now, skew) == nil {
			h.seen, h.accepted[p] = append(h.seen, a), append(h.accepted[p], a)
		}
	}
	h.commitOne(p)
}

func (h *modelHistory) committed(id string) bool {
	return slices.ContainsFunc(h.log, func(r ledger.Record) bool { return bytes.Contains(r.Header, []byte(`"proposal_id":"`+id+`"`)) })
}

// commit tries a proposal with all approvals that were ever made for it, twice
// over.
func (h *modelHistory) commit() { h.commitOne(h.drawProposal()) }

func (h *modelHistory) commitOne(p *ledger.Proposal) {
	approvals := append(slices.Clone(h.accepted[p]), h.accepted[p]...)
	r, next, err := h.state.Commit(p, approvals, h.now)
	if err != nil {
		switch fault.KindOf(err) {
		case fault.Conflict, fault.ChainMismatch, fault.Expired, fault.QuorumFailed:
			return
		}
		h.t.Fatalf("commit: %v", err)
	}
	if h.committed(p.ID) {
		h.t.Fatalf("the proposal %s was committed twice", p.ID)
	}
	h.checkIndependently(r)
	if r.Version != h.state.Head().Version+1 || next.Head().Version != r.Version {
		h.t.Fatalf("version %d after %d", r.Version, h.state.Head().Version)
	}
	applied, err := h.state.Apply(r)
	if err != nil {
		h.t.Fatalf("what was committed does not verify: %v", err)
	}
	same(h.t, "applied", applied, next)
	h.add(r, next)
	if set, ok := itemOf(next, "signers").SignerSet(); ok && next.SignersVersion() == r.Version {
		h.set, h.signersSince = set, r.Version
	}
}

func itemOf(s *ledger.State, id string) ledger.Item {
	item, _ := s.Item(id)
	return item
}

// checkIndependently is a verifier of signatures that shares nothing with the package: it
// reads the header as plain JSON and builds what was signed with another
// library.
func (h *modelHistory) checkIndependently(r ledger.Record) {
	if n := independentCount(h.t, r, h.set); n < h.set.M {
		h.t.Fatalf("version %d was committed with %d approvals of the %d that are needed", r.Version, n, h.set.M)
	}
}

// independentCount is how many keys of a set have signed a record.
func independentCount(t testkit.T, r ledger.Record, set ledger.SignerSet) int {
	var header map[string]json.RawMessage
	if err := json.Unmarshal(r.Header, &header); err != nil {
		t.Fatalf("header: %v", err)
	}
	message := map[string]json.RawMessage{}
	for _, field := range []string{"base", "expires_at", "payload_b3", "preconditions_b3", "proposal_id", "registry", "signers_version", "supersedes"} {
		message[field] = header[field]
	}
	plain, err := json.Marshal(message)
	if err != nil {
		t.Fatalf("message: %v", err)
	}
	canonical, err := jcs.Transform(plain)
	if err != nil {
		t.Fatalf("message: %v", err)
	}
	signed := append([]byte("micronode registry approval v1\n"), canonical...)
	var approvals []struct{ Public, Sig string }
	if err := json.Unmarshal(header["approvals"], &approvals); err != nil {
		t.Fatalf("approvals: %v", err)
	}
	keys := map[ledger.PublicKey]bool{}
	for _, a := range approvals {
		sig, _ := base64.StdEncoding.DecodeString(a.Sig)
		key, err := ledger.ParsePublicKey(a.Public)
		if err != nil || !set.HasKey(key) || !ed25519.Verify(key[:], signed, sig) {
			t.Fatalf("version %d holds an approval that does not count", r.Version)
		}
		keys[key] = true
	}
	var payload string
	json.Unmarshal(header["payload_b3"], &payload)
	if payload != b3.Of(r.Payload).String() {
		t.Fatalf("version %d: what was signed is not the payload", r.Version)
	}
	return len(keys)
}

func TestNoCommitWithoutQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newModelHistory(t)
		actions := map[string]func(*rapid.T){
			"tick":      func(t *rapid.T) { h.t = t; h.tick() },
			"propose":   func(t *rapid.T) { h.t = t; h.propose() },
			"supersede": func(t *rapid.T) { h.t = t; h.supersede() },
			"approve":   func(t *rapid.T) { h.t = t; h.approve() },
			"carry":     func(t *rapid.T) { h.t = t; h.approveAndCommit() },
			"commit":    func(t *rapid.T) { h.t = t; h.commit() },
		}
		for range 3 {
			t.Repeat(actions)
		}
		h.t = t
		h.checkLog()
	})
}

// checkLog checks the whole log again.
func (h *modelHistory) checkLog() {
	var replayed *ledger.State
	for i, r := range h.log {
		next, err := replayed.Apply(r)
		if err != nil {
			h.t.Fatalf("version %d does not verify from the start: %v", i, err)
		}
		quick, err := replayed.Replay(r)
		if err != nil {
			h.t.Fatalf("version %d is not replayed: %v", i, err)
		}
		same(h.t, "replayed", quick, next)
		if replayed = next; !bytes.Equal(replayed.Snapshot(), h.snapshots[i]) {
			h.t.Fatalf("version %d is another when it is replayed", i)
		}
		if !bytes.Equal(h.states[i].Snapshot(), h.snapshots[i]) {
			h.t.Fatalf("the state of version %d has changed since", i)
		}
		opened, err := ledger.OpenSnapshot(h.snapshots[i])
		if err != nil {
			h.t.Fatalf("the snapshot of version %d: %v\n%s", i, err, h.snapshots[i])
		}
		same(h.t, "opened", opened, h.states[i])
		if i+1 < len(h.log) {
			if _, err := opened.Apply(h.log[i+1]); err != nil {
				h.t.Fatalf("version %d does not verify on the snapshot before it: %v", i+1, err)
			}
		}
	}
	h.signerHistory()
}

// signerHistory compares what the state says of past signers with the log.
func (h *modelHistory) signerHistory() {
	var versions []uint64
	ever := map[ledger.PublicKey]uint64{} // when a key was last seen to go
	var set ledger.SignerSet
	for i, s := range h.states {
		if s.SignersVersion() != uint64(i) {
			continue
		}
		versions = append(versions, uint64(i))
		for _, k := range set.Keys {
			if !s.Signers().HasKey(k.Public) {
				ever[k.Public] = uint64(i)
			}
		}
		set = s.Signers()
	}
	if fmt.Sprint(h.state.SignerVersions()) != fmt.Sprint(versions) {
		h.t.Fatalf("the signer set changed in %v, the state says %v", versions, h.state.SignerVersions())
	}
	for _, k := range allSigners {
		version, retired := h.state.Retired(k.public())
		gone, went := ever[k.public()]
		if want := went && !set.HasKey(k.public()); retired != want || retired && version != gone {
			h.t.Fatalf("%s: retired %t in %d, want %t in %d", k.id, retired, version, want, gone)
		}
	}
}
