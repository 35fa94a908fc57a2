package graph

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/wal"
)

// service is the label of the graph in metrics and in the inventory, and the name
// of the part.
const service = "graph"

// op is the operation in errors.
const op = "index.graph"

// Spec configures a graph.
type Spec struct {
	MaxEdges   int // in total
	MaxFollows int // of one node
	WalkEdges  int // edges that one walk may visit

	Path string // of its log; empty to keep it in memory only
}

// Graph is the follow graph. It is in memory; with a path, acknowledged changes
// are on disk, too. It needs no task of its own.
type Graph struct {
	// set at construction
	walkEdges int
	log       *wal.Log   // nil in memory
	writes    *flow.Lane // changes that wait for the disk
	scratch   sync.Pool  // of *scratch

	// edges changes when the disk has the change, and so never while the log is
	// rewritten: then it may be read without mu.

	mu            sync.RWMutex //lockblock:leaf memory only; a walk is bounded by WalkEdges
	edges         *edgeSet
	pendingByNode map[string]int // edges being written, by follower
	pending       int            // their total
	records       int            // in the log
	logSlack      int            // records allowed beyond twice those needed
	rewriting     bool
}

// Limits of concurrent changes.
const (
	maxWrites       = 256
	maxQueuedWrites = 512
)

// Open opens a graph and replays its log.
func Open(inv *flow.Inventory, spec Spec) (*Graph, error) {
	g := &Graph{
		walkEdges: spec.WalkEdges, logSlack: defaultLogSlack, pendingByNode: map[string]int{},
		edges:   newEdgeSet(limits{edges: spec.MaxEdges, follows: spec.MaxFollows}),
		writes:  flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "writes", Running: maxWrites, Waiting: maxQueuedWrites, From: "handlers", To: "graph", Effect: flow.StopsWrites}),
		scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
	if spec.Path == "" {
		return g, nil
	}
	var err error
	g.log, err = wal.Open(spec.Path, wal.Options{MaxRecord: maxEdgeRecord, Apply: g.replay})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	return g, nil
}

// Follow makes one node follow another and reports whether that is new. When it
// returns, the change is durable.
func (g *Graph) Follow(ctx context.Context, a, b string) (created bool, err error) {
	return g.change(ctx, edgeChange{edgeAdd, a, b})
}

// Unfollow removes an edge and reports whether it existed.
func (g *Graph) Unfollow(ctx context.Context, a, b string) (removed bool, err error) {
	return g.change(ctx, edgeChange{edgeRemove, a, b})
}

// change applies a change, if there is anything to change.
func (g *Graph) change(ctx context.Context, e edgeChange) (changed bool, err error) {
	if err := e.validate(); err != nil {
		return false, err
	}
	if err := g.writes.Enter(ctx); err != nil {
		return false, err
	}
	defer g.writes.Leave()
	if needed, err := g.reserve(e); err != nil || !needed {
		return false, err
	}
	if g.log == nil {
		return g.finish(e, nil), nil
	}
	var made atomic.Bool // atomic: after an early return, another goroutine may still call done
	done := func(err error) { made.Store(g.finish(e, err)) }
	if err := g.log.Commit(ctx, done, e.encode()); err != nil {
		return false, fault.Wrap(op, err)
	}
	g.compact(ctx)
	return made.Load(), nil
}

// reserve reports whether there is anything to change, and reserves capacity
// for an edge to be added.
func (g *Graph) reserve(e edgeChange) (needed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.edges.follows(e.a, e.b) == (e.op == edgeAdd) {
		return false, nil
	}
	if e.op == edgeAdd {
		if err := g.edges.checkCapacity(e.a, g.pending, g.pendingByNode[e.a]); err != nil {
			return false, err
		}
		g.pending++
		g.pendingByNode[e.a]++
	}
	return true, nil
}

// finish applies the change in memory once it is durable, and releases the
// reserved capacity.
func (g *Graph) finish(e edgeChange, err error) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.op == edgeAdd {
		g.pending--
		if g.pendingByNode[e.a]--; g.pendingByNode[e.a] == 0 {
			delete(g.pendingByNode, e.a)
		}
	}
	if err != nil {
		return false
	}
	return g.apply(e)
}

// Follows reports whether one node follows another.
func (g *Graph) Follows(a, b string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.edges.follows(a, b)
}

// Followers lists the followers of a node in the order of their names, at most
// limit of them after a name. That name need not be a follower any more, so
// paging lists each permanent follower exactly once. It never fails: the error
// is for Remote.
func (g *Graph) Followers(_ context.Context, b, after string, limit int) ([]string, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.edges.followers(b, after, limit), nil
}

// Relation is the relation between two nodes.
type Relation struct {
	Follows  bool `json:"follows,omitempty"`  // the first follows the second
	Followed bool `json:"followed,omitempty"` // the second follows the first
}

// Relations returns the relations between a node and others, in their order.
// Like Followers, it never fails.
func (g *Graph) Relations(_ context.Context, a string, others []string) ([]Relation, error) {
	ties := make([]Relation, len(others))
	g.mu.RLock()
	defer g.mu.RUnlock()
	for i, b := range others {
		ties[i] = Relation{Follows: g.edges.follows(a, b), Followed: g.edges.follows(b, a)}
	}
	return ties, nil
}

// Size is how many nodes have an edge, and how many edges there are.
func (g *Graph) Size() (nodes, edges int) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.edges.nodeCount(), g.edges.len()
}

// Neighbours finds the nodes around a node, nearest first, at most limit nodes
// within so many hops. Truncated says that there may be more. An unknown node
// has no neighbours.
func (g *Graph) Neighbours(ctx context.Context, node string, hops, limit int, direction Direction) (found []NearNode, truncated bool, err error) {
	if err := CheckNode(node); err != nil {
		return nil, false, err
	}
	switch {
	case hops < 1 || hops > MaxHops:
		return nil, false, malformed("Choose from 1 to 3 steps.", "%d steps", hops)
	case limit < 1:
		return nil, false, malformed("Ask for 1 or more.", "%d neighbours", limit)
	case direction != Follows && direction != Followers:
		return nil, false, malformed("Write follows or followers.", "%q is not a direction", direction)
	}
	s := g.scratch.Get().(*scratch)
	defer g.scratch.Put(s)
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.edges.walk(s, walkSpec{from: node, direction: direction, hops: hops, maxNodes: limit, maxEdges: g.walkEdges},
		func() error { return flow.Ended(ctx, op) })
}

// Close closes the log. Reads remain possible.
func (g *Graph) Close() error {
	g.writes.Close()
	if g.log == nil {
		return nil
	}
	return fault.Wrap(op, g.log.Close())
}

// maxNode is the maximum length of a node's name, in bytes.
const maxNode = 128

// CheckNode rejects invalid names of nodes: a name has 1 to 128 bytes of UTF-8
// in NFC, no control characters and no slash.
func CheckNode(name string) error {
	switch {
	case name == "" || len(name) > maxNode:
		return malformed("Choose 1 to 128 bytes.", "a name of %d bytes", len(name))
	case !utf8.ValidString(name) || !norm.NFC.IsNormalString(name):
		return malformed("Send UTF-8 in NFC.", "the name is not normalised text")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || unicode.IsControl(r) }):
		return malformed("Leave out slashes and control characters.", "%q is not a valid name", name)
	case name == "." || name == "..":
		return malformed(`Choose a name other than "." and "..".`, "%q is not a valid name", name)
	}
	return nil
}

func malformed(next, format string, args ...any) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...), Next: next}
}
