package kad

import (
	"sync"

	"micronode/fault"
)

// mostHops is where hops are no longer told apart.
const mostHops = 8

// Stats is what a network has done since it was opened, and what it holds.
type Stats struct {
	Peers       int // in the routing table
	Connections int
	Providers   int // records that are kept for others
	Names       int

	Walks    uint64
	Found    uint64 // walks that found something
	Empty    uint64 // walks that found out that nobody has it
	Late     uint64 // walks whose time was over
	Failed   uint64 // walks on which nobody could be asked
	Asked    uint64 // questions to peers on all walks
	Answered uint64

	// Hops counts walks by how far away the farthest peer was that answered.
	// The last one counts all that went farther, too.
	Hops [mostHops]uint64
}

// counts are the totals of a Stats.
type counts struct {
	mu    sync.Mutex //lockblock:leaf nothing is called under it
	total Stats
}

// add counts a walk that has ended.
func (c *counts) add(w *walk, err error) {
	kind := fault.KindOf(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.total
	t.Walks++
	t.Asked += uint64(w.trail.asked)
	t.Answered += uint64(w.trail.answered)
	t.Hops[min(w.trail.hops, mostHops-1)]++
	switch {
	case w.found():
		t.Found++
	case err == nil:
		t.Empty++
	case kind == fault.Timeout || kind == fault.Canceled:
		t.Late++
	default:
		t.Failed++
	}
}

func (c *counts) read() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Stats tells what the network has done and what it holds. It never waits.
func (n *Network) Stats() Stats {
	s := n.counts.read()
	s.Peers, s.Connections = n.Size(), len(n.network.Conns())
	s.Providers, s.Names = n.shelves.providers.size(), n.shelves.values.size()
	return s
}
