package tampertest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"micronode/b3"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// The shape of the log: where its checkpoints are, where the signers change,
// and up to where it may be pruned. A checkpoint covers what is pruned and some
// versions more, so that some versions are older than any remaining state; a
// change of the signers is among them.
//
// Only changes to tiles need that many versions. The other changes are made to
// a short log as well, in which everything is shifted to lower versions.
const (
	versions   = 300
	shortShift = 240
	pruneBelow = 256

	changedLate = 262
	manySigned  = 266 // has one approval more than it needs
	covering    = 270
	newest      = 290

	batch = 48 // versions that are written together
)

var (
	logKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	thief  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
)

// testLog is the content of a storage.
type testLog struct {
	shift        int // by how many versions everything is shifted
	changedEarly int // the first version that changes the signers
	oldest       int // the size of the oldest checkpoint

	registry      b3.Address
	records       []ledger.Record
	checkpoints   map[uint64]journal.Checkpoint
	tiles         map[journal.TileID][]byte
	prune         *journal.Prune
	claimedPruned uint64 // what the storage falsely claims was pruned
	cutAt         int    // versions after this one are cut off again; zero for none
	states        []*ledger.State
	original      *testLog // as it was before tampering

	nonce byte            // of the registry
	twin  func() *testLog // of another registry with the same signers, and the same changes

	proposals []*ledger.Proposal // of each version
	approvals [][]ledger.Approval
}

// clone is a log that can be changed.
func (l *testLog) clone() *testLog {
	c := *l
	c.records = slices.Clone(l.records)
	c.checkpoints, c.tiles = maps.Clone(l.checkpoints), maps.Clone(l.tiles)
	if l.prune != nil {
		prune := *l.prune
		c.prune = &prune
	}
	return &c
}

// keyOf returns the key of a signer.
func keyOf(id string) ed25519.PrivateKey {
	seed := bytes.Repeat([]byte{byte(len(id))}, ed25519.SeedSize)
	copy(seed, id)
	return ed25519.NewKeyFromSeed(seed)
}

func signerSet(ids ...string) ledger.SignerSet {
	set := ledger.SignerSet{M: 2}
	for _, id := range ids {
		set.Keys = append(set.Keys, ledger.Signer{ID: id, Public: ledger.PublicKey(keyOf(id).Public().(ed25519.PublicKey))})
	}
	return set
}

// The logs before tampering. They are made once.
var (
	long  = made(testLog{changedEarly: 100, oldest: 200})
	short = made(testLog{shift: shortShift, changedEarly: 3, oldest: 5})
)

// made makes a log when it is needed, and its twin when that is.
func made(like testLog) func() *testLog {
	like.nonce = 3
	twin := like
	like.nonce, like.twin = 1, sync.OnceValue(func() *testLog { return buildLog(&twin) })
	return sync.OnceValue(func() *testLog { return buildLog(&like) })
}

// position returns the version that has a number of the long log: all but the
// first few of a short log are shifted.
func (l *testLog) position(number int) int {
	if number < l.shift {
		return number
	}
	return number - l.shift
}

// record returns the record of the version with a number.
func (l *testLog) record(number int) *ledger.Record { return &l.records[l.position(number)] }

func (l *testLog) checkpoint(size int) journal.Checkpoint { return l.checkpoints[uint64(size)] }
func (l *testLog) replace(c journal.Checkpoint)           { l.checkpoints[c.Size] = c }
func (l *testLog) signAgain(size int, root tree.Hash, by ed25519.PrivateKey) {
	c := l.checkpoint(size)
	c.Note = l.sign(size, root, b3.Of(c.Snapshot), by)
	l.replace(c)
}

func buildLog(l *testLog) *testLog {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first, state, err := ledger.Genesis(ledger.GenesisSpec{Signers: signerSet("alice", "bob", "carol"), Nonce: [16]byte{l.nonce}, At: at})
	panicOn(err)
	l.registry, l.checkpoints = state.Registry(), map[uint64]journal.Checkpoint{}
	l.add(first, state, nil, nil)
	for n := 1; n < l.position(versions); n++ {
		at = at.Add(time.Second)
		p, err := state.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(l.item(n))}}, ledger.ProposalID(idOf(n)), at, at.Add(24*time.Hour))
		panicOn(err)
		signers := []string{"alice", "bob"}
		if n == l.position(manySigned) {
			signers = append(signers, "dave") // added by the first change
		}
		var approvals []ledger.Approval
		for _, id := range signers {
			approvals = append(approvals, ledger.Approve(p.SignThis, keyOf(id), id, at))
		}
		record, next, err := state.Commit(p, approvals, at)
		panicOn(err)
		state = next
		l.add(record, state, p, approvals)
	}
	l.original = l
	for _, size := range []int{l.oldest, l.position(covering), l.position(newest)} {
		l.signCheckpoint(size, l.states[size-1].Snapshot())
	}
	l.tiles = l.fullTiles()
	return l
}

func (l *testLog) add(r ledger.Record, state *ledger.State, p *ledger.Proposal, approvals []ledger.Approval) {
	l.records, l.states = append(l.records, r), append(l.states, state)
	l.proposals, l.approvals = append(l.proposals, p), append(l.approvals, approvals)
}

func idOf(n int) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

// item returns the item that a version puts.
func (l *testLog) item(n int) ledger.Item {
	var err error
	var made ledger.Item
	switch n {
	case l.changedEarly:
		made, err = signerSet("alice", "bob", "dave").Item()
	case l.position(changedLate):
		made, err = signerSet("alice", "bob", "dave", "erin").Item()
	default:
		made, err = ledger.ParseItem(fmt.Appendf(nil, `{"id":"n%d","kind":"name","manifest":"b3:%064x"}`, n, n))
	}
	panicOn(err)
	return made
}

// fullTiles are the full tiles of the records as they are now.
func (l *testLog) fullTiles() map[journal.TileID][]byte {
	tiles := map[journal.TileID][]byte{}
	t := tree.New(nil)
	for _, r := range l.records {
		t.Append(tree.LeafHash(r.Header))
	}
	for _, tile := range t.Unsaved() {
		tiles[journal.TileID{Level: tile.ID.Level, N: tile.ID.N}] = tile.Data
	}
	return tiles
}

// root is the root of the first records.
func (l *testLog) root(size int) tree.Hash {
	var f tree.Frontier
	for _, r := range l.records[:size] {
		f.Append(tree.LeafHash(r.Header))
	}
	return f.Root()
}

// signCheckpoint signs a checkpoint of the records as they are now, with a state.
func (l *testLog) signCheckpoint(size int, state []byte) {
	body := l.snapshot(size, state)
	l.checkpoints[uint64(size)] = journal.Checkpoint{Size: uint64(size), Snapshot: body, Note: l.sign(size, l.root(size), b3.Of(body), logKey)}
}

func (l *testLog) sign(size int, root tree.Hash, of b3.Address, key ed25519.PrivateKey) []byte {
	signer, err := tree.NewSigner(key, tree.Origin(l.registry))
	panicOn(err)
	note, err := tree.FormatCheckpoint(tree.Checkpoint{Origin: signer.Name(), Size: uint64(size), Root: root, Snapshot: of}, signer)
	panicOn(err)
	return note
}

// snapshot returns the content of a checkpoint: the state, and the versions
// that changed the signers. It is an independent implementation of the format.
func (l *testLog) snapshot(size int, state []byte) []byte {
	part := func(out, b []byte) []byte { return append(binary.AppendUvarint(out, uint64(len(b))), b...) }
	out := part([]byte("micronode registry snapshot v1\n"), state)
	var signers []ledger.Record
	for _, version := range []int{0, l.changedEarly, l.position(changedLate)} {
		if version < size {
			signers = append(signers, l.records[version])
		}
	}
	out = binary.AppendUvarint(out, uint64(len(signers)))
	for _, r := range signers {
		out = part(part(part(binary.AppendUvarint(out, r.Version), r.Header), r.Payload), r.Preconditions)
	}
	return out
}

// stateIn returns the encoded state of a snapshot.
func stateIn(snapshot []byte) []byte {
	rest := bytes.TrimPrefix(snapshot, []byte("micronode registry snapshot v1\n"))
	n, used := binary.Uvarint(rest)
	return rest[used : uint64(used)+n]
}

// signAllAgain signs all checkpoints again, as a dishonest log would: they
// match the changed records, and their states name the changed heads.
func (l *testLog) signAllAgain() {
	for size, was := range l.checkpoints {
		state := bytes.Replace(stateIn(was.Snapshot), []byte(l.original.records[size-1].Head().Hash.String()), []byte(l.records[size-1].Head().Hash.String()), 1)
		l.signCheckpoint(int(size), state)
	}
	l.tiles = l.fullTiles()
	if l.prune != nil {
		l.setPruneNote(l.pruneNote(covering), logKey)
	}
}

// pruneNote returns the note about pruned versions, and which checkpoint covers
// them.
func (l *testLog) pruneNote(size uint64) tree.PruneNote {
	return tree.PruneNote{Registry: l.registry, Below: pruneBelow, Hash: l.records[pruneBelow-1].Head().Hash, Size: size}
}

// setPruneNote writes a prune note.
func (l *testLog) setPruneNote(p tree.PruneNote, key ed25519.PrivateKey) {
	signer, err := tree.NewSigner(key, tree.Origin(p.Registry))
	panicOn(err)
	note, err := tree.FormatPrune(p, signer)
	panicOn(err)
	l.prune = &journal.Prune{Below: pruneBelow, Note: note}
}

// clonePruned returns the log after its oldest versions were pruned.
func (l *testLog) clonePruned() *testLog {
	c := l.clone()
	c.setPruneNote(c.pruneNote(covering), logKey)
	return c
}

// write writes a log to a storage.
func (l *testLog) write(t testing.TB, into journal.Journal) {
	t.Helper()
	ctx := t.Context()
	var expect *ledger.Head
	for rest := l.records; len(rest) > 0; {
		now := rest[:min(batch, len(rest))]
		must(t, into.Append(ctx, expect, now))
		head := now[len(now)-1].Head()
		expect, rest = &head, rest[len(now):]
	}
	for at, tile := range l.tiles {
		must(t, into.SaveTile(ctx, at, tile))
	}
	for _, size := range slices.Sorted(maps.Keys(l.checkpoints)) {
		must(t, into.SaveCheckpoint(ctx, l.checkpoints[size]))
	}
	if l.prune != nil {
		_, err := into.Prune(ctx, *l.prune)
		must(t, err)
	}
}

// rechain makes the headers from a version on follow each other again. What was
// signed stays as it is: the position of a version is not signed.
func (l *testLog) rechain(from int) {
	for n := l.position(from); n < len(l.records); n++ {
		r := &l.records[n]
		h, err := r.DecodeHeader()
		panicOn(err)
		was, is := h.PrevHash.String(), l.records[n-1].Head().Hash.String()
		r.Header = bytes.Replace(r.Header, []byte(`"prev_hash":"`+was), []byte(`"prev_hash":"`+is), 1)
	}
}

func (l *testLog) isAltered() bool { return l.cutAt > 0 || l.claimedPruned > 0 }

// end is the head after the end was cut off, or zero.
func (l *testLog) end() ledger.Head {
	if l.cutAt == 0 {
		return ledger.Head{}
	}
	return l.records[l.cutAt].Head()
}

// alteredJournal is a storage that has lost the end of its log, or makes false
// claims about its beginning.
type alteredJournal struct {
	journal.Journal
	last          ledger.Head // the end; zero for the real one
	claimedPruned uint64      // what was pruned; zero for the real one
}

func (a alteredJournal) Head(ctx context.Context) (ledger.Head, error) {
	if a.last.Version == 0 {
		return a.Journal.Head(ctx)
	}
	return a.last, nil
}

func (a alteredJournal) Pruned(ctx context.Context) (journal.Prune, uint64, error) {
	p, first, err := a.Journal.Pruned(ctx)
	if a.claimedPruned > 0 {
		p.Below = a.claimedPruned
	}
	return p, first, err
}

func (a alteredJournal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	err := a.Journal.Scan(ctx, from, func(r ledger.Record) error {
		if a.last.Version > 0 && r.Version > a.last.Version {
			return errCut
		}
		return visit(r)
	})
	if err == errCut {
		return nil
	}
	return err
}

var errCut = fmt.Errorf("the log ends here")

// panicOn panics on errors that cannot happen.
func panicOn(err error) {
	if err != nil {
		panic(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
