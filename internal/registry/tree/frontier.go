package tree

import (
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Frontier is the minimum needed to append to a tree: its size, and the newest
// complete node of each height. It takes two kilobytes at any size. The zero
// Frontier is the empty tree. Copy it to try something out.
type Frontier struct {
	size uint64

	// nodes[h] is the newest complete node of height h. If bit h of the size is
	// set it has no right sibling yet, and so the root is made of it.
	nodes [64]Hash
}

// Append adds a leaf. It hashes once for each node that becomes complete, which
// is less than once per leaf on average.
func (f *Frontier) Append(leaf Hash) {
	node := leaf
	height := bits.TrailingZeros64(f.size + 1)
	for h := range height {
		left := f.nodes[h]
		f.nodes[h] = node
		node = tlog.NodeHash(left, node)
	}
	f.nodes[height] = node
	f.size++
}

// Size is the number of leaves.
func (f *Frontier) Size() uint64 { return f.size }

// Root is the root of the tree as it is now.
func (f *Frontier) Root() Hash {
	if f.size == 0 {
		return EmptyRoot
	}
	height := bits.TrailingZeros64(f.size)
	root := f.nodes[height]
	for h := height + 1; h < bits.Len64(f.size); h++ {
		if f.size>>h&1 == 1 {
			root = tlog.NodeHash(f.nodes[h], root)
		}
	}
	return root
}

// newest is the newest complete node of a height.
func (f *Frontier) newest(height int) Hash { return f.nodes[height] }

// appendAll adds the hashes of a tile.
func (f *Frontier) appendAll(tile []byte) {
	for ; len(tile) >= HashSize; tile = tile[HashSize:] {
		f.Append(Hash(tile[:HashSize]))
	}
}
