package b3_test

import (
	"bytes"
	"testing"

	zeebo "github.com/zeebo/blake3"
	lukechampine "lukechampine.com/blake3"
	"pgregory.net/rapid"

	"micronode/b3"
)

// Small contents are hashed by one library and large ones by another, so the two
// and ours must agree at every length near a border: of a block, of a chunk, of
// what either library takes at a time, and of what is small.
func TestTheLibrariesAgreeAtEveryBorder(t *testing.T) {
	var lengths []int
	for border := 64; border <= 17*1024; border += 64 {
		lengths = append(lengths, border-1, border, border+1)
	}
	for border := 18 * 1024; border <= 33*1024; border += 1024 {
		lengths = append(lengths, border-1, border, border+1)
	}
	for n := range 64 {
		lengths = append(lengths, n, 8*1024+n, 16*1024+n)
	}
	data := pattern(40_000)
	for _, n := range lengths {
		agree(t, data[:n])
		agree(t, data[1:n+1]) // not aligned to anything
	}
}

func TestTheLibrariesAgreeOnAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 20_000)).Draw(t, "size")
		data := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 97).Draw(t, "bytes"), n+1)[:n]
		agree(t, data)
	})
}

func FuzzTheLibrariesAgree(f *testing.F) {
	for _, n := range []int{0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 8191, 8192, 8193, 16384, 16385} {
		f.Add(pattern(n))
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}

// agree holds Of and a Hasher against both libraries.
func agree(t failer, data []byte) {
	t.Helper()
	want := b3.Address(lukechampine.Sum256(data))
	var h b3.Hasher
	h.Write(data)
	for name, got := range map[string]b3.Address{"Of": b3.Of(data), "a Hasher": h.Sum(), "the second library": zeebo.Sum256(data)} {
		if got != want {
			t.Fatalf("%d bytes: %s gives %v, the first library %v", len(data), name, got, want)
		}
	}
}

// Hashing keeps nothing of what it is given, so a caller's array stays on its
// stack.
func TestOfDoesNotAllocate(t *testing.T) {
	for _, n := range []int{0, 44, 1024, 1100, 8192, 8193, 16384} {
		if got := testing.AllocsPerRun(20, func() {
			var array [16384]byte
			b3.Of(array[:n])
		}); got != 0 {
			t.Errorf("%d bytes: %v allocations", n, got)
		}
	}
}
