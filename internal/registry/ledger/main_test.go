package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is when the registries of the tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

const skew = 2 * time.Minute

// failer is what both *testing.T and *rapid.T can do.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// keeper is a signer with a private key.
type keeper struct {
	id  string
	key ed25519.PrivateKey
}

// newKeeper makes the same key for the same seed.
func newKeeper(id string, seed byte) keeper {
	return keeper{id, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

var alice, bob, carol, dave = newKeeper("alice", 1), newKeeper("bob", 2), newKeeper("carol", 3), newKeeper("dave", 4)

func (k keeper) public() ledger.PublicKey {
	return ledger.PublicKey(k.key.Public().(ed25519.PublicKey))
}

func (k keeper) approve(p *ledger.Proposal, at time.Time) ledger.Approval {
	return ledger.Approve(p.SignThis, k.key, k.id, at)
}

func signersOf(m int, keepers ...keeper) ledger.SignerSet {
	set := ledger.SignerSet{M: m}
	for _, k := range keepers {
		set.Keys = append(set.Keys, ledger.Signer{ID: k.id, Public: k.public()})
	}
	return set
}

// genesis begins a registry; the nonce tells it from others.
func genesis(t failer, nonce byte, set ledger.SignerSet) (ledger.Record, *ledger.State) {
	t.Helper()
	r, s, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, Nonce: [16]byte{nonce}, At: start})
	if err != nil {
		t.Fatalf("genesis: %v", err)
	}
	return r, s
}

// twoOfThree is a registry of alice, bob and carol.
func twoOfThree(t failer) *ledger.State {
	t.Helper()
	_, s := genesis(t, 7, signersOf(2, alice, bob, carol))
	return s
}

func proposalID(n int) string {
	var random [16]byte
	copy(random[:], fmt.Sprintf("%016d", n))
	return ledger.ProposalID(random)
}

func item(t failer, json string) ledger.Item {
	t.Helper()
	i, err := ledger.ParseItem([]byte(json))
	if err != nil {
		t.Fatalf("item %s: %v", json, err)
	}
	return i
}

// name is an item of the kind name that stands for some text.
func name(t failer, id, text string) ledger.Item {
	t.Helper()
	return item(t, fmt.Sprintf(`{"kind":"name","id":%q,"manifest":%q}`, id, b3.Of([]byte(text))))
}

func signersItem(t failer, set ledger.SignerSet) ledger.Item {
	t.Helper()
	i, err := set.Item()
	if err != nil {
		t.Fatalf("signers: %v", err)
	}
	return i
}

// propose makes a proposal that lives for an hour.
func propose(t failer, s *ledger.State, n int, ops ...ledger.Op) *ledger.Proposal {
	t.Helper()
	now := s.CommittedAt().Add(time.Second)
	p, err := s.Propose(ledger.Request{Ops: ops}, proposalID(n), now, now.Add(time.Hour))
	if err != nil {
		t.Fatalf("propose: %v", err)
	}
	return p
}

// commit has a proposal approved and commits it; every record is verified as a
// stranger would.
func commit(t failer, s *ledger.State, p *ledger.Proposal, keepers ...keeper) (ledger.Record, *ledger.State) {
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
func change(t failer, s *ledger.State, n int, ops []ledger.Op, keepers ...keeper) *ledger.State {
	t.Helper()
	_, next := commit(t, s, propose(t, s, n, ops...), keepers...)
	return next
}

func same(t failer, what string, got, want *ledger.State) {
	t.Helper()
	if !bytes.Equal(got.Snapshot(), want.Snapshot()) {
		t.Fatalf("%s: the states differ:\n%s\n%s", what, got.Snapshot(), want.Snapshot())
	}
}

// wantKind asserts a refusal: its kind, and that it says what to do next in a
// sentence.
func wantKind(t failer, err error, kind fault.Kind) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted, want %s", kind)
		return
	}
	if fault.KindOf(err) != kind {
		t.Errorf("%s (%v), want %s", fault.KindOf(err), err, kind)
	}
	if own, ok := err.(*fault.Error); !ok || own.Next == "" || own.Next[len(own.Next)-1] != '.' || fault.DetailOf(err) == "" || own.Op == "" {
		t.Errorf("%#v: operation, detail and next step must be there", err)
	}
}
