package tree_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leaf is the leaf hash of the i-th header of the logs in these tests.
func leaf(i uint64) tree.Hash {
	return tree.LeafHash(binary.BigEndian.AppendUint64(nil, i))
}

// tileStore keeps the tiles of a log, and counts the loads.
type tileStore struct {
	tiles map[tree.TileID][]byte
	loads int
}

func newTileStore() *tileStore { return &tileStore{tiles: make(map[tree.TileID][]byte)} }

func (s *tileStore) load(_ context.Context, at tree.TileID) ([]byte, error) {
	s.loads++
	if data, ok := s.tiles[at]; ok {
		return data, nil
	}
	return nil, fault.New("test.load", fault.NotFound, "no tile %v", at)
}

func (s *tileStore) save(t *tree.Tree) {
	for _, tile := range t.Unsaved() {
		s.tiles[tile.ID] = tile.Data
	}
	t.MarkSaved(len(t.Unsaved()))
}

// grow appends leaves up to a size and saves the tiles.
func grow(t *tree.Tree, s *tileStore, size uint64) {
	for t.Size() < size {
		t.Append(leaf(t.Size()))
	}
	s.save(t)
}

// rfcTree is RFC 6962, section 2.1, as it is written there. It remembers the
// hashes of complete subtrees, because otherwise the tests would take hours.
type rfcTree struct {
	leaves []tree.Hash
	memo   map[[2]int]tree.Hash
}

func newRFCTree(size uint64) *rfcTree {
	n := &rfcTree{memo: make(map[[2]int]tree.Hash)}
	for i := range size {
		n.leaves = append(n.leaves, leaf(i))
	}
	return n
}

// root is MTH(D[lo:hi]).
func (r *rfcTree) root(lo, hi int) tree.Hash {
	switch hi - lo {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return r.leaves[lo]
	}
	if h, ok := r.memo[[2]int{lo, hi}]; ok {
		return h
	}
	k := split(hi - lo)
	left, right := r.root(lo, lo+k), r.root(lo+k, hi)
	h := tree.Hash(sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...)))
	if (hi-lo)&(hi-lo-1) == 0 {
		r.memo[[2]int{lo, hi}] = h
	}
	return h
}

// path is PATH(m, D[lo:hi]).
func (r *rfcTree) path(m, lo, hi int) []tree.Hash {
	if hi-lo == 1 {
		return nil
	}
	k := split(hi - lo)
	if m < k {
		return append(r.path(m, lo, lo+k), r.root(lo+k, hi))
	}
	return append(r.path(m-k, lo+k, hi), r.root(lo, lo+k))
}

// subproof is SUBPROOF(m, D[lo:hi], whole).
func (r *rfcTree) subproof(m, lo, hi int, whole bool) []tree.Hash {
	if m == hi-lo {
		if whole {
			return nil
		}
		return []tree.Hash{r.root(lo, hi)}
	}
	k := split(hi - lo)
	if m <= k {
		return append(r.subproof(m, lo, lo+k, whole), r.root(lo+k, hi))
	}
	return append(r.subproof(m-k, lo+k, hi, false), r.root(lo, lo+k))
}

// split is the largest power of two smaller than n.
func split(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func registryID() b3.Address { return b3.Of([]byte("genesis")) }

func newSigner(t testkit.T, seed byte) *tree.Signer {
	t.Helper()
	key := ed25519.NewKeyFromSeed(append(make([]byte, 31), seed))
	s, err := tree.NewSigner(key, tree.Origin(registryID()))
	return testkit.Value(t, s, err)
}

var errDisk = errors.New("the disk hums")
