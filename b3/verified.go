package b3

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// Verified returns ranges of one content, every byte of them verified. Its
// methods may be called by several goroutines at once if the readers behind it
// allow that; files and byte slices do.
type Verified struct {
	// Set at construction.
	want     Address
	size     int64
	outboard io.ReaderAt
	data     io.ReaderAt
	small    []byte // all of a content of one group, already verified
}

// Open joins an address with a size, an outboard and data that may be wrong,
// and proves that the size is right. A content of one group is read and
// verified whole, and its outboard is ignored. Of a larger content Open reads
// only the outboard: its header, its tail, and one node for each level of the
// tree.
//
// A wrong size, or a damaged outboard on that path, is a [Mismatch].
func Open(want Address, size int64, outboard, data io.ReaderAt) (*Verified, error) {
	v := &Verified{want: want, size: size, outboard: outboard, data: data}
	if err := v.prove(); err != nil {
		return nil, err
	}
	return v, nil
}

// VerifyRange returns the n bytes at offset off of the content that want
// names. It reads those groups of data that cover the range and a few hundred
// bytes of the outboard, and trusts neither them nor the size. It is Open,
// Range and a read of the whole range: to hold less than that in memory, use
// those.
func VerifyRange(want Address, size int64, outboard, data io.ReaderAt, off, n int64) ([]byte, error) {
	v, err := Open(want, size, outboard, data)
	if err != nil {
		return nil, err
	}
	r, err := v.Range(off, n)
	if err != nil {
		return nil, err
	}
	out := make([]byte, n)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Range returns a reader of the n bytes at offset off. It reads and verifies a
// group at a time, and returns only bytes of verified groups; at a wrong group
// it stops with a [Mismatch]. A range that is not within the content is an
// [OutOfRange].
func (v *Verified) Range(off, n int64) (io.Reader, error) {
	if off < 0 || n < 0 || off > v.size || n > v.size-off {
		return nil, &OutOfRange{Off: off, N: n, Size: v.size}
	}
	r := &rangeReader{v: v, off: off, end: off + n}
	switch {
	case v.size <= GroupSize:
		r.ready = v.small[off : off+n]
	case n > 0:
		root := v.root()
		// At most one subtree is pending on each level, and two at the bottom.
		r.pending = append(make([]subtree, 0, bits.Len64(uint64(root.count))+1), root)
	}
	return r, nil
}

// ReadOutboard reads the outboard of a content of the given size, and verifies
// each node as it arrives: it stops at the first wrong one. What it returns is
// right, and so is the size. So a [Mismatch] of a range says later that the data
// is wrong. A content of one group has no outboard, and nothing is read.
func ReadOutboard(want Address, size int64, from io.Reader) (Outboard, error) {
	if size <= GroupSize {
		return nil, nil
	}
	from = bufio.NewReader(from)
	arrived := &struct{ Outboard }{make(Outboard, 0, min(OutboardSize(size), 1<<20))} // it grows with what arrives
	v := &Verified{want: want, size: size, outboard: arrived}
	buf := make([]byte, tailSiblings(size)*hashSize+guts.ChunkSize)
	read := func(n int64) error {
		_, err := io.ReadFull(from, buf[:n])
		arrived.Outboard = append(arrived.Outboard, buf[:n]...)
		return err
	}
	if err := read(headerSize); err != nil {
		return nil, err
	}
	// The nodes come in the order of this walk.
	for pending := []subtree{v.root()}; len(pending) > 0; {
		s := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if s.count == 1 {
			continue
		}
		if err := read(nodeSize); err != nil {
			return nil, err
		}
		left, right, err := v.split(s, buf)
		if err != nil {
			return nil, err
		}
		pending = append(pending, right, left)
	}
	if err := read(OutboardSize(size) - tailOffset(size)); err != nil {
		return nil, err
	}
	return arrived.Outboard, v.proveSize()
}

// subtree is a part of the tree whose hash has been verified.
type subtree struct {
	sum   hash
	node  int64 // the number of its top node in the outboard, if it has a node
	first int64 // its first group
	count int64 // how many groups it has
}

func (v *Verified) root() subtree {
	return subtree{sum: hashFrom(v.want[:]), count: blockCount(v.size, GroupSize)}
}

// isRoot works because every other subtree has fewer groups than the whole.
func (v *Verified) isRoot(s subtree) bool {
	return s.count == blockCount(v.size, GroupSize)
}

// split reads the node of a subtree of several groups into the front of buf and
// returns its two sides, if the node is right.
func (v *Verified) split(s subtree, buf []byte) (left, right subtree, err error) {
	node := buf[:nodeSize]
	if err := v.readOutboard(node, nodeOffset(s.node)); err != nil {
		return left, right, err
	}
	half := leftLen(s.count)
	left = subtree{hashFrom(node[:hashSize]), s.node + 1, s.first, half}
	right = subtree{hashFrom(node[hashSize:]), s.node + half, s.first + half, s.count - half}
	if !v.matches(s, parentNode(left.sum, right.sum)) {
		return left, right, v.mismatch("node %d of the outboard", s.node)
	}
	return left, right, nil
}

// readGroup reads the one group of a subtree into the front of buf and returns
// it, if it is right.
func (v *Verified) readGroup(s subtree, buf []byte) ([]byte, error) {
	begin := s.first * GroupSize
	group := buf[:min(GroupSize, v.size-begin)]
	whole, err := readFull(v.data, group, begin)
	if err != nil {
		return nil, fmt.Errorf("b3: read %s at offset %d: %w", v.want, begin, err)
	}
	if !whole || !v.matches(s, groupNode(group, uint64(s.first)*chunksPerGroup)) {
		return nil, v.mismatch("%d bytes at offset %d", len(group), begin)
	}
	return group, nil
}

// matches reports whether a node hashes to the verified hash of the subtree.
func (v *Verified) matches(s subtree, n guts.Node) bool {
	if v.isRoot(s) {
		n.Flags |= guts.FlagRoot
	}
	return chainingValue(n) == s.sum
}

// prove checks that the size is right.
func (v *Verified) prove() (err error) {
	switch {
	case v.size < 0:
		return v.mismatch("size %d", v.size)
	case v.size <= GroupSize:
		v.small, err = v.readGroup(v.root(), make([]byte, v.size))
		return err
	}
	return v.proveSize()
}

// proveSize walks down the right side of the tree to the last chunk. The size
// determines how many levels there are on that path, which number the last
// chunk has and how long it is, and all of that goes into the hashes. So
// another size that also fitted would be a collision of BLAKE3.
func (v *Verified) proveSize() error {
	var header [headerSize]byte
	if err := v.readOutboard(header[:], 0); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(header[:]) != uint64(v.size) {
		return v.mismatch("size %d", v.size)
	}
	last, err := v.lastGroup()
	if err != nil {
		return err
	}
	tail, err := v.readTail()
	if err != nil {
		return err
	}
	if last.sum != tail {
		return v.mismatch("size %d or the end of the outboard", v.size)
	}
	return nil
}

// lastGroup follows the right side of every node.
func (v *Verified) lastGroup() (s subtree, err error) {
	buf := make([]byte, nodeSize)
	for s = v.root(); s.count > 1 && err == nil; {
		_, s, err = v.split(s, buf)
	}
	return s, err
}

// readTail returns the hash of the last group that follows from the outboard's
// tail.
func (v *Verified) readTail() (hash, error) {
	siblings := tailSiblings(v.size)
	tail := make([]byte, siblings*hashSize+lastChunkSize(v.size))
	if err := v.readOutboard(tail, tailOffset(v.size)); err != nil {
		return hash{}, err
	}
	number := uint64(blockCount(v.size, guts.ChunkSize) - 1)
	sum := chainingValue(groupNode(tail[siblings*hashSize:], number))
	for ; siblings > 0; siblings-- {
		sum = chainingValue(parentNode(hashFrom(tail[(siblings-1)*hashSize:]), sum))
	}
	return sum, nil
}

func (v *Verified) readOutboard(p []byte, off int64) error {
	whole, err := readFull(v.outboard, p, off)
	if err != nil {
		return fmt.Errorf("b3: read the outboard of %s: %w", v.want, err)
	}
	if !whole {
		return v.mismatch("the outboard ends too early")
	}
	return nil
}

func (v *Verified) mismatch(format string, args ...any) error {
	return &Mismatch{Want: v.want, Part: fmt.Sprintf(format, args...)}
}

// readFull reports whether src had all of p at off. An early end is not an
// error of src: src holds less than p needs.
func readFull(src io.ReaderAt, p []byte, off int64) (whole bool, err error) {
	if len(p) == 0 {
		return true, nil
	}
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return true, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return false, err
}

// rangeReader walks the tree from left to right. It is used by one goroutine.
type rangeReader struct {
	// Set at construction.
	v   *Verified
	end int64

	// Owned by the reading goroutine.
	off     int64           // the next byte to return that is not in ready
	ready   []byte          // verified, not yet returned
	pending []subtree       // still to be visited, the leftmost last
	buf     [GroupSize]byte // what was read last; ready lies in it
	err     error           // what went wrong, or io.EOF; it stays
}

func (r *rangeReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.ready) == 0 {
		return 0, r.err
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// next visits the leftmost subtree: it skips one that the range does not touch,
// splits one of several groups, and reads one that is a group.
func (r *rangeReader) next() error {
	if len(r.pending) == 0 {
		return io.EOF
	}
	s := r.pending[len(r.pending)-1]
	r.pending = r.pending[:len(r.pending)-1]
	begin := s.first * GroupSize
	if r.end <= begin || begin+s.count*GroupSize <= r.off {
		return nil
	}
	if s.count > 1 {
		left, right, err := r.v.split(s, r.buf[:])
		r.pending = append(r.pending, right, left)
		return err
	}
	group, err := r.v.readGroup(s, r.buf[:])
	if err != nil {
		return err
	}
	r.ready = group[r.off-begin : min(int64(len(group)), r.end-begin)]
	r.off = begin + int64(len(group))
	return nil
}
