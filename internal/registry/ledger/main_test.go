package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is when the registries of the tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

const skew = 2 * time.Minute

// testSigner is a signer with a private key.
type testSigner struct {
	id  string
	key ed25519.PrivateKey
}

// newTestSigner makes the same key for the same seed.
func newTestSigner(id string, seed byte) testSigner {
	return testSigner{id, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

var alice, bob, carol, dave = newTestSigner("alice", 1), newTestSigner("bob", 2), newTestSigner("carol", 3), newTestSigner("dave", 4)

func (s testSigner) public() ledger.PublicKey {
	return ledger.PublicKey(s.key.Public().(ed25519.PublicKey))
}

func (s testSigner) approve(p *ledger.Proposal, at time.Time) ledger.Approval {
	return ledger.Approve(p.SignThis, s.key, s.id, at)
}

func signersOf(m int, keepers ...testSigner) ledger.SignerSet {
	set := ledger.SignerSet{M: m}
	for _, k := range keepers {
		set.Keys = append(set.Keys, ledger.Signer{ID: k.id, Public: k.public()})
	}
	return set
}

// genesis begins a registry; the nonce distinguishes it from others.
func genesis(t testkit.T, nonce byte, set ledger.SignerSet) (ledger.Record, *ledger.State) {
	t.Helper()
	r, s, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, Nonce: [16]byte{nonce}, At: start})
	if err != nil {
		t.Fatalf("genesis: %v", err)
	}
	return r, s
}

// twoOfThree is a registry of alice, bob and carol.
func twoOfThree(t testkit.T) *ledger.State {
	t.Helper()
	_, s := genesis(t, 7, signersOf(2, alice, bob, carol))
	return s
}

func proposalID(n int) string {
	var random [16]byte
	copy(random[:], fmt.Sprintf("%016d", n))
	return ledger.ProposalID(random)
}

func item(t testkit.T, json string) ledger.Item {
	t.Helper()
	i, err := ledger.ParseItem([]byte(json))
	if err != nil {
		t.Fatalf("item %s: %v", json, err)
	}
	return i
}

// name is an item of the kind name that points to some text.
func name(t testkit.T, id, text string) ledger.Item {
	t.Helper()
	return item(t, fmt.Sprintf(`{"kind":"name","id":%q,"manifest":%q}`, id, b3.Of([]byte(text))))
}

func signersItem(t testkit.T, set ledger.SignerSet) ledger.Item {
	t.Helper()
	i, err := set.Item()
	if err != nil {
		t.Fatalf("signers: %v", err)
	}
	return i
}

// propose makes a proposal that lives for an hour.
func propose(t testkit.T, s *ledger.State, n int, ops ...ledger.Op) *ledger.Proposal {
	t.Helper()
	now := s.CommittedAt().Add(time.Second)
	p, err := s.Propose(ledger.Request{Ops: ops}, proposalID(n), now, now.Add(time.Hour))
	if err != nil {
		t.Fatalf("propose: %v", err)
	}
	return p
}

// commit has a proposal approved and commits it; every record is verified
// independently.
func commit(t testkit.T, s *ledger.State, p *ledger.Proposal, keepers ...testSigner) (ledger.Record, *ledger.State) {
	t.Helper()
	at := s.CommittedAt().Add(2 * time.Second)
	var approvals []ledger.Approval
	for _, k := range keepers {
		a := k.approve(p, at)
		if err := p.Check(s, a, at, skew); err != nil {
			t.Fatalf("check: %v", err)
		}
		approvals = append(approvals, a)
	}
	r, next, err := s.Commit(p, approvals, at)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	applied, err := s.Apply(r)
	if err != nil {
		t.Fatalf("what was committed does not verify: %v", err)
	}
	same(t, "applied", applied, next)
	return r, next
}

// change is propose and commit in one.
func change(t testkit.T, s *ledger.State, n int, ops []ledger.Op, keepers ...testSigner) *ledger.State {
	t.Helper()
	_, next := commit(t, s, propose(t, s, n, ops...), keepers...)
	return next
}

func same(t testkit.T, what string, got, want *ledger.State) {
	t.Helper()
	if !bytes.Equal(got.Snapshot(), want.Snapshot()) {
		t.Fatalf("%s: the states differ:\n%s\n%s", what, got.Snapshot(), want.Snapshot())
	}
}
