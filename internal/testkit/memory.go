package testkit

import (
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
)

// Memory is a reading of the memory in use. It is read in the gates only:
// elsewhere other tests, and what they have left to the collector, are in it
// too, and Grown is zero.
type Memory struct{ before int64 }

// WatchMemory reads how much memory is in use, to compare later readings with.
func WatchMemory() Memory { return Memory{memoryInUse()} }

// Grown is by how much the memory in use has grown, stacks included.
func (m Memory) Grown() int64 { return memoryInUse() - m.before }

// MemoryGate skips a test that judges nothing but memory, except in the gates.
func MemoryGate(t testing.TB) {
	t.Helper()
	if !measuresMemory {
		t.Skip("memory is measured by make gates")
	}
}

// memoryInUse is the least of some readings: each includes what other
// goroutines have discarded since the collection.
func memoryInUse() int64 {
	if !measuresMemory {
		return 0
	}
	least := int64(math.MaxInt64)
	for range 5 {
		for range 3 { // a sync.Pool is emptied by the second collection, and each halves a stack
			runtime.GC()
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		least = min(least, int64(stats.HeapAlloc+stats.StackInuse))
	}
	return least
}

// OpenFiles is how many files below a folder this process has open. What
// belongs to other tests, or to the runtime, is not counted.
func OpenFiles(t testing.TB, folder string) (n int) {
	t.Helper()
	links, err := os.ReadDir("/proc/self/fd")
	Must(t, err)
	for _, link := range links {
		to, err := os.Readlink("/proc/self/fd/" + link.Name()) // an error: it was closed meanwhile
		if err == nil && strings.HasPrefix(to, folder+"/") {
			n++
		}
	}
	return n
}
