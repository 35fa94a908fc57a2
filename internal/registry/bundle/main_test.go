package bundle_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/internal/registry/bundle"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// key is the private key of a signer in these tests.
func key(name string) ed25519.PrivateKey {
	seed := b3.Of([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func setOf(m int, names ...string) ledger.SignerSet {
	set := ledger.SignerSet{M: m}
	for _, n := range names {
		set.Keys = append(set.Keys, ledger.Signer{ID: n, Public: ledger.PublicKey(key(n).Public().(ed25519.PublicKey))})
	}
	return set
}

// registry is a log that is made with the ledger's own functions.
type registry struct {
	records        []ledger.Record
	state          *ledger.State
	signerVersions [][]uint64 // by version: the versions that had changed the signer set before it
	logKey         ed25519.PrivateKey
}

func newRegistry(t testkit.T, nonce byte) *registry {
	t.Helper()
	first, state, err := ledger.Genesis(ledger.GenesisSpec{Signers: setOf(2, "alice", "bob", "carol"), Nonce: [16]byte{nonce}, At: start})
	testkit.Value(t, first, err)
	return &registry{[]ledger.Record{first}, state, [][]uint64{{0}}, key("log")}
}

// put commits an item, approved by the first m of the signers in force.
func (r *registry) put(t testkit.T, item ledger.Item, base *ledger.Head) {
	t.Helper()
	version := uint64(len(r.records))
	now := start.Add(time.Duration(version) * time.Second)
	var random [16]byte
	binary.BigEndian.PutUint64(random[:], version)
	p, err := r.state.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(item)}, Base: base}, ledger.ProposalID(random), now, now.Add(time.Minute))
	testkit.Value(t, p, err)

	var approvals []ledger.Approval
	for _, s := range r.state.Signers().Keys[:r.state.Signers().M] {
		approvals = append(approvals, ledger.Approve(p.SignThis, key(s.ID), s.ID, now))
	}
	sets := r.state.SignerVersions()
	record, state, err := r.state.Commit(p, approvals, now)
	r.records, r.state, r.signerVersions = append(r.records, testkit.Value(t, record, err)), state, append(r.signerVersions, sets)
}

func (r *registry) name(t testkit.T, id, content string) {
	t.Helper()
	item, err := ledger.ParseItem(fmt.Appendf(nil, `{"kind":"name","id":%q,"manifest":%q}`, id, b3.Of([]byte(content))))
	r.put(t, testkit.Value(t, item, err), nil)
}

func (r *registry) rotateSigners(t testkit.T, set ledger.SignerSet) {
	t.Helper()
	item, err := set.Item()
	r.put(t, testkit.Value(t, item, err), nil)
}

// sampleRegistry has everything that a bundle can show: names, three signer
// sets, a version that requires its base.
func sampleRegistry(t testkit.T) *registry {
	t.Helper()
	r := newRegistry(t, 1)
	r.name(t, "docs", "one")
	r.rotateSigners(t, setOf(2, "alice", "bob", "dave"))
	r.name(t, "docs", "two")
	r.name(t, "wiki", "three")
	r.rotateSigners(t, setOf(3, "erin", "alice", "dave", "frank"))
	head := r.state.Head()
	item, err := ledger.ParseItem([]byte(`{"kind":"region","id":"eu"}`))
	r.put(t, testkit.Value(t, item, err), &head)
	r.name(t, "docs", "four")
	r.name(t, "docs", "five")
	return r
}

func (r *registry) id() b3.Address { return b3.Of(r.records[0].Header) }

func (r *registry) trust(t testkit.T) bundle.Trust {
	t.Helper()
	id := r.id()
	return bundle.Trust{Registry: &id, Key: r.signer(t).VerifierKey()}
}

func (r *registry) signer(t testkit.T) *tree.Signer {
	t.Helper()
	s, err := tree.NewSigner(r.logKey, tree.Origin(r.id()))
	return testkit.Value(t, s, err)
}

// parts are those of a bundle of a version, in the log as it was at a size.
func (r *registry) parts(t testkit.T, version, size uint64) bundle.Contents {
	t.Helper()
	log := tree.New(nil)
	for _, record := range r.records[:size] {
		log.Append(tree.LeafHash(record.Header))
	}
	view, s := log.View(), r.signer(t)
	checkpoint, err := tree.FormatCheckpoint(tree.Checkpoint{Origin: s.Name(), Size: size, Root: view.Root(), Snapshot: b3.Of(nil)}, s)
	testkit.Value(t, checkpoint, err)
	consistency, err := view.ProveConsistency(context.Background(), version+1, size)
	testkit.Value(t, consistency, err)
	entry := func(version uint64) bundle.Entry {
		proof, err := view.ProveInclusion(context.Background(), version, size)
		return bundle.Entry{Record: r.records[version], Inclusion: testkit.Value(t, proof, err)}
	}
	p := bundle.Contents{Registry: r.id(), Key: s.VerifierKey(), Checkpoint: checkpoint, Version: entry(version), Consistency: consistency}
	for _, v := range r.signerVersions[version] {
		p.Signers = append(p.Signers, entry(v))
	}
	return p
}

func (r *registry) bundle(t testkit.T, version uint64) []byte {
	t.Helper()
	data, err := bundle.Make(r.parts(t, version, uint64(len(r.records))))
	return testkit.Value(t, data, err)
}

// forge rewrites the header of a version as an operator of the log could, with
// the log's key and none of the signers'. Later versions stay as they were.
func (r *registry) forge(t testkit.T, version uint64, edit func(header map[string]any)) *registry {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.records[version].Header))
	d.UseNumber()
	var header map[string]any
	testkit.Value(t, 0, d.Decode(&header))
	edit(header)
	text, err := json.Marshal(header)
	testkit.Value(t, text, err)

	forged := *r
	forged.records = slices.Clone(r.records)
	forged.records[version].Header = text
	return &forged
}
