package b3_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/bits"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"micronode/b3"
)

// object is a content with its outboard.
type object struct {
	data     []byte
	address  b3.Address
	outboard b3.Outboard
}

func newObject(t testing.TB, size int) object {
	t.Helper()
	data := pattern(size)
	a, n, outboard, err := b3.NewOutboard(bytes.NewReader(data))
	if err != nil || n != int64(size) || a != b3.Of(data) {
		t.Fatalf("NewOutboard gave %v, %d, %v", a, n, err)
	}
	return object{data, a, outboard}
}

// verify requests a range of an object of which size, outboard and data may be
// wrong.
func (o object) verify(size int64, off, n int64) ([]byte, error) {
	return b3.VerifyRange(o.address, size, o.outboard, bytes.NewReader(o.data), off, n)
}

func drawSize(t *rapid.T) int {
	return rapid.OneOf(rapid.SampledFrom(sizes), rapid.IntRange(0, 200_000)).Draw(t, "size")
}

func drawRange(t *rapid.T, size int) (off, n int64) {
	off = rapid.Int64Range(0, int64(size)).Draw(t, "off")
	n = rapid.Int64Range(0, int64(size)-off).Draw(t, "n")
	return off, n
}

func TestRangeGivesTheBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := drawSize(rt)
		o := newObject(t, size)
		off, n := drawRange(rt, size)
		got, err := o.verify(int64(size), off, n)
		if err != nil || !bytes.Equal(got, o.data[off:off+n]) {
			rt.Fatalf("range %d+%d of %d: %d bytes, %v", off, n, size, len(got), err)
		}
	})
}

func TestRangeReaderIsAReader(t *testing.T) {
	o := newObject(t, 100_000)
	v, err := b3.Open(o.address, 100_000, o.outboard, bytes.NewReader(o.data))
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Range(5_000, 90_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(r, o.data[5_000:95_000]); err != nil {
		t.Fatal(err)
	}
}

// covers reports whether a byte of the data is in a group that the range
// touches.
func covers(i int, off, n int64) bool {
	if n == 0 {
		return false
	}
	group := int64(i) / b3.GroupSize
	return off/b3.GroupSize <= group && group <= (off+n-1)/b3.GroupSize
}

func TestFlippedDataByte(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := max(1, drawSize(rt))
		o := newObject(t, size)
		off, n := drawRange(rt, size)
		i := rapid.IntRange(0, size-1).Draw(rt, "position")
		good := bytes.Clone(o.data[off : off+n])
		o.data[i] ^= rapid.ByteRange(1, 255).Draw(rt, "flip")
		got, err := o.verify(int64(size), off, n)
		if covers(i, off, n) || size <= b3.GroupSize {
			wantMismatch(rt, err)
		} else if err != nil || !bytes.Equal(got, good) {
			rt.Fatalf("byte %d disturbed range %d+%d of %d: %v", i, off, n, size, err)
		}
	})
}

// TestOnlyTheRangeMatters spoils everything outside the covering groups, the
// end of the data included.
func TestOnlyTheRangeMatters(t *testing.T) {
	const size = 10*b3.GroupSize + 1500
	o := newObject(t, size)
	off, n := int64(3*b3.GroupSize+10), int64(b3.GroupSize)
	good := bytes.Clone(o.data[off : off+n])
	for i := range o.data {
		if !covers(i, off, n) {
			o.data[i] ^= 0xff
		}
	}
	got, err := o.verify(size, off, n)
	if err != nil || !bytes.Equal(got, good) {
		t.Fatalf("damage outside the range disturbed it: %v", err)
	}
}

// TestFlippedOutboardByte flips every single byte of some outboards. A request
// for the whole content uses every node. A request for one group may skip a
// node, but must never return a wrong byte.
func TestFlippedOutboardByte(t *testing.T) {
	for _, size := range []int{16385, 33000, 5*16384 + 3*1024} {
		o := newObject(t, size)
		for i := range o.outboard {
			o.outboard[i] ^= 0x10
			_, err := o.verify(int64(size), 0, int64(size))
			wantMismatch(t, err)
			if got, err := o.verify(int64(size), 20, 30); err != nil {
				wantMismatch(t, err)
			} else if !bytes.Equal(got, o.data[20:50]) {
				t.Fatalf("size %d, outboard byte %d: wrong bytes without an error", size, i)
			}
			o.outboard[i] ^= 0x10
		}
	}
}

func TestShortOutboard(t *testing.T) {
	o := newObject(t, 40_000)
	for whole := o.outboard; len(o.outboard) > 0; {
		o.outboard = whole[:len(o.outboard)-1]
		_, err := o.verify(40_000, 20, 30)
		wantMismatch(t, err)
		if !strings.Contains(err.Error(), "ends too early") {
			t.Fatalf("%v does not say what is wrong with the outboard", err)
		}
	}
}

// forge makes the outboard that an attacker would make to pass data of another
// size for the object: with the object's true nodes, and data's own header and
// tail.
func forge(t testing.TB, data []byte, o object) b3.Outboard {
	_, _, lie, err := b3.NewOutboard(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(lie) > 0 {
		nodes := len(o.outboard) - tailLen(len(o.data))
		copy(lie[8:len(lie)-tailLen(len(data))], o.outboard[min(8, nodes):nodes])
	}
	return lie
}

func TestLyingSize(t *testing.T) {
	lies := append([]int{b3.GroupSize - 7, 100_001, 114_000, 114_001, 300_000}, sizes...)
	for _, size := range sizes {
		o := newObject(t, size)
		longer := append(bytes.Clone(o.data), make([]byte, 300_000)...)
		for _, lie := range append(lies, size-1, size+1, size+1024, size-b3.GroupSize) {
			if lie == size || lie < 0 {
				continue
			}
			n := int64(min(size, lie, 10))
			_, err := o.verify(int64(lie), 0, n)
			wantMismatch(t, err)
			forged := object{longer, o.address, forge(t, longer[:lie], o)}
			_, err = forged.verify(int64(lie), 0, n)
			if err == nil {
				t.Fatalf("%d bytes passed for %d", size, lie)
			}
			wantMismatch(t, err)
		}
		_, err := o.verify(-1, 0, 0)
		wantMismatch(t, err)
		_, err = o.verify(math.MaxInt64, 0, 0)
		wantMismatch(t, err)
	}
}

func TestHeadAloneLies(t *testing.T) {
	o := newObject(t, 40_000)
	binary.LittleEndian.PutUint64(o.outboard, 39_999)
	for _, size := range []int64{39_999, 40_000} {
		_, err := o.verify(size, 0, 10)
		wantMismatch(t, err)
	}
}

func TestWrongAddress(t *testing.T) {
	for _, size := range sizes {
		o := newObject(t, size)
		o.address[31] ^= 1
		_, err := o.verify(int64(size), 0, int64(size))
		wantMismatch(t, err)
		if !strings.Contains(err.Error(), o.address.String()) {
			t.Errorf("%v does not name the address", err)
		}
	}
}

func TestShortData(t *testing.T) {
	o := newObject(t, 40_000)
	o.data = o.data[:39_999]
	if _, err := o.verify(40_000, 0, 2*b3.GroupSize); err != nil {
		t.Fatalf("the first two groups are whole: %v", err)
	}
	_, err := o.verify(40_000, 39_000, 10)
	wantMismatch(t, err)
	var mismatch *b3.Mismatch
	if !errors.As(err, &mismatch) || mismatch.Part != "7232 bytes at offset 32768" {
		t.Fatalf("%v does not say where", err)
	}
}

// TestShortDataThatRepeats leaves the missing bytes in the reader's buffer,
// from the group before.
func TestShortDataThatRepeats(t *testing.T) {
	zeros := make([]byte, 3*b3.GroupSize)
	a, size, outboard, err := b3.NewOutboard(bytes.NewReader(zeros))
	if err != nil {
		t.Fatal(err)
	}
	short := object{zeros[:b3.GroupSize+100], a, outboard}
	_, err = short.verify(size, 0, size)
	wantMismatch(t, err)
}

func TestRangeOutsideTheContent(t *testing.T) {
	for _, size := range []int{0, 100, 40_000} {
		o := newObject(t, size)
		s := int64(size)
		for _, r := range [][2]int64{{-1, 1}, {0, -1}, {0, s + 1}, {s, 1}, {s + 1, 0}, {1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}} {
			_, err := o.verify(s, r[0], r[1])
			wantCode(t, err, b3.ErrRange, "InvalidRange")
			var outside *b3.OutOfRange
			if !errors.As(err, &outside) || *outside != (b3.OutOfRange{Off: r[0], N: r[1], Size: s}) || outside.Error() == "" {
				t.Fatalf("%v does not name the range", err)
			}
		}
	}
}

// failingAt is a disk that fails.
type failingAt struct{ err error }

func (f failingAt) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// A read error of the disk is not a mismatch: another try may succeed.
func TestReadErrorsAreNotMismatches(t *testing.T) {
	o := newObject(t, 40_000)
	broken := errors.New("broken")
	for _, readers := range [][2]io.ReaderAt{
		{failingAt{broken}, bytes.NewReader(o.data)},
		{failingFrom{o.outboard, 8, broken}, bytes.NewReader(o.data)},
		{failingFrom{o.outboard, 8 + 2*64, broken}, bytes.NewReader(o.data)},
		{o.outboard, failingAt{broken}},
	} {
		_, err := b3.VerifyRange(o.address, 40_000, readers[0], readers[1], 0, 10)
		if !errors.Is(err, broken) || errors.Is(err, b3.ErrMismatch) {
			t.Errorf("got %v, want the disk's own error", err)
		}
	}
}

// failingFrom is a disk with a bad sector.
type failingFrom struct {
	good io.ReaderAt
	from int64
	err  error
}

func (f failingFrom) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.from {
		return 0, f.err
	}
	return f.good.ReadAt(p, off)
}

func TestRangeReaderStaysBroken(t *testing.T) {
	o := newObject(t, 3*b3.GroupSize)
	o.data[b3.GroupSize] ^= 1
	v, err := b3.Open(o.address, int64(len(o.data)), o.outboard, bytes.NewReader(o.data))
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Range(0, int64(len(o.data)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	wantMismatch(t, err)
	if !bytes.Equal(got, o.data[:b3.GroupSize]) {
		t.Fatalf("%d bytes were given out, want the one good group before the damage", len(got))
	}
	if n, again := r.Read(make([]byte, 10)); n != 0 || again != err {
		t.Fatalf("a read after the verdict gave %d, %v", n, again)
	}
}

func TestVerifiedServesManyAtOnce(t *testing.T) {
	o := newObject(t, 200_000)
	v, err := b3.Open(o.address, 200_000, o.outboard, bytes.NewReader(o.data))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			off := int64(i * 20_000)
			r, err := v.Range(off, 30_000)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, o.data[off:off+30_000]) {
				t.Errorf("range at %d: %v", off, err)
			}
		})
	}
	all.Wait()
}

// countingAt counts the bytes that are read.
type countingAt struct {
	io.ReaderAt
	bytes int
}

func (c *countingAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.bytes += n
	return n, err
}

// TestCostOfARange counts what is read: of the data exactly the groups that
// cover the range, of the outboard no more than the height of the tree
// requires.
func TestCostOfARange(t *testing.T) {
	for _, size := range []int{40_000, 1 << 20, 64<<20 + 12345} {
		o := newObject(t, size)
		groups := (size + b3.GroupSize - 1) / b3.GroupSize
		height := bits.Len(uint(groups))
		for _, r := range []struct{ off, n, groups int }{
			{0, 0, 0},
			{0, 1, 1},
			{b3.GroupSize - 1, 2, 2},
			{b3.GroupSize, b3.GroupSize, 1},
			{size/2/b3.GroupSize*b3.GroupSize + 5, 10, 1},
			{size - 1, 1, 1},
			{0, size, groups},
		} {
			outboard, data := &countingAt{ReaderAt: o.outboard}, &countingAt{ReaderAt: bytes.NewReader(o.data)}
			if _, err := b3.VerifyRange(o.address, int64(size), outboard, data, int64(r.off), int64(r.n)); err != nil {
				t.Fatal(err)
			}
			want := r.groups * b3.GroupSize
			if r.off+r.n > size/b3.GroupSize*b3.GroupSize {
				want -= groups*b3.GroupSize - size // the last group is shorter
			}
			if data.bytes != want {
				t.Errorf("range %d+%d of %d read %d bytes of data, want %d", r.off, r.n, size, data.bytes, want)
			}
			// Down the right side for the size, down both edges of the range, and
			// one node for each further group in between.
			if most := 8 + 64*(3*height+r.groups) + 4*32 + 1024; outboard.bytes > most {
				t.Errorf("range %d+%d of %d read %d bytes of outboard, want at most %d", r.off, r.n, size, outboard.bytes, most)
			}
		}
	}
}

// FuzzVerifyRange damages the data, the outboard and the size in any way and
// requests any range. Whatever is returned without an error must be right. The
// content is made from its size, so that the corpus stays small. Edits are
// taken four bytes at a time: where, in which of the two, and what to flip.
func FuzzVerifyRange(f *testing.F) {
	f.Add(uint32(40_000), int64(0), int64(0), int64(40_000), []byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, size uint32, lie, off, n int64, edits []byte, cut uint32) {
		o := newObject(t, int(size%300_000))
		truth := bytes.Clone(o.data)
		for ; len(edits) >= 4; edits = edits[4:] {
			where := int(binary.BigEndian.Uint16(edits)) * 7
			if target := [][]byte{o.data, o.outboard}[edits[2]&1]; len(target) > 0 {
				target[where%len(target)] ^= edits[3]
			}
		}
		o.outboard = o.outboard[:max(0, int64(len(o.outboard))-int64(cut))]
		claimed := int64(len(truth)) + lie
		got, err := o.verify(claimed, off, n)
		if err != nil {
			if !errors.Is(err, b3.ErrMismatch) && !errors.Is(err, b3.ErrRange) {
				t.Fatalf("an error without a kind: %v", err)
			}
			return
		}
		if claimed != int64(len(truth)) || !bytes.Equal(got, truth[off:off+n]) {
			t.Fatalf("range %d+%d of %d (claimed %d) gave %d wrong bytes", off, n, len(truth), claimed, len(got))
		}
	})
}

func BenchmarkVerifyRange16KiBOf1MiB(b *testing.B)  { benchmarkVerifyRange(b, 1<<20) }
func BenchmarkVerifyRange16KiBOf64MiB(b *testing.B) { benchmarkVerifyRange(b, 64<<20) }

func benchmarkVerifyRange(b *testing.B, size int) {
	o := newObject(b, size)
	v, err := b3.Open(o.address, int64(size), o.outboard, bytes.NewReader(o.data))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(b3.GroupSize)
	b.ReportAllocs()
	for b.Loop() {
		r, err := v.Range(int64(size/2), b3.GroupSize)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); n != b3.GroupSize || err != nil {
			b.Fatal(n, err)
		}
	}
}

// An outboard that arrives is verified node by node: reading stops at the first
// wrong one, and what is read to its end is the outboard.
func TestReadOutboard(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := drawSize(rt)
		o := newObject(t, size)
		got, err := b3.ReadOutboard(o.address, int64(size), bytes.NewReader(o.outboard))
		if err != nil || !bytes.Equal(got, o.outboard) {
			rt.Fatalf("size %d: %d bytes of %d, %v", size, len(got), len(o.outboard), err)
		}
		if len(o.outboard) == 0 {
			return
		}
		at := rapid.IntRange(0, len(o.outboard)-1).Draw(rt, "at")
		wrong := bytes.Clone(o.outboard)
		wrong[at] ^= 1
		if _, err := b3.ReadOutboard(o.address, int64(size), bytes.NewReader(wrong)); !errors.Is(err, b3.ErrMismatch) {
			rt.Fatalf("size %d, byte %d is wrong: %v", size, at, err)
		}
		if _, err := b3.ReadOutboard(o.address, int64(size), bytes.NewReader(o.outboard[:at])); err == nil {
			rt.Fatalf("size %d: an outboard of %d bytes of %d was accepted", size, at, len(o.outboard))
		}
		for _, other := range []int64{int64(size) + 1, int64(size) + b3.GroupSize, 1 << 40} {
			lie := bytes.Clone(o.outboard)
			binary.LittleEndian.PutUint64(lie, uint64(other))
			if _, err := b3.ReadOutboard(o.address, other, bytes.NewReader(lie)); err == nil {
				rt.Fatalf("size %d was accepted as %d", size, other)
			}
		}
	})
}
