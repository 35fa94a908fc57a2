package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"micronode/internal/flow"
)

// spareMemory is how much unused memory a node may keep.
const spareMemory = 16 << 20

// memoryTrim returns memory to the system. It belongs to the purger.
type memoryTrim struct {
	inUse uint64 // after the last release
}

// release collects garbage and returns memory if it is worth the cost. The
// runtime does so by itself, but only when it has to grow again: a node that
// was busy for a minute, or did handshakes with thousands of peers, and is idle
// since would keep twice what it needs.
func (t *memoryTrim) release() {
	if objects, free := heapSizes(); objects+free > t.inUse+spareMemory {
		debug.FreeOSMemory()
		t.inUse, _ = heapSizes()
	}
}

// startupTime is how long after its start a node has finished starting.
const startupTime = time.Second

// releaseStartupMemory releases memory that was needed only for the start.
func releaseStartupMemory(ctx context.Context) error {
	if flow.Sleep(ctx, startupTime) == nil {
		releaseProgramPages()
	}
	return nil
}

// heapSizes is the memory in use or garbage, and the free memory that was not
// returned.
func heapSizes() (objects, free uint64) {
	figures := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(figures)
	return figures[0].Value.Uint64(), figures[1].Value.Uint64()
}
