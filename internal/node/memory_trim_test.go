package node

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// A node that was busy releases memory that it no longer needs.
func TestMemoryIsReleased(t *testing.T) {
	busy := make([][]byte, 256)
	for i := range busy {
		busy[i] = make([]byte, 1<<20)
		busy[i][0], busy[i][1<<19] = 1, 1
		for page := 0; page < 1<<20; page += 4096 {
			busy[i][page] = 1
		}
	}
	full := resident(t)
	runtime.GC() // all of it is in use at the last measurement
	runtime.KeepAlive(busy)
	busy = nil
	new(memoryTrim).release()
	if idle := resident(t); idle > full-128<<20 {
		t.Errorf("%d MiB when busy, %d MiB when idle", full>>20, idle>>20)
	}
}

// resident is how much memory this process takes.
func resident(t *testing.T) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	for _, digit := range strings.Fields(string(text))[1] {
		bytes = 10*bytes + int64(digit-'0')
	}
	return bytes * int64(os.Getpagesize())
}
