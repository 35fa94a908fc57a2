package b3

import (
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// Of returns the address of data.
func Of(data []byte) Address {
	if len(data) <= GroupSize {
		return rootOf(groupOf(data, 0))
	}
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
