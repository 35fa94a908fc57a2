package kad

import (
	"sync"

	"micronode/fault"
)

// maxHops is the number of hops from which they are counted together.
const maxHops = 8

// Stats is the counters of a network since it was opened, and its current
// sizes.
type Stats struct {
	Peers       int // in the routing table
	Connections int
	Providers   int // records stored for others
	Names       int

	Walks    uint64
	Found    uint64 // walks that found something
	Empty    uint64 // walks whose empty answer is certain
	TimedOut uint64 // walks that ran out of time
	Failed   uint64 // walks without a reachable peer
	Asked    uint64 // queries to peers on all walks
	Answered uint64

	// Hops counts walks by the distance of the farthest peer that answered. The
	// last one also counts all that went farther.
	Hops [maxHops]uint64
}

// statsCounter keeps the totals of a Stats.
type statsCounter struct {
	mu    sync.Mutex //lockblock:leaf nothing is called under it
	total Stats
}

// add counts a finished walk.
func (c *statsCounter) add(w *walkState, err error) {
	kind := fault.KindOf(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.total
	t.Walks++
	t.Asked += uint64(w.trace.asked)
	t.Answered += uint64(w.trace.answered)
	t.Hops[min(w.trace.hops, maxHops-1)]++
	switch {
	case w.found():
		t.Found++
	case err == nil:
		t.Empty++
	case kind == fault.Timeout || kind == fault.Canceled:
		t.TimedOut++
	default:
		t.Failed++
	}
}

func (c *statsCounter) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Stats returns the counters and the current sizes. It never waits.
func (n *Network) Stats() Stats {
	s := n.counts.snapshot()
	s.Peers, s.Connections = n.Size(), len(n.network.Conns())
	s.Providers, s.Names = n.stores.providers.size(), n.stores.values.size()
	return s
}
