package index

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/graph"
	"micronode/internal/logbook"
)

const opGraph = "index.graph"

// GraphSpec says how large a graph may become, and where it is kept.
type GraphSpec struct {
	MaxEdges   int // in all
	MaxFollows int // of one node
	WalkEdges  int // that one question may look at

	Path string // of the file that keeps it; empty to have it in memory only
}

// Direction is which way the edges of a graph are walked.
type Direction = graph.Direction

// The two directions.
const (
	Follows   = graph.Follows   // to those whom a node follows
	Followers = graph.Followers // to those who follow it
)

// MaxHops is how many steps a question may go.
const MaxHops = graph.MaxHops

// Near is a node that was found near another, and how many steps away it is.
type Near = graph.Near

// Graph is who follows whom. It is in memory; with a path, what was
// acknowledged is on disk, too. It needs nobody to run it.
type Graph struct {
	// set at construction
	walkEdges int
	book      *logbook.Book // nil in memory
	writes    *flow.Lane    // what waits for the disk
	scratch   sync.Pool     // of *graph.Scratch

	// All is changed when the disk has the change, and so never while the book
	// is rewritten: then it may be read without mu.

	mu        sync.RWMutex //lockblock:leaf memory only; a walk is bounded by WalkEdges
	all       *graph.Graph
	coming    map[string]int // edges that are being written, by who follows
	comes     int            // all of them
	records   int            // in the book
	spare     int            // that it may have beyond twice those it needs
	rewriting bool
}

// How much of a graph is written at a time.
const (
	mostWrites   = 256
	mostWaitDisk = 512
)

// OpenGraph makes a graph, with what was kept in it.
func OpenGraph(inv *flow.Inventory, spec GraphSpec) (*Graph, error) {
	g := &Graph{
		walkEdges: spec.WalkEdges, spare: usualSpare, coming: map[string]int{},
		all:     graph.New(graph.Limits{Edges: spec.MaxEdges, Follows: spec.MaxFollows}),
		writes:  flow.NewLane(inv, flow.LaneSpec{Service: "graph", Name: "writes", Running: mostWrites, Waiting: mostWaitDisk, From: "handlers", To: "graph"}),
		scratch: sync.Pool{New: func() any { return new(graph.Scratch) }},
	}
	if spec.Path == "" {
		return g, nil
	}
	var err error
	g.book, err = logbook.Open(spec.Path, logbook.Options{MaxRecord: longestEdge, Apply: g.replay})
	if err != nil {
		return nil, fault.Wrap(opGraph, err)
	}
	return g, nil
}

// Follow makes one node follow another and reports whether that is new. When it
// returns, it is kept.
func (g *Graph) Follow(ctx context.Context, a, b string) (created bool, err error) {
	return g.change(ctx, edge{adds, a, b})
}

// Unfollow ends that and reports whether it was so.
func (g *Graph) Unfollow(ctx context.Context, a, b string) (removed bool, err error) {
	return g.change(ctx, edge{drops, a, b})
}

// change makes a change, if it is one.
func (g *Graph) change(ctx context.Context, e edge) (changed bool, err error) {
	if err := e.check(); err != nil {
		return false, err
	}
	if err := g.writes.Enter(ctx); err != nil {
		return false, err
	}
	defer g.writes.Leave()
	if needed, err := g.begin(e); err != nil || !needed {
		return false, err
	}
	if g.book == nil {
		return g.end(e, nil), nil
	}
	var made atomic.Bool // who leaves early is not there when another writes it
	done := func(err error) { made.Store(g.end(e, err)) }
	if err := g.book.Commit(ctx, done, e.record()); err != nil {
		return false, fault.Wrap(opGraph, err)
	}
	g.tidy(ctx)
	return made.Load(), nil
}

// begin reports whether there is anything to change, and holds room for an edge
// that is to be added.
func (g *Graph) begin(e edge) (needed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all.Follows(e.a, e.b) == (e.sign == adds) {
		return false, nil
	}
	if e.sign == adds {
		if err := g.all.Room(e.a, g.comes, g.coming[e.a]); err != nil {
			return false, err
		}
		g.comes++
		g.coming[e.a]++
	}
	return true, nil
}

// end makes the change in memory once it is kept, and gives back the room that
// was held for it.
func (g *Graph) end(e edge, err error) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.sign == adds {
		g.comes--
		if g.coming[e.a]--; g.coming[e.a] == 0 {
			delete(g.coming, e.a)
		}
	}
	if err != nil {
		return false
	}
	return g.apply(e)
}

// apply changes the graph by a record. Guarded by mu, or by nobody else being
// there.
func (g *Graph) apply(e edge) (changed bool) {
	g.records++
	if e.sign == adds {
		return g.all.Follow(e.a, e.b)
	}
	return g.all.Unfollow(e.a, e.b)
}

// replay is told the records of the book when it is opened.
func (g *Graph) replay(record []byte) error {
	e, err := parseEdge(record)
	if err != nil {
		return err
	}
	g.apply(e)
	return nil
}

// tidyTurn is how long the turn to write the book anew is waited for.
const tidyTurn = 10 * time.Second

// usualSpare is enough that a small graph is not written anew all the time.
const usualSpare = 4096

// tidy writes the book anew when most of it is about edges that are gone. Those
// who change the graph meanwhile wait. The deadline of whoever has the bad luck
// to do it does not count: half of the work would be none. If it fails, the book
// is as it was.
func (g *Graph) tidy(ctx context.Context) {
	if !g.beginTidy() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTurn)
	defer cancel()
	before, after := 0, 0
	err := g.book.Rewrite(ctx, func(add func([]byte) error) error {
		before = g.records // nobody changes it now
		for a, b := range g.all.Edges() {
			if err := add(edge{adds, a, b}.record()); err != nil {
				return err
			}
			after++
		}
		return nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rewriting = false
	if err != nil {
		g.spare *= 2 // not again with the very next change
		return
	}
	g.records -= before - after
}

// beginTidy reports whether the book is to be written anew, by the caller.
func (g *Graph) beginTidy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rewriting || g.records <= 2*g.all.Len()+g.spare {
		return false
	}
	g.rewriting = true
	return true
}

// Follows reports whether one node follows another.
func (g *Graph) Follows(a, b string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.all.Follows(a, b)
}

// Followers lists those who follow a node in the order of their names, at most
// limit of them after a name. That one need not be among them any more, so
// whoever follows all the time is listed once. It never fails: that is for the
// graph in another process.
func (g *Graph) Followers(_ context.Context, b, after string, limit int) ([]string, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.all.Followers(b, after, limit), nil
}

// Tie is what is between one node and another.
type Tie struct {
	Follows  bool `json:"follows,omitempty"`  // the one follows the other
	Followed bool `json:"followed,omitempty"` // the other follows the one
}

// Ties tells what is between a node and others, in their order. It never fails,
// as Followers.
func (g *Graph) Ties(_ context.Context, a string, others []string) ([]Tie, error) {
	ties := make([]Tie, len(others))
	g.mu.RLock()
	defer g.mu.RUnlock()
	for i, b := range others {
		ties[i] = Tie{Follows: g.all.Follows(a, b), Followed: g.all.Follows(b, a)}
	}
	return ties, nil
}

// Size is how many nodes there are that follow or are followed, and how many
// edges.
func (g *Graph) Size() (nodes, edges int) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.all.Nodes(), g.all.Len()
}

// Neighbours finds those around a node, the nearest first, at most so many and
// so many steps away. Truncated says that there may be more. A node that nobody
// knows has nobody around it.
func (g *Graph) Neighbours(ctx context.Context, node string, hops, most int, way Direction) (found []Near, truncated bool, err error) {
	if err := CheckNode(node); err != nil {
		return nil, false, err
	}
	switch {
	case hops < 1 || hops > MaxHops:
		return nil, false, badGraph("Choose from 1 to 3 steps.", "%d steps", hops)
	case most < 1:
		return nil, false, badGraph("Ask for 1 or more.", "%d neighbours", most)
	case way != Follows && way != Followers:
		return nil, false, badGraph("Write follows or followers.", "%q is no direction", way)
	}
	s := g.scratch.Get().(*graph.Scratch)
	defer g.scratch.Put(s)
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.all.Walk(s, graph.Walk{From: node, Direction: way, Hops: hops, Most: most, Edges: g.walkEdges},
		func() error { return flow.Ended(ctx, opGraph) })
}

// Close lets go of the file. What is read afterwards is what was there.
func (g *Graph) Close() error {
	g.writes.Close()
	if g.book == nil {
		return nil
	}
	return fault.Wrap(opGraph, g.book.Close())
}

// mostNode is how long the name of a node may be, in bytes.
const mostNode = 128

// CheckNode refuses what cannot be the name of a node of the graph: it has 1 to
// 128 bytes of UTF-8 in NFC, no control characters and no slash.
func CheckNode(name string) error {
	switch {
	case name == "" || len(name) > mostNode:
		return badGraph("Choose 1 to 128 bytes.", "a name of %d bytes", len(name))
	case !utf8.ValidString(name) || !norm.NFC.IsNormalString(name):
		return badGraph("Send UTF-8 in NFC.", "the name is no normal text")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || unicode.IsControl(r) }):
		return badGraph("Leave out slashes and control characters.", "%q is no name", name)
	case name == "." || name == "..":
		return badGraph("Choose a name that is no step in a path.", "%q is no name", name)
	}
	return nil
}

func badGraph(next, format string, args ...any) error {
	return &fault.Error{Op: opGraph, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...), Next: next}
}
