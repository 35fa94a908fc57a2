package b3

import (
	"encoding/binary"
	"io"

	"lukechampine.com/blake3/guts"
)

// headSize is the length of the size that an outboard starts with.
const headSize = 8

// Outboard holds the inner nodes of a content's tree, so that ranges of the
// content can be verified. It proves nothing by itself and need not be kept
// safe: it is checked against the address each time it is used. The package
// comment describes its bytes.
//
// A content of one group has an empty outboard.
type Outboard []byte

// OutboardSize tells how many bytes the outboard of a content of the given size
// has: about 1/256 of it.
func OutboardSize(size int64) int64 {
	if size <= GroupSize {
		return 0
	}
	return tailOffset(size) + tailLefts(size)*hashSize + lastChunk(size)
}

// ReadAt makes an Outboard in memory usable where one on disk would be.
func (o Outboard) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(o)) {
		return 0, io.EOF
	}
	n := copy(p, o[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// nodeOffset tells where the node with the given number in pre-order begins.
func nodeOffset(node int64) int64 {
	return headSize + node*nodeSize
}

// tailOffset tells where the nodes end and the tail begins.
func tailOffset(size int64) int64 {
	return nodeOffset(piecesOf(size, GroupSize) - 1)
}

// tailLefts tells how many folds there are within the last group on the way
// down to the last chunk.
func tailLefts(size int64) (lefts int64) {
	last := (size-1)%GroupSize + 1
	for chunks := piecesOf(last, guts.ChunkSize); chunks > 1; chunks -= leftOf(chunks) {
		lefts++
	}
	return lefts
}

// lastChunk tells how long the last chunk is.
func lastChunk(size int64) int64 {
	return (size-1)%guts.ChunkSize + 1
}

// TreeHasher is a [Hasher] that also remembers the tree, so that an outboard can
// be had at the end. It takes 2 MiB for each GiB that is written.
type TreeHasher struct {
	hasher Hasher
}

// NewTreeHasher returns a TreeHasher to which nothing has been written.
func NewTreeHasher() *TreeHasher {
	return &TreeHasher{hasher: Hasher{keep: true}}
}

// Write adds p to the content. It never fails.
func (t *TreeHasher) Write(p []byte) (int, error) { return t.hasher.Write(p) }

// Sum returns the address of what was written so far.
func (t *TreeHasher) Sum() Address { return t.hasher.Sum() }

// N tells how many bytes were written.
func (t *TreeHasher) N() int64 { return t.hasher.N() }

// Outboard returns the outboard of what was written so far.
func (t *TreeHasher) Outboard() Outboard {
	h := &t.hasher
	size := h.N()
	if size <= GroupSize {
		return nil
	}
	out := make(Outboard, tailOffset(size), OutboardSize(size))
	binary.LittleEndian.PutUint64(out, uint64(size))
	// The last leaf is for this outboard only: its group may still grow, and
	// h.leaves does not come to hold it.
	layNodes(out[headSize:], append(h.leaves, hashOf(h.last())))
	return appendTail(out, h.group[:h.fill], h.groups*chunksPerGroup)
}

// layNodes writes the nodes above the leaves to dst, in pre-order: each node
// before what hangs under it, and the left side before the right.
func layNodes(dst []byte, leaves []hash) hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	half := leftOf(int64(len(leaves)))
	left := layNodes(dst[nodeSize:], leaves[:half])
	right := layNodes(dst[nodeSize*half:], leaves[half:])
	left.put(dst)
	right.put(dst[hashSize:])
	return hashOf(parentOf(left, right))
}

// appendTail goes down the right side of the last group, keeps the hash of each
// left side that it passes, and then the last chunk.
func appendTail(out Outboard, group []byte, chunk uint64) Outboard {
	for len(group) > guts.ChunkSize {
		half := leftOf(piecesOf(int64(len(group)), guts.ChunkSize))
		var left [hashSize]byte
		hashOf(groupOf(group[:half*guts.ChunkSize], chunk)).put(left[:])
		out = append(out, left[:]...)
		group = group[half*guts.ChunkSize:]
		chunk += uint64(half)
	}
	return append(out, group...)
}

// NewOutboard reads src to its end and returns the address of what it gave and
// the outboard that belongs to it. The size is how much was read.
func NewOutboard(src io.Reader) (a Address, size int64, o Outboard, err error) {
	t := NewTreeHasher()
	size, err = io.Copy(t, src)
	if err != nil {
		return Address{}, size, nil, err
	}
	return t.Sum(), size, t.Outboard(), nil
}
