package graph

import (
	"fmt"
	"iter"

	"micronode/fault"
)

// limits bounds an edgeSet.
type limits struct {
	edges   int // in all
	follows int // of one node
}

// id is the number of a name.
type id uint32

// edgeSet is the edges in memory. It has one owner at a time, which ensures that
// it does not change while it is read.
type edgeSet struct {
	limits limits
	ids    map[string]id
	nodes  []node // by id
	free   []id   // of released nodes
	edges  int
}

// node is a name and its edges. One without edges is released.
type node struct {
	name      string
	follows   adjacency
	followers adjacency
}

// newEdgeSet makes an empty one.
func newEdgeSet(limits limits) *edgeSet { return &edgeSet{limits: limits, ids: map[string]id{}} }

// len is how many edges there are, and nodeCount how many names have one.
func (e *edgeSet) len() int       { return e.edges }
func (e *edgeSet) nodeCount() int { return len(e.ids) }

// checkCapacity returns why there is no room for a new edge of a node, or nil.
// pending is how many other edges are about to be added, and pendingOfNode how
// many of these belong to the node.
func (e *edgeSet) checkCapacity(a string, pending, pendingOfNode int) error {
	if e.edges+pending >= e.limits.edges {
		return &fault.Error{Op: op, Kind: fault.StoreFull, Detail: fmt.Sprintf("the graph has reached its maximum of %d edges", e.limits.edges),
			Next: "Remove some, or raise facets.graph.max_edges."}
	}
	if from, known := e.ids[a]; known {
		pendingOfNode += e.nodes[from].follows.size
	}
	if pendingOfNode >= e.limits.follows {
		return &fault.Error{Op: op, Kind: fault.QuotaExceeded, Detail: fmt.Sprintf("%q follows the maximum number of nodes: %d", a, e.limits.follows),
			Next: "Unfollow some first, or raise facets.graph.max_follows."}
	}
	return nil
}

// follow adds an edge and reports whether it is new. It ignores checkCapacity:
// stored edges stay, even if the limits are lowered.
func (e *edgeSet) follow(a, b string) (created bool) {
	if e.follows(a, b) {
		return false
	}
	from, to := e.intern(a), e.intern(b)
	e.insert(&e.nodes[from].follows, to)
	e.insert(&e.nodes[to].followers, from)
	e.edges++
	return true
}

// unfollow removes an edge and reports whether it existed.
func (e *edgeSet) unfollow(a, b string) (removed bool) {
	if !e.follows(a, b) {
		return false
	}
	from, to := e.ids[a], e.ids[b]
	e.remove(&e.nodes[from].follows, b)
	e.remove(&e.nodes[to].followers, a)
	e.edges--
	e.releaseIfIsolated(from)
	e.releaseIfIsolated(to)
	return true
}

// follows reports whether there is an edge.
func (e *edgeSet) follows(a, b string) bool {
	from, known := e.ids[a]
	if !known {
		return false
	}
	_, found := e.find(&e.nodes[from].follows, b)
	return found
}

// followers lists the followers of a node in the order of their names, at most
// limit of them after a name. That name need not be a follower.
func (e *edgeSet) followers(b, after string, limit int) []string {
	to, known := e.ids[b]
	if !known {
		return nil
	}
	return e.page(&e.nodes[to].followers, after, limit)
}

// all iterates over all edges, node by node. The set must not change
// meanwhile.
func (e *edgeSet) all() iter.Seq2[string, string] {
	return func(yield func(a, b string) bool) {
		for i := range e.nodes {
			from := &e.nodes[i]
			for _, run := range from.follows.runs {
				for _, to := range run {
					if !yield(from.name, e.nodes[to].name) {
						return
					}
				}
			}
		}
	}
}

// intern returns the number of a name, assigning one if needed.
func (e *edgeSet) intern(name string) id {
	if known, ok := e.ids[name]; ok {
		return known
	}
	var n id
	if last := len(e.free) - 1; last >= 0 {
		n, e.free = e.free[last], e.free[:last]
		e.nodes[n].name = name
	} else {
		n = id(len(e.nodes))
		e.nodes = append(e.nodes, node{name: name})
	}
	e.ids[name] = n
	return n
}

// releaseIfIsolated removes a node that has no edge left.
func (e *edgeSet) releaseIfIsolated(n id) {
	if at := &e.nodes[n]; at.follows.size == 0 && at.followers.size == 0 && at.name != "" {
		delete(e.ids, at.name)
		*at = node{}
		e.free = append(e.free, n)
	}
}
