package ledger_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

func TestProposeRefuses(t *testing.T) {
	s := twoOfThree(t)
	s = change(t, s, 1, []ledger.Op{ledger.Put(name(t, "docs", "one")), ledger.Put(item(t, `{"kind":"region","id":"eu"}`))}, alice, bob)
	many := make([]ledger.Op, ledger.MaxOps+1)
	for i := range many {
		many[i] = ledger.Delete(fmt.Sprint("n", i))
	}
	title := strings.Repeat("é", 120)
	var fat []ledger.Op
	for i := range ledger.MaxOps {
		labels := make([]string, 0, 32)
		for l := range 32 {
			labels = append(labels, fmt.Sprintf(`"l%d":%q`, l, title))
		}
		fat = append(fat, ledger.Put(item(t, fmt.Sprintf(`{"kind":"region","id":"r%d","labels":{%s}}`, i, strings.Join(labels, ",")))))
	}
	now := s.CommittedAt().Add(time.Second)
	later := now.Add(time.Hour)
	old := s.Head()
	old.Version--
	other := s.Head()
	other.Hash[3] ^= 1
	for what, c := range map[string]struct {
		r       ledger.Request
		id      string
		expires time.Time
		kind    fault.Kind
		detail  string
	}{
		"nothing to do":            {kind: fault.Malformed, detail: "1 to 256"},
		"too many operations":      {r: ledger.Request{Ops: many}, kind: fault.Malformed, detail: "not 257"},
		"too large":                {r: ledger.Request{Ops: fat}, kind: fault.BodyTooLarge, detail: "at most 1048576"},
		"an id twice":              {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs"), ledger.Put(name(t, "docs", "two"))}}, kind: fault.Malformed, detail: `"docs" is touched twice`},
		"no signers":               {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("signers")}}, kind: fault.Malformed, detail: "cannot be deleted"},
		"put that changes nothing": {r: ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "docs", "one"))}}, kind: fault.Conflict, detail: "would change nothing"},
		"delete of nothing":        {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("dogs")}}, kind: fault.Conflict, detail: `no item "dogs"`},
		"another kind":             {r: ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "eu", "one"))}}, kind: fault.Conflict, detail: `"eu" is a region and cannot become a name`},
		"signers of another kind":  {r: ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "signers", "one"))}}, kind: fault.Conflict, detail: "cannot become a name"},
		"stale base":               {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}, Base: &old}, kind: fault.ChainMismatch, detail: "based on version 0"},
		"base of another history":  {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}, Base: &other}, kind: fault.ChainMismatch, detail: "the head is version 1"},
		"expired at once":          {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}}, expires: now, kind: fault.Expired, detail: "it would expire at"},
		"the clock went back":      {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}}, expires: s.CommittedAt().Add(-time.Millisecond), kind: fault.Expired, detail: "the head was committed at"},
		"beyond all calendars":     {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}}, expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), kind: fault.Malformed, detail: "9999"},
		"no id":                    {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}}, id: "p1", kind: fault.Malformed, detail: "not a proposal id"},
		"an id in capitals":        {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}}, id: strings.ToUpper(proposalID(1)), kind: fault.Malformed, detail: "not a proposal id"},
		"an id with spare bits":    {r: ledger.Request{Ops: []ledger.Op{ledger.Delete("docs")}}, id: proposalID(1)[:25] + "z", kind: fault.Malformed, detail: "not a proposal id"},
	} {
		t.Run(what, func(t *testing.T) {
			if c.id == "" {
				c.id = proposalID(2)
			}
			at := now
			if c.expires.IsZero() {
				c.expires = later
			} else if c.expires.Before(now) {
				at = start.Add(-time.Hour)
			}
			_, err := s.Propose(c.r, c.id, at, c.expires)
			testkit.WantRefusal(t, err, c.kind, "")
			if !strings.Contains(fault.DetailOf(err), c.detail) {
				t.Errorf("%v does not say %q", err, c.detail)
			}
		})
	}
}

// An approval counts or it does not, and the error says why.
func TestCheckRefuses(t *testing.T) {
	_, before := genesis(t, 7, signersOf(2, alice, bob, carol, newTestSigner("erin", 5)))
	newBob := newTestSigner("bob", 22)
	s := change(t, before, 1, []ledger.Op{ledger.Put(signersItem(t, signersOf(2, alice, newBob, dave)))}, alice, bob)
	p := propose(t, s, 2, ledger.Put(name(t, "docs", "one")))
	now := s.CommittedAt().Add(time.Minute)

	_, foreign := genesis(t, 8, signersOf(2, alice, newBob, dave))
	foreigners := propose(t, foreign, 2, ledger.Put(name(t, "docs", "one")))
	otherPayload := propose(t, s, 2, ledger.Put(name(t, "docs", "two")))
	otherID := propose(t, s, 3, ledger.Put(name(t, "docs", "one")))
	stale := propose(t, before, 4, ledger.Put(name(t, "docs", "one")))

	with := func(a ledger.Approval, edit func(*ledger.Approval)) ledger.Approval {
		edit(&a)
		return a
	}
	good := alice.approve(p, now)
	for what, c := range map[string]struct {
		p    *ledger.Proposal
		a    ledger.Approval
		now  time.Time
		kind fault.Kind
	}{
		"another algorithm":          {a: with(good, func(a *ledger.Approval) { a.Algo = "rsa" }), kind: fault.Malformed},
		"a signature too short":      {a: with(good, func(a *ledger.Approval) { a.Sig = a.Sig[:63] }), kind: fault.InvalidSig},
		"no signature":               {a: with(good, func(a *ledger.Approval) { a.Sig = nil }), kind: fault.InvalidSig},
		"a wrong signature":          {a: with(good, func(a *ledger.Approval) { a.Sig = append([]byte{a.Sig[0] ^ 1}, a.Sig[1:]...) }), kind: fault.InvalidSig},
		"in another's name":          {a: with(good, func(a *ledger.Approval) { a.SignerID = "dave" }), kind: fault.InvalidSig},
		"over another payload":       {a: alice.approve(otherPayload, now), kind: fault.InvalidSig},
		"replayed from another":      {a: alice.approve(otherID, now), kind: fault.InvalidSig},
		"for another registry":       {a: alice.approve(foreigners, now), kind: fault.InvalidSig},
		"without what separates it":  {a: with(good, func(a *ledger.Approval) { a.Sig = ed25519.Sign(alice.key, p.SignThis[31:]) }), kind: fault.InvalidSig},
		"a stranger":                 {a: newTestSigner("mallory", 66).approve(p, now), kind: fault.UnknownSigner},
		"a signer who went":          {a: carol.approve(p, now), kind: fault.RevokedKey},
		"a signer's old key":         {a: bob.approve(p, now), kind: fault.RevokedKey},
		"somebody else's old key":    {a: with(carol.approve(p, now), func(a *ledger.Approval) { a.SignerID = "bob" }), kind: fault.InvalidSig},
		"after expiry":               {a: alice.approve(p, now), now: p.ExpiresAt.Add(time.Millisecond), kind: fault.Expired},
		"signed in the future":       {a: alice.approve(p, now.Add(skew+time.Millisecond)), kind: fault.Malformed},
		"signed before the proposal": {a: alice.approve(p, p.ProposedAt.Add(-skew-time.Millisecond)), kind: fault.Malformed},
		"of a stale proposal":        {p: stale, a: alice.approve(stale, now), kind: fault.Conflict},
		"a proposal of elsewhere":    {p: foreigners, a: alice.approve(foreigners, now), kind: fault.Conflict},
	} {
		t.Run(what, func(t *testing.T) {
			if c.p == nil {
				c.p = p
			}
			if c.now.IsZero() {
				c.now = now
			}
			testkit.WantRefusal(t, c.p.Check(s, c.a, c.now, skew), c.kind, "")
		})
	}
	for what, a := range map[string]ledger.Approval{
		"a clock that is behind": alice.approve(p, p.ProposedAt.Add(-skew)),
		"a clock that is ahead":  newBob.approve(p, now.Add(skew)),
		"the right time":         dave.approve(p, now),
	} {
		if err := p.Check(s, a, now, skew); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := p.Check(s, good, p.ExpiresAt, skew); err != nil {
		t.Errorf("in the last millisecond: %v", err)
	}
}

func TestCommitRefuses(t *testing.T) {
	s := twoOfThree(t)
	at := s.CommittedAt().Add(time.Minute)
	p := propose(t, s, 1, ledger.Put(name(t, "docs", "one")))
	a, b := alice.approve(p, at), bob.approve(p, at)
	both := []ledger.Approval{a, b}

	refused := func(what string, s *ledger.State, p *ledger.Proposal, approvals []ledger.Approval, at time.Time, kind fault.Kind) {
		t.Helper()
		_, next, err := s.Commit(p, approvals, at)
		if next != nil {
			t.Errorf("%s: a state was returned", what)
		}
		testkit.WantRefusal(t, err, kind, "")
	}
	mallory := newTestSigner("mallory", 66)
	otherAlgo := b
	otherAlgo.Algo = "none"
	short := b
	short.Sig = b.Sig[:10]
	refused("no approval", s, p, nil, at, fault.QuorumFailed)
	refused("one approval", s, p, both[:1], at, fault.QuorumFailed)
	refused("one signer twice", s, p, []ledger.Approval{a, a, alice.approve(p, at.Add(1))}, at, fault.QuorumFailed)
	refused("a stranger's", s, p, []ledger.Approval{a, mallory.approve(p, at)}, at, fault.QuorumFailed)
	refused("another algorithm", s, p, []ledger.Approval{a, otherAlgo}, at, fault.QuorumFailed)
	refused("a short signature", s, p, []ledger.Approval{a, short}, at, fault.QuorumFailed)
	refused("after expiry", s, p, both, p.ExpiresAt.Add(time.Millisecond), fault.Expired)

	_, foreign := genesis(t, 8, signersOf(2, alice, bob, carol))
	refused("to another registry", foreign, p, both, at, fault.Conflict)

	touched := change(t, s, 2, []ledger.Op{ledger.Put(name(t, "docs", "two"))}, alice, bob)
	refused("when the item is another", touched, p, both, at, fault.Conflict)

	rotated := change(t, s, 3, []ledger.Op{ledger.Put(signersItem(t, signersOf(1, alice, bob)))}, alice, bob)
	refused("under another signer set", rotated, p, both, at, fault.Conflict)

	base := s.Head()
	insists, err := s.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "blog", "one"))}, Base: &base}, proposalID(4), at, at.Add(time.Hour))
	testkit.Must(t, err)
	refused("for a stale base", touched, insists, []ledger.Approval{alice.approve(insists, at), bob.approve(insists, at)}, at, fault.ChainMismatch)
	testkit.WantRefusal(t, insists.Check(touched, alice.approve(insists, at), at, skew), fault.ChainMismatch, "")
	commit(t, s, insists, alice, carol)

	_, done := commit(t, s, p, alice, bob)
	refused("after commit", done, p, both, at, fault.Conflict)
	testkit.WantRefusal(t, p.Check(done, carol.approve(p, at), at, skew), fault.Conflict, "")

	quorum := fault.NextOf(func() error { _, _, err := s.Commit(p, both[:1], at); return err }())
	if !strings.Contains(quorum, "1 more") || !strings.Contains(quorum, "bob, carol") || strings.Contains(quorum, "alice") {
		t.Errorf("the next step does not say who is missing: %s", quorum)
	}
}

// Unrelated proposals do not conflict.
func TestProposalsOnDifferentItemsAllCommit(t *testing.T) {
	s := twoOfThree(t)
	var open []*ledger.Proposal
	for i := range 8 {
		open = append(open, propose(t, s, i, ledger.Put(name(t, fmt.Sprint("n", i), "x"))))
	}
	for i, p := range open {
		testkit.Must(t, s.Admit(p, s.CommittedAt()))
		if _, s = commit(t, s, p, alice, carol); s.Head().Version != uint64(i+1) {
			t.Fatalf("version %d after %d commits", s.Head().Version, i+1)
		}
	}
	if s.Len() != 9 {
		t.Errorf("%d items", s.Len())
	}
}

// What was approved once is done once, even if it was undone: the approvals are
// public in the log.
func TestApprovalsAreNotGoodTwice(t *testing.T) {
	s := twoOfThree(t)
	p := propose(t, s, 1, ledger.Put(name(t, "docs", "one")))
	first, done := commit(t, s, p, alice, bob)
	undone := change(t, done, 2, []ledger.Op{ledger.Delete("docs")}, alice, bob)

	at := undone.CommittedAt().Add(time.Second)
	_, _, err := undone.Commit(p, []ledger.Approval{alice.approve(p, at), bob.approve(p, at)}, at)
	testkit.WantRefusal(t, err, fault.Conflict, "")
	if !strings.Contains(fault.DetailOf(err), "already committed, as version 1") {
		t.Errorf("%v", err)
	}

	// A node that writes its own log is not believed by any verifier.
	h, err := first.DecodeHeader()
	testkit.Must(t, err)
	forged := rewrite(t, first, func(fields map[string]any) {
		fields["version"], fields["prev_hash"] = 3, undone.Head().Hash.String()
		fields["committed_at"] = at.Format("2006-01-02T15:04:05.000Z")
	})
	forged.Version = 3
	_, err = undone.Apply(forged)
	testkit.WantRefusal(t, err, fault.Conflict, "")

	reopened, err := ledger.OpenSnapshot(undone.Snapshot())
	testkit.Must(t, err)
	_, err = reopened.Apply(forged)
	testkit.WantRefusal(t, err, fault.Conflict, "")

	// Once it has expired nothing can be done with it, and it is forgotten.
	q, err := undone.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "blog", "x"))}}, proposalID(3), h.ExpiresAt.Add(time.Minute), h.ExpiresAt.Add(time.Hour))
	testkit.Must(t, err)
	_, late, err := undone.Commit(q, []ledger.Approval{alice.approve(q, at), bob.approve(q, at)}, h.ExpiresAt.Add(time.Minute))
	testkit.Must(t, err)
	if strings.Contains(string(late.Snapshot()), p.ID) {
		t.Error("an expired proposal is still remembered")
	}
}

// A clock that jumps back does not take the log with it.
func TestTimeDoesNotGoBack(t *testing.T) {
	s := twoOfThree(t)
	p := propose(t, s, 1, ledger.Put(name(t, "docs", "one")))
	at := s.CommittedAt().Add(-24 * time.Hour)
	approvals := []ledger.Approval{alice.approve(p, start), bob.approve(p, start)}
	r, next, err := s.Commit(p, approvals, at)
	testkit.Must(t, err)
	if !next.CommittedAt().Equal(s.CommittedAt()) {
		t.Errorf("committed at %s after %s", next.CommittedAt(), s.CommittedAt())
	}
	if _, err := s.Apply(r); err != nil {
		t.Error(err)
	}
}

func TestSupersede(t *testing.T) {
	s := twoOfThree(t)
	s = change(t, s, 1, []ledger.Op{ledger.Put(name(t, "docs", "one")), ledger.Put(name(t, "old", "x"))}, alice, bob)
	good := s
	s = change(t, s, 2, []ledger.Op{ledger.Put(name(t, "docs", "bad")), ledger.Delete("old"), ledger.Put(name(t, "new", "y"))}, alice, bob)

	now := s.CommittedAt().Add(time.Minute)
	ask := func(r ledger.SupersedeRequest) (*ledger.Proposal, error) {
		return s.Supersede(r, proposalID(3), now, now.Add(time.Hour))
	}
	_, err := ask(ledger.SupersedeRequest{Head: good.Head(), Reason: "no"})
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")
	_, err = ask(ledger.SupersedeRequest{Head: s.Head()})
	testkit.WantRefusal(t, err, fault.Malformed, "")
	_, err = ask(ledger.SupersedeRequest{Head: s.Head(), Reason: strings.Repeat("x", ledger.MaxReason+1)})
	testkit.WantRefusal(t, err, fault.Malformed, "")
	_, err = ask(ledger.SupersedeRequest{Head: s.Head(), Reason: "line\nbreak"})
	testkit.WantRefusal(t, err, fault.Malformed, "")
	_, first := genesis(t, 7, signersOf(2, alice, bob, carol))
	_, err = first.Supersede(ledger.SupersedeRequest{Head: first.Head(), Reason: "no"}, proposalID(3), now, now.Add(time.Hour))
	testkit.WantRefusal(t, err, fault.Conflict, "")

	p, err := ask(ledger.SupersedeRequest{Head: s.Head(), Reason: `docs "pointed" at the wrong build`})
	testkit.Must(t, err)
	reopened, err := ledger.OpenSnapshot(s.Snapshot())
	testkit.Must(t, err)
	again, err := reopened.Supersede(ledger.SupersedeRequest{Head: s.Head(), Reason: p.Supersedes.Reason}, proposalID(3), now, now.Add(time.Hour))
	if err != nil || string(again.SignThis) != string(p.SignThis) {
		t.Errorf("a state from a snapshot proposes something else: %v", err)
	}

	// If another version comes between, there is another head.
	between := change(t, s, 4, []ledger.Op{ledger.Put(name(t, "other", "z"))}, alice, bob)
	_, _, err = between.Commit(p, []ledger.Approval{alice.approve(p, now), bob.approve(p, now)}, now)
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")

	r, undone := commit(t, s, p, bob, carol)
	h, err := r.DecodeHeader()
	if err != nil || h.Supersedes == nil || h.Supersedes.Head != s.Head() || h.Supersedes.Reason != `docs "pointed" at the wrong build` {
		t.Errorf("the header says %+v, %v", h.Supersedes, err)
	}
	var is, was []string
	for i := range undone.Items() {
		is = append(is, string(i.JSON))
	}
	for i := range good.Items() {
		was = append(was, string(i.JSON))
	}
	if fmt.Sprint(is) != fmt.Sprint(was) {
		t.Errorf("superseded to\n%s\nwant\n%s", is, was)
	}

	own, err := ask(ledger.SupersedeRequest{Head: s.Head(), Reason: "only docs", Ops: []ledger.Op{ledger.Put(name(t, "docs", "one"))}})
	if err != nil || own.Diff.String() == p.Diff.String() || len(own.Diff) != 1 {
		t.Errorf("own operations: %v, %v", own, err)
	}
	commit(t, s, own, alice, bob)
}

// A lost key is removed by the other signers, and superseding that needs them
// too.
func TestSupersedeOfARevocation(t *testing.T) {
	s := twoOfThree(t)
	s = change(t, s, 1, []ledger.Op{ledger.Put(signersItem(t, signersOf(2, alice, bob)))}, alice, bob)
	if version, gone := s.Retired(carol.public()); !gone || version != 1 {
		t.Fatalf("retired %t in %d", gone, version)
	}
	now := s.CommittedAt().Add(time.Minute)
	p, err := s.Supersede(ledger.SupersedeRequest{Head: s.Head(), Reason: "it was found again"}, proposalID(2), now, now.Add(time.Hour))
	testkit.Must(t, err)
	testkit.WantRefusal(t, p.Check(s, carol.approve(p, now), now, skew), fault.RevokedKey, "")
	_, s = commit(t, s, p, alice, bob)
	if _, gone := s.Retired(carol.public()); gone || len(s.Signers().Keys) != 3 || fmt.Sprint(s.SignerVersions()) != "[0 1 2]" {
		t.Errorf("after superseding: %v, %v", s.Signers(), s.SignerVersions())
	}
}

func TestGenesisRefuses(t *testing.T) {
	for what, set := range map[string]ledger.SignerSet{
		"m of 0":          signersOf(0, alice),
		"m below 0":       signersOf(-1, alice),
		"m over n":        signersOf(3, alice, bob),
		"nobody":          signersOf(1),
		"a key twice":     signersOf(1, alice, testSigner{"alias", alice.key}),
		"a name twice":    signersOf(1, alice, testSigner{"alice", bob.key}),
		"a bad name":      signersOf(1, testSigner{"Alice", alice.key}),
		"no key":          {M: 1, Keys: []ledger.Signer{{ID: "zero"}}},
		"too many":        signersOf(1, manyTestSigners(65)...),
		"a name too long": signersOf(1, testSigner{strings.Repeat("a", 65), alice.key}),
	} {
		t.Run(what, func(t *testing.T) {
			_, _, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, At: start})
			if fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
	if _, _, err := ledger.Genesis(ledger.GenesisSpec{Signers: signersOf(1, alice), At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a registry began after the year 9999")
	}
	_, s := genesis(t, 1, signersOf(64, manyTestSigners(64)...))
	p := propose(t, s, 1, ledger.Put(name(t, "docs", "x")))
	r, _ := commit(t, s, p, manyTestSigners(64)...)
	if len(r.Header) > ledger.MaxHeader {
		t.Errorf("the header has %d bytes", len(r.Header))
	}
}

func manyTestSigners(n int) []testSigner {
	var all []testSigner
	for i := range n {
		all = append(all, newTestSigner(fmt.Sprint("k", i), byte(100+i)))
	}
	return all
}

// Two registries with the same signers are two registries.
func TestTheNonceMakesTheRegistry(t *testing.T) {
	_, a := genesis(t, 1, signersOf(1, alice))
	_, b := genesis(t, 2, signersOf(1, alice))
	if a.Registry() == b.Registry() || a.Registry() != a.Head().Hash || a.Registry().IsZero() {
		t.Errorf("%s and %s", a.Registry(), b.Registry())
	}
}

func TestInspectAndDiffOfWhatIsSigned(t *testing.T) {
	s := twoOfThree(t)
	s = change(t, s, 1, []ledger.Op{ledger.Put(name(t, "docs", "one"))}, alice, bob)
	head := s.Head()
	now := s.CommittedAt().Add(time.Second)
	p, err := s.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "docs", "two")), ledger.Put(name(t, "blog", "x"))}, Base: &head}, proposalID(2), now, now.Add(time.Hour))
	testkit.Must(t, err)
	m, err := ledger.ParseApprovalMessage(p.SignThis)
	if err != nil || m.Registry != s.Registry() || m.ProposalID != p.ID || *m.Base != head || m.PayloadB3 != b3.Of(p.Payload) || !m.ExpiresAt.Equal(p.ExpiresAt) {
		t.Fatalf("%+v, %v", m, err)
	}
	d, err := m.Diff(p.Payload, p.Preconditions, s.Item)
	if err != nil || d.String() != p.Diff.String() {
		t.Errorf("%s, %v", d, err)
	}
	lies := func(string) (ledger.Item, bool) { return name(t, "docs", "three"), true }
	for what, err := range map[string]error{
		"another payload":            testkit.ErrOf(m.Diff(append(p.Payload, ' '), p.Preconditions, s.Item)),
		"other preconditions":        testkit.ErrOf(m.Diff(p.Payload, []byte("[]"), s.Item)),
		"a lie about before":         testkit.ErrOf(m.Diff(p.Payload, p.Preconditions, lies)),
		"silence about before":       testkit.ErrOf(m.Diff(p.Payload, p.Preconditions, func(string) (ledger.Item, bool) { return ledger.Item{}, false })),
		"a payload that is not":      testkit.ErrOf(ledger.ApprovalMessage{PayloadB3: b3.Of(nil), PreconditionsB3: b3.Of(nil)}.Diff(nil, nil, s.Item)),
		"preconditions that are not": testkit.ErrOf(ledger.ApprovalMessage{PayloadB3: m.PayloadB3, PreconditionsB3: b3.Of(nil)}.Diff(p.Payload, nil, s.Item)),
		"preconditions of another":   testkit.ErrOf(ledger.ApprovalMessage{PayloadB3: m.PayloadB3, PreconditionsB3: b3.Of([]byte(`[{"hash":null,"id":"x"}]`))}.Diff(p.Payload, []byte(`[{"hash":null,"id":"x"}]`), s.Item)),
	} {
		if fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a version shows of its approvals is what its header has.
func TestApprovalsOfAVersion(t *testing.T) {
	s := twoOfThree(t)
	r, _ := commit(t, s, propose(t, s, 1, ledger.Put(name(t, "docs", "x"))), carol, alice)
	h, err := r.DecodeHeader()
	testkit.Must(t, err)
	text, err := json.Marshal(h.Approvals)
	if err != nil || !strings.HasPrefix(string(r.Header), `{"approvals":`+string(text)+`,"base"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestInspectRefuses(t *testing.T) {
	p := propose(t, twoOfThree(t), 1, ledger.Put(name(t, "docs", "x")))
	text := string(p.SignThis)
	for what, message := range map[string]string{
		"nothing":          "",
		"something else":   "tree/v1\n{}",
		"no JSON":          text[:31] + "{",
		"a space more":     text + " ",
		"a field more":     text[:len(text)-1] + `,"zzz":1}`,
		"a field less":     strings.Replace(text, `"base":null,`, "", 1),
		"no proposal":      strings.Replace(text, p.ID, "", 1),
		"another prefix":   strings.Replace(text, "v1", "v2", 1),
		"a reason in vain": strings.Replace(text, `"supersedes":null`, `"supersedes":{"hash":"`+p.PayloadB3.String()+`","reason":"","version":1}`, 1),
		"very much":        text + strings.Repeat(" ", 1<<16),
		"an odd time":      strings.Replace(text, ".678Z", ".67Z", 1),
		"signers from 1.5": strings.Replace(text, `"signers_version":0`, `"signers_version":1.5`, 1),
	} {
		if message == text {
			t.Fatalf("%s: nothing was changed", what)
		}
		_, err := ledger.ParseApprovalMessage([]byte(message))
		testkit.WantRefusal(t, err, fault.Malformed, "")
	}
}

// Handlers check approvals while the committer continues.
func TestManyReadersOfOneState(t *testing.T) {
	s := twoOfThree(t)
	p := propose(t, s, 1, ledger.Put(name(t, "docs", "x")))
	before := string(s.Snapshot())
	var all sync.WaitGroup
	for _, k := range []testSigner{alice, bob, carol} {
		all.Go(func() {
			for range 20 {
				if err := p.Check(s, k.approve(p, start), start.Add(time.Second), skew); err != nil {
					t.Error(err)
				}
				_ = s.Snapshot()
			}
		})
	}
	next := s
	for i := range 20 {
		next = change(t, next, 10+i, []ledger.Op{ledger.Put(name(t, fmt.Sprint("n", i), "x"))}, alice, bob)
	}
	all.Wait()
	if string(s.Snapshot()) != before {
		t.Error("a state has changed under its readers")
	}
}
