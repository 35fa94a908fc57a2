package b3_test

import (
	"bytes"
	"testing"

	zeebo "github.com/zeebo/blake3"
	lukechampine "lukechampine.com/blake3"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/internal/testkit"
)

// Small contents are hashed by one library and large ones by another, so both
// libraries and our code must agree at every length near a boundary: of a
// block, of a chunk, of what either library takes at a time, and of smallSize.
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
		checkAgainstLibraries(t, data[:n])
		checkAgainstLibraries(t, data[1:n+1]) // not aligned to anything
	}
}

func TestTheLibrariesAgreeOnAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 20_000)).Draw(t, "size")
		data := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 97).Draw(t, "bytes"), n+1)[:n]
		checkAgainstLibraries(t, data)
	})
}

func FuzzTheLibrariesAgree(f *testing.F) {
	for _, n := range []int{0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 8191, 8192, 8193, 16384, 16385} {
		f.Add(pattern(n))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkAgainstLibraries(t, data) })
}

// checkAgainstLibraries compares Of and a Hasher with both libraries.
func checkAgainstLibraries(t testkit.T, data []byte) {
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

// Of does not retain its argument, so a caller's array stays on its stack.
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
