package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"micronode/internal/flow"
)

// spareMemory is how much memory that nobody uses a node may keep.
const spareMemory = 16 << 20

// thrift gives memory back to the machine. It belongs to the purger.
type thrift struct {
	kept uint64 // what was in use after the last time
}

// giveBack collects garbage and gives memory back if it is worth the while. The
// runtime does so by itself, but only when it has to grow again: a node that was
// busy for a minute, or shook hands with thousands of peers, and is idle since
// would keep twice what it needs.
func (t *thrift) giveBack() {
	if objects, free := heap(); objects+free > t.kept+spareMemory {
		debug.FreeOSMemory()
		t.kept, _ = heap()
	}
}

// settling is how long after its start a node has done what it does only then.
const settling = time.Second

// settle gives back what only starting needed.
func settle(ctx context.Context) error {
	if flow.Sleep(ctx, settling) == nil {
		releaseProgram()
	}
	return nil
}

// heap is what is used or garbage, and what is neither and was not given back.
func heap() (objects, free uint64) {
	figures := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(figures)
	return figures[0].Value.Uint64(), figures[1].Value.Uint64()
}
