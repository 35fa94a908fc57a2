package s3

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"

	"micronode/b3"
	"micronode/fault"
)

// How much of a tree is fetched at a time, and kept.
const (
	treeBlock  = 256 << 10
	treeBlocks = 8
)

// tree reads the outboard of one object, a block at a time, and keeps the blocks
// that were used last. An object of 64 MiB has one block.
type tree struct {
	// set at construction
	bucket *bucket
	key    string

	mu     sync.Mutex
	whole  b3.Outboard // guarded by mu: all of it, if that was needed once
	blocks []block     // guarded by mu: the last used is the last
}

type block struct {
	number int64
	bytes  []byte
}

// at is the tree as a reader for an operation. Size is that of the object.
func (t *tree) at(ctx context.Context, op string, size int64) io.ReaderAt {
	return &treeReader{tree: t, ctx: ctx, op: op, size: b3.OutboardSize(size)}
}

type treeReader struct {
	tree *tree
	ctx  context.Context
	op   string
	size int64
}

// ReadAt reads from the blocks.
func (r *treeReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		bytes, err := r.tree.block(r.ctx, r.op, off/treeBlock, r.size)
		if err != nil {
			return n, err
		}
		from := min(off%treeBlock, int64(len(bytes)))
		copied := copy(p[n:], bytes[from:])
		if copied == 0 {
			return n, io.EOF
		}
		n += copied
		off += int64(copied)
	}
	return n, nil
}

// block returns one block. A tree that is missing, or has another size than it
// must have, is given out as one that ends too early: it is damaged, and not the
// caller's affair why.
func (t *tree) block(ctx context.Context, op string, number, size int64) ([]byte, error) {
	if bytes := t.kept(number, size); bytes != nil {
		return bytes, nil
	}
	bytes, found, err := t.bucket.fetch(ctx, op, t.key, number*treeBlock, treeBlock)
	switch {
	case fault.KindOf(err) == fault.NotFound, answered(err, http.StatusRequestedRangeNotSatisfiable), err == nil && found.size != size:
		return nil, io.EOF
	case err != nil:
		return nil, running(err)
	}
	t.learn(number, bytes)
	return bytes, nil
}

// kept finds a block in memory.
func (t *tree) kept(number, size int64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if begin := number * treeBlock; t.whole != nil && int64(len(t.whole)) == size && begin < size {
		return t.whole[begin:min(begin+treeBlock, size)]
	}
	i := slices.IndexFunc(t.blocks, func(b block) bool { return b.number == number })
	if i < 0 {
		return nil
	}
	found := t.blocks[i]
	t.blocks = append(slices.Delete(t.blocks, i, i+1), found)
	return found.bytes
}

// learn keeps a block, and forgets the one that was not used for longest.
func (t *tree) learn(number int64, bytes []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocks = append(t.blocks, block{number, bytes})
	if len(t.blocks) > treeBlocks {
		t.blocks = slices.Delete(t.blocks, 0, 1)
	}
}

// forget makes the next reader fetch everything anew.
func (t *tree) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.whole, t.blocks = nil, nil
}

// adopt keeps all of a tree that is known to be right.
func (t *tree) adopt(whole b3.Outboard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.whole, t.blocks = whole, nil
}

// keep fetches all of the tree, because its key is about to go. If that fails,
// who reads on will find out that the tree is missing.
func (t *tree) keep(ctx context.Context, op string, size int64) {
	if whole, _, err := t.bucket.fetch(ctx, op, t.key, 0, b3.OutboardSize(size)); err == nil {
		t.adopt(whole)
	}
}

// same tells whether the stored tree is the right one.
func (t *tree) same(ctx context.Context, op string, right b3.Outboard) (bool, error) {
	stored, found, err := t.bucket.fetch(ctx, op, t.key, 0, int64(len(right)))
	if fault.KindOf(err) == fault.NotFound || answered(err, http.StatusRequestedRangeNotSatisfiable) {
		return false, nil
	}
	return err == nil && found.size == int64(len(right)) && bytes.Equal(stored, right), running(err)
}
