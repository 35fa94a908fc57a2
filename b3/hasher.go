package b3

import (
	"math/bits"

	"github.com/zeebo/blake3"
	"lukechampine.com/blake3/guts"
)

// smallSize is up to where a whole content is hashed by a second library. The
// first, whose compression function all of this package is built on, is at its
// best with the sixteen chunks of a group: a single chunk it hashes without
// vectors, and a part of a group costs it as much as a whole one. The second
// takes eight chunks at a time, or one block with vectors, but shows nothing of
// the tree, so it can only do what is hashed in one go. It is here because the
// letters of the overlay, of about a kilobyte, are hashed three times on their
// way. Measured on a Xeon with AVX-512 that others used too, the best of many
// runs of BenchmarkOf, in microseconds:
//
//	bytes     64    256   1024   1100   4096   8192   10240   12288   16384
//	first   0.17   0.51    1.9    2.4    3.8    3.9     4.1     4.1     3.9
//	second  0.11   0.33    1.2    1.8    3.0    3.2     5.8     5.8     5.9
//
// It costs 40 KB of program, 20 µs at start-up and 22 KB of stack while it
// hashes; the first one needs 17 KB. The tests hold one against the other.
const smallSize = 8 * guts.ChunkSize

// Of returns the address of data.
func Of(data []byte) Address {
	switch {
	case len(data) <= smallSize:
		return blake3.Sum256(data)
	case len(data) <= GroupSize:
		return rootOf(groupOf(data, 0))
	default:
		return ofLarge(data)
	}
}

// ofLarge is apart from Of because its Hasher would otherwise be on the stack of
// everybody who hashes something small.
//
//go:noinline
func ofLarge(data []byte) Address {
	var h Hasher
	h.absorb(data)
	return h.Sum()
}

// Hasher finds the address of what is written to it. The zero Hasher is ready.
// It takes the same 18 KiB for any amount of content. It is not for use by
// several goroutines at once.
type Hasher struct {
	// The group that is being filled. It is hashed only when a further byte
	// comes, because the last group may turn out to be the root.
	group [GroupSize]byte
	fill  int

	// Whole subtrees to the left of that group. There is one of 2^i groups in
	// done[i] when bit i of groups is set.
	groups uint64
	done   [50]hash

	// The hash of every whole group, for a TreeHasher only.
	keep   bool
	leaves []hash
}

// Write adds p to the content. It never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	h.absorb(p)
	return len(p), nil
}

func (h *Hasher) absorb(p []byte) {
	for len(p) > 0 {
		if h.fill == GroupSize {
			h.push(h.group[:])
			h.fill = 0
		}
		if h.fill == 0 && len(p) > GroupSize {
			h.push(p[:GroupSize])
			p = p[GroupSize:]
			continue
		}
		n := copy(h.group[h.fill:], p)
		h.fill += n
		p = p[n:]
	}
}

// push folds a whole group that others follow into the subtrees on its left.
func (h *Hasher) push(group []byte) {
	sum := hashOf(groupOf(group, h.groups*chunksPerGroup))
	if h.keep {
		h.leaves = append(h.leaves, sum)
	}
	i := 0
	for ; h.groups&(1<<i) != 0; i++ {
		sum = hashOf(parentOf(h.done[i], sum))
	}
	h.done[i] = sum
	h.groups++
}

// Sum returns the address of what was written so far. More may be written
// afterwards.
func (h *Hasher) Sum() Address {
	if h.groups == 0 {
		return Of(h.group[:h.fill])
	}
	top := h.last()
	for left := h.groups; left != 0; left &= left - 1 {
		top = parentOf(h.done[bits.TrailingZeros64(left)], hashOf(top))
	}
	return rootOf(top)
}

// last is the node of the group that is being filled.
func (h *Hasher) last() guts.Node {
	return groupOf(h.group[:h.fill], h.groups*chunksPerGroup)
}

// N tells how many bytes were written.
func (h *Hasher) N() int64 {
	return int64(h.groups)*GroupSize + int64(h.fill)
}

// Reset makes the Hasher forget everything, as if nothing had been written.
func (h *Hasher) Reset() {
	h.fill = 0
	h.groups = 0
	h.leaves = h.leaves[:0]
}
