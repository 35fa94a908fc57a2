package tree

import (
	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

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

// RootAfter returns the root that the tree had when the leaf at index was its
// last. It is computed from the part of a proof of that leaf's inclusion in a
// larger tree that existed already. So it is valid only if [CheckInclusion] of
// the same proof succeeds.
func RootAfter(proof []Hash, size, index uint64, leaf Hash) Hash {
	root, last := leaf, size-1 // index and last are positions in the level of the current hash
	for _, h := range proof {
		if index&1 == 1 || index == last {
			root = tlog.NodeHash(h, root)
			for index&1 == 0 && index != 0 { // without a sibling it moves up unchanged
				index, last = index>>1, last>>1
			}
		}
		index, last = index>>1, last>>1
	}
	return root
}
