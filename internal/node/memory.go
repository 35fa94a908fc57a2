package node

import (
	"runtime/debug"
	"runtime/metrics"
)

// spareMemory is how much memory that nobody uses a node may keep.
const spareMemory = 16 << 20

// giveBackMemory collects garbage and gives memory back to the machine if it is
// worth the while. The runtime does so by itself, but only when it has to grow
// again: a node that was busy for a minute, or shook hands with thousands of
// peers, and is idle since would keep twice what it needs.
func giveBackMemory() {
	figures := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, // used, or garbage
		{Name: "/gc/heap/live:bytes"},                // used, when somebody last looked
		{Name: "/memory/classes/heap/free:bytes"},    // neither, and not given back
	}
	metrics.Read(figures)
	objects, live, free := figures[0].Value.Uint64(), figures[1].Value.Uint64(), figures[2].Value.Uint64()
	if objects+free > live+spareMemory {
		debug.FreeOSMemory()
	}
}
