package tree

import (
	"context"

	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

// View is a tree of one size. It is immutable and safe for concurrent use.
// Every tile that it reads through the loader is checked against its root, and
// so are the hashes that proofs are made of.
type View struct {
	load  Loader
	cache *cache

	size    uint64
	root    Hash
	edge    [levels]*edge
	unsaved []Tile
}

// Size is the number of leaves.
func (v *View) Size() uint64 { return v.size }

// Root is the root of the whole view.
func (v *View) Root() Hash { return v.root }

// RootAt is the root that the tree had at a smaller size.
func (v *View) RootAt(ctx context.Context, size uint64) (Hash, error) {
	const op = "tree.root"
	if err := v.checkSize(op, size); err != nil {
		return Hash{}, err
	}
	if size == v.size {
		return v.root, nil
	}
	r := v.reader(ctx)
	root, err := tlog.TreeHash(int64(size), r.hashes())
	return root, r.readError(op, err)
}

// ProveInclusion returns the proof that the tree of a size has a leaf at index:
// what [CheckInclusion] checks.
func (v *View) ProveInclusion(ctx context.Context, index, size uint64) ([]Hash, error) {
	const op = "tree.inclusion"
	if err := v.checkSize(op, size); err != nil {
		return nil, err
	}
	if index >= size {
		return nil, fault.New(op, fault.NotFound, "a tree of %d leaves has none at %d", size, index)
	}
	r := v.reader(ctx)
	proof, err := tlog.ProveRecord(int64(size), int64(index), r.hashes())
	return proof, r.readError(op, err)
}

// ProveConsistency returns the proof that the tree of a size begins with the
// tree of an older one: what [CheckConsistency] checks.
func (v *View) ProveConsistency(ctx context.Context, old, size uint64) ([]Hash, error) {
	const op = "tree.consistency"
	if err := v.checkSize(op, size); err != nil {
		return nil, err
	}
	if old > size {
		return nil, fault.New(op, fault.NotFound, "a tree of %d leaves does not begin with one of %d", size, old)
	}
	if old == 0 { // every tree begins with the empty one, and that needs no proof
		return []Hash{}, nil
	}
	r := v.reader(ctx)
	proof, err := tlog.ProveTree(int64(size), int64(old), r.hashes())
	return proof, r.readError(op, err)
}

// Tile returns the first width hashes of a tile, as they are served. NotFound
// if the view has fewer. The bytes must not be changed.
func (v *View) Tile(ctx context.Context, at TileID, width int) ([]byte, error) {
	const op = "tree.tile"
	if have := v.width(at); width < 1 || width > have {
		return nil, fault.New(op, fault.NotFound, "a tree of %d leaves has %d hashes of tile %d/%d, not %d",
			v.size, have, at.Level, at.N, width)
	}
	if data := v.inMemory(at); data != nil {
		return data[:width*HashSize], nil
	}
	if data := v.cache.get(at); data != nil { // it was verified before, and never changes
		return data[:width*HashSize], nil
	}

	// To read one hash of the tile means to check all of it.
	r := v.reader(ctx)
	r.wantedTile = at
	_, err := r.hashes().ReadHashes([]int64{tlog.StoredHashIndex(at.Level*tileHeight, int64(at.N)<<tileHeight)})
	if err := r.readError(op, err); err != nil {
		return nil, err
	}
	return r.wantedData[:width*HashSize], nil
}

// Leaf returns the leaf at an index, checked against the root.
func (v *View) Leaf(ctx context.Context, index uint64) (Hash, error) {
	at, within := TileID{N: index / TileWidth}, int(index%TileWidth)
	tile, err := v.Tile(ctx, at, within+1)
	if err != nil {
		return Hash{}, fault.Wrap("tree.leaf", err)
	}
	return Hash(tile[within*HashSize:]), nil
}

// WithLoader returns the same view with another loader of tiles.
func (v *View) WithLoader(load Loader) *View {
	other := *v
	other.load, other.cache = load, new(cache)
	return &other
}

// checkSize rejects a size that the view has not reached.
func (v *View) checkSize(op string, size uint64) error {
	if size > v.size {
		return fault.New(op, fault.NotFound, "the tree has %d leaves, not yet %d", v.size, size)
	}
	return nil
}

// width is how many hashes of a tile the view has.
func (v *View) width(at TileID) int {
	if at.Level < 0 || at.Level >= levels {
		return 0
	}
	hashes := v.size >> (tileHeight * at.Level)
	first := at.N << tileHeight
	if first>>tileHeight != at.N || first >= hashes {
		return 0
	}
	return int(min(hashes-first, TileWidth))
}

// inMemory returns a tile, full or not, that the view holds itself: those were
// made here and need no check. It returns nil for one that has to be loaded.
func (v *View) inMemory(at TileID) []byte {
	if w := v.width(at); w < TileWidth {
		return v.edge[at.Level][:w*HashSize]
	}
	for _, t := range v.unsaved {
		if t.ID == at {
			return t.Data
		}
	}
	return nil
}

// CheckInclusion checks a proof that the tree of a size and root has this leaf
// at index.
func CheckInclusion(proof []Hash, size uint64, root Hash, index uint64, leaf Hash) error {
	const op = "tree.check inclusion"
	if size > MaxSize || index >= size {
		return fault.New(op, fault.Malformed, "no tree of %d leaves has one at %d", size, index)
	}
	if err := tlog.CheckRecord(proof, int64(size), root, int64(index), leaf); err != nil {
		return fault.New(op, fault.IntegrityFail, "leaf %d is not proved to be in the tree of %d leaves", index, size)
	}
	return nil
}

// CheckConsistency checks a proof that the tree of a size and root begins with
// the tree of an older size and root.
func CheckConsistency(proof []Hash, size uint64, root Hash, old uint64, oldRoot Hash) error {
	const op = "tree.check consistency"
	if size > MaxSize || old > size {
		return fault.New(op, fault.Malformed, "no tree of %d leaves begins with one of %d", size, old)
	}
	if old == 0 {
		if len(proof) == 0 && oldRoot == EmptyRoot {
			return nil
		}
	} else if tlog.CheckTree(proof, int64(size), root, int64(old), oldRoot) == nil {
		return nil
	}
	return fault.New(op, fault.IntegrityFail, "the tree of %d leaves is not proved to begin with that of %d", size, old)
}

// FrontierAfter returns the frontier that the tree had when the leaf at index
// was its last. It is computed from the part of a proof of that leaf's inclusion
// in a larger tree that existed already. So it is valid only if
// [CheckInclusion] of the same proof succeeds.
func FrontierAfter(proof []Hash, size, index uint64, leaf Hash) Frontier {
	f := Frontier{size: index}
	last, height := size-1, 0 // index and last are positions at this height
	for _, h := range proof {
		if index&1 == 1 || index == last {
			for index&1 == 0 && index != 0 { // without a sibling it moves up unchanged
				index, last, height = index>>1, last>>1, height+1
			}
			f.nodes[height] = h
		}
		index, last, height = index>>1, last>>1, height+1
	}
	f.Append(leaf)
	return f
}
