package amnesia

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/testkit"
)

func arena(t *testing.T, size int) *Arena {
	t.Helper()
	a, err := NewArena("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func alloc(t *testing.T, a *Arena, n int) []byte {
	t.Helper()
	block, err := a.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return block
}

func TestAnArenaIsRoundedUpAndHandsOutAllOfIt(t *testing.T) {
	page := os.Getpagesize()
	a := arena(t, page+1)
	if stat := a.Stat(); stat.Size != 2*page || stat.Used != 0 || stat.Name != "test" {
		t.Errorf("%+v", stat)
	}
	alloc(t, a, 2*page)
	_, err := a.Alloc(1)
	testkit.WantKind(t, err, fault.StoreFull, "full")
	if !strings.Contains(err.Error(), "0 left") {
		t.Error(err)
	}
}

// Slices do not overlap, are aligned, zero, of the length that was asked for,
// and cannot be grown in place; what does not fit is refused and costs nothing.
func TestAlloc(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, err := NewArena("test", 1)
		if err != nil {
			rt.Fatal(err)
		}
		defer a.Close()
		left := a.Stat().Size
		var pieces [][]byte
		for i := range 40 {
			n := rapid.IntRange(-1, 700).Draw(rt, "n")
			piece, err := a.Alloc(n)
			switch {
			case n < 1:
				if fault.KindOf(err) != fault.Malformed {
					rt.Fatalf("%d bytes: %v", n, err)
				}
				continue
			case n > left:
				if fault.KindOf(err) != fault.StoreFull {
					rt.Fatalf("%d of %d bytes: %v", n, left, err)
				}
				continue
			case err != nil:
				rt.Fatalf("%d of %d bytes: %v", n, left, err)
			}
			left -= min((n+align-1)/align*align, left)
			if len(piece) != n || cap(piece) != n || uintptr(unsafe.Pointer(&piece[0]))%align != 0 || !bytes.Equal(piece, make([]byte, n)) {
				rt.Fatalf("asked for %d: length %d, capacity %d", n, len(piece), cap(piece))
			}
			for j := range piece {
				piece[j] = byte(i + 1)
			}
			pieces = append(pieces, piece)
		}
		for i, piece := range pieces {
			if bytes.Count(piece, piece[:1]) != len(piece) {
				rt.Fatalf("piece %d was overwritten", i)
			}
		}
	})
}

func TestZero(t *testing.T) {
	a := arena(t, 1<<16)
	piece := alloc(t, a, 40_000)
	copy(piece[39_000:], "secret")
	if a.isZero() {
		t.Error("an arena with a secret in it counts as clean")
	}
	a.Zero()
	if !a.isZero() || !bytes.Equal(piece, make([]byte, len(piece))) {
		t.Error("Zero left something")
	}
	if piece[0] = 1; a.Stat().Used != 40_000 { // the slice is still the caller's
		t.Errorf("%+v", a.Stat())
	}
}

func TestAClosedArenaHandsOutNothing(t *testing.T) {
	a := arena(t, 1)
	copy(alloc(t, a, 6), "secret")
	for range 2 {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		piece, err := a.Alloc(1)
		testkit.WantKind(t, err, fault.Canceled, "after Close")
		if piece != nil {
			t.Error("memory after Close")
		}
		a.Zero()
		if !a.isZero() {
			t.Error("a closed arena is not clean")
		}
	}
}

// The pages before and after an arena cannot be touched.
func TestGuardPages(t *testing.T) {
	a := arena(t, 1)
	piece := alloc(t, a, a.Stat().Size)
	for _, offset := range []int{-1, len(piece)} {
		if touch(unsafe.Add(unsafe.Pointer(&piece[0]), offset)) {
			t.Errorf("the byte at %d can be read", offset)
		}
	}
	if !touch(unsafe.Pointer(&piece[0])) {
		t.Error("the first byte cannot be read")
	}
}

// touch reads a byte, and reports whether that worked.
func touch(at unsafe.Pointer) (worked bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { worked = recover() == nil }()
	probe = *(*byte)(at)
	return true
}

var probe byte // so that the read is not optimised away

func TestArenasAreOutsideTheReachOfDumpsAndSwap(t *testing.T) {
	a := arena(t, 1)
	piece := alloc(t, a, 1)
	piece[0] = 1
	flags := flagsOf(t, uintptr(unsafe.Pointer(&piece[0])))
	if !strings.Contains(flags, " dd") {
		t.Errorf("it would be in a dump: %s", flags)
	}
	if strings.Contains(flags, " lo") != a.Stat().Locked {
		t.Errorf("locked %t, but the kernel says: %s", a.Stat().Locked, flags)
	}
}

// flagsOf is what the kernel says about the mapping at an address.
func flagsOf(t *testing.T, address uintptr) string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if n, _ := sscanRange(line, &from, &to); n == 2 {
			inside = from <= address && address < to
		}
		if flags, found := strings.CutPrefix(line, "VmFlags:"); found && inside {
			return flags
		}
	}
	t.Fatal("no such mapping")
	return ""
}

// Without the right to lock memory the arena works, and says why it is not
// locked.
func TestAnArenaThatCannotBeLocked(t *testing.T) {
	a, err := newArena("test", 1<<20, func([]byte) error { return unix.ENOMEM })
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	stat := a.Stat()
	if stat.Locked || !strings.Contains(stat.Reason, "1 MiB") || !strings.Contains(stat.Next, "ulimit -l") {
		t.Errorf("%+v", stat)
	}
	alloc(t, a, 100)[99] = 1
	if stat := arena(t, 1).Stat(); stat.Locked != (stat.Reason == "") {
		t.Errorf("%+v", stat)
	}
}

func TestArenasThatCannotBe(t *testing.T) {
	for _, size := range []int{-1, 0, math.MaxInt} {
		_, err := NewArena("test", size)
		testkit.WantKind(t, err, fault.Malformed, "size")
	}
	_, err := NewArena("test", 1<<60) // more than a process can address
	testkit.WantKind(t, err, fault.StoreFull, "too large")
	if !strings.Contains(fault.NextOf(err), "memory") {
		t.Error(fault.NextOf(err))
	}
	_, err = NewArenaSet().NewArena("test", 0)
	testkit.WantKind(t, err, fault.Malformed, "in a vault")
}

func TestVault(t *testing.T) {
	v := NewArenaSet()
	if report := v.ZeroAll(); !report.Clean() || report.String() != "no arenas" {
		t.Errorf("%s", report)
	}
	keys, err := v.NewArena("keys", 1)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := v.NewArena("cache", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	secret, page := alloc(t, keys, 32), alloc(t, cache, 1<<12)
	copy(secret, "secret")
	copy(page, "page")
	if stats := v.Stats(); len(stats) != 2 || stats[0].Name != "keys" || stats[1].Used != 1<<12 {
		t.Errorf("%+v", stats)
	}
	if report := v.ZeroAll(); !report.Clean() || report.String() != "keys zeroed (32 bytes), cache zeroed (4 KiB)" {
		t.Errorf("%s", report)
	}
	if secret[0] != 0 || page[0] != 0 {
		t.Error("ZeroAll left something")
	}
	for range 2 {
		report, err := v.Close()
		if err != nil || !report.Clean() || len(report.Arenas) != 2 {
			t.Errorf("%s, %v", report, err)
		}
	}
	_, err = v.NewArena("late", 1)
	testkit.WantKind(t, err, fault.Canceled, "after Close")
	_, err = keys.Alloc(1)
	testkit.WantKind(t, err, fault.Canceled, "an arena of a closed vault")
}

func TestAReportTellsWhatIsNotClean(t *testing.T) {
	report := Report{Arenas: []ArenaReport{{"keys", 32, true}, {"cache", 1 << 20, false}}}
	if report.Clean() || report.String() != "keys zeroed (32 bytes), cache not clean (1 MiB)" {
		t.Errorf("%s", report)
	}
}

// The whole memory of a process is searched for what was in its arenas.
func TestNothingIsLeftInMemory(t *testing.T) { runChild(t, "wipe") }

func sscanRange(line string, from, to *uintptr) (int, error) {
	return fmt.Sscanf(line, "%x-%x ", from, to)
}
