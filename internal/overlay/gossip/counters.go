package gossip

import "micronode/internal/oap"

// The reasons for which letters are dropped that nothing is wrong with. There
// are no others.
const (
	DropIngress  = "ingress"  // too many wait to be looked at
	DropEgress   = "egress"   // a peer takes no more
	DropSeen     = "seen"     // so many letters are remembered that no more are taken
	DropTopics   = "topics"   // the peer names more topics than it may
	DropQuota    = "quota"    // the peer announces more than it may
	DropOversize = "oversize" // larger than the peer takes
	DropHops     = "hops"     // it went as far as it may
	DropExpired  = "expired"  // its time passed while it waited for a peer
	DropDrain    = "drain"    // the node is going away
)

// DropReasons lists every reason, for counters that exist before they count.
func DropReasons() []string {
	return []string{DropIngress, DropEgress, DropSeen, DropTopics, DropQuota, DropOversize, DropHops, DropExpired, DropDrain}
}

// Counters is where the engine counts. Each may be called by many at once; nil
// counts nothing.
type Counters struct {
	Taken     func(n int)                // letters that came and were new
	Duplicate func(n int)                // letters that came and were not
	Rejected  func(oap.Reason)           // letters that broke a rule
	Dropped   func(reason string, n int) // letters that there was no room for
	Relayed   func(n int)                // letters that were passed on, one for each peer
	Repaired  func(n int)                // letters that were sent because a peer asked for them
	Announced func(n int)                // ids that peers were told of
	Wanted    func(n int)                // ids that peers were asked for
	Delivered func(n int)                // letters that subscribers of this node got
	Pruned    func()                     // a peer is left out for a while
}

// orNothing replaces what is nil, so that nobody has to look.
func (c Counters) orNothing() Counters {
	for _, count := range []*func(int){&c.Taken, &c.Duplicate, &c.Relayed, &c.Repaired, &c.Announced, &c.Wanted, &c.Delivered} {
		if *count == nil {
			*count = func(int) {}
		}
	}
	if c.Rejected == nil {
		c.Rejected = func(oap.Reason) {}
	}
	if c.Dropped == nil {
		c.Dropped = func(string, int) {}
	}
	if c.Pruned == nil {
		c.Pruned = func() {}
	}
	return c
}
