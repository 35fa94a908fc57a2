package b3

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// BLAKE3 cuts content into chunks of 1 KiB, hashes each, and folds the hashes
// in pairs up to one root. The shape of the tree depends on the size alone:
// the left side of every fold holds as many chunks as the largest power of two
// that leaves something for the right side. Here are the few steps of that
// folding; the compression itself is the library's.

// GroupSize is how many bytes are checked together: 16 chunks.
const GroupSize = chunksPerGroup * guts.ChunkSize

const (
	chunksPerGroup = guts.MaxSIMD
	hashSize       = 32
	nodeSize       = 2 * hashSize
)

// hash is the chaining value of a subtree, as the words that the library uses.
type hash [8]uint32

func hashFrom(b []byte) (h hash) {
	for i := range h {
		h[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return h
}

func (h hash) put(b []byte) {
	for i, word := range h {
		binary.LittleEndian.PutUint32(b[4*i:], word)
	}
}

// chainingValue finishes a node that has a parent above it.
func chainingValue(n guts.Node) hash {
	return guts.ChainingValue(n)
}

// rootAddress finishes the root node. The root is flagged, so that no part of
// a content can pass for a whole one.
func rootAddress(n guts.Node) (a Address) {
	n.Flags |= guts.FlagRoot
	chainingValue(n).put(a[:])
	return a
}

func parentNode(left, right hash) guts.Node {
	return guts.ParentNode(left, right, &guts.IV, 0)
}

// groupNode hashes one group, or a part of one, whose first chunk has the given
// number in the content.
func groupNode(data []byte, chunk uint64) guts.Node {
	if len(data) <= guts.ChunkSize {
		return guts.CompressChunk(data, &guts.IV, chunk, 0)
	}
	if len(data) == GroupSize {
		return guts.CompressBuffer((*[GroupSize]byte)(data), GroupSize, &guts.IV, chunk, 0)
	}
	// The library reads a whole buffer whatever its length. The bytes behind
	// data are not ours to read, so it gets a copy.
	var whole [GroupSize]byte
	n := copy(whole[:], data)
	return guts.CompressBuffer(&whole, n, &guts.IV, chunk, 0)
}

// leftLen returns how many of n leaves, at least two, are on the left side.
func leftLen(n int64) int64 {
	return 1 << (bits.Len64(uint64(n-1)) - 1)
}

// blockCount returns the number of blocks of the given length in a content of
// the given size. An empty content is one empty block, as Go's division rounds
// towards zero.
func blockCount(size, blockSize int64) int64 {
	return (size-1)/blockSize + 1
}
