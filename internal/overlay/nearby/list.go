package nearby

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"micronode/internal/oap"
)

// The bounds of the list: how many nodes, and how many of one host. Who floods the
// network with IDs fills four entries for each address that it has.
const (
	MaxNodes        = 64
	MaxNodesPerHost = 4
	maxAddrs        = 4 // of one ID; the others may be impostors, which a session finds out
)

// Node is a node that says it is in this network.
type Node struct {
	ID    oap.PeerID
	Addrs []netip.AddrPort // where it says that it listens, the first heard first
	First time.Time
	Last  time.Time
}

// entry is a node, and until when each of its addresses is remembered.
type entry struct {
	Node
	until  []time.Time // as Addrs
	hidden bool        // the operator does not want to see it
}

// list remembers the nodes nearby.
type list struct {
	mu      sync.Mutex
	entries []*entry // in the order in which they were heard; guarded by mu
}

// Outcome is what became of a claim.
type Outcome string

// The outcomes.
const (
	Heard     Outcome = "heard"     // a node that was not known
	Renewed   Outcome = "renewed"   // one that was
	Left      Outcome = "left"      // it said goodbye
	Malformed Outcome = "malformed" // no DNS, or no record that a node would send
	Foreign   Outcome = "foreign"   // from an address that is not of the network, or not by multicast DNS
	Full      Outcome = "full"      // no more nodes, or none of this host
	Flooded   Outcome = "flooded"   // more packets than are read in a second
)

// Outcomes lists all of them.
func Outcomes() []Outcome {
	return []Outcome{Heard, Renewed, Left, Malformed, Foreign, Full, Flooded}
}

// add enters what a host claims.
func (l *list) add(c claim, from netip.Addr, now time.Time) Outcome {
	at := netip.AddrPortFrom(from, c.port)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	i := slices.IndexFunc(l.entries, func(e *entry) bool { return e.ID == c.id })
	if c.ttl == 0 { // only from where it was heard: nobody says goodbye for another host
		if i < 0 || !slices.Contains(l.entries[i].Addrs, at) {
			return Foreign
		}
		l.remove(l.entries[i], at)
		return Left
	}
	until := now.Add(time.Duration(c.ttl) * time.Second)
	if i >= 0 {
		return l.entries[i].renew(at, now, until)
	}
	ofHost := 0
	for _, e := range l.entries {
		if slices.ContainsFunc(e.Addrs, func(a netip.AddrPort) bool { return a.Addr() == from }) {
			ofHost++
		}
	}
	if len(l.entries) >= MaxNodes || ofHost >= MaxNodesPerHost {
		return Full
	}
	l.entries = append(l.entries, &entry{Node: Node{ID: c.id, Addrs: []netip.AddrPort{at}, First: now, Last: now}, until: []time.Time{until}})
	return Heard
}

// renew records that a node was heard again.
func (e *entry) renew(at netip.AddrPort, now, until time.Time) Outcome {
	e.Last = now
	i := slices.Index(e.Addrs, at)
	switch {
	case i >= 0:
		e.until[i] = until
	case len(e.Addrs) >= maxAddrs:
		return Full
	default:
		e.Addrs, e.until = append(e.Addrs, at), append(e.until, until)
	}
	return Renewed
}

// remove forgets an address of a node, and with the last one the node. Guarded by mu.
func (l *list) remove(e *entry, at netip.AddrPort) {
	if i := slices.Index(e.Addrs, at); i >= 0 {
		e.Addrs, e.until = slices.Delete(e.Addrs, i, i+1), slices.Delete(e.until, i, i+1)
	}
	if len(e.Addrs) == 0 {
		l.entries = slices.DeleteFunc(l.entries, func(one *entry) bool { return one == e })
	}
}

// expire forgets what was not renewed. Guarded by mu.
func (l *list) expire(now time.Time) {
	for _, e := range slices.Clone(l.entries) {
		for i := len(e.Addrs) - 1; i >= 0; i-- {
			if !now.Before(e.until[i]) {
				l.remove(e, e.Addrs[i])
			}
		}
	}
}

// all lists the nodes that are not hidden, by ID.
func (l *list) all(now time.Time) []Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	nodes := []Node{}
	for _, e := range l.entries {
		if !e.hidden {
			one := e.Node
			one.Addrs = slices.Clone(e.Addrs)
			nodes = append(nodes, one)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID.Compare(b.ID), 0) })
	return nodes
}

// addrs are the addresses of a node, hidden or not.
func (l *list) addrs(id oap.PeerID, now time.Time) (addrs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	for _, e := range l.entries {
		if e.ID == id {
			for _, at := range e.Addrs {
				addrs = append(addrs, at.String())
			}
		}
	}
	return addrs
}

// hide takes a node from what is shown, as long as it is heard, and reports whether
// it was shown.
func (l *list) hide(id oap.PeerID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	for _, e := range l.entries {
		if e.ID == id && !e.hidden {
			e.hidden = true
			return true
		}
	}
	return false
}
