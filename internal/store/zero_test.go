package store

import (
	"bytes"
	"context"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"micronode/b3"
)

// blocksOf remembers where the bytes of an object are.
func blocksOf(t *testing.T, r *RAM, a b3.Address) [][]byte {
	t.Helper()
	o := r.shard(a).objects[a]
	if o == nil {
		t.Fatalf("%s is not stored here", a)
	}
	var blocks [][]byte
	for _, block := range o.blocks {
		blocks = append(blocks, block[:cap(block)])
	}
	return blocks
}

func isZero(blocks [][]byte) bool {
	for _, block := range blocks {
		if len(bytes.Trim(block, "\x00")) > 0 {
			return false
		}
	}
	return true
}

func TestMemoryIsZeroedWhenNobodyNeedsIt(t *testing.T) {
	ctx := context.Background()
	for name, size := range map[string]int{"small": 5000, "large": 5*slabSize + 100} {
		t.Run(name, func(t *testing.T) {
			r := NewRAM(RAMSpec{Budget: 8 * slabSize, Zero: true})

			a := mustPut(t, r, numbered(1, size), Pinned)
			blocks := blocksOf(t, r, a)
			h, err := r.Open(ctx, a)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Delete(ctx, a); err != nil {
				t.Fatal(err)
			}
			if isZero(blocks) {
				t.Error("zeroed while it was open")
			}
			_ = h.Close()
			if !isZero(blocks) {
				t.Error("not zeroed after it was deleted and closed")
			}

			blocks = blocksOf(t, r, mustPut(t, r, numbered(2, size), Cached))
			mustPut(t, r, make([]byte, 8*slabSize), Cached)
			if !isZero(blocks) {
				t.Error("not zeroed after it was evicted")
			}
			_ = r.Delete(ctx, b3.Of(make([]byte, 8*slabSize)))

			a = mustPut(t, r, numbered(3, size), Pinned)
			open := blocksOf(t, r, a)
			closed := blocksOf(t, r, mustPut(t, r, numbered(4, 2000), Pinned))
			h, err = r.Open(ctx, a)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Close()
			if isZero(open) || !isZero(closed) {
				t.Errorf("after Close: what is open is zero: %t; what is not is zero: %t", isZero(open), isZero(closed))
			}
			_ = h.Close()
			if !isZero(open) {
				t.Error("not zeroed after the last handle of a closed store was closed")
			}
		})
	}
}

// What was never stored is zeroed too: aborted bodies, blocks that were
// replaced by larger and smaller ones, and the group that a hasher holds.
func TestWhatWasRefusedIsZeroed(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 8 * slabSize, Zero: true})
	for _, size := range []int{100, 5000, slabSize + 5000, 3*slabSize + 1} {
		body := bytes.Repeat([]byte("secret"), size/6)
		for _, src := range []io.Reader{
			io.MultiReader(bytes.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)),
			bytes.NewReader(body),
		} {
			_, _, _ = r.Put(context.Background(), src, PutOptions{Size: Unknown, Want: b3.Of([]byte("other"))})
		}
	}
	var idle [][]byte
	for kind := range r.slabs.freeLists {
		idle = append(idle, r.slabs.freeLists[kind].blocks...)
	}
	if len(idle) < 4 || !isZero(idle) {
		t.Errorf("%d blocks are idle; all are zero: %t", len(idle), isZero(idle))
	}
	if h := r.hashers.Get().(*b3.Hasher); !reflect.DeepEqual(h, new(b3.Hasher)) {
		t.Error("a hasher that was used still holds something")
	}
}
