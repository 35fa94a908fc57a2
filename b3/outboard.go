package b3

import (
	"encoding/binary"
	"io"

	"lukechampine.com/blake3/guts"
)

// headerSize is the length of the header of an outboard: the size of the
// content.
const headerSize = 8

// Outboard holds the inner nodes of a content's tree, so that ranges of the
// content can be verified. It proves nothing by itself and its storage need
// not be trusted: it is checked against the address each time it is used. The
// package comment describes its bytes.
//
// A content of one group has an empty outboard.
type Outboard []byte

// OutboardSize returns the size of the outboard of a content of the given
// size: about 1/256 of it.
func OutboardSize(size int64) int64 {
	if size <= GroupSize {
		return 0
	}
	return tailOffset(size) + tailSiblings(size)*hashSize + lastChunkSize(size)
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

// nodeOffset returns the offset of the node with the given number in
// pre-order.
func nodeOffset(node int64) int64 {
	return headerSize + node*nodeSize
}

// tailOffset returns the offset at which the nodes end and the tail begins.
func tailOffset(size int64) int64 {
	return nodeOffset(blockCount(size, GroupSize) - 1)
}

// tailSiblings returns the number of folds within the last group on the way
// down to the last chunk.
func tailSiblings(size int64) (siblings int64) {
	last := (size-1)%GroupSize + 1
	for chunks := blockCount(last, guts.ChunkSize); chunks > 1; chunks -= leftLen(chunks) {
		siblings++
	}
	return siblings
}

// lastChunkSize returns the length of the last chunk.
func lastChunkSize(size int64) int64 {
	return (size-1)%guts.ChunkSize + 1
}

// TreeHasher is a [Hasher] that also keeps the tree, so that it can return an
// outboard at the end. It takes 2 MiB for each GiB that is written.
type TreeHasher struct {
	hasher Hasher
}

// NewTreeHasher returns a TreeHasher to which nothing has been written.
func NewTreeHasher() *TreeHasher {
	return &TreeHasher{hasher: Hasher{keepLeaves: true}}
}

// Write adds p to the content. It never fails.
func (t *TreeHasher) Write(p []byte) (int, error) { return t.hasher.Write(p) }

// Sum returns the address of what was written so far.
func (t *TreeHasher) Sum() Address { return t.hasher.Sum() }

// N returns the number of bytes written.
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
	// The last leaf is for this outboard only: its group may still grow, so it
	// is not kept in h.leaves.
	writeNodes(out[headerSize:], append(h.leaves, chainingValue(h.lastNode())))
	return appendTail(out, h.group[:h.filled], h.groups*chunksPerGroup)
}

// writeNodes writes the nodes above the leaves to dst, in pre-order: each node
// before its children, and the left side before the right.
func writeNodes(dst []byte, leaves []hash) hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	half := leftLen(int64(len(leaves)))
	left := writeNodes(dst[nodeSize:], leaves[:half])
	right := writeNodes(dst[nodeSize*half:], leaves[half:])
	left.put(dst)
	right.put(dst[hashSize:])
	return chainingValue(parentNode(left, right))
}

// appendTail walks down the right side of the last group, appends the hash of
// each left side that it passes, and then the last chunk.
func appendTail(out Outboard, group []byte, chunk uint64) Outboard {
	for len(group) > guts.ChunkSize {
		half := leftLen(blockCount(int64(len(group)), guts.ChunkSize))
		var left [hashSize]byte
		chainingValue(groupNode(group[:half*guts.ChunkSize], chunk)).put(left[:])
		out = append(out, left[:]...)
		group = group[half*guts.ChunkSize:]
		chunk += uint64(half)
	}
	return append(out, group...)
}

// NewOutboard reads src to its end and returns the address, the size and the
// outboard of the content.
func NewOutboard(src io.Reader) (a Address, size int64, o Outboard, err error) {
	t := NewTreeHasher()
	size, err = io.Copy(t, src)
	if err != nil {
		return Address{}, size, nil, err
	}
	return t.Sum(), size, t.Outboard(), nil
}
