package b3_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"lukechampine.com/blake3/bao"

	"micronode/b3"
)

// groupLog is what bao calls groups of 16 chunks.
const groupLog = 4

// tailLen is the length of the part of an outboard that bao does not have.
func tailLen(size int) int {
	if size <= b3.GroupSize {
		return 0
	}
	return int(b3.OutboardSize(int64(size))) - bao.EncodedSize(size, groupLog, true)
}

func TestOutboardSize(t *testing.T) {
	if got := b3.OutboardSize(1 << 30); got != 4_195_400 {
		t.Errorf("the outboard of 1 GiB has %d bytes", got)
	}
	for _, size := range sizes {
		if o := newObject(t, size); int64(len(o.outboard)) != b3.OutboardSize(int64(size)) {
			t.Errorf("size %d: %d bytes of outboard, foretold %d", size, len(o.outboard), b3.OutboardSize(int64(size)))
		}
	}
}

// TestOutboardIsBao compares the nodes with those of the library's own
// encoder, and checks the whole with its own verifier.
func TestOutboardIsBao(t *testing.T) {
	for _, size := range sizes {
		if size <= b3.GroupSize {
			continue
		}
		o := newObject(t, size)
		want, root := bao.EncodeBuf(o.data, groupLog, true)
		if !bytes.HasPrefix(o.outboard, want) || o.address != root {
			t.Errorf("size %d: the outboard is not bao's", size)
		}
		if !bao.VerifyBuf(o.data, o.outboard[:len(want)], groupLog, o.address) {
			t.Errorf("size %d: bao does not accept the outboard", size)
		}
	}
}

func TestTreeHasherGoesOn(t *testing.T) {
	data := pattern(100_000)
	h := b3.NewTreeHasher()
	for i, cut := range []int{0, 10_000, 16_384, 40_000, 81_920, 100_000} {
		h.Write(data[[]int{0, 0, 10_000, 16_384, 40_000, 81_920}[i]:cut])
		want := newObject(t, cut)
		if h.N() != int64(cut) || h.Sum() != want.address || !bytes.Equal(h.Outboard(), want.outboard) {
			t.Errorf("after %d bytes the tree is another", cut)
		}
	}
}

func TestNewOutboardPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	a, n, o, err := b3.NewOutboard(io.MultiReader(bytes.NewReader(pattern(10)), iotest.ErrReader(broken)))
	if err != broken || n != 10 || o != nil || !a.IsZero() {
		t.Fatalf("got %v, %d, %v, %v", a, n, o, err)
	}
}

func TestOutboardReadAt(t *testing.T) {
	o := b3.Outboard("outboard")
	buf := make([]byte, 4)
	if n, err := o.ReadAt(buf, 2); n != 4 || err != nil || string(buf) != "tboa" {
		t.Errorf("%d, %v, %s", n, err, buf)
	}
	if n, err := o.ReadAt(buf, 6); n != 2 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	for _, off := range []int64{-1, 8, math.MaxInt64} {
		if n, err := o.ReadAt(buf, off); n != 0 || err != io.EOF {
			t.Errorf("at %d: %d, %v", off, n, err)
		}
	}
}

func BenchmarkTreeHasher1MiB(b *testing.B) {
	data := pattern(1 << 20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		h := b3.NewTreeHasher()
		h.Write(data)
		h.Outboard()
	}
}
