package graph

import (
	"fmt"
	"iter"

	"micronode/fault"
)

// Limits bounds a graph.
type Limits struct {
	Edges   int // in all
	Follows int // of one node
}

// id is the number of a name.
type id uint32

// Graph is who follows whom. It has one owner at a time.
type Graph struct {
	limits Limits
	ids    map[string]id
	nodes  []node // by id
	free   []id   // of nodes that were forgotten
	edges  int
}

// node is a name and its edges. One without edges is forgotten.
type node struct {
	name      string
	follows   row
	followers row
}

// New makes an empty graph.
func New(limits Limits) *Graph { return &Graph{limits: limits, ids: map[string]id{}} }

// Len is how many edges there are, and Nodes how many names they join.
func (g *Graph) Len() int   { return g.edges }
func (g *Graph) Nodes() int { return len(g.ids) }

const op = "index.graph"

// Room says why there is no room for an edge that a node does not have, or
// nothing if there is. Coming is how many edges are about to be added besides,
// and of the node how many of these are its own.
func (g *Graph) Room(a string, coming, ofNode int) error {
	if g.edges+coming >= g.limits.Edges {
		return &fault.Error{Op: op, Kind: fault.StoreFull, Detail: fmt.Sprintf("the graph has all the %d edges that it may have", g.limits.Edges),
			Next: "Remove some, or raise facets.graph.max_edges."}
	}
	if from, known := g.ids[a]; known {
		ofNode += g.nodes[from].follows.size
	}
	if ofNode >= g.limits.Follows {
		return &fault.Error{Op: op, Kind: fault.QuotaExceeded, Detail: fmt.Sprintf("%q follows as many as one node may: %d", a, g.limits.Follows),
			Next: "Unfollow some first, or raise facets.graph.max_follows."}
	}
	return nil
}

// Follow adds an edge and reports whether it is new. It does not ask for Room:
// what was kept once is kept, even if less may be kept from now on.
func (g *Graph) Follow(a, b string) (created bool) {
	if g.Follows(a, b) {
		return false
	}
	from, to := g.intern(a), g.intern(b)
	g.insert(&g.nodes[from].follows, to)
	g.insert(&g.nodes[to].followers, from)
	g.edges++
	return true
}

// Unfollow removes an edge and reports whether it was there.
func (g *Graph) Unfollow(a, b string) (removed bool) {
	if !g.Follows(a, b) {
		return false
	}
	from, to := g.ids[a], g.ids[b]
	g.remove(&g.nodes[from].follows, b)
	g.remove(&g.nodes[to].followers, a)
	g.edges--
	g.forget(from)
	g.forget(to)
	return true
}

// Follows reports whether there is an edge.
func (g *Graph) Follows(a, b string) bool {
	from, known := g.ids[a]
	if !known {
		return false
	}
	_, found := g.find(&g.nodes[from].follows, b)
	return found
}

// Followers lists those who follow a node in the order of their names, at most
// limit of them after a name. That one need not be among them.
func (g *Graph) Followers(b, after string, limit int) []string {
	to, known := g.ids[b]
	if !known {
		return nil
	}
	return g.page(&g.nodes[to].followers, after, limit)
}

// Edges goes through all edges, those of one node after the other. The graph
// must not change meanwhile.
func (g *Graph) Edges() iter.Seq2[string, string] {
	return func(yield func(a, b string) bool) {
		for i := range g.nodes {
			from := &g.nodes[i]
			for _, run := range from.follows.runs {
				for _, to := range run {
					if !yield(from.name, g.nodes[to].name) {
						return
					}
				}
			}
		}
	}
}

// intern finds the number of a name, or gives it one.
func (g *Graph) intern(name string) id {
	if known, ok := g.ids[name]; ok {
		return known
	}
	var n id
	if last := len(g.free) - 1; last >= 0 {
		n, g.free = g.free[last], g.free[:last]
		g.nodes[n].name = name
	} else {
		n = id(len(g.nodes))
		g.nodes = append(g.nodes, node{name: name})
	}
	g.ids[name] = n
	return n
}

// forget takes a node out that has no edge left.
func (g *Graph) forget(n id) {
	if at := &g.nodes[n]; at.follows.size == 0 && at.followers.size == 0 && at.name != "" {
		delete(g.ids, at.name)
		*at = node{}
		g.free = append(g.free, n)
	}
}
