package b3

import (
	"math/bits"

	"github.com/zeebo/blake3"
	"lukechampine.com/blake3/guts"
)

// smallSize is the largest content that the second library hashes. The first,
// whose compression function all of this package is built on, is at its best
// with the sixteen chunks of a group: it hashes a single chunk without
// vectors, and a part of a group costs it as much as a whole one. The second
// takes eight chunks at a time, or one block with vectors, but does not expose
// the tree, so it can only hash a whole content in one call. It is here
// because the messages of the overlay, of about a kilobyte, are hashed three
// times on their way. Measured on a shared Xeon with AVX-512, the best of many
// runs of BenchmarkOf, in microseconds:
//
//	bytes     64    256   1024   1100   4096   8192   10240   12288   16384
//	first   0.17   0.51    1.9    2.4    3.8    3.9     4.1     4.1     3.9
//	second  0.11   0.33    1.2    1.8    3.0    3.2     5.8     5.8     5.9
//
// It costs 40 KB of program, 20 µs at start-up and 22 KB of stack while it
// hashes; the first one needs 17 KB. The tests compare the two.
const smallSize = 8 * guts.ChunkSize

// Of returns the address of data.
func Of(data []byte) Address {
	switch {
	case len(data) <= smallSize:
		return blake3.Sum256(data)
	case len(data) <= GroupSize:
		return rootAddress(groupNode(data, 0))
	default:
		return hashLarge(data)
	}
}

// hashLarge is separate from Of because its Hasher would otherwise be on the
// stack of every caller that hashes a small content.
//
//go:noinline
func hashLarge(data []byte) Address {
	var h Hasher
	h.absorb(data)
	return h.Sum()
}

// Hasher computes the address of what is written to it. The zero Hasher is
// ready. It takes the same 18 KiB for any amount of content. It is not safe
// for concurrent use.
type Hasher struct {
	// The group that is being filled. It is hashed only when a further byte
	// arrives, because the last group may turn out to be the root.
	group  [GroupSize]byte
	filled int

	// Whole subtrees to the left of that group. subtrees[i] holds one of 2^i
	// groups when bit i of groups is set.
	groups   uint64
	subtrees [50]hash

	// The hash of every whole group, for a TreeHasher only.
	keepLeaves bool
	leaves     []hash
}

// Write adds p to the content. It never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	h.absorb(p)
	return len(p), nil
}

func (h *Hasher) absorb(p []byte) {
	for len(p) > 0 {
		if h.filled == GroupSize {
			h.push(h.group[:])
			h.filled = 0
		}
		if h.filled == 0 && len(p) > GroupSize {
			h.push(p[:GroupSize])
			p = p[GroupSize:]
			continue
		}
		n := copy(h.group[h.filled:], p)
		h.filled += n
		p = p[n:]
	}
}

// push folds a whole group that is not the last into the subtrees on its left.
func (h *Hasher) push(group []byte) {
	sum := chainingValue(groupNode(group, h.groups*chunksPerGroup))
	if h.keepLeaves {
		h.leaves = append(h.leaves, sum)
	}
	i := 0
	for ; h.groups&(1<<i) != 0; i++ {
		sum = chainingValue(parentNode(h.subtrees[i], sum))
	}
	h.subtrees[i] = sum
	h.groups++
}

// Sum returns the address of what was written so far. More may be written
// afterwards.
func (h *Hasher) Sum() Address {
	if h.groups == 0 {
		return Of(h.group[:h.filled])
	}
	top := h.lastNode()
	for left := h.groups; left != 0; left &= left - 1 {
		top = parentNode(h.subtrees[bits.TrailingZeros64(left)], chainingValue(top))
	}
	return rootAddress(top)
}

// lastNode is the node of the group that is being filled.
func (h *Hasher) lastNode() guts.Node {
	return groupNode(h.group[:h.filled], h.groups*chunksPerGroup)
}

// N returns the number of bytes written.
func (h *Hasher) N() int64 {
	return int64(h.groups)*GroupSize + int64(h.filled)
}

// Reset returns the Hasher to its zero state.
func (h *Hasher) Reset() {
	h.filled = 0
	h.groups = 0
	h.leaves = h.leaves[:0]
}
