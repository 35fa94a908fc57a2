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
	treeBlockSize = 256 << 10
	maxTreeBlocks = 8
)

// treeCache reads the outboard of one object, a block at a time, and keeps the
// most recently used blocks. An object of 64 MiB has one block.
type treeCache struct {
	// set at construction
	bucket *bucket
	key    string

	mu     sync.Mutex
	whole  b3.Outboard // guarded by mu: all of it, if that was needed once
	blocks []treeBlock // guarded by mu: the most recently used is the last
}

type treeBlock struct {
	number int64
	bytes  []byte
}

// reader returns a reader of the tree for an operation. Size is that of the
// object.
func (t *treeCache) reader(ctx context.Context, op string, size int64) io.ReaderAt {
	return &treeReader{tree: t, ctx: ctx, op: op, size: b3.OutboardSize(size)}
}

type treeReader struct {
	tree *treeCache
	ctx  context.Context
	op   string
	size int64
}

// ReadAt reads from the blocks.
func (r *treeReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		bytes, err := r.tree.block(r.ctx, r.op, off/treeBlockSize, r.size)
		if err != nil {
			return n, err
		}
		from := min(off%treeBlockSize, int64(len(bytes)))
		copied := copy(p[n:], bytes[from:])
		if copied == 0 {
			return n, io.EOF
		}
		n += copied
		off += int64(copied)
	}
	return n, nil
}

// block returns one block. A tree that is missing, or has the wrong size, is
// returned as one that ends too early: to the caller both are damage.
func (t *treeCache) block(ctx context.Context, op string, number, size int64) ([]byte, error) {
	if bytes := t.cachedBlock(number, size); bytes != nil {
		return bytes, nil
	}
	bytes, found, err := t.bucket.fetch(ctx, op, t.key, number*treeBlockSize, treeBlockSize)
	switch {
	case fault.KindOf(err) == fault.NotFound, hasStatus(err, http.StatusRequestedRangeNotSatisfiable), err == nil && found.size != size:
		return nil, io.EOF
	case err != nil:
		return nil, hideUnauthorized(err)
	}
	t.addBlock(number, bytes)
	return bytes, nil
}

// cachedBlock finds a block in memory.
func (t *treeCache) cachedBlock(number, size int64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if begin := number * treeBlockSize; t.whole != nil && int64(len(t.whole)) == size && begin < size {
		return t.whole[begin:min(begin+treeBlockSize, size)]
	}
	i := slices.IndexFunc(t.blocks, func(b treeBlock) bool { return b.number == number })
	if i < 0 {
		return nil
	}
	found := t.blocks[i]
	t.blocks = append(slices.Delete(t.blocks, i, i+1), found)
	return found.bytes
}

// addBlock keeps a block, and evicts the least recently used one.
func (t *treeCache) addBlock(number int64, bytes []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocks = append(t.blocks, treeBlock{number, bytes})
	if len(t.blocks) > maxTreeBlocks {
		t.blocks = slices.Delete(t.blocks, 0, 1)
	}
}

// clear makes the next reader fetch everything again.
func (t *treeCache) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.whole, t.blocks = nil, nil
}

// setWhole keeps a verified tree.
func (t *treeCache) setWhole(whole b3.Outboard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.whole, t.blocks = whole, nil
}

// prefetch fetches all of the tree, because its key is about to be deleted. If
// that fails, later reads will find that the tree is missing.
func (t *treeCache) prefetch(ctx context.Context, op string, size int64) {
	if whole, _, err := t.bucket.fetch(ctx, op, t.key, 0, b3.OutboardSize(size)); err == nil {
		t.setWhole(whole)
	}
}

// matchesStored reports whether the stored tree is the right one.
func (t *treeCache) matchesStored(ctx context.Context, op string, right b3.Outboard) (bool, error) {
	stored, found, err := t.bucket.fetch(ctx, op, t.key, 0, int64(len(right)))
	if fault.KindOf(err) == fault.NotFound || hasStatus(err, http.StatusRequestedRangeNotSatisfiable) {
		return false, nil
	}
	return err == nil && found.size == int64(len(right)) && bytes.Equal(stored, right), hideUnauthorized(err)
}
